"""Whole passes over a cluster in one object: what is written, what is left alone, and what people are told."""

import pytest
from operator_objects import SETTINGS, block_server
from operator_world import World

from blockswarm_operator import names
from blockswarm_operator.cluster import ApiError
from blockswarm_operator.handlers import resource
from blockswarm_operator.settings import Settings
from blockswarm_wire.record import State
from blockswarm_wire.span import Span

ROOM = {"node-1": 4, "node-2": 4, "node-3": 4}
WITH_POLICY = Settings(directory=SETTINGS.directory, server_image=SETTINGS.server_image, network_policy=True)


def _world(*bodies, room=ROOM, settings=SETTINGS):
    world = World(room, settings)
    for body in bodies or [block_server(replicas=2)]:
        world.put(body)
    world.settle()
    return world


def _told(world, name="first"):
    return [reason for about, _, reason in world.events if about == name]


def _series(world, name):
    """Values of the labels, in their order → value."""
    families = [one for one in world.metrics.registry.collect() if one.name == f"blockswarm_{name}"]
    return {tuple(sample.labels.values()): sample.value for one in families for sample in one.samples}


# --- the quiet life ---------------------------------------------------------------------------------------------------


def test_a_block_server_comes_up():
    world = _world()
    assert {kind for kind, _ in world.objects} == {"ReplicaSet", "Service", "PodDisruptionBudget"}
    status = world.status("first")
    assert (status["ready"], status["blocks"], status["reason"]) == ("2/2", "0:10", "")
    assert world.condition("first", "Ready") == ("True", "ServerOnline")
    assert world.floor("first") == 1
    assert len(world.pods_of("first")) == 2
    assert _told(world) == ["ServerOnline", "Complete"]


def test_a_second_pass_writes_nothing():
    world = _world(block_server(replicas=2), block_server("second", blocks={"start": 10, "end": 20}))
    before, world.calls = world.picture(), []
    for _ in range(3):
        world.watch()
        world.operate()
    assert world.calls == []
    assert world.picture() == before


def test_a_new_process_writes_nothing_either():
    world = _world()
    world.restarted_operator()
    world.calls = []
    world.watch()
    world.operate()
    assert world.calls == []
    assert any(_series(world, "blockserver_condition").values())


def test_a_watch_that_is_late_leads_to_no_second_write():
    world = _world()
    world.change("first", replicas=3)
    world.watch("BlockServer")
    world.operate()
    world.calls = []
    for _ in range(3):
        world.operate()
    assert world.writes == []


def test_a_pass_comes_again_soon_only_while_something_is_under_way():
    world = _world()
    assert world.operate() == [15.0]
    world.lose("node-1")
    world.watch()
    assert world.operate() == [1.0]


@pytest.mark.parametrize("replicas", [1, 2])
def test_servers_of_a_former_directory_are_replaced_one_by_one(replicas):
    """As after an install under another release name: they run, but never come to the directory of now."""
    bodies = block_server(replicas=replicas), block_server("second", blocks={"start": 10, "end": 20})
    world = _world(*bodies)
    before = {body["metadata"]["uid"] for body in world.pods.values()}
    world.move_directory()
    world.settle()
    assert not before & {body["metadata"]["uid"] for body in world.pods.values()}
    assert world.trouble == ""
    for name in ("first", "second"):
        assert world.condition(name, "Ready") == ("True", "ServerOnline")
        assert world.condition(name, "Progressing") == ("False", "Complete")


# --- what others do ---------------------------------------------------------------------------------------------------


def _tamper(world, kind, name, **spec):
    body = world.objects[kind, name]
    body["spec"] = {**body["spec"], **spec}
    body["metadata"]["resourceVersion"] = str(int(body["metadata"]["resourceVersion"]) + 1)
    if kind != "Service":
        body["metadata"]["generation"] += 1
    body["metadata"]["managedFields"] = [{"manager": "kubectl-edit", "fieldsV1": {"f:spec": {}}}]


