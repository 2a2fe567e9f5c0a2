"""A directory without a DHT: it shows the servers that a test tells it of, and takes statements.

To its clients it behaves as `blockswarm-directory`: records are renewed every 10 s, a watch hears of changes of state
at once, of renewals at most once a second, and of nothing new every 10 s.
"""

import asyncio
import hashlib
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import grpc

from blockswarm_wire import limits
from blockswarm_wire.record import ServerRecord, State, Statement
from blockswarm_wire.v1 import directory_pb2 as pb
from blockswarm_wire.v1 import directory_pb2_grpc
from kube.loop_thread import LoopThread

_TICK_SECONDS = 0.5
_WATCH_SECONDS = 10.0
_STRANGER = "stranger"


def fingerprint(model: str) -> str:
    """The identity of a model that exists only by its name."""
    return hashlib.sha256(model.encode()).hexdigest()


class FakeDirectory(LoopThread, directory_pb2_grpc.DirectoryServicer):
    """Runs in a thread of its own; its methods may be called from any. Use as a context manager.

    Attributes:
        target: "host:port".
        statements: server id → what was last stated about it.
        calls: method → how often it was called.
    """

    def __init__(self) -> None:
        super().__init__()
        self.target = ""
        self.statements: dict[str, Statement] = {}
        self.calls: dict[str, int] = defaultdict(int)
        self._records: dict[str, dict[str, ServerRecord]] = defaultdict(dict)
        self._stated: dict[str, set[str]] = defaultdict(set)
        self._bells: dict[str, set[_Bell]] = defaultdict(set)

    def put(self, record: ServerRecord) -> None:
        """Show a server, or what is new of it, until `remove`."""
        self._soon(self._put, record)

    def remove(self, model_key: str, server_id: str) -> None:
        """Show a server no longer."""
        self._soon(self._remove, model_key, server_id)

    def stir(self) -> None:
        """Give readers something new to look at: a stranger's server of each model begins anew."""
        self._soon(self._stir)

    # --- the service ----------------------------------------------------------------------------------------------

    async def Models(self, request: pb.ModelsRequest, context: Any) -> pb.ModelsResponse:
        self.calls["Models"] += 1
        models = [next(iter(found.values())) for found in self._records.values() if found]
        return pb.ModelsResponse(
            models=[
                pb.Model(
                    key=one.model_key, name=one.model, num_blocks=one.num_blocks, fingerprint=one.fingerprint
                )
                for one in models
            ]
        )

    async def Lookup(self, request: pb.LookupRequest, context: Any) -> pb.LookupResponse:
        self.calls["Lookup"] += 1
        return self._answer(request.model_key)

    async def Publish(self, request: pb.PublishRequest, context: Any) -> pb.PublishResponse:
        self.calls["Publish"] += 1
        for entry in request.entries:
            if entry.record:
                self._put(ServerRecord.decode(entry.record))
            if not entry.statement:
                continue
            said = Statement.decode(entry.statement)
            before = self.statements.get(said.server_id)
            self.statements[said.server_id] = said
            self._stated[request.model_key].add(said.server_id)
            changed = before is None or (before.state, before.instance) != (said.state, said.instance)
            self._ring(request.model_key, urgent=changed)
        return pb.PublishResponse(stored=len(request.entries))

    async def Watch(self, request: pb.LookupRequest, context: Any) -> AsyncIterator[pb.LookupResponse]:
        self.calls["Watch"] += 1
        bell = _Bell()
        self._bells[request.model_key].add(bell)
        try:
            while True:
                yield self._answer(request.model_key)
                await bell.wait()
        finally:
            self._bells[request.model_key].discard(bell)

    # --- inside ---------------------------------------------------------------------------------------------------

    def _soon(self, call: Any, *arguments: Any) -> None:
        self.loop.call_soon_threadsafe(call, *arguments)

    def _put(self, record: ServerRecord) -> None:
        self._records[record.model_key][record.server_id] = record
        self._ring(record.model_key, urgent=True)

    def _remove(self, model_key: str, server_id: str) -> None:
        if self._records[model_key].pop(server_id, None) is not None:
            self._ring(model_key, urgent=True)

    def _stir(self) -> None:
        for key, records in self._records.items():
            before = records.pop(_STRANGER, None)
            for one in list(records.values())[:1]:
                instance = "1" if before is None or before.instance != "1" else "2"
                records[_STRANGER] = replace(one, server_id=_STRANGER, state=State.JOINING, instance=instance)
            self._ring(key, urgent=True)

    def _ring(self, model_key: str, *, urgent: bool) -> None:
        for bell in self._bells.get(model_key, ()):
            bell.ring(urgent=urgent)

    def _answer(self, model_key: str) -> pb.LookupResponse:
        records, now = self._records[model_key], time.time()
        stated = {
            server_id: self.statements[server_id]
            for server_id in self._stated[model_key]
            if self.statements[server_id].expires_at > now
        }
        entries = [
            pb.Entry(
                server_id=server_id,
                record=records[server_id].encode() if server_id in records else b"",
                statement=stated[server_id].encode() if server_id in stated else b"",
            )
            for server_id in sorted(records.keys() | stated.keys())
        ]
        return pb.LookupResponse(entries=entries, peers=2)

    async def serve(self) -> None:
        server = grpc.aio.server(options=limits.SERVER_OPTIONS)
        directory_pb2_grpc.add_DirectoryServicer_to_server(self, server)
        self.target = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        self.up()
        renewing = asyncio.create_task(self._renew())
        await self.stopped.wait()
        renewing.cancel()
        await server.stop(None)

    async def _renew(self) -> None:
        """As servers do: each at its own time, every 10 s."""
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            now = time.time()
            for key, records in self._records.items():
                old = [one for one in records.values() if now - one.issued_at >= limits.HEARTBEAT_SECONDS]
                for one in old:
                    records[one.server_id] = replace(one, issued_at=now)
                if old:
                    self._ring(key, urgent=False)


class _Bell:
    """Wakes one watch."""

    def __init__(self) -> None:
        self._any, self._urgent = asyncio.Event(), asyncio.Event()

    def ring(self, *, urgent: bool) -> None:
        self._any.set()
        if urgent:
            self._urgent.set()

    async def wait(self) -> None:
        try:
            async with asyncio.timeout(_WATCH_SECONDS):
                await self._any.wait()
            async with asyncio.timeout(1.0):
                await self._urgent.wait()
        except TimeoutError:
            pass
        self._any.clear()
        self._urgent.clear()
