"""What goes wrong tells itself: a condition with reason and remedy, an event, and a column of `kubectl get`."""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from kube import objects
from kube.hub_without_revision import PORT
from kube.kubectl import CommandError, condition, is_true
from kube.swarm import FOLDER
from kube.talking_pod import TalkingPod

ORDER = 35
SPACE = "broken"
# A claim on a folder without a model.
EMPTY = "empty"
DEADLINE = 180.0
SMALL = {"requests": {"cpu": "50m", "memory": "50Mi"}}


@dataclass(frozen=True)
class Fault:
    """A BlockServer that cannot work. `hub`: the address of a Hub is put into its environment."""

    spec: dict[str, Any]
    type: str
    reason: str
    says: tuple[str, ...]
    blocks: tuple[int, int] = (0, 10)
    hub: bool = False


def _model(source: dict[str, Any]) -> dict[str, Any]:
    return {"name": objects.MODEL_NAME, "source": source}


FAULTS = {
    "no-image": Fault(
        {"pod": {"image": "blockswarm.test/absent:dev", "resources": SMALL}},
        "ModelLoaded",
        "ImagePullFailed",
        ("blockswarm.test/absent:dev", "spec.pod.image", "imagePullSecrets"),
    ),
    "no-model": Fault(
        {
            "model": _model({"volume": {"persistentVolumeClaim": {"claimName": EMPTY}}}),
            "pod": {"resources": SMALL},
        },
        "ModelLoaded",
        "ModelInvalid",
        ("/model", "config.json", "spec.model"),
    ),
    "no-memory": Fault(
        {"pod": {"resources": {"requests": {"memory": "50Mi"}, "limits": {"memory": "100Mi"}}}},
        "ModelLoaded",
        "OutOfMemory",
        ("spec.pod.resources.limits.memory", "spec.cache.tokens"),
    ),
    "no-node": Fault(
        {"pod": {"nodeSelector": {"blockswarm.test/rack": "none"}, "resources": SMALL}},
        "Scheduled",
        "Unschedulable",
        ("nodes are available", "nodeSelector"),
    ),
    "no-revision": Fault(
        {"model": _model({"hub": {"repo": "org/demo", "revision": "nowhere"}}), "pod": {"resources": SMALL}},
        "ModelLoaded",
        "ModelInvalid",
        ("org/demo", "nowhere", "revision", "spec.model"),
        hub=True,
    ),
    "no-blocks": Fault(
        {"pod": {"resources": SMALL}},
        "ModelLoaded",
        "ModelInvalid",
        ("25:35", "30 blocks", "spec.blocks"),
        blocks=(25, 35),
    ),
}


@pytest.fixture(scope="module")
def broken(cluster, swarm, images, claim):
    """A namespace with a BlockServer for each fault, all at once."""
    kubectl = cluster.kubectl.within(SPACE)
    cluster.kubectl.apply(objects.namespace(SPACE))
    folder = cluster.model_on_nodes(FOLDER)
    claims = {objects.CLAIM: folder, EMPTY: folder.parent}
    claim(SPACE, claims)
    hub = TalkingPod(
        kubectl, images["client"].name, "hub_without_revision.py", [], lambda line: None, name="hub"
    )
    try:
        with hub:
            address = kubectl.get("pod", "hub")["status"]["podIP"]
            kubectl.apply(*(_block_server(name, fault, address) for name, fault in FAULTS.items()))
            yield kubectl
    finally:
        cluster.kubectl.delete("namespace", SPACE)
        cluster.kubectl.delete("persistentvolume", *(f"{SPACE}-{name}" for name in claims))
        swarm.settle()


def _block_server(name, fault, address):
    made = objects.block_server(name, *fault.blocks, space=SPACE, **fault.spec)
    if fault.hub:
        made["spec"]["pod"]["env"] = [{"name": "HF_ENDPOINT", "value": f"http://{address}:{PORT}"}]
    return made


