"""The compute thread: the one place where torch runs, fed from the event loop."""

import asyncio
import itertools
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from blockswarm_services.server.schedule import Kind, Ready, pick
from blockswarm_wire.errors import BlockSwarmError, Gone, ServerFault
from blockswarm_wire.limits import STUCK_SECONDS

logger = logging.getLogger(__name__)
_WEIGHT = 0.1
_LATELY_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a piece of work gave, and the seconds that it waited and ran."""

    value: Any
    queue_seconds: float
    compute_seconds: float


class Job:
    """One submitted piece of work; await `future` for its Outcome."""

    __slots__ = ("_ended", "cancelled", "compute", "finished", "future", "loop", "ready", "submitted")

    def __init__(self, ready: Ready, compute: Callable[[], Any], loop: asyncio.AbstractEventLoop) -> None:
        self.ready = ready
        self.compute = compute
        self.loop = loop
        self.future: asyncio.Future[Outcome] = loop.create_future()
        self.submitted = time.perf_counter()
        self.cancelled = False
        self.finished = False
        self._ended: asyncio.Future[None] | None = None

    async def ended(self) -> None:
        """Wait until the compute thread is through with it, also after whoever awaited `future` was cancelled."""
        if not self.finished:
            self._ended = self.loop.create_future()
            await self._ended

    def settle(self, result: "Outcome | BlockSwarmError") -> None:
        """Give the result to whoever waits; on the event loop."""
        self.finished = True
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)
        if self.future.done():
            return
        if isinstance(result, BaseException):
            self.future.set_exception(result)
            self.future.exception()  # the caller may have gone; that is not "never retrieved"
        else:
            self.future.set_result(result)


class Engine:
    """Runs work in rounds, in the order that `schedule.pick` says.

    Work raises errors of the tree in blockswarm_wire; anything else is this server's fault and is logged.
    """

    def __init__(self) -> None:
        self._waiting: list[Job] = []
        self._wake = threading.Condition()
        self._arrivals = itertools.count()
        self._round: list[Job] = []
        self._stopped = False
        self._poisoned = False
        self._began = 0.0
        self._delay = 0.0
        self._last = 0.0
        self._thread = threading.Thread(target=self._run, name="compute", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the compute thread runs and its device is sound."""
        return self._thread.is_alive() and not self._stopped and not self._poisoned

    @property
    def stuck(self) -> bool:
        """Whether one piece of work has been running for longer than any may."""
        began = self._began
        return began > 0 and time.perf_counter() - began > STUCK_SECONDS

    @property
    def queued(self) -> int:
        """How many pieces of work wait."""
        return len(self._waiting) + max(0, len(self._round) - 1)

    @property
    def queue_delay(self) -> float:
        """Seconds that work waited lately before it ran, a moving average; 0 when none came for a while."""
        return self._delay if time.perf_counter() - self._last < _LATELY_SECONDS else 0.0

    def submit(self, kind: Kind, rows: int, compute: Callable[[], Any]) -> Job:
        """Queue `compute` for the compute thread; call from the event loop that shall get the outcome."""
        job = Job(Ready(kind, rows, next(self._arrivals)), compute, asyncio.get_running_loop())
        with self._wake:
            if self._stopped:
                raise Gone("the server's compute thread has stopped")
            self._waiting.append(job)
            self._wake.notify()
        return job

    def cancel(self, job: Job) -> None:
        """Drop a job that has not started; a running one ends by itself, and its future tells when."""
        job.cancelled = True
        with self._wake:
            if job in self._waiting:
                self._waiting.remove(job)
                job.finished = True
                job.future.cancel()

    def position(self, job: Job) -> int:
        """Pieces of work before this one; 0 = running."""
        with self._wake:
            if job in self._round:
                return self._round.index(job)
            ahead = sum(other.ready.arrival < job.ready.arrival for other in self._waiting)
            return len(self._round) + ahead

    def stop(self, timeout: float = 5.0) -> None:
        """End the thread after the running piece of work; what waits is answered with Gone."""
        with self._wake:
            self._stopped = True
            self._wake.notify()
        self._thread.join(timeout)

    def _run(self) -> None:
        try:
            while self._take_round():
                while self._round:
                    self._execute(self._round[0])
                    with self._wake:
                        self._round.pop(0)
        finally:
            self._abandon()

    def _take_round(self) -> bool:
        with self._wake:
            while not self._waiting and not self._stopped:
                self._wake.wait()
            if self._stopped:
                return False
            chosen = pick([job.ready for job in self._waiting])
            self._round = [self._waiting[index] for index in chosen]
            picked = set(chosen)
            self._waiting = [job for index, job in enumerate(self._waiting) if index not in picked]
            return True

    def _execute(self, job: Job) -> None:
        started = time.perf_counter()
        if job.cancelled:
            _resolve(job, Gone("cancelled"))
            return
        self._began = self._last = started
        self._delay += _WEIGHT * (started - job.submitted - self._delay)
        try:
            value = job.compute()
        except BlockSwarmError as error:
            _resolve(job, error)
        except Exception as error:
            logger.exception("compute failed")
            # After an error of the device every later operation fails too: another process must take over.
            self._poisoned = self._poisoned or "CUDA error" in str(error)
            _resolve(job, ServerFault(f"{type(error).__name__} while computing; see the server's log"))
        else:
            _resolve(job, Outcome(value, started - job.submitted, time.perf_counter() - started))
        finally:
            self._began = 0.0

    def _abandon(self) -> None:
        with self._wake:
            self._stopped = True
            left, self._waiting, self._round = [*self._round, *self._waiting], [], []
        for job in left:
            _resolve(job, Gone("the server stops"))


def _resolve(job: Job, result: "Outcome | BlockSwarmError") -> None:
    try:
        job.loop.call_soon_threadsafe(job.settle, result)
    except RuntimeError:  # the loop is closed: nobody waits for the outcome any more
        logger.debug("outcome dropped, the event loop is closed")
