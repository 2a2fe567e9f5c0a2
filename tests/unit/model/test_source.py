"""Local folders: identity, the note beside the weights, refusals."""

import json
import os

import pytest

from blockswarm_wire.errors import InvalidArgument
from blockswarm_wire.model import identity
from blockswarm_wire.model.source import open_model


def counting(monkeypatch):
    hashed, real = [], identity.sha256_of

    def sha256_of(path, **kwargs):
        hashed.append(path.name)
        return real(path, **kwargs)

    monkeypatch.setattr(identity, "sha256_of", sha256_of)
    return hashed


def test_weights_are_hashed_once_and_again_when_they_change(save, monkeypatch):
    folder, hashed = save(), counting(monkeypatch)
    told = []
    first = open_model(folder)
    first.identify(progress=lambda *what: told.append(what))
    assert told[-1][1] == told[-1][2] == (folder / "model.safetensors").stat().st_size
    assert open_model(folder).weights_id == first.weights_id
    assert hashed == ["model.safetensors"]

    os.utime(folder / "model.safetensors", ns=(1, 1))
    assert open_model(folder).weights_id == first.weights_id
    assert len(hashed) == 2
    data = bytearray((folder / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (folder / "model.safetensors").write_bytes(data)
    assert open_model(folder).weights_id != first.weights_id


def test_names_and_other_files_are_no_identity(save):
    one, two = save(name="one"), save(name="two")
    (two / "README.md").write_text("other")
    (two / "consolidated.safetensors").write_bytes(b"other")
    config = json.loads((two / "config.json").read_text())
    (two / "config.json").write_text(
        json.dumps({**config, "_name_or_path": "x", "transformers_version": "0"})
    )
    assert open_model(one).fingerprint("float32") == open_model(two).fingerprint("float32")
    assert open_model(one).fingerprint("float32") != open_model(one).fingerprint("bfloat16")
    assert (open_model(one).name, open_model(one, name="label").name) == ("one", "label")
    assert open_model(one).num_blocks == 4


def test_a_folder_that_cannot_be_written_is_hashed_every_time(save, monkeypatch):
    folder, hashed = save(), counting(monkeypatch)

    def refuse(*args, **kwargs):
        raise PermissionError("read-only")

    monkeypatch.setattr(identity.tempfile, "mkstemp", refuse)
    assert open_model(folder).weights_id == open_model(folder).weights_id
    assert len(hashed) == 2
    assert not (folder / "blockswarm.json").exists()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 9}', '{"version": 1, "weights": {"a": 3}}'])
def test_a_damaged_note_is_replaced(save, text):
    folder = save()
    (folder / "blockswarm.json").write_text(text)
    known = open_model(folder).weights_id
    note = json.loads((folder / "blockswarm.json").read_text())
    assert list(note["weights"]) == ["model.safetensors"]
    assert open_model(folder).weights_id == known
    assert [file.name for file in folder.iterdir() if file.name.startswith(".")] == []


def test_a_part_of_a_model_keeps_its_identity_by_the_note(save):
    folder = save(sharded=True)
    whole = open_model(folder)
    known, files = whole.weights_id, whole.weight_files
    (folder / files[0]).unlink()
    assert open_model(folder).weights_id == known
    (folder / "blockswarm.json").unlink()
    with pytest.raises(InvalidArgument, match=f"{files[0]} is missing"):
        _ = open_model(folder).weights_id


def test_refuses_what_is_no_model_folder(save, tmp_path):
    with pytest.raises(InvalidArgument, match="does not exist"):
        open_model(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidArgument, match=r"config.json is missing"):
        open_model(str(tmp_path / "empty"))
    folder = save()
    with pytest.raises(InvalidArgument, match="drop one"):
        open_model(folder, revision="main")
    (folder / "config.json").write_text("[1]")
    with pytest.raises(InvalidArgument, match="no JSON object"):
        _ = open_model(folder).config
    (folder / "config.json").write_text("{")
    with pytest.raises(InvalidArgument, match="cannot be read"):
        _ = open_model(folder).config


@pytest.mark.parametrize("evil", ["../other.safetensors", "/etc/passwd", "weights.bin", 7])
def test_an_index_cannot_point_out_of_its_folder(save, evil):
    folder = save(sharded=True)
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    index["weight_map"]["model.norm.weight"] = evil
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(InvalidArgument, match=r"model.norm.weight"):
        _ = open_model(folder).weight_files
