"""RemoteSequential: a range of remote blocks as one torch module."""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from blockswarm.models.protocol import Session
from blockswarm_wire.errors import InvalidArgument

if TYPE_CHECKING:
    from blockswarm.routing.manager import RemoteSequenceManager


class RemoteSequential(nn.Module):
    """Blocks start…end-1 of the manager's model, wherever they are served.

    Calling it runs a stateless pass that autograd understands, or a step of the active session where there is one.
    `remote[3:7]` and `remote[3]` are ranges of their own; iterating yields the whole range once, so that
    `for block in remote: hidden = block(hidden)` costs one trip and not one per block.

    Args:
        config: of the model (transformers), or None.
        manager: routes to the servers.
        start, end: block numbers; end=None means to the last one.

    Raises:
        InvalidArgument: the range is empty or not within the model.
    """

    def __init__(
        self, config: Any, manager: "RemoteSequenceManager", start: int = 0, end: int | None = None
    ) -> None:
        super().__init__()
        end = manager.num_blocks if end is None else end
        if not 0 <= start < end <= manager.num_blocks:
            raise InvalidArgument(
                f"blocks {start}:{end} are not a range within the model's 0:{manager.num_blocks}"
            )
        self.config = config
        self.manager = manager
        self.start = start
        self.end = end
        self._active: ContextVar[Session | None] = ContextVar("blockswarm_session", default=None)

    @property
    def active_session(self) -> Session | None:
        """The session of the innermost `with` of this thread or task, None outside."""
        return self._active.get()

    @property
    def position(self) -> int:
        """Position of the active session, 0 without one."""
        session = self._active.get()
        return 0 if session is None else session.position

    def forward(
        self,
        inputs: torch.Tensor,
        prompts: torch.Tensor | None = None,
        *,
        hypo_ids: torch.Tensor | None = None,
        pad: list[int] | None = None,
    ) -> torch.Tensor:
        """[batch, tokens, hidden] through all blocks of the range.

        Args:
            inputs: hidden states.
            prompts: [blocks of the range, batch or 1, prefix, hidden], added to the first `prefix` real rows.
            hypo_ids: with a session only: order of its rows before this step.
            pad: leading padding per row of this step.
        """
        session = self._active.get()
        if session is not None:
            return session.step(inputs, prompts, hypo_ids, pad=pad)
        if hypo_ids is not None:
            raise InvalidArgument(
                "hypo_ids reorder the rows of a session: call inside `with inference_session(…)`"
            )
        return self.stateless(inputs, prompts, pad=pad)

    def stateless(
        self, inputs: torch.Tensor, prompts: torch.Tensor | None, *, pad: list[int] | None = None
    ) -> torch.Tensor:
        """A pass that no session remembers, differentiable with respect to inputs and prompts."""
        from blockswarm.training.autograd import remote_pass

        return remote_pass(self.manager, inputs, prompts, start=self.start, end=self.end, pad=pad)

    @contextlib.contextmanager
    def use_session(self, session: Session) -> Iterator[Session]:
        """Make `session` the active one of this thread or task; it is not closed at the end."""
        token = self._active.set(session)
        try:
            yield session
        finally:
            self._active.reset(token)

    @contextlib.contextmanager
    def inference_session(self, max_length: int, *, max_batch: int | None = None) -> Iterator[Session]:
        """Open a session over this range, make it the active one, and close it at the end.

        Args:
            max_length: tokens that it may hold in all.
            max_batch: rows that it may hold, beams included; None = those that the first call needs.
        """
        with self.open_session(max_length, max_batch=max_batch) as session, self.use_session(session):
            yield session

    def open_session(self, max_length: int, *, max_batch: int | None = None) -> Session:
        """A session over this range that the caller closes."""
        from blockswarm.session import InferenceSession

        session: Session = InferenceSession(
            self.manager, max_length, start=self.start, end=self.end, max_batch=max_batch
        )
        return session

    def __getitem__(self, index: int | slice) -> "RemoteSequential":
        if isinstance(index, slice):
            first, last, step = index.indices(len(self))
            if step != 1:
                raise InvalidArgument(f"a range of blocks has step 1, not {step}")
        else:
            first = index + len(self) if index < 0 else index
            last = first + 1
            if not 0 <= first < len(self):
                raise IndexError(f"block {index} of a range of {len(self)}")
        return type(self)(self.config, self.manager, self.start + first, self.start + last)

    def __iter__(self) -> Iterator["RemoteSequential"]:
        yield self

    def __len__(self) -> int:
        return self.end - self.start

    def extra_repr(self) -> str:
        return f"blocks {self.start}:{self.end} of {self.manager.model.name}"
