"""A span: a half-open range of transformer blocks, written `start:end`."""

import re
from dataclasses import dataclass
from typing import Self

from blockswarm_wire.errors import InvalidArgument
from blockswarm_wire.limits import MAX_BLOCKS

_FORM = re.compile(r"(\d{1,6}):(\d{1,6})")


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """Blocks `start`, `start + 1`, … `end - 1`. Never empty.

    Raises:
        InvalidArgument: unless 0 <= start < end <= MAX_BLOCKS.
    """

    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.end <= MAX_BLOCKS:
            raise InvalidArgument(
                f"span {self.start}:{self.end} must satisfy 0 <= start < end <= {MAX_BLOCKS}"
            )

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `start:end`."""
        match = _FORM.fullmatch(text)
        if match is None:
            raise InvalidArgument(f"span {text[:40]!r} is not of the form start:end, for example 0:10")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.start}:{self.end}"

    def __len__(self) -> int:
        return self.end - self.start

    def __contains__(self, other: "Span | int") -> bool:
        if isinstance(other, int):
            return self.start <= other < self.end
        return self.start <= other.start and other.end <= self.end

    def blocks(self) -> range:
        """The block numbers, in order."""
        return range(self.start, self.end)


def uncovered(spans: list[Span], num_blocks: int) -> list[int]:
    """The blocks of 0…num_blocks-1 that no span holds."""
    held = {block for span in spans for block in span.blocks()}
    return [block for block in range(num_blocks) if block not in held]
