"""At the end of a process the SDK ends its loop before Python ends: later, uvloop's callbacks would crash it."""

import subprocess
import sys

PROGRAM = """
import asyncio, atexit, sys, threading

def last():  # runs after what the SDK registers later
    names = {thread.name for thread in threading.enumerate()}
    assert "blockswarm-loop" not in names, names
    try:
        loop.run(nothing())
    except RuntimeError as error:
        print("told:", error)

atexit.register(last)
from blockswarm import loop

async def nothing():
    return 1

async def work():
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        print("cancelled")
        raise

started = loop.submit(work())
assert loop.run(nothing()) == 1
sys.exit(7)
"""

FORKED = """
import os, sys
from blockswarm import loop

async def nothing():
    return 1

loop.run(nothing())
if os.fork() == 0:
    sys.exit(5)
_, status = os.wait()
loop.run(nothing())
sys.exit(os.waitstatus_to_exitcode(status))
"""


def _run(program):
    # Forking beside threads, which the second program means to do, is warned of.
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        timeout=60,
        check=False,
        capture_output=True,
        text=True,
    )


def test_work_is_cancelled_the_loop_ended_and_later_calls_are_told():
    done = _run(PROGRAM)
    assert (done.returncode, done.stderr) == (7, "")
    assert done.stdout.splitlines() == [
        "cancelled",
        "told: this process is ending, and blockswarm's event loop has ended before it",
    ]


def test_the_child_of_a_fork_ends_without_the_loop_that_it_does_not_have():
    done = _run(FORKED)
    assert (done.returncode, done.stderr) == (5, "")
