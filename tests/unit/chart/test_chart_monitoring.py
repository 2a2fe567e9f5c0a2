"""Monitors, rules and dashboards: where they are wanted and the cluster can take them."""

import pytest
import yaml
from rendering import CHART, MONITORING, NAMESPACE, of_kind, one, render, variant

MONITORS = ["PodMonitor", "ServiceMonitor", "PrometheusRule"]


@pytest.mark.parametrize(
    ("enabled", "apis", "there"),
    [
        ("auto", (), False),
        ("auto", MONITORING, True),
        (True, (), True),
        ("true", (), True),
        (False, MONITORING, False),
        ("false", MONITORING, False),
    ],
)
def test_monitors_come_where_they_are_wanted_and_possible(enabled, apis, there):
    values = {part: {"enabled": enabled} for part in ("podMonitor", "serviceMonitor", "rules", "dashboards")}
    things = render(variant({"monitoring": values}, *apis))
    assert bool(of_kind(things, "PodMonitor")) is there
    assert len(of_kind(things, "ServiceMonitor")) == (2 if there else 0)
    assert len(of_kind(things, "ConfigMap")) == (len(list(CHART.glob("dashboards/*.json"))) if there else 0)
    assert bool(of_kind(things, "PrometheusRule")) is (there and bool(list(CHART.glob("rules/*.yaml"))))


def test_monitors_take_the_labels_by_which_a_prometheus_selects_them():
    labels = {"release": "prometheus"}
    parts = {
        part: {"labels": labels, "namespace": "monitoring"}
        for part in ("podMonitor", "serviceMonitor", "rules")
    }
    things = render(variant({"monitoring": parts}, *MONITORING))
    for thing in of_kind(things, *MONITORS):
        assert thing["metadata"]["labels"]["release"] == "prometheus"
        assert thing["metadata"]["namespace"] == "monitoring"
    for monitor in of_kind(things, "ServiceMonitor"):
        assert monitor["spec"]["namespaceSelector"] == {"matchNames": [NAMESPACE]}


def test_server_pods_are_scraped_where_the_operator_makes_them():
    everywhere = one(render(variant({}, *MONITORING)), "PodMonitor", "blockswarm-servers")["spec"]
    assert everywhere["namespaceSelector"] == {"any": True}
    some = one(render(variant({"watchNamespaces": ["a"]}, *MONITORING)), "PodMonitor", "blockswarm-servers")[
        "spec"
    ]
    assert some["namespaceSelector"] == {"matchNames": ["a"]}


def test_the_operators_namespaces_are_not_overwritten_by_its_own():
    monitor = one(render(variant({}, *MONITORING)), "ServiceMonitor", "blockswarm-operator")
    assert all(endpoint["honorLabels"] for endpoint in monitor["spec"]["endpoints"])


def test_the_rules_are_those_of_the_files():
    files = sorted(CHART.glob("rules/*.yaml"))
    [rule] = of_kind(render(variant({}, *MONITORING)), "PrometheusRule")
    written = [group for file in files for group in yaml.safe_load(file.read_text())["groups"]]
    assert rule["spec"]["groups"] == written != []


def test_dashboards_reach_grafanas_sidecar_unchanged():
    values = {"monitoring": {"dashboards": {"labels": {"mine": "1"}, "annotations": {"folder": "LLM"}}}}
    maps = of_kind(render(variant(values, *MONITORING)), "ConfigMap")
    assert len(maps) == len(list(CHART.glob("dashboards/*.json")))
    for thing in maps:
        assert thing["metadata"]["labels"]["mine"] == "1"
        assert thing["metadata"]["annotations"]["folder"] == "LLM"
        for name, text in thing["data"].items():
            assert text == (CHART / "dashboards" / name).read_text().strip()
