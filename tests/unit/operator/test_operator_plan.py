"""The next step of each BlockServer, one table a situation: nothing leaves before somebody holds its blocks."""

from dataclasses import replace

import pytest
from operator_objects import server

from blockswarm_operator.plan import Wanted, plan
from blockswarm_wire.record import State
from blockswarm_wire.span import Span

FULL = "0/3 nodes are available: 3 Insufficient memory."


def _wanted(name="first", replicas=1, span="0:10", **values):
    fields = {"group": f"group-{name}", "template": "new", "current": replicas}
    return Wanted(name=name, replicas=replicas, span=Span.parse(span), **fields | values)


def _step(servers, **wanted):
    return plan([_wanted(**wanted)], servers)["first"]


def _new(name, **values):
    return server(name, **values)


def _old(name, **values):
    return server(name, template="old", **values)


def _loading(name, **values):
    return server(name, state=None, ready=False, **values)


def _pending(name, **values):
    return _loading(name, node="", phase="Pending", started=False, **values)


def _evicted(step):
    return step.evict.name if step.evict else None


# --- nothing to do ----------------------------------------------------------------------------------------------------


def test_all_is_well():
    step = _step([_new("a"), _new("b")], replicas=2)
    assert (step.replicas, step.evict, dict(step.costs), step.hold) == (2, None, {}, False)
    assert step.progress[0] == "Complete"


def test_nothing_exists_yet():
    step = _step([], replicas=3, current=None)
    assert (step.replicas, step.progress) == (3, ("Scaling", "0 of 3 servers are online"))


def test_servers_load():
    step = _step([_new("a"), _loading("b")], replicas=2)
    assert (step.replicas, step.progress) == (2, ("Scaling", "1 of 2 servers are online"))


# --- rolling ----------------------------------------------------------------------------------------------------------


def test_the_only_server_gets_a_substitute_before_it_leaves():
    step = _step([_old("a")])
    assert (step.replicas, step.evict, step.progress[0]) == (2, None, "RollingOut")
    loading = _step([_old("a"), _loading("b")], current=2)
    assert (loading.replicas, loading.evict, dict(loading.costs)) == (2, None, {})


def test_the_old_server_leaves_by_scaling_down_once_its_substitute_is_online():
    marks = _step([_old("a"), _new("b")], current=2)
    assert (marks.replicas, marks.costs.keys(), marks.hold) == (2, {"a"}, True)
    lowers = _step([_old("a", deletion_cost=marks.costs["a"]), _new("b")], current=2)
    assert (lowers.replicas, lowers.costs.keys(), lowers.hold) == (1, {"a"}, True)
    left = _step([_old("a", deleting=True), _new("b")])
    assert (left.replicas, dict(left.costs), left.progress[0]) == (1, {}, "Complete")


@pytest.mark.parametrize("replicas", [2, 3])
def test_of_several_old_servers_one_at_a_time_is_evicted(replicas):
    old = [_old(f"old-{n}", sessions=n, created=float(n)) for n in range(replicas)]
    first = _step(old, replicas=replicas)
    assert (first.replicas, _evicted(first)) == (replicas, "old-0")
    # While its successor is made and loads, nobody else leaves.
    leaves = [_old("old-0", deleting=True), *old[1:]]
    assert _evicted(_step(leaves, replicas=replicas)) is None
    assert _evicted(_step([*leaves, _pending("new-0")], replicas=replicas)) is None
    assert _evicted(_step([*old[1:], _loading("new-0")], replicas=replicas)) is None
    assert _evicted(_step([*old[1:], _new("new-0")], replicas=replicas)) == "old-1"


def test_the_one_with_the_fewest_sessions_leaves_first_and_the_older_of_equals():
    servers = [_old("a", sessions=2), _old("b", sessions=1, created=2.0), _old("c", sessions=1, created=1.0)]
    assert _evicted(_step(servers, replicas=3)) == "c"


