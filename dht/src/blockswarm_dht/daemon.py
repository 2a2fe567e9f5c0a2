"""p2pd, the libp2p daemon that carries the DHT's traffic, as a child that never outlives us."""

import asyncio
import os
import sys
from typing import Any

from blockswarm_dht.hivemind_core import P2P

# What runs between fork and p2pd. hivemind starts p2pd with asyncio's create_subprocess_exec; a preexec_fn there
# would run Python between fork and exec of a process full of gRPC and torch threads, which may deadlock. A tiny
# interpreter that sets the parent-death signal and then *becomes* p2pd (same pid) is safe, and costs 20 ms once. The
# signal follows the *thread* that started the child, so a node must be created on a thread that outlives it. Its own
# process group keeps Ctrl-C for us: p2pd has to outlive the farewell. The parent may die before prctl is reached:
# then getppid no longer is the parent.
_LAUNCH = """
import ctypes, os, signal, sys
ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL, 0, 0, 0)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the parent is gone")
os.setpgid(0, 0)
os.environ.setdefault("GOGC", sys.argv[2])
os.environ.setdefault("GOMAXPROCS", sys.argv[3])
os.execv(sys.argv[4], sys.argv[4:])
"""

# p2pd is a Go program with a few MB of live data; most of its 60 MB is the unpacked program itself. Go lets a heap
# grow to twice the live data and starts a thread a processor; less of both leaves memory to the model. (No
# GOMEMLIMIT: a limit below the live data makes Go collect garbage without end.)
_GOGC = "50"
_GOMAXPROCS = "2"


class TiedP2P(P2P):  # type: ignore[misc]  # hivemind has no types
    """hivemind's P2P whose daemon is killed by the kernel when this process ends, however it ends."""

    @staticmethod
    def _make_process_args(*args: Any, **kwargs: Any) -> list[str]:
        command: list[str] = P2P._make_process_args(*args, **kwargs)
        if not sys.executable:
            raise RuntimeError("sys.executable is empty: p2pd needs a Python interpreter to be started with")
        limits = [_GOGC, _GOMAXPROCS]
        return [sys.executable, "-I", "-S", "-c", _LAUNCH, str(os.getpid()), *limits, *command]

    async def shutdown(self) -> None:
        """End p2pd and wait for it."""
        await super().shutdown()
        await self.drop_tasks()

    async def drop_tasks(self) -> None:
        """End the tasks that talk to p2pd, and take their errors: a broken connection is what its end looks like."""
        control = self._client.control if self._client is not None else None
        tasks = [] if control is None else [control._read_task, control._write_task]
        tasks = [task for task in tasks if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def pid(self) -> int:
        """Process id of p2pd."""
        return int(self._child.pid)

    async def wait_for_exit(self) -> int:
        """Return p2pd's exit status once it has ended."""
        return int(await self._child.wait())
