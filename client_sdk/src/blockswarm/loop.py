"""The one background event loop of this process, on which every blocking call of the SDK runs its async twin."""

import asyncio
import atexit
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

import uvloop

_T = TypeVar("_T")
_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_thread: threading.Thread | None = None
_owner = 0
_ended = False

# At the end of the process: how long cancelled work may take, and how long to wait for the loop's thread in all.
_CANCEL_SECONDS = 1.0
_END_SECONDS = 3.0


class ForkedError(RuntimeError):
    """The SDK was used before a fork and again in the child, where its threads and connections do not exist."""


def loop() -> asyncio.AbstractEventLoop:
    """The background loop, started at the first call and ended with the process.

    Raises:
        ForkedError: it was started before this process was forked.
        RuntimeError: this process is ending.
    """
    global _loop, _owner, _thread
    with _lock:
        if _ended:
            raise RuntimeError("this process is ending, and blockswarm's event loop has ended before it")
        if _loop is None:
            _loop = uvloop.new_event_loop()
            _owner = os.getpid()
            _thread = threading.Thread(target=_run_loop, args=(_loop,), name="blockswarm-loop", daemon=True)
            _thread.start()
            atexit.register(_end)
        elif _owner != os.getpid():
            raise ForkedError(
                "blockswarm was used before this process was forked, and its connections do not survive a fork: "
                "load the model in the child, or start workers with the 'spawn' method"
            )
        return _loop


def submit(work: Coroutine[Any, Any, _T]) -> "Future[_T]":
    """Start `work` on the background loop.

    Raises:
        RuntimeError: as `loop`.
    """
    try:
        return asyncio.run_coroutine_threadsafe(work, loop())
    except BaseException:
        work.close()
        raise


def run(work: Coroutine[Any, Any, _T]) -> _T:
    """Run `work` on the background loop and wait for it; an interrupt (Ctrl-C) cancels it.

    Raises:
        RuntimeError: as `loop`; or called on the background loop itself, which would wait for itself.
    """
    if _thread is not None and threading.get_ident() == _thread.ident:
        work.close()
        raise RuntimeError("a blocking call was made on the SDK's own event loop; use the async twin there")
    future = submit(work)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def _run_loop(own: asyncio.AbstractEventLoop) -> None:
    """Run until `_end`, then give the work that is left a moment to see that it is cancelled."""
    own.run_forever()
    left = asyncio.all_tasks(own)
    for task in left:
        task.cancel()
    if left:
        own.run_until_complete(asyncio.wait(left, timeout=_CANCEL_SECONDS))


def _end() -> None:
    """End the loop while Python still runs: a callback of uvloop after that takes the process down with SIGSEGV."""
    global _ended
    with _lock:
        if _loop is None or _thread is None or _owner != os.getpid():
            return
        _ended = True
    _loop.call_soon_threadsafe(_loop.stop)
    _thread.join(_END_SECONDS)
