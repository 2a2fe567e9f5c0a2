"""One look at one model: when the directory cannot be believed, and how the parts of a plan fit together."""

from dataclasses import replace

import pytest
from operator_objects import NOW, SETTINGS, block_server, budget, pod, read, record

from blockswarm_operator import names
from blockswarm_operator.observe import ask, look
from blockswarm_operator.observed import Child, Node
from blockswarm_wire.record import merge
from blockswarm_wire.span import Span


def _ask(name="first", start=0, end=10, **spec):
    return ask(read(block_server(name, blocks={"start": start, "end": end}, **spec)), "m", SETTINGS)


def _pod(of, name, **values):
    return pod(name, bs=of.resource.name, group=of.group, **{"template": of.template_hash} | values)


def _look(asks, pods, *, known=None, budgets=(), current=None, reachable=True, nodes=()):
    """`known`: pods that the directory shows; default: all that are ready."""
    spans = {one.resource.name: one.span for one in asks}
    shown = [one for one in pods if one.ready] if known is None else known
    views = {one.uid: merge(record(one.uid, spans[one.block_server]), None, now=NOW) for one in shown}
    sets = [
        Child(
            kind="ReplicaSet",
            namespace="models",
            name=name,
            uid=name,
            model="m",
            block_server=name,
            generation=1,
            applied="",
            replicas=replicas,
        )
        for name, replicas in (current or {}).items()
    ]
    return look(
        asks,
        pods=pods,
        nodes={"node-1": Node(name="node-1")} | {one.name: one for one in nodes},
        views=views,
        children=sets,
        budgets={one.group: one for one in budgets},
        directory=SETTINGS.directory,
        reachable=reachable,
    )


def test_all_is_well():
    one = _ask(replicas=2)
    seen = _look([one], [_pod(one, "a"), _pod(one, "b")], budgets=[budget(one.group, 1, 2)])
    assert not seen.blind
    assert (seen.steps["first"].replicas, dict(seen.floors.apply)) == (2, {one.group: 1})
    assert [server.pod.name for server in seen.servers_of("first")] == ["a", "b"]
    assert seen.servers_of("second") == []


@pytest.mark.parametrize(
    ("ready", "known", "reachable", "blind"),
    [
        (True, True, True, False),
        (True, True, False, True),
        # Pods that are Ready have been in the directory: it has lost its memory, not the servers their lives.
        (True, False, True, True),
        (False, False, True, False),
    ],
)
def test_when_the_directory_cannot_be_believed(ready, known, reachable, blind):
    one = _ask()
    pods = [_pod(one, "a", ready=ready)]
    assert _look([one], pods, known=pods if known else [], reachable=reachable).blind is blind


def test_a_server_of_another_directory_is_no_reason_to_doubt_ours():
    one = _ask()
    away = _pod(one, "a", template="old", directory="dns:///former.system.svc:31340")
    seen = _look([one], [away], known=[], budgets=[budget(one.group, 1, 1)], current={"first": 1})
    assert not seen.blind
    # It serves those that know it: a substitute comes before it goes.
    assert (seen.steps["first"].replicas, seen.steps["first"].evict) == (2, None)
    assert dict(seen.floors.apply) == {one.group: 1}
    # One of ours that is Ready and not seen is one.
    assert _look([one], [away, _pod(one, "b")], known=[]).blind
    both = _look([one], [away, _pod(one, "b")], known=[_pod(one, "b")], current={"first": 2})
    assert set(both.steps["first"].costs) == {"a"}


@pytest.mark.parametrize(
    ("replicas", "current", "kept"), [(1, None, 1), (3, 2, 3), (1, 2, 2), (2, 2, 2), (0, 2, 0), (0, None, 0)]
)
def test_blind_servers_may_be_started_but_none_is_stopped(replicas, current, kept):
    one = _ask(replicas=replicas)
    pods = [_pod(one, "a", template="old"), _pod(one, "b")]
    budgets = [budget(one.group, 2, 2)]
    seen = _look([one], pods, reachable=False, budgets=budgets, current={"first": current} if current else {})
    step = seen.steps["first"]
    assert (step.replicas, step.evict, dict(step.costs)) == (kept, None, {})
    assert dict(seen.floors.apply) == {one.group: 2}


def test_blind_a_new_group_is_protected():
    one = _ask()
    assert dict(_look([one], [_pod(one, "a")], reachable=False).floors.apply) == {one.group: 1}


def test_replicas_fall_only_once_every_server_that_must_stay_is_held():
    one = _ask(replicas=1)
    costs = _look([one], [_pod(one, "a"), _pod(one, "b")], current={"first": 2}).steps["first"].costs
    marked = [replace(pod, deletion_cost=costs.get(pod.name)) for pod in (_pod(one, "a"), _pod(one, "b"))]

    def replicas(*budgets):
        return _look([one], marked, current={"first": 2}, budgets=budgets).steps["first"].replicas

    assert replicas() == 2
    assert replicas(budget(one.group, 1, 2)) == 2
    assert replicas(budget(one.group, 2, 2, settled=False)) == 2
    assert replicas(budget(one.group, 2, 1)) == 2
    assert replicas(budget(one.group, 2, 2)) == 1


def test_a_server_that_stands_in_is_held_before_another_block_servers_servers_go():
    going, stands_in = _ask(replicas=0), _ask("wide", 0, 20)
    pods = [_pod(going, "a", deletion_cost=-1000), _pod(stands_in, "w")]

    def look_with(floor):
        return _look(
            [going, stands_in],
            pods,
            current={"first": 1, "wide": 1},
            budgets=[budget(going.group, 1, 1), budget(stands_in.group, floor, 1)],
        )

    assert look_with(0).steps["first"].replicas == 1
    assert dict(look_with(0).floors.apply) == {going.group: 1, stands_in.group: 1}
    assert look_with(1).steps["first"].replicas == 0


def test_what_is_evicted_is_not_what_is_kept():
    wide, left, right = _ask("wide", 0, 20, restart="now"), _ask("left", 0, 10), _ask("right", 10, 20)
    pods = [_pod(wide, "w", template="old"), _pod(left, "l"), _pod(right, "r")]
    seen = _look([wide, left, right], pods)
    assert seen.steps["wide"].evict is not None
    assert dict(seen.floors.apply) == {wide.group: 0, left.group: 1, right.group: 1}


def test_an_ask_carries_what_the_spec_comes_to():
    one = _ask(start=3, end=7)
    assert (one.span, one.group) == (Span(3, 7), names.span_group("m", Span(3, 7)))
    labels = one.template["metadata"]["labels"]
    assert (labels[names.SPAN_GROUP], labels[names.MODEL]) == (one.group, "m")
    assert labels[names.TEMPLATE] == one.template_hash
