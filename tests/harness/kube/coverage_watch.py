"""How many servers hold each block, as a directory says, at every moment of a test."""

from kube.directory_watch import DirectoryWatch, Facts

# A server's span: start and end.
Span = tuple[int, int]


class CoverageWatch(DirectoryWatch):
    """A DirectoryWatch that counts who serves.

    A server serves from when it says ONLINE until it says DRAINING or is OFFLINE. Where the operator says DRAINING
    first, it is ranked last and still serves.
    """

    @property
    def serving(self) -> dict[str, Span]:
        """Server id → what it serves, now."""
        return _serving(self.history[-1][1])

    def least(self, blocks: range, *, since: float) -> tuple[int, float]:
        """The smallest coverage of any of the blocks since then (Unix seconds), and when it was."""
        first = max((index for index, (at, _) in enumerate(self.history) if at <= since), default=0)
        return min((_least(_serving(servers), blocks), at) for at, servers in self.history[first:])

    def since(self, server_id: str) -> float | None:
        """When a server began to serve; None if it does not."""
        return next((at for at, servers in self.history if server_id in _serving(servers)), None)


def _serving(servers: dict[str, Facts]) -> dict[str, Span]:
    return {
        server_id: (facts["span"][0], facts["span"][1])
        for server_id, facts in servers.items()
        if facts["said"] == "ONLINE" and facts["state"] in ("ONLINE", "DRAINING")
    }


def _least(serving: dict[str, Span], blocks: range) -> int:
    return min(sum(start <= block < end for start, end in serving.values()) for block in blocks)
