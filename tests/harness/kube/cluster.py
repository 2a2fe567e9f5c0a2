"""What tests ask of a cluster, whatever kind it is of."""

import logging
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

import pytest

from kube.kubectl import Helm, Kubectl

REPOSITORY = Path(__file__).parents[3]
Say = Callable[[str], None]
LOG = logging.getLogger(__name__)


class Unsupported(pytest.skip.Exception):  # type: ignore[name-defined,misc]
    """This kind of cluster cannot do that: the test is skipped, and says why."""


class Cluster(ABC):
    """A cluster of several nodes that tests may break. Nodes are named as in `kubectl get nodes`.

    Attributes:
        kind: how people call it.
        home: folder of its own for state.
        keep: leave it running at the end of the session.
        say: takes a line at each step that may take minutes; the log if none is given.
    """

    kind = "cluster"

    def __init__(self, home: Path, *, keep: bool = False, say: Say = LOG.info) -> None:
        self.home = home
        self.keep = keep
        self.say = say

    @property
    @abstractmethod
    def kubeconfig(self) -> Path:
        """Path of the administrator's kubeconfig."""

    @abstractmethod
    def up(self, nodes: int = 3) -> None:
        """Start it, or take the kept one, and wait until every node is Ready."""

    @abstractmethod
    def build_and_load(self, image: str, dockerfile: str) -> None:
        """Build an image of the repository and make it known to every node.

        Raises:
            CommandError: that failed, or took too long; it may be tried again.
        """

    @abstractmethod
    def down(self) -> None:
        """End it and remove its state."""

    def image(self, image: str) -> str:
        """The name under which nodes have an image of `build_and_load`."""
        return image

    def retag(self, image: str, name: str) -> str:
        """Another name for an image that the nodes have; returns the name to use in pods."""
        raise self._cannot("give an image a second name")

    def kill_node(self, node: str) -> None:
        """Power loss: everything on the node ends in silence."""
        raise self._cannot("cut a node's power")

    def start_node(self, node: str) -> None:
        """Bring a killed node back."""
        raise self._cannot("start a node")

    def partition(self, node: str) -> None:
        """Cut a node off: its pods reach no other node and back, its kubelet says nothing."""
        raise self._cannot("cut a node off")

    def heal(self, node: str) -> None:
        """End a partition."""
        raise self._cannot("end a partition")

    def freeze_api(self) -> None:
        """Make the API server answer nobody, without closing a connection."""
        raise self._cannot("freeze the API server")

    def thaw_api(self) -> None:
        """End that."""
        raise self._cannot("thaw the API server")

    def gpus(self, node: str, count: int) -> None:
        """Let a node offer that many nvidia.com/gpu to the scheduler, without a device behind them."""
        numbers = {"nvidia.com/gpu": str(count)}
        change = {"status": {"capacity": numbers, "allocatable": numbers}}
        self.kubectl.patch("node", node, change, "--subresource=status")

    def model_on_nodes(self, folder: Path) -> Path:
        """Where the nodes see a folder of this machine."""
        return folder

    @property
    def kubectl(self) -> Kubectl:
        """kubectl for this cluster."""
        return Kubectl(self.kubeconfig, self.find("kubectl"))

    @property
    def helm(self) -> Helm:
        """helm for this cluster."""
        return Helm(self.kubeconfig, self.home / "helm", self.find("helm"))

    def find(self, program: str) -> str:
        """Path of a command-line program."""
        found = shutil.which(program)
        if found is None:
            pytest.fail(f"{program} is missing: install it, so that it is found in PATH")
        return found

    def _cannot(self, what: str) -> Unsupported:
        return Unsupported(f"{self.kind} cannot {what}")
