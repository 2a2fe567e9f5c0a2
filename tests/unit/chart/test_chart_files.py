"""What is derived from the chart is not stale, and installs what the chart installs."""

import pytest
import yaml
from rendering import NAMESPACE, ROOT, VARIANTS, helm, of_kind, render, script

PLAIN = ROOT / "manifests" / "operator" / "blockswarm.yaml"


@pytest.fixture(scope="module")
def derived():
    assert helm("version").returncode == 0
    return dict(script().files())


@pytest.mark.parametrize(
    "name",
    [
        "charts/blockswarm/files/blockservers.yaml",
        "charts/blockswarm/README.md",
        "manifests/operator/blockswarm.yaml",
    ],
)
def test_derived_files_are_fresh(derived, name):
    assert (ROOT / name).read_text() == derived[ROOT / name], f"{name} is stale: run `make chart`"


def plain():
    return list(yaml.safe_load_all(PLAIN.read_text()))


def test_the_plain_install_is_the_chart_and_its_namespace():
    def key(thing):
        return thing["kind"], thing["metadata"].get("namespace"), thing["metadata"]["name"]

    charted = {key(thing): thing for thing in render(VARIANTS["defaults"], "--skip-tests")}
    written = {key(thing): thing for thing in plain()}
    assert written.keys() - charted.keys() == {("Namespace", None, NAMESPACE)}
    assert charted.keys() <= written.keys()
    for name, thing in charted.items():
        assert written[name].get("spec") == thing.get("spec"), name
        assert written[name].get("rules") == thing.get("rules"), name


def test_the_plain_install_enforces_restricted_pods():
    first = plain()[0]
    assert first["kind"] == "Namespace"
    assert first["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


def test_the_plain_install_says_nothing_of_helm():
    text = PLAIN.read_text().replace("scripts/chart.py", "").lower()
    assert "helm" not in text
    assert not of_kind(plain(), "Pod")
