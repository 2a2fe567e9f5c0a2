"""How far the servers are: measured in the background, which also keeps connections to likely replacements open."""

import asyncio
import logging
import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import grpc
import grpc.aio

from blockswarm_wire.record import ServerRecord
from blockswarm_wire.v1 import block_server_pb2 as pb
from blockswarm_wire.v1 import block_server_pb2_grpc as pb_grpc

logger = logging.getLogger(__name__)

_SMOOTHING = 0.2
_EXPIRY_SECONDS = 300.0
_PING_SECONDS = 2.0
_PERIOD_SECONDS = 10.0
_UNREACHABLE_PERIOD_SECONDS = 2.0
_MAX_TARGETS = 48
_HOLDERS_A_BLOCK = 3


@dataclass(slots=True)
class _Measured:
    seconds: float
    at: float


class RoundTrips:
    """Smoothed round trips by server id. Pure; times are arguments."""

    def __init__(self) -> None:
        self._known: dict[str, _Measured] = {}

    def add(self, server_id: str, seconds: float, now: float) -> None:
        """Take a measurement; inf = no answer. The mean starts anew after an outage."""
        known = self._known.get(server_id)
        if known is not None and math.isfinite(known.seconds) and math.isfinite(seconds):
            seconds = _SMOOTHING * seconds + (1 - _SMOOTHING) * known.seconds
        self._known[server_id] = _Measured(seconds, now)

    def get(self, server_id: str, now: float) -> float | None:
        """Seconds there and back; None = unknown, or too long ago."""
        known = self._known.get(server_id)
        return None if known is None or now - known.at > _EXPIRY_SECONDS else known.seconds

    def forget(self, server_id: str) -> None:
        self._known.pop(server_id, None)

    def due(self, server_id: str, now: float) -> bool:
        """Whether the server should be measured again."""
        known = self._known.get(server_id)
        if known is None:
            return True
        period = _PERIOD_SECONDS if math.isfinite(known.seconds) else _UNREACHABLE_PERIOD_SECONDS
        return now - known.at >= period


def choose_targets(records: Sequence[ServerRecord], rng: random.Random) -> list[ServerRecord]:
    """Whom to measure: everybody in a small swarm, else up to three holders of each block and a limited number."""
    if len(records) <= _MAX_TARGETS:
        return list(records)
    shuffled = list(records)
    rng.shuffle(shuffled)
    chosen: list[ServerRecord] = []
    holders: dict[int, int] = {}
    for record in shuffled:
        if len(chosen) >= _MAX_TARGETS:
            break
        if any(holders.get(block, 0) < _HOLDERS_A_BLOCK for block in record.span.blocks()):
            chosen.append(record)
            for block in record.span.blocks():
                holders[block] = holders.get(block, 0) + 1
    return chosen


class Pinger:
    """Measures the servers that are due, until `close`.

    Args:
        channel: gives the shared channel to an address.
        fingerprint: of the model; a server that says another one counts as unreachable.
    """

    def __init__(
        self, channel: Callable[[str], grpc.aio.Channel], fingerprint: str, rng: random.Random
    ) -> None:
        self.trips = RoundTrips()
        self._channel = channel
        self._fingerprint = fingerprint
        self._rng = rng
        self._targets: list[ServerRecord] = []
        self._instances: dict[str, str] = {}
        self._kick = asyncio.Event()
        self._rounds = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="pings")

    def set_servers(self, records: Sequence[ServerRecord]) -> None:
        """The servers there are now; a new instance is measured anew."""
        instances = {record.server_id: record.instance for record in records}
        for server_id, instance in self._instances.items():
            if instances.get(server_id) != instance:
                self.trips.forget(server_id)
        if instances != self._instances:
            self._targets = choose_targets(records, self._rng)
            self._instances = instances
            self._kick.set()

    async def first_round(self, timeout: float) -> None:
        """Return once every target was measured once, or after `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                await self._rounds.wait()
        except TimeoutError:
            logger.debug("some servers were not measured yet")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            self._kick.clear()
            now = time.monotonic()
            due = [record for record in self._targets if self.trips.due(record.server_id, now)]
            await asyncio.gather(*(self._ping(record) for record in due))
            if self._targets:
                self._rounds.set()
            try:
                async with asyncio.timeout(1.0):
                    await self._kick.wait()
            except TimeoutError:
                continue

    async def _ping(self, record: ServerRecord) -> None:
        seconds = math.inf
        try:
            async with asyncio.timeout(_PING_SECONDS):
                channel = self._channel(record.address)
                stub = pb_grpc.BlockServerStub(channel)
                if channel.get_state() is not grpc.ChannelConnectivity.READY:
                    # Opens the connection, and fails at once where nobody listens; only the second call is timed.
                    await stub.Info(pb.InfoRequest())
                started = time.monotonic()
                info = await stub.Info(pb.InfoRequest())
                if info.fingerprint == self._fingerprint:
                    seconds = time.monotonic() - started
                else:
                    logger.warning("another model answers there", extra={"server_id": record.server_id})
        except (TimeoutError, grpc.aio.AioRpcError, grpc.aio.UsageError) as error:
            logger.debug("server does not answer: %r", error, extra={"server_id": record.server_id})
        self.trips.add(record.server_id, seconds, time.monotonic())
