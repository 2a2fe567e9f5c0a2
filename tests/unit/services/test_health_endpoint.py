"""The HTTP endpoint: three routes, bounded input."""

import asyncio
import socket

import pytest
from prometheus_client import CollectorRegistry, Gauge

from blockswarm_services import health
from blockswarm_services.health import HealthServer, start_health_server
from blockswarm_wire.errors import InvalidArgument


async def _request(port: int, raw: bytes) -> tuple[int, str, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(raw)
    async with asyncio.timeout(5):
        answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), head.decode(), body


async def _start(*, healthy: bool = True, ready: bool = True) -> HealthServer:
    registry = CollectorRegistry()
    Gauge("blockswarm_example", "An example.", registry=registry).set(3)
    server, _ = await start_health_server(
        "127.0.0.1:0", registry=registry, healthy=lambda: healthy, ready=lambda: ready
    )
    return server


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", 200),
        (b"GET /readyz?verbose HTTP/1.1\r\n\r\n", 503),
        (b"GET /metrics HTTP/1.0\r\n\r\n", 200),
        (b"GET / HTTP/1.1\r\n\r\n", 404),
        (b"POST /metrics HTTP/1.1\r\n\r\n", 405),
        (b"hello\r\n\r\n", 400),
        (b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n", 400),
    ],
)
async def test_each_request_gets_its_status(raw: bytes, status: int) -> None:
    server = await _start(ready=False)
    try:
        got, _, _ = await _request(server.port, raw)
    finally:
        await server.close()
    assert got == status


async def test_readiness_is_told_when_it_comes_not_at_the_next_probe() -> None:
    ready = asyncio.Event()
    server = HealthServer(CollectorRegistry(), lambda: True, ready.is_set, ready.wait)
    await server.start("127.0.0.1:0")
    try:
        held = asyncio.create_task(_request(server.port, b"GET /readyz HTTP/1.1\r\n\r\n"))
        assert (await _request(server.port, b"GET /healthz HTTP/1.1\r\n\r\n"))[0] == 200
        assert not held.done()
        ready.set()
        assert (await held)[0] == 200
    finally:
        await server.close()


async def test_readiness_that_does_not_come_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_HOLD_SECONDS", 0.05)
    never = asyncio.Event()
    server = HealthServer(CollectorRegistry(), lambda: True, lambda: False, never.wait)
    await server.start("127.0.0.1:0")
    try:
        assert (await _request(server.port, b"GET /readyz HTTP/1.1\r\n\r\n"))[0] == 503
    finally:
        await server.close()


async def test_metrics_are_prometheus_text() -> None:
    server = await _start()
    try:
        _, head, body = await _request(server.port, b"GET /metrics HTTP/1.1\r\n\r\n")
    finally:
        await server.close()
    assert "Content-Type: text/plain; version=" in head
    assert b"blockswarm_example 3.0\n" in body


async def test_a_port_in_use_is_an_os_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="address already in use"):
            await start_health_server(
                f"127.0.0.1:{port}", registry=CollectorRegistry(), healthy=lambda: True, ready=lambda: True
            )


async def test_an_address_without_port_names_the_flag() -> None:
    with pytest.raises(InvalidArgument, match="--metrics-listen"):
        await start_health_server(
            "localhost", registry=CollectorRegistry(), healthy=lambda: True, ready=lambda: True
        )
