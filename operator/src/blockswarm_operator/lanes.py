"""One lane a key: passes over one model never overlap, failed ones are repeated with growing pauses."""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
logger = logging.getLogger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0


class Lanes(Generic[K]):
    """Runs `work(key)` after each `poke(key)`, at most `limit` keys at once.

    `work` returns after how many seconds it wants to run again unpoked, or None when its key needs no lane any more.
    Pokes during a pass lead to one more pass.
    """

    def __init__(
        self,
        work: Callable[[K], Awaitable[float | None]],
        *,
        limit: int = 8,
        failed: Callable[[K, Exception], None] = lambda key, error: None,
    ) -> None:
        self._work = work
        self._failed = failed
        self._room = asyncio.Semaphore(limit)
        self._bells: dict[K, asyncio.Event] = {}
        self._tasks: dict[K, asyncio.Task[None]] = {}
        self._began: dict[K, float] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def poke(self, key: K) -> None:
        """Something that this key reads has changed."""
        bell = self._bells.get(key)
        if bell is None:
            bell = self._bells[key] = asyncio.Event()
            self._tasks[key] = asyncio.create_task(self._run(key, bell), name=f"lane-{key}")
        bell.set()

    def oldest(self) -> float:
        """Seconds since the longest running pass began; 0 if none runs."""
        return max((time.monotonic() - began for began in self._began.values()), default=0.0)

    async def close(self) -> None:
        """Stop all lanes; a pass is cut where it waits."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _run(self, key: K, bell: asyncio.Event) -> None:
        pause, wait = _FIRST_PAUSE, 0.0
        while True:
            if wait > 0:
                try:
                    async with asyncio.timeout(wait):
                        await bell.wait()
                except TimeoutError:
                    pass
            bell.clear()
            try:
                again = await self._pass(key)
            except Exception as error:  # whatever it is, the lane must go on
                self._failed(key, error)
                await asyncio.sleep(pause * random.uniform(0.8, 1.2))
                pause, wait = min(2 * pause, _LONGEST_PAUSE), 0.0
                continue
            pause = _FIRST_PAUSE
            if again is None and not bell.is_set():
                del self._bells[key], self._tasks[key]
                return
            wait = again if again is not None else 0.001

    async def _pass(self, key: K) -> float | None:
        async with self._room:
            self._began[key] = time.monotonic()
            try:
                return await self._work(key)
            finally:
                del self._began[key]
