"""Evictions through the API, in any number and at once, never take the last server of a block."""

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from kube import objects
from kube.coverage_watch import CoverageWatch
from kube.eviction_field import MODEL, SMALL, SPACE, EvictionField, block_server
from kube.kubectl import condition
from kube.rest import MERGE, Rest
from kube.swarm import BLOCK_SERVER, running

ORDER = 40
STORM_SECONDS = 60.0
# A storm goes on until so many evictions were granted, but not for longer.
STORM_GRANTED, STORM_MOST_SECONDS = 5, 240.0
EVICTORS = 4
NO_ANSWER = 504
# A resource that only exists to count how many servers fit.
SLOT = "blockswarm.test/slot"
FREED_SECONDS = 2.0


@pytest.fixture(scope="module")
def field(cluster, chart, images, claim) -> Iterator[EvictionField]:
    kubectl = cluster.kubectl.within(SPACE)
    cluster.kubectl.apply(objects.namespace(SPACE))
    claim(SPACE)
    try:
        with (
            Rest(kubectl) as rest,
            CoverageWatch(kubectl, images["client"].name, chart.directory, MODEL, served=False) as watch,
        ):
            yield EvictionField(kubectl, rest, watch)
    finally:
        cluster.kubectl.delete("namespace", SPACE)
        cluster.kubectl.delete("persistentvolume", f"{SPACE}-{objects.CLAIM}")


def test_one_becomes_evictable_when_another_is_online(field: EvictionField, note) -> None:
    """The last server stays, until one of the same span is ONLINE, or one of an enclosing span."""
    field.clear()
    field.put(block_server("inner", 2, 4))
    inner, began = field.pod("inner"), time.time()
    assert field.evict(inner) == 429
    for name, start, end in (("same", 2, 4), ("outer", 0, 6)):
        field.kubectl.apply(block_server(name, start, end))
        substitute = field.wait(lambda name=name: field.pods(name), f"a pod of {name}")[0]["metadata"]["uid"]
        early, asked = field.free(inner), time.time()
        seconds = field.freed_after(inner, substitute)
        # Asked before, told now: the news that the substitute was ONLINE already may come late.
        online = field.watch.since(substitute)
        assert not early or (online is not None and online <= asked), "free without a substitute"
        note(f"evictable {seconds:.2f} s after a server of blocks {start}:{end} for 2:4 was ONLINE")
        assert seconds < FREED_SECONDS
        if name == "same":
            field.kubectl.delete("blockserver", name)
            field.wait(lambda: not field.pods("same"), "no pod of same")
            field.wait(lambda: not field.free(inner), "inner is kept again")
    field.wait_complete("outer")
    assert field.evict(field.pod("outer")) == 429
    assert field.evict(inner) == 201
    field.wait(lambda: inner["metadata"]["uid"] not in field.watch.serving, "inner left")
    assert field.watch.least(range(2, 4), since=began)[0] >= 1


def test_a_cordoned_node_frees_the_kept_pod(field: EvictionField, cluster, note) -> None:
    kept = field.pod("outer")
    node, began = kept["spec"]["nodeName"], time.time()
    cluster.kubectl.run("cordon", node)
    try:
        assert field.evict(kept) == 429
        field.wait(lambda: len(field.pods("outer")) == 2, "a substitute")
        (substitute,) = field.uids("outer") - {kept["metadata"]["uid"]}
        seconds = field.freed_after(kept, substitute)
        note(f"free {seconds:.2f} s after the substitute of a server on a cordoned node was ONLINE")
        assert seconds < FREED_SECONDS
        field.wait(lambda: field.uids("outer") == {substitute}, "it has moved")
        assert field.watch.least(range(6), since=began)[0] >= 1
    finally:
        cluster.kubectl.run("uncordon", node)


