"""RemoteSequenceManager: the client's view of one model's servers, and the choice among them."""

import asyncio
import logging
import math
import random
import time
from typing import Literal

import grpc.aio

from blockswarm.config import ClientConfig
from blockswarm.discovery.door import Discovery
from blockswarm.discovery.views import identity
from blockswarm.routing import graph
from blockswarm.routing.channels import Channels
from blockswarm.routing.graph import Candidate, Part
from blockswarm.routing.health import Health, admit
from blockswarm.routing.hop import Hop, MissingBlocks
from blockswarm.routing.pings import Pinger
from blockswarm_wire.errors import BlockSwarmError, InvalidArgument, Unreachable
from blockswarm_wire.record import ModelEntry, ServerRecord, ServerView, State

__all__ = ["Hop", "MissingBlocks", "Mode", "RemoteSequenceManager"]

logger = logging.getLogger(__name__)

Mode = Literal["min_latency", "max_throughput"]

# A first route is better with distances known, but not worth waiting long for.
_FIRST_PINGS_SECONDS = 0.5


class RemoteSequenceManager:
    """Knows which servers hold which blocks of `model` and picks chains of them.

    Every coroutine here runs on the shared background loop (blockswarm.loop); the constructor may run anywhere, and
    the `on_…` methods may be called on any thread.
    """

    def __init__(self, discovery: Discovery, model: ModelEntry, *, config: ClientConfig) -> None:
        self._discovery = discovery
        self.model = model
        self.config = config
        self._rng = random.Random(config.seed)
        self._health = Health()
        self._channels = Channels()
        self._views: list[ServerView] | None = None
        self._version = 0
        self._wake = asyncio.Event()
        self._start_lock = asyncio.Lock()
        self._pinger: Pinger | None = None
        self._watch: asyncio.Task[None] | None = None
        self._refreshing: asyncio.Task[None] | None = None

    @property
    def num_blocks(self) -> int:
        return self.model.num_blocks

    @property
    def fingerprint(self) -> str:
        return self.model.fingerprint

    @property
    def stale(self) -> bool:
        """True while the directory (or the DHT) is away and the last known view is used."""
        return self._discovery.stale

    @property
    def version(self) -> int:
        """Grows whenever servers come, go or change state; see `changed`."""
        return self._version

    @property
    def servers(self) -> list[ServerView]:
        """The servers known now, by id."""
        return list(self._views or ())

    def __len__(self) -> int:
        return self.model.num_blocks

    async def ready(self) -> None:
        """Return once a first view of the swarm is there.

        Raises:
            Unreachable: none came within config.connect_timeout.
        """
        if self._views is not None:
            return
        async with self._start_lock:
            if self._watch is None:
                self._pinger = Pinger(self.channel, self.fingerprint, self._rng)
                self._pinger.start()
                self._watch = self._discovery.watch(self.model.key, self.num_blocks, self._take)
        deadline = time.monotonic() + self.config.connect_timeout
        while self._views is None:
            wake = self._wake
            try:
                async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                    await wake.wait()
            except TimeoutError:
                raise Unreachable(
                    f"the swarm did not answer within {self.config.connect_timeout:.0f} s: "
                    "is its directory running, and is the address right?"
                ) from None
        if self._pinger is not None and self._views:
            await self._pinger.first_round(_FIRST_PINGS_SECONDS)

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
            InvalidArgument: start:end is not a range within the model.
            Unreachable: there is no first view of the swarm (see `ready`).
        """
        if not 0 <= start < end <= self.num_blocks:
            raise InvalidArgument(
                f"blocks {start}:{end} are not a range within the model's 0:{self.num_blocks}"
            )
        await self.ready()
        records = self._usable(exclude)
        candidates = self._candidates(records, start, end)
        parts: list[Part] | None
        if mode == "max_throughput":
            parts = graph.random_walk(candidates, start, end, rng=self._rng)
        else:
            found = graph.cheapest(candidates, start, end, cache_tokens=cache_tokens)
            parts = None if found is None else found[1]
        if parts is None:
            raise self._missing(candidates, start, end)
        return [
            Hop(
                part.server_id,
                records[part.server_id].instance,
                records[part.server_id].address,
                part.start,
                part.end,
            )
            for part in parts
        ]

    def on_failure(self, server_id: str, instance: str, error: BaseException) -> None:
        """Take this instance out of all routes at once, for a back-off that grows with each failure in a row."""
        logger.info(
            "server failed",
            extra={"server_id": server_id, "instance": instance, "error": type(error).__name__},
        )
        self._health.failed(server_id, instance, time.monotonic())

    def on_success(self, server_id: str, instance: str) -> None:
        """Forget earlier failures of this instance."""
        self._health.succeeded(server_id, instance)

    def on_busy(self, server_id: str) -> None:
        """Rank this server lower for a while: it had no room. It is not to blame."""
        self._health.had_no_room(server_id, time.monotonic())

    async def changed(self, timeout: float, *, since: int | None = None) -> bool:
        """Wait until a server comes, goes, changes state or may be tried again; True when that happened.

        Args:
            timeout: seconds to wait at most.
            since: return at once if `version` has grown beyond this (MissingBlocks carries it): no change is missed
                between a failed `make_sequence` and this call.
        """
        if since is not None and self._version != since:
            return True
        wake, now = self._wake, time.monotonic()
        release = self._next_release(now)
        pause = timeout if release is None else min(timeout, release - now)
        try:
            async with asyncio.timeout(max(0.0, pause)):
                await wake.wait()
        except TimeoutError:
            return pause < timeout
        return True

    async def refresh(self) -> None:
        """Look the servers up now; callers that come meanwhile share one look.

        Raises:
            Unreachable: the source is away and nothing is remembered.
        """
        if self._refreshing is None:
            self._refreshing = asyncio.create_task(self._look())
            self._refreshing.add_done_callback(self._looked)
        await asyncio.shield(self._refreshing)

    def channel(self, address: str) -> grpc.aio.Channel:
        """The one channel to `address` ("host:port"); opened at the first call, closed by `close`."""
        return self._channels.get(address)

    async def close(self) -> None:
        """End the background work and close every channel. The discovery stays open: it is the caller's."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        if self._pinger is not None:
            await self._pinger.close()
        await self._channels.close()

    def _take(self, views: list[ServerView]) -> None:
        different = self._views is None or identity(views) != identity(self._views)
        self._views = views
        records = [
            view.record for view in views if view.record is not None and view.state is not State.OFFLINE
        ]
        if self._pinger is not None:
            self._pinger.set_servers([record for record in records if self._is_ours(record)])
        self._channels.forget_except({record.address for record in records})
        if different:
            self._version += 1
            wake, self._wake = self._wake, asyncio.Event()
            wake.set()

    async def _look(self) -> None:
        self._take(await self._discovery.lookup(self.model.key, self.num_blocks))

    def _looked(self, task: asyncio.Task[None]) -> None:
        self._refreshing = None
        if not task.cancelled() and isinstance(task.exception(), BlockSwarmError):
            logger.debug("refresh failed: %s", task.exception())

    def _is_ours(self, record: ServerRecord) -> bool:
        return record.fingerprint == self.fingerprint and record.num_blocks == self.num_blocks

    def _usable(self, exclude: frozenset[str]) -> dict[str, ServerRecord]:
        allowed, blocked = self.config.allowed_servers, self.config.blocked_servers | exclude
        return {
            view.server_id: view.record
            for view in self._views or ()
            if view.record is not None
            and view.state in (State.ONLINE, State.DRAINING)
            and self._is_ours(view.record)
            and view.server_id not in blocked
            and (allowed is None or view.server_id in allowed)
        }

    def _candidates(self, records: dict[str, ServerRecord], start: int, end: int) -> list[Candidate]:
        now = time.monotonic()
        states = {view.server_id: view.state for view in self._views or ()}
        fit, banned = [], []
        for server_id, record in records.items():
            candidate = Candidate(
                server_id=server_id,
                start=record.start,
                end=record.end,
                rtt=self._pinger.trips.get(server_id, now) if self._pinger is not None else None,
                inference_rps=record.inference_rps,
                kv_free=record.kv_capacity - record.kv_promised if record.kv_capacity else None,
                queue_delay=record.queue_delay if math.isfinite(record.queue_delay) else 0.0,
                next_pings=record.next_pings,
                draining=states[server_id] is State.DRAINING,
                busy=self._health.busy(server_id, now),
            )
            if not self._health.banned(server_id, record.instance, now):
                fit.append(candidate)
            elif not self._health.held_off(server_id, record.instance, now):
                banned.append(candidate)
        return admit(fit, banned, start, end)

    def _missing(self, candidates: list[Candidate], start: int, end: int) -> MissingBlocks:
        joining = [view.server_id for view in self._views or () if view.state is State.JOINING]
        gaps = graph.missing(candidates, start, end)
        return MissingBlocks(self.model.name, gaps, joining, version=self._version)

    def _next_release(self, now: float) -> float | None:
        """When the next instance that just failed may be tried again."""
        times = [
            self._health.release(view.server_id, view.record.instance)
            for view in self._views or ()
            if view.record is not None
        ]
        return min((at for at in times if at > now), default=None)
