"""A cluster that somebody else made: its kubeconfig and a registry that its nodes pull from are given."""

import os
import shutil
from pathlib import Path

import pytest

from kube.cluster import REPOSITORY, Cluster, Say
from kube.kubectl import call


class GivenCluster(Cluster):
    """Tests change its nodes (cordon, drain): give them one that nobody needs.

    Its nodes must see the demo model in the folder that $BLOCKSWARM_TEST_MODEL names.
    """

    kind = "a given cluster"

    def __init__(self, home: Path, kubeconfig: Path, registry: str, *, say: Say) -> None:
        super().__init__(home, keep=True, say=say)
        self._kubeconfig = kubeconfig
        self._registry = registry.rstrip("/")

    @property
    def kubeconfig(self) -> Path:
        return self._kubeconfig

    def up(self, nodes: int = 3) -> None:
        workers = [node for node in self.kubectl.list("nodes") if not node["spec"].get("taints")]
        if len(workers) < nodes:
            pytest.fail(f"{self.kubeconfig}: {len(workers)} nodes take pods, the tests need {nodes}")

    def image(self, image: str) -> str:
        return f"{self._registry}/{image.rpartition('/')[2]}"

    def build_and_load(self, image: str, dockerfile: str) -> None:
        builder = "docker" if shutil.which("docker") else "buildah"
        file = str(REPOSITORY / dockerfile)
        call([builder, "build", "-t", self.image(image), "-f", file, str(REPOSITORY)], timeout=1800)
        call([builder, "push", self.image(image)], timeout=1800)

    def retag(self, image: str, name: str) -> str:
        builder = "docker" if shutil.which("docker") else "buildah"
        call([builder, "tag", self.image(image), self.image(name)], timeout=60)
        call([builder, "push", self.image(name)], timeout=1800)
        return self.image(name)

    def down(self) -> None:
        """It is not ours to end."""

    def model_on_nodes(self, folder: Path) -> Path:
        return Path(os.environ.get("BLOCKSWARM_TEST_MODEL", folder))
