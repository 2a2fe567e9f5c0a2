"""The directory as the operator uses it: what it knows of each model, and statements to it, over gRPC.

The directories are replicas of one DHT. The operator asks whichever answers, and states to all of them at once.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from blockswarm_wire import limits
from blockswarm_wire.addresses import addresses_of
from blockswarm_wire.errors import BlockSwarmError, Unreachable
from blockswarm_wire.record import ServerRecord, ServerView, State, Statement, merge
from blockswarm_wire.v1 import directory_pb2 as pb
from blockswarm_wire.v1 import directory_pb2_grpc

logger = logging.getLogger(__name__)

CALL_SECONDS = 1.0
HEALTH_SECONDS = 1.0
_LOOK_SECONDS = 2.0
_RETRY_SECONDS = 0.2
_FIRST_SECONDS = 3.0
_RELAY_SECONDS = 0.3
# A directory sends at least every 10 s.
_SILENCE_SECONDS = 15.0
# One directory may be gone while the others serve.
_FAILURES = 3
_EOF: Any = grpc.aio.EOF  # type: ignore[attr-defined]  # the stubs do not know it


class DirectoryUnreachable(Exception):
    """No directory answered in time."""


@dataclass(slots=True)
class Known:
    """What the directory shows of one model.

    `key`: its DHT key, "" until a record of ours named it. `heard`: when records came last, Unix seconds.
    `failures`: how often in a row nobody answered. `answered`: set once there is a first answer or failure.
    """

    key: str = ""
    records: dict[str, ServerRecord] = field(default_factory=dict)
    stated: dict[str, Statement] = field(default_factory=dict)
    reachable: bool = True
    heard: float = 0.0
    failures: int = 0
    answered: asyncio.Event = field(default_factory=asyncio.Event)

    def views(self, now: float) -> dict[str, ServerView]:
        """Server id → what counts of it now."""
        found = {}
        for server_id in self.records.keys() | self.stated.keys():
            view = merge(self.records.get(server_id), self.stated.get(server_id), now=now)
            if view is not None:
                found[server_id] = view
        return found


class Directory:
    """Follows models in the directory. `changed(model id)` is called when something about a model changed."""

    def __init__(self, target: str, changed: Callable[[str], None], *, up: Callable[[bool], None]) -> None:
        self._target = target
        self._changed = changed
        self._up = up
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._known: dict[str, Known] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def known(self, model: str) -> Known:
        """What is known of a model; nothing if it is not followed."""
        return self._known.get(model) or Known()

    def follow(self, model: str, name: str, ours: Callable[[], set[str]]) -> None:
        """Follow a model until `leave`.

        Args:
            model: the operator's id of it.
            name: its label, under which the directory lists it.
            ours: the ids of our servers of it: their records tell which of the models of that name it is.
        """
        if model not in self._tasks:
            self._known[model] = Known()
            self._tasks[model] = asyncio.create_task(
                self._follow(model, name, ours), name=f"directory-{model}"
            )

    async def first_answer(self, model: str) -> None:
        """Wait until the directory has answered once about a model that is followed, or has failed to."""
        try:
            async with asyncio.timeout(_FIRST_SECONDS):
                await self.known(model).answered.wait()
        except TimeoutError:
            logger.info("no answer of the directory yet", extra={"model": model})

    async def leave(self, model: str) -> None:
        """Follow a model no longer."""
        task = self._tasks.pop(model, None)
        self._known.pop(model, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def close(self) -> None:
        """Follow nothing any more and close all connections."""
        for model in list(self._tasks):
            await self.leave(model)
        for channel in self._channels.values():
            await channel.close(None)

    async def publish(self, model: str, statements: Mapping[str, Statement]) -> None:
        """State to all directories at once; one success is enough.

        Raises:
            DirectoryUnreachable: none took it.
        """
        known = self.known(model)
        if not known.key or not statements:
            return
        entries = [pb.Entry(server_id=key, statement=one.encode()) for key, one in statements.items()]
        request = pb.PublishRequest(model_key=known.key, entries=entries)
        if not await self._publish_to_all(request, CALL_SECONDS):
            raise DirectoryUnreachable("no directory took the statements")
        known.stated.update(statements)

    async def healthy(self, address: str) -> bool:
        """Whether a block server answers a health call."""
        async with grpc.aio.insecure_channel(address, options=limits.CHANNEL_OPTIONS) as channel:
            check = health_pb2_grpc.HealthStub(channel).Check
            try:
                await check(health_pb2.HealthCheckRequest(), timeout=HEALTH_SECONDS)
            except grpc.aio.AioRpcError:
                return False
            return True

    async def _follow(self, model: str, name: str, ours: Callable[[], set[str]]) -> None:
        known, turn = self._known[model], 0
        while True:
            try:
                addresses = await self._addresses()
                stub = self._stub(addresses[turn % len(addresses)])
                if not known.records.keys() & ours():
                    await self._find(known, name, stub, ours())
                if known.key:
                    await self._watch(model, known, stub, ours)
                else:
                    self._answered(model, known, news=False)
                await asyncio.sleep(_LOOK_SECONDS)
            except (Exception, asyncio.CancelledError) as error:  # whatever it is, the model must be followed
                task = asyncio.current_task()
                # gRPC also cancels who reads from a channel that is closed, as that of an address that is gone.
                if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                    raise
                turn += 1
                self._failed(model, known)
                logger.info("directory does not answer", extra={"model": name, "error": str(error)[:200]})
                await asyncio.sleep(_RETRY_SECONDS)

    async def _find(
        self, known: Known, name: str, stub: directory_pb2_grpc.DirectoryStub, ours: set[str]
    ) -> None:
        """Learn the model's key from the record of one of our servers. Other weights have another key."""
        response = await stub.Models(pb.ModelsRequest(), timeout=CALL_SECONDS)
        for model in response.models:
            if model.name != name or not ours:
                continue
            found = await stub.Lookup(pb.LookupRequest(model_key=model.key), timeout=CALL_SECONDS)
            if any(entry.server_id in ours and entry.record for entry in found.entries):
                known.key = model.key

    async def _watch(
        self, model: str, known: Known, stub: directory_pb2_grpc.DirectoryStub, ours: Callable[[], set[str]]
    ) -> None:
        """Take what comes, until none of our servers is among it: they may be found under another key then."""
        stream, patience = stub.Watch(pb.LookupRequest(model_key=known.key)), 3 * CALL_SECONDS
        try:
            while True:
                async with asyncio.timeout(patience):
                    response = await stream.read()
                if response is _EOF:
                    raise DirectoryUnreachable("the directory ended the stream")
                patience = _SILENCE_SECONDS
                records, stated = _read(response.entries)
                if known.heard:
                    await self._relay(known, _newly_online(known.records, records))
                news = self._take(known, records, stated)
                self._answered(model, known, news=news)
                if not known.records.keys() & ours():
                    return
        finally:
            stream.cancel()

    @staticmethod
    def _take(known: Known, records: dict[str, ServerRecord], stated: Mapping[str, Statement]) -> bool:
        """Remember what the directory shows; True if something changed that plans are made from."""
        before, now = _states(known.records, known.stated), time.time()
        for server_id, said in stated.items():
            last = known.stated.get(server_id)
            if last is None or said.issued_at > last.issued_at:
                known.stated[server_id] = said
        known.records, known.heard = records, now
        known.stated = {key: one for key, one in known.stated.items() if one.expires_at > now}
        return _states(known.records, known.stated) != before

    async def _relay(self, known: Known, records: Sequence[ServerRecord]) -> None:
        """Show the records of servers that have just come ONLINE to all directories at once.

        Each directory looks into the hash table now and then, so one may know of a server while clients of another do
        not yet. Whoever is let go because of the newcomer must not be missed by them.
        """
        if not records:
            return
        entries = [pb.Entry(server_id=record.server_id, record=record.encode()) for record in records]
        request = pb.PublishRequest(model_key=known.key, entries=entries)
        # That they have it takes milliseconds; that it is stored once more is nobody's need.
        await self._publish_to_all(request, _RELAY_SECONDS)

    async def _publish_to_all(self, request: pb.PublishRequest, seconds: float) -> bool:
        """Publish to all directories at once; whether one of them stored it in time."""
        stubs = [self._stub(address) for address in await self._addresses()]
        calls = [asyncio.ensure_future(_answer(stub.Publish(request, timeout=seconds))) for stub in stubs]
        # gRPC also cancels a call whose channel is closed meanwhile.
        results = await asyncio.gather(*calls, return_exceptions=True)
        return any(result is True for result in results)

    def _answered(self, model: str, known: Known, *, news: bool) -> None:
        known.failures = 0
        self._mark(model, known, True, news=news)

    def _failed(self, model: str, known: Known) -> None:
        known.failures += 1
        self._mark(model, known, known.reachable and known.failures < _FAILURES, news=False)

    def _mark(self, model: str, known: Known, reachable: bool, *, news: bool) -> None:
        known.answered.set()
        changed = news or reachable != known.reachable
        known.reachable = reachable
        self._up(reachable)
        if changed:
            self._changed(model)

    async def _addresses(self) -> list[str]:
        try:
            addresses = await addresses_of(self._target, seconds=2 * CALL_SECONDS)
        except Unreachable as error:
            if self._channels:
                return sorted(self._channels)
            raise DirectoryUnreachable(str(error)) from None
        for gone in self._channels.keys() - set(addresses):
            await self._channels.pop(gone).close(None)
        return addresses

    def _stub(self, address: str) -> directory_pb2_grpc.DirectoryStub:
        if address not in self._channels:
            self._channels[address] = grpc.aio.insecure_channel(address, options=limits.CHANNEL_OPTIONS)
        return directory_pb2_grpc.DirectoryStub(self._channels[address])


