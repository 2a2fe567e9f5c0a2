"""Budgets and children in the cluster: applied where they differ from what they shall be, deleted where unwanted."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from blockswarm_operator import names
from blockswarm_operator.cluster import ApiError, Cluster
from blockswarm_operator.desired.children import Owner, budget, children, sealed, surplus
from blockswarm_operator.observe import Ask, Look
from blockswarm_operator.observed import Budget, Child
from blockswarm_operator.settings import Settings
from blockswarm_operator.view import Key, View

logger = logging.getLogger(__name__)

Place = tuple[str, str]
# Kinds that hold no state of ours: deleting one costs nothing.
_MADE_ANEW = ("Service", "NetworkPolicy")


class NameTaken(Exception):
    """An object of a child's name exists and belongs to somebody else."""


class PredecessorLeaves(Exception):
    """An object of a child's name belongs to a BlockServer of the same name that is gone: it is collected soon."""


Failure = NameTaken | PredecessorLeaves | ApiError
Failures = (NameTaken, PredecessorLeaves, ApiError)


@dataclass(frozen=True, slots=True)
class _Written:
    """What this process wrote last. `applied`: its hash, "" = it is not known whether the write arrived."""

    generation: int
    applied: str
    floor: int = 0


class Applier:
    """Writes to the cluster. What it remembers saves requests, and tells where the watch is behind its own writes."""

    def __init__(self, view: View, cluster: Cluster, settings: Settings) -> None:
        self._view = view
        self._cluster = cluster
        self._settings = settings
        self._written: dict[Key, dict[Place, _Written]] = {}
        self._failed: dict[Key, dict[str, Failure]] = {}

    def budgets(self, key: Key) -> dict[str, Budget]:
        """Budgets of the lane by span group. Where the watch is behind, what was written counts as not yet in force."""
        found = self._view.budgets_of(key)
        for group, one in found.items():
            last = self._last(key, one.kind, one.name)
            if last is not None and (not last.applied or one.generation < last.generation):
                floor = last.floor if last.applied else min(last.floor, one.min_available)
                found[group] = replace(one, min_available=floor, settled=False)
        return found

    async def apply(self, key: Key, seen: Look) -> dict[str, Failure]:
        """Budgets, then children; prune the rest.

        Returns:
            BlockServer → why not all of its children are as they shall be. One failure does not keep the pass from the
            others.
        """
        failed: dict[str, Failure] = {}
        by_group: dict[str, list[Owner]] = {}
        for one in seen.asks:
            by_group.setdefault(one.group, []).append(owner(one))
        budgets = self._view.budgets_of(key)
        for group, owners in sorted(by_group.items()):
            wanted = budget(group, owners, seen.floors.apply[group])
            try:
                await self._ensure(key, wanted, budgets.get(group), owners)
            except Failures as error:
                failed |= {one.name: error for one in owners}
        for one in seen.asks:
            try:
                await self._children(key, one, seen.steps[one.resource.name].replicas)
            except Failures as error:
                failed[one.resource.name] = error
        self._failed[key] = failed
        return failed

    def refused(self, key: Key) -> dict[str, str]:
        """BlockServer → what the last `apply` failed with."""
        return {name: str(error) for name, error in self._failed.get(key, {}).items()}

    def forget(self, key: Key, name: str) -> None:
        """A BlockServer is gone."""
        for place in [place for place in self._written.get(key, {}) if place[1] == name]:
            del self._written[key][place]

    def forget_lane(self, key: Key) -> None:
        """A lane has no BlockServer any more."""
        self._written.pop(key, None)
        self._failed.pop(key, None)

    async def _children(self, key: Key, one: Ask, replicas: int) -> None:
        mine = {
            (child.kind, child.name): child
            for child in self._view.children_of(key)
            if child.block_server == one.resource.name and one.resource.uid in child.owners
        }
        of = owner(one)
        wanted = children(of, dict(one.template), replicas, network_policy=self._settings.network_policy)
        for manifest in wanted:
            await self._ensure(
                key, manifest, mine.get((manifest["kind"], manifest["metadata"]["name"])), [of]
            )
        for kind, name in surplus(mine, wanted):
            await self._cluster.delete(kind, of.namespace, name, mine[kind, name].uid)

    async def _ensure(
        self, key: Key, manifest: dict[str, Any], child: Child | None, owners: Sequence[Owner]
    ) -> None:
        """Apply a manifest unless it is there as we made it."""
        body = sealed(manifest)
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        applied = body["metadata"]["annotations"][names.APPLIED]
        last = self._last(key, kind, name)
        if child is None:
            await self._check_free(manifest, owners)
        elif _changed_by_hand(child, manifest):
            pass
        elif last is None:
            if child.applied == applied and not child.foreign:
                self._remember(key, kind, name, _Written(child.generation, applied, _floor(manifest)))
                return
        elif last.applied == applied and (
            child.generation < last.generation  # the watch is behind our own write
            or (child.generation == last.generation and child.applied == applied)
        ):
            return
        # Until the answer is here, nobody knows which of the two is true.
        uncertain = min(_floor(manifest), last.floor if last is not None else _floor(manifest))
        self._remember(key, kind, name, _Written(0, "", uncertain))
        try:
            answer = await self._cluster.apply(body)
        except ApiError as error:
            if error.code == 422 and child is not None and kind in _MADE_ANEW:
                # What others put in beside ours makes it invalid: the next pass makes it anew.
                await self._cluster.delete(kind, child.namespace, name, child.uid)
            raise
        meta = answer["metadata"]
        generation = int(meta.get("generation") or meta.get("resourceVersion") or 0)
        self._remember(key, kind, name, _Written(generation, applied, _floor(manifest)))

    async def _check_free(self, manifest: Mapping[str, Any], owners: Sequence[Owner]) -> None:
        kind, meta = manifest["kind"], manifest["metadata"]
        there = await self._cluster.read(kind, meta["namespace"], meta["name"])
        if there is None:
            return
        references = there["metadata"].get("ownerReferences") or ()
        if {owner.uid for owner in owners} & {reference["uid"] for reference in references}:
            return
        if any(
            r["kind"] == "BlockServer" and r["name"] in {owner.name for owner in owners} for r in references
        ):
            raise PredecessorLeaves(f"{kind} {meta['name']}")
        raise NameTaken(
            f"{kind} {meta['name']} exists and is not this BlockServer's: delete or rename it, or choose another "
            "name for the BlockServer"
        )

    def _last(self, key: Key, kind: str, name: str) -> _Written | None:
        return self._written.get(key, {}).get((kind, name))

    def _remember(self, key: Key, kind: str, name: str, written: _Written) -> None:
        self._written.setdefault(key, {})[kind, name] = written


def owner(one: Ask) -> Owner:
    """The BlockServer as its children name it."""
    return Owner(
        name=one.resource.name,
        namespace=one.resource.namespace,
        uid=one.resource.uid,
        model=str(one.template["metadata"]["labels"][names.MODEL]),
        group=one.group,
    )


def _changed_by_hand(child: Child, manifest: Mapping[str, Any]) -> bool:
    """Whether labels or owners are not as we set them; changes of metadata move no generation."""
    meta = manifest["metadata"]
    owners = {reference["uid"] for reference in meta["ownerReferences"]}
    return not set(meta["labels"].items()) <= set(child.labels) or not owners <= set(child.owners)


def _floor(manifest: Mapping[str, Any]) -> int:
    return int(manifest["spec"].get("minAvailable") or 0)
