"""What people are told: status, conditions, events and metrics of BlockServers."""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from blockswarm_operator import events
from blockswarm_operator.cluster import ApiError, Cluster
from blockswarm_operator.conditions import Condition, conditions, dated, refused, while_blind, worst
from blockswarm_operator.coverage import Server, coverage
from blockswarm_operator.failures import with_failures
from blockswarm_operator.metrics import Metrics
from blockswarm_operator.observe import Ask, Look
from blockswarm_operator.settings import Settings
from blockswarm_operator.status import status, worth_writing
from blockswarm_operator.view import Key, Resource

logger = logging.getLogger(__name__)

Status = Mapping[str, Any]


@dataclass(slots=True)
class _Memory:
    """Of one BlockServer. `written`: monotonic seconds of the last write of its status, None = not by this process."""

    uid: str
    status: Status
    written: float | None = None
    told: set[tuple[str, str]] = field(default_factory=set)


class Teller:
    """Writes statuses where that is worth it, and posts what a person should see."""

    def __init__(self, cluster: Cluster, settings: Settings, metrics: Metrics) -> None:
        self._cluster = cluster
        self._settings = settings
        self._metrics = metrics
        self._memories: dict[tuple[str, str], _Memory] = {}

    async def tell(
        self,
        one: Ask,
        seen: Look,
        *,
        foreign: Sequence[str],
        failure: Exception | None = None,
        kept: Exception | None = None,
    ) -> None:
        """Tell about a BlockServer.

        Args:
            foreign: managers that changed its ReplicaSet.
            failure: why its children are not as they shall be.
            kept: why a pod of it could not leave.
        """
        resource, servers, memory = (
            one.resource,
            seen.servers_of(one.resource.name),
            self._memory(one.resource),
        )
        assert resource.spec is not None
        replicas, template, before = resource.spec["replicas"], one.template_hash, memory.status
        found = conditions(
            replicas,
            servers,
            seen.steps[resource.name],
            template=template,
            directory=not seen.blind,
            reachable=seen.reachable,
            foreign=foreign,
        )
        if seen.blind:
            found = while_blind(found, servers, before.get("conditions") or ())
        found = with_failures(found, failure=failure, kept=kept)
        after = status(
            resource.name,
            one.span,
            replicas,
            template,
            servers,
            found,
            blind=seen.blind,
            before=before,
            generation=resource.generation,
            now=_now(),
        )
        place = (resource.namespace, resource.name)
        self._metrics.show_replicas(*place, wanted=replicas, online=after["readyReplicas"])
        age = float("inf") if memory.written is None else time.monotonic() - memory.written
        if worth_writing(after, before, age=age):
            await self._write(resource, found, after)
        else:
            self._metrics.show_conditions(*place, before["conditions"])
        await self._tell_of_servers(resource, servers, before)

    async def tell_refused(self, resource: Resource) -> None:
        """Tell that a BlockServer cannot be read."""
        before, found = self._memory(resource).status, refused(resource.fault)
        rows = dated(found, before.get("conditions") or (), generation=resource.generation, now=_now())
        after = {**before, "conditions": rows, "reason": worst(rows)}
        self._metrics.show_conditions(resource.namespace, resource.name, rows)
        if after != before:
            await self._write(resource, found, after)

    def show_coverage(self, key: Key, model: str, seen: Look) -> None:
        """Set the model's coverage gauges."""
        wanted = {
            block
            for one in seen.asks
            if one.resource.spec is not None and one.resource.spec["replicas"] > 0
            for block in one.span.blocks()
        }
        counts = coverage(seen.servers, max(wanted, default=-1) + 1)
        self._metrics.show_coverage(key, model, {block: counts[block] for block in sorted(wanted)})

    def forget(self, namespace: str, name: str) -> None:
        """A BlockServer is gone."""
        self._metrics.forget_block_server(namespace, name)
        self._memories.pop((namespace, name), None)

    def _memory(self, resource: Resource) -> _Memory:
        place = (resource.namespace, resource.name)
        memory = self._memories.get(place)
        if memory is None or memory.uid != resource.uid:
            memory = self._memories[place] = _Memory(resource.uid, resource.status)
        return memory

    async def _write(self, resource: Resource, found: Sequence[Condition], after: Status) -> None:
        memory = self._memory(resource)
        told = events.turned(found, memory.status.get("conditions") or ())
        await self._cluster.apply_status(resource.namespace, resource.name, after)
        memory.status, memory.written = after, time.monotonic()
        self._metrics.show_conditions(resource.namespace, resource.name, after["conditions"])
        for reason, message in told:
            await self._post(resource, reason, message)

    async def _tell_of_servers(self, resource: Resource, servers: Sequence[Server], before: Status) -> None:
        was_online = {row["serverId"] for row in before.get("servers") or () if row.get("state") == "ONLINE"}
        for server in servers:
            pod = server.pod
            if server.lost and not pod.gone:
                text = f"node {pod.node} is lost with server {pod.name}; it is replaced elsewhere"
                await self._post_once(resource, "NodeLost", text, pod.uid)
            elif pod.deleting and pod.uid in was_online:
                text = f"pod {pod.name} drains; its sessions move"
                await self._post_once(resource, "Draining", text, pod.uid)

    async def _post_once(self, resource: Resource, reason: str, message: str, what: str) -> None:
        told = self._memory(resource).told
        if (reason, what) not in told:
            told.add((reason, what))
            await self._post(resource, reason, message)

    async def _post(self, resource: Resource, reason: str, message: str) -> None:
        logger.info("event", extra={"blockserver": resource.name, "reason": reason, "note": message})
        made = events.event(
            resource.namespace, resource.name, resource.uid, reason, message, identity=self._settings.identity
        )
        try:
            await self._cluster.create_event(made)
        except ApiError as error:
            # An event is a courtesy: its loss must not stop the pass.
            logger.warning("event not posted", extra={"reason": reason, "error": str(error)})


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
