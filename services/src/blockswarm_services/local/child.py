"""One process of the local swarm: it writes a log, says when it is ready, and dies with its parent."""

import asyncio
import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

_POLL_SECONDS = 0.1
_PR_SET_PDEATHSIG = 1
_TAIL_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What to run. `id`: unique name of the process in the swarm; `kind`: "directory" or "server"."""

    id: str
    kind: str
    words: tuple[str, ...]


class Child:
    """A running process. Its log and its ready file lie in `folder`, named by the command's id."""

    def __init__(self, command: Command, folder: Path, process: asyncio.subprocess.Process) -> None:
        self.command = command
        self._folder = folder
        self._process = process

    @classmethod
    async def start(cls, command: Command, folder: Path) -> Self:
        """Run the command with `--ready-file`, appending to its log."""
        ready = ready_file(folder, command.id)
        ready.unlink(missing_ok=True)
        with log_file(folder, command.id).open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *command.words,
                "--ready-file",
                str(ready),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C in a terminal reaches the whole group; the order of the end is ours to choose.
                start_new_session=True,
                preexec_fn=die_with(os.getpid()),
            )
        return cls(command, folder, process)

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    async def wait(self) -> int:
        """Return code once it has ended; negative = the signal that killed it."""
        return await self._process.wait()

    async def ready(self) -> dict[str, Any]:
        """What it wrote in its ready file; waits until it has. Cancel to give up."""
        path = ready_file(self._folder, self.command.id)
        while True:
            if path.exists():
                facts: dict[str, Any] = json.loads(path.read_text())
                return facts
            await asyncio.sleep(_POLL_SECONDS)

    async def stop(self, grace: float) -> None:
        """SIGTERM, and SIGKILL after `grace` seconds."""
        self._send(signal.SIGTERM)
        try:
            async with asyncio.timeout(grace):
                await self._process.wait()
        except TimeoutError:
            self.kill()
            await self._process.wait()

    def kill(self) -> None:
        """SIGKILL."""
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        if self._process.returncode is None:
            self._process.send_signal(number)


def log_file(folder: Path, process_id: str) -> Path:
    """Where a process's output goes."""
    return folder / f"{process_id}.log"


def ready_file(folder: Path, process_id: str) -> Path:
    """Where a process says that it is ready."""
    return folder / f"{process_id}.ready"


def log_lines(folder: Path, process_id: str) -> list[str]:
    """The last lines of a process's log, oldest first."""
    try:
        with log_file(folder, process_id).open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - _TAIL_BYTES))
            return stream.read().decode(errors="replace").splitlines()
    except FileNotFoundError:
        return []


def die_with(parent: int) -> Callable[[], None] | None:
    """The `preexec_fn` of a process that shall be killed when process `parent` ends, however that ends."""
    if sys.platform != "linux":
        return None
    # Looked up before the fork: between fork and exec nothing may be loaded.
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def prepare() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            # The parent died before the request was made.
            os._exit(1)

    return prepare
