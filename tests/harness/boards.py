"""The dashboards and alert rules as tests see them: their expressions, and the series that our processes export."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml
from prometheus_client import CollectorRegistry

CHART = Path(__file__).parents[2] / "charts" / "blockswarm"
DASHBOARDS = {path.stem: path for path in sorted((CHART / "dashboards").glob("*.json"))}
RULES = CHART / "rules" / "blockswarm.yaml"

# What service discovery adds to every series.
TARGET_LABELS = frozenset({"namespace", "pod", "instance", "job"})

_SERIES = re.compile(r"\b(blockswarm_\w+)(?:\{([^}]*)\})?")
_MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
_SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}


@dataclass(frozen=True, slots=True)
class Selector:
    """One series in an expression. `matchers`: (label, operator, value)."""

    name: str
    matchers: tuple[tuple[str, str, str], ...]


@dataclass(slots=True)
class Exported:
    """One series that a process exports: the labels that it has, and the label sets that are known."""

    labels: set[str] = field(default_factory=set)
    samples: list[Mapping[str, str]] = field(default_factory=list)


def load(name: str) -> dict[str, Any]:
    """A dashboard by its file's name without ending."""
    board: dict[str, Any] = json.loads(DASHBOARDS[name].read_text())
    return board


def panels(board: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The panels that show something; rows are left out."""
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def expressions(board: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(panel and target, expression) of every target."""
    for panel in panels(board):
        for target in panel["targets"]:
            yield f"{panel['title']} {target['refId']}", target["expr"]


def rules() -> list[dict[str, Any]]:
    """Every rule of the rule file."""
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def substituted(expression: str, **variables: str) -> str:
    """The expression with Grafana's variables filled in."""
    for name, value in variables.items():
        expression = expression.replace(f"${name}", value)
    return expression


def selectors(expression: str) -> Iterator[Selector]:
    """The series of ours that an expression names."""
    for name, inside in _SERIES.findall(expression):
        yield Selector(name, tuple(_MATCHER.findall(inside)))


def exported() -> dict[str, Exported]:
    """Series name → what is known of it, over servers, directories and the operator."""
    found: dict[str, Exported] = {}
    for registry in (_server(), _directory(), _operator()):
        for name, labels in _samples(registry):
            entry = found.setdefault(name, Exported())
            entry.labels |= labels.keys()
            entry.samples.append(labels)
    return found


def _samples(registry: CollectorRegistry) -> Iterator[tuple[str, Mapping[str, str]]]:
    for family in registry.collect():
        names = {family.name + suffix for suffix in _SUFFIXES.get(family.type, ("",))}
        for sample in family.samples:
            if sample.name in names:
                yield sample.name, sample.labels


def _server() -> CollectorRegistry:
    from blockswarm_services.server.legs import Legs
    from blockswarm_services.server.metrics import Metrics
    from blockswarm_wire.record import State

    metrics = Metrics(lambda: State.ONLINE)
    metrics.watch(Legs(1, 1, 1), 1, lambda: 0)
    metrics.info.labels("tiny", "0:1", "float32", "cpu", "0").set(1)
    return metrics.registry


def _directory() -> CollectorRegistry:
    from blockswarm_services.directory.metrics import DirectoryMetrics

    node: Any = SimpleNamespace(connected=0, missing_peers=0, stored_keys=0)
    store = SimpleNamespace(size=lambda: 0, coverage=lambda now: {"tiny-00000000": [1]})
    mirror: Any = SimpleNamespace(watchers=0, store=store)
    return DirectoryMetrics(mirror, node).registry


def _operator() -> CollectorRegistry:
    from blockswarm_operator.conditions import TYPES
    from blockswarm_operator.metrics import Metrics

    metrics = Metrics()
    metrics.api_requests.labels("patch", "pods", "200").inc()
    metrics.show_coverage(("models", "0123456789"), "tiny", {0: 1})
    metrics.show_replicas("models", "tiny-0", wanted=1, online=1)
    conditions: Iterable[Mapping[str, str]] = [{"type": type_, "status": "True"} for type_ in TYPES]
    metrics.show_conditions("models", "tiny-0", conditions)
    return metrics.registry
