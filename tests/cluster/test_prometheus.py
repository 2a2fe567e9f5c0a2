"""Dashboards and alerts before a real Prometheus that scrapes the real swarm."""

import math
from typing import Any

import pytest

import boards
from kube import objects
from kube.prometheus import PATIENCE_SECONDS, RATE_INTERVAL, Prometheus
from kube.release import SYSTEM
from kube.swarm import SPANS
from kube.waiting import until

# Needs a healthy swarm, and takes parts of it away.
ORDER = 60
SERVED = "smollm2-b"
NOWHERE = {"blockswarm.test/nowhere": "true"}
# At a pause of 0.1 s they last longer than anything is waited for meanwhile.
MANY_TOKENS = 1800


@pytest.fixture(scope="module")
def prometheus(swarm, cluster, tmp_path_factory):
    swarm.settle()
    home = tmp_path_factory.mktemp("prometheus")
    with Prometheus(cluster.kubectl, (SYSTEM, objects.MODELS), home) as started:
        yield started


@pytest.fixture
def healthy(prometheus, swarm):
    """The swarm is well before the test and after it, and no alert fires before it."""
    swarm.settle()
    until(
        lambda: prometheus.rules() and not prometheus.firing(),
        "no alert fires",
        timeout=180,
        state=lambda: f"{prometheus.firing()}\n{swarm.state()}",
    )
    yield
    swarm.settle()


def _wait_firing(prometheus, swarm, *names: str, timeout: float = 180.0) -> dict[str, list[dict[str, Any]]]:
    """Wait until all of these fire at once; the alerts that do, by name."""

    def firing() -> dict[str, list[dict[str, Any]]] | None:
        found: dict[str, list[dict[str, Any]]] = prometheus.firing()
        return found if set(names) <= found.keys() else None

    found = until(
        firing,
        f"{', '.join(names)} fire",
        timeout=timeout,
        state=lambda: f"{prometheus.firing()}\n{swarm.state()}",
    )
    for name in names:
        for alert in found[name]:
            for text in alert["annotations"].values():
                assert "<error" not in text, text
                assert "<no value>" not in text, text
    return found


def _filled_in(prometheus, name: str) -> dict[str, str]:
    """Panel and target → expression, with what Grafana puts in for "All"."""
    board = boards.load(name)
    chosen = {"__rate_interval": RATE_INTERVAL}
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            offered = prometheus.values(boards.substituted(variable["query"]["query"], **chosen))
            chosen[variable["name"]] = "|".join(offered)
    return {where: boards.substituted(text, **chosen) for where, text in boards.expressions(board)}


def _has_data(prometheus, expression: str) -> bool:
    return any(not math.isnan(float(sample["value"][1])) for sample in prometheus.query(expression))


@pytest.mark.parametrize("name", sorted(boards.DASHBOARDS))
def test_every_panel_shows_something_while_a_pod_generates(prometheus, generator, name):
    run = generator.begin([1, 2, 3], tokens=MANY_TOKENS, pace=0.1)
    run.wait(5)
    until(
        lambda: (
            not [
                where
                for where, text in _filled_in(prometheus, name).items()
                if not _has_data(prometheus, text)
            ]
        ),
        "every expression has data",
        timeout=180,
        every=2.0,
        state=lambda: "\n".join(
            f"{where}: {text}"
            for where, text in _filled_in(prometheus, name).items()
            if not _has_data(prometheus, text)
        ),
    )
    run.stop()


def test_what_the_panels_show_is_true(prometheus, generator, swarm):
    run = generator.begin([1, 2, 3], tokens=MANY_TOKENS, pace=0.1)
    run.wait(5)
    panels = [
        "Sessions A",
        "Blocks without a server A",
        "Least coverage A",
        "Servers per block A",
        "Servers by state A",
        "Generated tokens/s A",
        "KV tokens per span A",
        "KV tokens per span B",
        "KV tokens per span C",
    ]
    # One session in each span, which was promised room for all its tokens; two servers each.
    promised_least = 3 + MANY_TOKENS
    capacities = [2.0 * swarm.get(name)["spec"]["cache"]["tokens"] for name in SPANS]

    def shown() -> dict[str, list[dict[str, Any]]]:
        expressions = _filled_in(prometheus, "swarm")
        return {where: prometheus.query(expressions[where]) for where in panels}

    def right() -> bool:
        samples = shown()
        sessions, without, least, per_block, by_state, rate, used, promised, capacity = (
            [float(sample["value"][1]) for sample in samples[where]] for where in panels
        )
        states = [sample["metric"].get("state") for sample in samples["Servers by state A"]]
        return (
            sessions == [1.0]
            and without == [0.0]
            and least == [2.0]
            and per_block == [2.0] * 30
            and dict(zip(states, by_state, strict=True)) == {"joining": 0.0, "online": 6.0, "draining": 0.0}
            # The pause after each token is 0.1 s, so that the truth is known from above.
            and len(rate) == 1
            and 0 < rate[0] < 10.5
            and len(used) == len(promised) == len(SPANS)
            and sorted(capacity) == sorted(capacities)
            and all(0 < tokens < promised_least for tokens in used)
            and all(promised_least <= tokens <= min(capacities) for tokens in promised)
        )

    # A series may come late, and a scrape that failed hides some for a moment.
    until(
        right,
        "the panels show the truth",
        timeout=90,
        every=2.0,
        state=lambda: "\n".join(f"{where}: {samples}" for where, samples in shown().items()),
    )
    run.stop()


