"""Which servers must stay, and when a budget may fall: tables, and properties against brute force."""

import itertools

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st
from operator_objects import budget, server

from blockswarm_operator.budgets import all_hold, fence, floors, holds, keep
from blockswarm_wire.record import State


def _kept(*servers, leaving=()):
    return {one.pod.name for one in keep(servers, leaving)}


def test_the_fewest_servers_are_kept():
    assert _kept() == set()
    assert _kept(server("a", "0:10")) == {"a"}
    assert _kept(server("a", "0:5"), server("b", "5:10"), server("c", "0:10")) == {"c"}
    assert _kept(server("a", "0:4"), server("d", "4:7"), server("b", "2:8"), server("c", "7:10")) == {
        "a",
        "b",
        "c",
    }


def test_blocks_that_nobody_holds_are_nobodys_reason_to_stay():
    assert _kept(server("a", "2:4"), server("b", "6:8"), server("c", "0:8", state=State.JOINING)) == {
        "a",
        "b",
    }


@pytest.mark.parametrize(
    ("first", "second", "kept"),
    [
        ({"created": 1.0}, {"created": 2.0}, "b"),
        ({"created": 2.0}, {"created": 1.0}, "a"),
        ({"created": 1.0}, {"created": 2.0, "cordoned": True}, "a"),
        ({"cordoned": True, "created": 1.0}, {"cordoned": True, "created": 2.0}, "b"),
        ({"ready": False}, {"cordoned": True}, "b"),
        ({"state": State.DRAINING, "created": 9.0}, {"created": 1.0}, "b"),
    ],
)
def test_of_equal_servers_the_youngest_on_a_node_that_stays_is_kept(first, second, kept):
    assert _kept(server("a", **first), server("b", **second)) == {kept}


def test_those_that_must_go_are_kept_only_where_nobody_stands_in_for_them():
    left, right = server("l", "0:5"), server("r", "5:10")
    # Else its node could never be drained: one server is fewer than two, for ever.
    assert _kept(server("w", "0:10", cordoned=True), left, right) == {"l", "r"}
    assert _kept(server("w", "0:10"), left, right, leaving=["uid-w"]) == {"l", "r"}
    assert _kept(server("w", "0:10", cordoned=True), left) == {"w"}
    # All must go: one after the other.
    assert _kept(server("w", "0:10"), left, right, leaving=["uid-w", "uid-l", "uid-r"]) == {"w"}


SPANS = st.tuples(st.integers(0, 7), st.integers(1, 4)).map(lambda pair: f"{pair[0]}:{pair[0] + pair[1]}")


@st.composite
def _servers(draw):
    spans = draw(st.lists(SPANS, max_size=7))
    return [
        server(
            f"s{number}",
            span,
            created=float(draw(st.integers(0, 3))),
            cordoned=draw(st.booleans()),
            state=draw(st.sampled_from([State.ONLINE, State.ONLINE, State.ONLINE, State.DRAINING])),
        )
        for number, span in enumerate(spans)
    ]


def _blocks(servers):
    return {block for one in servers if one.online for block in one.span.blocks()}


@hypothesis.settings(max_examples=200, deadline=None)
@given(servers=_servers(), leaving=st.sets(st.integers(0, 6), max_size=3))
def test_what_is_kept_covers_all_and_no_better_choice_exists(servers, leaving):
    going = {f"uid-s{number}" for number in leaving}
    online = [one for one in servers if one.online]

    def cost(chosen):
        must_go = sum(one.cordoned or one.pod.uid in going for one in chosen)
        return must_go, len(chosen), -sum(one.pod.created for one in chosen)

    covering = [
        chosen
        for size in range(len(online) + 1)
        for chosen in itertools.combinations(online, size)
        if _blocks(chosen) == _blocks(online)
    ]
    kept = keep(servers, going)
    assert _blocks(kept) == _blocks(online)
    assert cost(kept) == min(map(cost, covering))


def test_floors_keep_the_kept_and_let_the_others_go():
    servers = [
        server("a", "0:5", bs="first", created=1.0),
        server("b", "0:5", bs="first", created=2.0),
        server("c", "5:10", bs="second"),
        server("d", "0:10", bs="third", cordoned=True),
    ]
    groups = ["group-first", "group-second", "group-third"]
    assert floors(servers, groups) == {"group-first": 1, "group-second": 1, "group-third": 0}


