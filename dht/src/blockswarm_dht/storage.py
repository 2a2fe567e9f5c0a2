"""hivemind's in-memory store with its holes closed.

`TimedStorage.store` of hivemind 1.1.12 moves a key in the expiry queue *before* it decides to refuse the new value: a
refused store with a shorter expiry deletes the good value early; NaN as expiry stays for ever, blocks updates and, at
the head of the queue, stops all expiry; infinity can never be replaced. Sizes are unbounded. Here such a store is
refused before anything is touched, and a full store refuses new keys rather than dropping honest ones.
"""

import math
import time
from collections.abc import Callable
from typing import Any

from blockswarm_dht.hivemind_core import DHTLocalStorage, DictionaryDHTValue, MSGPackSerializer

MAX_KEYS = 16_384
MAX_SUBKEYS = 4_096

OnStored = Callable[[bytes, str, bytes], None]


def _may_store(storage: Any, key: Any, expiration_time: float, limit: int) -> bool:
    if not isinstance(expiration_time, float) or not math.isfinite(expiration_time):
        return False
    if expiration_time < time.time() and not storage.frozen:
        return False
    if key in storage:
        return bool(storage.data[key].expiration_time < expiration_time)
    return len(storage) < limit


class SafeDictionary(DictionaryDHTValue):  # type: ignore[misc]  # hivemind has no types
    """The subkeys of one DHT key."""

    def store(self, key: Any, value: Any, expiration_time: float) -> bool:
        if not _may_store(self, key, expiration_time, MAX_SUBKEYS):
            return False
        return bool(super().store(key, value, expiration_time))

    @classmethod
    def unpackb(cls, raw: bytes) -> "SafeDictionary":
        """The dictionary behind `raw`; hivemind's own method would make one of the unsafe kind."""
        _, _, items = MSGPackSerializer.loads(raw)
        arrived = cls()
        with arrived.freeze():
            for key, value, expiration_time in items:
                arrived.store(key, value, expiration_time)
        return arrived


class SafeStorage(DHTLocalStorage):  # type: ignore[misc]  # hivemind has no types
    """All keys that this node keeps for the DHT.

    on_stored: called with (20 bytes of key, subkey, value) of all that is accepted.
    """

    def __init__(self) -> None:
        super().__init__(maxsize=None)
        self.on_stored: OnStored | None = None

    def store(self, key: Any, value: Any, expiration_time: float, subkey: Any = None) -> bool:
        if subkey is not None:
            return self.store_subkey(key, subkey, value, expiration_time)
        if not _may_store(self, key, expiration_time, MAX_KEYS):
            return False
        return bool(super().store(key, value, expiration_time))

    def store_subkey(self, key: Any, subkey: Any, value: Any, expiration_time: float) -> bool:
        previous = self.get(key)
        if previous is not None and isinstance(previous.value, SafeDictionary):
            accepted = previous.value.store(subkey, value, expiration_time)
            if accepted and expiration_time > previous.expiration_time:
                super().store(
                    key, previous.value, expiration_time
                )  # the key lives as long as its youngest subkey
        else:
            fresh = SafeDictionary()
            accepted = fresh.store(subkey, value, expiration_time) and self.store(key, fresh, expiration_time)
        if accepted and self.on_stored is not None:
            self.on_stored(key.to_bytes(), subkey, value)
        return bool(accepted)


# Dictionaries travel as msgpack extension 0x50; have arriving ones unpacked as ours. hivemind's own class keeps its
# entry for packing.
MSGPackSerializer._ext_types[SafeDictionary] = 0x50
MSGPackSerializer._ext_type_codes[0x50] = SafeDictionary
