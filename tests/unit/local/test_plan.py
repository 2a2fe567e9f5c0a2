from pathlib import Path

import pytest

from blockswarm_services.local.plan import Source, plan
from blockswarm_wire.errors import InvalidArgument
from blockswarm_wire.resource import BlockServer, load_manifest
from blockswarm_wire.span import Span

ROOT = Path(__file__).resolve().parents[3]
BASE = Path("/models")


def document(name: str, start: int, end: int, **spec) -> BlockServer:
    data = {
        "apiVersion": "blockswarm.io/v1alpha1",
        "kind": "BlockServer",
        "metadata": {"name": name},
        "spec": {
            "model": {"name": "tiny", "source": {"path": "tiny"}},
            "blocks": {"start": start, "end": end},
            **spec,
        },
    }
    return BlockServer.model_validate(data)


def planned(*documents: BlockServer, blocks: int = 4):
    return plan(documents, base=BASE, num_blocks=lambda source: blocks)


def test_each_replica_is_a_server_with_an_id_of_its_own():
    servers = planned(document("a", 0, 2, replicas=2), document("b", 2, 4))
    assert [(server.server_id, server.span) for server in servers] == [
        ("a-0", Span(0, 2)),
        ("a-1", Span(0, 2)),
        ("b-0", Span(2, 4)),
    ]


def test_a_relative_path_starts_at_the_manifest():
    assert planned(document("a", 0, 4))[0].source == Source(place="/models/tiny")


def test_the_command_line_says_what_the_manifest_says():
    servers = planned(
        document("a", 0, 4, dtype="bfloat16", cache={"tokens": 99}, drainSeconds=7, compute={"threads": 3})
    )
    words = servers[0].arguments()
    given = dict(zip(words[::2], words[1::2], strict=True))
    assert given == {
        "--model": "/models/tiny",
        "--name": "tiny",
        "--blocks": "0:4",
        "--dtype": "bfloat16",
        "--device": "cpu",
        "--threads": "3",
        "--cache-tokens": "99",
        "--drain-seconds": "7",
        "--server-id": "a-0",
    }


def test_the_servers_own_parser_takes_the_command_line():
    from blockswarm_services.server.settings import parse

    for server in planned(document("a", 0, 4, compute={"threads": 2})):
        settings = parse(server.arguments())
        assert (settings.span, settings.server_id, settings.threads) == (Span(0, 4), "a-0", 2)


def test_a_hub_model_keeps_its_revision():
    hub = {"name": "tiny", "source": {"hub": {"repo": "org/tiny", "revision": "abc"}}}
    server = planned(document("a", 0, 4, model=hub))[0]
    assert server.source == Source(place="org/tiny", revision="abc")
    assert "--revision" in server.arguments()


@pytest.mark.parametrize(
    ("source", "remedy"),
    [
        ({"volume": {"persistentVolumeClaim": {"claimName": "tiny"}}}, r"volume .*name the model's folder"),
        ({"hub": {"repo": "org/tiny", "tokenSecret": {"name": "hub"}}}, r"tokenSecret .*set HF_TOKEN"),
    ],
)
def test_a_model_that_only_a_cluster_can_reach_is_refused(source, remedy):
    with pytest.raises(InvalidArgument, match=f"a: spec.model.source.*{remedy}"):
        planned(document("a", 0, 4, model={"name": "tiny", "source": source}))


def test_what_only_a_cluster_can_do_is_not_read_otherwise():
    there = document(
        "a",
        0,
        4,
        compute={"device": "cuda", "gpu": {"resource": "nvidia.com/gpu"}},
        cache={"volume": {"emptyDir": {}}},
        pod={"nodeSelector": {"pool": "gpu"}},
        update={"allowGap": True},
        restart="now",
    )
    here = document("a", 0, 4, compute={"device": "cuda"})
    assert planned(there) == planned(here)


def test_overlapping_spans_are_legal():
    assert len(planned(document("a", 0, 3), document("b", 1, 4))) == 2


@pytest.mark.parametrize(
    ("documents", "missing"),
    [
        ([("a", 0, 2)], "2:4"),
        ([("a", 1, 2), ("b", 3, 4)], "0:1, 2:3"),
        ([("a", 2, 4)], "0:2"),
    ],
)
def test_a_block_that_nobody_covers_is_named_with_a_remedy(documents, missing):
    with pytest.raises(InvalidArgument, match=rf"blocks {missing} of model 'tiny'.*add one"):
        planned(*(document(*one) for one in documents))


def test_a_server_without_replicas_covers_nothing():
    with pytest.raises(InvalidArgument, match=r"blocks 2:4"):
        planned(document("a", 0, 2), document("b", 2, 4, replicas=0))


def test_another_dtype_is_another_model_and_covers_nothing_here():
    with pytest.raises(InvalidArgument, match=r"blocks 2:4 of model 'tiny' \(float32"):
        planned(document("a", 0, 2), document("b", 2, 4, dtype="bfloat16"))


def test_a_span_beyond_the_model_is_refused():
    with pytest.raises(InvalidArgument, match=r"a: spec.blocks 0:5 ends beyond .* set blocks.end to 4"):
        planned(document("a", 0, 5))


def test_too_many_servers_for_one_machine_are_refused():
    with pytest.raises(InvalidArgument, match=r"lower spec\.replicas"):
        planned(document("a", 0, 4, replicas=201))


def test_the_sample_manifest_covers_its_model_twice():
    file = ROOT / "manifests" / "samples" / "smollm2-135m-instruct.yaml"
    manifest = load_manifest(file.read_text(), origin=str(file))
    servers = plan(manifest, base=file.parent, num_blocks=lambda source: 30)
    assert [str(server.span) for server in servers] == ["0:10"] * 2 + ["10:20"] * 2 + ["20:30"] * 2
    assert {server.source.place for server in servers} == {str(ROOT / ".models" / "smollm2-135m-instruct")}
