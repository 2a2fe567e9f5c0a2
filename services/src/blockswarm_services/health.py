"""The HTTP endpoint of every process: /healthz (alive), /readyz (may get traffic) and /metrics (Prometheus text).

Plain asyncio, because three GET routes do not pay for a web framework. One request a connection.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from blockswarm_dht.address import split_address

logger = logging.getLogger(__name__)

_MAX_REQUEST_BYTES = 16 * 1024
_REQUEST_SECONDS = 5.0
# A kubelet probes at most once a second. An answer that is held back until there is one comes without that delay.
_HOLD_SECONDS = 0.9
_TEXT = "text/plain; charset=utf-8"
_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}

_Reply = tuple[int, str, bytes]


class HealthServer:
    """Answers the three routes until `close`. `port`: the port it got, also where 0 was asked for.

    `settled` returns once this process is ready, or never will be: /readyz waits for it up to 0.9 s before it says no.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        healthy: Callable[[], bool],
        ready: Callable[[], bool],
        settled: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self._registry = registry
        self._settled = settled
        self._probes = {"/healthz": healthy, "/readyz": ready}
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self, listen: str) -> None:
        host, port = split_address(listen, field="--metrics-listen")
        self._server = await asyncio.start_server(self._serve, host, port, limit=_MAX_REQUEST_BYTES)
        self.port = int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_REQUEST_SECONDS):
                status, content_type, body = await self._answer(reader)
                head = (
                    f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {content_type}\r\n"
                    f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
                )
                writer.write(head.encode("latin-1") + body)
                await writer.drain()
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError):
            logger.debug("health request abandoned")
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader) -> _Reply:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except asyncio.LimitOverrunError:
            return 400, _TEXT, b"request too large\n"
        line, _, rest = head.partition("\r\n")
        parts = line.split(" ")
        if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
            return 400, _TEXT, b"not an HTTP/1 request\n"
        if parts[0] != "GET":
            return 405, _TEXT, b"only GET is served\n"
        path = parts[1].partition("?")[0]
        if path == "/readyz" and self._settled is not None and not self._probes[path]():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_HOLD_SECONDS):
                    await self._settled()
        return self._route(path, rest)

    def _route(self, path: str, headers: str) -> _Reply:
        if path in self._probes:
            good = self._probes[path]()
            return (200, _TEXT, b"ok\n") if good else (503, _TEXT, b"not ok\n")
        if path == "/metrics":
            encode, content_type = choose_encoder(_header(headers, "accept"))
            return 200, content_type, encode(self._registry)
        return 404, _TEXT, b"known paths: /healthz /readyz /metrics\n"


def _header(headers: str, name: str) -> str:
    for line in headers.split("\r\n"):
        key, _, value = line.partition(":")
        if key.strip().lower() == name:
            return value.strip()
    return ""


async def start_health_server(
    listen: str, *, registry: CollectorRegistry, healthy: Callable[[], bool], ready: Callable[[], bool]
) -> tuple[HealthServer, int]:
    """Serve /healthz, /readyz and /metrics on `listen` ("host:port", port 0 = any free one).

    Args:
        registry: what /metrics shows.
        healthy: False makes /healthz answer 503: the process must be restarted.
        ready: False makes /readyz answer 503: the process should get no new work.

    Returns:
        The running server (`await close()` ends it) and the port it listens on.

    Raises:
        InvalidArgument: `listen` is not "host:port".
        OSError: the port is in use.
    """
    server = HealthServer(registry, healthy, ready)
    await server.start(listen)
    return server, server.port
