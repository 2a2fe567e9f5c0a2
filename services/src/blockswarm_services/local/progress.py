"""Tell a person how the local swarm comes up: bars on a terminal, one line per event elsewhere."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from blockswarm_services.local.child import log_lines
from blockswarm_services.local.supervisor import Status


class StartProgress:
    """Shows each process from its start until it is online; a context manager around the start."""

    def __init__(self, console: Console, folder: Path, ids: Iterable[str]) -> None:
        self._console = console
        self._folder = folder
        self._online: set[str] = set()
        self._bars = Progress(
            SpinnerColumn(finished_text="[green]✓[/]"),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {
            name: self._bars.add_task(name, total=None, note="waiting", start=False) for name in ids
        }

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def changed(self, status: Status) -> None:
        """A process started, came online or ended."""
        name = status.command.id
        task = self._tasks[name]
        if status.state == "online":
            self._online.add(name)
            address = (status.facts or {}).get("address", "")
            self._bars.update(task, total=1, completed=1, note=f"online at {address}")
            self._say(f"{name} online at {address} ({len(self._online)} of {len(self._tasks)})")
        elif status.state == "starting":
            self._bars.start_task(task)
            self._bars.update(task, total=None, note="starting")
            self._say(f"{name} starting (process {status.pid})")
        else:
            self._online.discard(name)
            self._bars.update(task, total=None, note=status.note)
            self._say(f"{name} {status.note}")

    def refresh(self) -> None:
        """Read from the logs of those that are loading how far they are."""
        for name, task in self._tasks.items():
            event = {} if name in self._online else latest_progress(log_lines(self._folder, name))
            if event:
                self._bars.update(
                    task, total=event["total"], completed=event["done"], note=f"{event['event']} {name}"
                )

    def _say(self, line: str) -> None:
        if not self._console.is_terminal:
            self._console.print(line, highlight=False, soft_wrap=True)


def latest_progress(lines: Iterable[str]) -> dict[str, Any]:
    """The last log event that has `done` and `total`, or an empty dict."""
    for line in reversed(list(lines)):
        if '"total"' not in line:
            continue
        try:
            event: dict[str, Any] = json.loads(line)
        except ValueError:
            continue
        if event.keys() >= {"event", "done", "total"} and event["total"]:
            return event
    return {}


def teller(console: Console) -> Callable[[Status], None]:
    """What to say about changes once the swarm is up: failures and returns, not routine."""

    def changed(status: Status) -> None:
        if status.state == "waiting":
            console.print(f"{status.command.id} {status.note}", highlight=False, soft_wrap=True)
        elif status.state == "online":
            console.print(f"{status.command.id} is online again", highlight=False, soft_wrap=True)

    return changed
