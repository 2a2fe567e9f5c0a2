"""`blockswarm up`: run the BlockServers of a manifest as processes of this machine."""

import asyncio
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from blockswarm.cli import local_state
from blockswarm_dht.address import split_address
from blockswarm_services.local.plan import ServerPlan, Source, plan
from blockswarm_services.local.runner import Runner
from blockswarm_wire.errors import CallerError, InvalidArgument
from blockswarm_wire.limits import DIRECTORY_PORT
from blockswarm_wire.model.families import check_family
from blockswarm_wire.model.source import open_model
from blockswarm_wire.resource import load_manifest

_START_SECONDS = 1800.0
_POLL_SECONDS = 0.1


def up(
    file: Annotated[Path, typer.Option("--file", "-f", help="Manifest with BlockServer documents.")],
    listen: Annotated[
        str, typer.Option(help="host:port of the directory; port 0 takes any free one.")
    ] = f"127.0.0.1:{DIRECTORY_PORT}",
    detach: Annotated[
        bool,
        typer.Option("--detach", "-d", help="Return once the swarm is ready; `blockswarm down` ends it."),
    ] = False,
    start_timeout: Annotated[
        float, typer.Option(min=1, help="Seconds that the start may take, downloads included.")
    ] = _START_SECONDS,
) -> None:
    """Run a manifest's servers, and a directory, on this machine until Ctrl-C."""
    servers = read_plan(file)
    _check_free(listen)
    if detach:
        _detach(file, listen, start_timeout)
        return
    with local_state.hold() as home:
        runner = Runner(servers, home, listen=listen, start_seconds=start_timeout, console=Console())
        asyncio.run(runner.run())


def read_plan(file: Path) -> list[ServerPlan]:
    """The servers that a manifest file asks for.

    Raises:
        InvalidArgument: the file cannot be read, or asks for something that cannot work.
    """
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InvalidArgument(f"manifest {file} cannot be read: {reason}") from None
    return plan(load_manifest(text, origin=str(file)), base=file.resolve().parent, num_blocks=_num_blocks)


def _num_blocks(source: Source) -> int:
    place = Path(source.place) if source.revision is None else source.place
    try:
        folder = open_model(place, revision=source.revision)
        check_family(folder.config)
        return folder.num_blocks
    except CallerError as error:
        hint = (
            "; `make model` makes the demo model's folder" if "smollm2-135m-instruct" in source.place else ""
        )
        raise type(error)(f"spec.model.source: {error}{hint}") from None


def _check_free(listen: str) -> None:
    """Say that the directory's port is taken now, rather than after a process has failed on it."""
    host, port = split_address(listen, field="--listen")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise InvalidArgument(
                f"the directory cannot listen on {listen}: {error.strerror}; give another --listen, or "
                "127.0.0.1:0 for any free port"
            ) from None


def _detach(file: Path, listen: str, start_timeout: float) -> None:
    """Run the same command in the background and show what it says until the swarm is ready."""
    running = local_state.read()
    if running is not None:
        raise local_state.AlreadyRunning(
            f"a swarm runs here already (process {running.pid}): end it with `blockswarm down`"
        )
    home = local_state.folder()
    home.mkdir(parents=True, exist_ok=True)
    words = [sys.executable, "-m", "blockswarm.cli", "up", "-f", str(file), "--listen", listen]
    words += ["--start-timeout", str(start_timeout)]
    with (home / "up.log").open("w+") as log:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, env=os.environ
        )
        with (home / "up.log").open() as output:
            deadline = time.monotonic() + start_timeout
            while not _is_ready(process.pid):
                print(output.read(), end="", flush=True)  # noqa: T201
                if process.poll() is not None:
                    raise typer.Exit(process.returncode)
                if time.monotonic() > deadline:
                    process.terminate()
                    raise InvalidArgument(f"the swarm was not ready within {start_timeout:.0f} s")
                time.sleep(_POLL_SECONDS)
            print(output.read(), end="", flush=True)  # noqa: T201


def _is_ready(pid: int) -> bool:
    swarm = local_state.read()
    return swarm is not None and swarm.pid == pid and swarm.ready