@pytest.mark.parametrize("name", FAULTS)
def test_a_broken_block_server_tells(name, broken, swarm, note):
    fault = FAULTS[name]

    def told():
        found = condition(broken.get("blockserver", name), fault.type)
        return found if found.get("status") == "False" and found["reason"] == fault.reason else None

    found = swarm.wait(told, f"{fault.type}=False {fault.reason} of {name}", timeout=DEADLINE)
    for text in fault.says:
        assert text in found["message"], found["message"]
    assert condition(broken.get("blockserver", name), "Ready")["status"] == "False"
    swarm.wait(
        lambda: _warned(broken, name, fault.reason, fault.says), f"an event {fault.reason} about {name}"
    )
    assert fault.reason in broken.run("get", "bs", name, "-o", "wide")
    note(f"{name}: {fault.type}=False {fault.reason}: {found['message']}")


def test_a_dead_p2pd_tells(swarm, note):
    """The DHT's daemon dies inside a server that serves."""
    pod = swarm.pods("smollm2-b")[0]["metadata"]["name"]
    try:
        swarm.kubectl.exec(pod, "python", "-c", _KILL_P2PD)
    except CommandError as error:
        # The container may end before this command does: the event is the proof.
        if _NO_P2PD in error.said:
            raise

    says = (pod, "p2pd", "--previous")
    told = swarm.wait(lambda: _warned(swarm.kubectl, "smollm2-b", "CrashLoop", says), "an event CrashLoop")
    note(f"p2pd dead: CrashLoop: {told}")
    assert is_true(swarm.get("smollm2-b"), "Ready"), "the other server serves"
    swarm.settle()


_NO_P2PD = "there is no p2pd"
# Processes that end meanwhile raise.
_KILL_P2PD = f"""
import os, pathlib, signal
for entry in pathlib.Path("/proc").glob("[0-9]*"):
    try:
        if (entry / "comm").read_text().strip() == "p2pd":
            os.kill(int(entry.name), signal.SIGKILL)
            break
    except OSError:
        pass
else:
    raise SystemExit("{_NO_P2PD}")
"""


def test_an_unreachable_directory_tells_and_harms_nobody(swarm, chart, generator, reference, note):
    run = generator.begin(reference.prompt, tokens=600, pace=0.25)
    run.wait(5)
    words = ["scale", "statefulset", f"{chart.name}-directory"]
    chart.kubectl.run(*words, "--replicas=0")
    try:

        def told():
            found = [condition(swarm.get(name), "Published") for name in ("smollm2-a", "smollm2-c")]
            return found[0] if all(one["reason"] == "DirectoryUnreachable" for one in found) else None

        found = swarm.wait(told, "Published=Unknown DirectoryUnreachable")
        assert found["status"] == "Unknown"
        assert "directory" in found["message"]
        note(f"directory away: Published=Unknown DirectoryUnreachable: {found['message']}")
        reason = "DirectoryUnreachable"
        swarm.wait(lambda: _warned(swarm.kubectl, "smollm2-a", reason, ()), f"an event {reason}")
        assert is_true(swarm.get("smollm2-a"), "Ready"), "nothing is known to be wrong with the servers"
        run.wait(10)
    finally:
        chart.kubectl.run(*words, "--replicas=3")
        swarm.settle()
    run.wait(10)
    reference.check(run.stop(), "a generation without directory")
    for name in ("smollm2-a", "smollm2-c"):
        assert condition(swarm.get(name), "Published")["reason"] == "Online"


def _warned(kubectl, name, reason, says):
    """The message of a Warning with that reason and these texts about a BlockServer."""
    about = f"involvedObject.kind=BlockServer,involvedObject.name={name},reason={reason},type=Warning"
    found = json.loads(kubectl.run("get", "events", f"--field-selector={about}", "-o", "json"))["items"]
    messages = [event["message"] for event in found]
    return next((message for message in messages if all(text in message for text in says)), None)
