"""Remote blocks as one differentiable operation."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from blockswarm import loop
from blockswarm.training.call import Rows
from blockswarm.training.chain import Chain, Stage
from blockswarm_wire.errors import InvalidArgument
from blockswarm_wire.tensor import torch_dtype

if TYPE_CHECKING:
    from blockswarm.routing.manager import RemoteSequenceManager

_T = TypeVar("_T")

# Rows are sent in parts of at most this many tokens (one row at least), over routes of their own at the same time.
TOKENS_PER_PART = 1024


def remote_pass(
    manager: "RemoteSequenceManager",
    inputs: torch.Tensor,
    prompts: torch.Tensor | None,
    *,
    start: int,
    end: int,
    pad: list[int] | None = None,
) -> torch.Tensor:
    """`inputs` through blocks start…end-1, without a session.

    Args:
        manager: routes to the servers.
        inputs: [batch, tokens, hidden]; the result has its device and dtype.
        prompts: [blocks, batch or 1, prefix, hidden], added to each row's first real tokens; or None.
        start, end: block numbers.
        pad: leading padding per row.

    Raises:
        InvalidArgument: shapes do not fit.
        SessionLost: no server could do it within the config's retries and failover_timeout.
    """
    _check(inputs, prompts, end - start, pad)
    if 0 in inputs.shape:
        return inputs
    # Autograd looks only at tensors among the arguments of apply: an absent prompt travels as an empty one.
    deep = inputs.new_empty(0) if prompts is None else prompts
    name = manager.config.dtype
    given, inputs = inputs, inputs if name is None else inputs.to(torch_dtype(name))
    output: torch.Tensor = _RemotePass.apply(  # type: ignore[no-untyped-call]
        inputs, deep, manager, (start, end), tuple(pad or ())
    )
    return output.to(given.dtype)


class _RemotePass(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        inputs: torch.Tensor,
        prompts: torch.Tensor,
        manager: "RemoteSequenceManager",
        span: tuple[int, int],
        pad: tuple[int, ...],
    ) -> torch.Tensor:
        parts = _split(inputs.detach().cpu(), prompts.detach().to("cpu", inputs.dtype), pad)
        results = loop.run(_forward_all(manager, parts, *span))
        ctx.manager = manager
        ctx.stages = [stages for _, stages in results]
        ctx.shared = prompts.dim() == 4 and prompts.shape[1] == 1
        ctx.prompts_like = prompts.dtype, prompts.device
        return torch.cat([output for output, _ in results]).to(inputs)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        sizes = [len(stages[0].rows.hidden) for stages in ctx.stages]
        grads = torch.split(grad.detach().cpu(), sizes)
        results = loop.run(_backward_all(ctx.manager, ctx.stages, list(grads)))
        inputs = torch.cat([own for own, _ in results]).to(grad)
        deep = [own for _, own in results if own is not None]
        if not deep:
            return inputs, None, None, None, None
        joined = torch.stack(deep).sum(0) if ctx.shared else torch.cat(deep, dim=1)
        dtype, device = ctx.prompts_like
        return inputs, joined.to(device, dtype), None, None, None


async def _forward_all(
    manager: "RemoteSequenceManager", parts: list[Rows], start: int, end: int
) -> list[tuple[torch.Tensor, list[Stage]]]:
    return await _all(Chain(manager).forward(part, start, end) for part in parts)


async def _backward_all(
    manager: "RemoteSequenceManager", stages: list[list[Stage]], grads: list[torch.Tensor]
) -> list[tuple[torch.Tensor, torch.Tensor | None]]:
    pairs = zip(stages, grads, strict=True)
    return await _all(Chain(manager).backward(own, grad) for own, grad in pairs)


async def _all(works: Iterable[Coroutine[Any, Any, _T]]) -> list[_T]:
    """All results in order; the first error ends the others and is raised as it is."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()


def _split(inputs: torch.Tensor, prompts: torch.Tensor, pad: tuple[int, ...]) -> list[Rows]:
    size = max(1, TOKENS_PER_PART // inputs.shape[1])
    parts = []
    for first in range(0, len(inputs), size):
        rows = slice(first, first + size)
        own = None
        if prompts.dim() == 4:
            own = prompts if prompts.shape[1] == 1 else prompts[:, rows]
        parts.append(Rows(hidden=inputs[rows], prompts=own, pad=pad[rows]))
    return parts


def _check(inputs: torch.Tensor, prompts: torch.Tensor | None, blocks: int, pad: list[int] | None) -> None:
    if inputs.dim() != 3:
        raise InvalidArgument(f"inputs must be [batch, tokens, hidden], not {list(inputs.shape)}")
    batch, tokens, width = inputs.shape
    if pad is not None and (len(pad) != batch or not all(0 <= n <= tokens for n in pad)):
        raise InvalidArgument(f"pad must hold {batch} numbers of 0…{tokens}, not {pad[:8]}")
    if prompts is None:
        return
    fits = prompts.dim() == 4 and prompts.shape[0] == blocks and prompts.shape[1] in (1, batch)
    if not fits or prompts.shape[3] != width:
        raise InvalidArgument(
            f"prompts must be [{blocks}, 1 or {batch}, prefix, {width}], not {list(prompts.shape)}"
        )
    shortest = tokens - max(pad or [0])
    if prompts.shape[2] > shortest:
        raise InvalidArgument(f"a prefix of {prompts.shape[2]} prompts does not fit into {shortest} tokens")
