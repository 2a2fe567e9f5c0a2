"""The chart, three BlockServers, an application: what the first ten minutes with BlockSwarm show."""

import json
import re

import pytest

from kube import objects
from kube.cluster import REPOSITORY
from kube.kubectl import CommandError, is_true
from kube.release import SYSTEM
from kube.swarm import SPANS, complete
from kube.waiting import until

ORDER = 10
TOKENS = 64
APPLICATION = REPOSITORY / "manifests" / "samples" / "application.yaml"
HEAVY = ("torch", "transformers", "tokenizers", "safetensors", "huggingface_hub", "numpy", "hivemind")
# What an image adds to its base: tests/unit/chart/test_dockerfiles.py.
ADDED = "/opt/venv"
ADDED_BYTES = 150_000_000
# Prints what of its further arguments can be imported, and how many bytes the files of the first hold.
_INVENTORY = """
import importlib.util, json, os, sys

def fail(error):
    raise error

folder, *names = sys.argv[1:]
size = sum(os.lstat(os.path.join(at, file)).st_size for at, _, files in os.walk(folder, onerror=fail) for file in files)
print(json.dumps({"found": [name for name in names if importlib.util.find_spec(name)], "size": size}))
"""


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


def test_the_operator_s_image_holds_nothing_heavy(chart, note):
    def look():
        words = ["python", "-c", _INVENTORY, ADDED, "blockswarm_operator", *HEAVY]
        return json.loads(chart.kubectl.exec(chart.leader(), *words))

    inventory = until(look, "an inventory of the leader's image", timeout=120)
    note(f"image of the operator: {inventory['size'] / 1e6:.1f} MB over its base")
    assert inventory["found"] == ["blockswarm_operator"]
    assert inventory["size"] <= ADDED_BYTES


def test_application_generates_what_transformers_generates(generator, reference):
    # It is not even installed.
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


def test_the_sample_application_tells_a_story(swarm, chart, images):
    """Applied as it stands, but for the image's name."""
    kubectl, pods = swarm.kubectl, "app.kubernetes.io/name=story"
    text, images_named = re.subn(r"(?<= image: ).+", images["client"].name, APPLICATION.read_text())
    assert images_named == 1
    assert f"value: {chart.directory}\n" in text
    assert f"claimName: {objects.CLAIM}," in text

    def told():
        said = kubectl.logs("deployment/story")
        available = is_true(kubectl.get("deployment", "story"), "Available")
        return available and re.search(r"^Once upon a time(\W+\w+){10}", said, re.MULTILINE)

    def state():
        return kubectl.run("describe", "pods", "-l", pods) + kubectl.logs("deployment/story", tail=30)

    try:
        kubectl.run("apply", "-f", "-", stdin=text)
        until(told, "a story of the sample", timeout=300, state=state)
    finally:
        kubectl.run("delete", "-f", "-", "--ignore-not-found", stdin=text, timeout=180)
    swarm.wait(lambda: not kubectl.list("pods", pods), "no pod of the sample")


def _table(text):
    """Rows of kubectl's table by their first column. Cells are found by the header's positions: some are empty."""
    header, *lines = text.splitlines()
    starts = [match.start() for match in re.finditer(r"\S+", header)]
    bounds = list(zip(starts, [*starts[1:], None], strict=True))
    names = [header[a:b].strip() for a, b in bounds]
    rows = [dict(zip(names, (line[a:b].strip() for a, b in bounds), strict=True)) for line in lines]
    return {row["NAME"]: row for row in rows}
