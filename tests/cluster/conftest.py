"""One cluster and one swarm for all tests here; `make e2e` runs them.

Which cluster, and how to keep it between two runs: tests/harness/kube/choice.py. A module says with ORDER (default
50) when it runs: what needs a healthy swarm first, what takes the chart away last. A test that breaks something mends
it and waits for `swarm.settle()`.
"""

from pathlib import Path

import pytest

from kube import objects
from kube.choice import choose_cluster
from kube.cluster import Cluster
from kube.generator import Generator
from kube.images import build_images
from kube.reference import Reference
from kube.release import SYSTEM, Release
from kube.swarm import FOLDER, Swarm

HERE = Path(__file__).parent
# The first test also builds the images and starts the cluster.
_TEST_SECONDS = 1800
NOTES = pytest.StashKey[list[str]]()
SWARM = pytest.StashKey[Swarm]()


def pytest_configure(config):
    config.stash[NOTES] = []


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    mine = [item for item in items if HERE in item.path.parents]
    for item in mine:
        item.add_marker(pytest.mark.cluster)
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_TEST_SECONDS))
    # Stable: tests of one module stay in their order.
    ordered = iter(sorted(mine, key=lambda item: getattr(item.module, "ORDER", 50)))
    items[:] = [next(ordered) if item in mine else item for item in items]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """A failure shows the state of the cluster."""
    report = yield
    if report.when == "call" and report.failed and SWARM in item.config.stash:
        report.sections.append(("cluster", item.config.stash[SWARM].state()))
    return report


def pytest_terminal_summary(terminalreporter, config):
    notes = config.stash.get(NOTES, [])
    if notes:
        terminalreporter.section("what was measured")
        for note in notes:
            terminalreporter.write_line(note)


@pytest.fixture(scope="session")
def note(request):
    """note("text"): a line of the summary at the end."""
    return request.config.stash[NOTES].append


@pytest.fixture(scope="session")
def model_folder():
    """The demo model on this machine."""
    if not (FOLDER / "config.json").exists():
        pytest.fail(f"{FOLDER} is missing: run `make model`", pytrace=False)
    return FOLDER


@pytest.fixture(scope="session")
def say(request):
    """say("text"): a line on the terminal at once, so that minutes of work do not look like a hang."""
    plugins = request.config.pluginmanager
    reporter, capture = plugins.get_plugin("terminalreporter"), plugins.get_plugin("capturemanager")

    def line(text):
        with capture.global_and_fixture_disabled():
            reporter.write_line(text)

    return line


@pytest.fixture(scope="session")
def cluster(model_folder, say):
    """The cluster, up, with three nodes that take pods."""
    chosen: Cluster = choose_cluster(say)
    try:
        chosen.up(nodes=3)
        yield chosen
    finally:
        if not chosen.keep:
            chosen.down()


@pytest.fixture(scope="session")
def kubeconfig(cluster):
    """Path of the administrator's kubeconfig."""
    return cluster.kubeconfig


@pytest.fixture(scope="session")
def kubectl(cluster):
    """kubectl, not bound to a namespace."""
    return cluster.kubectl


@pytest.fixture(scope="session")
def claim(cluster):
    """claim("space"): the demo model is claimed there, or the nodes' folders by name; returns when that is bound.

    Until then no pod is placed, and a deadline for something else would pay for it.
    """

    def bound(space: str, folders: dict[str, Path] | None = None) -> None:
        wanted = {objects.CLAIM: cluster.model_on_nodes(FOLDER)} if folders is None else folders
        for name, path in wanted.items():
            cluster.kubectl.apply(*objects.folder_claim(name, path, space))
        words = ["--for=jsonpath={.status.phase}=Bound", "--timeout=180s"]
        cluster.kubectl.within(space).run("wait", *words, *(f"pvc/{name}" for name in wanted), timeout=200)

    return bound


@pytest.fixture(scope="session")
def images(cluster):
    """server, operator and client, as every node has them."""
    return build_images(cluster)


@pytest.fixture(scope="session")
def chart(cluster, images):
    """The chart's release `blockswarm` in `blockswarm-system`; both namespaces take restricted pods only."""
    cluster.kubectl.apply(objects.namespace(SYSTEM), objects.namespace(objects.MODELS))
    release = Release(cluster, images)
    release.install()
    return release


@pytest.fixture(scope="session")
def swarm(request, cluster, chart):
    """The demo model in three BlockServers of two servers each, all well."""
    served = Swarm(cluster, chart)
    request.config.stash[SWARM] = served
    served.apply()
    served.settle()
    return served


@pytest.fixture(scope="session")
def reference(model_folder):
    """What transformers generates from the prompt of these tests."""
    return Reference(model_folder)


@pytest.fixture(scope="module")
def generator(swarm, chart, images):
    """An application pod that generates on request."""
    with Generator(swarm.kubectl, images["client"].name, chart.directory) as application:
        yield application
