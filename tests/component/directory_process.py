"""A real `blockswarm-directory` process for tests: start, kill, start again on the same ports and identity."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil

_START_SECONDS = 20.0


def free_port() -> int:
    """A TCP port that nobody listens on now, and that the kernel gives to no outgoing connection."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port


class DirectoryProcess:
    """One directory with fixed ports and identity below `folder`."""

    def __init__(
        self, folder: Path, name: str, *, peers: tuple[str, ...] = (), extra: tuple[str, ...] = ()
    ) -> None:
        self._ready = folder / f"{name}.json"
        self._log = folder / f"{name}.log"
        self.address = f"127.0.0.1:{free_port()}"
        self.metrics = f"127.0.0.1:{free_port()}"
        self._process: subprocess.Popen[bytes] | None = None
        self._arguments = [
            sys.executable,
            *("-m", "blockswarm_services.directory.main"),
            *("--listen", self.address, "--metrics-listen", self.metrics),
            *("--dht-listen", f"127.0.0.1:{free_port()}"),
            *("--identity", str(folder / f"{name}.key"), "--ready-file", str(self._ready)),
            *(word for peer in peers for word in ("--peer", peer)),
            *extra,
        ]

    def start(self) -> dict[str, Any]:
        """Start it and wait until it is up; the contents of its ready file."""
        self._ready.unlink(missing_ok=True)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._arguments, stderr=log)
        deadline = time.monotonic() + _START_SECONDS
        while not self._ready.exists():
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.02)
        facts: dict[str, Any] = json.loads(self._ready.read_text())
        return facts

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def family(self) -> list[psutil.Process]:
        """The process and all its descendants."""
        parent = psutil.Process(self.pid)
        return [parent, *parent.children(recursive=True)]

    def kill(self) -> None:
        """SIGKILL, and reap."""
        self.signal(signal.SIGKILL)

    def signal(self, number: signal.Signals) -> int:
        """Send a signal and wait for the end; the exit status."""
        assert self._process is not None
        if self._process.poll() is None:
            os.kill(self._process.pid, number)
        return self._process.wait(timeout=20)

    def log(self) -> str:
        return self._log.read_text()