def test_a_broken_old_server_leaves_without_a_substitute():
    # A wrong image was corrected: nothing is lost with the pod that never came up.
    assert _evicted(_step([_old("a", ready=False, state=None)])) == "a"
    assert _evicted(_step([_old("a"), _old("b", ready=False)], replicas=2)) == "b"


def test_a_new_server_that_does_not_come_up_stops_the_rollout():
    step = _step([_old("a"), _loading("b", trouble=("Exit1", "no"))], replicas=2)
    assert (step.replicas, step.evict) == (2, None)
    ready_only = _step([_old("a"), _old("b"), _new("c", state=State.JOINING)], replicas=3)
    assert ready_only.evict is None


def test_another_block_server_of_the_same_blocks_stands_in():
    servers = [_old("a"), server("z", "0:20", bs="other")]
    step = plan([_wanted(), _wanted("other", span="0:20")], servers)["first"]
    assert (step.replicas, _evicted(step)) == (1, "a")


def test_a_pod_that_leaves_or_is_gone_is_nobodys_substitute():
    for other in (_new("b", deleting=True), _new("b", phase="Failed", ready=False)):
        step = _step([_old("a"), other], current=2)
        assert (step.replicas, step.evict) == (2, None)


# --- nodes ------------------------------------------------------------------------------------------------------------


def test_the_last_server_on_a_cordoned_node_gets_a_substitute():
    step = _step([_new("a", cordoned=True)])
    assert (step.replicas, step.evict) == (2, None)
    assert "cordoned node" in step.progress[1]
    marked = _step([_new("a", cordoned=True), _new("b")], current=2)
    assert marked.costs.keys() == {"a"}


def test_others_on_a_cordoned_node_are_left_to_who_drains_it():
    step = _step([_new("a", cordoned=True), _new("b")], replicas=2)
    assert (step.replicas, step.evict, dict(step.costs)) == (2, None, {})


def test_a_substitute_is_given_up_when_the_node_takes_pods_again():
    for substitute in (_loading("b"), _pending("b"), _pending("b", unschedulable=FULL)):
        assert _step([_new("a"), substitute], current=2).costs.keys() == {"b"}


# --- no room ----------------------------------------------------------------------------------------------------------


def test_without_room_for_a_substitute_the_old_server_stays_and_the_remedy_is_told():
    step = _step([_old("a"), _pending("b", unschedulable=FULL)], current=2)
    assert (step.replicas, step.evict, step.stuck, step.expendable) == (2, None, True, frozenset())
    reason, text = step.progress
    assert reason == "NoSpareCapacity"
    for part in ("a is the last server", "0:10", "Insufficient memory", "spec.update.allowGap"):
        assert part in text


def test_without_room_for_the_second_of_two_the_last_one_stays_too():
    step = _step([_new("a", cordoned=True), _pending("b", unschedulable=FULL)], replicas=2)
    assert (step.replicas, step.evict, step.progress[0]) == (2, None, "NoSpareCapacity")


def test_no_room_for_one_more_is_no_news_where_nobody_must_go():
    step = _step([_new("a"), _pending("b", unschedulable=FULL)], replicas=2)
    assert (step.progress[0], step.stuck) == ("Scaling", False)


def test_allow_gap_lets_the_old_server_go_first():
    step = _step([_old("a"), _pending("b", unschedulable=FULL)], current=2, allow_gap=True)
    assert (_evicted(step), step.expendable, step.stuck) == ("a", {"uid-a"}, False)
    assert step.progress[0] == "GapAllowed"
    # As long as there is room, there is no gap.
    assert _evicted(_step([_old("a"), _loading("b")], current=2, allow_gap=True)) is None


def test_allow_gap_on_a_cordoned_node_leaves_the_eviction_to_who_drains_it():
    step = _step([_new("a", cordoned=True), _pending("b", unschedulable=FULL)], current=2, allow_gap=True)
    assert (_evicted(step), step.expendable) == (None, {"uid-a"})


# --- scaling ----------------------------------------------------------------------------------------------------------


