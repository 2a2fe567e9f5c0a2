"""What is read of pods, nodes and children: in every state that the API server shows them in."""

import pytest

from blockswarm_operator import names
from blockswarm_operator.observed import Node, budget, child, node, pod, seconds

# A service mesh puts its container first.
_SIDECAR = {"name": "mesh", "state": {"waiting": {"reason": "ErrImagePull"}}, "restartCount": 7}


def _pod(*, container=None, conditions=(), spec=None, status=None, **meta):
    return {
        "metadata": {
            "namespace": "models",
            "name": "first-abcde",
            "uid": "u1",
            "creationTimestamp": "2026-11-30T12:00:00Z",
            "labels": {
                names.BLOCK_SERVER: "first",
                names.MODEL: "m",
                names.SPAN_GROUP: "g",
                names.TEMPLATE: "t",
            },
            **meta,
        },
        "spec": {"nodeName": "node-1", **(spec or {})},
        "status": {
            "phase": "Running",
            "podIP": "10.1.2.3",
            "conditions": list(conditions),
            "containerStatuses": [_SIDECAR, {"name": "server", **container}] if container else [],
            **(status or {}),
        },
    }


def test_a_pod_that_serves():
    body = _pod(
        container={"state": {"running": {"startedAt": "…"}}, "restartCount": 2},
        conditions=[{"type": "Ready", "status": "True"}, {"type": "PodScheduled", "status": "True"}],
    )
    seen = pod(body)
    assert (seen.block_server, seen.model, seen.group, seen.template) == ("first", "m", "g", "t")
    assert (seen.node, seen.ip, seen.created) == ("node-1", "10.1.2.3", seconds("2026-11-30T12:00:00Z"))
    assert (seen.ready, seen.started, seen.deleting, seen.gone) == (True, True, False, False)
    assert (seen.trouble, seen.unschedulable, seen.restarts, seen.deletion_cost) == (None, "", 2, None)


def test_a_pod_that_is_as_bare_as_the_api_allows():
    seen = pod({"metadata": {"namespace": "models", "name": "x", "uid": "u", "creationTimestamp": None}})
    assert (seen.phase, seen.node, seen.block_server, seen.created) == ("Pending", "", "", 0.0)
    assert not seen.ready
    assert not seen.started


def test_a_pod_that_no_node_takes():
    waits = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/3 nodes are available: 3 Insufficient memory.",
    }
    assert pod(_pod(conditions=[waits])).unschedulable == "0/3 nodes are available: 3 Insufficient memory."
    gated = {**waits, "reason": "SchedulingGated"}
    assert pod(_pod(conditions=[gated])).unschedulable == ""


def test_a_pod_that_leaves_and_its_price():
    seen = pod(_pod(deletionTimestamp="2026-11-30T12:01:00Z", annotations={names.DELETION_COST: "-1000"}))
    assert seen.deleting
    assert seen.deletion_cost == -1000


@pytest.mark.parametrize(("phase", "gone"), [("Failed", True), ("Succeeded", True), ("Unknown", False)])
def test_a_pod_whose_process_has_ended_for_good(phase, gone):
    assert pod(_pod(status={"phase": phase})).gone is gone


_RUNS = {"running": {"startedAt": "2026-11-30T12:00:00Z"}}
_ENDED = {"exitCode": 1, "reason": "Error", "message": " no such folder\n"}


