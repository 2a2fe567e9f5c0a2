"""`blockswarm-server`: load a span, announce it, serve it, and leave in order when told to."""

import os
import sys

import uvloop

from blockswarm_services.server.settings import Settings, parse
from blockswarm_wire.errors import BlockSwarmError, CallerError
from blockswarm_wire.logs import configure


def main() -> None:
    """Entry point of the command."""
    settings = parse()
    configure("blockswarm-server")
    _prepare_environment(settings)
    # After the environment is set: importing torch reads it.
    from blockswarm_services.server.lifecycle import serve

    try:
        status = uvloop.run(serve(settings))
    except (BlockSwarmError, OSError) as error:
        sys.stderr.write(f"blockswarm-server: {error}\n")
        status = 2 if isinstance(error, (CallerError, ValueError)) else 1
    sys.stdout.flush()
    sys.stderr.flush()
    # p2pd and gRPC keep threads that can hold up an orderly interpreter exit; everything is closed by now.
    os._exit(status)


def _prepare_environment(settings: Settings) -> None:
    # Several servers share the cores of one machine in turn: a thread that spins after its part of an operation takes
    # the time of the server whose turn it is.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # ... but it may wait for the next operation of the same step, since waking it costs more. 5000 turns of libgomp are
    # about 0.1 ms; four times as many starved the others.
    os.environ.setdefault("GOMP_SPINCOUNT", "5000")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    if settings.threads is not None:
        os.environ["OMP_NUM_THREADS"] = str(settings.threads)


if __name__ == "__main__":
    main()
