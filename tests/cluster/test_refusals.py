"""A wrong BlockServer is refused when it is applied, and the message names the field and the remedy."""

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from block_server_cases import (
    BOUND,
    CHANGES,
    EXISTING,
    FIXED,
    GONE,
    KEPT,
    RIGHT,
    SMALL,
    WRONG,
    Manifest,
    changed,
    existing,
)
from kube.kubectl import CommandError, Kubectl

ROOT = Path(__file__).resolve().parents[2]
CRD = ROOT / "manifests" / "crds" / "blockservers.yaml"
SAMPLES = [
    path
    for path in sorted((ROOT / "manifests" / "samples").glob("*.yaml"))
    if "kind: BlockServer" in path.read_text()
]
_DEFINITION = "blockservers.blockswarm.io"


def _label(value: Any) -> str:
    return "gone" if value is GONE else json.dumps(value)[:40]


def _ids(table: list[Any], first: int) -> list[str]:
    return [f"{'-'.join(map(str, row[: first + 1]))}={_label(row[first + 1])}" for row in table]


@pytest.fixture(scope="module")
def namespace(kubectl: Kubectl) -> Iterator[Kubectl]:
    name = f"refusals-{uuid.uuid4().hex[:6]}"
    # Where the chart is installed, the definition is the chart's.
    own_definition = kubectl.find("crd", _DEFINITION) is None
    try:
        if own_definition:
            kubectl.apply(yaml.safe_load(CRD.read_text()))
        kubectl.run("wait", "--for=condition=Established", f"crd/{_DEFINITION}", "--timeout=30s")
        kubectl.run("create", "namespace", name)
        within = kubectl.within(name)
        within.apply(*map(existing, EXISTING))
        yield within
    finally:
        kubectl.delete("namespace", name, wait=own_definition)
        if own_definition:
            kubectl.delete("crd", _DEFINITION)


def _try(kubectl: Kubectl, manifest: Manifest) -> str | None:
    """Apply without keeping; the refusal's text, None when it was taken."""
    try:
        kubectl.run("apply", "--dry-run=server", "-f", "-", stdin=json.dumps(manifest))
    except CommandError as error:
        return error.said
    return None


def _assert_refused(refusal: str | None, texts: list[str]) -> None:
    assert refusal is not None, "it was taken"
    for text in texts:
        assert text in refusal


@pytest.mark.parametrize(("path", "value", "texts"), WRONG, ids=_ids(WRONG, 0))
def test_a_wrong_one_is_refused(namespace: Kubectl, path: str, value: Any, texts: list[str]) -> None:
    _assert_refused(_try(namespace, changed(SMALL, (path, value))), texts)


@pytest.mark.parametrize(("path", "value"), RIGHT, ids=_ids(RIGHT, 0))
def test_a_right_one_is_taken(namespace: Kubectl, path: str, value: Any) -> None:
    assert _try(namespace, changed(SMALL, (path, value))) is None


@pytest.mark.parametrize(("name", "path", "value", "field"), FIXED, ids=_ids(FIXED, 1))
def test_what_sessions_are_bound_to_stays(
    namespace: Kubectl, name: str, path: str, value: Any, field: str
) -> None:
    refusal = _try(namespace, changed(existing(name), (path, value)))
    _assert_refused(refusal, [f"{field}: ", BOUND, "delete this one when it is Ready"])


@pytest.mark.parametrize(("name", "path", "value", "texts"), KEPT, ids=_ids(KEPT, 1))
def test_a_change_to_a_wrong_one_is_refused(
    namespace: Kubectl, name: str, path: str, value: Any, texts: list[str]
) -> None:
    _assert_refused(_try(namespace, changed(existing(name), (path, value))), texts)


@pytest.mark.parametrize(("name", "path", "value"), CHANGES, ids=_ids(CHANGES, 1))
def test_other_changes_are_taken(namespace: Kubectl, name: str, path: str, value: Any) -> None:
    assert _try(namespace, changed(existing(name), (path, value))) is None


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_samples_are_taken_unless_they_are_for_local_mode(namespace: Kubectl, sample: Path) -> None:
    for document in yaml.safe_load_all(sample.read_text()):
        refusal = _try(namespace, document)
        if "path" in document["spec"].get("model", {}).get("source", {}):
            _assert_refused(refusal, ["spec.model.source.path", "no meaning in a cluster"])
        else:
            assert refusal is None


def test_defaults_are_filled_in_and_every_field_is_explained(namespace: Kubectl) -> None:
    spec = namespace.get("bs", "plain")["spec"]
    assert (spec["dtype"], spec["quantization"], spec["drainSeconds"], spec["restart"]) == (
        "float32",
        "none",
        60,
        "",
    )
    assert spec["cache"] == {"tokens": 16384}
    assert spec["compute"] == {"device": "cpu"}
    assert spec["update"] == {"allowGap": False}
    assert spec["pod"] == {"resources": {}, "unreachableSeconds": 30}
    assert "Capacity in tokens" in namespace.run("explain", "bs.spec.cache.tokens")


def test_scale_and_columns(namespace: Kubectl) -> None:
    path = f"/apis/blockswarm.io/v1alpha1/namespaces/{namespace.namespace}/blockservers/plain/scale"
    assert json.loads(namespace.run("get", "--raw", path))["kind"] == "Scale"
    assert "scaled" in namespace.run("scale", "bs/plain", "--replicas=2", "--dry-run=server")
    head = namespace.run("get", "blockswarm", "-o", "wide").splitlines()[0].split()
    assert head == ["NAME", "MODEL", "BLOCKS", "READY", "OCCUPANCY", "SESSIONS", "AGE", "NODES", "REASON"]
