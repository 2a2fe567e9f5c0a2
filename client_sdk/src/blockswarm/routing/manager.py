"""RemoteSequenceManager: the client's view of one model's servers, and the choice among them."""

from typing import Literal

import grpc.aio

from blockswarm.config import ClientConfig
from blockswarm.discovery.door import Discovery
from blockswarm.routing.hop import Hop, MissingBlocks
from blockswarm_wire.record import ModelEntry

__all__ = ["Hop", "MissingBlocks", "Mode", "RemoteSequenceManager"]

Mode = Literal["min_latency", "max_throughput"]


class RemoteSequenceManager:
    """Knows which servers hold which blocks of `model` and picks chains of them.

    Every coroutine here runs on the shared background loop (blockswarm.loop); the constructor may run anywhere.
    """

    def __init__(self, discovery: Discovery, model: ModelEntry, *, config: ClientConfig) -> None:
        self._discovery = discovery
        self.model = model
        self.config = config

    @property
    def num_blocks(self) -> int:
        return self.model.num_blocks

    @property
    def fingerprint(self) -> str:
        return self.model.fingerprint

    def __len__(self) -> int:
        return self.model.num_blocks

    async def ready(self) -> None:
        """Return once a first view of the swarm is there.

        Raises:
            Unreachable: none came within config.connect_timeout.
        """
        raise NotImplementedError

    async def make_sequence(
        self,
        start: int,
        end: int,
        *,
        mode: Mode = "min_latency",
        cache_tokens: int = 0,
        exclude: frozenset[str] = frozenset(),
    ) -> list[Hop]:
        """Servers that together hold blocks start…end-1, in order, without overlap.

        Args:
            mode: "min_latency" for sessions, "max_throughput" (a random walk over long spans) for passes.
            cache_tokens: KV tokens (rows × length) that the session will need on each server.
            exclude: server ids not to use in this chain.

        Raises:
            MissingBlocks: no usable server holds some of the blocks.
        """
        raise NotImplementedError

    def on_failure(self, server_id: str, instance: str, error: BaseException) -> None:
        """Take this instance out of all routes at once, for a back-off that grows with each failure in a row."""
        raise NotImplementedError

    def on_success(self, server_id: str, instance: str) -> None:
        """Forget earlier failures of this instance."""
        raise NotImplementedError

    def on_busy(self, server_id: str) -> None:
        """Rank this server lower for a while: it had no room. It is not to blame."""
        raise NotImplementedError

    async def changed(self, timeout: float) -> bool:
        """Wait until the view of the servers changes or `timeout` seconds pass; True when it changed."""
        raise NotImplementedError

    async def refresh(self) -> None:
        """Look the servers up now."""
        raise NotImplementedError

    def channel(self, address: str) -> grpc.aio.Channel:
        """The one channel to `address` ("host:port"); opened at the first call, closed by `close`."""
        raise NotImplementedError

    async def close(self) -> None:
        """End the background work and close every channel."""
        raise NotImplementedError
