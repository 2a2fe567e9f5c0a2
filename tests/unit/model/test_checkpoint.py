"""Reading parts of checkpoints: mapped, checked, with errors that name the file."""

import contextlib
import json
import struct

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import nn

from blockswarm_services.server.model import SpanModel
from blockswarm_wire.errors import InvalidArgument
from blockswarm_wire.model.anatomy import load_part, locate, model_class, part_class, read_config
from blockswarm_wire.model.checkpoint import Checkpoint, read_header
from blockswarm_wire.model.source import open_model
from blockswarm_wire.span import Span


def load(folder, start=0, end=2):
    return SpanModel.load(open_model(folder), Span(start, end), dtype=torch.float32)


@pytest.mark.parametrize("sharded", [False, True])
def test_gives_the_tensors_that_are_asked_for(save, sharded):
    folder = save(sharded=sharded)
    checkpoint, told = Checkpoint(open_model(folder)), []
    names = ["model.norm.weight", "model.layers.3.mlp.up_proj.weight"]
    tensors = checkpoint.load(names, progress=lambda *what: told.append(what))
    for name in names:
        assert torch.equal(tensors[name], load_file(folder / checkpoint.files[name])[name])
    assert told[-1] == ("loading weights", 4 * (32 + 48 * 32), 4 * (32 + 48 * 32))
    with pytest.raises(InvalidArgument, match="no tensor 'nobody'"):
        checkpoint.load(["nobody"])


def test_weights_stay_mapped_from_the_file(tmp_path):
    save_file({"a": torch.ones(4096, 4096)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text("{}")
    before = anonymous()
    tensor = Checkpoint(open_model(tmp_path)).load(["a"])["a"]
    assert float(tensor.sum()) == 4096 * 4096
    assert anonymous() - before < 16 * 2**20


def anonymous():
    with open("/proc/self/smaps_rollup") as file:
        return 1024 * next(int(line.split()[1]) for line in file if line.startswith("Anonymous:"))


def test_a_span_needs_its_own_shards_only(save):
    folder = save(sharded=True)
    source = open_model(folder)
    needed = {file for tensor, file in Checkpoint(source).files.items() if ".layers.2." in tensor}
    for file in source.weight_files:
        if file not in needed:
            (folder / file).unlink()
    assert load(folder, 2, 3).num_blocks == 1
    with pytest.raises(InvalidArgument, match=r"model-\S+ is missing: download it again"):
        load(folder, 0, 2)


def test_a_truncated_shard_is_named_with_its_sizes(save):
    folder = save()
    file = folder / "model.safetensors"
    size = file.stat().st_size
    file.write_bytes(file.read_bytes()[:-10])
    with pytest.raises(
        InvalidArgument, match=rf"model.safetensors has {size - 10} bytes and should have {size}"
    ):
        load(folder)


def test_a_tensor_of_another_shape_is_named(save):
    folder = save()
    file = folder / "model.safetensors"
    tensors = load_file(file)
    tensors["model.layers.1.mlp.up_proj.weight"] = torch.zeros(48, 31)
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(InvalidArgument, match=r"layers.1.mlp.up_proj.weight.*\[48, 31\].*\[48, 32\]"):
        load(folder)
    assert load(folder, 2, 4).num_blocks == 2


def test_a_missing_tensor_is_named(save):
    folder = save()
    file = folder / "model.safetensors"
    tensors = load_file(file)
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(InvalidArgument, match=r"layers.1.mlp.up_proj.weight"):
        load(folder)


def test_an_index_of_another_download_is_noticed(save):
    folder = save(sharded=True)
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    files = sorted(set(index["weight_map"].values()))
    wrong = next(f for f in files if f != index["weight_map"]["model.layers.0.mlp.up_proj.weight"])
    index["weight_map"]["model.layers.0.mlp.up_proj.weight"] = wrong
    path.write_text(json.dumps(index))
    with pytest.raises(InvalidArgument, match="two different downloads"):
        load(folder)


def test_pickled_weights_are_never_read(save):
    folder = save()
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(InvalidArgument, match="pickled"):
        load(folder)
    (folder / "pytorch_model.bin").unlink()
    with pytest.raises(InvalidArgument, match=r"has no model.safetensors"):
        load(folder)


def test_code_in_the_folder_is_never_run(save):
    folder = save()
    (folder / "evil.py").write_text("raise SystemExit('ran')")
    config = json.loads((folder / "config.json").read_text())
    config["auto_map"] = {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}
    (folder / "config.json").write_text(json.dumps(config))
    assert load(folder).model_type == "llama"


def test_a_config_that_its_family_cannot_read_is_refused(save):
    folder = save()
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "hidden_size": "wide"}))
    with pytest.raises(InvalidArgument, match=r"config.json is not valid for 'llama'"):
        load(folder)


def test_a_part_has_what_its_cut_leaves(save):
    folder = open_model(save(sharded=True))
    config = read_config(folder)

    def cut(model):
        anatomy = locate(model)
        assert (anatomy.core, anatomy.layers, anatomy.num_blocks) == ("model", "layers", 4)
        setattr(anatomy.core_of(model), anatomy.layers, nn.ModuleList())

    part = load_part(folder, part_class(model_class(config), cut), config, dtype=torch.float32)

    assert {name for name, _ in part.named_parameters()} == {
        "lm_head.weight", "model.embed_tokens.weight", "model.norm.weight",
    }  # fmt: skip
    assert not any(weight.requires_grad for weight in part.parameters())
    assert not part.training
    assert part.model.rotary_emb.inv_freq.device.type == "cpu"


def header(tensors):
    text = json.dumps(tensors).encode()
    return struct.pack("<Q", len(text)) + text


@settings(deadline=None, max_examples=200)
@given(
    st.one_of(
        st.binary(max_size=64),
        st.builds(lambda n, rest: struct.pack("<Q", n) + rest, st.integers(0, 2**64 - 1), st.binary(max_size=64)),
        st.builds(header, st.recursive(st.none() | st.integers() | st.text(max_size=5), lambda x: (
            st.lists(x, max_size=3) | st.dictionaries(st.sampled_from(
                ["a", "data_offsets", "shape", "dtype", "__metadata__"]), x, max_size=4)))),
    )
)  # fmt: skip
def test_no_header_does_more_than_be_refused(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "x.safetensors"
    path.write_bytes(data)
    with contextlib.suppress(InvalidArgument):
        read_header(path)
