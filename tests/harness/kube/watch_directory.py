"""Prints what a directory says about a model's servers, one JSON line at every change.

python watch_directory.py DIRECTORY MODEL
"""

import asyncio
import json
import sys
import time

from blockswarm.discovery.directory import DirectoryDiscovery
from blockswarm_wire.errors import BlockSwarmError
from blockswarm_wire.record import ModelEntry, ServerView

_PAUSE_SECONDS = 0.2
_shown: dict[str, str] = {}


def show(views: list[ServerView]) -> None:
    states = {view.server_id: str(view.state) for view in views}
    if states != _shown:
        _shown.clear()
        _shown.update(states)
        print(json.dumps({"t": time.time(), "states": states}), flush=True)


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
    model = await find(discovery, sys.argv[2])
    await discovery.watch(model.key, model.num_blocks, show)


if __name__ == "__main__":
    asyncio.run(main())
