"""The gRPC service Directory: thin, over a Mirror and a SwarmNode."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc

from blockswarm_dht.node import SwarmNode
from blockswarm_dht.schema import Found
from blockswarm_services.directory.metrics import DirectoryMetrics
from blockswarm_services.directory.mirror import Mirror
from blockswarm_services.directory.store import Row
from blockswarm_services.grpc_errors import abort
from blockswarm_wire.errors import BlockSwarmError, InvalidArgument, TooManySessions
from blockswarm_wire.record import ServerRecord, Statement, block_key, check_fresh, parse_block_key
from blockswarm_wire.v1 import directory_pb2 as pb
from blockswarm_wire.v1 import directory_pb2_grpc as pb_grpc

logger = logging.getLogger(__name__)

_MAX_ENTRIES = 1_024
_MAX_WATCHERS = 1_000
_MAX_PENDING_STORES = 64
_WATCH_SECONDS = 10.0
_SETTLE_SECONDS = 1.0

_Context = Any  # grpc.aio.ServicerContext; its stub is generic over types that we do not name


class DirectoryService(pb_grpc.DirectoryServicer):
    """Publish, Lookup, Models and Watch."""

    def __init__(self, mirror: Mirror, node: SwarmNode, metrics: DirectoryMetrics) -> None:
        self._mirror = mirror
        self._node = node
        self._metrics = metrics
        self._stores: set[asyncio.Task[int]] = set()
        self._closing = asyncio.Event()

    def close(self) -> None:
        """End the watches, so that the server can stop."""
        self._closing.set()

    async def Publish(self, request: pb.PublishRequest, context: _Context) -> pb.PublishResponse:
        """Show entries at once, store the statements among them in the DHT, answer how many another member confirmed.

        Records are stored by the servers themselves. The store goes on when the caller stops waiting.
        """
        try:
            records, statements = _decode(request)
            if statements and len(self._stores) >= _MAX_PENDING_STORES:
                raise TooManySessions("too many publishes are in progress", retry_after=1.0)
        except BlockSwarmError as error:
            self._metrics.published("refused", len(request.entries))
            await abort(context, error)
        items: list[ServerRecord | Statement] = [*records, *statements]
        for item in items:
            self._mirror.take(Found(request.model_key, item))
        self._metrics.published("shown", len(records))
        if not statements:
            return pb.PublishResponse()
        task = asyncio.create_task(self._store(request.model_key, statements))
        self._stores.add(task)
        task.add_done_callback(self._stored)
        return pb.PublishResponse(stored=await asyncio.shield(task))

    async def Lookup(self, request: pb.LookupRequest, context: _Context) -> pb.LookupResponse:
        try:
            _check_key(request.model_key)
        except BlockSwarmError as error:
            await abort(context, error)
        return self._response(await self._mirror.rows(request.model_key))

    async def Models(self, request: pb.ModelsRequest, context: _Context) -> pb.ModelsResponse:
        models = [
            pb.Model(
                key=entry.key, name=entry.name, num_blocks=entry.num_blocks, fingerprint=entry.fingerprint
            )
            for entry in await self._mirror.models()
        ]
        return pb.ModelsResponse(models=models, peers=self._node.peers)

    async def Watch(self, request: pb.LookupRequest, context: _Context) -> AsyncIterator[pb.LookupResponse]:
        """The view now, then at every change (changes of load only: at most once a second), at least every 10 s."""
        try:
            _check_key(request.model_key)
            if self._mirror.watchers >= _MAX_WATCHERS:
                raise TooManySessions(f"this directory has {_MAX_WATCHERS} watchers", retry_after=5.0)
        except BlockSwarmError as error:
            await abort(context, error)
        with self._mirror.watching(request.model_key) as bell:
            await self._mirror.rows(request.model_key)
            while not self._closing.is_set():
                yield self._response(self._mirror.rows_now(request.model_key))
                ring = asyncio.create_task(bell.wait(settle=_SETTLE_SECONDS, limit=_WATCH_SECONDS))
                end = asyncio.create_task(self._closing.wait())
                try:
                    await asyncio.wait({ring, end}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    ring.cancel()
                    end.cancel()
        await context.abort(grpc.StatusCode.UNAVAILABLE, "this directory stops; ask another one")

    def _response(self, rows: list[Row]) -> pb.LookupResponse:
        entries = [
            pb.Entry(
                server_id=row.server_id,
                record=row.record.encode() if row.record is not None else b"",
                statement=row.statement.encode() if row.statement is not None else b"",
            )
            for row in rows
        ]
        return pb.LookupResponse(entries=entries, peers=self._node.connected)

    async def _store(self, key: str, statements: list[Statement]) -> int:
        stored = await self._node.store_statements(key, statements)
        self._metrics.published("confirmed", stored)
        self._metrics.published("unconfirmed", len(statements) - stored)
        return stored

    def _stored(self, task: asyncio.Task[int]) -> None:
        self._stores.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("a DHT store failed", exc_info=task.exception())


def _check_key(model_key: str) -> None:
    try:
        parse_block_key(block_key(model_key, 0))
    except InvalidArgument:
        raise InvalidArgument(
            f"model_key {model_key[:80]!r} is not a model key; Models() lists those there are"
        ) from None


def _decode(request: pb.PublishRequest) -> tuple[list[ServerRecord], list[Statement]]:
    _check_key(request.model_key)
    if not 0 < len(request.entries) <= _MAX_ENTRIES:
        raise InvalidArgument(f"entries: 1…{_MAX_ENTRIES} in one request, got {len(request.entries)}")
    records, statements = [], []
    for entry in request.entries:
        if not entry.record and not entry.statement:
            raise InvalidArgument(f"entries: {entry.server_id[:80]!r} has neither record nor statement")
        if entry.record:
            record = ServerRecord.decode(entry.record)
            if record.model_key != request.model_key:
                raise InvalidArgument(
                    f"entries: record of {record.server_id} is of model {record.model_key}, not {request.model_key}"
                )
            _check_item(entry.server_id, record)
            records.append(record)
        if entry.statement:
            statement = Statement.decode(entry.statement)
            _check_item(entry.server_id, statement)
            statements.append(statement)
    return records, statements


def _check_item(server_id: str, item: ServerRecord | Statement) -> None:
    if item.server_id != server_id:
        raise InvalidArgument(f"entries: server_id {server_id[:80]!r} differs from the one inside the entry")
    check_fresh(item.issued_at, now=time.time())
