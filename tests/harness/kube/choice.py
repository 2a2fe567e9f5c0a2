"""Which cluster the tests run on.

1. A given one: KUBECONFIG together with BLOCKSWARM_TEST_REGISTRY, a registry that its nodes pull from and that this
   machine may push to. KUBECONFIG alone is not enough: these tests drain and cordon nodes.
2. kind, where docker runs and kind is installed.
3. A program that starts a cluster here: BLOCKSWARM_TEST_CLUSTER, else ../shared/kube/cluster.

BLOCKSWARM_KEEP_CLUSTER=1 leaves the cluster, its images and the swarm running at the end, and takes them again in the
next run. State lies in the folder blockswarm-e2e of the temporary folder; one run at a time uses it.
"""

import fcntl
import os
import tempfile
from functools import cache
from pathlib import Path
from typing import IO

import pytest

from kube.cluster import LOG, REPOSITORY, Cluster, Say
from kube.given_cluster import GivenCluster
from kube.kind_cluster import KindCluster, usable
from kube.program_cluster import ProgramCluster

_MISSING = """no cluster to test on. Do one of these:
  - install docker and kind (https://kind.sigs.k8s.io), kubectl and helm;
  - set KUBECONFIG to a cluster that tests may break, and BLOCKSWARM_TEST_REGISTRY to a registry of its nodes;
  - set BLOCKSWARM_TEST_CLUSTER to a program that starts one (looked for here: {program})."""
# Another TMPDIR would not help: kind's cluster has one name, and a program's cluster has the machine's ports.
_BUSY = """another run of the cluster tests uses {home}: {holder}
Wait for it. Where KUBECONFIG gives each run a cluster of its own, set TMPDIR to another folder instead."""


def choose_cluster(say: Say = LOG.info) -> Cluster:
    """The cluster to use, which is this process's alone until it ends.

    Fails the test, telling what to install, when there is none, and when another run uses it.

    Args:
        say: takes a line at each step that may take minutes.
    """
    home = Path(tempfile.gettempdir()) / "blockswarm-e2e"
    home.mkdir(parents=True, exist_ok=True)
    _hold(home)
    keep = os.environ.get("BLOCKSWARM_KEEP_CLUSTER", "") not in ("", "0")
    kubeconfig, registry = os.environ.get("KUBECONFIG"), os.environ.get("BLOCKSWARM_TEST_REGISTRY")
    if kubeconfig and registry:
        return GivenCluster(home, Path(kubeconfig), registry, say=say)
    program = os.environ.get("BLOCKSWARM_TEST_CLUSTER")
    if program is None and usable():
        return KindCluster(home, keep=keep, say=say)
    path = Path(program or REPOSITORY.parent / "shared" / "kube" / "cluster")
    if not os.access(path, os.X_OK):
        pytest.fail(_MISSING.format(program=path), pytrace=False)
    return ProgramCluster(path, home, keep=keep, say=say)


@cache
def _hold(home: Path) -> IO[str]:
    """Lock the folder. The cache keeps the file open, and the kernel ends the lock with this process."""
    lock = (home / "lock").open("a+")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        pytest.fail(_BUSY.format(home=home, holder=lock.read().strip()), pytrace=False)
    lock.truncate(0)
    print(f"process {os.getpid()}, {REPOSITORY}", file=lock, flush=True)
    return lock
