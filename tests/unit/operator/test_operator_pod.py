"""The pod of a block server: what the spec asks for reaches the server, and nothing can take away what must be."""

import copy
from typing import Any

import pytest
from operator_objects import SETTINGS, block_server, read

from blockswarm_operator import names
from blockswarm_operator.desired.pod import STOP_MARGIN_SECONDS, template
from blockswarm_services.server.settings import Settings as ServerSettings
from blockswarm_services.server.settings import parse
from blockswarm_wire.span import Span


def _template(name="first", settings=SETTINGS, **spec):
    found = read(block_server(name, **spec))
    assert found.fault == ""
    return template(name, found.spec, settings, model="m1", group="g1")


def _spec(**spec):
    return _template(**spec)["spec"]


def _container(**spec):
    (one,) = _spec(**spec)["containers"]
    return one


def _parsed(**spec) -> ServerSettings:
    """What the server understands, after the kubelet has put in the pod's own values."""
    own = {"POD_IP": "10.1.2.3", "POD_UID": "0a1b2c3d-1111-2222-3333-444455556666"}
    words = _container(**spec)["args"]
    for name, value in own.items():
        words = [word.replace(f"$({name})", value) for word in words]
    assert not any("$(" in word for word in words)
    return parse(words)


GPU = {"compute": {"device": "cuda", "gpu": {"resource": "nvidia.com/gpu", "count": 2}}}


def test_the_server_understands_its_command_line():
    seen = _parsed(
        dtype="bfloat16",
        cache={"tokens": 4096},
        drainSeconds=7,
        compute={"threads": 3},
        blocks={"start": 5, "end": 9},
    )
    assert (seen.model, seen.name, seen.revision, str(seen.cache_dir)) == (
        "org/demo",
        "demo",
        "main",
        "/cache",
    )
    assert (seen.span, seen.dtype, seen.quantization, seen.device) == (Span(5, 9), "bfloat16", "none", "cpu")
    assert (seen.cache_tokens, seen.drain_seconds, seen.threads) == (4096, 7.0, 3)
    assert seen.directories == (SETTINGS.directory,)
    assert (seen.listen, seen.announce) == ("0.0.0.0:31330", "10.1.2.3")
    assert (seen.dht_listen, seen.dht_announce) == ("0.0.0.0:31331", "10.1.2.3")
    assert (seen.metrics_listen, seen.server_id) == ("0.0.0.0:9090", "0a1b2c3d-1111-2222-3333-444455556666")
    assert (seen.peers, seen.ready_file, seen.deterministic) == ((), None, False)
    assert _parsed().threads is None


def test_words_of_people_cannot_become_options():
    body = block_server()
    body["spec"]["model"]["name"] = "--device=cuda $(POD_UID) 'x'"
    spec = read(body).spec
    (one,) = template("first", spec, SETTINGS, model="m", group="g")["spec"]["containers"]
    # Kubernetes makes $ of $$ and replaces nothing there.
    assert "--name=--device=cuda $$(POD_UID) 'x'" in one["args"]
    assert parse([word.replace("$(POD_UID)", "u") for word in one["args"]]).device == "cpu"


VOLUME = {"subPath": "models/demo", "persistentVolumeClaim": {"claimName": "models", "readOnly": True}}


def _of_volume(**spec):
    body = block_server(**spec)
    body["spec"]["model"]["source"] = {"volume": VOLUME}
    return template("first", read(body).spec, SETTINGS, model="m", group="g")["spec"]


def test_a_model_on_a_volume():
    spec = _of_volume()
    (container,) = spec["containers"]
    seen = parse(
        [word.replace("$(POD_IP)", "10.1.2.3").replace("$(POD_UID)", "u") for word in container["args"]]
    )
    assert (seen.model, seen.revision, seen.cache_dir) == ("/model", None, None)
    assert {"name": "model", "persistentVolumeClaim": {"claimName": "models", "readOnly": True}} in spec[
        "volumes"
    ]
    assert {
        "name": "model",
        "mountPath": "/model",
        "readOnly": True,
        "subPath": "models/demo",
    } in container["volumeMounts"]


