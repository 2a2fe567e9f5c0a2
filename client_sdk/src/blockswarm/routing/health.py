"""Who failed lately, per instance of a server. Pure: times are arguments.

A failed instance leaves all routes at once and comes back after a pause that doubles with each failure in a row; a
new instance of the same server starts clean.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from blockswarm.routing.graph import Candidate

FIRST_BAN_SECONDS = 15.0
LONGEST_BAN_SECONDS = 300.0
# A lone replica that just failed is not tried again within this time, so that it is not hammered.
HOLD_OFF_SECONDS = 1.0
BUSY_SECONDS = 5.0
_FORGET_SECONDS = 2 * LONGEST_BAN_SECONDS


@dataclass(slots=True)
class _Failures:
    instance: str
    count: int
    last: float

    @property
    def until(self) -> float:
        return self.last + min(FIRST_BAN_SECONDS * 2.0 ** min(self.count - 1, 10), LONGEST_BAN_SECONDS)


class Health:
    """Failures in a row by server, for the instance that failed last."""

    def __init__(self) -> None:
        self._failures: dict[str, _Failures] = {}
        self._busy_until: dict[str, float] = {}

    def failed(self, server_id: str, instance: str, now: float) -> None:
        """Count a failure of this instance."""
        known = self._failures.get(server_id)
        if known is None or known.instance != instance:
            self._failures[server_id] = _Failures(instance, 1, now)
        else:
            known.count += 1
            known.last = now
        for old in [key for key, item in self._failures.items() if now - item.last > _FORGET_SECONDS]:
            del self._failures[old]

    def succeeded(self, server_id: str, instance: str) -> None:
        """Forget the failures of this instance."""
        known = self._failures.get(server_id)
        if known is not None and known.instance == instance:
            del self._failures[server_id]

    def had_no_room(self, server_id: str, now: float) -> None:
        """Rank this server lower for a few seconds."""
        self._busy_until[server_id] = now + BUSY_SECONDS

    def busy(self, server_id: str, now: float) -> bool:
        return self._busy_until.get(server_id, 0.0) > now

    def banned(self, server_id: str, instance: str, now: float) -> bool:
        """Whether this instance is out of the routes."""
        known = self._failures.get(server_id)
        return known is not None and known.instance == instance and now < known.until

    def held_off(self, server_id: str, instance: str, now: float) -> bool:
        """Whether this instance failed so lately that not even the lack of others brings it back."""
        return self.release(server_id, instance) > now

    def release(self, server_id: str, instance: str) -> float:
        """When the hold-off of this instance ends; 0 = it has none."""
        known = self._failures.get(server_id)
        return known.last + HOLD_OFF_SECONDS if known is not None and known.instance == instance else 0.0


def admit(fit: Sequence[Candidate], banned: Sequence[Candidate], start: int, end: int) -> list[Candidate]:
    """The servers to route over: those that are fit, and banned ones where a block has no other holder.

    Args:
        fit: servers that are not banned.
        banned: banned servers that are not held off. Those admitted carry a penalty, so that they serve only the blocks
            that need them.
    """
    uncovered = set(range(start, end))
    for server in fit:
        uncovered.difference_update(range(server.start, server.end))
    needed = [
        replace(server, banned=True)
        for server in banned
        if any(server.start <= block < server.end for block in uncovered)
    ]
    return [*fit, *needed]
