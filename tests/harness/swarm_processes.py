"""A swarm of real processes for tests: one directory and block servers, on loopback, ended by their own pids."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from nursery import Child, Nursery

BIN = Path(sys.executable).parent


def wait_for(condition, *, timeout: float, what: str, every: float = 0.02):
    """The first true value of `condition()`; fails with `what` after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        if value := condition():
            return value
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {timeout:.0f} s: {what}")
        time.sleep(every)


@dataclass
class Process:
    """One process of the swarm. `facts`: its ready file."""

    name: str
    command: list[str]
    folder: Path
    env: dict[str, str]
    nursery: Nursery | None = None
    popen: subprocess.Popen[bytes] | Child | None = None
    starts: int = 0

    @property
    def ready_file(self) -> Path:
        return self.folder / f"{self.name}.ready"

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"

    @property
    def failpoint(self) -> Path:
        return self.folder / f"{self.name}.failpoint"

    @property
    def pid(self) -> int:
        assert self.popen is not None
        return self.popen.pid

    def start(self) -> Self:
        self.ready_file.unlink(missing_ok=True)
        self.failpoint.unlink(missing_ok=True)
        env = {**self.env, "BLOCKSWARM_FAILPOINTS": str(self.failpoint)}
        self.starts += 1
        if self.nursery is not None:
            self.popen = self.nursery.fork(self.command[1:], env, str(self.log))
            return self
        with self.log.open("ab") as log:
            self.popen = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **env}
            )
        return self

    def facts(self, timeout: float = 60.0) -> dict:
        """What the ready file says, once it is there."""

        def look() -> dict | None:
            if self.popen is not None and self.popen.poll() is not None:
                raise RuntimeError(f"{self.name} ended with {self.popen.returncode}:\n{self.tail()}")
            return json.loads(self.ready_file.read_text()) if self.ready_file.exists() else None

        return wait_for(look, timeout=timeout, what=f"{self.name} ready:\n{self.tail()}", every=0.05)

    @property
    def alive(self) -> bool:
        return self.popen is not None and self.popen.poll() is None

    @property
    def ready(self) -> bool:
        return self.alive and self.ready_file.exists()

    def send(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        if self.alive:
            self.send(signal.SIGKILL)
        if self.popen is not None:
            self.popen.wait(10)

    def stop(self, timeout: float = 15.0) -> int:
        """SIGTERM, and wait for the end; its exit status."""
        assert self.popen is not None
        if self.alive:
            self.send(signal.SIGTERM)
        return self.popen.wait(timeout)

    def arm(self, name: str, count: int, action: str = "kill") -> None:
        """Make the process act at the `count`-th passage of the failpoint `name` from now."""
        draft = self.failpoint.with_suffix(".draft")
        draft.write_text(f"{name} {count} {action}")
        draft.replace(self.failpoint)

    def disarm(self) -> None:
        self.failpoint.unlink(missing_ok=True)

    def tail(self, size: int = 3000) -> str:
        return self.log.read_text(errors="replace")[-size:] if self.log.exists() else ""

    def metrics(self) -> dict[str, float]:
        """Every sample of /metrics, by its name with labels."""
        address = self.facts()["metrics"]
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        return {
            name: float(value)
            for name, _, value in (
                line.rpartition(" ") for line in lines if line and not line.startswith("#")
            )
        }


@dataclass
class SwarmProcesses:
    """Directory and servers below one folder of logs. Use as a context manager.

    forked: servers come from a `Nursery`, which starts them in a second; for tests that start many.
    """

    folder: Path
    model: Path
    name: str = "test-model"
    dtype: str = "float32"
    servers: dict[str, Process] = field(default_factory=dict)
    directory: Process | None = None
    forked: bool = False
    nursery: Nursery | None = None

    def __enter__(self) -> Self:
        if self.forked:
            self.nursery = Nursery()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def target(self) -> str:
        """The directory's gRPC address."""
        assert self.directory is not None
        return self.directory.facts()["address"]

    def start_directory(self) -> Process:
        ready = self.folder / "directory.ready"
        command = [
            str(BIN / "blockswarm-directory"),
            *("--listen", "127.0.0.1:0", "--dht-listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"),
            *("--identity", str(self.folder / "directory.id"), "--ready-file", str(ready)),
        ]
        self.directory = Process("directory", command, self.folder, {}).start()
        self.directory.facts()
        return self.directory

    def start_server(
        self,
        server_id: str,
        blocks: str,
        *,
        cache_tokens: int = 16384,
        threads: int = 1,
        drain_seconds: float = 30.0,
        deterministic: bool = False,
        model: Path | None = None,
        env: dict[str, str] | None = None,
    ) -> Process:
        """Start a server; it loads while this returns."""
        assert self.directory is not None
        peer = self.directory.facts()["peers"][0]
        command = [
            str(BIN / "blockswarm-server"),
            *("--model", str(model or self.model), "--name", self.name, "--blocks", blocks),
            *("--dtype", self.dtype, "--peer", peer, "--server-id", server_id),
            *("--listen", "127.0.0.1:0", "--dht-listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"),
            *("--cache-tokens", str(cache_tokens), "--drain-seconds", str(drain_seconds)),
            *("--threads", str(threads), "--ready-file", str(self.folder / f"{server_id}.ready")),
            *(["--deterministic"] if deterministic else []),
        ]
        process = Process(server_id, command, self.folder, env or {}, self.nursery)
        self.servers[server_id] = process
        return process.start()

    def wait_ready(self, timeout: float = 120.0) -> None:
        """Wait until every server that runs is ONLINE."""
        for process in self.servers.values():
            process.facts(timeout)

    def close(self) -> None:
        """End every process: SIGKILL, since nothing here is worth saving."""
        processes = [*self.servers.values(), *([self.directory] if self.directory else [])]
        for process in processes:
            if process.alive:
                with contextlib.suppress(ProcessLookupError):
                    process.send(signal.SIGCONT)
                    process.send(signal.SIGKILL)
        for process in processes:
            if process.popen is not None:
                process.popen.wait(10)
        if self.nursery is not None:
            self.nursery.close()
