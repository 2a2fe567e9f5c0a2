"""The one module that stands where a model's layers stood, and what it is told about the forward pass under way."""

from contextvars import ContextVar
from dataclasses import dataclass

import torch
from torch import nn

from blockswarm.models.cache import RemoteCache
from blockswarm.models.prompts import Prompts
from blockswarm.models.remote import RemoteSequential


@dataclass(slots=True)
class Run:
    """One forward pass of a shell.

    cache: the session it continues; None = a stateless pass.
    pad: leading padding per row of the hidden states.
    replace: hidden states that the layers answer with, whatever comes in (to use only what follows the layers).
    capture: whether the layers answer with their input (to use only what precedes the layers).
    captured: that input.
    """

    cache: RemoteCache | None = None
    pad: list[int] | None = None
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
        """[batch, tokens, hidden] to the same shape; everything else that the base model passes concerns real layers."""
        run = RUN.get() or Run()
        if run.replace is not None:
            output = run.replace
        elif run.capture:
            run.captured = output = hidden
        else:
            output = self._through(hidden, run)
        return (output,) if self.as_tuple else output

    def _through(self, hidden: torch.Tensor, run: Run) -> torch.Tensor:
        cache = run.cache
        if cache is None:
            if self.prompts is None:
                return self.remote.stateless(hidden, None, pad=run.pad)
            dressed, deep = self.prompts.prepend(hidden, run.pad)
            return self.prompts.strip(self.remote.stateless(dressed, deep, pad=run.pad), run.pad)
        pad = run.pad
        if cache.fold > 1:
            hidden = hidden[:: cache.fold]
            pad = pad[:: cache.fold] if pad is not None else None
        output = self._step(hidden, cache, pad)
        return cache.unfold(output) if cache.fold > 1 else output

    def _step(self, hidden: torch.Tensor, cache: RemoteCache, pad: list[int] | None) -> torch.Tensor:
        order = cache.take_order()
        if self.prompts is None or cache.session.position > 0:
            return cache.session.step(hidden, None, order, pad=pad)
        with torch.no_grad():
            dressed, deep = self.prompts.prepend(hidden, pad)
            return self.prompts.strip(cache.session.step(dressed, deep, order, pad=pad), pad)