def _first_to_go(*servers, replicas):
    costs = _step(list(servers), replicas=replicas, current=len(servers)).costs
    return sorted(costs, key=lambda name: costs[name])


def test_scaling_up():
    assert _step([_new("a")], replicas=3, current=1).replicas == 3


def test_scaling_down_takes_those_that_serve_nobody_first():
    servers = [
        _new("idle", sessions=0, created=5.0),
        _new("busy", sessions=9),
        _new("cordoned", sessions=9, cordoned=True),
        _old("old", sessions=9),
        _new("silent", state=State.JOINING, sessions=9),
        _loading("loading"),
    ]
    assert _first_to_go(*servers, replicas=1) == ["loading", "silent", "old", "cordoned", "idle"]


def test_scaling_down_waits_until_the_pods_are_marked():
    servers = [_new("a"), _new("b", sessions=3)]
    before = _step(servers, replicas=1, current=2)
    assert (before.replicas, before.costs.keys(), before.hold) == (2, {"a"}, True)
    assert before.progress == ("Scaling", "2 servers, 1 wanted")
    marked = [_new("a", deletion_cost=before.costs["a"]), servers[1]]
    assert _step(marked, replicas=1, current=2).replicas == 1
    assert _step(marked, replicas=1, current=None).replicas == 1


def test_marks_keep_their_order():
    costs = _step([_new("a", sessions=2), _new("b", sessions=1), _new("c", sessions=3)], replicas=1).costs
    assert costs["b"] < costs["a"] < 0


def test_servers_that_never_came_up_hold_nobody():
    assert not _step([_loading("a"), _loading("b")], replicas=1, current=2).hold


def test_scaled_to_zero():
    step = _step([_new("a")], replicas=0, current=1)
    assert (step.costs.keys(), step.hold, step.replicas) == ({"a"}, True, 1)
    gone = _step([_new("a", deletion_cost=step.costs["a"])], replicas=0, current=1)
    assert gone.replicas == 0
    assert _step([], replicas=0, current=0).progress[0] == "Complete"
    # Nobody makes a substitute for what nobody wants.
    assert _step([_old("a", cordoned=True)], replicas=0, current=1).replicas == 1


# --- several BlockServers ---------------------------------------------------------------------------------------------


def test_one_substitute_at_a_time():
    wanted = [_wanted("b", span="10:20"), _wanted("a")]
    servers = [_old("a1", bs="a"), server("b1", "10:20", bs="b", template="old")]
    steps = plan(wanted, servers)
    assert (steps["a"].replicas, steps["b"].replicas) == (2, 1)
    assert "substitute of a" in steps["b"].progress[1]
    # Once it is there, the next one's turn has come.
    servers[0] = server("a2", "0:10", bs="a")
    steps = plan(wanted, servers)
    assert (steps["a"].replicas, steps["b"].replicas) == (1, 2)


def test_a_substitute_that_exists_goes_before_one_that_does_not():
    wanted = [_wanted("a"), _wanted("b", span="10:20", current=2)]
    b1, b2 = server("b1", "10:20", bs="b", template="old"), _loading("b2", span="10:20", bs="b")
    steps = plan(wanted, [_old("a1", bs="a"), b1, b2])
    assert (steps["a"].replicas, steps["b"].replicas) == (1, 2)


def test_a_substitute_for_which_there_is_no_room_keeps_nobody_waiting():
    wanted = [_wanted("a", current=2), _wanted("b", span="10:20")]
    waits = _pending("a2", bs="a", unschedulable=FULL)
    steps = plan(wanted, [_old("a1", bs="a"), waits, server("b1", "10:20", bs="b", template="old")])
    assert steps["a"].stuck
    assert steps["b"].replicas == 2


@pytest.mark.parametrize("trouble", [None, ("ErrImagePull", "no such image")])
def test_a_substitute_that_cannot_start_keeps_nobody_waiting(trouble):
    wanted = [_wanted("first"), _wanted("second", span="10:20")]
    servers = [
        _old("a", bs="first"),
        _loading("a2", bs="first", trouble=trouble),
        _old("b", span="10:20", bs="second"),
    ]
    steps = plan(wanted, servers)
    assert steps["second"].replicas == (1 if trouble is None else 2)