@pytest.mark.parametrize(
    ("container", "trouble"),
    [
        ({"state": {"waiting": {"reason": "ContainerCreating"}}}, None),
        ({"state": {"waiting": {"reason": "PodInitializing"}}}, None),
        ({"state": _RUNS}, None),
        ({"state": {}}, None),
        (
            {"state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}}},
            ("ErrImagePull", "not found"),
        ),
        (
            {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off"}}},
            ("ImagePullBackOff", "Back-off"),
        ),
        (
            {
                "state": {
                    "waiting": {"reason": "CreateContainerConfigError", "message": 'secret "x" not found'}
                }
            },
            ("CreateContainerConfigError", 'secret "x" not found'),
        ),
        ({"state": {"terminated": _ENDED}}, ("Exit1", "no such folder")),
        ({"state": {"terminated": {**_ENDED, "exitCode": 2}}}, ("Exit2", "no such folder")),
        ({"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}, ("Exit0", "")),
        ({"state": {"terminated": {"exitCode": 1, "reason": "OOMKilled"}}}, ("OOMKilled", "")),
        # A probe, or somebody, killed it.
        ({"state": {"terminated": {"exitCode": 137, "reason": "Error"}}}, ("Exit137", "")),
        (
            {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": _ENDED}},
            ("Exit1", "no such folder"),
        ),
        # It runs again, but has not become ready yet: why it ended is still what a person asks.
        ({"state": _RUNS, "lastState": {"terminated": _ENDED}}, ("Exit1", "no such folder")),
        ({"state": _RUNS, "lastState": {"terminated": {"exitCode": 0}}}, None),
        # The new image cannot be pulled: the older end says nothing any more.
        (
            {
                "state": {"waiting": {"reason": "ErrImagePull", "message": "gone"}},
                "lastState": {"terminated": _ENDED},
            },
            ("ErrImagePull", "gone"),
        ),
    ],
)
def test_why_a_container_does_not_run(container, trouble):
    assert pod(_pod(container=container)).trouble == trouble


@pytest.mark.parametrize(
    ("log", "kept"),
    [
        (
            "starting\n" * 500 + "error: beyond the model's blocks\n",
            "starting\n" * 51 + "error: beyond the model's blocks",
        ),
        # A line of which only a part would fit is left out; a single long one is better than none.
        ('{"event": "' + 600 * "x" + '"}\nlast', "last"),
        (600 * "x", 500 * "x"),
        (
            '{"event": "loading"}\nblockswarm-server: no such revision\n',
            "blockswarm-server: no such revision",
        ),
        ('{"event": "loading"}\n{"event": "failed"}', '{"event": "loading"}\n{"event": "failed"}'),
    ],
)
def test_of_a_long_log_the_last_whole_lines_are_kept(log, kept):
    found = pod(_pod(container={"state": {"terminated": {"exitCode": 2, "message": log}}})).trouble
    assert found == ("Exit2", kept)


def test_the_directory_of_a_server_is_read_from_its_command():
    body = _pod()
    assert pod(body).directory == ""
    sidecar = {"name": "mesh", "args": ["--directory=/etc"]}
    server = {"name": "server", "args": ["--name=x", "--directory=dns:///a:1", "--dtype=float32"]}
    body["spec"]["containers"] = [sidecar, server]
    assert pod(body).directory == "dns:///a:1"


@pytest.mark.parametrize(
    ("body", "seen"),
    [
        (
            {"spec": {}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}},
            Node(name="n", ready="True", cordoned=False),
        ),
        (
            {
                "spec": {"unschedulable": True},
                "status": {
                    "conditions": [
                        {"type": "MemoryPressure", "status": "False"},
                        {"type": "Ready", "status": "Unknown"},
                    ]
                },
            },
            Node(name="n", ready="Unknown", cordoned=True),
        ),
        ({}, Node(name="n", ready="Unknown", cordoned=False)),
    ],
)
def test_a_node(body, seen):
    assert node({"metadata": {"name": "n"}, **body}) == seen


def _replica_set(**meta):
    return {
        "metadata": {
            "namespace": "models",
            "name": "first",
            "uid": "u2",
            "generation": 7,
            "labels": {names.MODEL: "m", names.BLOCK_SERVER: "first"},
            "annotations": {names.APPLIED: "0123456789"},
            "ownerReferences": [{"uid": "o2"}, {"uid": "o1"}],
            **meta,
        },
        "spec": {"replicas": 3},
    }


def test_a_child():
    seen = child(_replica_set(), "ReplicaSet")
    assert (seen.kind, seen.name, seen.generation, seen.replicas) == ("ReplicaSet", "first", 7, 3)
    assert (seen.applied, seen.owners, seen.model, seen.block_server) == (
        "0123456789",
        ("o1", "o2"),
        "m",
        "first",
    )
    assert not seen.deleting


def test_a_child_without_a_generation_is_told_apart_by_its_resource_version():
    body = {"metadata": {"namespace": "models", "name": "first", "uid": "u", "resourceVersion": "4711"}}
    assert child(body, "Service").generation == 4711


@pytest.mark.parametrize(
    ("entries", "foreign"),
    [
        ([], ()),
        ([{"manager": names.MANAGER, "operation": "Apply", "fieldsV1": {"f:spec": {}}}], ()),
        ([{"manager": "kubectl-edit", "operation": "Update", "fieldsV1": {"f:spec": {}}}], ("kubectl-edit",)),
        # Labels and annotations of others are welcome.
        ([{"manager": "kubectl-label", "operation": "Update", "fieldsV1": {"f:metadata": {}}}], ()),
        # Controllers write statuses, autoscalers the scale.
        (
            [
                {"manager": "kube-controller-manager", "subresource": "status", "fieldsV1": {"f:status": {}}},
                {"manager": "hpa", "subresource": "scale", "fieldsV1": {"f:spec": {"f:replicas": {}}}},
            ],
            (),
        ),
        (
            [
                {"manager": "b", "fieldsV1": {"f:spec": {}}},
                {"manager": "a", "fieldsV1": {"f:spec": {}}},
                {"manager": "b", "fieldsV1": {"f:spec": {}}},
            ],
            ("a", "b"),
        ),
    ],
)
def test_who_else_owns_a_part_of_the_spec(entries, foreign):
    assert child(_replica_set(managedFields=entries), "ReplicaSet").foreign == foreign


def _budget(spec=None, status=None):
    return {
        "metadata": {
            "namespace": "models",
            "name": "bs-g",
            "uid": "u3",
            "generation": 2,
            "labels": {names.MODEL: "m", names.SPAN_GROUP: "g"},
        },
        "spec": spec or {"minAvailable": 1},
        "status": status if status is not None else {"observedGeneration": 2, "currentHealthy": 2},
    }


def test_a_budget_that_is_in_force():
    seen = budget(_budget())
    assert (seen.group, seen.min_available, seen.current_healthy, seen.settled) == ("g", 1, 2, True)


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"observedGeneration": 1, "currentHealthy": 2},
        {
            "observedGeneration": 2,
            "currentHealthy": 2,
            "disruptedPods": {"first-abcde": "2026-11-30T12:00:00Z"},
        },
    ],
)
def test_a_budget_is_not_settled_before_its_controller_has_seen_it_or_while_a_pod_leaves(status):
    assert not budget(_budget(status=status)).settled


def test_a_share_is_no_floor():
    assert budget(_budget(spec={"minAvailable": "50%"})).min_available == 0
