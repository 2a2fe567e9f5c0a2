"""Tell the DHT what this server is: at every change of state at once, and with every heartbeat.

Changes of state are shown to the directories too, which would learn of them only when they next look into the DHT.
"""

import asyncio
import logging
import time
from collections.abc import Callable

from blockswarm_dht.node import SwarmNode
from blockswarm_services.server.directories import Directories
from blockswarm_wire.limits import HEARTBEAT_SECONDS
from blockswarm_wire.record import ServerRecord, State

logger = logging.getLogger(__name__)
_RETRY_SECONDS = 1.0


class Announcer:
    """Publishes `describe(state, issued_at)` through `node`, and changes of state through `directories` too.

    `online` is set when the first ONLINE record was read back from another peer of the DHT.
    """

    def __init__(
        self,
        node: SwarmNode,
        directories: Directories,
        describe: Callable[[State, float], ServerRecord],
    ) -> None:
        self._node = node
        self._directories = directories
        self._describe = describe
        self._state = State.JOINING
        self._shows: set[asyncio.Task[None]] = set()
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
        self._show()
        self._task = asyncio.create_task(self._run(), name="announce")

    def say(self, state: State) -> None:
        """Announce another state at once."""
        if state is self._state:
            return
        logger.info("server state", extra={"state": state.value})
        self._state = state
        self._show()
        self._changed.set()

    async def close(self, *, deadline: float) -> None:
        """Stop; the last word is OFFLINE, if it can be said within `deadline` seconds."""
        tasks = [*self._shows, *([self._task] if self._task is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._state = State.OFFLINE
        record = self._record()
        try:
            async with asyncio.timeout(deadline):
                await asyncio.gather(self._node.store_server(record), self._directories.show(record))
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

    def _show(self) -> None:
        """Neither waits for the other: directories may hang, and the DHT may take seconds for the last heartbeat."""
        task = asyncio.create_task(self._directories.show(self._record()), name="show record")
        self._shows.add(task)
        task.add_done_callback(self._shows.discard)

    async def _store(self, record: ServerRecord) -> bool:
        try:
            return await self._node.store_server(record)
        except Exception:
            # The DHT is away or p2pd died; the supervisor of p2pd decides about the process, we keep trying.
            logger.exception("announcement failed")
            return False
