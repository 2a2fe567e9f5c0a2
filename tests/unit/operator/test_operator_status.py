"""The status of a BlockServer, and when a change of it is worth a write."""

import copy

import pytest
from operator_objects import server

from blockswarm_operator.conditions import conditions
from blockswarm_operator.plan import Step
from blockswarm_operator.status import QUIET_SECONDS, status, worth_writing
from blockswarm_wire.record import State
from blockswarm_wire.resource import Status
from blockswarm_wire.span import Span


def _status(*servers, replicas=2, before=None, blind=False):
    found = conditions(
        replicas, servers, Step(replicas=replicas), template="new", directory=not blind, foreign=()
    )
    return status(
        "first",
        Span(0, 10),
        replicas,
        "new",
        servers,
        found,
        blind=blind,
        before=before or {},
        generation=3,
        now="2026-11-30T12:00:00Z",
    )


BUSY = server("a", sessions=2, kv_promised=500)
OLD = server("b", template="old", node="node-2")


def test_the_whole_status():
    found = _status(BUSY, OLD, server("c", deleting=True, state=State.DRAINING), server("d", phase="Failed"))
    rows = found.pop("conditions")
    assert rows[0]["observedGeneration"] == 3
    assert found == {
        "observedGeneration": 3,
        "replicas": 2,
        "readyReplicas": 2,
        "updatedReplicas": 1,
        "selector": "blockswarm.io/blockserver=first",
        "blocks": "0:10",
        "ready": "2/2",
        "sessions": 2,
        "nodes": "node-1,node-2",
        "reason": "",
        "kv": {"capacityTokens": 2000, "promisedTokens": 500, "usedTokens": 0, "occupancy": "25%"},
        "servers": [
            {
                "pod": "a",
                "node": "node-1",
                "serverId": "uid-a",
                "state": "ONLINE",
                "sessions": 2,
                "occupancy": 50,
            },
            {
                "pod": "b",
                "node": "node-2",
                "serverId": "uid-b",
                "state": "ONLINE",
                "sessions": 0,
                "occupancy": 0,
            },
            {
                "pod": "c",
                "node": "node-1",
                "serverId": "uid-c",
                "state": "DRAINING",
                "sessions": 0,
                "occupancy": 0,
            },
        ],
    }


@pytest.mark.parametrize(
    "servers",
    [
        [],
        [BUSY, OLD],
        [server("a", state=None, ready=False, node="")],
        [server("a", kv_promised=10**6)],
        [server(f"s{n}", kv_promised=2**48, sessions=2**48) for n in range(64)],
    ],
)
def test_the_resource_definition_takes_it(servers):
    Status.model_validate(_status(*servers))


def test_blind_what_only_the_directory_knows_stays():
    before = _status(BUSY, OLD)
    silent = [server("a", state=None), server("b", state=None, template="old", node="node-2")]
    after = _status(*silent, before=before, blind=True)
    for field in ("readyReplicas", "ready", "sessions", "kv", "servers"):
        assert after[field] == before[field]
    # A pod that is gone is gone all the same.
    lost = _status(silent[0], before=before, blind=True)
    assert (lost["replicas"], lost["readyReplicas"], [row["pod"] for row in lost["servers"]]) == (1, 1, ["a"])


def _changed(before, **values):
    after = copy.deepcopy(before)
    for path, value in values.items():
        *folders, last = path.split("__")
        place = after
        for folder in folders:
            place = place[int(folder) if folder.isdigit() else folder]
        place[last] = value
    return after


BEFORE = _status(BUSY, OLD)


@pytest.mark.parametrize(
    ("changes", "at_once", "after_a_while"),
    [
        ({}, False, False),
        ({"sessions": 3}, False, True),
        ({"kv__occupancy": "29%"}, False, False),
        ({"kv__occupancy": "30%"}, False, True),
        ({"kv__occupancy": "20%"}, False, True),
        ({"kv__occupancy": "0%"}, False, True),
        ({"kv__usedTokens": 999}, False, False),
        ({"servers__0__sessions": 9}, False, False),
        ({"servers__0__occupancy": 99}, False, False),
        ({"kv__capacityTokens": 4000}, True, True),
        ({"readyReplicas": 1}, True, True),
        ({"servers__0__state": "OFFLINE"}, True, True),
        ({"servers__0__node": "node-3"}, True, True),
        ({"conditions__0__message": "other"}, True, True),
        ({"observedGeneration": 4}, True, True),
    ],
)
def test_load_is_written_now_and_then_everything_else_at_once(changes, at_once, after_a_while):
    after = _changed(BEFORE, **changes)
    assert worth_writing(after, BEFORE, age=0.0) is at_once
    assert worth_writing(after, BEFORE, age=QUIET_SECONDS) is after_a_while


def test_the_first_status_is_written_and_a_little_load_is_not_nothing():
    assert worth_writing(BEFORE, {}, age=0.0)
    idle = _changed(BEFORE, kv__occupancy="0%")
    assert worth_writing(_changed(BEFORE, kv__occupancy="1%"), idle, age=QUIET_SECONDS)
