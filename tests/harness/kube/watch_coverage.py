"""Prints which servers of a model serve which blocks, as a directory says, one JSON line at every change.

python watch_coverage.py DIRECTORY MODEL

A server serves from when it says ONLINE until it says DRAINING or is OFFLINE. Where the operator says DRAINING first,
it is ranked last and still serves.
"""

import asyncio
import json
import sys
import time

from blockswarm.discovery.directory import DirectoryDiscovery
from blockswarm_wire.errors import BlockSwarmError
from blockswarm_wire.record import ModelEntry, ServerView, State

_PAUSE_SECONDS = 0.2
_shown: dict[str, list[int]] = {}


def show(views: list[ServerView]) -> None:
    serving = {
        view.server_id: [view.record.start, view.record.end]
        for view in views
        if view.record is not None
        and view.record.state is State.ONLINE
        and view.state in (State.ONLINE, State.DRAINING)
    }
    if serving != _shown:
        _shown.clear()
        _shown.update(serving)
        print(json.dumps({"t": time.time(), "serving": serving}), flush=True)


async def find(discovery: DirectoryDiscovery, name: str) -> ModelEntry:
    while True:
        try:
            found = next((model for model in await discovery.models() if model.name == name), None)
        except BlockSwarmError:
            found = None
        if found is not None:
            return found
        await asyncio.sleep(_PAUSE_SECONDS)


async def main() -> None:
    discovery = DirectoryDiscovery(sys.argv[1])
    print(json.dumps({"t": time.time(), "serving": {}}), flush=True)
    model = await find(discovery, sys.argv[2])
    await discovery.watch(model.key, model.num_blocks, show)


if __name__ == "__main__":
    asyncio.run(main())
