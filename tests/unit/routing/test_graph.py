"""Routing's costs and choices: golden values, and properties against brute force."""

import itertools
import math
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blockswarm.routing import graph
from blockswarm.routing.graph import Candidate, Part, cheapest, missing, random_walk


def _server(name: str, start: int = 0, end: int = 8, **values: Any) -> Candidate:
    return Candidate(server_id=name, start=start, end=end, **values)


_FAST: dict[str, Any] = {"rtt": 0.01, "inference_rps": 1000.0}
_A_SLOW = _server("A", rtt=0.01, inference_rps=50.0)
_C = _server("C", 4, 8, **_FAST)

GOLDEN = [
    ("known", [_server("A", rtt=0.02, inference_rps=400.0)], 0, 0.058, ["A 0:8"]),
    ("unknown", [_server("A")], 0, 0.3447, ["A 0:8"]),
    (
        "two fast servers near each other beat a slow one",
        [_A_SLOW, _server("B", 0, 4, **_FAST, next_pings={"C": 0.01}), _C],
        0,
        0.059,
        ["B 0:4", "C 4:8"],
    ),
    ("unless their distance is unknown", [_A_SLOW, _server("B", 0, 4, **_FAST), _C], 0, 0.188, ["A 0:8"]),
    (
        "no room on the fast one",
        [
            _server("A", rtt=0.01, inference_rps=1000.0, kv_free=99),
            _server("B", rtt=0.01, inference_rps=100.0, kv_free=100),
        ],
        100,
        0.108,
        ["B 0:8"],
    ),
    ("no room anywhere", [_server("A", rtt=0.01, inference_rps=1000.0, kv_free=99)], 100, 10.036, ["A 0:8"]),
    ("unreachable", [_server("A", rtt=math.inf, inference_rps=1000.0)], 0, 10.026, ["A 0:8"]),
    (
        "a long queue",
        [_server("A", **_FAST, queue_delay=2.0), _server("B", rtt=0.5, inference_rps=100.0)],
        0,
        0.598,
        ["B 0:8"],
    ),
    (
        "draining comes last",
        [_server("A", **_FAST, draining=True), _server("B", rtt=math.inf, kv_free=0)],
        100,
        20.0447,
        ["B 0:8"],
    ),
    (
        "draining serves where it is alone",
        [_server("A", 0, 8, **_FAST, draining=True), _server("B", 0, 4, **_FAST)],
        0,
        1000.036 - 0.01 + 0.01,
        ["A 0:8"],
    ),
    (
        "a server whose room is unknown",
        [_server("A", rtt=0.01, inference_rps=1000.0)],
        10**9,
        0.036,
        ["A 0:8"],
    ),
]


@pytest.mark.parametrize(
    ("name", "servers", "tokens", "cost", "route"), GOLDEN, ids=[row[0] for row in GOLDEN]
)
def test_golden_costs(
    name: str, servers: list[Candidate], tokens: int, cost: float, route: list[str]
) -> None:
    found = cheapest(servers, 0, 8, cache_tokens=tokens)
    assert found is not None
    assert found[0] == pytest.approx(cost, abs=6e-4)
    assert [f"{part.server_id} {part.start}:{part.end}" for part in found[1]] == route


def test_room_counts_only_the_blocks_that_are_used() -> None:
    # 50 free tokens over 8 blocks are 100 tokens in 4 of them.
    server = _server("A", rtt=0.0, inference_rps=1000.0, kv_free=50)
    half = cheapest([server], 4, 8, cache_tokens=100)
    whole = cheapest([server], 0, 8, cache_tokens=100)
    assert half is not None
    assert whole is not None
    assert half[0] < 1 < whole[0]


def test_the_last_span_is_clipped() -> None:
    found = cheapest([_server("A", 0, 5), _server("B", 3, 8)], 2, 6)
    assert found is not None
    assert found[1] == [Part("A", 2, 5), Part("B", 5, 6)]


def test_missing_blocks_are_ranges() -> None:
    assert missing([_server("A", 2, 4), _server("B", 6, 7)], 0, 8) == [(0, 2), (4, 6), (7, 8)]
    assert cheapest([_server("A", 2, 4)], 0, 8) is None