@pytest.mark.parametrize(
    ("kind", "spec"),
    [("ReplicaSet", {"replicas": 7}), ("Service", {"publishNotReadyAddresses": False})],
)
@pytest.mark.parametrize("restarted", [False, True])
def test_fields_that_the_operator_sets_are_restored(kind, spec, restarted):
    world = _world()
    before = world.objects[kind, "first"]["spec"]
    _tamper(world, kind, "first", **spec)
    if restarted:
        world.restarted_operator()
    world.watch()
    world.operate()
    assert world.objects[kind, "first"]["spec"] == before


def test_who_adds_to_the_replica_set_is_named():
    world = _world()
    _tamper(world, "ReplicaSet", "first")
    world.watch()
    world.operate()
    assert world.condition("first", "Drifted") == ("True", "TemplateChanged")
    assert "TemplateChanged" in _told(world)


@pytest.mark.parametrize("kind", ["ReplicaSet", "Service", "PodDisruptionBudget"])
def test_children_that_were_deleted_come_back(kind):
    world = _world()
    (name,) = [name for (k, name) in world.objects if k == kind]
    before = world.objects.pop((kind, name))
    world.watch()
    world.operate()
    assert world.objects[kind, name]["spec"] == before["spec"]


@pytest.mark.parametrize("kind", ["Service", "ReplicaSet"])
@pytest.mark.parametrize("owners", [[], [{"kind": "Deployment", "name": "first", "uid": "theirs"}]])
def test_what_belongs_to_somebody_else_is_not_adopted(kind, owners):
    world = World(ROOM)
    theirs = {
        "kind": kind,
        "metadata": {"name": "first", "namespace": "models", "uid": "x", "ownerReferences": owners},
        "spec": {},
        "status": {},
    }
    world.objects[kind, "first"] = theirs
    world.put(block_server())
    world.put(block_server("second", blocks={"start": 10, "end": 20}))
    for _ in range(8):
        if kind == "Service":
            world.run_replica_sets()
        world.watch()
        world.operate()
    assert world.objects[kind, "first"] is theirs
    assert ("apply", kind, "first") not in world.calls
    assert world.condition("first", "Accepted") == ("False", "NameTaken")
    assert world.status("first")["reason"] == "NameTaken"
    assert _told(world).count("NameTaken") == 1
    # The other one of the model is none the worse.
    assert ("apply", "ReplicaSet", "second") in world.calls
    assert world.condition("second", "Accepted") == ("True", "Valid")
    # Once it is out of the way, all goes on.
    del world.objects[kind, "first"]
    world.settle()
    assert world.condition("first", "Ready") == ("True", "ServerOnline")


def test_what_a_deleted_block_server_of_the_same_name_left_is_waited_for():
    world = _world()
    again = block_server(replicas=2)
    again["metadata"]["uid"] = "uid-of-another"
    world.block_servers["first"] = again
    world.calls = []
    for _ in range(3):
        world.watch()
        world.operate()
    assert ("apply", "ReplicaSet", "first") not in world.calls
    assert world.condition("first", "Accepted") == ("True", "Valid")
    # The garbage collector comes.
    world.guarded = False
    for place in [place for place in world.objects if place[0] != "PodDisruptionBudget"]:
        del world.objects[place]
    for name in world.pods:
        world._leave(name)
    world.settle()
    owners = world.objects["ReplicaSet", "first"]["metadata"]["ownerReferences"]
    assert [one["uid"] for one in owners] == ["uid-of-another"]
    assert world.condition("first", "Ready") == ("True", "ServerOnline")


def test_a_policy_goes_when_it_is_not_wanted_any_more():
    world = _world(settings=WITH_POLICY)
    assert ("NetworkPolicy", "first") in world.objects
    world.settings = SETTINGS
    world.restarted_operator()
    world.settle()
    assert ("NetworkPolicy", "first") not in world.objects
    assert ("delete", "NetworkPolicy", "first") in world.calls


# --- trouble ----------------------------------------------------------------------------------------------------------


