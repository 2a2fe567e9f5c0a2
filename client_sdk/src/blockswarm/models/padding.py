"""From transformers' attention_mask to the leading padding that a step carries."""

import torch

from blockswarm_wire.errors import InvalidArgument


def leading_pads(mask: torch.Tensor | None, tokens: int, *, strict: bool) -> list[int] | None:
    """Leading padding per row among the last `tokens` columns of an attention mask; None = nowhere any.

    Args:
        mask: [batch, positions], non-zero = real token.
        tokens: how many of the last columns the step is about.
        strict: whether padding elsewhere is an error; without a session, padding on the right is harmless, since no
            real token looks at it.

    Raises:
        InvalidArgument: a hole in the mask, or padding on the right where it is not harmless.
    """
    if mask is None or tokens == 0:
        return None
    if mask.dim() != 2:
        raise InvalidArgument(
            f"attention_mask has {mask.dim()} dimensions; give a 2-dimensional one [batch, positions]"
        )
    real = mask[:, -tokens:] != 0
    if bool(real.all()):
        return None
    seen = real.cumsum(dim=1)
    pads = (seen == 0).sum(dim=1)
    holes = ~real & (seen > 0)
    if strict:
        wrong = bool(holes.any())
    else:  # a zero followed by a one
        wrong = bool((holes[:, :-1] & real[:, 1:]).any())
    if wrong:
        raise InvalidArgument(
            "attention_mask has padding between or after real tokens of one call; pad on the left "
            '(tokenizer.padding_side = "left")'
        )
    return [int(pad) for pad in pads] if bool(pads.any()) else None
