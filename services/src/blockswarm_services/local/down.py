"""`blockswarm down`: end the swarm that `blockswarm up` runs on this machine."""

import os
import signal
import time

import typer

from blockswarm.cli import local_state

_PATIENCE_SECONDS = 30.0
_POLL_SECONDS = 0.05


def down() -> None:
    """End the swarm of this machine; nothing to end is no error."""
    swarm = local_state.read()
    if swarm is None:
        typer.echo("no swarm runs on this machine")
        return
    os.kill(swarm.pid, signal.SIGTERM)
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while local_state.read() is not None:
        if time.monotonic() > deadline:
            # Its children die with it.
            os.kill(swarm.pid, signal.SIGKILL)
            typer.echo(f"process {swarm.pid} did not end within {_PATIENCE_SECONDS:.0f} s and was killed")
            return
        time.sleep(_POLL_SECONDS)
    count = sum(process.kind == "server" for process in swarm.processes)
    typer.echo(f"ended the swarm of process {swarm.pid} ({count} servers)")
