"""The block graph: what a chain of servers costs, and the cheapest one. Pure: seconds in, hops out.

A chain enters a server, passes its blocks up to the end of its span (or of the range asked for), and goes on from
there. So a node of the graph is (server, block at which it is entered), and a chain's cost, the time of one token, is

    client → first server     half the round trip + OVERHEAD + burdens of the server
    each block                1 / inference_rps
    server → next server      half their round trip + OVERHEAD + burdens of the next
    last server → client      half the round trip

Burdens: the queue's delay, and fixed penalties that rank a server behind others without ever forbidding it.
"""

import heapq
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

OVERHEAD = 0.018
UNKNOWN_ONE_WAY = 0.15
UNREACHABLE_ONE_WAY = 5.0
UNKNOWN_RPS = 300.0
LACKS_CACHE = 10.0
BUSY = 10.0
BANNED = 100.0
DRAINING = 1_000.0

_UNREACHABLE_WEIGHT = 1e-6
_LAST_RESORT_WEIGHT = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One server as routing sees it: blocks start…end-1.

    rtt: seconds from the client and back; None = not measured, inf = does not answer.
    inference_rps: tokens per second through one block; 0 = unknown.
    kv_free: free KV tokens × rows over the whole span; None = unknown.
    next_pings: seconds from this server to others and back, by server id.
    draining, busy, banned: ranked behind others.
    """

    server_id: str
    start: int
    end: int
    rtt: float | None = None
    inference_rps: float = 0.0
    kv_free: int | None = None
    queue_delay: float = 0.0
    next_pings: Mapping[str, float] = field(default_factory=dict)
    draining: bool = False
    busy: bool = False
    banned: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """Blocks start…end-1 on the server of this id."""

    server_id: str
    start: int
    end: int


def one_way(rtt: float | None) -> float:
    """Seconds of one message, from a measured round trip."""
    if rtt is None:
        return UNKNOWN_ONE_WAY
    return min(rtt / 2, UNREACHABLE_ONE_WAY)


def lacks_cache(server: Candidate, entered: int, left: int, cache_tokens: int) -> bool:
    """Whether the server is known to have too little KV for `cache_tokens` in blocks entered…left-1."""
    if server.kv_free is None or cache_tokens <= 0:
        return False
    return server.kv_free < cache_tokens * (left - entered) / (server.end - server.start)


def missing(servers: Iterable[Candidate], start: int, end: int) -> list[tuple[int, int]]:
    """The ranges within start:end that no server holds."""
    held = {block for server in servers for block in range(max(start, server.start), min(end, server.end))}
    gaps: list[tuple[int, int]] = []
    for block in range(start, end):
        if block in held:
            continue
        if gaps and gaps[-1][1] == block:
            gaps[-1] = (gaps[-1][0], block + 1)
        else:
            gaps.append((block, block + 1))
    return gaps


def cheapest(
    servers: Sequence[Candidate], start: int, end: int, *, cache_tokens: int = 0
) -> tuple[float, list[Part]] | None:
    """The chain over blocks start…end-1 with the lowest cost, and that cost in seconds; None if there is none.

    Equal costs are decided by fewer parts, then by server ids, so that equal inputs give equal chains.
    """
    order = sorted(servers, key=lambda server: server.server_id)
    # (cost, parts so far, index, block entered, path): the path breaks ties and is small.
    heap: list[tuple[float, int, tuple[int, ...], int]] = []
    entries: dict[tuple[int, int], float] = {}

    def push(cost: float, path: tuple[int, ...], block: int) -> None:
        heapq.heappush(heap, (cost, len(path), path, block))

    for index, server in enumerate(order):
        if server.start <= start < server.end:
            push(one_way(server.rtt) + _entry(server, start, end, cache_tokens), (index,), start)
    best: tuple[float, int, tuple[int, ...]] | None = None
    while heap:
        cost, parts, path, block = heapq.heappop(heap)
        if best is not None and (cost, parts) > best[:2]:
            break
        node = (path[-1], block)
        if node in entries:
            continue
        entries[node] = cost
        server = order[path[-1]]
        left = min(server.end, end)
        cost += (left - block) / (server.inference_rps or UNKNOWN_RPS)
        if left == end:
            done = (cost + one_way(server.rtt), parts, path)
            best = done if best is None else min(best, done)
            continue
        for index, following in enumerate(order):
            if following.start <= left < following.end:
                hop = one_way(server.next_pings.get(following.server_id))
                push(cost + hop + _entry(following, left, end, cache_tokens), (*path, index), left)
    return None if best is None else (best[0], _parts([order[index] for index in best[2]], start, end))


def random_walk(
    servers: Sequence[Candidate], start: int, end: int, *, rng: random.Random
) -> list[Part] | None:
    """A chain for passes without KV: from each block on, a random holder, weighted by how far it goes.

    Spreads load over all servers; those that are unreachable or leaving are used only where nobody else is. None when a
    block has no holder.
    """
    order = sorted(servers, key=lambda server: server.server_id)
    path, block = [], start
    while block < end:
        holders = [server for server in order if server.start <= block < server.end]
        if not holders:
            return None
        weights = [_weight(server, block, end) for server in holders]
        server = rng.choices(holders, weights)[0]
        path.append(server)
        block = min(server.end, end)
    return _parts(path, start, end)


def _entry(server: Candidate, block: int, end: int, cache_tokens: int) -> float:
    burdens = server.queue_delay if math.isfinite(server.queue_delay) else 0.0
    if lacks_cache(server, block, min(server.end, end), cache_tokens):
        burdens += LACKS_CACHE
    burdens += BUSY * server.busy + BANNED * server.banned + DRAINING * server.draining
    return OVERHEAD + burdens


def _weight(server: Candidate, block: int, end: int) -> float:
    length = float(min(server.end, end) - block)
    if server.draining or server.banned:
        return length * _LAST_RESORT_WEIGHT
    if server.rtt == math.inf:
        return length * _UNREACHABLE_WEIGHT
    return length


def _parts(path: Sequence[Candidate], start: int, end: int) -> list[Part]:
    parts, block = [], start
    for server in path:
        left = min(server.end, end)
        parts.append(Part(server.server_id, block, left))
        block = left
    return parts