def test_a_cache_and_a_token_for_the_hub():
    claim = {"persistentVolumeClaim": {"claimName": "cache"}}
    spec = _spec(cache={"volume": claim}, model={"source": {"hub": {"tokenSecret": {"name": "hub"}}}})
    assert {"name": "cache", **claim} in spec["volumes"]
    (container,) = spec["containers"]
    assert {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}} in container[
        "env"
    ]
    assert {"name": "cache", "emptyDir": {}} in _spec()["volumes"]


def test_every_folder_that_is_written_is_a_volume():
    spec = _spec()
    (container,) = spec["containers"]
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    assert mounts == {"/tmp": "tmp", "/cache": "cache"}
    assert {volume["name"] for volume in spec["volumes"]} == {"tmp", "cache"}
    env = {one["name"]: one.get("value") for one in container["env"]}
    assert (env["HOME"], env["HF_HOME"]) == ("/tmp", "/cache")


def test_the_pod_is_as_pod_security_restricted_asks():
    for spec in (_spec(), _spec(**GPU), _of_volume()):
        of_pod = spec["securityContext"]
        assert of_pod["runAsNonRoot"] is True
        assert of_pod["runAsUser"] == of_pod["runAsGroup"] == of_pod["fsGroup"] == 65532
        assert of_pod["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & spec.keys()
        assert spec["automountServiceAccountToken"] is False
        assert spec["enableServiceLinks"] is False
        for one in spec["containers"]:
            assert one["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert not any("hostPort" in port for port in one["ports"])


def test_fields_of_the_security_context_can_be_set():
    own = _spec(pod={"securityContext": {"fsGroup": 1000, "supplementalGroups": [44]}})["securityContext"]
    assert (own["fsGroup"], own["supplementalGroups"], own["runAsNonRoot"]) == (1000, [44], True)


def test_a_cpu_server_sees_no_gpu():
    container = _container()
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in container["env"]
    assert container["resources"] == {}


def test_a_gpu_server_asks_for_its_gpus():
    container = _container(**GPU, pod={"resources": {"limits": {"memory": "8Gi"}, "requests": {"cpu": 2}}})
    assert container["resources"] == {
        "limits": {"memory": "8Gi", "nvidia.com/gpu": "2"},
        "requests": {"cpu": 2},
    }
    assert "NVIDIA_VISIBLE_DEVICES" not in {one["name"] for one in container["env"]}
    assert _parsed(**GPU).device == "cuda"


def test_the_pod_gets_the_time_to_drain():
    assert _spec(drainSeconds=120)["terminationGracePeriodSeconds"] == 120 + STOP_MARGIN_SECONDS
    assert _parsed(drainSeconds=120).drain_seconds == 120
    assert "lifecycle" not in _container()  # SIGTERM starts the drain


def test_probes_ask_the_server_itself():
    container = _container()
    probes = {name: container[f"{name}Probe"] for name in ("startup", "liveness", "readiness")}
    assert {name: probe["httpGet"]["path"] for name, probe in probes.items()} == {
        "startup": "/healthz",
        "liveness": "/healthz",
        "readiness": "/readyz",
    }
    assert all(probe["httpGet"]["port"] == "metrics" for probe in probes.values())
    assert probes["readiness"]["periodSeconds"] == 1
    assert {port["name"]: port["containerPort"] for port in container["ports"]} == {
        "grpc": 31330,
        "dht": 31331,
        "metrics": 9090,
    }


def test_a_lost_node_is_waited_for_as_long_as_the_spec_says():
    own = {"key": "gpu", "operator": "Exists"}
    found = _spec(pod={"unreachableSeconds": 5, "tolerations": [own]})["tolerations"]
    assert [one["tolerationSeconds"] for one in found[:2]] == [5, 5]
    assert {one["key"] for one in found[:2]} == {
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    }
    assert {"key": "gpu", "operator": "Exists"}.items() <= found[2].items()


def test_pods_are_spread_over_nodes_unless_told_otherwise():
    mine = {"matchLabels": {names.BLOCK_SERVER: "first"}}
    (found,) = _spec()["topologySpreadConstraints"]
    assert (found["topologyKey"], found["whenUnsatisfiable"]) == ("kubernetes.io/hostname", "ScheduleAnyway")
    assert (found["nodeTaintsPolicy"], found["labelSelector"]) == ("Honor", mine)
    zones = {"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    (own,) = _spec(pod={"topologySpreadConstraints": [zones]})["topologySpreadConstraints"]
    assert own == {**zones, "labelSelector": mine}


def test_what_people_add_to_their_pods():
    surface: dict[str, Any] = {
        "image": "example.org/own:2",
        "imagePullSecrets": [{"name": "pull"}],
        "nodeSelector": {"disk": "ssd"},
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "high",
        "runtimeClassName": "nvidia",
        "serviceAccountName": "models",
        "env": [{"name": "OMP_NUM_THREADS", "value": "4"}],
        "volumes": [{"name": "more", "emptyDir": {}}],
        "volumeMounts": [{"name": "more", "mountPath": "/more"}],
        "labels": {"team": "ml"},
        "annotations": {"note": "mine"},
    }
    found = _template(pod=surface)
    spec = found["spec"]
    (container,) = spec["containers"]
    for field in ("nodeSelector", "affinity", "priorityClassName", "runtimeClassName", "imagePullSecrets"):
        assert spec[field] == surface[field]
    assert spec["serviceAccountName"] == "models"
    assert container["image"] == "example.org/own:2"
    assert container["env"][-1] == surface["env"][0]
    assert {"name": "more", "emptyDir": {}} in spec["volumes"]
    assert {"name": "more", "mountPath": "/more"} in container["volumeMounts"]
    assert found["metadata"]["labels"]["team"] == "ml"
    assert found["metadata"]["annotations"] == {"note": "mine"}


def test_image_and_pull_policy_are_the_operators_by_default():
    container = _container()
    assert (container["image"], container["imagePullPolicy"]) == (SETTINGS.server_image, "IfNotPresent")
    assert container["command"] == ["blockswarm-server"]


OURS = {
    names.NAME: "blockserver",
    names.MANAGED_BY: names.MANAGER,
    names.PART_OF: "blockswarm",
    names.BLOCK_SERVER: "first",
    names.MODEL: "m1",
    names.SPAN_GROUP: "g1",
}


def test_our_labels_cannot_be_overridden():
    spec = copy.deepcopy(read(block_server()).spec)
    # The resource model refuses this; a pod must not leave its budget even if it did not.
    spec["pod"]["labels"] = {**dict.fromkeys(OURS, "theirs"), names.TEMPLATE: "theirs"}
    labels = template("first", spec, SETTINGS, model="m1", group="g1")["metadata"]["labels"]
    assert {key: labels[key] for key in OURS} == OURS
    assert labels[names.TEMPLATE] != "theirs"
    assert read(block_server(pod={"labels": {names.SPAN_GROUP: "x"}})).fault != ""


def _hash(**spec):
    return _template(**spec)["metadata"]["labels"][names.TEMPLATE]


def test_the_template_hash_is_the_same_in_every_process():
    assert _hash() == "8476d35566", (
        "the pods of an unchanged BlockServer have changed: the operator's next version restarts every server. "
        "If that is meant, write the new hash here"
    )
    assert _hash(replicas=3) == _hash(update={"allowGap": True}) == _hash()


@pytest.mark.parametrize(
    "spec",
    [
        {"restart": "once"},
        {"restart": "twice"},
        {"drainSeconds": 61},
        {"cache": {"tokens": 16385}},
        {"compute": {"threads": 2}},
        {"pod": {"image": "example.org/own:2"}},
        {"pod": {"annotations": {"a": "b"}}},
        {"pod": {"unreachableSeconds": 31}},
        GPU,
    ],
)
def test_what_changes_the_pods_changes_the_hash(spec):
    assert _hash(**spec) != _hash()


def test_readiness_is_not_held_up_by_the_question_whether_the_server_has_begun():
    """A kubelet asks for readiness only once the startup probe has passed, and a small model is loaded in seconds."""
    [container] = _template()["spec"]["containers"]
    startup, readiness = container["startupProbe"], container["readinessProbe"]
    assert startup["periodSeconds"] == readiness["periodSeconds"] == 1
    assert startup["failureThreshold"] >= 300


def test_restart_is_seen_in_the_pod():
    assert _template(restart="now")["metadata"]["annotations"] == {"blockswarm.io/restart": "now"}
    assert _hash(restart="now") != _hash(restart="later")
