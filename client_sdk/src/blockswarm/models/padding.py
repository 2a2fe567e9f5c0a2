"""From transformers' attention_mask to the leading padding that each step carries."""

import itertools
from dataclasses import dataclass

import torch

from blockswarm_wire.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class Piece:
    """Columns start…end-1 of a call, sent as one step; `pad`: leading padding per row, None = nowhere any."""

    start: int
    end: int
    pad: list[int] | None = None


def pieces(mask: torch.Tensor | None, tokens: int) -> list[Piece]:
    """The steps that a call in a session is sent as: cut wherever padding follows a real token in some row.

    The usual call is one piece. A ragged second turn is two: the last token of the turn before, then the new ones.

    Args:
        mask: [batch, positions], non-zero = real token; None = no padding.
        tokens: how many of the last columns the call is about.

    Raises:
        InvalidArgument: a row ends with padding, so that there is nothing to go on from.
    """
    real = _own(mask, tokens)
    if real is None:
        return [Piece(0, tokens)]
    if bool((real.any(dim=1) & ~real[:, -1]).any()):
        raise InvalidArgument(
            'attention_mask has padding on the right; pad on the left (tokenizer.padding_side = "left")'
        )
    cuts = (real[:, :-1] & ~real[:, 1:]).any(dim=0).nonzero().flatten() + 1
    edges = [0, *cuts.tolist(), tokens]
    return [Piece(a, b, _leading(real[:, a:b])) for a, b in itertools.pairwise(edges)]


def leading_pads(mask: torch.Tensor | None, tokens: int) -> list[int] | None:
    """Leading padding per row of a call without a session, which cannot be cut.

    Padding on the right is harmless there, since no real token looks at it.

    Raises:
        InvalidArgument: padding between real tokens.
    """
    real = _own(mask, tokens)
    if real is None:
        return None
    seen = real.cumsum(dim=1) > 0
    if bool((~real[:, :-1] & seen[:, :-1] & real[:, 1:]).any()):
        raise InvalidArgument("attention_mask has padding between real tokens of a row; pad on one side")
    return _leading(real)


def _own(mask: torch.Tensor | None, tokens: int) -> torch.Tensor | None:
    """bool [batch, tokens] of the call's own columns; None where all are real."""
    if mask is None or tokens == 0:
        return None
    if mask.dim() != 2:
        raise InvalidArgument(
            f"attention_mask has {mask.dim()} dimensions; give a 2-dimensional one [batch, positions]"
        )
    real = mask[:, -tokens:] != 0
    return None if bool(real.all()) else real


def _leading(real: torch.Tensor) -> list[int] | None:
    pads: list[int] = (real.cumsum(dim=1) == 0).sum(dim=1).tolist()
    return pads if any(pads) else None
