"""The addresses behind a gRPC target: for what must reach every replica of a service rather than any one."""

import asyncio
import socket
import threading
from concurrent.futures import Future
from typing import Any

from blockswarm_wire.errors import Unreachable

_running: dict[str, "Future[list[str]]"] = {}
_lock = threading.Lock()


async def addresses_of(target: str, *, seconds: float) -> list[str]:
    """Each "host:port" that `target` stands for, sorted; the IPv4 ones if there are any, else the IPv6 ones.

    Args:
        target: "host:port", "[ipv6]:port" or "dns:///name:port".
        seconds: how long the name service may take.

    Raises:
        Unreachable: the name is not known, or the name service does not answer in time.
    """
    try:
        async with asyncio.timeout(seconds):
            # The next one to ask shares the answer, when it comes.
            return await asyncio.shield(asyncio.wrap_future(_lookup(target)))
    except TimeoutError:
        raise Unreachable(f"{target}: the name service did not answer within {seconds:g} s") from None


def _lookup(target: str) -> "Future[list[str]]":
    """A lookup that runs, one a target.

    On a daemon thread: where the name service hangs, it may take a minute, and no loop must wait for it at its end.
    """
    with _lock:
        future = _running.get(target)
        if future is None:
            future = _running[target] = Future()
            threading.Thread(target=_run, args=(target, future), name="lookup", daemon=True).start()
    return future


def _run(target: str, future: "Future[list[str]]") -> None:
    found: list[str] = []
    failure: Exception | None = None
    try:
        found = _look_up(target)
    except Exception as error:
        failure = error
    with _lock:
        del _running[target]
    if failure is not None:
        future.set_exception(failure)
    else:
        future.set_result(found)


def _look_up(target: str) -> list[str]:
    host, _, number = target.removeprefix("dns:///").rpartition(":")
    name = host.strip("[]")
    try:
        port = int(number)
        if not 0 < port <= 65535:
            raise ValueError("the port is not 1…65535")
        try:
            # By itself: a resolver that loses the answer for IPv6 must not take the one for IPv4 with it.
            found = socket.getaddrinfo(name, port, socket.AF_INET, socket.SOCK_STREAM)
            return sorted({_text(at) for *_, at in found})
        except socket.gaierror:
            found = socket.getaddrinfo(name, port, socket.AF_INET6, socket.SOCK_STREAM)
            return sorted({_text(at) for *_, at in found})
    except (OSError, ValueError) as error:
        raise Unreachable(f"{target}: {error}") from None


def _text(address: tuple[Any, ...]) -> str:
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