def test_an_unreadable_block_server_is_told_and_what_runs_stays():
    world = _world()
    before = world.picture()["objects"]
    world.change("first", blocks={"start": 9, "end": 3})
    world.watch()
    world.operate()
    assert world.condition("first", "Accepted") == ("False", "InvalidSpec")
    assert world.status("first")["ready"] == "2/2"
    assert _told(world)[-1] == "InvalidSpec"
    assert world.picture()["objects"] == before
    writes = len(world.writes)
    world.operate()
    assert len(world.writes) == writes
    del world.block_servers["first"]
    world.view.resources = {key: [] for key in world.view.resources}
    world.operate()
    assert not _series(world, "blockserver_condition")


def _deny(world, monkeypatch, method, error, concerns):
    """Calls of one method whose arguments `concerns` holds true of get this answer."""
    real = getattr(world, method)

    async def call(*arguments):
        if concerns(*arguments):
            raise error
        return await real(*arguments)

    monkeypatch.setattr(world, method, call)


def _named(kind, name):
    return lambda body: (body["kind"], body["metadata"]["name"]) == (kind, name)


def _work(world, rounds=8):
    for _ in range(rounds):
        world.run_replica_sets()
        world.schedule()
        world.run_kubelets()
        world.run_budgets()
        world.watch()
        world.operate()


def test_one_child_that_is_refused_does_not_keep_the_pass_from_the_others(monkeypatch):
    world = World(ROOM)
    world.put(block_server("first"))
    world.put(block_server("second", blocks={"start": 10, "end": 20}))
    refusal = ApiError(422, "spec.ports[1].name: Duplicate value")
    _deny(world, monkeypatch, "apply", refusal, _named("Service", "first"))
    _work(world)
    assert world.failures
    assert world.condition("second", "Ready") == ("True", "ServerOnline")


@pytest.mark.parametrize("replicas", [1, 2])
def test_while_the_new_template_is_refused_no_server_of_the_old_one_goes(monkeypatch, replicas):
    world = _world(
        block_server("first", replicas=replicas), block_server("second", blocks={"start": 10, "end": 20})
    )
    pods = {body["metadata"]["uid"] for body in world.pods_of("first")}
    refusal = ApiError(
        422, "spec.template.spec.containers[0].resources.requests: must be less than the limit"
    )
    _deny(world, monkeypatch, "apply", refusal, _named("ReplicaSet", "first"))
    world.change("first", restart="x")
    world.change("second", restart="x")
    _work(world, 20)
    assert {body["metadata"]["uid"] for body in world.pods_of("first")} == pods
    assert world.condition("first", "Accepted") == ("False", "Refused")
    assert world.status("first")["reason"] == "Refused"
    assert "Refused" in _told(world)
    assert world.failures
    assert world.up_to_date("second")
    # And once the API server takes it, all goes on.
    monkeypatch.undo()
    _work(world, 20)
    assert world.up_to_date("first")
    assert world.condition("first", "Accepted") == ("True", "Valid")


# No answer in time, races, too many requests, an API server that is not well: the next pass may succeed.
PASSING = (0, 404, 408, 409, 429, 500, 503, 504)


@pytest.mark.parametrize("code", PASSING)
def test_a_failure_that_may_pass_while_applying_lets_nobody_go_and_alarms_nobody(monkeypatch, code):
    world = _world(block_server("first", replicas=2))
    pods = {body["metadata"]["uid"] for body in world.pods_of("first")}
    _deny(world, monkeypatch, "apply", ApiError(code, "etcd leader changed"), _named("ReplicaSet", "first"))
    world.change("first", restart="x")
    _work(world)
    assert {body["metadata"]["uid"] for body in world.pods_of("first")} == pods
    assert world.condition("first", "Accepted") == ("True", "Valid")
    assert "Refused" not in _told(world)
    assert {error.code for error in world.failures} == {code}, "it is tried again"


# Of an eviction 404, 409 and 429 are answers.
@pytest.mark.parametrize("code", sorted({*PASSING} - {404, 409, 429}))
def test_a_failure_that_may_pass_while_evicting_alarms_nobody(monkeypatch, code):
    world = _world(block_server("first", replicas=2))
    _deny(world, monkeypatch, "evict", ApiError(code, "etcd leader changed"), lambda *of: True)
    world.change("first", restart="x")
    _work(world)
    assert world.condition("first", "Progressing")[1] != "CannotEvict"
    assert "CannotEvict" not in _told(world)
    assert {error.code for error in world.failures} == {code}, "it is tried again"


