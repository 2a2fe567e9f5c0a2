"""The sample manifests are BlockServers that cover their models."""

from pathlib import Path

import pytest
import yaml

from blockswarm_wire.resource import BlockServer, load_manifest, parse_block_server
from blockswarm_wire.span import uncovered

SAMPLES = Path(__file__).resolve().parents[3] / "manifests" / "samples"
BLOCKS = {
    "smollm2-135m-instruct": 30,
    "smollm2-from-hub": 30,
    "smollm2-on-kubernetes": 30,
    "llama-3.3-70b": 80,
    "private-model": 32,
}


def servers(name: str) -> list[BlockServer]:
    documents = yaml.safe_load_all((SAMPLES / f"{name}.yaml").read_text())
    own = [document for document in documents if document["kind"] == "BlockServer"]
    return load_manifest(yaml.safe_dump_all(own), origin=name)


def test_every_sample_is_tested() -> None:
    texts = {path.stem: path.read_text() for path in SAMPLES.glob("*.yaml")}
    assert {name for name, text in texts.items() if "kind: BlockServer" in text} == BLOCKS.keys()


@pytest.mark.parametrize("name", BLOCKS)
def test_every_block_has_two_servers(name: str) -> None:
    found = servers(name)
    assert uncovered([server.spec.blocks.span for server in found], BLOCKS[name]) == []
    assert max(server.spec.blocks.end for server in found) == BLOCKS[name]
    assert {server.spec.replicas for server in found} == {2}
    assert len({(server.spec.model.name, server.spec.dtype) for server in found}) == 1


@pytest.mark.parametrize("name", sorted(BLOCKS.keys() - {"smollm2-135m-instruct"}))
def test_samples_for_a_cluster_are_read_there(name: str) -> None:
    for server in servers(name):
        parse_block_server(server.as_kubernetes())


def test_the_large_model_is_cut_into_unequal_spans_on_gpus() -> None:
    found = servers("llama-3.3-70b")
    assert len({server.spec.blocks.end - server.spec.blocks.start for server in found}) > 2
    for server in found:
        hub = server.spec.model.source.hub
        assert hub is not None
        assert len(hub.revision) == 40
        assert hub.token_secret is not None
        assert server.spec.compute.gpu is not None
        assert server.spec.dtype == "bfloat16"


def test_the_private_model_has_a_secret_and_keeps_what_it_fetched_on_a_claim() -> None:
    for server in servers("private-model"):
        hub, cache = server.spec.model.source.hub, server.spec.cache.volume
        assert hub is not None
        assert hub.token_secret is not None
        assert cache is not None
        assert cache.persistent_volume_claim is not None
