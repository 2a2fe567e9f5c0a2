"""Run the processes of a plan: the directory first, then all servers, then watch until told to stop."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from blockswarm.cli import local_state
from blockswarm_services.local.child import Command, log_file
from blockswarm_services.local.plan import ServerPlan
from blockswarm_services.local.progress import StartProgress, teller
from blockswarm_services.local.supervisor import Facts, Status, Supervisor

DIRECTORY_ID = "directory"
STOP_SECONDS = 5.0
_REFRESH_SECONDS = 0.2
_TCP_PORT = re.compile(r"/tcp/(\d+)")
_ADVICE = "talk to it from another terminal: blockswarm chat; end it with Ctrl-C or blockswarm down"


class Runner:
    """A local swarm. `listen`: "host:port" of its directory; `start_seconds`: how long the start may take."""

    def __init__(
        self,
        servers: Sequence[ServerPlan],
        home: Path,
        *,
        listen: str,
        start_seconds: float,
        console: Console,
    ) -> None:
        self._servers = servers
        self._home = home
        self._listen = listen
        self._start_seconds = start_seconds
        self._console = console
        self._logs = home / "logs"
        self._show: Callable[[Status], None] = teller(console)
        self._supervisor = Supervisor(self._logs, on_change=self._changed)
        self._directory = ""
        self._ready = False

    async def run(self) -> None:
        """Start, say what there is, and serve until SIGINT or SIGTERM; a second one ends all at once.

        Raises:
            StartFailed: a process could not be brought up; all others have been ended.
        """
        self._logs.mkdir(parents=True, exist_ok=True)
        stop = self._signals()
        start = asyncio.create_task(self._start())
        stopped = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait((start, stopped), return_when=asyncio.FIRST_COMPLETED)
            if start.done():
                start.result()
                self._announce()
                await stopped
        finally:
            start.cancel()
            stopped.cancel()
            await asyncio.gather(start, stopped, return_exceptions=True)
            self._console.print("ending the swarm")
            await self._supervisor.stop(STOP_SECONDS)

    def _signals(self) -> asyncio.Event:
        stop = asyncio.Event()

        def on_signal() -> None:
            if stop.is_set():
                self._supervisor.kill()
            stop.set()

        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, on_signal)
        return stop

    async def _start(self) -> None:
        ids = [DIRECTORY_ID, *(server.server_id for server in self._servers)]
        with StartProgress(self._console, self._logs, ids) as progress:
            ordinary, self._show = self._show, progress.changed
            ticker = asyncio.create_task(_tick(progress))
            try:
                facts = await self._supervisor.add(
                    self._directory_command(), deadline=self._start_seconds, pin=pin_directory
                )
                self._directory = str(facts["address"])
                peers = [str(peer) for peer in facts["peers"]]
                async with asyncio.TaskGroup() as group:
                    for server in self._servers:
                        command = server_command(server, peers)
                        group.create_task(self._supervisor.add(command, deadline=self._start_seconds))
            except ExceptionGroup as failures:
                # One cause is enough for a person; the others are mostly its consequences.
                raise failures.exceptions[0] from None
            finally:
                ticker.cancel()
                self._show = ordinary
        self._ready = True
        self._write()

    def _directory_command(self) -> Command:
        words = _python("blockswarm_services.directory.main")
        words += ["--listen", self._listen, "--dht-listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"]
        words += ["--identity", str(self._home / "directory.id")]
        return Command(id=DIRECTORY_ID, kind="directory", words=tuple(words))

    def _announce(self) -> None:
        for model in sorted({server.model for server in self._servers}):
            count = sum(server.model == model for server in self._servers)
            self._console.print(f"{model} is served by {count} servers", highlight=False)
        for line in (f"directory: {self._directory}   (logs: {self._logs})", _ADVICE):
            self._console.print(line, highlight=False, soft_wrap=True)

    def _changed(self, status: Status) -> None:
        self._show(status)
        self._write()

    def _write(self) -> None:
        local_state.write(
            local_state.LocalSwarm(
                pid=os.getpid(),
                directory=self._directory,
                models={server.model: server.source.place for server in self._servers},
                ready=self._ready,
                processes=tuple(self._describe(status) for status in self._supervisor.statuses.values()),
            )
        )

    def _describe(self, status: Status) -> local_state.LocalProcess:
        return local_state.LocalProcess(
            id=status.command.id,
            kind=status.command.kind,
            state=status.state,
            pid=status.pid,
            restarts=status.restarts,
            log=str(log_file(self._logs, status.command.id)),
            metrics=str((status.facts or {}).get("metrics", "")),
        )


def server_command(server: ServerPlan, peers: Sequence[str]) -> Command:
    """The command line of a block server on free loopback ports that joins `peers`."""
    words = _python("blockswarm_services.server.main") + server.arguments()
    words += ["--listen", "127.0.0.1:0", "--announce", "127.0.0.1"]
    words += ["--dht-listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"]
    words += [word for peer in peers for word in ("--peer", peer)]
    return Command(id=server.server_id, kind="server", words=tuple(words))


def pin_directory(command: Command, facts: Facts) -> Command:
    """The command of a restarted directory: the ports that it had, for the servers and clients that know them."""
    port = _TCP_PORT.search(str(facts["peers"][0]))
    wanted = {"--listen": str(facts["address"])}
    if port is not None:
        wanted["--dht-listen"] = f"127.0.0.1:{port[1]}"
    words = list(command.words)
    for flag, value in wanted.items():
        words[words.index(flag) + 1] = value
    return replace(command, words=tuple(words))


def _python(module: str) -> list[str]:
    return [sys.executable, "-m", module]


async def _tick(progress: StartProgress) -> None:
    while True:
        await asyncio.sleep(_REFRESH_SECONDS)
        progress.refresh()
