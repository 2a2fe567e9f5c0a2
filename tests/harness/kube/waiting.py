"""Waiting for a cluster: a condition with a deadline, and what the cluster looked like when it was missed."""

import http.client
import time
from collections.abc import Callable
from typing import TypeVar

from kube.kubectl import CommandError

T = TypeVar("T")


class Transient(Exception):
    """Somebody cannot answer now, and may a moment later."""


class NotInTime(TimeoutError):
    """What `until` waited for did not come."""


# An API server may be away or overloaded for a moment. urlopen lets HTTPException out when an answer is cut.
_PASSING = (CommandError, OSError, http.client.HTTPException, Transient)


def until(
    condition: Callable[[], T],
    what: str,
    *,
    timeout: float,
    every: float = 0.5,
    state: Callable[[], str] | None = None,
) -> T:
    """The first true value of `condition()`.

    An error of kubectl, of a connection, and `Transient` count as not yet.

    Args:
        condition: asked again and again.
        what: named in the error.
        timeout: seconds.
        every: seconds between two questions.
        state: tells in the error how things stood.

    Raises:
        NotInTime: not true in time; names the last error too.
    """
    deadline = time.monotonic() + timeout
    failed, trouble = 0.0, ""
    while True:
        try:
            if value := condition():
                return value
        except NotInTime:  # an `until` inside the condition: its own deadline counts
            raise
        except _PASSING as error:
            failed, trouble = time.monotonic(), f"{type(error).__name__}: {error}"
        if time.monotonic() > deadline:
            said = f" (last error, {time.monotonic() - failed:.0f} s ago: {trouble})" if trouble else ""
            shown = f"\n{_told(state)}" if state is not None else ""
            raise NotInTime(f"not within {timeout:.0f} s: {what}{said}{shown}")
        time.sleep(every)


def _told(state: Callable[[], str]) -> str:
    try:
        return state()
    except Exception as error:  # what hides the state must not hide what was waited for
        return f"(no state: {type(error).__name__}: {error})"
