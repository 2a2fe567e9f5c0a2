"""What a session tells when it cannot go on, and the budget that decides when that is."""

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from blockswarm.config import ClientConfig
from blockswarm_wire.errors import BlockSwarmError, Unreachable

_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try at a range of blocks. `seconds` since the first failure of the step."""

    blocks: str
    server_id: str
    instance: str
    error: BlockSwarmError
    seconds: float

    def __str__(self) -> str:
        name = type(self.error).__name__
        return f"{self.seconds:6.2f} s  blocks {self.blocks} on {self.server_id}: {name}: {self.error}"


class SessionLost(BlockSwarmError):
    """A range of blocks could not be rebuilt within the session's retries and deadline.

    `attempts`: every try, in order. The session keeps its history: stepping again later tries again.
    """

    def __init__(self, blocks: str, attempts: Sequence[Attempt], why: str) -> None:
        shown = [str(attempt) for attempt in attempts]
        if len(shown) > 2 * _SHOWN:
            shown[_SHOWN:-_SHOWN] = [f"  … {len(shown) - 2 * _SHOWN} more …"]
        lines = "".join(f"\n  {line}" for line in shown)
        super().__init__(
            f"blocks {blocks} are lost: {why}. Bring a server of these blocks back (`blockswarm status` shows who "
            f"holds what) and repeat the step: the session still has its history. Attempts:{lines or ' none'}"
        )
        self.attempts = tuple(attempts)


@dataclass(slots=True)
class Budget:
    """Retries and time that one step may spend on one range of blocks, with all that it becomes.

    `unfit`: servers that are too small for the session; no use asking them again.
    """

    config: ClientConfig
    rng: random.Random
    unfit: set[str] = field(default_factory=set)
    attempts: list[Attempt] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)
    spent: int = 0

    def spend(self, blocks: str, server_id: str, instance: str, error: BlockSwarmError) -> None:
        """Count a failed attempt.

        Knocking again at a process that is known to be gone is bounded by the failover timeout, not by the number of
        retries: while it is the only one, the session waits for a replica.

        Raises:
            SessionLost: it was the last one allowed.
        """
        again = isinstance(error, Unreachable) and any(
            attempt.instance == instance and isinstance(attempt.error, Unreachable)
            for attempt in self.attempts
        )
        self.attempts.append(Attempt(blocks, server_id, instance, error, time.monotonic() - self.started))
        self.spent += not again
        if self.spent > self.config.max_retries:
            raise self.lost(blocks, f"{self.spent} attempts failed") from error
        self.check(blocks)

    def check(self, blocks: str) -> None:
        """Raise SessionLost when the failover deadline has passed."""
        if self.left <= 0:
            waited = f"{self.config.failover_timeout:.0f} s"
            raise self.lost(blocks, f"no server within the failover timeout of {waited}")

    @property
    def left(self) -> float:
        """Seconds until the failover deadline."""
        return self.started + self.config.failover_timeout - time.monotonic()

    @property
    def pause(self) -> float:
        """Seconds to wait before the next attempt: none after the first failure, then growing, with jitter."""
        failures = len(self.attempts)
        if failures <= 1:
            return 0.0
        bound: float = min(self.config.min_backoff * 2 ** min(failures - 2, 20), self.config.max_backoff)
        return min(bound * self.rng.uniform(0.5, 1.0), max(self.left, 0.0))

    def lost(self, blocks: str, why: str) -> SessionLost:
        """The error that ends the step."""
        return SessionLost(blocks, self.attempts, why)
