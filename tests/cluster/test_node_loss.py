"""A node loses its power: the swarm knows at once, says which node it was, replaces what was on it, and counts right
when it comes back. An API server that is away is no lost node."""

import threading
import time
from functools import partial

import pytest

from kube import objects
from kube.directory_watch import DirectoryWatch
from kube.kubectl import is_true
from kube.swarm import BLOCK_SERVER, SPANS, complete, running

ORDER = 30
VISIBLE_SECONDS = 3.0
OUTAGE_SECONDS = 75.0
DEADLINE = 180.0


class ReadyWatch:
    """When the condition Ready of a node left True: Unix seconds, as soon as the API tells."""

    def __init__(self, kubectl, node):
        self.left = None
        path = '{.status.conditions[?(@.type=="Ready")].status}{"\\n"}'
        self._process = kubectl.spawn("get", "node", node, "--watch", "-o", f"jsonpath={path}")
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *error):
        self._process.kill()
        self._thread.join(10)

    def _read(self):
        for line in self._process.stdout:
            if line.strip() and line.strip() != "True" and self.left is None:
                self.left = time.time()


@pytest.fixture
def spread(swarm, chart):
    """Every node has a directory pod, also after a test that emptied some."""
    stateful_set = f"statefulset/{chart.name}-directory"
    chart.kubectl.run("rollout", "restart", stateful_set)
    chart.kubectl.run("rollout", "status", stateful_set, f"--timeout={DEADLINE:.0f}s", timeout=DEADLINE + 30)
    swarm.settle()


def _directories(chart):
    """Node → address of its directory pod."""
    pods = [chart.kubectl.get("pod", name) for name in chart.directory_pods()]
    return {pod["spec"]["nodeName"]: pod["status"]["podIP"] for pod in pods}


def _leader_node(chart):
    return chart.kubectl.get("pod", chart.leader())["spec"]["nodeName"]


def _lead_from(swarm, chart, nodes):
    """Let an operator on one of these nodes lead. Returns its node."""
    while _leader_node(chart) not in nodes:
        leader = chart.leader()
        chart.kubectl.delete("pod", leader)
        swarm.wait(lambda leader=leader: chart.leader() not in ("", leader), "another operator leads")
        swarm.settle()
    return _leader_node(chart)


@pytest.mark.parametrize("holds", ["the operator that works", "no operator that works"])
def test_power_loss(holds, cluster, swarm, chart, images, note, spread):
    """Every node has a directory pod, so that one of them is always lost too."""
    nodes = sorted({pod["spec"]["nodeName"] for pod in swarm.pods()})
    leader = _lead_from(swarm, chart, nodes)
    node = leader if holds == "the operator that works" else next(name for name in nodes if name != leader)
    directories = _directories(chart)
    assert node in directories, f"no directory pod on {node}: {directories}"
    watcher, address = next((name, ip) for name, ip in directories.items() if name != node)
    lost = {pod["metadata"]["uid"]: pod for pod in swarm.pods() if pod["spec"]["nodeName"] == node}
    assert lost, f"no server on {node}"
    touched = {pod["metadata"]["labels"][BLOCK_SERVER] for pod in lost.values()}

    target, pods = f"{address}:31340", {pod["metadata"]["uid"] for pod in swarm.pods()}
    view = DirectoryWatch(
        swarm.kubectl, images["client"].name, target, objects.MODEL_NAME, node=watcher, expect=pods
    )
    with view, ReadyWatch(cluster.kubectl, node) as ready:
        killed = time.time()
        cluster.kill_node(node)
        try:
            swarm.wait(lambda: ready.left, f"{node} not Ready", every=0.1)
            swarm.wait(
                lambda: all(_offline(view, uid, killed, ready.left) for uid in lost),
                f"OFFLINE of {set(lost)}",
                every=0.1,
            )
            seconds = max(_offline(view, uid, killed, ready.left) - ready.left for uid in lost)
            note(f"power loss of a node with {holds}: OFFLINE {seconds:+.2f} s after Ready left True")
            assert seconds <= VISIBLE_SECONDS, view.state()

            for name in touched:
                swarm.wait(partial(_names, swarm, name, node), f"{name} names {node}")
            for name in touched:
                done = partial(_replaced, swarm, name, node)
                swarm.wait(done, f"{name} has a server in place of the lost one", timeout=DEADLINE)
        finally:
            mended = time.time()
            cluster.start_node(node)
            swarm.settle()
        _counted_once(swarm, view, set(lost), mended)


def _offline(view, server_id, after, ready_left):
    """When the directory said OFFLINE. Where nodes are given up late, the server's record may have expired before."""
    gone = view.when(server_id, lambda state: state is None, after=after)
    expired = gone if gone is not None and gone < ready_left else None
    return expired or view.when(server_id, lambda state: state == "OFFLINE", after=after)


def _replaced(swarm, name, node):
    """Whether all servers of a BlockServer run elsewhere, and its status says so."""
    places = [pod["spec"]["nodeName"] for pod in swarm.pods(name) if running(pod)]
    return len(places) == 2 and node not in places and complete(swarm.get(name))


def _names(swarm, name, node):
    """Whether status and an event name the lost node."""
    conditions = swarm.get(name)["status"]["conditions"]
    events = swarm.kubectl.run(
        "get",
        "events",
        f"--field-selector=involvedObject.name={name},reason=NodeLost,type=Warning",
        "-o",
        "jsonpath={.items[*].message}",
    )
    return node in events and any(node in one["message"] for one in conditions)


def _counted_once(swarm, view, lost, mended):
    """After the node's return at `mended`: every server that runs counts, and no other."""
    pods = {pod["metadata"]["uid"] for pod in swarm.pods()}
    assert not pods & lost
    for name in SPANS:
        status = swarm.get(name)["status"]
        assert (status["replicas"], status["readyReplicas"], len(status["servers"])) == (2, 2, 2)
        assert {server["serverId"] for server in status["servers"]} <= pods
    swarm.wait(lambda: view.online() == pods, f"exactly {pods} ONLINE: {view.state()}")
    since = [states for at, states in view.views if at > mended]
    back = {uid for states in since for uid in lost if states.get(uid) == "ONLINE"}
    assert not back, view.state()


def test_no_api_server_for_75_s(cluster, swarm, chart, images, generator, reference, note):
    before = {pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in swarm.pods()}
    image, name = images["client"].name, objects.MODEL_NAME
    with DirectoryWatch(swarm.kubectl, image, chart.directory, name, expect=set(before)) as view:
        run = generator.begin(reference.prompt, tokens=700, pace=0.25)
        run.wait(5)
        cluster.freeze_api()
        try:
            # The outage itself: nothing is waited for.
            time.sleep(OUTAGE_SECONDS)
        finally:
            cluster.thaw_api()
        since = time.time()
        swarm.settle()
        # What was seen during the outage, and nodes that look lost for a while after it, must be over.
        swarm.wait(lambda: time.time() > since + 20 and _all_ready(cluster), "20 s of calm")
        run.wait(5)
        reference.check(run.stop(), "a generation without API server", at_least=50)
        wrong = [(at, states) for at, states in view.views if set(states.values()) - {"ONLINE"}]
        assert not wrong, view.state()
        assert all(set(states) == set(before) for _, states in view.views), view.state()
    assert {pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in swarm.pods()} == before
    gap, number = run.longest_gap
    note(
        f"no API server for {OUTAGE_SECONDS:.0f} s: nobody OFFLINE; longest gap {gap:.2f} s before token {number}"
    )


def _all_ready(cluster):
    return all(is_true(node, "Ready") for node in cluster.kubectl.list("nodes"))
