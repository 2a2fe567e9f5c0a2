"""What both doors to the swarm's records offer."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from blockswarm_wire.record import ModelEntry, ServerView

OnChange = Callable[[list[ServerView]], None]


class Discovery(Protocol):
    """Where a client learns which servers there are. Results are hints: the truth is a server's handshake."""

    @property
    def stale(self) -> bool:
        """True while the source is away and answers come from memory."""
        ...

    async def models(self) -> list[ModelEntry]:
        """Every model that the swarm knows.

        Raises:
            Unreachable: the source is away and nothing is remembered.
        """
        ...

    async def lookup(self, model_key: str, num_blocks: int) -> list[ServerView]:
        """The servers of a model, sorted by id.

        Raises:
            Unreachable: the source is away and nothing is remembered.
        """
        ...

    def watch(self, model_key: str, num_blocks: int, on_change: OnChange) -> asyncio.Task[None]:
        """Call `on_change` with the view now and at every change, through outages, until the task is cancelled."""
        ...

    async def close(self) -> None:
        """End all work and connections."""
        ...
