"""The CustomResourceDefinition of BlockServer, made from the resource's model. Pure."""

from collections.abc import Mapping
from typing import Any

from blockswarm_wire.resource import API_VERSION, KIND, Spec, Status
from blockswarm_wire.resource.part import PATTERN_MESSAGE, REMEDIES, RULES

GROUP, _, VERSION = API_VERSION.partition("/")
PLURAL = "blockservers"

_NAME_MESSAGE = (
    "metadata.name: must have at most 50 characters of a-z, 0-9 and -, and start with a letter, "
    "since a Service and pods are named after it; choose another name"
)
_COLUMNS = (
    ("Model", "string", ".spec.model.name", "Label of the model.", 0),
    ("Blocks", "string", ".status.blocks", "Range of blocks.", 0),
    ("Ready", "string", ".status.ready", "Ready and wanted servers.", 0),
    ("Occupancy", "string", ".status.kv.occupancy", "Promised part of the KV caches.", 0),
    ("Sessions", "integer", ".status.sessions", "Open sessions.", 0),
    ("Age", "date", ".metadata.creationTimestamp", "Time since the creation.", 0),
    ("Nodes", "string", ".status.nodes", "Nodes of the pods.", 1),
    ("Reason", "string", ".status.reason", "Reason of the condition that is worst.", 1),
)

# Keys of a JSON schema that mean the same in a structural schema.
_SAME = (
    "type", "format", "description", "enum", "pattern", "minimum", "maximum", "minLength", "maxLength", "minItems",
    "maxItems", "maxProperties", "x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-list-type", "x-kubernetes-list-map-keys", RULES,
)  # fmt: skip


