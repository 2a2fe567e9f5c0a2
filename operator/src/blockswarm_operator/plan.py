"""The next step of each BlockServer: how many pods, which one leaves, and how.

Old pods leave one at a time through the Eviction API, so that rollouts, drains and autoscalers pass the same gate. The
last server of a block cannot leave so: it gets a substitute first (one replica more), and then leaves by scaling down.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from blockswarm_operator.coverage import Server, needed
from blockswarm_operator.observed import Pod
from blockswarm_wire.span import Span

_FIRST_TO_GO = -1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a BlockServer asks for.

    `current`: replicas its ReplicaSet has now, None = it does not exist. `failure`: why that cannot create pods.
    """

    name: str
    group: str
    span: Span
    replicas: int
    template: str
    allow_gap: bool = False
    current: int | None = None
    failure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What to do now for one BlockServer.

    replicas: of its ReplicaSet. evict: a pod that leaves through the Eviction API. costs: pod name → deletion cost.
    hold: servers that are ready leave by scaling down, which asks no budget: nothing else of the span group may be
    evicted now, and replicas fall only once all floors hold. expendable: pods whose loss is allowed.
    progress: reason and message of the condition Progressing; `stuck` where it cannot go on by itself.
    """

    replicas: int
    evict: Pod | None = None
    costs: Mapping[str, int] = field(default_factory=dict)
    hold: bool = False
    expendable: frozenset[str] = frozenset()
    progress: tuple[str, str] = ("Complete", "all servers are up to date")
    stuck: bool = False


def plan(wanted: Sequence[Wanted], servers: Sequence[Server]) -> dict[str, Step]:
    """The next step of every BlockServer of one model.

    Args:
        wanted: in any order.
        servers: of the model.
    """
    pods = Counter(s.pod.block_server for s in servers if not s.pod.deleting and not s.pod.gone)
    steps, surging = {}, ""
    # A substitute that exists goes before one that does not.
    for one in sorted(wanted, key=lambda one: (pods[one.name] <= one.replicas, one.name)):
        steps[one.name], starts = _step(one, servers, surging)
        surging = surging or (one.name if starts else "")
    return steps


def _step(one: Wanted, servers: Sequence[Server], surging: str) -> tuple[Step, bool]:
    """The step, and whether a substitute of this BlockServer is under way that others should wait for."""
    alive = [s for s in servers if s.pod.block_server == one.name and not s.pod.deleting and not s.pod.gone]
    old = [s for s in alive if s.pod.template != one.template]
    last = [s for s in alive if needed(s, servers) and (s in old or s.cordoned)]
    fresh = [s for s in alive if s not in old and s not in last]
    surge = bool(last) and len(last) >= one.replicas > 0
    # Servers of a former directory are all needed until there is a whole model in the new one.
    turns = not all(s.stranded for s in last)
    missing = surge and len(alive) <= one.replicas
    waits = missing and turns and bool(surging)
    pending = next(
        (s.pod.unschedulable for s in fresh if s.pod.unschedulable), one.failure if missing else ""
    )
    surplus = [s for s in last if s.stranded][: -one.replicas] if one.replicas else []
    if surplus:
        # Who was scaled down while the directory moved: as many as are wanted suffice those that still know them.
        return _fewer(one, alive, old, len(alive) - len(surplus), first=surplus), False
    target = one.replicas + (1 if surge and not waits else 0)
    if len(alive) > target:
        return _fewer(one, alive, old, target), False
    # One that has no room, or cannot start, may never come: the others need not wait for it.
    starts = surge and not waits and not pending and not any(s.pod.trouble for s in fresh)
    if last and pending and not waits:
        return _no_capacity(one, last[0], target, pending), False
    if waits:
        return Step(replicas=target, progress=("RollingOut", f"waits for the substitute of {surging}")), False
    leaver = _next_to_evict(one, old, fresh, servers)
    return Step(replicas=target, evict=leaver, progress=_progress(one, alive, old, last)), starts


def _fewer(
    one: Wanted, alive: list[Server], old: list[Server], target: int, first: Sequence[Server] = ()
) -> Step:
    """Scaling down: `first`, those that do not serve, those that must go, the idlest. Waits until they are marked."""
    order = sorted(
        alive,
        key=lambda s: (
            s not in first, s.online or s.wavers, s.pod.ready, s not in old, not s.cordoned,
            s.sessions, s.pod.created, s.pod.uid,
        ),
    )  # fmt: skip
    costs = {s.pod.name: _FIRST_TO_GO + rank for rank, s in enumerate(order[: len(alive) - target])}
    marked = all(s.pod.deletion_cost == costs[s.pod.name] for s in alive if s.pod.name in costs)
    current = one.replicas if one.current is None else one.current
    return Step(
        replicas=target if marked else max(current, target),
        costs=costs,
        hold=any(s.pod.ready or s.wavers for s in alive),
        progress=("Scaling", f"{len(alive)} servers, {target} wanted"),
    )


def _no_capacity(one: Wanted, last: Server, target: int, why: str) -> Step:
    text = (
        f"{last.pod.name} is the last server of some of blocks {one.span} and must go, but its substitute cannot be "
        f"scheduled: {why.rstrip('.')}. Add capacity, or set spec.update.allowGap to go on with a gap"
    )
    if not one.allow_gap:
        return Step(replicas=target, progress=("NoSpareCapacity", text), stuck=True)
    # A pod on a cordoned node is only made expendable: whoever drains the node evicts it.
    old = last.pod.template != one.template
    return Step(
        replicas=target,
        evict=last.pod if old else None,
        expendable=frozenset({last.pod.uid}),
        progress=("GapAllowed", f"{last.pod.name} leaves without a substitute, as spec.update.allowGap says"),
    )


def _next_to_evict(
    one: Wanted, old: list[Server], fresh: list[Server], servers: Sequence[Server]
) -> Pod | None:
    broken = next((s.pod for s in old if not s.pod.ready and not s.wavers), None)
    if broken is not None:
        return broken
    if len(old) + len(fresh) < one.replicas or not all(s.online for s in fresh):
        return None
    free = [s for s in old if not needed(s, servers)]
    return min(free, key=lambda s: (s.sessions, s.pod.created, s.pod.uid)).pod if free else None


def _progress(one: Wanted, alive: list[Server], old: list[Server], last: list[Server]) -> tuple[str, str]:
    online = [s for s in alive if s.online]
    if old:
        return "RollingOut", f"{len(alive) - len(old)} of {one.replicas} servers are up to date"
    if last:
        return "RollingOut", f"{last[0].pod.name} is on a cordoned node and gets a substitute"
    if len(alive) != one.replicas or len(online) != len(alive):
        return "Scaling", f"{len(online)} of {one.replicas} servers are online"
    return "Complete", "all servers are up to date"
