"""A proxy in front of the API server: it lists what its client writes, strikes after the n-th write, breaks watches."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import aiohttp
from aiohttp import web

from kube.loop_thread import LoopThread

_READ = ("GET", "HEAD", "OPTIONS")
_HOP = {
    "connection",
    "transfer-encoding",
    "content-encoding",
    "content-length",
    "keep-alive",
    "host",
    "accept-encoding",
}


# What the API server tells a watch that asks for events which it has forgotten.
_EXPIRED = b"""{"type": "ERROR", "object": {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
"reason": "Expired", "code": 410, "message": "too old resource version"}}""".replace(b"\n", b" ")


@dataclass(frozen=True)
class Write:
    """A request that may change something, and how it was answered."""

    method: str
    path: str
    status: int

    def __str__(self) -> str:
        return f"{self.method} {self.path.partition('?')[0]} → {self.status}"


class WritesProxy(LoopThread):
    """Plain HTTP in front of `upstream`. Leases are let through unlisted. Use as a context manager.

    Attributes:
        url: where it listens.
    """

    def __init__(self, upstream: str) -> None:
        super().__init__()
        self._upstream = upstream
        self.url = ""
        self._writes: list[Write] = []
        self._strike_after = 0
        self._strike: Callable[[], None] | None = None
        self._watches: dict[asyncio.Task[object], str] = {}
        self._blind_to = ""
        self._sighted = asyncio.Event()

    @property
    def writes(self) -> list[Write]:
        """All since `begin`, in their order."""
        return list(self._writes)

    @property
    def struck(self) -> bool:
        """Whether the blow of the last `begin` has fallen."""
        return self._strike_after > 0 and self._strike is None

    def begin(self, *, strike_after: int = 0, strike: Callable[[], None] | None = None) -> None:
        """Start a new list. `strike()` is called once the API server has done the n-th write, instead of an answer."""
        self._writes, self._strike_after, self._strike = [], strike_after, strike

    @contextmanager
    def blind_to(self, plural: str) -> Iterator[None]:
        """No watch of a kind meanwhile; the first one after it is told that what happened is forgotten."""
        asyncio.run_coroutine_threadsafe(self._end_watches(plural), self.loop).result(10)
        try:
            yield
        finally:
            self.loop.call_soon_threadsafe(self._sighted.set)

    async def _end_watches(self, plural: str) -> None:
        self._blind_to = plural
        self._sighted.clear()
        for task, kind in self._watches.items():
            if kind == plural:
                task.cancel()

    async def serve(self) -> None:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10)
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(
            timeout=timeout, connector=connector, auto_decompress=False
        ) as self._session:
            app = web.Application(client_max_size=8 * 2**20)
            app.router.add_route("*", "/{path:.*}", self._handle)
            runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            self.up()
            await self.stopped.wait()
            await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        kind = request.path.rpartition("/")[2]
        if request.query.get("watch") != "true":
            return await self._pass_on(request)
        if kind == self._blind_to:
            await self._sighted.wait()
            self._blind_to = ""
            return web.Response(body=_EXPIRED + b"\n", content_type="application/json")
        task = asyncio.current_task()
        assert task is not None
        self._watches[task] = kind
        try:
            return await self._pass_on(request)
        finally:
            del self._watches[task]

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        writes = request.method not in _READ and "/leases" not in request.path
        headers = {key: value for key, value in request.headers.items() if key.lower() not in _HOP}
        sent = self._session.request(
            request.method,
            self._upstream + request.raw_path,
            headers=headers,
            data=await request.read() or None,
            skip_auto_headers=("Content-Type",),
        )
        # A write that has begun is done to its end, whatever becomes of the client.
        async with await asyncio.shield(asyncio.ensure_future(_opened(sent))) as answer:
            if writes and self._listed(Write(request.method, request.raw_path, answer.status)):
                raise ConnectionResetError("struck")
            kept = {key: value for key, value in answer.headers.items() if key.lower() not in _HOP}
            response = web.StreamResponse(status=answer.status, headers=kept)
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
            await response.write_eof()
            return response

    def _listed(self, write: Write) -> bool:
        """List it; whether it was the one to strike after."""
        self._writes.append(write)
        if self._strike is None or len(self._writes) != self._strike_after:
            return False
        self._strike()
        self._strike = None
        return True


async def _opened(request: "aiohttp.client._RequestContextManager") -> aiohttp.ClientResponse:
    return await request