def test_a_healthy_swarm_is_quiet_and_every_rule_is_evaluated(prometheus, healthy):
    calm = PATIENCE_SECONDS + 20
    prometheus.pass_rounds(calm)
    assert {
        rule["name"]: rule.get("lastError") for rule in prometheus.rules() if rule["health"] != "ok"
    } == {}
    assert prometheus.query(f'count_over_time(ALERTS{{alertstate="firing"}}[{calm}s])') == []


def test_a_block_that_loses_its_last_server_is_told_of(prometheus, swarm, healthy):
    swarm.kubectl.patch("blockserver", SERVED, {"spec": {"pod": {"nodeSelector": NOWHERE}}})
    try:
        swarm.wait(
            lambda: [pod for pod in swarm.pods(SERVED) if pod["spec"].get("nodeSelector")],
            "new pods have nowhere to go",
        )
        placed = [pod["metadata"]["name"] for pod in swarm.pods(SERVED) if pod["spec"].get("nodeName")]
        swarm.kubectl.delete("pod", *placed)
        found = _wait_firing(prometheus, swarm, "BlockSwarmBlockUncovered", "BlockSwarmBlockServerNotReady")
        (alert,) = found["BlockSwarmBlockUncovered"]
        assert alert["labels"]["namespace"] == objects.MODELS
        assert alert["labels"]["model"] == objects.MODEL_NAME
        assert float(alert["value"]) == 10
    finally:
        swarm.kubectl.patch("blockserver", SERVED, {"spec": {"pod": {"nodeSelector": None}}})


def test_a_swarm_without_directories_is_told_of_and_so_is_a_server_that_cannot_join(
    prometheus, swarm, healthy
):
    release = swarm.release
    stateful_set = f"statefulset/{release.name}-directory"
    release.kubectl.run("scale", stateful_set, "--replicas=0")
    try:
        _wait_firing(prometheus, swarm, "BlockSwarmDirectoryQuorum", "BlockSwarmDirectoryUnreachable")
        swarm.kubectl.delete("pod", swarm.pods(SERVED)[0]["metadata"]["name"])
        _wait_firing(prometheus, swarm, "BlockSwarmServerStuckLoading")
    finally:
        release.kubectl.run("scale", stateful_set, "--replicas=3")


def test_an_operator_without_leader_is_told_of(prometheus, swarm, healthy):
    release = swarm.release
    deployment = f"deployment/{release.name}-operator"
    release.kubectl.run("scale", deployment, "--replicas=0")
    try:
        _wait_firing(prometheus, swarm, "BlockSwarmOperatorWithoutLeader")
    finally:
        release.kubectl.run("scale", deployment, "--replicas=2")


def test_an_operator_whose_passes_all_fail_is_told_of(prometheus, swarm, healthy):
    role = f"{swarm.release.name}-operator"
    rules = swarm.cluster.kubectl.get("clusterrole", role)["rules"]
    swarm.cluster.kubectl.patch("clusterrole", role, {"rules": _reading_only(rules)})
    try:
        # What it must write now, it may not.
        swarm.kubectl.patch("blockserver", SERVED, {"spec": {"replicas": 3}})
        _wait_firing(prometheus, swarm, "BlockSwarmOperatorNotReconciling", timeout=300)
    finally:
        swarm.cluster.kubectl.patch("clusterrole", role, {"rules": rules})
        swarm.kubectl.patch("blockserver", SERVED, {"spec": {"replicas": 2}})


def _reading_only(rules):
    """The rules without those verbs that write to what the operator makes; it still holds its lease."""
    return [
        {**rule, "verbs": [verb for verb in rule["verbs"] if verb in ("get", "list", "watch")]}
        if "replicasets" in rule["resources"]
        else rule
        for rule in rules
    ]


def test_servers_that_are_nearly_full_are_told_of(prometheus, swarm, generator, healthy):
    swarm.kubectl.patch("blockserver", SERVED, {"spec": {"replicas": 1, "cache": {"tokens": 640}}})
    try:
        swarm.settle()
        # As many as fill the cache; slow enough to last until the alert fires.
        run = generator.begin([1, 2, 3], tokens=600, pace=0.35)
        run.wait(1)
        (alert,) = _wait_firing(prometheus, swarm, "BlockSwarmKvNearlyFull")["BlockSwarmKvNearlyFull"]
        assert alert["labels"]["blocks"] == "10:20"
        assert 0.9 < float(alert["value"]) <= 1
        run.stop()
    finally:
        swarm.kubectl.patch("blockserver", SERVED, {"spec": {"replicas": 2, "cache": {"tokens": 16384}}})


# The last one: this alert looks back five minutes.
def test_sessions_that_keep_losing_servers_are_told_of(prometheus, swarm, generator, healthy):
    run = generator.begin([1, 2, 3], tokens=MANY_TOKENS, pace=0.25)
    # Each time a server of another span: those that take over stay, and have long been scraped.
    for span in range(len(SPANS)):
        run.wait(5)
        lost = swarm.pod_of(run.chain[span])["metadata"]["name"]
        swarm.kubectl.delete("pod", lost, grace=0)
        swarm.wait(lambda lost=lost: run.chain and not _uses(swarm, run, lost), "the session has moved")
        until(lambda: _shown(prometheus, "Failovers A"), "the panel shows it", timeout=60, every=1.0)
        swarm.settle()
    _wait_firing(prometheus, swarm, "BlockSwarmFailoverRate")
    run.stop()


def _shown(prometheus, panel: str) -> bool:
    """Whether a panel of the swarm's dashboard shows more than zero somewhere."""
    samples = prometheus.query(_filled_in(prometheus, "swarm")[panel])
    return any(float(sample["value"][1]) > 0 for sample in samples)


def _uses(swarm, run, pod: str) -> bool:
    return pod in {one["metadata"]["name"] for one in swarm.pods() if one["metadata"]["uid"] in run.chain}
