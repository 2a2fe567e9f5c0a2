"""Which of the models that a swarm serves is the one in this folder?"""

import asyncio
import time
from collections.abc import Mapping, Sequence

from blockswarm.discovery.door import Discovery
from blockswarm_wire.errors import CapacityError, InvalidArgument, Unreachable
from blockswarm_wire.record import ModelEntry

_LOOK_AGAIN_SECONDS = 0.25


class ModelNotServed(CapacityError):
    """Nobody in the swarm serves this model. `served`: the models that somebody does."""

    def __init__(self, name: str, fingerprints: Mapping[str, str], served: Sequence[ModelEntry]) -> None:
        own = ", ".join(f"{dtype} {identity[:8]}" for dtype, identity in fingerprints.items())
        others = ", ".join(f"{entry.name} {entry.fingerprint[:8]}" for entry in served) or "none at all"
        twin = any(entry.name == name for entry in served)
        hint = "; one has its name, but other weights or another config.json" if twin else ""
        super().__init__(
            f"model {name} ({own}) is not served in this swarm{hint}. Served: {others}. Start servers for it, or load "
            "the same files as they do"
        )
        self.served = tuple(served)


async def find_model(
    discovery: Discovery, name: str, fingerprints: Mapping[str, str], *, dtype: str | None, timeout: float
) -> tuple[ModelEntry, str]:
    """The swarm's entry of a model and the dtype that it is served in.

    Args:
        discovery: where to look.
        name: of the model, for messages.
        fingerprints: dtype → fingerprint of the model in it, the preferred dtype first.
        dtype: the only acceptable one; None = the first of `fingerprints` that is served.
        timeout: seconds to wait for the swarm, and for the model to appear in it.

    Raises:
        InvalidArgument: it is served, but in other dtypes than the one asked for.
        ModelNotServed: it did not appear.
        Unreachable: the swarm did not answer.
    """
    deadline = time.monotonic() + timeout
    while True:
        served: list[ModelEntry] | None = None
        away: Unreachable | None = None
        try:
            served = await discovery.models()
        except Unreachable as error:
            away = error
        if served is not None and (found := _match(served, fingerprints, dtype, name)) is not None:
            return found
        if time.monotonic() >= deadline:
            if away is not None:
                raise away
            raise ModelNotServed(name, fingerprints, served or ())
        await asyncio.sleep(min(_LOOK_AGAIN_SECONDS, max(0.0, deadline - time.monotonic())))


def _match(
    served: Sequence[ModelEntry], fingerprints: Mapping[str, str], dtype: str | None, name: str
) -> tuple[ModelEntry, str] | None:
    entries = {entry.fingerprint: entry for entry in served}
    there = {kind: entries[identity] for kind, identity in fingerprints.items() if identity in entries}
    if not there:
        return None
    if dtype is None:
        kind = next(iter(there))
        return there[kind], kind
    if dtype not in there:
        raise InvalidArgument(
            f"dtype: {name} is served as {', '.join(there)}, not as {dtype}; remove dtype= to take what there is"
        )
    return there[dtype], dtype
