"""The life of the chart: installed over what is there, upgraded, rolled back, taken away, and back under other names.

One BlockServer lives through all of it. Takes the chart of the other tests away: runs last.
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube import objects
from kube.cluster import REPOSITORY, Cluster
from kube.kubectl import CommandError, Kubectl, Object, is_true
from kube.release import CHART, Release
from kube.swarm import BLOCK_SERVER, complete, running
from kube.waiting import until

ORDER = 90
SPACE = "chart-life"
CRD = "blockservers.blockswarm.io"
# As small as it gets: what is tested is helm's doing.
SMALL: dict[str, Any] = {"operator": {"replicas": 1}, "directory": {"replicas": 1, "minReadySeconds": 0}}
OWNERSHIP = "--take-ownership"
PLAIN = REPOSITORY / "manifests" / "operator" / "blockswarm.yaml"


class Life:
    """The BlockServer that lives through it. `uid`: of its pod."""

    def __init__(self, cluster: Cluster, release: Release) -> None:
        self.cluster, self.release = cluster, release
        self.kubectl: Kubectl = cluster.kubectl.within(SPACE)
        self.uid = ""

    def block_server(self, **spec: Any) -> Object:
        pod = {"resources": {"requests": {"cpu": "20m", "memory": "150Mi"}}}
        made = objects.block_server("kept", 0, 2, space=SPACE, pod=pod, drainSeconds=5)
        made["spec"] |= {**spec, "model": {**made["spec"]["model"], "name": "chart-life"}}
        return made

    def pods(self) -> list[Object]:
        return self.kubectl.list("pods", BLOCK_SERVER)

    def get(self) -> Object:
        return self.kubectl.get("bs", "kept")

    def of_name(self, name: str) -> Release:
        """Another release of the chart in the same namespace."""
        return Release(self.cluster, self.release.images, name=name, namespace=self.release.namespace)

    def wait_ready(self) -> None:
        self.wait(lambda: is_true(self.get(), "Ready"), "kept Ready")

    def wait(self, done: Any, what: str, *, every: float = 0.5) -> Any:
        return until(done, what, timeout=180, every=every, state=self.state)

    def check_pod(self) -> None:
        """The very same pod still runs."""

        def runs() -> bool:
            (pod,) = self.pods()
            assert pod["metadata"]["uid"] == self.uid
            assert "deletionTimestamp" not in pod["metadata"]
            return running(pod)

        # Readiness may be gone for a moment, when a probe is late.
        self.wait(runs, "the pod of kept runs")

    def takes_new_field(self) -> bool:
        """Whether the API server knows the field that only the newer chart's CRD has."""
        words = ["apply", "--dry-run=server", "--validate=strict", "-f", "-"]
        try:
            self.kubectl.run(*words, stdin=yaml.safe_dump(self.block_server(tier="gold")))
        except CommandError as error:
            if 'unknown field "spec.tier"' in error.said:
                return False
            raise
        return True

    def state(self) -> str:
        parts = [self.kubectl.run("get", "bs,pods", "-o", "wide"), self.kubectl.run("describe", "bs", "kept")]
        return "\n".join([*parts, self.release.kubectl.run("get", "pods")])


@pytest.fixture(scope="module")
def life(cluster: Cluster, chart: Release, claim: Callable[[str], None]) -> Iterator[Life]:
    """The CRD, as kubectl applied it, and no chart."""
    chart.uninstall()
    cluster.kubectl.delete("crd", CRD)
    cluster.kubectl.apply(_crd())
    cluster.kubectl.run("wait", "--for=condition=Established", f"crd/{CRD}", "--timeout=30s")
    cluster.kubectl.apply(objects.namespace(SPACE))
    claim(SPACE)
    made = Life(cluster, chart)
    kept = yaml.safe_dump(made.block_server())
    # A kind that was defined anew may not be known yet.
    until(lambda: made.kubectl.run("apply", "-f", "-", stdin=kept), "kept applied", timeout=180)
    try:
        yield made
    finally:
        cluster.kubectl.delete("namespace", SPACE)
        cluster.kubectl.delete("persistentvolume", f"{SPACE}-{objects.CLAIM}")


