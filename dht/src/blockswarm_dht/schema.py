"""What may lie in the DHT, and where: the layout of keys, subkeys and values, and the check of all three.

    key                 subkey                 value (msgpack)                    expires
    _models             model key              model entry                        ≤120 s ahead
    {model key}.{n}     server id              server record, under every block   30 s after issue
    {model key}.0       {server id}@operator   [model key, statement]             30 s after issue

A statement lies under block 0 only: it speaks of a server, not of blocks, and every reader asks for block 0. It is
wrapped with the model key, so that whoever keeps it can check that it lies where it belongs.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgpack

from blockswarm_dht.hivemind_core import DHTID, MSGPackSerializer, RecordValidatorBase
from blockswarm_wire import limits
from blockswarm_wire.errors import BlockSwarmError, InvalidArgument
from blockswarm_wire.record import (
    MODELS_KEY,
    ModelEntry,
    ServerRecord,
    Statement,
    block_key,
    operator_subkey,
    parse_block_key,
    parse_subkey,
)

# A value that one peer accepted at the edge of the clocks' tolerance must not be refused by the next one.
_MAX_AHEAD = limits.RECORD_TTL_SECONDS + 2 * limits.MAX_CLOCK_SKEW_SECONDS
_SAME_TIME = 1e-3
# The wrapper of a statement adds a key and a few bytes.
_MAX_VALUE_BYTES = limits.MAX_RECORD_BYTES + 128


@dataclass(frozen=True, slots=True)
class Found:
    """One decoded value. `model_key`: the model that it belongs to."""

    model_key: str
    item: ServerRecord | Statement | ModelEntry


def pack_record(record: ServerRecord) -> bytes:
    """A server record as a DHT value."""
    return record.encode()


def model_of(record: ServerRecord) -> ModelEntry:
    """The line in the list of models that a record stands for."""
    return ModelEntry(
        key=record.model_key, name=record.model, num_blocks=record.num_blocks, fingerprint=record.fingerprint
    )


def pack_statement(model_key: str, statement: Statement) -> tuple[str, bytes]:
    """A statement as a DHT value."""
    return model_key, statement.encode()


def unpack_value(subkey: str, value: Any) -> Found:
    """Decode a value by the kind that its subkey says.

    Raises:
        InvalidArgument, UnsupportedVersion: it is not what lies under such a subkey.
    """
    _, by_operator = (subkey, False) if "@" not in subkey else parse_subkey(subkey)
    if by_operator:
        if not isinstance(value, (list, tuple)) or len(value) != 2 or not isinstance(value[0], str):
            raise InvalidArgument("a statement must be [model key, bytes]")
        parse_block_key(block_key(value[0], 0))
        return Found(value[0], Statement.decode(_bytes(value[1])))
    record = ServerRecord.decode(_bytes(value))
    return Found(record.model_key, record)


def decode_serialized(key: bytes, subkey: str, data: bytes) -> Found:
    """Decode what hivemind stores: the hash of the key, the subkey, the bytes of the value."""
    if key == key_hash(MODELS_KEY):
        entry = decode_model(_unpack(data))
        return Found(entry.key, entry)
    return unpack_value(subkey, _unpack(data))


def decode_model(value: Any) -> ModelEntry:
    """The entry behind a value under `_models`."""
    return ModelEntry.decode(_bytes(value))


class SchemaValidator(RecordValidatorBase):  # type: ignore[misc]  # hivemind has no types
    """hivemind asks it about every value that is written here or read from a peer. Refuses, never raises."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock

    def validate(self, record: Any) -> bool:
        try:
            self._check(record.key, record.subkey, record.value, record.expiration_time)
        except BlockSwarmError:
            return False
        return True

    def _check(self, key: bytes, subkey: bytes, value: bytes, expires: float) -> None:
        if not isinstance(expires, float) or not math.isfinite(expires):
            raise InvalidArgument("expiry is not a finite number")
        if len(value) > _MAX_VALUE_BYTES:
            raise InvalidArgument(f"value of {len(value)} bytes")
        name = _unpack(subkey)
        if not isinstance(name, str):
            raise InvalidArgument("subkey is not text")
        if key == key_hash(MODELS_KEY):
            self._check_model(name, _unpack(value), expires)
        else:
            self._check_entry(key, name, _unpack(value), expires)

    def _check_model(self, name: str, value: Any, expires: float) -> None:
        if decode_model(value).key != name:
            raise InvalidArgument("model entry under a wrong subkey")
        if expires > self._clock() + limits.MAX_EXPIRY_SECONDS:
            raise InvalidArgument("expiry too far ahead")

    def _check_entry(self, key: bytes, name: str, value: Any, expires: float) -> None:
        found = unpack_value(name, value)
        item = found.item
        if isinstance(item, ServerRecord):
            homes = {key_hash(block_key(found.model_key, block)) for block in item.span.blocks()}
            right_name = item.server_id
        elif isinstance(item, Statement):
            homes = {key_hash(block_key(found.model_key, 0))}
            right_name = operator_subkey(item.server_id)
        else:
            raise InvalidArgument("not an entry of a block")
        if key not in homes or name != right_name:
            raise InvalidArgument("value under a key or subkey that is not its own")
        if abs(expires - item.expires_at) > _SAME_TIME or expires > self._clock() + _MAX_AHEAD:
            raise InvalidArgument("expiry is not issued_at + 30 s, or too far ahead")


@lru_cache(maxsize=8 * limits.MAX_BLOCKS)
def key_hash(key: str) -> bytes:
    """The 20 bytes under which hivemind keeps `key`."""
    return bytes(DHTID.generate(source=key).to_bytes())


def _unpack(data: bytes) -> Any:
    if not data:
        raise InvalidArgument("empty")
    try:
        return msgpack.unpackb(data, raw=False, strict_map_key=True, ext_hook=_no_extension)
    except InvalidArgument:
        raise
    except Exception as error:  # msgpack raises a family of errors for hostile input, not all of one base
        raise InvalidArgument(f"not msgpack: {type(error).__name__}") from None


def _no_extension(code: int, data: bytes) -> Any:
    raise InvalidArgument(f"msgpack extension {code}")


def _bytes(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise InvalidArgument("value is not bytes")
    return value


def serialize(value: bytes | tuple[str, bytes]) -> bytes:
    """As hivemind serializes a value."""
    return bytes(MSGPackSerializer.dumps(value if isinstance(value, bytes) else list(value)))
