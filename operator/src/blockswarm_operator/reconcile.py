"""One pass over one model: look, state, apply, evict, tell. Knows no history that it could not do without."""

import asyncio
import logging
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from blockswarm_operator import names
from blockswarm_operator.applying import Applier, Failure
from blockswarm_operator.cluster import ApiError, Cluster
from blockswarm_operator.coverage import Server
from blockswarm_operator.directory import Directory
from blockswarm_operator.metrics import Metrics
from blockswarm_operator.observe import Ask, Look, ask, look
from blockswarm_operator.observed import Pod
from blockswarm_operator.settings import Settings
from blockswarm_operator.stating import Speaker
from blockswarm_operator.telling import Teller
from blockswarm_operator.view import Key, View

logger = logging.getLogger(__name__)

_SOON, _LATER = 1.0, 15.0


class Reconciler:
    """Brings one model after the other to what its BlockServers ask for."""

    def __init__(
        self, view: View, cluster: Cluster, directory: Directory, settings: Settings, metrics: Metrics
    ) -> None:
        self._view = view
        self._cluster = cluster
        self._directory = directory
        self._settings = settings
        self._metrics = metrics
        self._applier = Applier(view, cluster, settings)
        self._speaker = Speaker(view, directory)
        self._teller = Teller(cluster, settings, metrics)
        # Lane → names of its BlockServers, to forget them when they are gone.
        self._known: dict[Key, set[str]] = {}

    async def __call__(self, key: Key) -> float | None:
        """One pass. Returns when to look again without being poked; None = the model has no BlockServer any more."""
        began = time.perf_counter()
        resources = self._view.resources_of(key)
        await self._forget(key, {one.name for one in resources})
        if not resources:
            return None
        self._known[key] = {one.name for one in resources}
        for one in resources:
            if one.spec is None:
                await self._teller.tell_refused(one)
        asks = [ask(one, key[1], self._settings) for one in resources if one.spec is not None]
        again = await self._pass(key, asks) if asks else _LATER
        self._metrics.reconcile_seconds.observe(time.perf_counter() - began)
        self._metrics.last_success.set_to_current_time()
        return again

    async def _pass(self, key: Key, asks: list[Ask]) -> float:
        spec = asks[0].resource.spec
        assert spec is not None
        model = spec["model"]["name"]
        self._directory.follow(key[1], model, lambda: {pod.uid for pod in self._view.pods_of(key)})
        if any(pod.ready for pod in self._view.pods_of(key)):
            # Else a process that has just begun would call servers lost of which it has not heard yet.
            await self._directory.first_answer(key[1])
        known = self._directory.known(key[1])
        seen = look(
            asks,
            pods=self._view.pods_of(key),
            nodes=self._view.all_nodes(),
            views=known.views(time.time()),
            children=self._view.children_of(key),
            budgets=self._applier.budgets(key),
            directory=self._settings.directory,
            reachable=known.reachable,
            refused=self._applier.refused(key),
        )
        self._teller.show_coverage(key, model, seen)
        stated = asyncio.create_task(self._speaker.state(key, seen))
        try:
            failed = await self._applier.apply(key, seen)
            kept, refused_once = await self._release(seen, failed)
            untold = await self._tell(key, seen, failed, kept)
        finally:
            await asyncio.gather(stated, return_exceptions=True)
        for error in (*failed.values(), *kept.values(), *untold):
            if isinstance(error, ApiError):
                raise error
        if not stated.result() or refused_once or seen.floors.waiting or any(s.lost for s in seen.servers):
            return _SOON
        return _LATER

    async def _release(self, seen: Look, failed: Collection[str]) -> tuple[dict[str, ApiError], bool]:
        """Mark pods that scaling down shall take, and ask for evictions.

        A BlockServer that `failed` names lets none go: its ReplicaSet would make pods of the old template again.

        Returns:
            BlockServer → why its pod could not leave; and whether some budget refused for now.
        """
        kept: dict[str, ApiError] = {}
        refused_once = False
        for one in seen.asks:
            name = one.resource.name
            if name in failed:
                continue
            try:
                await self._mark(seen.servers_of(name), seen.steps[name].costs)
                leaver = seen.steps[name].evict
                refused_once |= leaver is not None and not await self._evict(leaver)
            except ApiError as error:
                kept[name] = error
        return kept, refused_once

    async def _tell(
        self, key: Key, seen: Look, failed: Mapping[str, Failure], kept: Mapping[str, ApiError]
    ) -> list[ApiError]:
        """Tell about every BlockServer. Returns what failed of that."""
        errors = []
        for one in seen.asks:
            name = one.resource.name
            foreign, failure = self._foreign(key, name), failed.get(name)
            try:
                await self._teller.tell(one, seen, foreign=foreign, failure=failure, kept=kept.get(name))
            except ApiError as error:
                errors.append(error)
        return errors

    async def _mark(self, servers: Sequence[Server], costs: Mapping[str, int]) -> None:
        for server in servers:
            pod, cost = server.pod, costs.get(server.pod.name)
            if cost != pod.deletion_cost and not pod.deleting:
                note = {names.DELETION_COST: None if cost is None else str(cost)}
                await self._annotate(pod.namespace, pod.name, pod.uid, note)

    async def _evict(self, pod: Pod) -> bool:
        allowed = await self._cluster.evict(pod.namespace, pod.name, pod.uid)
        self._metrics.evictions.labels("allowed" if allowed else "refused").inc()
        logger.info("eviction", extra={"pod": pod.name, "server": pod.uid, "allowed": allowed})
        return allowed

    async def _annotate(self, namespace: str, name: str, uid: str, notes: Mapping[str, Any]) -> None:
        try:
            await self._cluster.annotate_pod(namespace, name, uid, notes)
        except ApiError as error:
            if error.code not in (404, 409):
                raise

    def _foreign(self, key: Key, name: str) -> list[str]:
        """Managers that changed the ReplicaSet of a BlockServer."""
        mine = [one for one in self._view.children_of(key) if one.block_server == name]
        return [manager for one in mine if one.kind == "ReplicaSet" for manager in one.foreign]

    async def _forget(self, key: Key, there: set[str]) -> None:
        """Drop what is known of BlockServers that are gone, and of the model when it has none left."""
        for name in self._known.get(key, set()) - there:
            self._applier.forget(key, name)
            # One that became readable, or was made anew for another model, lives on in another lane.
            if not self._view.has(key[0], name):
                self._teller.forget(key[0], name)
        if not there:
            await self._directory.leave(key[1])
            self._metrics.show_coverage(key, "", {})
            self._speaker.forget(key)
            self._applier.forget_lane(key)
            self._known.pop(key, None)
