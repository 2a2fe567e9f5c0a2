"""From a gRPC target to each address behind it."""

import asyncio
import re
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from blockswarm_wire import addresses
from blockswarm_wire.addresses import addresses_of
from blockswarm_wire.errors import Unreachable


@pytest.mark.parametrize(
    ("target", "found"),
    [
        ("127.0.0.1:80", ["127.0.0.1:80"]),
        ("dns:///127.0.0.1:80", ["127.0.0.1:80"]),
        ("[::1]:80", ["[::1]:80"]),
        ("dns:///[::1]:80", ["[::1]:80"]),
    ],
)
async def test_literals(target: str, found: list[str]) -> None:
    assert await addresses_of(target, seconds=5) == found


class Names:
    """A name service that knows one name."""

    def __init__(self, *hosts: str) -> None:
        self._hosts = hosts
        self.asked = 0
        self.answers = threading.Event()
        self.answers.set()

    def __call__(self, host: str, port: int, family: int, kind: int) -> list[tuple[Any, ...]]:
        assert (host, port, kind) == ("directory.system.svc", 80, socket.SOCK_STREAM)
        self.asked += 1
        assert self.answers.wait(10)
        mine = [host for host in self._hosts if (":" in host) == (family == socket.AF_INET6)]
        if not mine:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(family, kind, 6, "", (host, port, 0, 0)[: 4 if ":" in host else 2]) for host in mine]


TARGET = "dns:///directory.system.svc:80"


@pytest.mark.parametrize(
    ("hosts", "found"),
    [
        (["10.0.0.2", "10.0.0.1", "10.0.0.2"], ["10.0.0.1:80", "10.0.0.2:80"]),
        (["fd00::1", "10.0.0.1"], ["10.0.0.1:80"]),
        (["fd00::2", "fd00::1"], ["[fd00::1]:80", "[fd00::2]:80"]),
    ],
)
async def test_a_name_stands_for_all_its_addresses(
    monkeypatch: pytest.MonkeyPatch, hosts: list[str], found: list[str]
) -> None:
    monkeypatch.setattr(addresses.socket, "getaddrinfo", Names(*hosts))
    assert await addresses_of(TARGET, seconds=5) == found


@pytest.mark.parametrize("target", ["name.invalid:80", "no-port", "127.0.0.1:x", "127.0.0.1:65536", ""])
async def test_what_cannot_be_found_is_named(target: str) -> None:
    with pytest.raises(Unreachable, match=f"^{re.escape(target)}: "):
        await addresses_of(target, seconds=5)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Names]:
    names = Names("10.0.0.1")
    names.answers.clear()
    monkeypatch.setattr(addresses.socket, "getaddrinfo", names)
    yield names
    names.answers.set()


async def test_a_name_service_that_hangs_is_asked_once_and_not_waited_for(slow: Names) -> None:
    for _ in range(3):
        with pytest.raises(Unreachable, match=r"did not answer within 0\.01 s"):
            await addresses_of(TARGET, seconds=0.01)
    assert slow.asked == 1
    late = asyncio.create_task(addresses_of(TARGET, seconds=5))
    await asyncio.sleep(0)
    slow.answers.set()
    assert await late == ["10.0.0.1:80"]
    assert slow.asked == 1
