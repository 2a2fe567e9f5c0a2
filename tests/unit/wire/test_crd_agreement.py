"""What the reader takes and what the schema of the API server takes are the same, field by field and case by case."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from block_server_cases import CHANGES, EXISTING, FULL_POD, KEPT, RIGHT, SMALL, WRONG, changed, existing
from blockswarm_wire.crd import schema
from blockswarm_wire.resource import BlockServer

SPEC = schema()["properties"]["spec"]

VOLUMES = {
    "persistentVolumeClaim": {"claimName": "demo", "readOnly": True},
    "image": {"reference": "registry.example/demo:1", "pullPolicy": "Always"},
    "nfs": {"server": "nas", "path": "/demo", "readOnly": True},
    "hostPath": {"path": "/demo", "type": "Directory"},
    "csi": {"driver": "example.org"},
    "ephemeral": {"volumeClaimTemplate": {}},
    "azureFile": {"shareName": "demo"},
    "fc": {"wwids": ["1"]},
    "iscsi": {"lun": 0},
}
MOUNT = {"name": "data", "mountPath": "/data", "readOnly": True, "recursiveReadOnly": "Disabled"}
# Together they set every field there is.
DOCUMENTS = [
    changed(
        SMALL,
        ("spec.blocks", {"start": 0, "end": 4096}),
        ("spec.dtype", "bfloat16"),
        ("spec.quantization", "none"),
        (
            "spec.model.source.hub",
            {"repo": "a/b", "revision": "main", "tokenSecret": {"name": "s", "key": "k"}},
        ),
        ("spec.compute", {"device": "cuda", "threads": 2, "gpu": {"resource": "nvidia.com/gpu", "count": 2}}),
        ("spec.cache", {"tokens": 5, "volume": {"emptyDir": {"medium": "Memory"}}}),
        ("spec.drainSeconds", 5),
        ("spec.update", {"allowGap": True}),
        ("spec.restart", "now"),
        ("spec.pod", FULL_POD),
        ("spec.pod.affinity", {"nodeAffinity": {}, "podAffinity": {}, "podAntiAffinity": {}}),
        (
            "spec.pod.volumeMounts",
            [{**MOUNT, "mountPropagation": "None", "subPath": "a", "subPathExpr": "$(A)"}],
        ),
        (
            "spec.pod.topologySpreadConstraints",
            [
                {
                    "maxSkew": 1,
                    "topologyKey": "zone",
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {},
                    "matchLabelKeys": ["a"],
                    "minDomains": 2,
                    "nodeAffinityPolicy": "Honor",
                    "nodeTaintsPolicy": "Honor",
                }
            ],
        ),
    ),
    *(
        changed(SMALL, ("spec.model.source", {"volume": {"subPath": "a", name: source}}))
        for name, source in VOLUMES.items()
    ),
    *(
        changed(SMALL, ("spec.cache.volume", {"subPath": "a", name: source}))
        for name, source in VOLUMES.items()
        if name != "image"
    ),
]


def read(document: Any) -> BlockServer:
    server = BlockServer.model_validate(document)
    server.spec.check_for_cluster()
    return server


def taken(document: Any) -> bool:
    try:
        read(document)
    except ValueError:
        return False
    return True


def fits(value: Any, node: dict[str, Any]) -> bool:
    """Whether the API server's schema takes a value; of its rules, only those of texts are asked."""
    if "x-kubernetes-int-or-string" in node:
        return isinstance(value, str) or type(value) is int
    if node["type"] == "integer":
        return type(value) is int and node["minimum"] <= value <= node["maximum"]
    if node["type"] == "string":
        return isinstance(value, str) and _fits_text(value, node)
    if node["type"] == "array":
        return (
            isinstance(value, list)
            and len(value) <= node["maxItems"]
            and all(fits(one, node["items"]) for one in value)
        )
    if node["type"] == "boolean":
        return isinstance(value, bool)
    return isinstance(value, dict) and _fits_object(value, node)


def _fits_text(value: str, node: dict[str, Any]) -> bool:
    long_enough = node.get("minLength", 0) <= len(value) <= node.get("maxLength", len(value))
    return (
        long_enough and value in node.get("enum", [value]) and bool(re.search(node.get("pattern", ""), value))
    )


