"""Models of the Hub: only the shards that are needed, resumed, checked, cached; clear refusals."""

import pytest
import torch
from hub_stub import COMMIT
from huggingface_hub import file_download

from blockswarm_services.server.model import SpanModel
from blockswarm_wire.errors import InvalidArgument
from blockswarm_wire.model.checkpoint import Checkpoint
from blockswarm_wire.model.source import open_model
from blockswarm_wire.span import Span


@pytest.fixture
def sharded(hub, save):
    folder = save(sharded=True)
    hub.repos["team/tiny"] = folder
    return folder


@pytest.fixture(autouse=True)
def _fast(monkeypatch):
    monkeypatch.setattr(file_download.time, "sleep", lambda seconds: None)
    # What came is kept in pieces of this size.
    monkeypatch.setattr(file_download.constants, "DOWNLOAD_CHUNK_SIZE", 1000)


def test_a_repository_and_a_copy_of_it_are_the_same_model(hub, sharded):
    repo, folder = open_model("team/tiny"), open_model(sharded)
    assert repo.name == "tiny"
    assert repo.revision == COMMIT
    assert repo.fingerprint("float32") == folder.fingerprint("float32")
    assert hub.fetched() == ["config.json", "model.safetensors.index.json"], "identity needs no weights"


def test_fetches_only_the_shards_of_the_span_and_only_once(hub, sharded):
    told = []
    model = SpanModel.load(open_model("team/tiny", revision="v1"), Span(1, 2), dtype=torch.float32,
                           progress=lambda *what: told.append(what))  # fmt: skip
    map_ = Checkpoint(open_model(sharded)).files
    needed = {file for tensor, file in map_.items() if ".layers.1." in tensor}
    fetched = [file for file in hub.fetched() if file.endswith(".safetensors")]

    assert set(fetched) == needed < set(map_.values())
    assert len(fetched) == len(needed)
    assert ("downloading team/tiny", sum((sharded / f).stat().st_size for f in needed)) in {
        (what, done) for what, done, _ in told
    }
    assert (
        model.weight_bytes
        == SpanModel.load(open_model(sharded), Span(1, 2), dtype=torch.float32).weight_bytes
    )
    before = len(hub.fetched())
    SpanModel.load(open_model("team/tiny"), Span(1, 2), dtype=torch.float32)
    assert needed.isdisjoint(hub.fetched()[before:])


def test_a_broken_transfer_goes_on_where_it_stopped(hub, save):
    hub.repos["team/tiny"] = save()
    hub.cut["model.safetensors"] = [3000, 2000]
    Checkpoint(open_model("team/tiny")).require(["model.norm.weight"])
    ranges = [asked for method, file, asked in hub.requests if (method, file) == ("GET", "model.safetensors")]
    assert ranges == [None, "bytes=3000-", "bytes=5000-"]


def test_a_download_goes_on_after_the_process_died(hub, save, monkeypatch):
    hub.repos["team/tiny"] = save()
    hub.cut["model.safetensors"] = [4000]
    with monkeypatch.context() as dying:
        dying.setattr(file_download.time, "sleep", lambda seconds: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            open_model("team/tiny").require(["model.safetensors"])
    told = []
    open_model("team/tiny").require(["model.safetensors"], progress=lambda *what: told.append(what))
    ranges = [asked for method, file, asked in hub.requests if (method, file) == ("GET", "model.safetensors")]
    size = (hub.repos["team/tiny"] / "model.safetensors").stat().st_size
    assert ranges == [None, "bytes=4000-"]
    assert told[0][1:] == (4000, size)
    assert told[-1][1:] == (size, size)


def test_a_wrong_sha256_is_fetched_again_and_then_refused(hub, save):
    folder = save()
    hub.repos["team/tiny"] = folder
    wrong = b"x" * (folder / "model.safetensors").stat().st_size
    hub.lie["model.safetensors"] = [wrong]
    path = open_model("team/tiny").path("model.safetensors")
    assert path.read_bytes() == (folder / "model.safetensors").read_bytes()

    path.resolve().write_bytes(wrong)
    assert open_model("team/tiny").path("model.safetensors").read_bytes() != wrong, (
        "damage in the cache is found"
    )

    path.resolve().unlink()
    hub.lie["model.safetensors"] = [wrong, wrong]
    with pytest.raises(InvalidArgument, match="sha256"):
        open_model("team/tiny").require(["model.safetensors"])
    open_model("team/tiny").require(["model.safetensors"])


def test_the_cache_serves_without_a_connection(hub, save):
    hub.repos["team/tiny"] = save()
    open_model("team/tiny").require(["model.safetensors"])
    hub.__exit__()
    model = SpanModel.load(open_model("team/tiny"), Span(0, 2), dtype=torch.float32)
    assert model.num_blocks == 2
    with pytest.raises(ConnectionError, match="other/model"):
        open_model("other/model")


def test_refusals_name_the_repository_and_the_remedy(hub, save, tmp_path):
    hub.repos["team/tiny"] = save()
    hub.gated.add("team/closed")
    (tmp_path / "empty").mkdir()
    hub.repos["team/empty"] = tmp_path / "empty"
    for source, revision, says in [
        ("team/nothing", None, "team/nothing.*not found"),
        ("team/closed", None, "gated"),
        ("team/tiny", "v9", "no such revision"),
        ("team/empty", None, "no file config.json"),
        ("not a repo!", None, "not found"),
    ]:
        with pytest.raises(InvalidArgument, match=says):
            open_model(source, revision=revision)
    with pytest.raises(InvalidArgument, match="no file other"):
        open_model("team/tiny").require(["other.safetensors"])


def test_a_repository_without_safetensors_is_refused_before_anything_is_fetched(hub, save):
    folder = save()
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    hub.repos["team/pickled"] = folder
    with pytest.raises(InvalidArgument, match="pickled"):
        SpanModel.load(open_model("team/pickled"), Span(0, 1), dtype=torch.float32)
    assert hub.fetched() == ["config.json"]
