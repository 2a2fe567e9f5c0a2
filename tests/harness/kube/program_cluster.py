"""A cluster that an executable starts on this very machine: subcommands up, build, kill-node, partition, down ..."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from blockswarm_services.local.child import tied
from kube.cluster import REPOSITORY, Cluster, Say
from kube.kubectl import CommandError, is_true

_NEEDED = ("containerd", "runc", "iptables", "zstd", "buildah", "debootstrap")
# debootstrap and pip may wait for their servers without end.
_COMMAND_SECONDS = 1200.0


class ProgramCluster(Cluster):
    """Every node is a containerd and a kubelet on this machine, so that all of them see its files.

    The program keeps its state in $BLOCKSWARM_CLUSTER_DIR, names its nodes node-1, node-2, ..., and brings kubectl and
    helm.
    """

    def __init__(self, program: Path, home: Path, *, keep: bool, say: Say) -> None:
        super().__init__(home, keep=keep, say=say)
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
            self.say(f"{self.kind}: taking the kept one")
            self._mend()
            return
        self.say(f"{self.kind}: removing what a former run has left")
        self._run("down")
        self.say(f"{self.kind}: starting {nodes} nodes")
        began = time.monotonic()
        self._run("up", "--nodes", str(nodes))
        self.say(f"{self.kind}: up after {time.monotonic() - began:.0f} s")

    def build_and_load(self, image: str, dockerfile: str) -> None:
        self._call("build", "-t", image, "-f", str(REPOSITORY / dockerfile), str(REPOSITORY))

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
        # One that has died needs no thaw, and what is left must still be taken down.
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid("kube-apiserver"), signal.SIGCONT)

    def down(self) -> None:
        if self._state.exists():
            if (self._state / "pid" / "kube-apiserver").exists():
                self.thaw_api()
            self.say(f"{self.kind}: taking it down")
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
        try:
            self._call(*words)
        except CommandError as error:
            pytest.fail(str(error), pytrace=False)

    def _call(self, *words: str) -> None:
        """Run the program to its end.

        Raises:
            CommandError: it failed, or took too long.
        """
        command, trouble = [str(self._program), *words], ""
        with tempfile.TemporaryFile("w+", errors="replace") as said:
            process = subprocess.Popen(
                tied(command),
                env={**os.environ, "BLOCKSWARM_CLUSTER_DIR": str(self._state)},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
            try:
                process.wait(_COMMAND_SECONDS)
            except subprocess.TimeoutExpired:
                trouble = f"\nnot done within {_COMMAND_SECONDS:.0f} s"
            finally:
                # Also when the test is given up: what the program has started must not go on beside the next try.
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
            if process.returncode:
                said.seek(0)
                raise CommandError(command, said.read() + trouble)


def _number(node: str) -> str:
    return node.rpartition("-")[2]
