"""A pass that has nothing to do does nothing; what the operator set is restored; killed at any write, it goes on."""

import json
from collections.abc import Iterator

import pytest
import yaml

from kube.cluster import REPOSITORY, Cluster
from kube.fake_directory import FakeDirectory
from kube.fake_node import FakeNode
from kube.idempotence_world import DEADLINE, LOWER, SPACE, UPPER, World, block_server
from kube.kubectl import Kubectl, Object, condition
from kube.local_operator import LocalOperator
from kube.release import SYSTEM
from kube.rest import Rest
from kube.swarm import BLOCK_SERVER, complete
from kube.waiting import until
from kube.writes_proxy import WritesProxy

# Needs no images and no chart, only the cluster.
ORDER = 5
CRD = "blockservers.blockswarm.io"
CHILDREN = ("ReplicaSet", "Service", "NetworkPolicy", "PodDisruptionBudget")


@pytest.fixture(scope="module")
def space(cluster: Cluster) -> Iterator[Kubectl]:
    """The namespace, with the CRD and without another operator."""
    kubectl, system = cluster.kubectl, cluster.kubectl.within(SYSTEM)
    component = "app.kubernetes.io/component=operator"
    other = next(iter(system.list("deployments", component)), None)
    mine = kubectl.find("crd", CRD) is None
    if other is not None:
        system.run("scale", f"deployment/{other['metadata']['name']}", "--replicas=0")
        system.run("wait", "--for=delete", "pod", "-l", component, "--timeout=180s", timeout=200)
    if mine:
        kubectl.apply(yaml.safe_load((REPOSITORY / "manifests" / "crds" / "blockservers.yaml").read_text()))
        kubectl.run("wait", "--for=condition=Established", f"crd/{CRD}", "--timeout=30s")
    kubectl.delete("namespace", SPACE)
    kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}})
    try:
        yield kubectl.within(SPACE)
    finally:
        kubectl.delete("namespace", SPACE, wait=False)
        if mine:
            # The chart brings its own.
            kubectl.delete("crd", CRD)
        if other is not None:
            count = other["spec"]["replicas"]
            system.run("scale", f"deployment/{other['metadata']['name']}", f"--replicas={count}")


@pytest.fixture(scope="module")
def world(space: Kubectl, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """The operator runs, over two complete BlockServers that overlap."""
    with (
        Rest(space) as rest,
        FakeDirectory() as directory,
        FakeNode(rest, directory),
        WritesProxy(rest.url) as proxy,
    ):
        operator = LocalOperator(
            tmp_path_factory.mktemp("operator"),
            proxy.url,
            directory.target,
            namespace=SPACE,
            BLOCKSWARM_NETWORK_POLICY="true",
        )
        made = World(space, rest, directory, proxy, operator)
        operator.start()
        try:
            # A kind that was defined just now may not be known yet.
            both = yaml.safe_dump_all([LOWER, UPPER])
            until(
                lambda: space.run("apply", "-f", "-", stdin=both), "lower and upper applied", timeout=DEADLINE
            )
            made.wait_whole()
            yield made
        finally:
            operator.stop()


def test_a_second_pass_writes_nothing(world: World) -> None:
    before = world.snapshots.versions()
    world.proxy.begin()
    world.idle_passes(5)
    assert world.proxy.writes == []
    assert world.snapshots.versions() == before


def test_a_new_process_writes_nothing(world: World) -> None:
    before = world.snapshots.versions()
    world.operator.stop()
    world.proxy.begin()
    world.operator.start()
    world.operator.wait_passes(1, timeout=DEADLINE)
    world.idle_passes(3)
    assert world.proxy.writes == [], world.state()
    assert world.snapshots.versions() == before


# Kind, patch by a hand that knows better. Each field is one that the operator sets.
EDITS: list[tuple[str, Object]] = [
    ("ReplicaSet", {"spec": {"replicas": 5}}),
    ("ReplicaSet", {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 1}}}}),
    ("ReplicaSet", {"spec": {"template": {"metadata": {"labels": {"blockswarm.io/span-group": "x"}}}}}),
    ("ReplicaSet", {"metadata": {"labels": {"app.kubernetes.io/part-of": "x"}}}),
    ("ReplicaSet", {"metadata": {"labels": {"app.kubernetes.io/managed-by": None}}}),
    ("ReplicaSet", {"metadata": {"annotations": {"blockswarm.io/applied": None}}}),
    ("Service", {"spec": {"ports": [{"name": "grpc", "port": 1, "targetPort": "grpc"}]}}),
    ("Service", {"spec": {"selector": {"blockswarm.io/blockserver": "x"}}}),
    ("Service", {"spec": {"publishNotReadyAddresses": False}}),
    ("Service", {"metadata": {"labels": {"blockswarm.io/model": None}}}),
    ("NetworkPolicy", {"spec": {"ingress": [{}]}}),
    ("NetworkPolicy", {"spec": {"policyTypes": ["Ingress", "Egress"]}}),
    ("PodDisruptionBudget", {"spec": {"minAvailable": 0}}),
    ("PodDisruptionBudget", {"spec": {"unhealthyPodEvictionPolicy": "IfHealthyBudget"}}),
    ("PodDisruptionBudget", {"metadata": {"labels": {"blockswarm.io/span-group": "x"}}}),
    ("PodDisruptionBudget", {"metadata": {"ownerReferences": None}}),
]