def test_the_plain_install_is_accepted(life: Life) -> None:
    """Every object of it. It is only asked for, so that its namespace must be there before."""
    words = ["apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", str(PLAIN)]
    said = life.cluster.kubectl.run(*words).splitlines()
    wanted = sum(thing is not None for thing in yaml.safe_load_all(PLAIN.read_text()))
    assert sum(line.endswith(" serverside-applied (server dry run)") for line in said) == wanted, said
    assert life.release.kubectl.find("deployment", f"{life.release.name}-operator") is None


def test_install_over_a_crd_that_kubectl_applied(life: Life) -> None:
    with pytest.raises(CommandError, match="invalid ownership metadata"):
        life.release.install(SMALL)
    life.release.install(SMALL, OWNERSHIP)
    life.wait_ready()
    life.uid = life.pods()[0]["metadata"]["uid"]


def test_upgrade_brings_a_new_field(life: Life, tmp_path: Path) -> None:
    assert not life.takes_new_field()
    life.release.install(SMALL, chart=_newer_chart(tmp_path))
    life.wait(life.takes_new_field, "the new field is known")
    life.wait_ready()
    life.check_pod()


def test_rollback_takes_it_back(life: Life) -> None:
    life.release.rollback(1)
    life.wait(lambda: not life.takes_new_field(), "the new field is unknown")
    life.wait_ready()
    life.check_pod()


def test_uninstall_leaves_block_servers_and_their_pods(life: Life) -> None:
    life.release.uninstall()
    life.wait(lambda: not life.release.operator_pods() + life.release.directory_pods(), "no pod of the chart")
    assert life.cluster.kubectl.find("crd", CRD) is not None
    assert life.kubectl.find("bs", "kept") is not None
    life.check_pod()


def test_reinstall_under_another_name_that_keeps_the_directory_s_address(life: Life) -> None:
    second, values = life.of_name("second"), {**SMALL, "fullnameOverride": life.release.name}
    with pytest.raises(CommandError, match="invalid ownership metadata"):
        second.install(values)
    second.install(values, OWNERSHIP)
    life.wait(lambda: is_true(life.get(), "Published"), "kept Published again")
    life.wait_ready()
    life.check_pod()
    second.uninstall()
    life.wait(lambda: not second.operator_pods() + second.directory_pods(), "no pod of the chart")


def test_reinstall_under_another_name_moves_servers_to_its_directory(life: Life) -> None:
    """Running servers announce to the former address: a successor comes to the new one before they go."""
    third, went = life.of_name("third"), "the last server went before its successor was ready"
    served = [True]

    def moved() -> bool:
        pods = life.pods()
        staying = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        assert staying, went
        served.append(any(running(pod) for pod in staying))
        # Readiness may be gone for a moment, when a probe is late: not at two looks in a row.
        assert any(served[-2:]), went
        return life.uid not in {pod["metadata"]["uid"] for pod in pods} and complete(life.get())

    third.install(SMALL, OWNERSHIP)
    try:
        life.wait(moved, "the server has moved", every=2.0)
    finally:
        third.uninstall()
        # With it the CRD, else the next chart of the usual name is refused.
        life.cluster.kubectl.delete("crd", CRD)


def _crd() -> Object:
    found: Object = yaml.safe_load((REPOSITORY / "manifests" / "crds" / "blockservers.yaml").read_text())
    return found


def _newer_chart(folder: Path) -> Path:
    """A copy of the chart, a version newer, whose CRD has one more field."""
    chart = folder / "blockswarm"
    shutil.copytree(CHART, chart)
    crd, about = _crd(), yaml.safe_load((chart / "Chart.yaml").read_text())
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["tier"] = {"type": "string", "description": "One more."}
    (chart / "files" / "blockservers.yaml").write_text(yaml.safe_dump(crd, sort_keys=False))
    about["version"] = "99.0.0"
    (chart / "Chart.yaml").write_text(yaml.safe_dump(about, sort_keys=False))
    return chart
