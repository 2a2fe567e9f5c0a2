"""Each condition with each of its reasons, and a message that says what to do."""

from dataclasses import replace

import pytest
from operator_objects import server

from blockswarm_operator.conditions import TYPES, Condition, conditions, dated, refused, while_blind, worst
from blockswarm_operator.events import event, turned
from blockswarm_operator.plan import Step
from blockswarm_wire.record import State

DONE = Step(replicas=1)
FULL = "0/3 nodes are available: 3 Insufficient memory."


def _all(*servers, replicas=1, step=DONE, directory=True, reachable=True, foreign=()):
    found = conditions(
        replicas, servers, step, template="new", directory=directory, reachable=reachable, foreign=foreign
    )
    assert tuple(one.type for one in found) == TYPES
    return {one.type: one for one in found}


def _down(name="a", **values):
    return server(name, **{"state": None, "ready": False, **values})


def _trouble(reason, text=""):
    return _down(trouble=(reason, text))


def test_all_is_well():
    found = _all(server("a"), server("b"), replicas=2)
    assert {one.type: (one.status, one.reason) for one in found.values()} == {
        "Accepted": ("True", "Valid"),
        "Scheduled": ("True", "AllScheduled"),
        "ModelLoaded": ("True", "Loaded"),
        "Published": ("True", "Online"),
        "Ready": ("True", "ServerOnline"),
        "Progressing": ("False", "Complete"),
        "Drifted": ("False", "InSync"),
    }


def test_scaled_to_zero():
    found = _all(replicas=0)
    reasons = {one.reason for name, one in found.items() if name in ("Scheduled", "ModelLoaded", "Published")}
    assert reasons == {"NoReplicasWanted"}
    assert (found["Ready"].status, found["Ready"].reason) == ("False", "ScaledToZero")


@pytest.mark.parametrize(
    ("servers", "replicas", "status", "reason", "words"),
    [
        (
            [_down(unschedulable=FULL, node="")],
            1,
            "False",
            "Unschedulable",
            ["Insufficient memory", "Add nodes"],
        ),
        ([], 1, "False", "Pending", ["0 of 1"]),
        ([server("a"), _down("b", node="")], 2, "False", "Pending", ["1 of 2"]),
        ([server("a"), server("b", deleting=True)], 2, "False", "Pending", ["1 of 2"]),
        # The kubelet evicted it; it lies about until somebody collects it.
        ([_down(phase="Failed")], 1, "False", "Pending", ["0 of 1"]),
        ([server("a"), _down("b", phase="Failed")], 1, "True", "AllScheduled", []),
        ([_down(lost=True, node="node-7")], 1, "False", "Pending", ["node-7 is lost"]),
        ([server("a"), _down("b", lost=True, node="node-7")], 1, "True", "AllScheduled", ["node-7 is lost"]),
    ],
)
def test_scheduled(servers, replicas, status, reason, words):
    found = _all(*servers, replicas=replicas)["Scheduled"]
    assert (found.status, found.reason) == (status, reason)
    assert all(word in found.message for word in words)


@pytest.mark.parametrize(
    ("one", "reason", "words"),
    [
        (_trouble("ErrImagePull", "not found"), "ImagePullFailed", ["a ", "not found", "spec.pod.image"]),
        (_trouble("ImagePullBackOff"), "ImagePullFailed", ["imagePullSecrets"]),
        (_trouble("InvalidImageName"), "ImagePullFailed", []),
        (
            _trouble("CreateContainerConfigError", 'secret "x" not found'),
            "ConfigError",
            ['secret "x"', "Secret"],
        ),
        (_trouble("RunContainerError"), "ConfigError", []),
        (_trouble("OOMKilled"), "OutOfMemory", ["limits.memory", "spec.cache.tokens"]),
        (_trouble("Exit2", "--blocks 0:99"), "ModelInvalid", ["--blocks 0:99", "spec.model", "spec.blocks"]),
        (_trouble("Exit1", "boom."), "CrashLoop", ["Exit1: boom. see kubectl logs a --previous"]),
        (_trouble("Exit137"), "CrashLoop", ["a was killed (Exit137)", "probe", "kubectl describe pod a"]),
        (_down(started=False), "ContainerCreating", ["a", "its events"]),
        (_down(node="", started=False), "Loading", ["0 of 1"]),
        (_down(), "Loading", ["0 of 1"]),
    ],
)
def test_model_loaded(one, reason, words):
    found = _all(one)["ModelLoaded"]
    assert (found.status, found.reason) == ("False", reason)
    assert all(word in found.message for word in words)


