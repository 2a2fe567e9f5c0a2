"""AsyncInferenceSession: one generation over a chain of servers, that goes on when one of them is lost."""

import asyncio
import contextlib
import random
import uuid
from types import TracebackType
from typing import Self

import torch

from blockswarm.routing.hop import Hop
from blockswarm.routing.manager import RemoteSequenceManager
from blockswarm.session.chunks import chunk_tokens, entries
from blockswarm.session.failures import Budget
from blockswarm.session.history import Entry
from blockswarm.session.inputs import Inputs, check_inputs
from blockswarm.session.leg import Terms
from blockswarm.session.segment import Segment, Stats, for_blocks
from blockswarm_wire.errors import BlockSwarmError, InvalidArgument
from blockswarm_wire.padding import Ranges, advance
from blockswarm_wire.tensor import torch_dtype
from blockswarm_wire.v1 import block_server_pb2 as pb

_MOVE_SECONDS = 5.0


class AsyncInferenceSession:
    """A session over blocks start…end-1 (default: all).

    Servers are contacted at the first step. Steps are applied one after the other, whoever calls. Use on the SDK's
    background loop (`blockswarm.loop`), or any one loop on which the manager runs too.

    Args:
        manager: knows the servers.
        max_length: tokens that the session may hold; the servers reserve memory for it.
        start, end: range of blocks.
        max_batch: rows that the session may hold; default: those of the first step, or what `reserve` says.
    """

    def __init__(
        self,
        manager: RemoteSequenceManager,
        max_length: int,
        *,
        start: int = 0,
        end: int | None = None,
        max_batch: int | None = None,
    ) -> None:
        if max_length < 1:
            raise InvalidArgument(f"max_length: must be at least 1, got {max_length}")
        self._manager = manager
        self._range = (start, manager.num_blocks if end is None else end)
        self._max_length = max_length
        self._max_batch = self._reserved = max_batch
        self._session_id = uuid.uuid4().hex
        self._epoch = 0
        self._position = 0
        self._batch: int | None = None
        self._pads: tuple[Ranges, ...] = ()
        self._hidden_size = 0
        self._dtype = torch.float32
        self._chain: list[Segment] = []
        self._lock = asyncio.Lock()
        self._closed = False
        self._moving: dict[Segment, asyncio.Task[None]] = {}
        self._rng = random.Random(manager.config.seed)
        self.stats = Stats()
        self.output_ids: torch.Tensor | None = None

    # -- what it is

    @property
    def manager(self) -> RemoteSequenceManager:
        """Knows the servers."""
        return self._manager

    @property
    def session_id(self) -> str:
        """The id under which the servers log this session."""
        return self._session_id

    @property
    def num_blocks(self) -> int:
        """Blocks that a step passes."""
        return self._range[1] - self._range[0]

    @property
    def max_length(self) -> int:
        """Tokens that the session may hold."""
        return self._max_length

    @property
    def batch(self) -> int | None:
        """Rows that it holds; None before the first step."""
        return self._batch

    @property
    def chain(self) -> list[Hop]:
        """The servers in use, in order of blocks; empty before the first step."""
        return [leaf.hop for segment in self._chain for leaf in segment.leaves()]

    @property
    def position(self) -> int:
        """Tokens processed so far."""
        return self._position

    @position.setter
    def position(self, value: int) -> None:
        """Roll back to `value` tokens; takes effect with the next step.

        Raises:
            InvalidArgument: negative, or ahead of the present position.
        """
        if not 0 <= value <= self._position:
            raise InvalidArgument(
                f"position: {value} is not of 0…{self._position}; a session can only be rolled back"
            )
        self._pads = advance(self._pads, value, batch=len(self._pads))
        self._position = value

    @property
    def last_token_id(self) -> torch.Tensor | None:
        """Last column of `output_ids`, [batch, 1]; None before there is one."""
        return None if self.output_ids is None else self.output_ids[:, -1:]

    @last_token_id.setter
    def last_token_id(self, value: torch.Tensor) -> None:
        if self.output_ids is None:
            raise RuntimeError(
                "Can't override `last_token_id` since the session has not generated any tokens yet"
            )
        if value.shape != self.output_ids[:, -1:].shape:
            raise InvalidArgument(
                f"last_token_id: shape {list(value.shape)}, expected {list(self.output_ids[:, -1:].shape)}"
            )
        self.output_ids = torch.cat((self.output_ids[:, :-1], value.to(self.output_ids)), dim=1)

    def padding(self) -> torch.Tensor | None:
        """bool [batch, position], True = padding; None = no padding anywhere."""
        if self._batch is None or not any(self._pads):
            return None
        mask = torch.zeros(self._batch, self._position, dtype=torch.bool)
        for row, ranges in enumerate(self._pads):
            for first, last in ranges:
                mask[row, first:last] = True
        return mask

    def reserve(self, rows: int) -> None:
        """Ask for room for this many rows; before the first step.

        Raises:
            InvalidArgument: the servers were already asked for less.
        """
        if self._chain and rows > (self._max_batch or 0):
            raise InvalidArgument(
                f"max_batch: the session was opened for {self._max_batch} rows, {rows} are needed: open a new one"
            )
        if not self._chain:
            self._max_batch = max(rows, self._max_batch or 0)

    # -- what it does

    async def step(
        self,
        inputs: torch.Tensor,
        prompts: torch.Tensor | None = None,
        hypo_ids: torch.Tensor | None = None,
        *,
        pad: list[int] | None = None,
    ) -> torch.Tensor:
        """Pass hidden states through all blocks.

        Args:
            inputs: [batch, tokens, hidden size], any float dtype and device; no tokens are legal.
            prompts: deep prompts [num_blocks, batch or 1, prefix, hidden size], added to the inputs of each block at
                the first `prefix` real tokens of this step.
            hypo_ids: int64 [batch]; row i of this step continues row hypo_ids[i] of the session.
            pad: leading padding of this step, per row.

        Returns:
            [batch, tokens, hidden size] in the inputs' dtype and device; zeros where the inputs are padding.

        Raises:
            MaxLengthExceeded, InvalidArgument: the step is wrong (both are ValueErrors); nothing was applied.
            SessionLost: servers were lost and not replaced in time; the session may be stepped again later.
        """
        async with self._lock:
            if self._closed:
                raise InvalidArgument("session: it is closed; open a new one")
            checked = check_inputs(self, inputs, prompts, hypo_ids, pad, dtype=self._expected_dtype())
            await self._connect(checked)
            steps = self._entries(checked)
            outputs = await self._run(steps)
            self._pads = advance(
                self._pads, self._position, batch=checked.batch, hypo_ids=checked.hypo_ids, pad=checked.pad
            )
            self._position += checked.tokens
            self._batch = checked.batch
            self.stats.steps += 1
            if not outputs:
                return inputs
            joined = outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=1)
            return joined.to(device=inputs.device, dtype=inputs.dtype)

    async def close(self, *exc_details: object) -> None:
        """Close all streams, last one first; the servers free the KV. Idempotent."""
        self._closed = True
        moving = list(self._moving.values())
        for task in moving:
            task.cancel()
        if moving:
            await asyncio.wait(moving)
        async with self._lock:
            for segment in reversed(self._chain):
                await segment.close()
            self._chain = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # -- what its segments ask of it

    @property
    def hidden_size(self) -> int:
        """Width of the hidden states, from the first step."""
        return self._hidden_size

    @property
    def cache_tokens(self) -> int:
        """KV tokens x rows that each server promises."""
        return self._max_length * (self._max_batch or 1)

    def terms(self, alloc_timeout: float | None) -> Terms:
        """What the next leg is opened with; every leg gets a higher epoch than all before.

        alloc_timeout: how long it may wait for memory; None = as configured.
        """
        self._epoch += 1
        config = self._manager.config
        return Terms(
            session_id=self._session_id,
            epoch=self._epoch,
            fingerprint=self._manager.fingerprint,
            max_batch=self._max_batch or 1,
            max_length=self._max_length,
            alloc_timeout=config.alloc_timeout if alloc_timeout is None else alloc_timeout,
            server_timeout=config.server_timeout,
            silence_timeout=config.silence_timeout,
            hidden_size=self._hidden_size,
            dtype=self._dtype,
        )

    def budget(self) -> Budget:
        """Retries and time for one step of one range."""
        return Budget(self._manager.config, self._rng)

    def on_notice(self, segment: Segment, notice: pb.Notice) -> None:
        """A server is leaving: move its range in the background, also when nobody steps."""
        if not self._closed and segment not in self._moving:
            task = asyncio.create_task(self._move(segment, segment.hop.instance), name="move")
            self._moving[segment] = task
            task.add_done_callback(lambda _: self._moving.pop(segment, None))

    # -- how

    def _expected_dtype(self) -> torch.dtype | None:
        name = self._manager.config.dtype
        return None if name is None else torch_dtype(name)

    async def _connect(self, inputs: Inputs) -> None:
        """Choose the chain, at the first step."""
        if self._chain:
            return
        self._reserved = self._max_batch
        self._max_batch = max(inputs.batch, self._max_batch or 0)
        self._hidden_size = inputs.hidden.shape[2]
        self._dtype = inputs.hidden.dtype
        whole = Segment(self, Hop("none", "", "", *self._range))
        hops = await whole.first_route()
        self._chain = [Segment(self, hop) for hop in hops]

    def _entries(self, inputs: Inputs) -> list[Entry]:
        hidden = inputs.hidden
        size = chunk_tokens(
            inputs.batch, self._hidden_size, hidden.element_size(), self._manager.config.chunk_tokens
        )
        return entries(
            hidden,
            position=self._position,
            size=size,
            pad=inputs.pad,
            # With no tokens left there are no rows to reorder.
            hypo_ids=inputs.hypo_ids if self._position else (),
            prompts=inputs.prompts,
        )

    async def _run(self, steps: list[Entry]) -> list[torch.Tensor]:
        """Send the steps down the chain, each one server behind the one before it; all are applied or none is."""
        for segment in self._chain:
            segment.history.rollback(min(self._position, segment.history.position))
        marks = [segment.mark() for segment in self._chain]
        try:
            outputs = await self._pipeline(steps)
        except BaseException:
            reordered = any(entry.hypo_ids for entry in steps)
            for segment, mark in zip(self._chain, marks, strict=True):
                segment.restore(mark, reordered=reordered)
            self._forget_first()
            raise
        self._chain = [leaf for segment in self._chain for leaf in segment.leaves()]
        return [output for output in outputs if output is not None]

    def _forget_first(self) -> None:
        """After a failed first step nothing binds the session: the next one may have another width or batch."""
        if self._batch is None:
            for segment in self._chain:
                segment.abandon()
            self._chain = []
            self._hidden_size = 0
            self._max_batch = self._reserved

    async def _pipeline(self, steps: list[Entry]) -> list[torch.Tensor | None]:
        if len(steps) == 1:
            return [await self._descend(steps[0])]
        tasks = [asyncio.create_task(self._descend(entry)) for entry in steps]
        try:
            return list(await asyncio.gather(*tasks))
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            raise

    async def _descend(self, entry: Entry) -> torch.Tensor | None:
        hidden: torch.Tensor | None = entry.hidden
        first = self._range[0]
        for segment in self._chain:
            # Locks are fair, so steps keep their order through the whole chain.
            async with segment.lock:
                hidden = await segment.apply(for_blocks(entry, segment.hop, first, hidden))
        return hidden

    async def _move(self, segment: Segment, instance: str) -> None:
        """Rebuild `segment` away from `instance` as soon as there is another server; until then it stays."""
        while not self._closed:
            async with self._lock:
                if segment not in self._chain or segment.hop.instance != instance:
                    return
                with contextlib.suppress(BlockSwarmError):
                    if (replacement := await segment.move()) is not None:
                        at = self._chain.index(segment)
                        self._chain[at : at + 1] = replacement
                        await segment.close()
                        return
            await self._manager.changed(_MOVE_SECONDS)
