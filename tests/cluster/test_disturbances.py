"""What clusters do to pods while an application generates: its tokens stay the same, each time."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from kube import objects
from kube.generator import Generator, Run
from kube.kubectl import is_true
from kube.reference import TOKENS
from kube.release import Release
from kube.swarm import SPANS, Swarm, complete, running

ORDER = 20
# Slow enough that every disturbance fits into one generation.
PACE = 0.25
BEFORE, AFTER = 8, 12
DEADLINE = 240.0


@dataclass
class Scene:
    """What a disturbance may touch. `run`: the generation under way."""

    swarm: Swarm
    chart: Release
    generator: Generator
    run: Run
    images: dict[str, Any]

    @property
    def victim(self) -> dict[str, Any]:
        """The pod of the server in the middle of the chain in use."""
        return self.swarm.pod_of(self.run.chain[1])

    def victim_node(self) -> str:
        """A node that holds a server of the chain, and not the application."""
        mine = self.generator.pod.node
        while True:
            others = [node for node in self.swarm.nodes_of(self.run.chain) if node != mine]
            if others:
                return others[-1]
            # All of the chain is beside the application: the replica of one of them is elsewhere.
            kill_pod(self)

    def until(self, done: Callable[[], Any], what: str) -> None:
        self.swarm.wait(done, what, timeout=DEADLINE)

    def completed(self, name: str) -> None:
        """Wait until a BlockServer is as its spec says."""
        self.until(lambda: complete(self.swarm.get(name)), f"{name} up to date")

    def gone(self, pod: dict[str, Any]) -> Callable[[], bool]:
        """Whether that very pod is away."""
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]

        def away() -> bool:
            found = self.swarm.kubectl.find("pod", name)
            return found is None or found["metadata"]["uid"] != uid

        return away

    def left(self, server_ids: set[str]) -> bool:
        """Whether the generation uses none of these servers any more."""
        return not server_ids & set(self.run.chain)


def delete_pod(scene: Scene) -> None:
    pod = scene.victim
    scene.swarm.kubectl.delete("pod", pod["metadata"]["name"], wait=False)
    scene.until(scene.gone(pod), "the deleted pod's end")


def kill_pod(scene: Scene) -> None:
    pod = scene.victim
    scene.swarm.kubectl.delete("pod", pod["metadata"]["name"], wait=False, grace=0)
    scene.until(lambda: scene.left({pod["metadata"]["uid"]}), "the generation elsewhere")


def evict_pod(scene: Scene) -> None:
    pod = scene.victim
    scene.until(lambda: scene.swarm.kubectl.evict(pod["metadata"]["name"]) is None, "the eviction granted")
    scene.until(scene.gone(pod), "the evicted pod's end")


def drain_node(scene: Scene) -> None:
    node = scene.victim_node()
    words = ["drain", node, "--ignore-daemonsets", "--delete-emptydir-data", f"--timeout={DEADLINE:.0f}s"]
    try:
        scene.swarm.cluster.kubectl.run(*words, timeout=DEADLINE + 30)
        assert not [pod for pod in scene.swarm.pods() if pod["spec"].get("nodeName") == node]
    finally:
        scene.swarm.cluster.kubectl.run("uncordon", node)


def lose_power(scene: Scene) -> None:
    cluster = scene.swarm.cluster
    _lose_a_node(scene, cluster.kill_node, cluster.start_node)


def partition(scene: Scene) -> None:
    cluster = scene.swarm.cluster
    node = _lose_a_node(scene, cluster.partition, cluster.heal)
    scene.until(lambda: _ready(scene, node), f"{node} Ready again")


def _lose_a_node(scene: Scene, lose: Callable[[str], None], mend: Callable[[str], None]) -> str:
    """Until the generation has left it and the API server has noticed. Returns its name."""
    node = scene.victim_node()
    held = {pod["metadata"]["uid"] for pod in scene.swarm.pods() if pod["spec"].get("nodeName") == node}
    lose(node)
    try:
        scene.until(lambda: scene.left(held), "the generation elsewhere")
        scene.until(lambda: not _ready(scene, node), f"{node} not Ready")
    finally:
        mend(node)
    return node


def restart_each(scene: Scene) -> None:
    for name in SPANS:
        before = {pod["metadata"]["uid"] for pod in scene.swarm.pods(name)}
        scene.swarm.kubectl.patch("blockserver", name, {"spec": {"restart": f"run {scene.run.number}"}})
        scene.completed(name)
        after = {pod["metadata"]["uid"] for pod in scene.swarm.pods(name) if running(pod)}
        assert len(after) == 2, f"{name}: {after}"
        assert not before & after, f"{name}: some pods are the old ones"


def scale_down(scene: Scene) -> None:
    victim = scene.victim
    name = victim["metadata"]["labels"]["blockswarm.io/blockserver"]
    node = victim["spec"]["nodeName"]
    # Of two servers the one on the cordoned node goes, which is the one in use.
    scene.swarm.cluster.kubectl.run("cordon", node)
    try:
        scene.swarm.kubectl.run("scale", "blockserver", name, "--replicas=1")
        scene.until(lambda: scene.left({victim["metadata"]["uid"]}), "the generation elsewhere")
        scene.until(scene.gone(victim), "the end of the server in use")
        scene.completed(name)
    finally:
        scene.swarm.cluster.kubectl.run("uncordon", node)
    scene.swarm.kubectl.run("scale", "blockserver", name, "--replicas=2")
    scene.completed(name)


def kill_operator(scene: Scene) -> None:
    leader = scene.chart.leader()
    scene.chart.kubectl.delete("pod", leader, grace=0)
    scene.until(lambda: scene.chart.leader() not in ("", leader), "another operator leads")
    scene.until(scene.chart.ready, "both operators ready")


def upgrade_operator(scene: Scene) -> None:
    cluster, deployment = scene.swarm.cluster, f"deployment/{scene.chart.name}-operator"
    old = scene.images["operator"].name
    image = cluster.retag(old, f"{old.rpartition(':')[0]}:next")
    kubectl = scene.chart.kubectl
    container = kubectl.run("get", deployment, "-o", "jsonpath={.spec.template.spec.containers[0].name}")
    for wanted in (image, old):
        kubectl.run("set", "image", deployment, f"{container}={wanted}")
        kubectl.run("rollout", "status", deployment, f"--timeout={DEADLINE:.0f}s", timeout=DEADLINE + 30)
        scene.until(scene.chart.ready, f"an operator of {wanted} leads")


def restart_directory(scene: Scene) -> None:
    for name in scene.chart.directory_pods():
        old = scene.chart.kubectl.get("pod", name)["metadata"]["uid"]
        scene.chart.kubectl.delete("pod", name)
        scene.until(partial(_renewed, scene, name, old), f"{name} is back")


def _renewed(scene: Scene, name: str, old: str) -> bool:
    pod = scene.chart.kubectl.find("pod", name)
    return pod is not None and pod["metadata"]["uid"] != old and running(pod)


def _ready(scene: Scene, node: str) -> bool:
    return is_true(scene.swarm.cluster.kubectl.get("node", node), "Ready")


DISTURBANCES = {
    "kubectl delete pod": delete_pod,
    "kubectl delete pod --force": kill_pod,
    "eviction": evict_pod,
    "scale down, and up again": scale_down,
    "kubectl drain": drain_node,
    "node power loss": lose_power,
    "partition": partition,
    "restart of each BlockServer": restart_each,
    "operator killed": kill_operator,
    "operator image upgraded": upgrade_operator,
    "directory pods restarted": restart_directory,
}


@pytest.fixture(scope="module")
def gaps(note):
    """What happened → (longest gap in seconds, tokens); shown as a table at the end."""
    found = {}
    yield found
    note("the longest gap between two tokens of one generation, by what happened meanwhile:")
    for name, (seconds, number, tokens) in found.items():
        note(f"    {name:30} {seconds:6.2f} s before token {number:3} of {tokens:3}, all identical")


@pytest.mark.parametrize("name", DISTURBANCES)
def test_tokens_stay_the_same(name, swarm, chart, images, generator, reference, gaps):
    run = generator.begin(reference.prompt, tokens=TOKENS, pace=PACE)
    run.wait(BEFORE)
    try:
        DISTURBANCES[name](Scene(swarm, chart, generator, run, images))
        run.wait(AFTER)
        reference.check(run.stop(), name, at_least=BEFORE + AFTER)
        gaps[name] = (*run.longest_gap, len(run.ids))
    finally:
        swarm.settle()


def test_namespaces_are_as_before(swarm):
    """Nothing of a disturbance is left."""
    pods = swarm.kubectl.list("pods")
    ours = [pod["metadata"]["name"] for pod in pods if pod["metadata"]["name"].startswith(tuple(SPANS))]
    assert len(ours) == 2 * len(SPANS), ours
    assert swarm.kubectl.namespace == objects.MODELS
