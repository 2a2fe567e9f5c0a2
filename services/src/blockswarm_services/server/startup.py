"""What a server does on its way to serving: work that a stop interrupts, its own address, progress, the ready file."""

import asyncio
import json
import logging
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from blockswarm_dht.address import split_address

logger = logging.getLogger(__name__)
_T = TypeVar("_T")


async def unless(stop: asyncio.Event, work: Callable[[], _T]) -> _T | None:
    """The result of `work` on a thread of its own; None when `stop` is set before it is done.

    The thread is a daemon: an orderly end must not wait for a download or for gigabytes to be read.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_T] = loop.create_future()

    def settle(outcome: Callable[[], None]) -> None:
        if not done.done():
            outcome()

    def run() -> None:
        try:
            result = work()
        except BaseException as error:
            failure = error
            loop.call_soon_threadsafe(settle, lambda: done.set_exception(failure))
        else:
            loop.call_soon_threadsafe(settle, lambda: done.set_result(result))

    threading.Thread(target=run, name="load", daemon=True).start()
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait((done, stopped), return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    return done.result() if done.done() else None


def advertised(announce: str | None, listen: str, port: int) -> str:
    """host:port that clients shall dial: `announce`, else the listening host, else this machine's name."""
    if announce:
        host, colon, given = announce.rpartition(":")
        return announce if colon and given.isdigit() else f"{announce}:{port}"
    host, _ = split_address(listen, field="--listen")
    if host in ("0.0.0.0", "::", "[::]", ""):
        host = socket.gethostbyname(socket.gethostname())
    return f"{host}:{port}"


def port_of(listen: str) -> int:
    """The port of host:port."""
    return split_address(listen, field="--dht-listen")[1]


def write_ready_file(path: Path, facts: dict[str, object]) -> None:
    """Write `facts` as JSON; readers see the whole file or none."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(facts))
    draft.replace(path)


class LoadProgress:
    """Logs how loading goes: what is read, and every tenth of its bytes."""

    def __init__(self) -> None:
        self._told: tuple[str, int] = ("", -1)

    def __call__(self, what: str, done: int, total: int) -> None:
        tenth = 10 * done // total if total else 10
        if (what, tenth) != self._told:
            self._told = (what, tenth)
            logger.info("loading", extra={"what": what, "percent": 10 * tenth})
