"""Prints what a directory says about a model's servers, one JSON line at every change.

python watch_directory.py DIRECTORY MODEL

A line is {"t": Unix seconds, "servers": {server id: {"state": what counts, "said": what the server says itself, "span":
[start, end]}}}; of a server that only the operator speaks of, said and span are null. The first line comes at once,
whether the model is served yet or not.
"""

import asyncio
import json
import sys
import time
from typing import Any

from blockswarm.discovery.directory import DirectoryDiscovery
from blockswarm_wire.errors import BlockSwarmError
from blockswarm_wire.record import ModelEntry, ServerView

_PAUSE_SECONDS = 0.2
_shown: dict[str, Any] = {}


def tell() -> None:
    print(json.dumps({"t": time.time(), "servers": _shown}), flush=True)


def show(views: list[ServerView]) -> None:
    servers = {view.server_id: _facts(view) for view in views}
    if servers != _shown:
        _shown.clear()
        _shown.update(servers)
        tell()


def _facts(view: ServerView) -> dict[str, Any]:
    record = view.record
    return {
        "state": str(view.state),
        "said": None if record is None else str(record.state),
        "span": None if record is None else [record.start, record.end],
    }


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
    tell()
    model = await find(discovery, sys.argv[2])
    await discovery.watch(model.key, model.num_blocks, show)


if __name__ == "__main__":
    asyncio.run(main())
