"""One process of the local swarm: it writes a log, says when it is ready, and dies with its parent."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

_POLL_SECONDS = 0.1
# What runs before the command: a tiny interpreter that sets the parent-death signal and then becomes the command (same
# pid). A preexec_fn would run Python between fork and exec of a process full of threads, which may deadlock or crash.
# The parent may die before prctl is reached: then getppid no longer is the parent.
_LAUNCH = """
import ctypes, os, signal, sys
ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL, 0, 0, 0)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the parent is gone")
os.execvp(sys.argv[2], sys.argv[2:])
"""
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
                *tied((*command.words, "--ready-file", str(ready))),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C in a terminal reaches the whole group; the order of the end is ours to choose.
                start_new_session=True,
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


def tied(words: Sequence[str]) -> list[str]:
    """The command line that runs `words` as a process that is killed when this one ends, however that ends."""
    if sys.platform != "linux":
        return list(words)
    return [sys.executable, "-I", "-S", "-c", _LAUNCH, str(os.getpid()), *words]
