"""How fast this server's blocks are, measured once at start: what routing weighs servers by."""

import time
from dataclasses import dataclass

import torch

from blockswarm_services.server.kv import LegCache
from blockswarm_services.server.model import SpanModel

_DECODE_STEPS = 6
_FORWARD_TOKENS = 64


@dataclass(frozen=True, slots=True)
class Throughput:
    """Tokens per second through one block: one by one with a growing cache, and many at once."""

    inference_rps: float
    forward_rps: float


def measure(model: SpanModel, start: int, end: int) -> Throughput:
    """Run a few steps of zeros through the span; the first one warms up and does not count."""
    blocks = end - start
    cache = model.new_cache(start, end)
    many = _seconds(model, cache, _FORWARD_TOKENS, start, end)
    singles = [_seconds(model, cache, 1, start, end) for _ in range(_DECODE_STEPS)]
    one = min(singles[1:])
    return Throughput(inference_rps=blocks / one, forward_rps=blocks * _FORWARD_TOKENS / many)


def _seconds(model: SpanModel, cache: LegCache, tokens: int, start: int, end: int) -> float:
    position = cache.length
    hidden = torch.zeros(1, tokens, model.hidden_size, dtype=model.dtype, device=model.device)
    positions = torch.arange(position, position + tokens, device=model.device).unsqueeze(0)
    began = time.perf_counter()
    output = model.forward(hidden, cache, position_ids=positions, start=start, end=end)
    output.to("cpu")  # a GPU answers before it has computed
    return max(time.perf_counter() - began, 1e-6)
