"""Every supported family, cut into uneven spans behind gRPC, against the unsplit transformers model."""

import re
from pathlib import Path

import pytest
import torch
from transformers.utils import logging as transformers_logging

from blockswarm_wire.errors import InvalidArgument, Unsupported
from blockswarm_wire.model.families import SUPPORTED, check_family
from blockswarm_wire.span import Span
from in_process import swarm
from tiny_families import BLOCKS, save_tiny, tiny_config, variants
from unsplit import logits_of_spans, logits_of_whole

SPANS = [Span(0, 1), Span(1, 4), Span(4, BLOCKS)]
# A prompt in two chunks, then eight tokens one by one: longer than the sliding windows of the tiny models.
CHUNKS = [slice(0, 4), slice(4, 12), *(slice(i, i + 1) for i in range(12, 20))]
# These route padding through their experts too, and the spans see other padding than the whole model does.
MIXTURES = frozenset({"deepseek_v3", "dots1", "glm4_moe", "gpt_oss", "mixtral", "olmoe", "qwen3_moe"})
DOCUMENT = Path(__file__).parents[2] / "docs" / "families.md"


@pytest.fixture(autouse=True)
def _quiet():
    torch.set_num_threads(1)
    transformers_logging.disable_progress_bar()


@pytest.mark.parametrize("name", variants(SUPPORTED))
@torch.inference_mode()
def test_spans_are_bit_equal_to_the_whole(name, tmp_path):
    save_tiny(name, tmp_path)
    ids = torch.randint(3, 200, (2, 20), generator=torch.Generator().manual_seed(1))

    whole = logits_of_whole(tmp_path, ids, CHUNKS)
    with swarm(tmp_path, SPANS) as model, model.inference_session(max_length=20) as session:
        spans = torch.cat([model(ids[:, chunk]).logits for chunk in CHUNKS], dim=1)
        assert len(session.chain) == len(SPANS)

    assert float(whole.std()) > 0.05, "logits that hardly differ prove nothing"
    assert torch.equal(whole, spans)


# Without servers, since a client never sends a chunk that ends with padding.
@pytest.mark.parametrize("name", variants(SUPPORTED))
def test_left_padding_longer_than_a_chunk(name, tmp_path):
    save_tiny(name, tmp_path)
    ids = torch.randint(3, 200, (3, 20), generator=torch.Generator().manual_seed(2))
    mask = torch.ones(3, 20, dtype=torch.int64)
    mask[0, :6] = 0
    mask[1, :2] = 0

    whole = logits_of_whole(tmp_path, ids, CHUNKS, mask)[mask.bool()]
    spans = logits_of_spans(tmp_path, SPANS, ids, CHUNKS, mask)[mask.bool()]

    if name.partition(":")[0] in MIXTURES:
        torch.testing.assert_close(spans, whole, atol=1e-5, rtol=0)
    else:
        assert torch.equal(whole, spans)


def test_the_document_lists_exactly_the_supported_families():
    rows = re.findall(r"^\| `(\w+)` \| yes \| (\S+) \| (\w+) \|$", DOCUMENT.read_text(), flags=re.MULTILINE)

    assert [family for family, _, _ in rows] == sorted(SUPPORTED)
    assert len(rows) >= 34
    assert {family for family, padding, _ in rows if padding == "1e-5"} == MIXTURES
    assert {family for family, _, rollback in rows if rollback == "no"} == {
        family for family in SUPPORTED if "conv" in (getattr(tiny_config(family), "layer_types", None) or ())
    }


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"model_type": "minimax"}, "a cache of its own"),
        ({"model_type": "mamba2"}, "no attention layers"),
        ({"model_type": "nobody", "auto_map": {"AutoModel": "evil.Model"}}, "never run"),
        ({"model_type": "t5", "is_encoder_decoder": True}, "encoder-decoder"),
        ({"model_type": "llama", "quantization_config": {"bits": 4}}, "quantized"),
    ],
)
def test_other_models_are_refused_by_name(config, says):
    with pytest.raises(Unsupported, match=says):
        check_family(config)


def test_a_config_without_a_family_is_refused():
    with pytest.raises(InvalidArgument, match="model_type"):
        check_family({})