def test_an_eviction_that_is_refused_for_good_is_told_and_stops_nobody_else(monkeypatch):
    world = _world(block_server("first", replicas=2), block_server("second", blocks={"start": 10, "end": 20}))
    text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
    _deny(world, monkeypatch, "evict", ApiError(500, text), lambda space, name, uid: name.startswith("first"))
    world.change("first", restart="x")
    world.change("second", restart="x")
    _work(world, 20)
    assert world.condition("first", "Progressing") == ("False", "CannotEvict")
    assert world.status("first")["observedGeneration"] == 2
    assert world.up_to_date("second")


def test_a_budget_that_is_refused_keeps_its_servers_and_stops_nobody_else(monkeypatch):
    world = World(ROOM)
    world.put(block_server("first"))
    world.put(block_server("second", blocks={"start": 10, "end": 20}))
    (lane,) = {resource(body)[0] for body in world.block_servers.values()}
    budget = names.budget_name(names.span_group(lane[1], Span(0, 10)))
    of_first = _named("PodDisruptionBudget", budget)
    _deny(world, monkeypatch, "apply", ApiError(403, "exceeded quota"), of_first)
    _work(world)
    assert world.condition("first", "Accepted") == ("False", "Refused")
    assert world.condition("second", "Ready") == ("True", "ServerOnline")


def test_a_lost_event_stops_nothing():
    world = _world()

    async def create_event(event):
        raise ApiError(403, "forbidden")

    world.create_event = create_event
    world.change("first", restart="now")
    world.settle(100)
    assert world.up_to_date("first")
    assert world.failures == []


def test_without_the_directory_the_last_plan_stands():
    world = _world()
    world.directory.deaf = True
    before, floor = world.status("first"), world.floor("first")
    world.change("first", restart="now", replicas=1)
    for _ in range(10):
        world.step()
    status = world.status("first")
    assert world.condition("first", "Published") == ("Unknown", "DirectoryUnreachable")
    assert world.condition("first", "Ready") == ("True", "ServerOnline")
    assert (status["readyReplicas"], status["servers"]) == (before["readyReplicas"], before["servers"])
    assert (len(world.pods_of("first")), world.floor("first")) == (2, floor)
    world.directory.deaf = False
    world.settle(100)
    assert world.up_to_date("first")


def _floors(world):
    return [world.floor(name) for name in ("wide", "left", "right")]


@pytest.mark.parametrize("lost", [False, True])
def test_a_floor_that_fell_is_raised_again_though_the_watch_has_not_seen_it_fall(lost):
    """Else the other floors would fall because that one seemed to hold, and no block would be held by any."""
    world = _world(
        block_server("wide", blocks={"start": 0, "end": 20}),
        block_server("left", blocks={"start": 0, "end": 10}),
        block_server("right", blocks={"start": 10, "end": 20}),
    )
    assert _floors(world) == [1, 0, 0]
    (node,) = [body["spec"]["nodeName"] for body in world.pods_of("wide")]
    world.cordoned.add(node)
    world.watch()
    world.operate()
    assert _floors(world) == [1, 1, 1]
    world.run_budgets()
    world.watch()
    world.trouble = "lost" if lost else ""
    world.operate()
    assert _floors(world) == [0, 1, 1]
    # The node takes pods again, and nothing else has been seen since.
    world.cordoned.clear()
    world.watch("Node")
    for _ in range(3):
        world.operate()
        assert _floors(world) == [1, 1, 1]
    world.settle()
    assert _floors(world) == [1, 0, 0]


