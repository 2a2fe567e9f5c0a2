"""What a leg was fed, as a log from which its KV can be rebuilt bit for bit. Pure: tensors are opaque here.

Replay uses the same chunk boundaries, because K and V of a chunk are not bit-equal to those of a longer or shorter one.
Rollback cuts positions but never permutations: rows that were reordered stay reordered, whatever is forgotten later.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One step as a leg got it.

    `hidden`: [batch, tokens, hidden size], None when there are no tokens; `prompts`: deep prompts of the leg's blocks
    [blocks, batch or 1, prefix, hidden size]; `pad`: leading padding per row, () = none; `hypo_ids`: () = rows kept.
    """

    position: int
    tokens: int
    batch: int
    hidden: Any = None
    prompts: Any = None
    pad: tuple[int, ...] = ()
    hypo_ids: tuple[int, ...] = ()

    @property
    def end(self) -> int:
        """The position after the step."""
        return self.position + self.tokens


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in a history to go back to."""

    entries: list[Entry]
    length: int
    position: int


class History:
    """The log of one leg boundary."""

    def __init__(self, entries: Sequence[Entry] = (), position: int | None = None) -> None:
        self._entries = list(entries)
        self._position = (self._entries[-1].end if self._entries else 0) if position is None else position

    @property
    def position(self) -> int:
        """Tokens that a leg holds which was fed this history."""
        return self._position

    @property
    def entries(self) -> tuple[Entry, ...]:
        """What to feed an empty leg, in order. Each entry's position implies the truncation before it."""
        return tuple(self._entries)

    def mark(self) -> Mark:
        """The present state, for `restore`."""
        return Mark(self._entries, len(self._entries), self._position)

    def restore(self, mark: Mark) -> None:
        """Forget everything since `mark`."""
        self._entries = mark.entries[: mark.length]
        self._position = mark.position

    def add(self, entry: Entry) -> None:
        """Record a step that was applied."""
        self.rollback(entry.position)
        if entry.tokens or entry.hypo_ids:
            self._entries.append(entry)
        self._position = entry.end

    def rollback(self, position: int) -> None:
        """Cut the history to `position`.

        Entries that start at or after it go, except for what they did to the order of rows, which stays as one entry
        without tokens. An entry cut in its middle stays whole: replay sends it whole and then rolls back.

        Raises:
            ValueError: `position` is ahead of the history.
        """
        if position > self._position:
            raise ValueError(f"position {position} is ahead of the history's {self._position}")
        if position == self._position:
            return
        kept = [entry for entry in self._entries if entry.position < position]
        order = composed([entry.hypo_ids for entry in self._entries if entry.position >= position])
        if order and position:
            kept.append(Entry(position=position, tokens=0, batch=len(order), hypo_ids=order))
        # A new list: a mark may still hold the old one.
        self._entries = kept
        self._position = position

    def trimmed(self) -> tuple[Entry, ...]:
        """What to feed a leg that cannot truncate: only the tokens that still count, in order."""
        result: list[Entry] = []
        limit = self._position
        for entry in reversed(self._entries):
            tokens = min(entry.end, limit) - entry.position
            limit = min(limit, entry.position)
            result.append(_cut(entry, tokens))
        return tuple(reversed(result))


def composed(orders: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """One permutation that does what `orders` do one after the other; () = nothing."""
    total: tuple[int, ...] = ()
    for order in orders:
        if order:
            total = tuple(total[row] for row in order) if total else order
    return total


def _cut(entry: Entry, tokens: int) -> Entry:
    if tokens == entry.tokens:
        return entry
    prompts = entry.prompts
    if prompts is not None and prompts.shape[2] > tokens:
        prompts = prompts[:, :, :tokens]
    return Entry(
        position=entry.position,
        tokens=tokens,
        batch=entry.batch,
        hidden=entry.hidden[:, :tokens] if tokens else None,
        prompts=prompts if tokens else None,
        pad=tuple(min(pad, tokens) for pad in entry.pad),
        hypo_ids=entry.hypo_ids,
    )
