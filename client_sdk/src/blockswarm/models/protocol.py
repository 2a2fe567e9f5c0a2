"""What the models ask of a session; `blockswarm.session.InferenceSession` is one."""

from types import TracebackType
from typing import Protocol, Self

import torch


class Session(Protocol):
    """One generation's place in the swarm: rows, a position, and the ids that lie behind it."""

    position: int
    output_ids: torch.Tensor | None

    @property
    def max_length(self) -> int: ...

    @property
    def batch(self) -> int | None:
        """Rows that it holds; None before the first step."""
        ...

    def step(
        self,
        inputs: torch.Tensor,
        prompts: torch.Tensor | None = None,
        hypo_ids: torch.Tensor | None = None,
        *,
        pad: list[int] | None = None,
    ) -> torch.Tensor: ...

    def reserve(self, rows: int) -> None:
        """Ask for room for this many rows; before the first step."""
        ...

    def padding(self) -> torch.Tensor | None:
        """bool [batch, position], True = padding; None = no padding anywhere."""
        ...

    def close(self, *exc_details: object) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
