"""Keep the processes of a local swarm running: start, watch, restart with back-off, stop in order."""

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blockswarm_services.local.child import Child, Command, log_file, log_lines
from blockswarm_wire.errors import BlockSwarmError

logger = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 30.0
# A process that stayed online this long has recovered: its next failure counts as the first.
_STEADY_SECONDS = 60.0
_FIRST_TRIES = 3
_MISTAKE = 2
_ENOUGH_LINES = 12

Facts = dict[str, Any]


class StartFailed(BlockSwarmError):
    """A process could not be brought up; the message ends with the last lines of its log."""


@dataclass(slots=True)
class Status:
    """One process, as it is now. `note`: why it is waiting, in words; `facts`: its ready file."""

    command: Command
    state: str = "starting"
    pid: int | None = None
    restarts: int = 0
    note: str = ""
    facts: Facts | None = None


class Supervisor:
    """Runs commands until `stop`. `on_change` is called with the Status that changed, after every change."""

    def __init__(
        self, folder: Path, *, on_change: Callable[[Status], None], first_pause: float = FIRST_PAUSE_SECONDS
    ) -> None:
        self.folder = folder
        self.statuses: dict[str, Status] = {}
        self._on_change = on_change
        self._first_pause = first_pause
        self._children: dict[str, Child] = {}
        self._keepers: dict[str, asyncio.Task[None]] = {}

    async def add(
        self,
        command: Command,
        *,
        deadline: float,
        pin: Callable[[Command, Facts], Command] = lambda command, facts: command,
    ) -> Facts:
        """Start a process and keep it running from then on.

        Args:
            deadline: seconds within which it must be ready for the first time.
            pin: makes the command of later starts from the first one and its ready file, so that a process
                that was given "any free port" comes back on the same one.

        Returns:
            The contents of its ready file.

        Raises:
            StartFailed: it refused its command line, ended three times, or took too long.
        """
        log_file(self.folder, command.id).unlink(missing_ok=True)
        status = self.statuses[command.id] = Status(command)
        first: asyncio.Future[Facts] = asyncio.get_running_loop().create_future()
        keeper = asyncio.create_task(self._keep(status, first, pin), name=f"keep {command.id}")
        self._keepers[command.id] = keeper
        try:
            async with asyncio.timeout(deadline):
                return await asyncio.shield(first)
        except TimeoutError:
            raise StartFailed(
                f"{command.id} was not ready within {deadline:.0f} s{self._excerpt(command.id)}"
            ) from None

    async def stop(self, grace: float) -> None:
        """End all processes: servers first, so that they can still say goodbye to the directory.

        Args:
            grace: seconds between SIGTERM and SIGKILL.
        """
        for keeper in self._keepers.values():
            keeper.cancel()
        await asyncio.gather(*self._keepers.values(), return_exceptions=True)
        servers = [child for child in self._children.values() if child.command.kind == "server"]
        others = [child for child in self._children.values() if child.command.kind != "server"]
        for group in (servers, others):
            await asyncio.gather(*(self._end(child, grace) for child in group))

    def kill(self) -> None:
        """SIGKILL to all processes."""
        for child in self._children.values():
            child.kill()

    async def _end(self, child: Child, grace: float) -> None:
        await child.stop(grace)
        self._change(self.statuses[child.command.id], state="stopped", pid=None, note="")

    async def _keep(
        self, status: Status, first: asyncio.Future[Facts], pin: Callable[[Command, Facts], Command]
    ) -> None:
        failures = 0
        while True:
            code, seconds = await self._live(status, first)
            if first.done():
                facts = status.facts or first.result()
                status.command = pin(status.command, facts)
                failures = 0 if seconds >= _STEADY_SECONDS else failures
            elif code == _MISTAKE or failures + 1 == _FIRST_TRIES:
                who, log = status.command.id, self._excerpt(status.command.id)
                first.set_exception(StartFailed(f"{who} {describe_end(code)} before it was ready{log}"))
                self._change(status, state="stopped", pid=None, note=describe_end(code))
                return
            pause = min(self._first_pause * 2**failures, LONGEST_PAUSE_SECONDS)
            failures += 1
            note = f"{describe_end(code)}; restarting in {pause:.0f} s"
            self._change(status, state="waiting", pid=None, note=note, restarts=status.restarts + 1)
            await asyncio.sleep(pause)

    async def _live(self, status: Status, first: asyncio.Future[Facts]) -> tuple[int, float]:
        """One life of the process: (return code, seconds that it was ready)."""
        child = await Child.start(status.command, self.folder)
        self._children[status.command.id] = child
        self._change(status, state="starting", pid=child.pid, note="")
        ready = asyncio.create_task(child.ready())
        end = asyncio.create_task(child.wait())
        try:
            await asyncio.wait((ready, end), return_when=asyncio.FIRST_COMPLETED)
            since = time.monotonic()
            if ready.done() and not end.done():
                status.facts = ready.result()
                self._change(status, state="online")
                if not first.done():
                    first.set_result(ready.result())
            code = await end
            return code, time.monotonic() - since
        finally:
            for task in (ready, end):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    def _change(self, status: Status, **changes: Any) -> None:
        for name, value in changes.items():
            setattr(status, name, value)
        logger.debug("process changed", extra={"process": status.command.id, "state": status.state})
        self._on_change(status)

    def _excerpt(self, process_id: str) -> str:
        lines = _telling(log_lines(self.folder, process_id))
        where = log_file(self.folder, process_id)
        return f" (log: {where})" + "".join(f"\n  {line}" for line in lines)


def describe_end(code: int) -> str:
    """How a process ended, from its return code."""
    if code >= 0:
        return f"ended with status {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def _telling(lines: Iterable[str]) -> list[str]:
    """The last lines that are no routine log events."""
    kept = [line for line in lines if line.strip() and '"level": "info"' not in line]
    return kept[-_ENOUGH_LINES:]
