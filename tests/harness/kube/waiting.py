"""Waiting for a cluster: a condition with a deadline, and what the cluster looked like when it was missed."""

import time
from collections.abc import Callable
from typing import TypeVar

from kube.kubectl import CommandError

T = TypeVar("T")


def until(
    condition: Callable[[], T],
    what: str,
    *,
    timeout: float,
    every: float = 0.5,
    state: Callable[[], str] | None = None,
) -> T:
    """The first true value of `condition()`.

    An error of kubectl counts as not yet: an API server may be away for a moment.

    Args:
        condition: asked again and again.
        what: named in the error.
        timeout: seconds.
        every: seconds between two questions.
        state: tells in the error how things stood.

    Raises:
        TimeoutError: not true in time.
    """
    deadline = time.monotonic() + timeout
    trouble = ""
    while True:
        try:
            if value := condition():
                return value
            trouble = ""
        except CommandError as error:
            trouble = f" ({error})"
        if time.monotonic() > deadline:
            shown = f"\n{state()}" if state is not None else ""
            raise TimeoutError(f"not within {timeout:.0f} s: {what}{trouble}{shown}")
        time.sleep(every)
