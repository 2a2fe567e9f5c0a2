"""What a caller may hand to `step`: checked before anything is sent."""

from dataclasses import dataclass
from typing import Protocol

import torch

from blockswarm_wire.errors import InvalidArgument, MaxLengthExceeded
from blockswarm_wire.limits import MAX_BATCH


@dataclass(frozen=True, slots=True)
class Inputs:
    """A checked step: tensors on the CPU in the dtype that travels."""

    hidden: torch.Tensor
    prompts: torch.Tensor | None
    hypo_ids: tuple[int, ...]
    pad: tuple[int, ...]

    @property
    def batch(self) -> int:
        """Rows."""
        return self.hidden.shape[0]

    @property
    def tokens(self) -> int:
        """Tokens per row."""
        return self.hidden.shape[1]


class _Session(Protocol):
    @property
    def num_blocks(self) -> int: ...
    @property
    def position(self) -> int: ...
    @property
    def max_length(self) -> int: ...
    @property
    def batch(self) -> int | None: ...
    @property
    def hidden_size(self) -> int: ...


def check_inputs(
    session: _Session,
    inputs: torch.Tensor,
    prompts: torch.Tensor | None,
    hypo_ids: torch.Tensor | None,
    pad: list[int] | None,
    *,
    dtype: torch.dtype | None,
) -> Inputs:
    """The step as it travels, in `dtype` (None = as it came).

    Raises:
        InvalidArgument: a shape, dtype or index is wrong. MaxLengthExceeded: it passes the session's max_length.
    """
    if inputs.dim() != 3 or not inputs.is_floating_point():
        raise InvalidArgument(
            f"inputs: {inputs.dtype} {list(inputs.shape)}, expected floats [batch, tokens, hidden]"
        )
    batch, tokens, hidden_size = inputs.shape
    if not 1 <= batch <= MAX_BATCH:
        raise InvalidArgument(f"inputs: {batch} rows are not of 1…{MAX_BATCH}")
    if session.hidden_size not in (0, hidden_size):
        raise InvalidArgument(f"inputs: hidden size {hidden_size}, expected {session.hidden_size}")
    if session.position + tokens > session.max_length:
        raise MaxLengthExceeded(
            f"Maximum length exceeded: prefix {session.position} + current {tokens} "
            f"exceeds pre-allocated maximum {session.max_length}"
        )
    order = _order(session, hypo_ids, batch)
    # A copy: the history keeps it for replay, whatever the caller does with the tensor afterwards.
    hidden = inputs.detach().to(device="cpu", dtype=dtype or inputs.dtype, copy=True)
    return Inputs(
        hidden=hidden,
        prompts=_prompts(session, prompts, batch, tokens, hidden),
        hypo_ids=order,
        pad=_pad(pad, batch, tokens),
    )


def _order(session: _Session, hypo_ids: torch.Tensor | None, batch: int) -> tuple[int, ...]:
    held = session.batch
    if hypo_ids is None or hypo_ids.numel() == 0:
        if held is not None and session.position and held != batch:
            raise InvalidArgument(
                f"inputs: {batch} rows, but the session holds {held}: name them in hypo_ids"
            )
        return ()
    # transformers' beam search counts in int32, everybody else in int64.
    if hypo_ids.dim() != 1 or hypo_ids.dtype not in (torch.int32, torch.int64) or len(hypo_ids) != batch:
        raise InvalidArgument(f"hypo_ids: {hypo_ids.dtype} {list(hypo_ids.shape)}, expected int64 [{batch}]")
    order = tuple(int(row) for row in hypo_ids)
    if held is None or not 0 <= min(order) <= max(order) < held:
        raise InvalidArgument(
            f"hypo_ids: {list(order)[:20]} out of range, the session holds {held or 0} rows"
        )
    # Rows that stay where they are need no reordering, on any server, now or in a replay.
    return () if order == tuple(range(held)) else order


def _prompts(
    session: _Session, prompts: torch.Tensor | None, batch: int, tokens: int, hidden: torch.Tensor
) -> torch.Tensor | None:
    if prompts is None or prompts.numel() == 0:
        return None
    wanted = f"[{session.num_blocks}, {batch} or 1, at most {tokens}, {hidden.shape[2]}]"
    shape = list(prompts.shape)
    if len(shape) != 4 or shape[0] != session.num_blocks or shape[1] not in (1, batch) or shape[2] > tokens:
        raise InvalidArgument(f"prompts: shape {shape}, expected {wanted}")
    if shape[3] != hidden.shape[2]:
        raise InvalidArgument(f"prompts: shape {shape}, expected {wanted}")
    return prompts.detach().to(device=hidden.device, dtype=hidden.dtype, copy=True)


def _pad(pad: list[int] | None, batch: int, tokens: int) -> tuple[int, ...]:
    if pad is None or not any(pad):
        return ()
    if len(pad) != batch or min(pad) < 0 or max(pad) > tokens:
        raise InvalidArgument(f"pad: {pad[:20]}, expected {batch} numbers of 0…{tokens}")
    return tuple(pad)
