"""Named places where a test may make this process die or stop. Off unless BLOCKSWARM_FAILPOINTS names a file.

The file holds one line, `NAME COUNT ACTION`: at the COUNT-th passage of NAME from now, do ACTION (`kill`, `stop`,
`raise`). The file is removed when the action is due, so it fires once.
"""

import os
import signal
from pathlib import Path

_seen: dict[str, int] = {}


def failpoint(name: str) -> None:
    """Pass the place called `name`."""
    if file := os.environ.get("BLOCKSWARM_FAILPOINTS"):
        _pass(name, Path(file))


def _pass(name: str, file: Path) -> None:
    try:
        wanted, count, action = file.read_text().split()
    except (FileNotFoundError, ValueError):
        _seen.clear()
        return
    if wanted != name:
        return
    _seen[name] = _seen.get(name, 0) + 1
    if _seen[name] < int(count):
        return
    _seen.clear()
    file.unlink()
    if action == "raise":
        raise RuntimeError(f"failpoint {name}")
    os.kill(os.getpid(), signal.SIGSTOP if action == "stop" else signal.SIGKILL)
