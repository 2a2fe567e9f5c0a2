"""Which positions of a batch row are padding, as half-open ranges: both ends keep the same books."""

from collections.abc import Sequence

# In order, never touching, for one batch row.
Ranges = tuple[tuple[int, int], ...]


def cut(ranges: Ranges, position: int) -> Ranges:
    """The ranges as far as they lie before `position`."""
    return tuple((start, min(end, position)) for start, end in ranges if start < position)


def join(ranges: Ranges, start: int, end: int) -> Ranges:
    """The ranges with start:end added behind them; touching ones become one."""
    if start == end:
        return ranges
    if ranges and ranges[-1][1] == start:
        return (*ranges[:-1], (ranges[-1][0], end))
    return (*ranges, (start, end))


def advance(
    rows: Sequence[Ranges],
    position: int,
    *,
    batch: int,
    hypo_ids: Sequence[int] = (),
    pad: Sequence[int] = (),
) -> tuple[Ranges, ...]:
    """The ranges of every row after a step: cut to `position`, reordered, then the step's leading padding added."""
    kept = tuple(cut(ranges, position) for ranges in rows)
    if position == 0 or not kept:
        kept = ((),) * batch
    elif hypo_ids:
        kept = tuple(kept[row] for row in hypo_ids)
    if not any(pad):
        return kept
    return tuple(join(ranges, position, position + length) for ranges, length in zip(kept, pad, strict=True))
