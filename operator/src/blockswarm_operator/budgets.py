"""Disruption budgets per span group: which servers must stay, and when a budget may be lowered.

A budget protects pods, not blocks. So some servers that alone cover every block now covered are kept by the floors of
their groups, and everybody else may go. Floors rise at once and fall only when all the others hold.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from blockswarm_operator.coverage import Server, uncovered
from blockswarm_operator.observed import Budget


def keep(servers: Iterable[Server], leaving: Collection[str] = ()) -> list[Server]:
    """Online servers that alone cover every block now covered, and stranded ones while those leave out some block.

    Of all such choices: the one with the fewest servers that must go (those on cordoned nodes and those whose uids are
    in `leaving`), else nobody could ever make them go; then the one with the fewest servers; then the youngest.
    """
    servers = list(servers)
    online = [server for server in servers if server.online]
    stranded = (
        [server for server in servers if server.stranded and server.serves] if uncovered(servers) else []
    )
    covered = sorted({block for server in online for block in server.span.blocks()})
    # best[i]: cost and choice of covering covered[i:], by the rank (those that must go, servers, age).
    best: list[tuple[tuple[int, int, float], list[Server]]] = [((0, 0, 0.0), [])] * (len(covered) + 1)
    for index in range(len(covered) - 1, -1, -1):
        block = covered[index]
        options = []
        for server in online:
            if block in server.span:
                (going, count, age), chosen = best[bisect_left(covered, server.span.end)]
                goes = server.cordoned or server.pod.uid in leaving
                cost = (going + goes, count + 1, age - server.pod.created)
                options.append((cost, server.pod.uid, [server, *chosen]))
        cost, _, chosen = min(options, key=lambda option: option[:2])
        best[index] = (cost, chosen)
    return best[0][1] + stranded


def floors(
    servers: Sequence[Server],
    groups: Iterable[str],
    *,
    leaving: Collection[str] = (),
    expendable: frozenset[str] = frozenset(),
    held: frozenset[str] = frozenset(),
) -> dict[str, int]:
    """minAvailable of each span group's budget.

    Pods that the API calls Ready but that do not serve are added, so that they cannot stand in for one that does; a
    group in which none serves keeps its first pod.

    Args:
        servers: of the model.
        groups: all groups that have a BlockServer.
        leaving: uids of pods that are asked to leave: where others can stand in for them, those are kept.
        expendable: uids of pods that may go though a block is lost with them.
        held: groups in which nothing may be evicted now.
    """
    stay = (server for server in servers if server.pod.uid not in expendable)
    kept = Counter(server.pod.group for server in keep(stay, leaving))
    wanted: dict[str, int] = {}
    for group in groups:
        members = [server for server in servers if server.pod.group == group and not server.pod.deleting]
        ready = [server for server in members if server.pod.ready]
        serving = [server for server in members if server.serves]
        unknown = len(ready) - len(serving)
        floor = kept[group] + unknown
        if not serving and members and not expendable & {server.pod.uid for server in members}:
            floor = max(floor, 1)
        wanted[group] = max(floor, len(ready)) if group in held else floor
    return wanted


@dataclass(frozen=True, slots=True)
class Floors:
    """`apply`: group → minAvailable to set now. `waiting`: whether some of them fall later."""

    apply: Mapping[str, int]
    waiting: bool


def fence(
    wanted: Mapping[str, int],
    budgets: Mapping[str, Budget],
    *,
    idle: Collection[str] = (),
    blind: bool = False,
) -> Floors:
    """What to set now: every rise, and the falls once each budget that has a floor holds it.

    Args:
        wanted: group → minAvailable.
        budgets: as they are, by group.
        idle: groups without any pod that is ready: their budgets have nothing to hold.
        blind: the directory cannot be asked: nothing falls.
    """
    holding = all_hold(wanted, budgets, idle=idle)
    now, waiting = {}, False
    for group, floor in wanted.items():
        budget = budgets.get(group)
        if budget is None or floor >= budget.min_available:
            now[group] = floor if budget is not None or not blind else max(floor, 1)
        elif blind or not holding:
            now[group], waiting = budget.min_available, True
        else:
            now[group] = floor
    return Floors(now, waiting)


def all_hold(wanted: Mapping[str, int], budgets: Mapping[str, Budget], *, idle: Collection[str] = ()) -> bool:
    """Whether each budget that has a floor holds it, but for groups that have nothing to hold."""
    return all(
        holds(budgets.get(group), floor) for group, floor in wanted.items() if floor > 0 and group not in idle
    )


def holds(budget: Budget | None, floor: int) -> bool:
    """Whether a budget is in force with at least this floor, healthy, and with no eviction under way."""
    return (
        budget is not None
        and budget.min_available >= floor
        and budget.current_healthy >= floor
        and budget.settled
    )
