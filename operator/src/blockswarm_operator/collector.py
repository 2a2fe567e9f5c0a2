"""Python's garbage collector, kept from stopping the process for long.

A full collection looks at every object: with 1,000 BlockServers in the indexes that takes a third of a second, several
times a minute while much changes. What has survived one is therefore set aside (`gc.freeze`) and seen again after a
minute, then after two, four, ... and at last once an hour.
"""

import gc
import time
from collections.abc import Callable

_OLDEST = 2
_FIRST_SECONDS, _MOST_SECONDS = 60.0, 3600.0


class Collector:
    """`install` once a process. `clock`: monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pause = _FIRST_SECONDS
        self._whole = clock() + self._pause

    def install(self) -> None:
        """Set survivors of full collections aside from now on."""
        gc.callbacks.append(self)

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        """Called by Python before and after each collection."""
        if info["generation"] != _OLDEST:
            return
        if phase == "stop":
            gc.freeze()
        elif self._clock() >= self._whole:
            self._pause = min(2 * self._pause, _MOST_SECONDS)
            self._whole = self._clock() + self._pause
            gc.unfreeze()