def crd() -> dict[str, Any]:
    """The whole definition, ready to be written as YAML."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{PLURAL}.{GROUP}",
            "labels": {"app.kubernetes.io/name": "blockswarm", "app.kubernetes.io/part-of": "blockswarm"},
        },
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": ["bs"],
                "categories": ["blockswarm"],
            },
            "versions": [_version()],
        },
    }


def _version() -> dict[str, Any]:
    return {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema()},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
        "additionalPrinterColumns": [
            {"name": name, "type": type_, "jsonPath": path, "description": text, "priority": priority}
            for name, type_, path, text, priority in _COLUMNS
        ],
    }


def schema() -> dict[str, Any]:
    """The structural schema of the resource."""
    return {
        "type": "object",
        "description": "A wish for servers of one span of transformer blocks of one model.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": "Version of the resource's form."},
            "kind": {"type": "string", "description": "Kind of the resource."},
            # The API server lets nothing else be said about it here.
            "metadata": {"type": "object"},
            "spec": _structural(Spec.model_json_schema(by_alias=True)),
            "status": _structural(Status.model_json_schema(by_alias=True)),
        },
        RULES: [
            {
                "rule": "self.metadata.name.matches('^[a-z]([-a-z0-9]{0,48}[a-z0-9])?$')",
                "message": _NAME_MESSAGE,
            }
        ],
    }


def _structural(root: Mapping[str, Any]) -> dict[str, Any]:
    return _Converter(root.get("$defs", {})).convert(root, "")


class _Converter:
    """From pydantic's JSON schema: references are written out, and null goes, since absent says the same."""

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self._definitions = definitions

    def convert(self, source: Mapping[str, Any], path: str) -> dict[str, Any]:
        node = self._resolve(source)
        known = {key: node[key] for key in _SAME if key in node}
        if "const" in node:
            known["enum"] = [node["const"]]
        if PATTERN_MESSAGE in node:
            # A rule in the place of the pattern, since "should match '^...$'" tells nobody what to do.
            known[RULES] = [_match(known.pop("pattern"), node[PATTERN_MESSAGE], path)]
        known.update(_bounds(node))
        if "properties" in node:
            self._object(node, known, path)
        elif isinstance(node.get("additionalProperties"), Mapping):
            known["additionalProperties"] = self.convert(node["additionalProperties"], f"{path}.*")
        elif "items" in node:
            known["items"] = self.convert(node["items"], f"{path}[]")
        if "x-kubernetes-int-or-string" in node:
            known["anyOf"] = [{"type": "integer"}, {"type": "string"}]
        elif "type" not in known:
            raise ValueError(f"{path}: a structural schema needs a type; give the field one")
        return dict(sorted(known.items(), key=lambda item: _ORDER.get(item[0], len(_ORDER))))

    def _object(self, node: Mapping[str, Any], known: dict[str, Any], path: str) -> None:
        known["properties"] = {
            name: self._property(field, f"{path}.{name}") for name, field in node["properties"].items()
        }
        if node.get("additionalProperties") is True:
            known["x-kubernetes-preserve-unknown-fields"] = True
        remedies = node.get(REMEDIES, {})
        required = [name for name in node.get("required", ()) if name not in remedies]
        if required:
            known["required"] = required
        asked = [_presence(name, message) for name, message in remedies.items()]
        if asked or node.get(RULES):
            known[RULES] = [*asked, *(_in_order(one) for one in node.get(RULES, ()))]

    def _property(self, field: Mapping[str, Any], path: str) -> dict[str, Any]:
        converted = self.convert(field, path)
        if not converted.get("description"):
            raise ValueError(f"{path}: has no description; write a docstring below the field")
        default = field.get("default")
        if converted.get("properties") and default is not None:
            # Written out: the API server checks a default by the rules before it fills in the defaults of its fields.
            inner = converted["properties"].items()
            converted["default"] = {name: one["default"] for name, one in inner if "default" in one}
        elif default not in (None, [], {}):
            converted["default"] = default
        return converted

    def _resolve(self, field: Mapping[str, Any]) -> dict[str, Any]:
        """The field with its reference written out and without its null; its own words come first."""
        own = dict(field)
        while True:
            if "x-kubernetes-int-or-string" in own:
                return own
            options = [one for one in own.pop("anyOf", ()) if one.get("type") != "null"]
            if len(options) > 1:
                raise ValueError(f"a structural schema knows no choice between types: {options}")
            reference = own.pop("$ref", None)
            if reference is not None:
                options.append(self._definitions[reference.rpartition("/")[2]])
            if not options:
                return own
            own = {**options[0], **own}


def _bounds(node: Mapping[str, Any]) -> dict[str, Any]:
    """Bounds of numbers as OpenAPI v3.0 writes them; the format follows the bounds."""
    found: dict[str, Any] = {}
    if node.get("type") != "integer":
        return found
    low, high = node.get("minimum"), node.get("maximum")
    if "exclusiveMinimum" in node:
        low = node["exclusiveMinimum"] + 1
    if "exclusiveMaximum" in node:
        high = node["exclusiveMaximum"] - 1
    if low is None or high is None:
        raise ValueError(f"numbers need both bounds: {node}")
    wide = max(abs(low), abs(high)) >= 2**31
    return {"minimum": low, "maximum": high, "format": "int64" if wide else "int32"}


def _in_order(rule: Mapping[str, str]) -> dict[str, str]:
    return {key: rule[key] for key in ("rule", "message", "fieldPath", "reason") if key in rule}


def _match(pattern: str, message: str, path: str) -> dict[str, str]:
    return {
        "rule": f"self.matches(r'{pattern}')",
        "message": f"{path.rpartition('.')[2].removesuffix('[]')}: {message}",
    }


def _presence(field: str, message: str) -> dict[str, str]:
    return {
        "rule": f"has(self.{field})",
        "message": message,
        "fieldPath": f".{field}",
        "reason": "FieldValueRequired",
    }


_ORDER = {
    key: place
    for place, key in enumerate(
        ("type", "format", "description", "default", "enum", "required", "properties")
    )
}
