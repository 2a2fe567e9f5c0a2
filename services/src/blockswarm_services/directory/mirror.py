"""Keeps a Store in step with the DHT, and wakes those who watch it."""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from blockswarm_dht.node import SwarmNode
from blockswarm_dht.schema import Found, model_of
from blockswarm_services.directory.store import Row, Store
from blockswarm_wire.errors import BlockSwarmError
from blockswarm_wire.record import ModelEntry, ServerRecord

logger = logging.getLogger(__name__)

# What this node is asked to keep for the DHT arrives at once; scans find what only other members keep.
_TICK_SECONDS = 0.5
_WATCHED_SCAN_SECONDS = 2.0
_IDLE_SCAN_SECONDS = 10.0
_MODELS_SCAN_SECONDS = 5.0
_FRESH_SECONDS = 2.0
_SYNC_PATIENCE_SECONDS = 15.0


class Bell:
    """Wakes one watcher. `urgent`: something changed that new sessions must hear of at once."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._urgent = asyncio.Event()

    def ring(self, *, urgent: bool) -> None:
        self._event.set()
        if urgent:
            self._urgent.set()

    async def wait(self, *, settle: float, limit: float) -> None:
        """Return at an urgent change at once, at any other after `settle` seconds, at none after `limit`."""
        deadline = time.monotonic() + limit
        try:
            async with asyncio.timeout(limit):
                await self._event.wait()
            async with asyncio.timeout(max(0.0, min(settle, deadline - time.monotonic()))):
                await self._urgent.wait()
        except TimeoutError:
            pass
        self._event.clear()
        self._urgent.clear()


class Mirror:
    """The merged view of the swarm that this directory answers from."""

    def __init__(self, node: SwarmNode) -> None:
        self.store = Store()
        self._node = node
        self._bells: dict[str, set[Bell]] = defaultdict(set)
        self._scanned: dict[str, float] = {}
        self._models_scanned = 0.0
        self._scans: dict[str, asyncio.Task[None]] = {}
        self._started = time.monotonic()
        self._synced = False
        self._task: asyncio.Task[None] | None = None
        node.on_found = self.take

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="directory mirror")

    async def close(self) -> None:
        tasks = [*self._scans.values(), *([self._task] if self._task else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def alive(self) -> bool:
        return self._task is not None and not self._task.done()

    @property
    def synced(self) -> bool:
        """Whether the view may be trusted: scanned with a peer present, or there was none for 15 s."""
        return self._synced

    @property
    def watchers(self) -> int:
        return sum(len(bells) for bells in self._bells.values())

    def take(self, found: Found) -> None:
        """Show a record or statement at once."""
        if isinstance(found.item, ModelEntry):
            self.store.put_model(found.item, time.time())
            return
        if isinstance(found.item, ServerRecord):
            self.store.put_model(model_of(found.item), time.time())
        try:
            changed, urgent = self.store.put(found.model_key, found.item)
        except BlockSwarmError as error:
            logger.warning("record not taken: %s", error)
            return
        if changed:
            self._ring(found.model_key, urgent=urgent)

    async def rows(self, model_key: str) -> list[Row]:
        """The servers of a model; scans the DHT first unless that was done within two seconds."""
        if time.monotonic() - self._scanned.get(model_key, float("-inf")) > _FRESH_SECONDS:
            await self._scan(model_key)
        return self.store.rows(model_key, time.time())

    def rows_now(self, model_key: str) -> list[Row]:
        return self.store.rows(model_key, time.time())

    async def models(self) -> list[ModelEntry]:
        """Models announced lately; asks the DHT first unless that was done within two seconds."""
        if time.monotonic() - self._models_scanned > _FRESH_SECONDS:
            await self._scan_models()
        return self.store.models(time.time())

    @contextmanager
    def watching(self, model_key: str) -> Iterator[Bell]:
        bell = Bell()
        self._bells[model_key].add(bell)
        try:
            yield bell
        finally:
            self._bells[model_key].discard(bell)
            if not self._bells[model_key]:
                del self._bells[model_key]

    def _ring(self, model_key: str, *, urgent: bool) -> None:
        for bell in self._bells.get(model_key, ()):
            bell.ring(urgent=urgent)

    async def _run(self) -> None:
        while True:
            try:
                await self._tick()
            except Exception:
                # The directory answers from memory for as long as it lives; a failed round is tried again.
                logger.exception("a round of the directory's mirror failed")
            await asyncio.sleep(_TICK_SECONDS)

    async def _tick(self) -> None:
        for key in self.store.expire(time.time()):
            self._ring(key, urgent=True)
        now = time.monotonic()
        if now - self._models_scanned > _MODELS_SCAN_SECONDS or not self._synced:
            await self._scan_models()
        for key in self.store.keys() | set(self._bells):
            period = _WATCHED_SCAN_SECONDS if key in self._bells else _IDLE_SCAN_SECONDS
            if now - self._scanned.get(key, float("-inf")) > period:
                await self._scan(key)
        alone = self._node.connected == 0
        if not alone or now - self._started > _SYNC_PATIENCE_SECONDS or not self._node.looks_for_peers:
            self._synced = True

    async def _scan_models(self) -> None:
        now = time.time()
        try:
            for entry in await self._node.models():
                self.store.put_model(entry, now)
            self._models_scanned = time.monotonic()
        except BlockSwarmError as error:
            logger.warning("the DHT did not list its models: %s", error)

    async def _scan(self, model_key: str) -> None:
        """Read all of a model from the DHT; callers that come while a scan runs share it."""
        task = self._scans.get(model_key)
        if task is None:
            task = self._scans[model_key] = asyncio.create_task(self._scan_now(model_key))
            task.add_done_callback(lambda _: self._scans.pop(model_key, None))
        await asyncio.shield(task)

    async def _scan_now(self, model_key: str) -> None:
        entry = self.store.model(model_key)
        try:
            rows = await self._node.lookup(model_key, 1 if entry is None else entry.num_blocks)
        except BlockSwarmError as error:
            logger.warning("the DHT did not answer a scan: %s", error)
            return
        self._scanned[model_key] = time.monotonic()
        for record, statement, _ in rows:
            for item in (record, statement):
                if item is not None:
                    self.take(Found(model_key, item))
