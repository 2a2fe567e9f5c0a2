"""Whether other members really hold what was stored. hivemind's store says True with nobody connected."""

import asyncio
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from blockswarm_dht import schema
from blockswarm_dht.hivemind_core import DHTID

# Peers asked for one key before giving up on it.
_CANDIDATES = 5
_KEYS_A_CALL = 64


@dataclass(frozen=True, slots=True)
class Entry:
    """One value of ours: where it lies, what hivemind's `store` is given and makes of it, until when (Unix seconds)."""

    key: str
    subkey: str
    value: bytes | tuple[str, bytes]
    expires_at: float

    @property
    def stored(self) -> bytes:
        """The bytes that members hold."""
        return schema.serialize(self.value)


async def confirmed(node: Any, entries: list[Entry]) -> set[Entry]:
    """Those of `entries` that at least one other member returned unchanged."""
    left = set(entries)
    hashes = {entry.key: DHTID.generate(source=entry.key) for entry in entries}
    nearest = {key: _nearest(node, identity) for key, identity in hashes.items()}
    for rank in range(_CANDIDATES):
        calls: dict[Any, list[Entry]] = defaultdict(list)
        for entry in left:
            if rank < len(nearest[entry.key]):
                calls[nearest[entry.key][rank]].append(entry)
        if not calls:
            break
        answers = await asyncio.gather(*(_held(node, peer, asked, hashes) for peer, asked in calls.items()))
        for held in answers:
            left -= held
    return set(entries) - left


def _nearest(node: Any, identity: Any) -> list[Any]:
    table = node.protocol.routing_table
    return [peer for _, peer in table.get_nearest_neighbors(identity, _CANDIDATES, exclude=node.node_id)]


async def _held(node: Any, peer: Any, entries: list[Entry], hashes: dict[str, Any]) -> set[Entry]:
    held = set()
    keys = list(dict.fromkeys(hashes[entry.key] for entry in entries))
    for first in range(0, len(keys), _KEYS_A_CALL):
        found = await node.protocol.call_find(peer, keys[first : first + _KEYS_A_CALL]) or {}
        for entry in entries:
            item = found.get(hashes[entry.key], (None, None))[0]
            if item is not None and _holds(item.value, entry):
                held.add(entry)
    return held


def _holds(value: Any, entry: Entry) -> bool:
    slot = value.get(entry.subkey) if hasattr(value, "get") else None
    # A later expiry with the same bytes is another writer of the same model entry.
    return slot is not None and slot.value == entry.stored and slot.expiration_time >= entry.expires_at