_rtt = st.one_of(st.none(), st.just(math.inf), st.floats(0, 3))


@st.composite
def _swarm(draw: st.DrawFn) -> tuple[list[Candidate], int, int]:
    blocks = draw(st.integers(1, 8))
    names = draw(st.lists(st.sampled_from("ABCDE"), min_size=1, max_size=5, unique=True))
    servers = []
    for name in names:
        start = draw(st.integers(0, blocks - 1))
        servers.append(
            Candidate(
                server_id=name,
                start=start,
                end=draw(st.integers(start + 1, blocks)),
                rtt=draw(_rtt),
                inference_rps=draw(st.sampled_from([0.0, 10.0, 1000.0])),
                kv_free=draw(st.sampled_from([None, 0, 10, 10**6])),
                queue_delay=draw(st.sampled_from([0.0, 0.5])),
                next_pings={other: draw(st.floats(0, 1)) for other in names if draw(st.booleans())},
                draining=draw(st.booleans()),
            )
        )
    start = draw(st.integers(0, blocks - 1))
    return servers, start, draw(st.integers(start + 1, blocks))


def _check_chain(parts: list[Part], servers: list[Candidate], start: int, end: int) -> None:
    spans = {server.server_id: (server.start, server.end) for server in servers}
    assert parts[0].start == start
    assert parts[-1].end == end
    for before, after in itertools.pairwise(parts):
        assert before.end == after.start
    for part in parts:
        low, high = spans[part.server_id]
        assert low <= part.start < part.end <= high


def _cost(chain: list[Candidate], start: int, end: int, tokens: int) -> float:
    total, block, before = 0.0, start, None
    for server in chain:
        left = min(server.end, end)
        total += graph.one_way(server.rtt if before is None else before.next_pings.get(server.server_id))
        total += graph.OVERHEAD + server.queue_delay + graph.DRAINING * server.draining
        total += graph.LACKS_CACHE * graph.lacks_cache(server, block, left, tokens)
        total += (left - block) / (server.inference_rps or graph.UNKNOWN_RPS)
        block, before = left, server
    return total + graph.one_way(chain[-1].rtt)


def _all_chains(servers: list[Candidate], block: int, end: int) -> list[list[Candidate]]:
    if block >= end:
        return [[]]
    return [
        [server, *rest]
        for server in servers
        if server.start <= block < server.end
        for rest in _all_chains(servers, min(server.end, end), end)
    ]


@settings(max_examples=400, deadline=None)
@given(_swarm(), st.sampled_from([0, 5, 100]))
def test_cheapest_agrees_with_brute_force(swarm: tuple[list[Candidate], int, int], tokens: int) -> None:
    servers, start, end = swarm
    found = cheapest(servers, start, end, cache_tokens=tokens)
    chains = _all_chains(servers, start, end)
    assert (found is None) == (not chains) == bool(missing(servers, start, end))
    if found is None:
        return
    _check_chain(found[1], servers, start, end)
    assert found[0] == pytest.approx(min(_cost(chain, start, end, tokens) for chain in chains))
    assert cheapest(servers[::-1], start, end, cache_tokens=tokens) == found


@settings(max_examples=200, deadline=None)
@given(_swarm(), st.integers(0, 99))
def test_random_walk_covers_exactly(swarm: tuple[list[Candidate], int, int], seed: int) -> None:
    servers, start, end = swarm
    parts = random_walk(servers, start, end, rng=random.Random(seed))
    assert (parts is None) == bool(missing(servers, start, end))
    if parts is not None:
        _check_chain(parts, servers, start, end)
        assert random_walk(servers[::-1], start, end, rng=random.Random(seed)) == parts


def test_random_walk_prefers_long_and_living_servers() -> None:
    servers = [
        _server("long"),
        _server("short", 0, 2),
        _server("leaving", draining=True),
        _server("away", rtt=math.inf),
    ]
    rng = random.Random(1)
    first = [(random_walk(servers, 0, 8, rng=rng) or [])[0].server_id for _ in range(2000)]
    assert first.count("long") > 3 * first.count("short") > 0
    assert first.count("leaving") == first.count("away") == 0
