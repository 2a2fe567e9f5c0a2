"""Where a swarm of this machine (`blockswarm up`) tells the other commands how to reach it.

One swarm at a time per state folder: $XDG_STATE_HOME/blockswarm, by default ~/.local/state/blockswarm. The
process that runs the swarm holds a lock for as long as it lives, so a file left by a crash is never believed.
"""

import fcntl
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from blockswarm_wire.errors import InvalidArgument

_FILE = "swarm.json"
_LOCK = "swarm.lock"
_VERSION = 1


class AlreadyRunning(InvalidArgument):
    """Another `blockswarm up` holds this state folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalProcess:
    """One process of the swarm. `state`: "starting", "online", "waiting" (for its restart) or "stopped"."""

    id: str
    kind: str
    state: str
    pid: int | None = None
    restarts: int = 0
    log: str = ""
    metrics: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSwarm:
    """The running swarm.

    pid: of the process that runs it.
    directory: "host:port" of its directory; "" until it listens.
    models: label → folder or repository, for commands that need embeddings and tokenizer.
    ready: every process has come online once.
    """

    pid: int
    directory: str = ""
    models: Mapping[str, str] = field(default_factory=dict)
    ready: bool = False
    processes: tuple[LocalProcess, ...] = ()

    @classmethod
    def parse(cls, data: Mapping[str, Any]) -> Self:
        """The swarm that `write` was given."""
        fields = {key: value for key, value in data.items() if key != "version"}
        processes = tuple(LocalProcess(**process) for process in fields.pop("processes"))
        return cls(**fields, processes=processes)


def folder() -> Path:
    """The state folder of this user; it may not exist yet."""
    base = os.environ.get("XDG_STATE_HOME", "")
    # The XDG rules say that a relative path is to be ignored.
    root = Path(base) if os.path.isabs(base) else Path.home() / ".local" / "state"
    return root / "blockswarm"


def read() -> LocalSwarm | None:
    """The swarm that runs on this machine, None if there is none."""
    if not _held(folder() / _LOCK):
        return None
    try:
        data = json.loads((folder() / _FILE).read_text())
        return LocalSwarm.parse(data) if data["version"] == _VERSION else None
    except (OSError, ValueError, KeyError, TypeError):
        # The holder of the lock has not written yet, or is another version's.
        return None


def write(swarm: LocalSwarm) -> None:
    """Replace the file in one go: a reader sees the old state or the new one."""
    text = json.dumps({"version": _VERSION, **asdict(swarm)}, indent=1)
    descriptor, name = tempfile.mkstemp(dir=folder(), prefix=f".{_FILE}-")
    with os.fdopen(descriptor, "w") as stream:
        stream.write(text)
    os.replace(name, folder() / _FILE)


@contextmanager
def hold() -> Iterator[Path]:
    """Own the state folder; at the end the file is removed.

    Raises:
        AlreadyRunning: another process owns it; the message says how to end that one.
    """
    home = folder()
    home.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(home / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not _lock(descriptor, fcntl.LOCK_EX):
            running = read()
            who = f" (process {running.pid})" if running else ""
            raise AlreadyRunning(
                f"a swarm runs here already{who}: end it with `blockswarm down`, or set XDG_STATE_HOME to "
                "another folder for a second one"
            )
        (home / _FILE).unlink(missing_ok=True)
        yield home
        (home / _FILE).unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def _held(lock: Path) -> bool:
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        # A shared lock, so that two readers do not take each other for a swarm.
        return not _lock(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
