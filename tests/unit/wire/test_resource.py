"""The BlockServer manifest: what is accepted, and errors that name document, field and remedy."""

import copy
from types import MappingProxyType
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from blockswarm_wire.errors import InvalidArgument
from blockswarm_wire.resource import BlockServer, load_manifest, parse_block_server
from blockswarm_wire.span import Span

_SMALL = {
    "apiVersion": "blockswarm.io/v1alpha1",
    "kind": "BlockServer",
    "metadata": {"name": "first"},
    "spec": {"model": {"name": "demo", "source": {"path": "models/demo"}}, "blocks": {"start": 0, "end": 10}},
}


def _load(*documents: object) -> list[BlockServer]:
    return load_manifest(yaml.safe_dump_all(documents), origin="swarm.yaml")


def _with(path: str, value: object) -> dict[str, object]:
    document: dict[str, object] = yaml.safe_load(yaml.safe_dump(_SMALL))
    *folders, last = path.split(".")
    place = document
    for folder in folders:
        place = place.setdefault(folder, {})  # type: ignore[assignment]
    if value is None:
        place.pop(last)
    else:
        place[last] = value
    return document


def test_defaults() -> None:
    (server,) = _load(_SMALL)
    assert server.spec.blocks.span == Span(0, 10)
    assert (server.spec.replicas, server.spec.dtype, server.spec.quantization) == (1, "float32", "none")
    assert (server.spec.cache.tokens, server.spec.drain_seconds) == (16384, 60)
    assert server.spec.compute.threads is None
    assert not server.spec.update.allow_gap


def test_several_documents_in_camel_case() -> None:
    full = _with("spec.drainSeconds", 5)
    full["metadata"] = {"name": "second", "labels": {"any": "thing"}}
    full["spec"]["update"] = {"allowGap": True}  # type: ignore[index]
    full["spec"]["model"]["source"] = {"hub": {"repo": "org/name", "revision": "abc"}}  # type: ignore[index]
    first, second = _load(_SMALL, None, full)
    assert first.metadata.name == "first"
    assert second.spec.drain_seconds == 5
    assert second.spec.update.allow_gap
    assert second.spec.model.source.hub is not None


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        ("spec.replica", 3, "spec.replica: unknown field; remove it or correct its spelling"),
        ("spec.compute.tpu", 3, "spec.compute.tpu: unknown field"),
        ("spec.blocks.end", 0, "spec.blocks.end"),
        ("spec.blocks.start", 10, r"end \(10\) must be greater than start \(10\)"),
        ("spec.blocks.start", -1, "spec.blocks.start"),
        ("spec.blocks.end", 5000, "spec.blocks.end"),
        ("spec.blocks", None, "spec.blocks: is required"),
        ("spec.replicas", "2", "spec.replicas: .*integer"),
        ("spec.replicas", -1, "spec.replicas"),
        ("spec.replicas", True, "spec.replicas"),
        ("spec.dtype", "float8", "spec.dtype"),
        ("spec.quantization", "int8", "spec.quantization"),
        ("spec.cache.tokens", 0, "spec.cache.tokens"),
        ("spec.cache.tokens", 1.5, "spec.cache.tokens"),
        ("spec.compute.device", "gpu", "spec.compute.device: must be cpu or cuda"),
        ("spec.drainSeconds", float("nan"), "spec.drainSeconds"),
        ("spec.model.source", {}, "exactly one of path, hub"),
        ("spec.model.source", {"path": "a", "hub": {"repo": "b"}}, "exactly one of path, hub"),
        ("spec.model.source", {"hub": {"repo": "../../etc"}}, "spec.model.source.hub.repo: must be a repo"),
        ("spec.model.name", "a\nb", "printable"),
        ("metadata.name", "Has Capitals", "metadata.name"),
        ("metadata.name", None, "metadata.name: is required"),
        ("apiVersion", "blockswarm.io/v2", "apiVersion"),
        ("kind", "Deployment", "kind"),
    ],
)
def test_bad_fields_are_named(path: str, value: object, text: str) -> None:
    with pytest.raises(InvalidArgument, match=rf"swarm.yaml: document 1: .*{text}"):
        _load(_with(path, value))


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "holds no BlockServer"),
        ("---\n---\n", "holds no BlockServer"),
        ("- 1\n", "must be a mapping"),
        ("a: [", "is not YAML"),
        ("a: &x 1\nb: *x\n", "aliases are not supported"),
        ("a: 1\na: 2\n", "repeated key"),
        ("!!python/object/apply:os.getcwd []\n", "is not YAML"),
        ("[" * 5000, "is not YAML"),
        ("a: " + "x" * 2**20, "larger than"),
        ("1\n" + "---\n1\n" * 3, "document 1"),
    ],
)
def test_bad_files_are_named(text: str, match: str) -> None:
    with pytest.raises(InvalidArgument, match=f"swarm.yaml: .*{match}"):
        load_manifest(text, origin="swarm.yaml")