def _fits_object(value: dict[str, Any], node: dict[str, Any]) -> bool:
    if "additionalProperties" in node:
        values = all(fits(one, node["additionalProperties"]) for one in value.values())
        return values and len(value) <= node["maxProperties"]
    known = node.get("properties", {})
    if not set(node.get("required", ())) <= value.keys():
        return False
    if not (value.keys() <= known.keys() or node.get("x-kubernetes-preserve-unknown-fields")):
        return False
    return all(fits(one, known[name]) for name, one in value.items() if name in known)


def leaves(
    value: Any, node: dict[str, Any], path: tuple[Any, ...] = ()
) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """(path, schema) of each part of a value that the schema describes."""
    yield path, node
    if isinstance(value, dict):
        for name, one in node.get("properties", {}).items():
            if name in value:
                yield from leaves(value[name], one, (*path, name))
    elif isinstance(value, list):
        for place, one in enumerate(value):
            yield from leaves(one, node["items"], (*path, place))


def put(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy of nested dicts and lists with another value at a path."""
    if not path:
        return value
    copy = list(document) if isinstance(document, list) else dict(document)
    copy[path[0]] = put(document[path[0]], path[1:], value)
    return copy


# Each field once: (number of the document that sets it, path, schema).
PLACES = list(
    {
        tuple(0 if isinstance(part, int) else part for part in path): (number, path, node)
        for number, document in reversed(list(enumerate(DOCUMENTS)))
        for path, node in leaves(document["spec"], SPEC)
        if path
    }.values()
)


def test_the_documents_of_this_test_set_every_field() -> None:
    def names(node: dict[str, Any], path: str) -> Iterator[str]:
        yield path
        for name, inner in node.get("properties", {}).items():
            yield from names(inner, f"{path}.{name}")
        if "items" in node:
            yield from names(node["items"], f"{path}.0")

    found = {
        ".".join(("", *("0" if isinstance(part, int) else part for part in path))) for _, path, _ in PLACES
    }
    assert set(names(SPEC, "")) - found - {""} == {".model.source.path"}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: "")
def test_the_documents_of_this_test_are_right(document) -> None:
    read(document)
    assert fits(document["spec"], SPEC)


@pytest.mark.parametrize(
    ("number", "path", "node"),
    [place for place in PLACES if place[2].get("type") in ("integer", "string")],
    ids=lambda value: ".".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_bounds_and_types_are_the_same(number, path, node) -> None:
    document = DOCUMENTS[number]

    def verdicts(value: Any) -> tuple[bool, bool]:
        changed_spec = put(document["spec"], path, value)
        return fits(changed_spec, SPEC), taken({**document, "spec": changed_spec})

    if node["type"] == "integer":
        assert verdicts(node["minimum"] - 1) == verdicts(node["maximum"] + 1) == (False, False)
        assert verdicts(node["maximum"]) == verdicts(node["minimum"]) == (True, True)
        assert verdicts("1") == verdicts(1.5) == verdicts(True) == (False, False)
    else:
        assert verdicts(1) == verdicts({}) == (False, False)
        if "maxLength" in node:
            assert verdicts("a" * (node["maxLength"] + 1)) == (False, False)
        if "enum" in node:
            assert verdicts("surely-none") == (False, False)
        if "minLength" in node:
            assert verdicts("") == (False, False)


_json = st.recursive(
    st.booleans() | st.integers(-5, 5000) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@settings(deadline=None)
@given(st.sampled_from(PLACES), _json | st.from_regex(r"\A[-a-z0-9./_A-Z]{0,20}\Z"))
def test_what_the_reader_takes_the_api_server_takes(place, value) -> None:
    number, path, _ = place
    spec = put(DOCUMENTS[number]["spec"], path, value)
    if taken({**DOCUMENTS[number], "spec": spec}):
        assert fits(spec, SPEC)


@pytest.mark.parametrize(("path", "value"), [case[:2] for case in WRONG])
def test_what_the_api_server_refuses_the_reader_refuses(path, value) -> None:
    assert not taken(changed(SMALL, (path, value)))


@pytest.mark.parametrize(("path", "value"), RIGHT)
def test_what_the_api_server_takes_the_reader_takes(path, value) -> None:
    read(changed(SMALL, (path, value)))


def test_changes_of_the_cases_are_wrong_and_right_by_themselves_too() -> None:
    for name in EXISTING:
        read(existing(name))
    for name, path, value in CHANGES:
        read(changed(existing(name), (path, value)))
    for name, path, value, _ in KEPT:
        assert not taken(changed(existing(name), (path, value)))
