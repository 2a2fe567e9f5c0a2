"""What the operator states about servers, when it says it again, and when it takes it back."""

from dataclasses import replace

import pytest
from operator_objects import NOW, server

from blockswarm_operator.publish import REFRESH_SECONDS, due, statements
from blockswarm_wire.record import State, Statement


def _say(*servers, vanished=(), dead=(), views=None):
    found = {one.pod.uid: one.view for one in servers if one.view is not None}
    return statements(servers, found if views is None else views, vanished=vanished, dead=dead, now=NOW)


_PENDING = {"state": None, "ready": False, "started": False, "phase": "Pending"}


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (server("a"), None),
        (server("a", **_PENDING), (State.JOINING, "", "its pod is pending")),
        (server("a", state=None, ready=False), (State.JOINING, "", "its pod is loading")),
        (server("a", deleting=True), (State.DRAINING, "run-uid-a", "its pod is being deleted")),
        (server("a", cordoned=True), (State.DRAINING, "run-uid-a", "node node-1 is cordoned")),
        (server("a", phase="Failed", ready=False), (State.OFFLINE, "run-uid-a", "its pod is Failed")),
        (server("a", phase="Succeeded", ready=False), (State.OFFLINE, "run-uid-a", "its pod is Succeeded")),
        # Nothing is heard of its node, but the server answers: an API server that was away is no lost server.
        (server("a", lost=True), None),
        # Nobody in the directory knows these, and nobody waits for them.
        (server("a", state=None, ready=False, phase="Failed"), None),
        (server("a", state=None, ready=False, deleting=True), None),
        (server("a", state=None, ready=False, lost=True), None),
    ],
)
def test_what_is_stated_of_a_server(one, said):
    found = _say(one).get("uid-a")
    assert (found and (found.state, found.instance, found.reason)) == said
    assert found is None or (found.server_id, found.issued_at) == ("uid-a", NOW)


def test_a_server_on_a_lost_node_is_offline_when_it_does_not_answer():
    for more in ({}, {"deleting": True}, {"cordoned": True}):
        one = server("a", lost=True, **more)
        found = _say(one, dead=["uid-a"])["uid-a"]
        assert (found.state, found.instance) == (State.OFFLINE, "run-uid-a")
        assert "node-1 is lost" in found.reason
    # A deaf server on a healthy node is not ours to judge.
    assert _say(server("a"), dead=["uid-a"]) == {}


def test_a_server_whose_pod_has_vanished_is_offline_as_long_as_it_is_listed():
    listed = {"uid-a": server("a").view, "uid-b": server("b", state=None, stated=State.JOINING).view}
    found = _say(views=listed, vanished=["uid-a", "uid-b", "uid-c"])
    assert found.keys() == {"uid-a"}
    assert (found["uid-a"].state, found["uid-a"].instance) == (State.OFFLINE, "run-uid-a")


JOINING = Statement(server_id="a", state=State.JOINING, issued_at=NOW)
DRAINING = Statement(server_id="a", state=State.DRAINING, instance="i", issued_at=NOW)
OFFLINE = Statement(server_id="a", state=State.OFFLINE, instance="i", issued_at=NOW)


@pytest.mark.parametrize(
    ("wanted", "sent", "age", "said"),
    [
        (JOINING, None, 0.0, True),
        (JOINING, JOINING, 1.0, False),
        (JOINING, JOINING, REFRESH_SECONDS, True),
        (replace(JOINING, reason="its pod is loading"), JOINING, 1.0, False),
        (DRAINING, JOINING, 1.0, True),
        (DRAINING, DRAINING, 1.0, False),
        (DRAINING, DRAINING, REFRESH_SECONDS, True),
        (OFFLINE, DRAINING, 1.0, True),
        (OFFLINE, OFFLINE, REFRESH_SECONDS, False),
        # The process was restarted in its pod: the former statement is about another one.
        (replace(DRAINING, instance="j"), DRAINING, 1.0, True),
    ],
)
def test_when_it_is_said_again(wanted, sent, age, said):
    now = NOW + age
    found = due({"a": wanted}, {"a": sent} if sent else {}, staying={"a"}, now=now)
    assert found == ({"a": wanted} if said else {})


def test_draining_is_taken_back_when_the_node_takes_pods_again():
    taken_back = due({}, {"a": DRAINING}, staying={"a"}, now=NOW + 1)["a"]
    assert (taken_back.state, taken_back.instance, taken_back.issued_at) == (State.JOINING, "", NOW + 1)
    assert due({}, {"a": taken_back}, staying={"a"}, now=NOW + 2) == {}
    # A server that is gone must not look as if it were coming.
    assert due({}, {"a": DRAINING}, staying=set(), now=NOW + 1) == {}


def test_nothing_else_is_taken_back():
    assert (
        due({}, {"a": JOINING, "b": replace(OFFLINE, server_id="b")}, staying={"a", "b"}, now=NOW + 1) == {}
    )


def test_what_is_stated_never_lapses_while_it_is_true():
    """A quiet model is looked at every 15 s."""
    sent: dict[str, Statement] = {}
    for now in range(int(NOW), int(NOW) + 120, 15):
        assert all(statement.expires_at > now for statement in sent.values())
        said = statements([server("a", cordoned=True)], {}, vanished=(), dead=(), now=now)
        sent |= due(said, sent, staying={"uid-a"}, now=now)
    assert sent
