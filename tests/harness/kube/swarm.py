"""The demo model served by three BlockServers in the namespace `models`: what most tests here stand on."""

from collections.abc import Callable
from typing import Any

from kube import objects
from kube.cluster import REPOSITORY, Cluster
from kube.kubectl import CommandError, Kubectl, Object, condition, is_true
from kube.release import Release
from kube.waiting import until

FOLDER = REPOSITORY / ".models" / "smollm2-135m-instruct"
SPANS = {"smollm2-a": (0, 10), "smollm2-b": (10, 20), "smollm2-c": (20, 30)}
BLOCK_SERVER = "blockswarm.io/blockserver"
SETTLE_SECONDS = 240.0


class Swarm:
    """Three BlockServers, two servers each.

    Attributes:
        kubectl: for the namespace `models`.
        release: the chart's release that serves it.
    """

    def __init__(self, cluster: Cluster, release: Release) -> None:
        self.cluster, self.release = cluster, release
        self.kubectl: Kubectl = cluster.kubectl.within(objects.MODELS)

    def apply(self) -> None:
        """Claim the model, and ask for the servers."""
        folder = self.cluster.model_on_nodes(FOLDER)
        self.kubectl.apply(*objects.folder_claim(objects.CLAIM, folder, objects.MODELS))
        self.kubectl.run(
            "wait", "--for=jsonpath={.status.phase}=Bound", f"pvc/{objects.CLAIM}", "--timeout=60s"
        )
        self.kubectl.apply(*(self.block_server(name) for name in SPANS))

    def block_server(self, name: str) -> Object:
        """One of the three, as it is applied."""
        start, end = SPANS[name]
        digest = self.release.images["server"].digest
        pod = {
            "resources": {"requests": {"cpu": "50m", "memory": "300Mi"}},
            "annotations": {"blockswarm.test/image": digest},
        }
        return objects.block_server(name, start, end, replicas=2, pod=pod)

    def settle(self, timeout: float = SETTLE_SECONDS) -> None:
        """Wait until all nodes, the release and every server are well, and nothing moves any more."""
        self.wait(self.settled, "everything is well", timeout=timeout)

    def settled(self) -> bool:
        """Whether that is so now."""
        nodes = self.cluster.kubectl.list("nodes")
        if not all(is_true(node, "Ready") and not node["spec"].get("unschedulable") for node in nodes):
            return False
        if not self.release.ready():
            return False
        found = {one["metadata"]["name"]: one for one in self.kubectl.list("blockservers")}
        if not all(name in found and complete(found[name]) for name in SPANS):
            return False
        pods = [pod for pod in self.pods() if pod["metadata"]["labels"][BLOCK_SERVER] in SPANS]
        wanted = sum(found[name]["spec"]["replicas"] for name in SPANS)
        return len(pods) == wanted and all(running(pod) for pod in pods)

    def wait(self, done: Callable[[], Any], what: str, *, timeout: float = 120.0, every: float = 0.5) -> Any:
        """`until`, with the state of everything in the error."""
        return until(done, what, timeout=timeout, every=every, state=self.state)

    def get(self, name: str) -> Object:
        """A BlockServer as it is now."""
        return self.kubectl.get("blockserver", name)

    def pods(self, name: str | None = None) -> list[Object]:
        """The server pods, of one BlockServer or of all."""
        return self.kubectl.list("pods", BLOCK_SERVER if name is None else f"{BLOCK_SERVER}={name}")

    def pod_of(self, server_id: str) -> Object:
        """The pod of a server: its id is the pod's uid."""
        return next(pod for pod in self.pods() if pod["metadata"]["uid"] == server_id)

    def nodes_of(self, server_ids: list[str]) -> list[str]:
        """The nodes of servers, in their order."""
        places = {pod["metadata"]["uid"]: pod["spec"].get("nodeName", "") for pod in self.pods()}
        return [places[server_id] for server_id in server_ids if server_id in places]

    def state(self) -> str:
        """Everything that helps to understand a failure."""
        kubectl, system = self.cluster.kubectl, self.release.kubectl
        parts = [
            ("nodes", lambda: kubectl.run("get", "nodes")),
            ("pods", lambda: kubectl.run("get", "pods", "-A", "-o", "wide")),
            ("blockservers", lambda: kubectl.run("get", "blockservers", "-A", "-o", "wide")),
            ("conditions", self._conditions),
            ("budgets", lambda: kubectl.run("get", "pdb", "-A")),
            ("events", lambda: _tail(kubectl.run("get", "events", "-A", "--sort-by=.lastTimestamp"), 40)),
            *[
                (pod, lambda pod=pod: system.logs(pod, tail=40))
                for pod in _or_none(self.release.operator_pods)
            ],
        ]
        return "\n".join(f"--- {title}\n{_or_error(tell)}" for title, tell in parts)

    def _conditions(self) -> str:
        lines = []
        for one in self.cluster.kubectl.list("blockservers"):
            for found in one.get("status", {}).get("conditions", []):
                name, said = one["metadata"]["name"], found["message"]
                lines.append(f"{name}: {found['type']}={found['status']} {found['reason']}: {said}")
        return "\n".join(lines)


def complete(block_server: Object) -> bool:
    """Whether a BlockServer's status is about its present spec and says that all is done."""
    status, wanted = block_server.get("status", {}), block_server["spec"]["replicas"]
    return (
        status.get("observedGeneration") == block_server["metadata"]["generation"]
        and all(status.get(key) == wanted for key in ("replicas", "readyReplicas", "updatedReplicas"))
        and is_true(block_server, "Ready")
        and condition(block_server, "Progressing").get("reason") == "Complete"
    )


def running(pod: Object) -> bool:
    """Whether a pod is Ready and not about to end."""
    return is_true(pod, "Ready") and "deletionTimestamp" not in pod["metadata"]


def _tail(text: str, lines: int) -> str:
    return "\n".join(text.splitlines()[-lines:])


def _or_error(tell: Callable[[], str]) -> str:
    try:
        return tell()
    except CommandError as error:
        return str(error)


def _or_none(names: Callable[[], list[str]]) -> list[str]:
    try:
        return names()
    except CommandError:
        return []
