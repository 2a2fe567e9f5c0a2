"""Tell the DHT what this server is: at every change of state at once, and with every heartbeat."""

import asyncio
import logging
import time
from collections.abc import Callable

from blockswarm_dht.node import SwarmNode
from blockswarm_wire.limits import HEARTBEAT_SECONDS
from blockswarm_wire.record import ServerRecord, State

logger = logging.getLogger(__name__)
_RETRY_SECONDS = 1.0


class Announcer:
    """Publishes `describe(state, issued_at)` through `node`.

    `online` is set when the first ONLINE record was read back from another peer of the DHT.
    """

    def __init__(self, node: SwarmNode, describe: Callable[[State, float], ServerRecord]) -> None:
        self._node = node
        self._describe = describe
        self._state = State.JOINING
        self._changed = asyncio.Event()
        self._issued = 0.0
        self._task: asyncio.Task[None] | None = None
        self.online = asyncio.Event()

    @property
    def state(self) -> State:
        """The state that is announced."""
        return self._state

    def start(self) -> None:
        """Begin with JOINING."""
        self._task = asyncio.create_task(self._run(), name="announce")

    def say(self, state: State) -> None:
        """Announce another state at once."""
        if state is not self._state:
            logger.info("server state", extra={"state": state.value})
        self._state = state
        self._changed.set()

    async def close(self, *, deadline: float) -> None:
        """Stop; the last word is OFFLINE, if it can be said within `deadline` seconds."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        self._state = State.OFFLINE
        try:
            async with asyncio.timeout(deadline):
                await self._node.store_server(self._record())
        except Exception as error:
            # Whatever the DHT's trouble, leaving goes on.
            logger.warning(
                "OFFLINE was not stored; the record expires by itself", extra={"cause": repr(error)}
            )

    def _record(self) -> ServerRecord:
        # Readers order one writer's records by time, so it must strictly grow.
        self._issued = max(time.time(), self._issued + 0.001)
        return self._describe(self._state, self._issued)

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            record = self._record()
            stored = await self._store(record)
            if stored and record.state is State.ONLINE:
                self.online.set()
            pause = HEARTBEAT_SECONDS if stored else _RETRY_SECONDS
            try:
                async with asyncio.timeout(pause):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _store(self, record: ServerRecord) -> bool:
        try:
            return await self._node.store_server(record)
        except Exception:
            # The DHT is away or p2pd died; the supervisor of p2pd decides about the process, we keep trying.
            logger.exception("announcement failed")
            return False