def test_a_pod_that_is_ready_but_not_online_cannot_stand_in_for_one_that_is():
    servers = [server("a"), server("b", state=None), server("c", state=State.JOINING)]
    assert floors(servers, ["group-first"]) == {"group-first": 3}
    # Those that are not even Ready are not counted by a budget.
    servers = [server("a"), server("b", state=None, ready=False)]
    assert floors(servers, ["group-first"]) == {"group-first": 1}


def test_a_group_that_never_came_up_keeps_its_first_pod():
    assert floors([server("a", state=None, ready=False)], ["group-first"]) == {"group-first": 1}
    assert floors([], ["group-first"]) == {"group-first": 0}
    assert floors([server("a", deleting=True)], ["group-first"]) == {"group-first": 0}


def test_a_server_whose_loss_is_allowed_holds_no_floor():
    servers = [server("a"), server("b", "10:20", bs="second")]
    found = floors(servers, ["group-first", "group-second"], expendable=frozenset({"uid-a"}))
    assert found == {"group-first": 0, "group-second": 1}


def test_in_a_held_group_nothing_may_be_evicted():
    servers = [server("a"), server("b"), server("c", ready=False), server("d", deleting=True)]
    assert floors(servers, ["group-first"], held=frozenset({"group-first"})) == {"group-first": 2}


@pytest.mark.parametrize(
    ("one", "floor", "held"),
    [
        (None, 1, False),
        (budget("g", 1, 2), 1, True),
        (budget("g", 2, 2), 1, True),
        (budget("g", 0, 2), 1, False),
        (budget("g", 1, 0), 1, False),
        (budget("g", 1, 2, settled=False), 1, False),
    ],
)
def test_a_budget_holds_when_it_is_in_force(one, floor, held):
    assert holds(one, floor) is held


def test_floors_rise_at_once():
    found = fence({"a": 2, "b": 1}, {"a": budget("a", 1, 2), "b": budget("b", 0, 0, settled=False)})
    assert found.apply == {"a": 2, "b": 1}
    assert not found.waiting


def test_a_new_group_begins_with_its_floor():
    assert fence({"a": 1, "b": 0}, {}).apply == {"a": 1, "b": 0}


def test_floors_fall_only_when_every_other_one_holds():
    wanted = {"a": 0, "b": 1}
    held = fence(wanted, {"a": budget("a", 1, 1), "b": budget("b", 1, 1)})
    assert (held.apply, held.waiting) == ({"a": 0, "b": 1}, False)
    for other in (None, budget("b", 0, 1), budget("b", 1, 0), budget("b", 1, 1, settled=False)):
        budgets = {"a": budget("a", 1, 1)} | ({"b": other} if other else {})
        waits = fence(wanted, budgets)
        assert (waits.apply, waits.waiting) == ({"a": 1, "b": 1}, True)


def test_a_group_without_any_pod_that_is_ready_has_nothing_to_hold():
    budgets = {"a": budget("a", 2, 2), "b": budget("b", 1, 0)}
    assert fence({"a": 1, "b": 1}, budgets).waiting
    assert fence({"a": 1, "b": 1}, budgets, idle={"b"}).apply == {"a": 1, "b": 1}
    assert all_hold({"a": 2, "b": 1}, budgets, idle={"b"})
    assert not all_hold({"a": 2, "b": 1}, budgets)


def test_blind_nothing_falls_and_what_is_new_is_protected():
    budgets = {"a": budget("a", 2, 2), "b": budget("b", 0, 1)}
    found = fence({"a": 0, "b": 1, "c": 0}, budgets, blind=True)
    assert found.apply == {"a": 2, "b": 1, "c": 1}
    assert found.waiting


@given(
    wanted=st.dictionaries(st.sampled_from("abcd"), st.integers(0, 3), min_size=1),
    there=st.dictionaries(
        st.sampled_from("abcd"), st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans())
    ),
    blind=st.booleans(),
)
def test_whatever_is_there_no_floor_falls_while_another_does_not_hold(wanted, there, blind):
    budgets = {
        group: budget(group, floor, healthy, settled=ok) for group, (floor, healthy, ok) in there.items()
    }
    found = fence(wanted, budgets, blind=blind)
    assert found.apply.keys() == wanted.keys()
    for group, floor in found.apply.items():
        assert floor >= wanted[group]
        before = budgets[group].min_available if group in budgets else None
        if before is not None and floor < before:
            assert not blind
            assert all(holds(budgets.get(other), least) for other, least in wanted.items() if least)
    assert found.waiting == any(found.apply[group] > wanted[group] for group in wanted if group in budgets)
