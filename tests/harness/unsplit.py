"""A tiny model cut into spans in one process, and the unsplit transformers model of the same folder."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM, DynamicCache

from blockswarm.models.load import hollow_causal
from blockswarm_services.server.kv import LegCache
from blockswarm_services.server.model import SpanModel, positions
from blockswarm_wire.model.anatomy import read_config
from blockswarm_wire.model.source import ModelFolder, open_model
from blockswarm_wire.span import Span


class _Length:
    """What the client's part asks of a cache: how many tokens the far side holds."""

    is_compileable = False
    layers: Sequence[Any] = ()
    is_sliding, is_linear, is_dummy = (False,), (False,), (False,)

    def __init__(self) -> None:
        self.tokens = 0

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.tokens

    get_query_offset = get_seq_length

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        return self.tokens + query_length, 0


class Cut(nn.Module):
    """In the place of a model's layers: its spans, one after the other."""

    def __init__(self, folder: ModelFolder, spans: Sequence[Span], *, as_tuple: bool) -> None:
        super().__init__()
        self.as_tuple = as_tuple
        self.spans = [SpanModel.load(folder, span, dtype=torch.float32) for span in spans]
        self.caches: list[LegCache] = []
        self.mask: torch.Tensor | None = None

    def forward(self, hidden: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        past, count = self.caches[0].length, hidden.shape[1]
        unpadded = torch.arange(past, past + count)[None]
        where = unpadded if self.mask is None else positions(self.mask, count)
        for span, cache in zip(self.spans, self.caches, strict=True):
            hidden = span.forward(hidden, cache, mask=self.mask, position_ids=where)
        return (hidden,) if self.as_tuple else hidden


def unsplit(path: Path) -> Any:
    """The whole model, as transformers loads it."""
    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()


def logits_of_whole(
    path: Path, ids: torch.Tensor, chunks: Sequence[slice], mask: torch.Tensor | None = None
) -> torch.Tensor:
    """Logits [rows, tokens, vocabulary] of the unsplit model, chunk by chunk with its own cache."""
    model = unsplit(path)
    cache = DynamicCache(config=model.config)
    return _chunks(lambda **inputs: model(cache=cache, use_cache=True, **inputs).logits, ids, chunks, mask)


def logits_of_spans(
    path: Path,
    spans: Sequence[Span],
    ids: torch.Tensor,
    chunks: Sequence[slice],
    mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """The same of the model cut into spans; the client's part is transformers' own model without its layers."""
    folder = open_model(path)
    hollow = hollow_causal(folder, read_config(folder), torch.float32, None)
    layers = Cut(folder, spans, as_tuple=hollow.as_tuple)
    hollow.fill(layers)
    length = _Length()
    layers.caches = [span.new_cache() for span in layers.spans]

    def step(**inputs: Any) -> torch.Tensor:
        seen = inputs.get("attention_mask")
        layers.mask = None if seen is None else seen.bool()
        logits = hollow.model(cache=length, use_cache=True, **inputs).logits
        length.tokens += logits.shape[1]
        return logits

    return _chunks(step, ids, chunks, mask)


def _chunks(
    step: Callable[..., torch.Tensor], ids: torch.Tensor, chunks: Sequence[slice], mask: torch.Tensor | None
) -> torch.Tensor:
    found = []
    with torch.inference_mode():
        for chunk in chunks:
            inputs = {"input_ids": ids[:, chunk]}
            if mask is not None:
                seen = mask[:, : chunk.stop]
                inputs["attention_mask"] = seen
                inputs["position_ids"] = positions(seen.bool(), ids[:, chunk].shape[1])
            found.append(step(**inputs))
    return torch.cat(found, dim=1)
