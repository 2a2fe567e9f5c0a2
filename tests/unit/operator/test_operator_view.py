"""What watches have seen: BlockServers as they are read, news told from echoes, and everything by lane."""

import copy
from types import MappingProxyType

import kopf
import pytest
from operator_objects import SETTINGS, block_server, budget, lane, pod, read

from blockswarm_operator import names
from blockswarm_operator.handlers import Memo, _Once, _react, kopf_settings, register, resource
from blockswarm_operator.observed import Child, Node
from blockswarm_operator.view import View


class Pokes:
    def __init__(self):
        self.keys = []

    def poke(self, key):
        self.keys.append(key)


def _child(name="first", kind="ReplicaSet", **values):
    fields = {"uid": f"uid-{kind}-{name}", "model": "m", "block_server": name, "generation": 1, "applied": ""}
    return Child(kind=kind, namespace="models", name=name, **fields | values)


# --- BlockServers -----------------------------------------------------------------------------------------------------


def test_a_block_server_as_it_lies_in_the_cluster():
    body = block_server()
    body["status"] = {"replicas": 1, "conditions": [{"type": "Ready"}]}
    (namespace, model), found = resource(body)
    assert (namespace, found.namespace, found.name, found.uid) == (
        "models",
        "models",
        "first",
        "uid-of-first",
    )
    assert model == names.model_id("models", found.spec)
    assert (found.generation, found.deleting, found.fault) == (1, False, "")
    assert found.status == body["status"]
    # With every default, as the operator relies on.
    assert found.spec is not None
    assert (found.spec["replicas"], found.spec["drainSeconds"], found.spec["restart"]) == (1, 60, "")
    assert found.spec["update"] == {"allowGap": False}
    assert found.spec["pod"]["unreachableSeconds"] == 30


def test_read_only_views_are_read_like_dicts():
    def frozen(value):
        if isinstance(value, dict):
            return MappingProxyType({key: frozen(item) for key, item in value.items()})
        return tuple(frozen(item) for item in value) if isinstance(value, list) else value

    body = block_server(pod={"tolerations": [{"key": "gpu", "operator": "Exists"}]})
    body["status"] = {"servers": [{"pod": "a"}]}
    assert resource(frozen(body)) == resource(body)
    assert type(resource(frozen(body))[1].status["servers"]) is list


def test_one_that_cannot_be_read_has_a_lane_of_its_own():
    body = block_server(blocks={"start": 10, "end": 5})
    (namespace, model), found = resource(body)
    assert (namespace, model, found.spec) == ("models", "unreadable-uid-of-first", None)
    assert "blocks" in found.fault


def test_fields_of_a_later_version_stop_nobody():
    body = block_server()
    body["spec"]["fromTheFuture"] = {"a": 1}
    body["spec"]["cache"] = {"tokens": 5, "alsoNew": True}
    assert read(body).fault == ""
    assert read(body).spec["cache"]["tokens"] == 5
    assert lane(body) == lane(block_server())


def test_local_models_have_no_meaning_in_a_cluster():
    body = block_server()
    body["spec"]["model"]["source"] = {"path": "models/demo"}
    assert "path" in read(body).fault


def test_one_that_is_being_deleted():
    body = block_server()
    body["metadata"]["deletionTimestamp"] = "2026-11-30T12:00:00Z"
    assert read(body).deleting


# --- the view ---------------------------------------------------------------------------------------------------------


def test_everything_by_lane():
    here, elsewhere = ("models", "m"), ("models", "n")
    gone = read(block_server("gone"), deleting=True)
    second, first = read(block_server("second")), read(block_server("first"))
    floor = budget("g", 1, 1)
    view = View(
        resources={here: [second, gone, first]},
        pods={here: [pod("a"), pod("b", node="node-2")], elsewhere: [pod("c")]},
        children=[{here: [_child(), _child("old", deleting=True)]}, {here: [floor]}, {}],
        nodes={"node-1": [Node(name="node-1")]},
    )
    assert [one.name for one in view.resources_of(here)] == ["first", "second"]
    assert [one.name for one in view.pods_of(here)] == ["a", "b"]
    assert view.children_of(here) == [_child()]
    assert view.budgets_of(here) == {"g": floor}
    assert view.all_nodes() == {"node-1": Node(name="node-1")}
    assert view.keys_on("node-1") == {here, elsewhere}
    assert view.keys_on("node-2") == {here}
    nowhere = ("models", "none")
    assert (view.resources_of(nowhere), view.pods_of(nowhere), view.budgets_of(nowhere)) == ([], [], {})


