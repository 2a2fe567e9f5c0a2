"""From a gRPC target to each address behind it."""

import asyncio
import re
import socket
from typing import Any

import pytest

from blockswarm_wire.addresses import addresses_of
from blockswarm_wire.errors import Unreachable


def _found(*hosts: str, port: int = 80) -> list[tuple[Any, ...]]:
    return [
        (socket.AF_INET6, 1, 6, "", (host, port, 0, 0))
        if ":" in host
        else (socket.AF_INET, 1, 6, "", (host, port))
        for host in hosts
    ]


@pytest.mark.parametrize(
    ("target", "addresses"),
    [
        ("127.0.0.1:80", ["127.0.0.1:80"]),
        ("dns:///127.0.0.1:80", ["127.0.0.1:80"]),
        ("[::1]:80", ["[::1]:80"]),
        ("dns:///[::1]:80", ["[::1]:80"]),
    ],
)
async def test_literals(target: str, addresses: list[str]) -> None:
    assert await addresses_of(target, seconds=5) == addresses


@pytest.mark.parametrize(
    ("hosts", "addresses"),
    [
        (["10.0.0.2", "10.0.0.1", "10.0.0.2"], ["10.0.0.1:80", "10.0.0.2:80"]),
        (["fd00::1", "10.0.0.1"], ["10.0.0.1:80"]),
        (["fd00::2", "fd00::1"], ["[fd00::1]:80", "[fd00::2]:80"]),
    ],
)
async def test_a_name_stands_for_all_its_addresses(
    monkeypatch: pytest.MonkeyPatch, hosts: list[str], addresses: list[str]
) -> None:
    async def getaddrinfo(host: str, port: int, **_: Any) -> list[tuple[Any, ...]]:
        assert (host, port) == ("directory.system.svc", 80)
        return _found(*hosts)

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    assert await addresses_of("dns:///directory.system.svc:80", seconds=5) == addresses


@pytest.mark.parametrize("target", ["name.invalid:80", "no-port", "127.0.0.1:x", "127.0.0.1:65536", ""])
async def test_what_cannot_be_found_is_named(target: str) -> None:
    with pytest.raises(Unreachable, match=f"^{re.escape(target)}: "):
        await addresses_of(target, seconds=5)


async def test_a_name_service_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def getaddrinfo(host: str, port: int, **_: Any) -> list[tuple[Any, ...]]:
        await asyncio.Event().wait()
        return []

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    with pytest.raises(Unreachable, match=r"did not answer within 0\.01 s"):
        await addresses_of("name:80", seconds=0.01)
