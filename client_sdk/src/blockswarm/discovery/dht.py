"""Discovery by joining the DHT as a client. Needs the extra `dht` (blockswarm-dht, which brings hivemind)."""

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from blockswarm.discovery.door import OnChange
from blockswarm.discovery.memory import Memory
from blockswarm_wire.errors import BlockSwarmError, Unreachable, Unsupported
from blockswarm_wire.record import ModelEntry, ServerView

if TYPE_CHECKING:
    from blockswarm_dht.node import SwarmNode

logger = logging.getLogger(__name__)

_POLL_SECONDS = 3.0
_LONELY_POLL_SECONDS = 1.0


class DhtDiscovery:
    """Reads the DHT through a node of its own, which is started at the first use.

    Args:
        initial_peers: multiaddrs with /p2p/ of DHT members.
    """

    def __init__(self, initial_peers: Sequence[str]) -> None:
        self._initial_peers = tuple(initial_peers)
        self._node: SwarmNode | None = None
        self._lock = asyncio.Lock()
        self._memory = Memory()
        self._models: list[ModelEntry] | None = None
        self._watches: set[asyncio.Task[None]] = set()

    @property
    def stale(self) -> bool:
        """True while no member of the DHT answers and memory is used."""
        return self._node is None or self._node.connected == 0

    async def models(self) -> list[ModelEntry]:
        """See Discovery.models."""
        node = await self._joined()
        if node.connected == 0:
            if self._models is None:
                raise self._away()
            return list(self._models)
        self._models = await node.models()
        return list(self._models)

    async def lookup(self, model_key: str, num_blocks: int) -> list[ServerView]:
        """See Discovery.lookup."""
        node = await self._joined()
        if node.connected == 0:
            self._memory.away(time.time())
            known = self._memory.recall(model_key)
            if known is None:
                raise self._away()
            return known
        rows = await node.lookup(model_key, num_blocks)
        pairs = ((record, statement) for record, statement, _ in rows)
        return self._memory.update(model_key, pairs, time.time())

    def watch(self, model_key: str, num_blocks: int, on_change: OnChange) -> asyncio.Task[None]:
        """See Discovery.watch: the DHT cannot push, so this looks every 3 s."""
        task = asyncio.create_task(self._watch(model_key, num_blocks, on_change), name=f"watch {model_key}")
        self._watches.add(task)
        task.add_done_callback(self._watches.discard)
        return task

    async def close(self) -> None:
        """See Discovery.close."""
        tasks = list(self._watches)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._node is not None:
            await self._node.shutdown()
            self._node = None

    async def _joined(self) -> "SwarmNode":
        async with self._lock:
            if self._node is None:
                try:
                    from blockswarm_dht.node import SwarmNode
                except ImportError as error:
                    raise Unsupported(
                        f"initial_peers needs the DHT extra: pip install 'blockswarm[dht]' ({error}); "
                        "or give directory= instead"
                    ) from error
                self._node = await SwarmNode.create(
                    listen=None, client_mode=True, initial_peers=self._initial_peers
                )
            return self._node

    def _away(self) -> Unreachable:
        return Unreachable(
            f"no DHT peer answers ({', '.join(self._initial_peers)}); are they running, and is the address right?"
        )

    async def _watch(self, model_key: str, num_blocks: int, on_change: OnChange) -> None:
        shown: list[ServerView] | None = None
        while True:
            try:
                views = await self.lookup(model_key, num_blocks)
            except BlockSwarmError as error:
                logger.debug("the DHT did not answer: %s", error)
            else:
                if views != shown:
                    shown = views
                    on_change(list(views))
            await asyncio.sleep(_LONELY_POLL_SECONDS if self.stale else _POLL_SECONDS)
