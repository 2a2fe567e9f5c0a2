"""What routing answers with: the next servers, or the blocks that nobody serves."""

from collections.abc import Sequence
from dataclasses import dataclass

from blockswarm_wire.errors import CapacityError


@dataclass(frozen=True, slots=True)
class Hop:
    """Blocks start…end-1 (absolute numbers) on one server."""

    server_id: str
    instance: str
    address: str
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.start}:{self.end} on {self.server_id} ({self.address})"


class MissingBlocks(CapacityError):
    """No usable server holds some blocks.

    ranges: the half-open ranges missing. joining: ids of servers that are loading. version: that of the manager's view
    (see RemoteSequenceManager.changed).
    """

    def __init__(
        self, model: str, ranges: Sequence[tuple[int, int]], joining: Sequence[str] = (), *, version: int = 0
    ) -> None:
        spans = ", ".join(f"{start}:{end}" for start, end in ranges)
        loading = f"; joining: {', '.join(joining)}" if joining else "; no server is loading them"
        super().__init__(f"no server for blocks {spans} of {model}{loading}")
        self.ranges = tuple(ranges)
        self.joining = tuple(joining)
        self.version = version