@pytest.mark.parametrize(("kind", "edit"), EDITS, ids=[f"{kind}-{json.dumps(edit)}" for kind, edit in EDITS])
def test_a_hand_edit_is_undone(world: World, kind: str, edit: Object) -> None:
    wanted, before, name = world.snapshots.comparable(), world.snapshots.versions(), world.child(kind)
    edited = world.patch(kind, name, edit)
    assert edited["metadata"]["resourceVersion"] != before[f"{kind} {name}"], "it changed nothing"
    world.wait_same(wanted)


@pytest.mark.parametrize("kind", CHILDREN)
def test_a_deleted_child_comes_back(world: World, kind: str) -> None:
    wanted, path = world.snapshots.comparable(), world.snapshots.path(kind, world.child(kind))
    assert world.rest.call("DELETE", path, {"propagationPolicy": "Background"}).ok
    world.wait_same(wanted)


def test_what_others_add_stays(world: World) -> None:
    name, note = world.child("Service"), {"somebody.else/note": "x"}
    world.patch("Service", name, {"metadata": {"annotations": note}})
    world.patch("BlockServer", "lower", {"spec": {"cache": {"tokens": 1024}}})
    world.wait_whole()
    assert note.items() <= world.kubectl.get("service", name)["metadata"]["annotations"].items()


def test_what_is_not_ours_is_neither_taken_nor_touched(world: World) -> None:
    theirs = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "theirs", "namespace": SPACE},
        "spec": {"selector": {"app": "theirs"}, "ports": [{"port": 80}]},
    }
    world.kubectl.apply(theirs)
    before = world.kubectl.get("service", "theirs")
    world.kubectl.apply(block_server("theirs", 0, 2))
    try:
        until(
            lambda: condition(world.kubectl.get("bs", "theirs"), "Accepted").get("reason") == "NameTaken",
            "it says that the name is taken",
            timeout=DEADLINE,
            state=world.state,
        )
        assert world.kubectl.get("service", "theirs") == before
        assert all(complete(world.kubectl.get("bs", name)) for name in ("lower", "upper"))
    finally:
        world.kubectl.delete("blockserver", "theirs")
    world.wait_quiet()
    assert world.kubectl.get("service", "theirs") == before
    world.kubectl.delete("service", "theirs")


def test_what_is_no_longer_wanted_goes(world: World) -> None:
    for wanted, count in (("false", 0), ("true", 2)):
        world.restart(BLOCKSWARM_NETWORK_POLICY=wanted)
        until(
            lambda count=count: len(world.snapshots.objects("NetworkPolicy")) == count,
            f"{count} NetworkPolicies",
            timeout=DEADLINE,
            state=world.state,
        )
    world.wait_whole()


def test_what_vanished_while_no_watch_looked_is_not_held_on_to(world: World) -> None:
    """A watch that must begin anew (410) tells of nobody who is gone; a ghost would get children for ever."""
    with world.proxy.blind_to("blockservers"):
        world.kubectl.delete("blockserver", "upper")
    until(
        lambda: not world.operator.runs(), "the operator begins anew", timeout=2 * DEADLINE, state=world.state
    )
    assert world.operator.wait() == 1, world.state()
    world.operator.start()
    until(lambda: not world.kubectl.list("rs", f"{BLOCK_SERVER}=upper"), "upper is gone", timeout=DEADLINE)
    world.wait_whole()
    assert not world.kubectl.list("rs", f"{BLOCK_SERVER}=upper"), world.state()
    world.kubectl.apply(UPPER)
    world.wait_whole()


def test_killed_at_any_write_of_a_change(world: World, note) -> None:
    """Two servers become one or back, and at the same time all are replaced: by evictions, and with a surge."""
    wanted, longest, cuts, evictions = {}, 0, 0, 0
    for _ in range(2):
        world.proxy.begin()
        replicas = world.change_all()
        world.wait_whole()
        wanted[replicas] = world.snapshots.comparable()
        longest = max(longest, len(world.proxy.writes))
        evictions += sum(write.path.endswith("/eviction") for write in world.proxy.writes)
    assert evictions, "no write of the change is an eviction"
    for number in range(1, longest + 1):
        world.proxy.begin(strike_after=number, strike=world.operator.kill)
        world.wait_same(wanted[world.change_all()])
        cuts += world.proxy.struck
    # A strike that was not needed must not hit later.
    world.proxy.begin()
    note(f"operator killed after each of {cuts} writes of a change: the same state each time")
    assert cuts > 8


def test_killed_at_any_write_of_a_creation(world: World, note) -> None:
    world.remove_all()
    world.kubectl.apply(LOWER, UPPER)
    world.wait_whole()
    wanted, number, cuts = world.snapshots.comparable(), 0, 0
    while number == cuts:
        number += 1
        world.remove_all()
        world.proxy.begin(strike_after=number, strike=world.operator.kill)
        world.kubectl.apply(LOWER, UPPER)
        world.wait_same(wanted)
        cuts += world.proxy.struck
    world.proxy.begin()
    note(f"operator killed after each of {cuts} writes of a creation: the same state each time")
    assert cuts > 8


def test_deletion_leaves_nothing(world: World) -> None:
    world.remove_all()
    metrics = ("operator_lanes", "blockserver_replicas", "block_coverage", "coverage_min")
    until(
        lambda: not any(world.operator.metric(f"blockswarm_{name}") for name in metrics),
        "no series of what is gone",
        timeout=DEADLINE,
        every=0.1,
        state=world.state,
    )
