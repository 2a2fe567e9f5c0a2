"""The one module that stands where a model's layers stood, and what it is told about the forward pass under way."""

from contextvars import ContextVar
from dataclasses import dataclass

import torch
from torch import nn

from blockswarm.models.cache import RemoteCache
from blockswarm.models.padding import leading_pads, pieces
from blockswarm.models.prompts import Prompts
from blockswarm.models.remote import RemoteSequential


@dataclass(slots=True)
class Run:
    """One forward pass of a shell.

    cache: the session it continues; None = a stateless pass.
    mask: attention mask whose last columns are this pass's tokens; None = no padding.
    replace: hidden states that the layers answer with, whatever comes in (to use only what follows the layers).
    capture: whether the layers answer with their input (to use only what precedes the layers).
    captured: that input.
    """

    cache: RemoteCache | None = None
    mask: torch.Tensor | None = None
    replace: torch.Tensor | None = None
    capture: bool = False
    captured: torch.Tensor | None = None


# A context variable, because one model may be used by several threads at once.
RUN: ContextVar[Run | None] = ContextVar("blockswarm_run", default=None)


class RemoteLayers(nn.Module):
    """Called once by the base model, as if it had a single layer.

    Args:
        remote: the blocks.
        prompts: trained prompts, or None.
        as_tuple: whether the family's own layers answer with a tuple.
    """

    def __init__(self, remote: RemoteSequential, prompts: Prompts | None, *, as_tuple: bool) -> None:
        super().__init__()
        self.remote = remote
        self.prompts = prompts
        self.as_tuple = as_tuple

    def forward(
        self, hidden: torch.Tensor, *args: object, **kwargs: object
    ) -> torch.Tensor | tuple[torch.Tensor]:
        """[batch, tokens, hidden] to the same shape; what else the base model passes concerns real layers."""
        run = RUN.get() or Run()
        if run.replace is not None:
            output = run.replace
        elif run.capture:
            run.captured = output = hidden
        else:
            output = self._through(hidden, run)
        return (output,) if self.as_tuple else output

    def _through(self, hidden: torch.Tensor, run: Run) -> torch.Tensor:
        if run.cache is None:
            return self._stateless(hidden, leading_pads(run.mask, hidden.shape[1]))
        cache, mask = run.cache, run.mask
        if cache.fold == 1:
            return self._steps(hidden, mask, cache)
        output = self._steps(hidden[:: cache.fold], None if mask is None else mask[:: cache.fold], cache)
        return cache.unfold(output)

    def _stateless(self, hidden: torch.Tensor, pad: list[int] | None) -> torch.Tensor:
        if self.prompts is None:
            return self.remote.stateless(hidden, None, pad=pad)
        dressed, deep = self.prompts.prepend(hidden, pad)
        return self.prompts.strip(self.remote.stateless(dressed, deep, pad=pad), pad)

    def _steps(self, hidden: torch.Tensor, mask: torch.Tensor | None, cache: RemoteCache) -> torch.Tensor:
        parts = pieces(mask, hidden.shape[1])
        if len(parts) == 1:
            return self._step(hidden, parts[0].pad, cache)
        return torch.cat([self._step(hidden[:, p.start : p.end], p.pad, cache) for p in parts], dim=1)

    def _step(self, hidden: torch.Tensor, pad: list[int] | None, cache: RemoteCache) -> torch.Tensor:
        order = cache.take_order()
        if self.prompts is None or cache.session.position > 0:
            return cache.session.step(hidden, None, order, pad=pad)
        with torch.no_grad():
            dressed, deep = self.prompts.prepend(hidden, pad)
            return self.prompts.strip(cache.session.step(dressed, deep, order, pad=pad), pad)
