"""A child of a process that used the SDK is told what to do, instead of waiting for threads that it does not have."""

import subprocess
import sys

# In an interpreter of its own: forking one that is full of gRPC threads is unsafe before our code is reached.
PROGRAM = """
import os
from blockswarm import loop

async def nothing():
    return 1

assert loop.run(nothing()) == 1
child = os.fork()
if child == 0:
    try:
        loop.run(nothing())
    except loop.ForkedError as error:
        os._exit(0 if "spawn" in str(error) else 2)
    os._exit(3)
_, status = os.waitpid(child, 0)
raise SystemExit(os.waitstatus_to_exitcode(status))
"""


def test_after_a_fork_the_error_says_what_to_do():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", PROGRAM], timeout=60, check=False)
    assert done.returncode == 0
