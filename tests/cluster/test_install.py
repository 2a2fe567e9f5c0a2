"""The chart, three BlockServers, an application: what the first ten minutes with BlockSwarm show."""

import re

import pytest

from kube import objects
from kube.kubectl import CommandError
from kube.release import SYSTEM
from kube.swarm import SPANS, complete

ORDER = 10
TOKENS = 64


def test_every_part_is_ready(swarm, chart):
    # Those of an earlier run may still be on their way out.
    swarm.wait(lambda: len(chart.operator_pods()) == 2, "two operators")
    assert len(chart.directory_pods()) == 3
    for name in SPANS:
        assert complete(swarm.get(name))


def test_replicas_are_spread_over_nodes(swarm):
    for name in SPANS:
        nodes = {pod["spec"]["nodeName"] for pod in swarm.pods(name)}
        assert len(nodes) == 2, f"both servers of {name} on {nodes}"


@pytest.mark.parametrize("name", SPANS)
def test_columns_are_true(swarm, name):
    start, end = SPANS[name]
    row = _table(swarm.kubectl.run("get", "bs", name))[name]
    assert row["MODEL"] == objects.MODEL_NAME
    assert row["BLOCKS"] == f"{start}:{end}"
    assert row["READY"] == "2/2"
    assert row["OCCUPANCY"] == "0%"
    assert row["SESSIONS"] == "0"
    assert re.fullmatch(r"(\d+[smh])+", row["AGE"])


@pytest.mark.parametrize("name", SPANS)
def test_wide_columns_are_true(swarm, name):
    row = _table(swarm.kubectl.run("get", "blockserver", name, "-o", "wide"))[name]
    nodes = {pod["spec"]["nodeName"] for pod in swarm.pods(name)}
    assert set(row["NODES"].split(",")) == nodes
    assert row["REASON"] in ("", "<none>")


def test_category_and_scale_subresource(swarm):
    listed = swarm.kubectl.run("get", "blockswarm", "-o", "name").split()
    assert {f"blockserver.blockswarm.io/{name}" for name in SPANS} <= set(listed)
    scale = swarm.kubectl.run("get", "bs", "smollm2-a", "--subresource=scale", "-o", "jsonpath={.status}")
    assert '"replicas":2' in scale
    assert "blockswarm.io/blockserver=smollm2-a" in scale


def test_kubectl_wait(swarm):
    words = ["wait", "--for=condition=Ready", "--timeout=30s"]
    said = swarm.kubectl.run(*words, *(f"blockserver/{name}" for name in SPANS))
    assert said.count("condition met") == len(SPANS)


def test_status_names_every_server(swarm):
    for name in SPANS:
        pods = {pod["metadata"]["uid"]: pod for pod in swarm.pods(name)}
        servers = swarm.get(name)["status"]["servers"]
        assert {server["serverId"] for server in servers} == set(pods)
        for server in servers:
            pod = pods[server["serverId"]]
            assert server["pod"] == pod["metadata"]["name"]
            assert server["node"] == pod["spec"]["nodeName"]
            assert server["state"] == "ONLINE"


def test_namespaces_take_restricted_pods_only(kubectl, swarm):
    """Nothing that runs here had to be excused."""
    for space in (SYSTEM, objects.MODELS):
        labels = kubectl.get("namespace", space)["metadata"]["labels"]
        assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    root = objects.pod("as-root", "any", ["true"], space=objects.MODELS, volumes={})
    root["spec"]["securityContext"]["runAsNonRoot"] = False
    with pytest.raises(CommandError, match="violates PodSecurity"):
        kubectl.apply(root)


def test_application_generates_what_transformers_generates(generator, reference):
    assert generator.hello["hivemind"] is False
    run = generator.begin(reference.prompt, tokens=TOKENS).finish()
    reference.check(run, "the first generation", at_least=TOKENS)


def test_a_session_shows_in_the_columns(swarm, generator, reference):
    # Lasts longer than what is waited for.
    run = generator.begin(reference.prompt, tokens=700, pace=0.3)
    run.wait(1)

    def seen():
        rows = _table(swarm.kubectl.run("get", "bs"))
        return all(rows[name]["SESSIONS"] == "1" and rows[name]["OCCUPANCY"] != "0%" for name in SPANS)

    # Load is written at most every 30 s.
    swarm.wait(seen, "SESSIONS and OCCUPANCY of every BlockServer", timeout=180)
    reference.check(run.stop(), "the watched generation")


def test_helm_test(swarm, chart):
    said = chart.test()
    assert re.search(r"Phase:\s+Succeeded", said), said
    assert objects.MODEL_NAME in said


def _table(text):
    """Rows of kubectl's table by their first column. Cells are found by the header's positions: some are empty."""
    header, *lines = text.splitlines()
    starts = [match.start() for match in re.finditer(r"\S+", header)]
    bounds = list(zip(starts, [*starts[1:], None], strict=True))
    names = [header[a:b].strip() for a, b in bounds]
    rows = [dict(zip(names, (line[a:b].strip() for a, b in bounds), strict=True)) for line in lines]
    return {row["NAME"]: row for row in rows}
