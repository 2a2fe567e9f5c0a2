"""One range of blocks of a session, whichever server holds it now: feeds it, and rebuilds it when it is lost.

A segment knows its own history, so losing a server concerns this range only: the other segments keep their KV and are
sent nothing twice. When the range can only be rebuilt on several servers, the segment becomes several.
"""

import asyncio
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

import torch

from blockswarm.routing.hop import Hop, MissingBlocks
from blockswarm.routing.manager import RemoteSequenceManager
from blockswarm.session.failures import Budget
from blockswarm.session.history import Entry, History, Mark
from blockswarm.session.leg import Leg, Output, Terms
from blockswarm_wire.errors import (
    BlockSwarmError,
    CannotTruncate,
    CapacityError,
    Draining,
    LostError,
    NeverFits,
)
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
    def cache_tokens(self) -> int: ...

    def terms(self, alloc_timeout: float | None) -> Terms: ...

    def budget(self) -> Budget: ...

    def on_notice(self, segment: "Segment", notice: pb.Notice) -> None: ...


class Segment:
    """Blocks hop.start…hop.end-1. Use under `lock`, except for reading `hop` and `leaves`."""

    def __init__(
        self, owner: Owner, hop: Hop, history: History | None = None, *, alloc_timeout: float | None = None
    ) -> None:
        self.hop = hop
        self.history = history or History()
        self.lock = asyncio.Lock()
        self._owner = owner
        self._leg: Leg | None = None
        self._parts: list[Segment] | None = None
        self._alloc_timeout = alloc_timeout
        # Replay only what still counts: for models whose state cannot be cut back.
        self._trimmed = False

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

    async def apply(self, entry: Entry, budget: Budget | None = None) -> torch.Tensor | None:
        """Feed one step; its output, None for a step without tokens.

        Args:
            entry: the step; its prompts are those of this range.
            budget: of the larger range that this one is a part of; None = one of its own.

        Raises:
            SessionLost: the range could not be served within the retries and the failover timeout.
            CallerError: the step itself is wrong.
        """
        self.history.rollback(entry.position)
        while self._parts is None:
            try:
                output = await (await self._live()).step(entry)
            except (LostError, CapacityError, NeverFits) as error:
                budget = budget or self._owner.budget()
                await self._recover(error, budget)
            else:
                self._count(output)
                self.history.add(entry)
                return output.hidden if entry.tokens else None
        hidden = await self._through(entry, budget or self._owner.budget())
        self.history.add(entry)
        return hidden

    async def first_route(self) -> list[Hop]:
        """Servers for the whole range; waits for them as long as a failover may."""
        return await self._route(self._owner.budget())

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
        # The present server still works, so a full one is not waited for.
        twin = Segment(self._owner, self.hop, self.history, alloc_timeout=0.0)
        twin._trimmed = self._trimmed
        try:
            await twin._adopt(hops, self._owner.budget())
            if twin._parts is None:
                await twin._live()
        except BaseException as error:
            twin.abandon()
            if not isinstance(error, (LostError, CapacityError, NeverFits)):
                raise
            twin._blame(error)
            return None
        self._owner.stats.moves += 1
        return list(twin.leaves())

    def mark(self) -> Mark:
        """The present state of the history, for `restore`."""
        return self.history.mark()

    def restore(self, mark: Mark, *, reordered: bool) -> None:
        """Undo a step that failed somewhere in the chain. A leg that may have reordered its rows is rebuilt later.

        Awaits nothing: it must be whole also when the step was cancelled.
        """
        self.history.restore(mark)
        if reordered or self._parts is not None:
            self.abandon()

    def abandon(self) -> None:
        """Let go of the legs without waiting; the history stays, so the next step rebuilds them."""
        parts, self._parts = self._parts, None
        leg, self._leg = self._leg, None
        if leg is not None:
            leg.abandon()
        for part in parts or []:
            part.abandon()

    async def close(self) -> None:
        """End the legs; the history stays, so the next step would rebuild them."""
        parts, self._parts = self._parts, None
        leg, self._leg = self._leg, None
        if leg is not None:
            await leg.close()
        for part in reversed(parts or []):
            await part.close()

    async def _live(self) -> Leg:
        if self._leg is not None and not self._leg.abandoned:
            return self._leg
        channel = self._owner.manager.channel(self.hop.address)
        terms = self._owner.terms(self._alloc_timeout)
        leg = await Leg.open(channel, self.hop, terms, self._on_notice)
        try:
            await self._replay(leg)
        except BaseException:
            leg.abandon()
            raise
        self._leg, self.hop = leg, leg.hop
        return leg

    def _on_notice(self, notice: pb.Notice) -> None:
        self._owner.on_notice(self, notice)

    async def _replay(self, leg: Leg) -> None:
        sent: deque[tuple[int, Entry]] = deque()
        for entry in self._log():
            sent.append((await leg.send(entry, pb.WANT_NOTHING), entry))
            if len(sent) >= leg.max_inflight:
                await self._replayed(leg, *sent.popleft())
        while sent:
            await self._replayed(leg, *sent.popleft())

    async def _replayed(self, leg: Leg, seq: int, entry: Entry) -> None:
        output = await leg.result(seq, entry, pb.WANT_NOTHING)
        self._owner.stats.replayed_steps += 1
        self._owner.stats.replay_seconds += output.compute_seconds

    def _log(self) -> tuple[Entry, ...]:
        return self.history.trimmed() if self._trimmed else self.history.entries

    async def _recover(self, error: BlockSwarmError, budget: Budget) -> None:
        """Leave the server that failed and find where the range goes on."""
        self._blame(error)
        failed = self.hop
        leg, self._leg = self._leg, None
        if leg is not None:
            leg.abandon()
            self._owner.stats.failovers += 1
            self._owner.stats.lost.append(f"{failed.server_id}: {type(error).__name__}")
        budget.spend(self.blocks, failed.server_id, failed.instance, error)
        if isinstance(error, CannotTruncate):
            self._trimmed = True
            return
        if isinstance(error, NeverFits):
            await self._exclude_unfit(error, budget)
        await asyncio.sleep(budget.pause)
        hops = await self._route(budget)
        if isinstance(error, CapacityError) and any(hop.server_id == failed.server_id for hop in hops):
            await asyncio.sleep(
                min(error.retry_after or 0.0, budget.config.max_backoff, max(budget.left, 0.0))
            )
        await self._adopt(hops, budget)

    async def _exclude_unfit(self, error: NeverFits, budget: Budget) -> None:
        """Ask this server no more. A session that has begun waits for another one; a new one is told at once."""
        budget.unfit.add(self.hop.server_id)
        if self.history.position:
            return
        try:
            await self._sequence(budget)
        except MissingBlocks:
            raise error from None

    def _blame(self, error: BlockSwarmError) -> None:
        manager, hop = self._owner.manager, self.hop
        if isinstance(error, CapacityError):
            manager.on_busy(hop.server_id)
        elif error.blames_server or isinstance(error, Draining):
            # A draining server has done no wrong, but has to leave the routes just as fast.
            manager.on_failure(hop.server_id, hop.instance, error)

    async def _route(self, budget: Budget) -> list[Hop]:
        manager = self._owner.manager
        while True:
            try:
                return await self._sequence(budget)
            except MissingBlocks as missing:
                if budget.left <= 0:
                    waited = f"{manager.config.failover_timeout:.0f} s"
                    why = f"{missing}; waited for the failover timeout of {waited}"
                    raise budget.lost(self.blocks, why) from missing
                await manager.changed(min(_LOOK_SECONDS, max(budget.left, 0.01)))

    async def _sequence(self, budget: Budget) -> list[Hop]:
        return await self._owner.manager.make_sequence(
            self.hop.start,
            self.hop.end,
            cache_tokens=self._owner.cache_tokens,
            exclude=frozenset(budget.unfit),
        )

    async def _adopt(self, hops: list[Hop], budget: Budget) -> None:
        """Go on with other servers: one takes the whole range, several divide it."""
        if len(hops) == 1:
            self.hop = hops[0]
            return
        self._parts = [Segment(self._owner, hop, alloc_timeout=self._alloc_timeout) for hop in hops]
        try:
            for entry in self._log():
                await self._through(entry, budget)
        except BaseException:
            # The parts are half fed. This segment's own history is whole, so a later try starts from it.
            self.abandon()
            raise

    async def _through(self, entry: Entry, budget: Budget) -> torch.Tensor | None:
        assert self._parts is not None
        hidden: torch.Tensor | None = entry.hidden
        for part in self._parts:
            hidden = await part.apply(for_blocks(entry, part.hop, self.hop.start, hidden), budget)
        return hidden

    def _count(self, output: Output) -> None:
        stats = self._owner.stats
        stats.compute_seconds += output.compute_seconds
        stats.queue_seconds += output.queue_seconds
        self._owner.manager.on_success(self.hop.server_id, self.hop.instance)


def for_blocks(entry: Entry, hop: Hop, first: int, hidden: torch.Tensor | None) -> Entry:
    """The entry as the hop gets it: with these hidden states, and the deep prompts of its own blocks only.

    `first` is the block of the entry's first prompt.
    """
    prompts = entry.prompts
    return Entry(
        position=entry.position,
        tokens=entry.tokens,
        batch=entry.batch,
        hidden=hidden,
        prompts=None if prompts is None else prompts[hop.start - first : hop.end - first],
        pad=entry.pad,
        hypo_ids=entry.hypo_ids,
    )
