"""p2pd, the libp2p daemon that carries the DHT's traffic, as a child that never outlives us."""

import asyncio
import contextlib
import os
import secrets
import sys
from collections.abc import Mapping, Sequence
from typing import Self

from blockswarm_dht.child import Child
from blockswarm_dht.hivemind_core import GOLOG_LEVEL, P2P, P2PD, Multiaddr, P2PClient, P2PDaemonError

# What runs before p2pd. A preexec_fn would run Python between fork and exec of a process full of gRPC and torch
# threads, which may deadlock. A tiny interpreter that sets the parent-death signal and then *becomes* p2pd (same pid)
# is safe, and costs 20 ms once. The signal follows the *thread* that started the child, which is that of the event
# loop: a node must be created on a thread that outlives it. Its own process group keeps Ctrl-C for us: p2pd has to
# outlive the farewell. The parent may die before prctl is reached: then getppid no longer is the parent. A thread that
# blocks SIGTERM would hand that on, and p2pd would never end.
_LAUNCH = """
import ctypes, os, signal, sys
ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL, 0, 0, 0)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the parent is gone")
os.setpgid(0, 0)
signal.pthread_sigmask(signal.SIG_SETMASK, ())
os.environ.setdefault("GOGC", sys.argv[2])
os.environ.setdefault("GOMAXPROCS", sys.argv[3])
os.execv(sys.argv[4], sys.argv[4:])
"""

# p2pd is a Go program with a few MB of live data; most of its 60 MB is the unpacked program itself. Go lets a heap
# grow to twice the live data and starts a thread a processor; less of both leaves memory to the model. (No
# GOMEMLIMIT: a limit below the live data makes Go collect garbage without end.)
_GOGC = "50"
_GOMAXPROCS = "2"

_START_SECONDS = 15.0
_MAX_MESSAGE_BYTES = 4 * 1024**2
# One TCP transport inside one network: no relays, no hole punching, no port mapping.
_OPTIONS = {
    "autoRelay": False,
    "autonat": False,
    "b": False,
    "connManager": True,
    "idleTimeout": "30s",
    "natPortMap": False,
    "relay": False,
    "relayHopLimit": 0,
    "tls": True,
    "persistentConnMaxMsgSize": _MAX_MESSAGE_BYTES,
}


class TiedP2P(P2P):  # type: ignore[misc]  # hivemind has no types
    """hivemind's P2P whose daemon is killed by the kernel when this process ends, however it ends."""

    @classmethod
    async def create(cls, options: Mapping[str, object], *, identity_path: str | None = None) -> Self:
        """Start p2pd and connect to it, as hivemind's own `create` does, but without asyncio's subprocesses.

        Args:
            options: of p2pd, without the dash, beside those that all our nodes share.
            identity_path: file of the key, made if missing; None = a new identity.

        Raises:
            P2PDaemonError: p2pd does not start; with its last words.
        """
        self = cls()
        unique = secrets.token_urlsafe(8)
        self._daemon_listen_maddr = Multiaddr(f"{cls._UNIX_SOCKET_PREFIX}p2pd-{unique}.sock")
        self._client_listen_maddr = Multiaddr(f"{cls._UNIX_SOCKET_PREFIX}p2pclient-{unique}.sock")
        key = {} if identity_path is None else {"id": _made(identity_path)}
        command = cls._make_process_args(P2PD, listen=self._daemon_listen_maddr, **key, **_OPTIONS, **options)
        environment = {"GOLOG_LOG_LEVEL": GOLOG_LEVEL, **os.environ, "GOLOG_LOG_FMT": "json"}
        try:
            self._child = Child(_tied(command), environment)
        except OSError as error:
            raise P2PDaemonError(f"it cannot be run: {error}") from error
        try:
            await self._connect()
        except BaseException:
            self._child.kill()
            await self.shutdown()
            raise
        return self

    async def _connect(self) -> None:
        self._alive = True
        ready = asyncio.get_running_loop().create_future()
        self._reader_task = asyncio.create_task(self._read_outputs(ready), name="p2pd output")
        try:
            await asyncio.wait_for(ready, _START_SECONDS)
        except TimeoutError:
            raise P2PDaemonError(f"it was not ready within {_START_SECONDS:.0f} s") from None
        self._client = await P2PClient.create(
            self._daemon_listen_maddr,
            self._client_listen_maddr,
            persistent_conn_max_msg_size=_MAX_MESSAGE_BYTES,
        )
        await self._ping_daemon()

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

    def _terminate(self) -> None:
        super()._terminate()
        # hivemind forgets the socket of a p2pd that ended by itself.
        with contextlib.suppress(FileNotFoundError):
            os.remove(self._daemon_listen_maddr["unix"])

    @property
    def pid(self) -> int:
        """Process id of p2pd."""
        return int(self._child.pid)

    async def wait_for_exit(self) -> int:
        """Return p2pd's exit status once it has ended."""
        return int(await self._child.wait())


def _tied(command: Sequence[str]) -> list[str]:
    """The command line that runs `command` as a process that the kernel kills when this one ends."""
    if not sys.executable:
        raise RuntimeError("sys.executable is empty: p2pd needs a Python interpreter to be started with")
    return [sys.executable, "-I", "-S", "-c", _LAUNCH, str(os.getpid()), _GOGC, _GOMAXPROCS, *command]


def _made(identity: str) -> str:
    """The file of a key, made if it is missing."""
    if not os.path.isfile(identity):
        P2P.generate_identity(identity)
    return identity
