"""The one background event loop of this process, on which every blocking call of the SDK runs its async twin."""

import asyncio
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


class ForkedError(RuntimeError):
    """The SDK was used before a fork and again in the child, where its threads and connections do not exist."""


def loop() -> asyncio.AbstractEventLoop:
    """The background loop, started at the first call.

    Raises:
        ForkedError: it was started before this process was forked.
    """
    global _loop, _owner, _thread
    with _lock:
        if _loop is None:
            _loop = uvloop.new_event_loop()
            _owner = os.getpid()
            _thread = threading.Thread(target=_loop.run_forever, name="blockswarm-loop", daemon=True)
            _thread.start()
        elif _owner != os.getpid():
            raise ForkedError(
                "blockswarm was used before this process was forked, and its connections do not survive a fork: "
                "load the model in the child, or start workers with the 'spawn' method"
            )
        return _loop


def submit(work: Coroutine[Any, Any, _T]) -> "Future[_T]":
    """Start `work` on the background loop."""
    try:
        return asyncio.run_coroutine_threadsafe(work, loop())
    except BaseException:
        work.close()
        raise


def run(work: Coroutine[Any, Any, _T]) -> _T:
    """Run `work` on the background loop and wait for it; an interrupt (Ctrl-C) cancels it.

    Raises:
        RuntimeError: called on the background loop itself, which would wait for itself.
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
