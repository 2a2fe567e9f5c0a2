"""Which servers hold each block: pods joined with their nodes and with what the directory shows."""

import pytest
from operator_objects import SETTINGS, pod, server, view

from blockswarm_operator.coverage import coverage, join, needed
from blockswarm_operator.observed import Node
from blockswarm_wire.record import State
from blockswarm_wire.span import Span


@pytest.mark.parametrize(
    ("one", "online"),
    [
        (server("a"), True),
        (server("a", state=None), False),
        (server("a", state=State.JOINING), False),
        (server("a", state=State.OFFLINE), False),
        (server("a", state=State.DRAINING), False),
        (server("a", stated=State.OFFLINE), False),
        # Its node is cordoned: we say DRAINING, so that new sessions go elsewhere; it serves all the same.
        (server("a", stated=State.DRAINING), True),
        (server("a", state=State.DRAINING, stated=State.DRAINING), False),
        (server("a", stated=State.JOINING), True),
        (server("a", ready=False), False),
        (server("a", deleting=True), False),
        (server("a", phase="Failed"), False),
        (server("a", cordoned=True), True),
    ],
)
def test_who_serves_and_will_go_on_serving(one, online):
    assert one.online is online


def test_coverage_counts_servers_that_are_online():
    servers = [server("a", "0:4"), server("b", "2:6"), server("c", "2:6", ready=False)]
    assert coverage(servers, 8) == [1, 1, 2, 2, 1, 1, 0, 0]
    assert coverage(servers, 3) == [1, 1, 2]
    assert coverage([], 0) == []


def test_a_server_is_needed_where_no_other_one_holds_a_block_of_its():
    wide, left, right = server("w", "0:8"), server("l", "0:5"), server("r", "3:8")
    assert not any(needed(one, [wide, left, right]) for one in (wide, left, right))
    assert needed(wide, [wide, left])
    assert needed(left, [left, right])
    assert needed(right, [left, right])
    offline = server("o", "0:8", state=State.JOINING)
    assert not needed(offline, [offline])
    assert needed(left, [left, offline])


def test_pods_are_joined_with_span_node_and_record():
    known, unknown, other = pod("a", created=2.0), pod("b", created=1.0, node=""), pod("c", bs="deleted")
    of_a = view(server("a"))
    joined = join(
        [known, unknown, other],
        {"first": Span(0, 4)},
        {"node-1": Node(name="node-1", cordoned=True)},
        {"uid-a": of_a},
        directory=SETTINGS.directory,
    )
    assert [one.pod.name for one in joined] == ["b", "a"]  # oldest first; pods of nobody are left out
    fresh, old = joined
    assert (old.span, old.cordoned, old.view, old.lost) == (Span(0, 4), True, of_a, False)
    assert (fresh.view, fresh.cordoned, fresh.lost) == (None, False, False)  # it has no node yet


@pytest.mark.parametrize(
    ("nodes", "lost"),
    [
        ({"node-1": Node(name="node-1")}, False),
        ({"node-1": Node(name="node-1", ready="Unknown")}, True),
        # Its kubelet speaks, only that it is not well.
        ({"node-1": Node(name="node-1", ready="False")}, False),
        # The node was deleted.
        ({}, True),
    ],
)
def test_a_node_is_lost_when_nothing_is_heard_of_it(nodes, lost):
    (one,) = join([pod("a")], {"first": Span(0, 4)}, nodes, {}, directory=SETTINGS.directory)
    assert one.lost is lost