def test_what_happened_to_a_server_before_it_served_is_history():
    assert _all(server("a", trouble=("OOMKilled", "")))["ModelLoaded"].status == "True"
    # Pods that leave or were evicted tell nothing about those that are to come.
    for past in ({"deleting": True}, {"phase": "Failed"}):
        found = _all(_down("b", trouble=("OOMKilled", ""), **past), server("a"))
        assert found["ModelLoaded"].reason == "Loaded"


@pytest.mark.parametrize(
    ("servers", "directory", "reachable", "status", "reason"),
    [
        ([server("a")], True, True, "True", "Online"),
        ([server("a"), _down("b")], True, True, "True", "Online"),
        ([server("a", state=State.JOINING)], True, True, "False", "NotYetOnline"),
        ([], True, True, "False", "NotYetOnline"),
        ([server("a")], False, False, "Unknown", "DirectoryUnreachable"),
        # For a moment after the first start of a model, or after all directories began anew.
        ([server("a", state=None)], False, True, "Unknown", "NotYetSeen"),
    ],
)
def test_published(servers, directory, reachable, status, reason):
    found = _all(*servers, directory=directory, reachable=reachable)["Published"]
    assert (found.status, found.reason) == (status, reason)


def test_servers_of_a_former_directory_are_told_of():
    away = replace(server("a", state=None, template="old"), stranded=True)
    found = _all(away)["Published"]
    assert (found.status, found.reason) == ("False", "NotYetOnline")
    assert "1 announce themselves to a former directory" in found.message


@pytest.mark.parametrize(
    ("servers", "status", "reason"),
    [
        ([server("a")], "True", "ServerOnline"),
        ([server("a", cordoned=True, stated=State.DRAINING)], "True", "ServerOnline"),
        ([server("a", template="old"), server("b")], "True", "ServerOnline"),
        ([server("a", template="old"), _down("b")], "False", "RollingOut"),
        ([_down()], "False", "NoServerOnline"),
        ([server("a", deleting=True)], "False", "NoServerOnline"),
        ([], "False", "NoServerOnline"),
    ],
)
def test_ready_is_one_server_of_the_newest_template_that_is_online(servers, status, reason):
    found = _all(*servers)["Ready"]
    assert (found.status, found.reason) == (status, reason)


@pytest.mark.parametrize(
    ("step", "status"),
    [
        (Step(replicas=1, progress=("RollingOut", "…")), "True"),
        (Step(replicas=1, progress=("Scaling", "…")), "True"),
        (Step(replicas=1, progress=("GapAllowed", "…")), "True"),
        (Step(replicas=1, progress=("NoSpareCapacity", "…"), stuck=True), "False"),
        (DONE, "False"),
    ],
)
def test_progressing(step, status):
    found = _all(server("a"), step=step)["Progressing"]
    assert (found.status, found.reason) == (status, step.progress[0])


def test_drifted_names_who_changed_the_replica_set():
    found = _all(server("a"), foreign=["kubectl-edit", "vpa"])["Drifted"]
    assert (found.status, found.reason) == ("True", "TemplateChanged")
    assert "kubectl-edit, vpa" in found.message
    assert "spec.pod" in found.message


def test_while_the_directory_is_away_what_it_alone_knows_stays_as_it_was():
    found = conditions(1, [server("a", state=None)], DONE, template="new", directory=False, foreign=())
    before = [{"type": "Ready"}, {"type": "ModelLoaded"}]
    types = {one.type for one in while_blind(found, [server("a", state=None)], before)}
    assert types == set(TYPES) - {"Ready", "ModelLoaded"}
    # What was never said is said; and where no pod is Ready, nothing serves.
    assert while_blind(found, [server("a", state=None)], []) == found
    assert while_blind(found, [_down()], before) == found


# --- as they lie in the status ----------------------------------------------------------------------------------------


def _condition(kind="Ready", status="True", reason="ServerOnline", message="m"):
    return Condition(kind, status, reason, message)


def test_the_time_moves_only_with_the_status():
    first = dated([_condition()], [], generation=1, now="t1")
    assert first == [
        {
            "type": "Ready",
            "status": "True",
            "reason": "ServerOnline",
            "message": "m",
            "observedGeneration": 1,
            "lastTransitionTime": "t1",
        }
    ]
    (same,) = dated([_condition(reason="Other", message="n")], first, generation=2, now="t2")
    assert (same["reason"], same["message"], same["observedGeneration"]) == ("Other", "n", 2)
    assert same["lastTransitionTime"] == "t1"
    (turned_,) = dated([_condition(status="False")], first, generation=2, now="t2")
    assert turned_["lastTransitionTime"] == "t2"