def test_two_documents_of_one_name() -> None:
    with pytest.raises(
        InvalidArgument, match=r"document 2: metadata.name 'first' is used by an earlier document"
    ):
        _load(_SMALL, _SMALL)
    elsewhere = _with("metadata.namespace", "other")
    assert len(_load(_SMALL, elsewhere)) == 2


@settings(deadline=None)  # the machine may be busy
@given(st.text(max_size=200))
def test_any_text_gives_a_named_error(text: str) -> None:
    with pytest.raises(InvalidArgument):
        load_manifest(text, origin="swarm.yaml")


_anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(
    st.sampled_from(
        ["spec", "spec.model", "spec.blocks", "spec.blocks.start", "spec.replicas", "spec.cache", "metadata"]
    ),
    _anything.filter(lambda value: value is not None),
)
def test_any_value_gives_a_resource_or_a_named_error(path: str, value: object) -> None:
    try:
        (server,) = _load(_with(path, value))
    except InvalidArgument:
        return
    assert server.spec.blocks.span


def _from_api() -> dict[str, object]:
    document = _with("spec.model.source", {"hub": {"repo": "org/demo"}})
    document["metadata"] = {
        "name": "first",
        "namespace": "models",
        "uid": "7f3f1f4e",
        "generation": 3,
        "resourceVersion": "12",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "deletionTimestamp": None,
        "labels": {"a": "b"},
        "managedFields": [{"manager": "kubectl", "fieldsV1": {}}],
    }
    document["status"] = {"replicas": 2, "conditions": []}
    return document


def test_an_object_of_an_api_server_is_read_without_what_others_write() -> None:
    server = parse_block_server(MappingProxyType(_from_api()))
    assert (server.metadata.name, server.metadata.namespace) == ("first", "models")


def test_fields_of_a_later_version_are_not_read_from_an_api_server() -> None:
    document = _from_api()
    spec: Any = document["spec"]
    spec["later"] = {"a": 1}
    spec["compute"] = {"device": "cpu", "later": True}
    spec["pod"] = {
        "volumes": [{"name": "data", "nfs": {"server": "nas", "path": "/data"}}],
        "tolerations": [{"operator": "Exists", "later": 1}],
    }
    before = copy.deepcopy(document)
    server = parse_block_server(document)
    assert server.spec.pod.volumes[0].as_kubernetes() == spec["pod"]["volumes"][0]
    assert document == before


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        (
            "spec.model.source",
            {"path": "models/demo"},
            "spec.model.source.path: .*name a repository with hub",
        ),
        ("spec.compute", {"device": "cuda"}, "spec.compute.gpu: device cuda needs GPUs; name them"),
        ("spec.blocks.end", 0, "spec.blocks.end"),
        ("spec", None, "spec: is required"),
        ("metadata.name", "x" * 51, "metadata.name"),
    ],
)
def test_wrong_objects_of_an_api_server_name_field_and_remedy(path: str, value: object, text: str) -> None:
    document = _from_api()
    *folders, last = path.split(".")
    place: Any = document
    for folder in folders:
        place = place[folder]
    if value is None:
        del place[last]
    else:
        place[last] = value
    with pytest.raises(InvalidArgument, match=text):
        parse_block_server(document)


def test_a_volume_is_what_kubernetes_calls_its_source() -> None:
    source = {"volume": {"subPath": "a", "persistentVolumeClaim": {"claimName": "demo"}}}
    server = parse_block_server(_with("spec.model.source", source))
    volume = server.spec.model.source.volume
    assert volume is not None
    assert volume.volume_source() == {"persistentVolumeClaim": {"claimName": "demo"}}
    assert volume.sub_path == "a"


def test_structures_of_kubernetes_are_bounded_and_plain_json() -> None:
    for odd in ({"a": "x" * 20_000}, {"a": float("inf")}, {"a": {1, 2}}):
        with pytest.raises(InvalidArgument, match=r"spec\.pod\.securityContext"):
            parse_block_server(_with("spec.pod", {"securityContext": odd}))