def test_a_replica_set_that_cannot_create_the_substitute_is_no_spare_capacity():
    quota = "exceeded quota: gpus, requested: pods=1"
    step = _step([_old("a")], failure=quota, current=2)
    assert (step.replicas, step.evict, step.progress[0], step.stuck) == (2, None, "NoSpareCapacity", True)
    assert quota in step.progress[1]
    gap = _step([_old("a")], failure=quota, current=2, allow_gap=True)
    assert _evicted(gap) == "a"
    # What it said about pods that it could not create in other times is no reason to stop.
    assert _step([_old("a"), _new("b")], failure=quota, current=2).costs.keys() == {"a"}


# --- servers that waver -----------------------------------------------------------------------------------------------


def _wavering(name, **values):
    """Its probe failed just now; it says itself that it is ONLINE."""
    return server(name, ready=False, **values)


def test_the_last_server_that_wavers_while_its_substitute_loads_stays():
    step = _step([_wavering("a", template="old"), _loading("b")], current=2)
    assert (step.replicas, step.evict, dict(step.costs)) == (2, None, {})


def test_the_last_server_that_wavers_is_not_taken_for_broken():
    step = _step([_wavering("a", template="old")])
    assert (step.replicas, step.evict) == (2, None)
    # Once nobody hears of it any more, it is.
    assert _evicted(_step([_loading("a", template="old")])) == "a"


def test_of_too_many_servers_one_that_wavers_goes_after_those_that_never_came():
    step = _step([_wavering("a"), _loading("b"), _loading("c")], replicas=2, current=3)
    assert "a" not in step.costs
    assert step.hold


def test_one_that_wavers_stands_in_for_nobody():
    step = _step([_old("a"), _wavering("b")], replicas=2, current=2)
    assert (step.evict, dict(step.costs)) == (None, {})


# --- servers of a former directory ------------------------------------------------------------------------------------


def _away(name, span="0:10", **values):
    return replace(server(name, span, state=None, template="old", **values), stranded=True)


def test_servers_of_a_former_directory_stay_until_there_is_a_whole_model_in_the_new_one():
    wanted = [_wanted("first", current=2), _wanted("second", span="10:20", current=1)]
    servers = [_away("a", bs="first"), _new("a2", bs="first"), _away("b", "10:20", bs="second")]
    steps = plan(wanted, servers)
    assert (steps["first"].replicas, dict(steps["first"].costs)) == (2, {})
    assert steps["second"].replicas == 2
    steps = plan(
        [wanted[0], _wanted("second", span="10:20", current=2)],
        [*servers, _new("b2", span="10:20", bs="second")],
    )
    assert {name: step.costs.keys() for name, step in steps.items()} == {"first": {"a"}, "second": {"b"}}


def test_their_substitutes_come_all_at_once():
    wanted = [_wanted("first"), _wanted("second", span="10:20")]
    steps = plan(wanted, [_away("a", bs="first"), _away("b", "10:20", bs="second")])
    assert [step.replicas for step in steps.values()] == [2, 2]


def test_more_of_them_than_are_wanted_leave_before_a_substitute_comes():
    """Scaled down while the directory moved: the room may be needed for substitutes, and nobody else would go."""
    away = [_away("a", bs="first"), _away("b", bs="first")]
    step = _step(away, replicas=1, current=2)
    assert (step.replicas, step.costs.keys(), step.hold) == (2, {"a"}, True)
    marked = [replace(away[0], pod=replace(away[0].pod, deletion_cost=-1000)), away[1]]
    assert _step(marked, replicas=1, current=2).replicas == 1
    assert _step(away[1:], replicas=1, current=1).replicas == 2
    newcomer = _loading("c", bs="first")
    assert _step([*away, newcomer], replicas=1, current=3).costs.keys() == {"a"}