def _read(entries: Iterable[pb.Entry]) -> tuple[dict[str, ServerRecord], dict[str, Statement]]:
    """Records and statements by server id; what is malformed is left out."""
    records: dict[str, ServerRecord] = {}
    stated: dict[str, Statement] = {}
    for entry in entries:
        try:
            if entry.record:
                record = ServerRecord.decode(entry.record)
                if record.server_id == entry.server_id:
                    records[entry.server_id] = record
            if entry.statement:
                stated[entry.server_id] = Statement.decode(entry.statement)
        except BlockSwarmError as error:
            logger.warning("record ignored", extra={"server": entry.server_id[:64], "error": str(error)})
    return records, stated


def _states(records: Mapping[str, ServerRecord], stated: Mapping[str, Statement]) -> set[tuple[str, ...]]:
    """What must be acted upon at once. Renewals and load come every few seconds of each server, and can wait."""
    said: list[ServerRecord | Statement] = [*records.values(), *stated.values()]
    return {(type(one).__name__, one.server_id, one.state, one.instance) for one in said}


def _newly_online(
    before: Mapping[str, ServerRecord], after: Mapping[str, ServerRecord]
) -> list[ServerRecord]:
    """Records of servers that are ONLINE and were not, or are other processes than before."""
    found = []
    for server_id, record in after.items():
        last = before.get(server_id)
        known = last is not None and (last.instance, last.state) == (record.instance, record.state)
        if record.state is State.ONLINE and not known:
            found.append(record)
    return found


async def _answer(call: "grpc.aio.UnaryUnaryCall[pb.PublishRequest, pb.PublishResponse]") -> bool:
    try:
        response = await call
    except grpc.aio.AioRpcError:
        return False
    return int(response.stored) > 0
