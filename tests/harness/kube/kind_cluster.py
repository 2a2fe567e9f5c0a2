"""A cluster of kind (Kubernetes in docker), where docker runs."""

import json
import shutil
import subprocess
from pathlib import Path

from kube.cluster import REPOSITORY, Cluster
from kube.kubectl import CommandError, Kubectl, call, is_true
from kube.waiting import until

_NAME = "blockswarm-e2e"


def usable() -> bool:
    """Whether docker runs and kind is installed."""
    if shutil.which("docker") is None or shutil.which("kind") is None:
        return False
    return subprocess.run(["docker", "info"], capture_output=True).returncode == 0


class KindCluster(Cluster):
    """One control plane and some workers; every node is a container that sees the models' folder."""

    kind = "kind"

    @property
    def kubeconfig(self) -> Path:
        return self.home / "kind.kubeconfig"

    def up(self, nodes: int = 3) -> None:
        if self.keep and _NAME in call(["kind", "get", "clusters"], timeout=60).split():
            call(["kind", "export", "kubeconfig", "--name", _NAME, *self._to_file()], timeout=60)
            return
        self.down()
        models = str(REPOSITORY / ".models")
        mounts = [{"hostPath": models, "containerPath": models, "readOnly": True}]
        roles = ["control-plane", *["worker"] * nodes]
        config = {
            "kind": "Cluster",
            "apiVersion": "kind.x-k8s.io/v1alpha4",
            "nodes": [{"role": role, "extraMounts": mounts} for role in roles],
        }
        words = ["kind", "create", "cluster", "--name", _NAME, "--config", "-", "--wait", "180s"]
        call([*words, *self._to_file()], stdin=json.dumps(config), timeout=600)

    def build_and_load(self, image: str, dockerfile: str) -> None:
        file = str(REPOSITORY / dockerfile)
        call(["docker", "build", "-t", image, "-f", file, str(REPOSITORY)], timeout=1800)
        self._load(image)

    def retag(self, image: str, name: str) -> str:
        call(["docker", "tag", image, name], timeout=60)
        self._load(name)
        return name

    def kill_node(self, node: str) -> None:
        call(["docker", "kill", node], timeout=60)

    def start_node(self, node: str) -> None:
        call(["docker", "start", node], timeout=60)
        kubectl = self.kubectl
        until(lambda: _ready(kubectl, node), f"{node} Ready", timeout=120)

    def down(self) -> None:
        call(["kind", "delete", "cluster", "--name", _NAME, *self._to_file()], timeout=120)

    def _load(self, image: str) -> None:
        call(["kind", "load", "docker-image", "--name", _NAME, image], timeout=600)

    def _to_file(self) -> list[str]:
        self.home.mkdir(parents=True, exist_ok=True)
        return ["--kubeconfig", str(self.kubeconfig)]


def _ready(kubectl: Kubectl, node: str) -> bool:
    try:
        return is_true(kubectl.get("node", node), "Ready")
    except CommandError:
        return False
