"""A cluster that an executable starts on this very machine: subcommands up, build, kill-node, partition, down ..."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from kube.cluster import REPOSITORY, Cluster
from kube.kubectl import CommandError, is_true

_NEEDED = ("containerd", "runc", "iptables", "zstd", "buildah", "debootstrap")


class ProgramCluster(Cluster):
    """Every node is a containerd and a kubelet on this machine, so that all of them see its files.

    The program keeps its state in $BLOCKSWARM_CLUSTER_DIR, names its nodes node-1, node-2, ..., and brings kubectl and
    helm.
    """

    def __init__(self, program: Path, home: Path, *, keep: bool = False) -> None:
        super().__init__(home, keep=keep)
        self.kind = f"the cluster of {program.name}"
        self._program = program
        self._state = Path(os.environ.get("BLOCKSWARM_CLUSTER_DIR") or home / "state")

    @property
    def kubeconfig(self) -> Path:
        return self._state / "kubeconfig"

    def up(self, nodes: int = 3) -> None:
        missing = [name for name in _NEEDED if shutil.which(name) is None]
        if missing:
            pytest.fail(f"{', '.join(missing)} missing: run `{self._program} packages` as root")
        if self.keep and self._running():
            self._mend()
            return
        self._run("down")
        self._run("up", "--nodes", str(nodes))

    def build_and_load(self, image: str, dockerfile: str) -> None:
        self._run("build", "-t", image, "-f", str(REPOSITORY / dockerfile), str(REPOSITORY))

    def retag(self, image: str, name: str) -> str:
        for node in self._nodes():
            socket = self._state / node / "containerd.sock"
            words = ["ctr", "--address", str(socket), "-n", "k8s.io", "images", "tag", "--force"]
            subprocess.run([*words, image, name], check=True, capture_output=True)
        return name

    def kill_node(self, node: str) -> None:
        self._run("kill-node", _number(node))

    def start_node(self, node: str) -> None:
        self._run("start-node", _number(node))

    def partition(self, node: str) -> None:
        self._run("partition", _number(node))

    def heal(self, node: str) -> None:
        self._run("heal", _number(node))

    def freeze_api(self) -> None:
        os.kill(self._pid("kube-apiserver"), signal.SIGSTOP)

    def thaw_api(self) -> None:
        os.kill(self._pid("kube-apiserver"), signal.SIGCONT)

    def down(self) -> None:
        if self._state.exists():
            if (self._state / "pid" / "kube-apiserver").exists():
                self.thaw_api()
            self._run("down")

    def find(self, program: str) -> str:
        own = self._state / "bin" / program
        return str(own) if own.exists() else super().find(program)

    def _running(self) -> bool:
        try:
            return bool(self.kubectl.list("nodes")) if self.kubeconfig.exists() else False
        except CommandError:
            return False

    def _mend(self) -> None:
        """A test run that was ended by force may have left a node dead or cut off."""
        for node in self.kubectl.list("nodes"):
            name = node["metadata"]["name"]
            if not is_true(node, "Ready"):
                self.kill_node(name)
                self.start_node(name)
            if node["spec"].get("unschedulable"):
                self.kubectl.run("uncordon", name)

    def _nodes(self) -> list[str]:
        return [node["metadata"]["name"] for node in self.kubectl.list("nodes")]

    def _pid(self, name: str) -> int:
        return int((self._state / "pid" / name).read_text())

    def _run(self, *words: str) -> None:
        done = subprocess.run(
            [str(self._program), *words],
            env={**os.environ, "BLOCKSWARM_CLUSTER_DIR": str(self._state)},
            capture_output=True,
            text=True,
        )
        if done.returncode:
            said = (done.stdout + done.stderr)[-4000:]
            pytest.fail(f"`{self._program} {' '.join(words)}` failed:\n{said}", pytrace=False)


def _number(node: str) -> str:
    return node.rpartition("-")[2]
