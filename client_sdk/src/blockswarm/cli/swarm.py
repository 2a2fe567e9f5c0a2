"""Which swarm and which model a command is about: options, environment, or the swarm of this machine."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from blockswarm.cli import local_state
from blockswarm.config import DIRECTORY_VARIABLE, ClientConfig
from blockswarm_wire.errors import InvalidArgument
from blockswarm_wire.record import ModelEntry

DirectoryOption = Annotated[
    str | None,
    typer.Option(
        help=f"host:port of the swarm's directory. Default: ${DIRECTORY_VARIABLE}, or the local swarm."
    ),
]
PeerOption = Annotated[
    list[str] | None,
    typer.Option(help="Multiaddr of a DHT peer, to join the DHT instead of asking a directory. Repeatable."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SwarmAddress:
    """How to reach a swarm: a directory, or DHT peers. `local`: it is the one of this machine's state file."""

    directory: str | None = None
    peers: tuple[str, ...] = ()
    local: bool = False

    def config(self) -> ClientConfig:
        """The same as settings of the SDK."""
        return ClientConfig(directory=self.directory, initial_peers=self.peers)


def find_swarm(directory: str | None, peers: Sequence[str] | None) -> SwarmAddress:
    """The swarm that the options name, else the environment, else the one that `blockswarm up` runs here.

    Raises:
        InvalidArgument: none of them names one.
    """
    running = local_state.read()
    if directory and peers:
        raise InvalidArgument("give --directory or --peer, not both: they are two doors to one swarm")
    if peers:
        return SwarmAddress(peers=tuple(peers))
    named = directory or os.environ.get(DIRECTORY_VARIABLE, "").strip()
    if named:
        return SwarmAddress(directory=named, local=running is not None and running.directory == named)
    if running is not None and running.directory:
        return SwarmAddress(directory=running.directory, local=True)
    raise InvalidArgument(
        f"no swarm was named and none runs on this machine: give --directory host:port, set {DIRECTORY_VARIABLE}, "
        "or start one with `blockswarm up -f FILE`"
    )


def choose_model(model: str | None, swarm: SwarmAddress, served: Sequence[ModelEntry]) -> str:
    """The folder or repository to take tokenizer and embeddings from.

    Args:
        model: what the caller asked for: a folder, a repository, or the label of a model of the local swarm.
        served: what the swarm serves; asked only where `model` is None.

    Raises:
        InvalidArgument: `model` is None and there is not exactly one model whose folder is known.
    """
    running = local_state.read() if swarm.local else None
    known = dict(running.models) if running is not None else {}
    if model is not None:
        return known.get(model, model)
    names = sorted({entry.name for entry in served})
    if not names:
        raise InvalidArgument("the swarm serves no model yet: see `blockswarm status`")
    if len(names) > 1:
        raise InvalidArgument(f"the swarm serves {', '.join(names)}: choose one with --model")
    if names[0] not in known:
        raise InvalidArgument(
            f"the swarm serves {names[0]}, but where its tokenizer and embeddings lie is not known here: "
            "give --model a folder or a Hub repository"
        )
    return known[names[0]]