@pytest.mark.parametrize("write", range(1, 12))
def test_killed_after_any_write_the_next_process_ends_where_the_first_one_would_have(write):
    def run(killed_at):
        world = World(ROOM, WITH_POLICY)
        world.killed_at = killed_at
        world.put(block_server(replicas=2))
        for _ in range(20):
            world.run_replica_sets()
            world.schedule()
            world.run_kubelets()
            world.run_budgets()
            world.watch()
            world.operate()
            if world.failures:
                world.failures.clear()
                world.restarted_operator()
        assert world.killed_at == 0, "there were fewer writes"
        return {place: body["spec"] for place, body in world.objects.items()}, world.status("first")["ready"]

    assert run(write) == run(0)


# --- statements -------------------------------------------------------------------------------------------------------


def _stated(world):
    return {one: said.state for batch in world.directory.published for one, said in batch.items()}


def test_servers_that_come_and_go_are_stated():
    world = _world()
    first, second = (body["metadata"]["uid"] for body in world.pods_of("first"))
    # The swarm of the model was known once its first server spoke.
    world.change("first", replicas=3)
    world.watch()
    world.operate()
    world.run_replica_sets()
    world.watch()
    world.operate()
    (third,) = [body["metadata"]["uid"] for body in world.pods_of("first")][2:]
    assert _stated(world)[third] is State.JOINING
    world.cordoned.add("node-1")
    world.watch()
    world.operate()
    on_node = {b["metadata"]["uid"] for b in world.pods_of("first") if b["spec"]["nodeName"] == "node-1"}
    assert {one for one, state in _stated(world).items() if state is State.DRAINING} == on_node
    world.cordoned.clear()
    world.watch()
    world.operate()
    assert not {one for one, state in _stated(world).items() if state is State.DRAINING}
    assert {first, second} >= on_node


def test_a_server_whose_pod_vanished_is_offline_also_for_a_new_process():
    world = _world()
    world.guarded = False
    name = world.pods_of("first")[0]["metadata"]["name"]
    uid = world.pods.pop(name)["metadata"]["uid"]  # its record stays until it expires
    kept = dict(world.directory._shown)
    world.restarted_operator()
    world.watch("Pod")
    # The new process has not heard of the directory yet.
    world.directory._shown, world.directory._heard = {}, 0.0
    world.operate()
    assert _stated(world) == {}
    world.directory._shown, world.directory._heard = kept, 1.0
    world.operate()
    assert _stated(world) == {uid: State.OFFLINE}
    world.directory.published.clear()
    world.operate()
    assert world.directory.published == []


def test_servers_of_a_lost_node_are_asked_before_they_are_called_offline():
    world = _world()
    (uid,) = [b["metadata"]["uid"] for b in world.pods_of("first") if b["spec"]["nodeName"] == "node-1"]
    world.lose("node-1")
    world.watch()
    world.operate()
    assert uid not in _stated(world)
    assert _told(world).count("NodeLost") == 1
    world.directory.silent.add("10.0.0.1:31330")
    world.operate()
    assert _stated(world)[uid] is State.OFFLINE
    assert _told(world).count("NodeLost") == 1
    assert "node-1" in next(
        c["message"] for c in world.status("first")["conditions"] if c["type"] == "Scheduled"
    )


def test_a_server_that_drains_is_told_once():
    world = _world()
    world.evicts(world.pods_of("first")[0]["metadata"]["name"])
    for _ in range(3):
        world.watch()
        world.operate()
    world.restarted_operator()
    world.watch()
    world.operate()
    assert _told(world).count("Draining") == 1


# --- leaving ----------------------------------------------------------------------------------------------------------


def test_marks_are_set_before_replicas_fall_and_taken_back_when_they_rise():
    world = _world()
    world.change("first", replicas=1)
    world.watch()
    world.operate()
    marked = [
        name for name, body in world.pods.items() if names.DELETION_COST in body["metadata"]["annotations"]
    ]
    assert len(marked) == 1
    assert world.objects["ReplicaSet", "first"]["spec"]["replicas"] == 2
    world.change("first", replicas=2)
    world.watch()
    world.operate()
    assert not any(names.DELETION_COST in body["metadata"]["annotations"] for body in world.pods.values())


