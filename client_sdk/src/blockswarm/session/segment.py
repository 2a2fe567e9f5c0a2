"""One range of blocks of a session, whichever server holds it now: feeds it, and rebuilds it when it is lost.

A segment knows its own history, so losing a server concerns this range only: the other segments keep their KV and are
sent nothing twice. When the range can only be rebuilt on several servers, the segment becomes several.
"""

import asyncio
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch

from blockswarm.routing.hop import Hop, MissingBlocks
from blockswarm.routing.manager import RemoteSequenceManager
from blockswarm.session.failures import Budget
from blockswarm.session.history import Entry, History, Mark
from blockswarm.session.leg import Leg, Output, Terms
from blockswarm_wire.errors import BlockSwarmError, CannotTruncate, CapacityError, LostError
from blockswarm_wire.limits import MAX_INFLIGHT_STEPS
from blockswarm_wire.v1 import block_server_pb2 as pb

_LOOK_SECONDS = 1.0


@dataclass(slots=True)
class Stats:
    """What a session went through. `*_seconds` as the servers reported them."""

    steps: int = 0
    failovers: int = 0
    moves: int = 0
    replayed_steps: int = 0
    compute_seconds: float = 0.0
    queue_seconds: float = 0.0
    replay_seconds: float = 0.0
    lost: list[str] = field(default_factory=list)


class Owner(Protocol):
    """What a segment needs of its session."""

    stats: Stats

    @property
    def manager(self) -> RemoteSequenceManager: ...

    @property
    def hidden_size(self) -> int: ...

    @property
    def wire_dtype(self) -> torch.dtype: ...

    @property
    def cache_tokens(self) -> int: ...

    def terms(self) -> Terms: ...

    def budget(self, blocks: str) -> Budget: ...

    def on_notice(self, segment: "Segment", notice: pb.Notice) -> None: ...