def test_a_storm_of_evictions_leaves_every_block_served(field: EvictionField, note) -> None:
    """Equal, nested and staggered spans; four evict whatever is Ready, as fast as they can."""
    field.clear()
    spans = {"equal-a": (0, 4), "equal-b": (0, 4), "nested": (1, 3), "next": (2, 6), "last": (4, 8)}
    field.put(*(block_server(name, *span) for name, span in spans.items()))
    began = time.time()
    answers: Counter[int] = Counter()
    faults: list[BaseException] = []
    pause = threading.Event()

    def over() -> bool:
        passed, enough = time.time() - began, answers[201] >= STORM_GRANTED
        return bool(faults) or passed >= (STORM_SECONDS if enough else STORM_MOST_SECONDS)

    def evict_all(chance: random.Random) -> None:
        found = field.rest.call("GET", f"/api/v1/namespaces/{SPACE}/pods?labelSelector={BLOCK_SERVER}")
        if found.status == NO_ANSWER:
            answers[NO_ANSWER] += 1
            return
        pods = found.json()["items"]
        # Pods that are not Ready may always go: hunting them would only keep them from starting.
        for pod in chance.sample(pods, k=len(pods)):
            if running(pod):
                answers[field.evict(pod)] += 1

    def storm(seed: int) -> None:
        chance = random.Random(seed)
        try:
            while not over():
                try:
                    evict_all(chance)
                except OSError:
                    # The API server is slow under a storm.
                    answers[NO_ANSWER] += 1
                pause.wait(0.02)
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=storm, args=(seed,)) for seed in range(EVICTORS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults, faults
    seconds = time.time() - began
    least, at = field.watch.least(range(8), since=began)
    granted, refused = answers[201], answers[429]
    note(
        f"{EVICTORS} evictors, {seconds:.0f} s: {granted} evictions granted, {refused} refused, "
        f"least coverage of a block {least}"
    )
    assert least >= 1, f"{least} at {at:.2f}\n{field.state()}"
    assert granted >= STORM_GRANTED
    assert refused > granted
    assert answers.keys() <= {201, 404, 409, 429, NO_ANSWER}, answers
    field.wait_complete(*spans)


@pytest.mark.parametrize("replicas", [1, 2])
def test_restart_and_image_change_of_all_at_once(
    field: EvictionField, cluster, images, replicas, note
) -> None:
    field.clear()
    field.put(block_server("lower", 0, 3, replicas=replicas), block_server("upper", 2, 6, replicas=replicas))
    other = cluster.retag(images["server"].name, "blockswarm.test/server:other")
    for what, change in (("restart", {"restart": "now"}), ("image change", {"pod": {"image": other}})):
        old, began = field.uids(), time.time()
        for name in ("lower", "upper"):
            field.kubectl.patch("blockserver", name, {"spec": change})
        field.wait_complete("lower", "upper")
        field.wait(lambda old=old: not old & field.uids(), "every server replaced")
        least, at = field.watch.least(range(6), since=began)
        seconds = time.time() - began
        note(
            f"{what} of two BlockServers, {replicas} each: {seconds:.0f} s, least coverage of a block {least}"
        )
        assert least >= 1, f"{what}: {least} at {at:.2f}\n{field.state()}"


def test_without_room_for_a_spare_nothing_is_lost(field: EvictionField, cluster) -> None:
    """Two servers, two slots: a restart waits and says so, and goes on when a third slot comes."""
    field.clear()
    node = next(one for one in cluster.kubectl.list("nodes") if not one["spec"].get("taints"))
    names, pod = ("lower", "upper"), {"resources": {**SMALL, "limits": {SLOT: "1"}}}
    _offer(field.rest, node["metadata"]["name"], 2)
    try:
        field.put(block_server("lower", 0, 3, pod=pod), block_server("upper", 3, 6, pod=pod))
        old, began = field.uids(), time.time()
        for name in names:
            field.kubectl.patch("blockserver", name, {"spec": {"restart": "now"}})

        def stuck():
            found = [condition(field.kubectl.get("bs", name), "Progressing") for name in names]
            return next((one for one in found if one.get("reason") == "NoSpareCapacity"), None)

        told = field.wait(stuck, "NoSpareCapacity")
        assert told["status"] == "False"
        assert SLOT in told["message"]

        def only_old_run() -> bool:
            pods = field.pods()
            assert old <= {pod["metadata"]["uid"] for pod in pods}
            return {pod["metadata"]["uid"] for pod in pods if running(pod)} == old

        # Readiness may be gone for a moment, when a probe is late.
        field.wait(only_old_run, "only the two old ones run")
        assert field.watch.least(range(6), since=began)[0] >= 1
        _offer(field.rest, node["metadata"]["name"], 3)
        field.wait_complete(*names)
        field.wait(lambda: not old & field.uids(), "both replaced")
        assert field.watch.least(range(6), since=began)[0] >= 1
    finally:
        field.clear()
        _offer(field.rest, node["metadata"]["name"], 0)


def _offer(rest: Rest, node: str, slots: int) -> None:
    numbers = {SLOT: str(slots)}
    change = {"status": {"capacity": numbers, "allocatable": numbers}}
    answer = rest.call("PATCH", f"/api/v1/nodes/{node}/status", change, content=MERGE)
    assert answer.ok, answer
