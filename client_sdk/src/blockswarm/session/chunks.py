"""Cut a prompt into the steps that travel: bounded in tokens and bytes, prompts and padding cut alike."""

import torch

from blockswarm.session.history import Entry
from blockswarm_wire.errors import InvalidArgument
from blockswarm_wire.limits import MAX_CHUNK_BYTES


def chunk_tokens(batch: int, hidden_size: int, itemsize: int, limit: int) -> int:
    """Tokens of one step: at most `limit`, and at most 8 MiB of hidden states.

    Raises:
        InvalidArgument: not even one token fits.
    """
    tokens = min(limit, MAX_CHUNK_BYTES // max(1, batch * hidden_size * itemsize))
    if tokens < 1:
        raise InvalidArgument(
            f"inputs: a token of {batch} rows is larger than {MAX_CHUNK_BYTES} bytes: use fewer rows"
        )
    return tokens


def entries(
    hidden: torch.Tensor,
    *,
    position: int,
    size: int,
    pad: tuple[int, ...],
    hypo_ids: tuple[int, ...],
    prompts: torch.Tensor | None,
) -> list[Entry]:
    """The steps for `hidden` [batch, tokens, hidden size], each at most `size` tokens; one without tokens if there are
    none. Rows are reordered by the first one only."""
    batch, tokens = hidden.shape[:2]
    if tokens == 0:
        return [Entry(position=position, tokens=0, batch=batch, hypo_ids=hypo_ids)]
    result = []
    for first in range(0, tokens, size):
        last = min(first + size, tokens)
        cut = tuple(min(max(length - first, 0), last - first) for length in pad)
        result.append(
            Entry(
                position=position + first,
                tokens=last - first,
                batch=batch,
                hidden=hidden[:, first:last].contiguous(),
                prompts=_prompts(prompts, pad, first, last) if prompts is not None else None,
                pad=cut if any(cut) else (),
                hypo_ids=() if first else hypo_ids,
            )
        )
    return result


def _prompts(prompts: torch.Tensor, pad: tuple[int, ...], first: int, last: int) -> torch.Tensor | None:
    """The part of deep prompts [blocks, batch or 1, prefix, hidden size] that lands in tokens first…last-1.

    Row i's prompt j belongs to its j-th real token, which is token pad[i] + j of the step. Rows get unequal parts where
    their padding differs; the shorter ones are filled with zeros, which change nothing.
    """
    prefix = prompts.shape[2]
    if not any(pad):
        part = prompts[:, :, first : min(last, prefix)]
        return part.contiguous() if part.shape[2] else None
    spans = [(min(max(first - length, 0), prefix), min(max(last - length, 0), prefix)) for length in pad]
    longest = max(end - start for start, end in spans)
    if longest == 0:
        return None
    rows = prompts.expand(-1, len(pad), -1, -1)
    result = prompts.new_zeros(prompts.shape[0], len(pad), longest, prompts.shape[3])
    for row, (start, end) in enumerate(spans):
        result[:, row, : end - start] = rows[:, row, start:end]
    return result
