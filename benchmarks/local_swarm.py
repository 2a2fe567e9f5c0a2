"""A swarm for a benchmark or demo: `blockswarm up` in a state folder of its own, ended with the block."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from blockswarm.cli import local_state
from blockswarm.cli.local_state import LocalSwarm
from blockswarm_services.local.child import tied

ROOT = Path(__file__).resolve().parent.parent
MODEL = ROOT / ".models" / "smollm2-135m-instruct"
MANIFEST = ROOT / "manifests" / "samples" / "smollm2-135m-instruct.yaml"

_START_SECONDS = 300.0
_STOP_SECONDS = 30.0


@contextlib.contextmanager
def local_swarm(manifest: Path, *, show: Callable[[str], None] = lambda line: None) -> Iterator[LocalSwarm]:
    """Run a manifest until the block ends. `show` gets a line for each process that comes online.

    Raises:
        SystemExit: the swarm did not come up; `blockswarm up` has said why.
    """
    with tempfile.TemporaryDirectory(prefix="blockswarm-") as home:
        os.environ["XDG_STATE_HOME"] = home
        words = [sys.executable, "-m", "blockswarm.cli", "up", "-f", str(manifest), "--listen", "127.0.0.1:0"]
        # Tied: also when the benchmark is killed, nothing of its swarm stays.
        process = subprocess.Popen(tied(words), stdout=subprocess.DEVNULL, start_new_session=True)
        try:
            yield _wait(process, show)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait(process: "subprocess.Popen[bytes]", show: Callable[[str], None]) -> LocalSwarm:
    began, online = time.monotonic(), set[str]()
    while time.monotonic() - began < _START_SECONDS:
        swarm = local_state.read()
        for one in swarm.processes if swarm is not None else ():
            if one.state == "online" and one.id not in online:
                online.add(one.id)
                show(f"  {one.id} online (process {one.pid}, after {time.monotonic() - began:.0f} s)")
        if swarm is not None and swarm.ready:
            return swarm
        if process.poll() is not None:
            raise SystemExit(process.returncode or 1)
        time.sleep(0.1)
    raise SystemExit(f"the swarm was not ready within {_START_SECONDS:.0f} s")


def pid_of(server_id: str) -> int:
    """Process id of a running server of the swarm.

    Raises:
        LookupError: no such server runs.
    """
    swarm = local_state.read()
    for process in swarm.processes if swarm is not None else ():
        if process.id == server_id and process.pid is not None:
            return process.pid
    raise LookupError(f"no server {server_id} runs")
