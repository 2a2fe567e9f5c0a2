"""Which cluster the tests run on.

1. A given one: KUBECONFIG together with BLOCKSWARM_TEST_REGISTRY, a registry that its nodes pull from and that this
   machine may push to. KUBECONFIG alone is not enough: these tests drain and cordon nodes.
2. kind, where docker runs and kind is installed.
3. A program that starts a cluster here: BLOCKSWARM_TEST_CLUSTER, else ../shared/kube/cluster.

BLOCKSWARM_KEEP_CLUSTER=1 leaves the cluster, its images and the swarm running at the end, and takes them again in the
next run. State lies in the folder blockswarm-e2e of the temporary folder.
"""

import os
import tempfile
from pathlib import Path

import pytest

from kube.cluster import REPOSITORY, Cluster
from kube.given_cluster import GivenCluster
from kube.kind_cluster import KindCluster, usable
from kube.program_cluster import ProgramCluster

_MISSING = """no cluster to test on. Do one of these:
  - install docker and kind (https://kind.sigs.k8s.io), kubectl and helm;
  - set KUBECONFIG to a cluster that tests may break, and BLOCKSWARM_TEST_REGISTRY to a registry of its nodes;
  - set BLOCKSWARM_TEST_CLUSTER to a program that starts one (looked for here: {program})."""


def choose_cluster() -> Cluster:
    """The cluster to use; fails the test, telling what to install, when there is none."""
    home = Path(tempfile.gettempdir()) / "blockswarm-e2e"
    home.mkdir(parents=True, exist_ok=True)
    keep = os.environ.get("BLOCKSWARM_KEEP_CLUSTER", "") not in ("", "0")
    kubeconfig, registry = os.environ.get("KUBECONFIG"), os.environ.get("BLOCKSWARM_TEST_REGISTRY")
    if kubeconfig and registry:
        return GivenCluster(home, Path(kubeconfig), registry)
    program = os.environ.get("BLOCKSWARM_TEST_CLUSTER")
    if program is None and usable():
        return KindCluster(home, keep=keep)
    path = Path(program or REPOSITORY.parent / "shared" / "kube" / "cluster")
    if not os.access(path, os.X_OK):
        pytest.fail(_MISSING.format(program=path), pytrace=False)
    return ProgramCluster(path, home, keep=keep)
