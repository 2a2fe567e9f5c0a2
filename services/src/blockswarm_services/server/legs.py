"""Every open leg of this server: fencing, limits, and the KV memory that they hold and were promised."""

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from fractions import Fraction

from blockswarm_services.server.kv import LegCache
from blockswarm_services.server.ledger import Ledger, promise
from blockswarm_services.server.sessions import LegState
from blockswarm_wire.errors import (
    BlockSwarmError,
    CacheFull,
    Fenced,
    StaleEpoch,
    TooManySessions,
)
from blockswarm_wire.span import Span

MAX_LEGS_PER_SESSION = 16
MAX_EPOCHS = 16_384
Name = tuple[str, str]
Progress = Callable[[int], Awaitable[None]]


@dataclass(eq=False, slots=True)
class Leg:
    """One open stream. `task` serves it; `reason` is set before `task` is cancelled from our side."""

    key: int
    name: Name
    epoch: int
    span: Span
    state: LegState
    task: "asyncio.Task[object]"
    cache: LegCache | None = None
    reason: BlockSwarmError | None = None
    ending: bool = False

    def end(self, reason: BlockSwarmError) -> None:
        """Make the leg's stream end with `reason`, unless it is ending already."""
        if self.reason is None and not self.ending:
            self.reason = reason
            self.task.cancel()


class Legs:
    """The legs of one server over `span_blocks` blocks, with `capacity` tokens x batch rows of KV."""

    def __init__(self, span_blocks: int, capacity: int, max_sessions: int) -> None:
        self._span_blocks = span_blocks
        self._max_sessions = max_sessions
        self._ledger = Ledger(capacity)
        self._open: dict[Name, Leg] = {}
        self._epochs: dict[Name, int] = {}
        self._granted: dict[int, asyncio.Event] = {}
        self._closed: dict[int, asyncio.Event] = {}
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def legs(self) -> list[Leg]:
        """All open legs."""
        return list(self._open.values())

    @property
    def sessions(self) -> int:
        """Distinct sessions."""
        return len({session for session, _ in self._open})

    @property
    def capacity(self) -> int:
        """KV tokens in all."""
        return self._ledger.capacity

    @property
    def promised(self) -> int:
        """KV tokens that the open legs may grow to."""
        return math.ceil(self._ledger.promised)

    @property
    def used(self) -> float:
        """KV tokens that the open legs hold now."""
        return float(
            sum(
                (Fraction(leg.state.held * len(leg.span), self._span_blocks) for leg in self.legs),
                Fraction(0),
            )
        )

    @property
    def waiting(self) -> int:
        """Opens that wait for memory."""
        return self._ledger.waiting

    async def register(self, leg: Leg, progress: Progress) -> None:
        """Take up a leg; an older epoch of it is ended and its memory freed first.

        Args:
            leg: the new one; give it to `forget` also when this raises.
            progress: called about once a second while the older one's last step runs.

        Raises:
            StaleEpoch: the epoch is not higher than the last one of this leg.
            TooManySessions: a limit is reached.
        """
        last = self._epochs.get(leg.name, 0)
        if leg.epoch <= last:
            raise StaleEpoch(f"epoch {leg.epoch} of leg {leg.name[1]} is not higher than {last}")
        older = self._open.get(leg.name)
        if older is None:
            self._check_limits(leg.name[0])
        self._remember(leg)
        self._open[leg.name] = leg
        self._empty.clear()
        self._closed[leg.key] = asyncio.Event()
        if older is not None:
            older.end(Fenced(f"epoch {leg.epoch} of this leg was opened"))
            closed = self._closed[older.key]
            while not closed.is_set():
                await _signalled(closed, progress, 0)

    async def admit(self, leg: Leg, timeout: float, progress: Progress) -> None:
        """Wait until the leg's KV promise fits; `progress(queue position)` is called about once a second.

        Raises:
            NeverFits: it never will.
            CacheFull: not within `timeout` seconds.
        """
        amount = promise(leg.state.max_batch, leg.state.max_length, len(leg.span), self._span_blocks)
        event = self._granted[leg.key] = asyncio.Event()
        if self._ledger.request(leg.key, amount):
            return
        try:
            async with asyncio.timeout(timeout):
                while not event.is_set():
                    await _signalled(event, progress, self._ledger.queue_position(leg.key))
        except TimeoutError:
            raise CacheFull(
                f"no room for {math.ceil(amount)} KV tokens within {timeout:.1f} s "
                f"({self.promised} of {self.capacity} promised)",
                retry_after=1.0,
            ) from None

    def forget(self, leg: Leg) -> None:
        """Give back everything that the leg holds; its cache must not be in use any more."""
        leg.cache = None
        for key in self._ledger.release(leg.key):
            self._granted[key].set()
        self._granted.pop(leg.key, None)
        if self._open.get(leg.name) is leg:
            del self._open[leg.name]
            if not self._open:
                self._empty.set()
        closed = self._closed.pop(leg.key, None)
        if closed is not None:
            closed.set()

    async def emptied(self, timeout: float) -> bool:
        """Wait until no leg is open, at most `timeout` seconds; whether that came true."""
        try:
            async with asyncio.timeout(timeout):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True

    def _remember(self, leg: Leg) -> None:
        # Kept after the leg has ended, so that a late Open of an older epoch stays refused; bounded, oldest first.
        self._epochs.pop(leg.name, None)
        self._epochs[leg.name] = leg.epoch
        while len(self._epochs) > MAX_EPOCHS:
            del self._epochs[next(iter(self._epochs))]

    def _check_limits(self, session: str) -> None:
        legs = Counter(owner for owner, _ in self._open)
        if session not in legs and len(legs) >= self._max_sessions:
            raise TooManySessions(
                f"{len(legs)} sessions are open, the limit is {self._max_sessions}", retry_after=1.0
            )
        if legs[session] >= MAX_LEGS_PER_SESSION:
            raise TooManySessions(
                f"session {session} has {legs[session]} legs here, the limit", retry_after=1.0
            )


async def _signalled(event: asyncio.Event, progress: Progress, position: int) -> None:
    """Wait for `event`, at most a second; then say where the caller stands."""
    try:
        async with asyncio.timeout(1.0):
            await event.wait()
    except TimeoutError:
        await progress(position)
