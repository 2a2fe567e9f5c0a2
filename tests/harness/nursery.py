"""Starts block servers by fork from a process that has already imported everything: a second instead of five.

Each server is a process of its own all the same, with its own pid, threads, sockets and p2pd. Run as a script, it reads
one JSON request a line on stdin ({"argv", "env", "log"}) and answers with the pid of the server that it forked.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
import time


class Child:
    """A forked server. The parent is the nursery, so its end shows as the pid's end."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None and not _exists(self.pid):
            self.returncode = -1
        return self.returncode

    def wait(self, timeout: float) -> int:
        deadline = time.monotonic() + timeout
        while (status := self.poll()) is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"process {self.pid} did not end within {timeout:.0f} s")
            time.sleep(0.005)
        return status


class Nursery:
    """The forking process, as its client sees it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"},
            text=True,
            bufsize=1,
        )

    def fork(self, argv: list[str], env: dict[str, str], log: str) -> Child:
        """A new server process with these command-line words."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"argv": argv, "env": env, "log": log}) + "\n")
        return Child(int(self._process.stdout.readline()))

    def close(self) -> None:
        self._process.kill()
        self._process.wait(10)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _serve() -> None:
    # What the children need; without the family's own module each of them would import it again.
    import transformers.models.llama.modeling_llama  # noqa: F401

    from blockswarm_services.server import lifecycle, main  # noqa: F401

    # The children are reaped by the kernel, so that an ended one is gone at once.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        request = json.loads(line)
        nursery, pid = os.getpid(), os.fork()
        if pid == 0:
            _die_with(nursery)
            _become(request, main.main)
        print(pid, flush=True)


def _die_with(parent) -> None:
    """No server outlives tests that were killed: the nursery ends with them, as nobody speaks to it."""
    ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _become(request, run) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    log = os.open(request["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    null = os.open(os.devnull, os.O_RDONLY)
    for target, source in ((0, null), (1, log), (2, log)):
        os.dup2(source, target)
    os.environ.update(request["env"])
    sys.argv = ["blockswarm-server", *request["argv"]]
    try:
        run()
    finally:
        os._exit(1)


if __name__ == "__main__":
    _serve()
