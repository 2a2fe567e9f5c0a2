"""InferenceSession: the session that blocks, with the API that Petals' users know."""

import contextlib
import weakref
from types import TracebackType
from typing import Self

import torch

from blockswarm import loop
from blockswarm.routing.hop import Hop
from blockswarm.routing.manager import RemoteSequenceManager
from blockswarm.session.segment import Stats
from blockswarm.session.session import AsyncInferenceSession


class InferenceSession:
    """A session over all blocks of a model, or over start…end-1. Members as in AsyncInferenceSession; any thread."""

    def __init__(
        self,
        sequence_manager: RemoteSequenceManager,
        max_length: int,
        *,
        start: int = 0,
        end: int | None = None,
        max_batch: int | None = None,
    ) -> None:
        self._session = AsyncInferenceSession(
            sequence_manager, max_length, start=start, end=end, max_batch=max_batch
        )
        self._finalizer = weakref.finalize(self, _abandon, self._session)

    @property
    def num_blocks(self) -> int:
        """Blocks that a step passes."""
        return self._session.num_blocks

    @property
    def max_length(self) -> int:
        """Tokens that the session may hold."""
        return self._session.max_length

    @property
    def batch(self) -> int | None:
        """Rows that it holds; None before the first step."""
        return self._session.batch

    @property
    def chain(self) -> list[Hop]:
        """The servers in use, in order of blocks; empty before the first step."""
        return self._session.chain

    @property
    def stats(self) -> Stats:
        """What the session went through."""
        return self._session.stats

    @property
    def session_id(self) -> str:
        """The id under which the servers log this session."""
        return self._session.session_id

    @property
    def position(self) -> int:
        """Tokens processed so far. Set it to roll back."""
        return self._session.position

    @position.setter
    def position(self, value: int) -> None:
        self._session.position = value

    @property
    def output_ids(self) -> torch.Tensor | None:
        """All token ids so far [batch, tokens], kept by `generate`."""
        return self._session.output_ids

    @output_ids.setter
    def output_ids(self, value: torch.Tensor | None) -> None:
        self._session.output_ids = value

    @property
    def last_token_id(self) -> torch.Tensor | None:
        """Last column of `output_ids`, [batch, 1]; None before there is one. Set it to override."""
        return self._session.last_token_id

    @last_token_id.setter
    def last_token_id(self, value: torch.Tensor) -> None:
        self._session.last_token_id = value

    def padding(self) -> torch.Tensor | None:
        """bool [batch, position], True = padding; None = no padding anywhere."""
        return self._session.padding()

    def reserve(self, rows: int) -> None:
        """Ask for room for this many rows; before the first step."""
        self._session.reserve(rows)

    def step(
        self,
        inputs: torch.Tensor,
        prompts: torch.Tensor | None = None,
        hypo_ids: torch.Tensor | None = None,
        *,
        pad: list[int] | None = None,
    ) -> torch.Tensor:
        """As AsyncInferenceSession.step."""
        return loop.run(self._session.step(inputs, prompts, hypo_ids, pad=pad))

    def close(self, *exc_details: object) -> None:
        """Close all streams; the servers free the KV. Idempotent."""
        if self._finalizer.detach() is None:
            return
        try:
            loop.run(self._session.close(*exc_details))
        except BaseException:
            # Interrupted: let the rest end in the background, rather than hold KV until the servers find it idle.
            loop.submit(self._session.close())
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _abandon(session: AsyncInferenceSession) -> None:
    """Close a session that was dropped without `close`, so that servers do not keep its KV until it is idle."""
    if session.chain:
        with contextlib.suppress(RuntimeError):  # after a fork, or at the end of the process
            loop.submit(session.close())
