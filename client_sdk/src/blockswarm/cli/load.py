"""Load the client's part of a model for a command, saying so while it takes time."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console

from blockswarm.cli.swarm import SwarmAddress, choose_model, find_swarm
from blockswarm.discovery.choose import open_discovery
from blockswarm_wire.errors import InvalidArgument
from blockswarm_wire.record import ModelEntry


def load(model: str | None, directory: str | None, peers: Sequence[str] | None) -> tuple[Any, Any]:
    """(model, tokenizer) for the options of a command.

    Raises:
        InvalidArgument: no swarm or no model was named, or it has no tokenizer.
        BlockSwarmError: the swarm cannot be reached.
    """
    swarm = find_swarm(directory, peers)
    with Console(stderr=True).status("loading"):
        return _load(model, swarm)


def _load(model: str | None, swarm: SwarmAddress) -> tuple[Any, Any]:
    # Heavy imports come last: a mistake in the options is answered at once.
    place = choose_model(model, swarm, _served(swarm) if model is None else ())
    from transformers import AutoTokenizer

    from blockswarm import AutoDistributedModelForCausalLM

    remote = AutoDistributedModelForCausalLM.from_pretrained(
        place, directory=swarm.directory, initial_peers=list(swarm.peers)
    )
    try:
        return remote, AutoTokenizer.from_pretrained(place)
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"{place} has no usable tokenizer: {error}") from None


def _served(swarm: SwarmAddress) -> list[ModelEntry]:
    from blockswarm.loop import run

    async def ask() -> list[ModelEntry]:
        discovery = open_discovery(swarm.config())
        try:
            return await discovery.models()
        finally:
            await discovery.close()

    return run(ask())
