"""values.yaml, its schema and its documentation agree, and mistakes are refused by name."""

import json

import pytest
import yaml
from rendering import CHART, helm, refusal, render, script, variant


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"oprator": {}}, ["oprator"]),
        ({"operator": {"replica": 1}}, ["replica"]),
        ({"operator": {"replicas": -1}}, ["operator", "replicas"]),
        ({"operator": {"replicas": "two"}}, ["replicas", "integer"]),
        ({"operator": {"logLevel": "loud"}}, ["logLevel"]),
        ({"operator": {"image": {"tag": "latest"}}}, ["tag"]),
        ({"operator": {"image": {"digest": "sha1:00"}}}, ["digest"]),
        ({"operator": {"image": {"pullPolicy": "Sometimes"}}}, ["pullPolicy"]),
        ({"operator": {"image": {"repository": ""}}}, ["repository"]),
        ({"operator": {"leaseName": "Not a name"}}, ["leaseName"]),
        ({"operator": {"extraEnv": {"A": "b"}}}, ["extraEnv", "array"]),
        ({"operator": {"resources": {"limit": {}}}}, ["limit"]),
        ({"operator": {"tolerations": ["all"]}}, ["tolerations"]),
        ({"operator": {"nodeSelector": {"gpu": True}}}, ["nodeSelector"]),
        ({"directory": {"replicas": 0}}, ["directory", "replicas"]),
        ({"directory": {"persistence": {"size": "much"}}}, ["size"]),
        ({"directory": {"persistence": {"accessModes": []}}}, ["accessModes"]),
        ({"directory": {"enabled": "yes"}}, ["enabled", "boolean"]),
        ({"watchNamespaces": "models"}, ["watchNamespaces", "array"]),
        ({"watchNamespaces": ["models", "models"]}, ["watchNamespaces"]),
        ({"watchNamespaces": ["Models"]}, ["watchNamespaces"]),
        ({"imagePullSecrets": [{"name": "x"}]}, ["imagePullSecrets"]),
        ({"crds": {"keeps": True}}, ["keeps"]),
        ({"monitoring": {"podMonitor": {"enabled": "maybe"}}}, ["podMonitor", "enabled"]),
        ({"monitoring": {"podMonitor": {"interval": "often"}}}, ["interval"]),
        ({"networkPolicy": {"apiServerPorts": []}}, ["apiServerPorts"]),
        ({"networkPolicy": {"apiServerPorts": [70000]}}, ["apiServerPorts"]),
        ({"test": {"maxNewTokens": 0}}, ["maxNewTokens"]),
        ({"test": {"prompt": ""}}, ["prompt"]),
    ],
)
def test_a_mistake_is_refused_and_named(values, words):
    said = refusal(values)
    assert all(word in said for word in words), said


def test_a_directory_must_be_there_or_be_named():
    assert "directory.target" in refusal({"directory": {"enabled": False}})


def test_a_parent_chart_may_add_its_own():
    assert render(variant({"enabled": True, "global": {"storageClass": "fast"}}))


def leaves(values, prefix=()):
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, (*prefix, key))
        else:
            yield (*prefix, key)


def test_the_schema_knows_every_value_and_no_other():
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())

    def resolved(part):
        return schema["definitions"][part["$ref"].rpartition("/")[2]] if "$ref" in part else part

    def known(part, prefix=()):
        for key, below in part.get("properties", {}).items():
            below = resolved(below)
            yield (*prefix, key)
            yield from known(below, (*prefix, key))

    in_schema = set(known(schema))
    free = {"requests", "limits", "claims"}
    listed = {path[:depth] for path in leaves(values) for depth in range(1, len(path) + 1)}
    typed = {
        path for path in listed if not free & set(path) and not {"labels", "annotations"} & set(path[:-1])
    }
    assert typed <= in_schema | {path for path in typed if path[-2:-1] == ("resources",)}
    assert in_schema - listed <= {("enabled",)} | {path for path in in_schema if free & set(path)}


def test_every_object_of_the_schema_refuses_unknown_keys_but_those_that_others_fill():
    schema = json.loads((CHART / "values.schema.json").read_text())

    def objects(part, path=()):
        if part.get("properties"):
            yield path, part
        for key, below in [*part.get("properties", {}).items(), *part.get("definitions", {}).items()]:
            yield from objects(below, (*path, key))

    open_ones = [path for path, part in objects(schema) if part.get("additionalProperties") is not False]
    assert open_ones == [("global",)]


def test_every_value_has_a_comment():
    found = {name: meaning for name, _, meaning in script().values()}
    assert len(found) > 80
    for name, meaning in found.items():
        assert meaning, f"{name} has no comment"
        assert meaning.endswith("."), f"{name}: {meaning}"


def test_no_value_is_without_effect():
    """Every value is named in some template."""
    text = "".join(path.read_text() for path in (CHART / "templates").rglob("*") if path.is_file())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    for path in leaves(values):
        if {"requests", "limits", "labels", "annotations"} & set(path[:-1]):
            continue
        assert f".{path[-1]}" in text, ".".join(path)


def test_values_of_the_chart_pass_its_own_schema():
    done = helm("lint", "--strict", "--kube-version", "1.34.0", str(CHART), "-f", str(CHART / "values.yaml"))
    assert done.returncode == 0, done.stdout
