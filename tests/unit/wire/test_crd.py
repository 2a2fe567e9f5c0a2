"""The CustomResourceDefinition says what the model says."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from blockswarm_wire.crd import crd, schema
from blockswarm_wire.resource import Spec, Status
from blockswarm_wire.resource.part import REMEDIES, RULES

ROOT = Path(__file__).resolve().parents[3]
FILE = ROOT / "manifests" / "crds" / "blockservers.yaml"
SPEC = schema()["properties"]["spec"]
STATUS = schema()["properties"]["status"]


def test_the_file_is_that_of_a_new_run() -> None:
    spec = importlib.util.spec_from_file_location("crd_script", ROOT / "scripts" / "crd.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert FILE.read_text() == script.text(), "the definition is stale: run `make crd`"
    assert yaml.safe_load(FILE.read_text()) == crd()


def test_it_is_small_enough_for_kubectl_apply() -> None:
    # kubectl keeps the whole object in an annotation, which may have 256 KiB.
    assert FILE.stat().st_size < 200_000


@pytest.mark.parametrize(("model", "node"), [(Spec, SPEC), (Status, STATUS)])
def test_each_field_is_in_both_with_a_description_and_the_same_default(model, node) -> None:
    _compare(model, node, model.__name__)


def _compare(model: type[BaseModel], node: dict[str, Any], path: str) -> None:
    assert {field.alias or name for name, field in model.model_fields.items()} == node["properties"].keys(), (
        path
    )
    extra: Any = model.model_config.get("json_schema_extra") or {}
    required = {field.alias for field in model.model_fields.values() if field.is_required()}
    assert required == set(node.get("required", ())) | extra.get(REMEDIES, {}).keys(), path
    for name, field in model.model_fields.items():
        inner = node["properties"][field.alias or name]
        assert inner["description"], f"{path}.{name}"
        default = None if field.is_required() else field.get_default(call_default_factory=True)
        if isinstance(default, BaseModel):
            default = _without_empty(default.model_dump(by_alias=True, exclude_none=True))
            assert _without_empty(inner["default"]) == default, f"{path}.{name}"
        else:
            assert inner.get("default") == (None if default in ([], {}) else default), f"{path}.{name}"
        for part in _parts(field.annotation):
            _compare(part, inner.get("items", inner), f"{path}.{name}")


def _without_empty(value: dict[str, Any]) -> dict[str, Any]:
    inner = {key: _without_empty(one) if isinstance(one, dict) else one for key, one in value.items()}
    return {key: one for key, one in inner.items() if one not in ({}, [])}


def _parts(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in getattr(annotation, "__args__", ()):
        yield from _parts(argument)


def unbounded(node: dict[str, Any], path: str = "") -> Iterator[str]:
    """Paths of strings, lists and maps that could grow without end."""
    kind = node.get("type")
    if kind == "string" and not node.keys() & {"maxLength", "enum"}:
        yield path
    if kind == "array" and "maxItems" not in node:
        yield path
    if "additionalProperties" in node:
        if "maxProperties" not in node:
            yield path
        yield from unbounded(node["additionalProperties"], f"{path}.*")
    for name, inner in node.get("properties", {}).items():
        yield from unbounded(inner, f"{path}.{name}")
    if "items" in node:
        yield from unbounded(node["items"], f"{path}[]")


def test_everything_is_bounded() -> None:
    assert list(unbounded(SPEC)) == []
    assert list(unbounded(STATUS)) == []


def test_every_rule_has_a_message_and_points_at_a_field_that_exists() -> None:
    def walk(node: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, str]]]:
        for rule in node.get(RULES, ()):
            yield node, rule
        for inner in (*node.get("properties", {}).values(), *filter(None, [node.get("items")])):
            yield from walk(inner)

    rules = list(walk(schema()))
    assert len(rules) > 15
    for node, rule in rules:
        assert len(rule["message"]) > 20
        place = node
        for name in filter(None, rule.get("fieldPath", "").split(".")):
            place = place["properties"][name]


def test_scale_names_columns_and_status() -> None:
    (version,) = crd()["spec"]["versions"]
    scale = version["subresources"]["scale"]
    for path in scale.values():
        place = schema()
        for name in path.strip(".").split("."):
            place = place["properties"][name]
    names = [(column["name"].upper(), column["priority"]) for column in version["additionalPrinterColumns"]]
    assert [name for name, priority in names if priority == 0] == [
        "MODEL",
        "BLOCKS",
        "READY",
        "OCCUPANCY",
        "SESSIONS",
        "AGE",
    ]
    assert [name for name, priority in names if priority] == ["NODES", "REASON"]
    assert crd()["spec"]["names"]["shortNames"] == ["bs"]
    assert crd()["spec"]["names"]["categories"] == ["blockswarm"]
