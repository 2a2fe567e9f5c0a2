"""GPUs: servers that ask for them land where they are, and are counted; servers on the CPU leave them alone."""

from collections.abc import Iterator

import pytest

from kube import objects
from kube.kubectl import CommandError, Kubectl, Object, condition, is_true
from kube.swarm import BLOCK_SERVER
from kube.waiting import until

ORDER = 45
SPACE = "gpus"
GPU = "nvidia.com/gpu"
DEADLINE = 180.0
SMALL = {"requests": {"cpu": "20m", "memory": "50Mi"}}
# Only where it lands matters: there is no device behind the count, and no image behind the name.
ABSENT = {"image": "blockswarm.test/absent:1", "resources": SMALL}


class Field:
    """The namespace of these tests. `offers`: node → its GPUs."""

    def __init__(self, kubectl: Kubectl, offers: dict[str, int]) -> None:
        self.kubectl, self.offers = kubectl, offers

    def pods(self, name: str) -> list[Object]:
        return self.kubectl.list("pods", f"{BLOCK_SERVER}={name}")

    def placed(self, name: str, count: int) -> list[str]:
        """The nodes of a BlockServer's pods, once so many have one."""

        def nodes() -> list[str] | None:
            found = [pod["spec"]["nodeName"] for pod in self.pods(name) if pod["spec"].get("nodeName")]
            return found if len(found) == count else None

        found: list[str] = until(
            nodes,
            f"{count} pods of {name} have a node",
            timeout=DEADLINE,
            state=lambda: self.kubectl.run("get", "pods"),
        )
        return found

    def taken(self) -> dict[str, int]:
        """Node → GPUs that are given away."""
        sums = dict.fromkeys(self.offers, 0)
        for pod in self.kubectl.list("pods", BLOCK_SERVER):
            limits = pod["spec"]["containers"][0]["resources"].get("limits", {})
            if pod["spec"].get("nodeName") and GPU in limits:
                sums[pod["spec"]["nodeName"]] = sums.get(pod["spec"]["nodeName"], 0) + int(limits[GPU])
        return sums


@pytest.fixture(scope="module")
def field(cluster, chart, claim) -> Iterator[Field]:
    nodes = [
        node["metadata"]["name"] for node in cluster.kubectl.list("nodes") if not node["spec"].get("taints")
    ]
    offers = {nodes[0]: 4, nodes[1]: 2}
    kubectl = cluster.kubectl.within(SPACE)
    cluster.kubectl.apply(objects.namespace(SPACE))
    claim(SPACE)
    for node, count in offers.items():
        cluster.gpus(node, count)
    try:
        yield Field(kubectl, offers)
    finally:
        cluster.kubectl.delete("namespace", SPACE)
        cluster.kubectl.delete("persistentvolume", f"{SPACE}-{objects.CLAIM}")
        for node in offers:
            cluster.gpus(node, 0)


def gpu_server(name: str, count: int, replicas: int, start: int = 0) -> Object:
    compute = {"device": "cuda", "gpu": {"resource": GPU, "count": count}}
    return objects.block_server(
        name, start, start + 10, space=SPACE, replicas=replicas, compute=compute, pod=ABSENT
    )


def test_servers_land_where_the_gpus_are_and_are_counted(field: Field) -> None:
    field.kubectl.apply(gpu_server("two-each", count=2, replicas=2))
    nodes = field.placed("two-each", 2)
    # Only now: spread over both nodes first, these would leave no room for the second one of two.
    field.kubectl.apply(gpu_server("one-each", count=1, replicas=2, start=10))
    nodes += field.placed("one-each", 2)
    assert set(nodes) <= set(field.offers)
    assert field.taken() == field.offers


def test_one_too_many_waits_and_tells(field: Field) -> None:
    field.kubectl.run("scale", "bs/one-each", "--replicas=3")

    def told() -> Object | None:
        found = condition(field.kubectl.get("bs", "one-each"), "Scheduled")
        return found if found.get("reason") == "Unschedulable" else None

    found: Object = until(told, "it says that it cannot be scheduled", timeout=DEADLINE)
    assert found["status"] == "False"
    assert f"Insufficient {GPU}" in found["message"]
    assert sum(field.taken().values()) == sum(field.offers.values())


def test_a_server_on_the_cpu_takes_none(field: Field, chart) -> None:
    """Not of the scheduler, and not of the container runtime, which shows all to those who say nothing."""
    field.kubectl.run("scale", "bs/one-each", "--replicas=1")
    field.placed("one-each", 1)
    made = objects.block_server("on-cpu", 0, 1, space=SPACE, pod={"resources": SMALL})
    made["spec"]["model"]["name"] = "on-cpu"
    before = field.taken()
    field.kubectl.apply(made)
    until(lambda: is_true(field.kubectl.get("bs", "on-cpu"), "Ready"), "on-cpu Ready", timeout=DEADLINE)
    (pod,) = field.pods("on-cpu")
    assert GPU not in str(pod["spec"])
    assert field.taken() == before
    shown = field.kubectl.exec(
        pod["metadata"]["name"], "python", "-c", "import os; print(os.environ['NVIDIA_VISIBLE_DEVICES'])"
    )
    assert shown.strip() == "void"


@pytest.mark.parametrize("kind", ["requests", "limits"])
def test_a_server_on_the_cpu_cannot_ask_for_one(field: Field, kind: str) -> None:
    made = objects.block_server("greedy", 0, 1, space=SPACE, pod={"resources": {kind: {GPU: "1"}}})
    with pytest.raises(CommandError, match=r"pod\.resources: a server on device cpu must not hold GPUs"):
        field.kubectl.apply(made)
