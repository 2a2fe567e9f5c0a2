"""A child process that an event loop watches, started by C code alone."""

import asyncio
import os
import subprocess
from collections.abc import Mapping, Sequence

_CHUNK_BYTES = 64 * 1024
_LINE_BYTES = 1024 * 1024


class Child:
    """A running child; of asyncio's Process it has what hivemind uses. Made inside the loop that watches it.

    uvloop's create_subprocess_exec forks, and runs Python's at-fork handlers in the child: in a process full of gRPC
    and torch threads that may crash or deadlock. subprocess.Popen without a preexec_fn goes from vfork to exec in C.
    It stops the loop for some milliseconds, once.

    stdout: what the child writes to its standard output and error.
    """

    def __init__(self, words: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start it on this very thread: a parent-death signal follows the thread that started the child.

        Raises:
            OSError: it cannot be started.
        """
        self._process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, bufsize=0
        )
        assert self._process.stdout is not None
        self._pipe = self._process.stdout
        self._ended = asyncio.Event()
        self.stdout = asyncio.StreamReader(limit=_LINE_BYTES)
        os.set_blocking(self._pipe.fileno(), False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._pipe.fileno(), self._read)

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """Exit status once it has ended; negative = the signal that killed it."""
        return self._process.poll()

    async def wait(self) -> int:
        """Return the exit status once it has ended."""
        await self._ended.wait()
        return self._process.wait()

    def terminate(self) -> None:
        """SIGTERM."""
        self._process.terminate()

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()

    def _read(self) -> None:
        data = self._pipe.read(_CHUNK_BYTES)
        if data:
            self.stdout.feed_data(data)
        elif data is not None:
            self._end()

    def _end(self) -> None:
        """The other end of the pipe is closed: the child is on its way out, and `wait` takes no time.

        One that closed its output and goes on is killed. One that is ending keeps its exit status.
        """
        self._loop.remove_reader(self._pipe.fileno())
        self._pipe.close()
        self._process.kill()
        self._process.wait()
        self.stdout.feed_eof()
        self._ended.set()
