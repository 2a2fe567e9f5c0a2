"""The chart as helm renders it, for tests: no cluster is asked."""

import functools
import importlib.util
import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
CHART = ROOT / "charts" / "blockswarm"
NAMESPACE = "blockswarm-system"
MONITORING = ("monitoring.coreos.com/v1",)
DIGEST = "sha256:" + "0123456789abcdef" * 4

Manifest = dict[str, Any]


def variant(values: Mapping[str, Any] | None = None, *apis: str) -> tuple[str, tuple[str, ...]]:
    """A hashable choice of values and of the APIs that the cluster has."""
    return json.dumps(values or {}, sort_keys=True), apis


_CLAIM = {"persistentVolumeClaim": {"claimName": "smollm2"}}
_SOMEWHERE = {"nodeSelector": {"pool": "control"}, "tolerations": [{"operator": "Exists"}]}
# What people set, each of it alone and much of it at once.
VARIANTS = {
    "defaults": variant(),
    "some namespaces": variant({"watchNamespaces": ["models", "more-models"]}),
    "monitoring where it is": variant({}, *MONITORING),
    "monitoring forced": variant(
        {
            "monitoring": {
                part: {"enabled": True} for part in ("podMonitor", "serviceMonitor", "rules", "dashboards")
            }
        }
    ),
    "no network policies": variant({"networkPolicy": {"enabled": False}}),
    "no CRD": variant({"crds": {"enabled": False}}),
    "CRD goes with the release": variant({"crds": {"keep": False}}),
    "digests": variant({part: {"image": {"digest": DIGEST}} for part in ("operator", "server", "client")}),
    "mirror": variant({"global": {"imageRegistry": "mirror.test", "imagePullSecrets": ["mirror"]}}),
    "persistent": variant({"directory": {"persistence": {"enabled": True, "storageClassName": "fast"}}}),
    "directory elsewhere": variant({"directory": {"enabled": False, "target": "dns:///far.example:4000"}}),
    "test with a model": variant({"test": {"model": "/model", "namespace": "models", "volume": _CLAIM}}),
    "other service accounts": variant(
        {
            "operator": {"serviceAccount": {"create": False, "name": "mine"}},
            "directory": {"serviceAccount": {"create": False}},
        }
    ),
    "much at once": variant(
        {
            "fullnameOverride": "swarm",
            "watchNamespaces": ["models"],
            "operator": {"podLabels": {"team": "a"}, "podAnnotations": {"b": "c"}, **_SOMEWHERE},
            "directory": {"persistence": {"enabled": True}, "replicas": 5, **_SOMEWHERE},
            "test": {"model": "some/repo", **_SOMEWHERE},
            "networkPolicy": {
                "clientsFrom": [{"namespaceSelector": {}}],
                "dhtFrom": [{"ipBlock": {"cidr": "10.0.0.0/8"}}],
                "metricsFrom": [{"namespaceSelector": {"matchLabels": {"monitoring": "yes"}}}],
            },
        },
        *MONITORING,
    ),
}


def helm(*words: str) -> subprocess.CompletedProcess[str]:
    """Run helm. Where there is none the test is skipped with the reason."""
    done = subprocess.run([ROOT / "scripts" / "helm", *words], capture_output=True, text=True, timeout=60)
    if done.returncode == 127:
        pytest.skip(done.stderr.strip())
    return done


@functools.cache
def output(chosen: tuple[str, tuple[str, ...]], *words: str, chart: Path = CHART) -> str:
    """What `helm template` prints."""
    values, apis = chosen
    words = (
        "template",
        "blockswarm",
        str(chart),
        "--namespace",
        NAMESPACE,
        "--kube-version",
        "1.34.0",
        *words,
    )
    given = [f"--set-json={key}={json.dumps(value)}" for key, value in json.loads(values).items()]
    done = helm(*words, *given, *(f"--api-versions={api}" for api in apis))
    assert done.returncode == 0, done.stderr
    return done.stdout


@functools.cache
def render(chosen: tuple[str, tuple[str, ...]], *words: str) -> list[Manifest]:
    """The objects that the chart renders. Everybody gets the same ones: do not change them."""
    return [thing for thing in yaml.load_all(output(chosen, *words), Loader=yaml.CSafeLoader) if thing]


def refusal(values: Mapping[str, Any], *words: str) -> str:
    """What helm says about values that it must refuse."""
    given = [f"--set-json={key}={json.dumps(value)}" for key, value in values.items()]
    done = helm("template", "blockswarm", str(CHART), "--kube-version", "1.34.0", *given, *words)
    assert done.returncode != 0, f"{values} was not refused"
    return done.stderr


def of_kind(things: Sequence[Manifest], *kinds: str) -> list[Manifest]:
    """The objects of some kinds."""
    return [thing for thing in things if thing["kind"] in kinds]


def one(things: Sequence[Manifest], kind: str, name: str) -> Manifest:
    """The object of that kind and name."""
    found = [thing for thing in of_kind(things, kind) if thing["metadata"]["name"] == name]
    assert len(found) == 1, f"{len(found)} objects {kind} {name}"
    return found[0]


def pods(things: Sequence[Manifest]) -> Iterator[tuple[str, Manifest]]:
    """("Kind/name", {metadata, spec}) of everything that makes pods, and of bare pods."""
    for thing in things:
        where = f"{thing['kind']}/{thing['metadata']['name']}"
        if thing["kind"] == "Pod":
            yield where, {"metadata": thing["metadata"], "spec": thing["spec"]}
        elif "template" in (thing.get("spec") or {}):
            yield where, thing["spec"]["template"]


def container(things: Sequence[Manifest], kind: str, name: str) -> Manifest:
    """The only container of a workload."""
    found = one(things, kind, name)
    spec = found["spec"] if kind == "Pod" else found["spec"]["template"]["spec"]
    [only] = spec["containers"]
    return only


def environment(container: Manifest) -> dict[str, Any]:
    """Variable → value, or where it comes from."""
    return {item["name"]: item.get("value", item.get("valueFrom")) for item in container["env"]}


def script() -> ModuleType:
    """scripts/chart.py, which writes what is derived from the chart."""
    spec = importlib.util.spec_from_file_location("chart", ROOT / "scripts" / "chart.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