# --- news -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def memo():
    return Memo(View(pods={("models", "m"): [pod("a")]}), Pokes())


def _seen(memo, value, kind="MODIFIED", key=("models", "m")):
    memo.lanes.keys.clear()
    _react(memo, key, value, {"type": kind})
    return memo.lanes.keys


def test_the_memo_is_one_for_all(memo):
    assert copy.copy(memo) is memo


def test_a_pod_is_news_when_what_is_read_of_it_changed(memo):
    assert _seen(memo, pod("a"), "ADDED") == [("models", "m")]
    assert _seen(memo, pod("a")) == []
    assert _seen(memo, pod("a", ready=False)) == [("models", "m")]
    assert _seen(memo, pod("a", ready=False), "DELETED") == [("models", "m")]
    assert _seen(memo, pod("a", ready=False), "DELETED") == []
    assert memo.last == {}


def test_a_status_that_we_wrote_is_no_news(memo):
    one = read(block_server())
    assert _seen(memo, one, "ADDED")
    assert not _seen(memo, read(block_server(), status={"replicas": 1}))
    assert _seen(memo, read(block_server(), generation=2))
    assert _seen(memo, read(block_server(), generation=2, deleting=True))


def test_a_node_pokes_the_lanes_that_have_a_pod_on_it(memo):
    assert _seen(memo, Node(name="node-1"), "ADDED", key="node-1") == [("models", "m")]
    assert _seen(memo, Node(name="node-1"), key="node-1") == []
    assert _seen(memo, Node(name="node-1", cordoned=True), key="node-1") == [("models", "m")]
    assert _seen(memo, Node(name="node-9"), "ADDED", key="node-9") == []


def test_children_without_a_model_poke_nobody(memo):
    assert _seen(memo, _child(model=""), key=("models", "")) == []


# --- kopf -------------------------------------------------------------------------------------------------------------


def test_only_what_is_ours_is_watched_and_nothing_is_written_on_peoples_objects():
    registry = kopf.OperatorRegistry()
    register(registry)
    settings = kopf_settings(SETTINGS)
    assert settings.posting.enabled is False
    assert settings.scanning.disabled is True
    selectors = settings.watching.label_selectors
    for place in (("v1", "pods"), ("v1", "services"), ("apps", "v1", "replicasets")):
        assert selectors[place] == names.SELECTOR
    assert ("blockswarm.io", "v1alpha1", "blockservers") not in selectors
    # Change handlers, timers and daemons would put finalizers and annotations there.
    assert not registry._changing._handlers
    assert not registry._spawning._handlers
    selected = [handler.selector for handler in registry._watching._handlers]
    watched = {one.plural or one.any_name for one in selected if one is not None}
    assert watched == {
        "blockservers",
        "pods",
        "nodes",
        "replicasets",
        "services",
        "networkpolicies",
        "poddisruptionbudgets",
    }


# --- reading ----------------------------------------------------------------------------------------------------------


def test_an_object_is_read_once_for_all_handlers_of_an_event():
    seen = []

    def read(body):
        seen.append(body["metadata"]["resourceVersion"])
        return "key", len(seen)

    reading = _Once(read)
    body = {"metadata": {"uid": "u", "resourceVersion": "1"}}
    assert [reading(body), reading(body)] == [("key", 1), ("key", 1)]
    assert reading({"metadata": {"uid": "u", "resourceVersion": "2"}}) == ("key", 2)
    reading.forget(body)
    assert reading({"metadata": {"uid": "u", "resourceVersion": "2"}}) == ("key", 3)
    assert seen == ["1", "2", "2"]