class Segment:
    """Blocks hop.start…hop.end-1. Use under `lock`, except for reading `hop` and `leaves`."""

    def __init__(self, owner: Owner, hop: Hop, history: History | None = None) -> None:
        self.hop = hop
        self.history = history or History()
        self.lock = asyncio.Lock()
        self._owner = owner
        self._leg: Leg | None = None
        self._parts: list[Segment] | None = None
        self._exact = False

    @property
    def blocks(self) -> str:
        """The range as start:end."""
        return f"{self.hop.start}:{self.hop.end}"

    def leaves(self) -> "Iterator[Segment]":
        """This segment, or the ones that it became."""
        if self._parts is None:
            yield self
        else:
            for part in self._parts:
                yield from part.leaves()

    async def apply(self, entry: Entry) -> torch.Tensor | None:
        """Feed one step; its output, None for a step without tokens.

        Raises:
            SessionLost: the range could not be served within the retries and the failover timeout.
            CallerError: the step itself is wrong.
        """
        budget: Budget | None = None
        self.history.rollback(entry.position)
        while self._parts is None:
            try:
                leg = await self._live()
                output = await leg.step(
                    entry, hidden_size=self._owner.hidden_size, dtype=self._owner.wire_dtype
                )
            except (LostError, CapacityError) as error:
                budget = budget or self._owner.budget(self.blocks)
                await self._recover(error, budget)
            else:
                self._count(output)
                self.history.add(entry)
                return output.hidden if entry.tokens else None
        output_ = await self._through(entry)
        self.history.add(entry)
        return output_

    async def first_route(self) -> list[Hop]:
        """Servers for the whole range; waits for them as long as a failover may."""
        return await self._route(self._owner.budget(self.blocks))

    async def move(self) -> "list[Segment] | None":
        """Rebuild this range away from its present server; the segments that replace this one, None = nowhere to go.

        The present leg stays as it is: the caller closes it when it has taken the new ones.
        """
        manager = self._owner.manager
        try:
            hops = await manager.make_sequence(
                self.hop.start,
                self.hop.end,
                cache_tokens=self._owner.cache_tokens,
                exclude=frozenset((self.hop.server_id,)),
            )
        except MissingBlocks:
            return None
        twin = Segment(self._owner, self.hop, self.history)
        twin._exact = self._exact
        try:
            await twin._adopt(hops)
            if twin._parts is None:
                await twin._live()
        except (LostError, CapacityError) as error:
            twin._blame(error)
            await twin.close()
            return None
        self._owner.stats.moves += 1
        return list(twin.leaves())

    def mark(self) -> Mark:
        """The present state of the history, for `restore`."""
        return self.history.mark()

    async def restore(self, mark: Mark, *, reordered: bool) -> None:
        """Undo a step that failed somewhere in the chain. A leg that may have reordered its rows is rebuilt later."""
        self.history.restore(mark)
        if reordered or self._parts is not None:
            await self.close()

    async def close(self) -> None:
        """End the legs; the history stays, so the next step would rebuild them."""
        parts, self._parts = self._parts, None
        leg, self._leg = self._leg, None
        if leg is not None:
            await leg.close()
        for part in reversed(parts or []):
            await part.close()

    async def _live(self) -> Leg:
        if self._leg is not None:
            return self._leg
        channel = self._owner.manager.channel(self.hop.address)
        leg = await Leg.open(
            channel, self.hop, self._owner.terms(), lambda notice: self._owner.on_notice(self, notice)
        )
        try:
            await self._replay(leg)
        except BaseException:
            leg.abandon()
            raise
        self._leg = leg
        return leg

    async def _replay(self, leg: Leg) -> None:
        entries = self.history.trimmed() if self._exact else self.history.entries
        sent: deque[tuple[int, Entry]] = deque()
        for entry in entries:
            seq = await leg.send(
                entry, hidden_size=self._owner.hidden_size, dtype=self._owner.wire_dtype, want=pb.WANT_NOTHING
            )
            sent.append((seq, entry))
            if len(sent) >= MAX_INFLIGHT_STEPS:
                await self._replayed(leg, *sent.popleft())
        while sent:
            await self._replayed(leg, *sent.popleft())

    async def _replayed(self, leg: Leg, seq: int, entry: Entry) -> None:
        output = await leg.result(seq, entry, pb.WANT_NOTHING)
        self._owner.stats.replayed_steps += 1
        self._owner.stats.replay_seconds += output.compute_seconds

    async def _recover(self, error: BlockSwarmError, budget: Budget) -> None:
        """Leave the server that failed and find where the range goes on."""
        self._blame(error)
        leg, self._leg = self._leg, None
        if leg is not None:
            leg.abandon()
            self._owner.stats.failovers += 1
            self._owner.stats.lost.append(f"{self.hop.server_id}: {type(error).__name__}")
        budget.spend(self.hop.server_id, self.hop.instance, error)
        if isinstance(error, CannotTruncate):
            self._exact = True
            return
        await asyncio.sleep(
            max(budget.pause, (error.retry_after or 0.0) if isinstance(error, CapacityError) else 0.0)
        )
        await self._adopt(await self._route(budget))

    def _blame(self, error: BlockSwarmError) -> None:
        manager, hop = self._owner.manager, self.hop
        if isinstance(error, CapacityError):
            manager.on_busy(hop.server_id)
        elif error.blames_server or error.grpc_status == "UNAVAILABLE":
            manager.on_failure(hop.server_id, hop.instance, error)

    async def _route(self, budget: Budget) -> list[Hop]:
        manager = self._owner.manager
        while True:
            try:
                return await manager.make_sequence(
                    self.hop.start, self.hop.end, cache_tokens=self._owner.cache_tokens
                )
            except MissingBlocks as missing:
                if budget.left <= 0:
                    waited = f"{manager.config.failover_timeout:.0f} s"
                    raise budget.lost(f"{missing} for the failover timeout of {waited}") from missing
                await manager.changed(min(_LOOK_SECONDS, max(budget.left, 0.01)))

    async def _adopt(self, hops: list[Hop]) -> None:
        """Go on with other servers: one takes the whole range, several divide it."""
        if len(hops) == 1:
            self.hop = hops[0]
            return
        self._parts = [Segment(self._owner, hop) for hop in hops]
        try:
            for entry in self.history.trimmed() if self._exact else self.history.entries:
                await self._through(entry)
        except BaseException:
            # The parts are half fed. This segment's own history is whole, so a later try starts from it.
            await self.close()
            raise

    async def _through(self, entry: Entry) -> torch.Tensor | None:
        assert self._parts is not None
        output: torch.Tensor | None = None
        hidden = entry.hidden
        for part in self._parts:
            output = await part.apply(replace(for_blocks(entry, part.hop, self.hop.start), hidden=hidden))
            hidden = output
        return output

    def _count(self, output: Output) -> None:
        stats = self._owner.stats
        stats.compute_seconds += output.compute_seconds
        stats.queue_seconds += output.queue_seconds
        self._owner.manager.on_success(self.hop.server_id, self.hop.instance)


def for_blocks(entry: Entry, hop: Hop, first: int) -> Entry:
    """The entry with the deep prompts of the hop's blocks only; `first` is the block of the entry's first prompt."""
    if entry.prompts is None:
        return entry
    return replace(entry, prompts=entry.prompts[hop.start - first : hop.end - first])