def test_a_pod_that_is_gone_already_is_no_trouble():
    world = _world()
    world.change("first", replicas=1)
    world.watch()
    for name in list(world.pods)[:2]:
        del world.pods[name]
    world.operate()
    assert world.failures == []


def test_evictions_are_counted():
    world = _world()
    world.change("first", restart="now")
    world.settle(100)
    counts = {
        s.labels["result"]: s.value
        for s in world.metrics.evictions.collect()[0].samples
        if s.name.endswith("_total")
    }
    assert counts["allowed"] >= 1


def test_the_only_server_is_replaced_without_a_gap_and_without_a_third_pod():
    world = _world(block_server())
    world.change("first", restart="now")
    most = 0
    for _ in range(40):
        world.step()
        most = max(most, len(world.pods_of("first")))
        assert world.serving().keys() == set(range(10))
    assert world.up_to_date("first")
    assert most == 2


def test_without_room_nothing_is_lost_and_it_is_told():
    world = _world(block_server(), room={"node-1": 1})
    world.change("first", restart="now")
    for _ in range(15):
        world.step()
    assert world.condition("first", "Progressing") == ("False", "NoSpareCapacity")
    assert world.status("first")["ready"] == "1/1"
    assert "NoSpareCapacity" in _told(world)
    world.room["node-2"] = 1
    world.settle(100)
    assert world.up_to_date("first")


def test_allow_gap_goes_on_without_room():
    world = _world(block_server(update={"allowGap": True}), room={"node-1": 1})
    world.guarded = False
    world.change("first", restart="now")
    world.settle(100)
    assert world.up_to_date("first")
    assert "GapAllowed" in _told(world)


def test_scaled_to_zero_and_back():
    world = _world()
    world.guarded = False
    world.change("first", replicas=0)
    world.settle(100)
    assert world.pods == {}
    assert world.condition("first", "Ready") == ("False", "ScaledToZero")
    world.change("first", replicas=2)
    world.settle(100)
    assert world.condition("first", "Ready") == ("True", "ServerOnline")
    assert "NoServerOnline" not in _told(world)


# --- the end ----------------------------------------------------------------------------------------------------------


def test_of_a_deleted_block_server_nothing_is_remembered():
    world = _world(block_server(), block_server("second", blocks={"start": 10, "end": 20}))
    del world.block_servers["second"]
    world.watch()
    assert world.operate() == [15.0]
    assert set(_series(world, "blockserver_ready_replicas")) == {("models", "first")}
    key = next(iter(world.keys))
    del world.block_servers["first"]
    world.watch()
    world.operate()
    assert world.directory.followed == {key[1]}
    world.view.resources = {key: []}
    assert world.operate() == [None]
    assert world.directory.followed == set()
    for name in ("blockserver_replicas", "blockserver_ready_replicas", "blockserver_condition"):
        assert not _series(world, name)
    for name in ("block_coverage", "coverage_min"):
        assert not _series(world, name)


def test_metrics_tell_coverage():
    world = _world(block_server(replicas=2), block_server("second", blocks={"start": 8, "end": 12}))
    found = {int(block): value for (*_, block), value in _series(world, "block_coverage").items()}
    assert found == {**dict.fromkeys(range(8), 2), 8: 3, 9: 3, 10: 1, 11: 1}
    assert list(_series(world, "coverage_min").values()) == [1]


def test_models_of_one_label_have_coverage_of_their_own():
    world = _world(block_server(), block_server("other", dtype="bfloat16"))
    found = {identity: value for (*_, identity), value in _series(world, "coverage_min").items()}
    assert len(found) == 2
    assert set(found.values()) == {1}


def test_metrics_tell_servers_and_conditions():
    world = _world(block_server(replicas=2))
    assert _series(world, "blockserver_replicas") == {("models", "first"): 2}
    assert _series(world, "blockserver_ready_replicas") == {("models", "first"): 2}
    ready = {
        status: value
        for (_, _, kind, status), value in _series(world, "blockserver_condition").items()
        if kind == "Ready"
    }
    assert ready == {"True": 1, "False": 0, "Unknown": 0}