def test_conditions_keep_their_order_and_those_not_found_stay():
    before = dated([_condition("Ready"), _condition("Accepted")], [], generation=1, now="t1")
    assert [one["type"] for one in before] == ["Accepted", "Ready"]
    after = dated(refused("spec.blocks: wrong"), [*before, {"type": "SomebodyElses"}], generation=2, now="t2")
    assert [(one["type"], one["reason"]) for one in after] == [
        ("Accepted", "InvalidSpec"),
        ("Ready", "ServerOnline"),
    ]


def test_messages_are_bounded():
    (one,) = dated([_condition(message="x" * 5000)], [], generation=1, now="t")
    assert len(one["message"]) == 1024


def _rows(**reasons):
    return [{"type": kind, "status": status, "reason": reason} for kind, (status, reason) in reasons.items()]


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ({}, ""),
        (
            {
                "Accepted": ("True", "Valid"),
                "Ready": ("True", "ServerOnline"),
                "Progressing": ("False", "Complete"),
            },
            "",
        ),
        ({"Accepted": ("False", "InvalidSpec"), "Ready": ("True", "ServerOnline")}, "InvalidSpec"),
        ({"Scheduled": ("False", "Unschedulable"), "ModelLoaded": ("False", "Loading")}, "Unschedulable"),
        ({"ModelLoaded": ("False", "OutOfMemory"), "Ready": ("False", "NoServerOnline")}, "OutOfMemory"),
        ({"Published": ("Unknown", "DirectoryUnreachable"), "Ready": ("False", "x")}, "DirectoryUnreachable"),
        ({"Published": ("False", "NotYetOnline"), "Ready": ("False", "NoServerOnline")}, "NoServerOnline"),
        ({"Published": ("False", "NotYetOnline")}, "NotYetOnline"),
        ({"Ready": ("True", "ServerOnline"), "Progressing": ("False", "NoSpareCapacity")}, "NoSpareCapacity"),
        ({"Ready": ("True", "ServerOnline"), "Progressing": ("True", "RollingOut")}, "RollingOut"),
    ],
)
def test_the_reason_that_a_person_should_read_first(rows, reason):
    assert worst(_rows(**rows)) == reason


# --- events -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "before", "after", "told"),
    [
        ("ModelLoaded", "Loading", "OutOfMemory", True),
        ("ModelLoaded", "OutOfMemory", "OutOfMemory", False),
        ("ModelLoaded", None, "ImagePullFailed", True),
        ("ModelLoaded", "Loading", "Loaded", False),
        ("Accepted", None, "Valid", False),
        ("Accepted", "Valid", "InvalidSpec", True),
        ("Ready", None, "NoServerOnline", False),
        ("Ready", "NoServerOnline", "ServerOnline", True),
        ("Ready", "ServerOnline", "NoServerOnline", True),
        ("Ready", "ServerOnline", "ScaledToZero", True),
        # It has only just been asked for.
        ("Ready", "ScaledToZero", "NoServerOnline", False),
        ("Ready", "ServerOnline", "RollingOut", False),
        ("Progressing", "Complete", "RollingOut", True),
        ("Progressing", "RollingOut", "Complete", True),
        ("Progressing", None, "Complete", False),
        ("Progressing", "Complete", "Scaling", False),
        ("Progressing", "RollingOut", "NoSpareCapacity", True),
        ("Progressing", "NoSpareCapacity", "GapAllowed", True),
        ("Published", "Online", "DirectoryUnreachable", True),
        ("Drifted", "InSync", "TemplateChanged", True),
        ("Drifted", "TemplateChanged", "InSync", False),
    ],
)
def test_what_a_person_should_see(kind, before, after, told):
    rows = [{"type": kind, "reason": before}] if before else []
    found = turned([_condition(kind, "True", after, "why")], rows)
    assert found == ([(after, "why")] if told else [])


def test_an_event_is_about_the_block_server():
    made = event("models", "first", "u1", "OutOfMemory", "x" * 2000, identity="operator-1" * 20)
    assert made["regarding"] == {
        "apiVersion": "blockswarm.io/v1alpha1",
        "kind": "BlockServer",
        "namespace": "models",
        "name": "first",
        "uid": "u1",
    }
    assert (made["type"], made["reason"]) == ("Warning", "OutOfMemory")
    assert (len(made["note"]), len(made["reportingInstance"])) == (1000, 120)
    assert made["metadata"]["name"].startswith("first.")
    assert event("models", "first", "u1", "ServerOnline", "", identity="o")["type"] == "Normal"
    assert event("models", "first", "u1", "Draining", "", identity="o")["type"] == "Normal"
