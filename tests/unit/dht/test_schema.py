"""Only our own values, in their own places, for their own time."""

import math
from dataclasses import replace
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockswarm_dht.schema import SchemaValidator, key_hash, pack_statement, serialize, unpack_value
from blockswarm_wire.errors import BlockSwarmError
from blockswarm_wire.record import (
    MODELS_KEY,
    ModelEntry,
    ServerRecord,
    State,
    Statement,
    block_key,
    operator_subkey,
)

_NOW = 1_000_000.0
_RECORD = ServerRecord(
    server_id="s1",
    state=State.ONLINE,
    model="demo",
    num_blocks=8,
    start=2,
    end=4,
    address="10.0.0.1:31330",
    instance="i1",
    fingerprint="ab" * 32,
    issued_at=_NOW,
)
_KEY = _RECORD.model_key
_STATEMENT = Statement(server_id="s1", state=State.DRAINING, issued_at=_NOW)
_MODEL = ModelEntry(key=_KEY, name="demo", num_blocks=8, fingerprint="ab" * 32)


class _Raw:
    """What hivemind hands to a validator."""

    def __init__(self, key: str, subkey: Any, value: Any, expires: Any) -> None:
        self.key = key_hash(key)
        self.subkey = msgpack.packb(subkey)
        self.value = value if isinstance(value, bytes) else serialize(value)
        self.expiration_time = expires


def _valid(raw: _Raw) -> bool:
    return SchemaValidator(lambda: _NOW).validate(raw)


_GOOD_VALUE = serialize(_RECORD.encode())
_UNTIL = _RECORD.expires_at


def test_good_values_are_accepted() -> None:
    assert _valid(_Raw(block_key(_KEY, 2), "s1", _GOOD_VALUE, _UNTIL))
    assert _valid(_Raw(block_key(_KEY, 3), "s1", _GOOD_VALUE, _UNTIL))
    assert _valid(_Raw(block_key(_KEY, 0), operator_subkey("s1"), pack_statement(_KEY, _STATEMENT), _UNTIL))
    assert _valid(_Raw(MODELS_KEY, _KEY, serialize(_MODEL.encode()), _NOW + 117))


@pytest.mark.parametrize(
    ("why", "raw"),
    [
        ("block that it does not hold", _Raw(block_key(_KEY, 4), "s1", _GOOD_VALUE, _UNTIL)),
        ("other model's key", _Raw(block_key("demo-cdcdcdcd", 2), "s1", _GOOD_VALUE, _UNTIL)),
        ("key outside the schema", _Raw("anything", "s1", _GOOD_VALUE, _UNTIL)),
        ("list of models", _Raw(MODELS_KEY, "s1", _GOOD_VALUE, _UNTIL)),
        ("another server's subkey", _Raw(block_key(_KEY, 2), "s2", _GOOD_VALUE, _UNTIL)),
        ("the operator's subkey", _Raw(block_key(_KEY, 2), operator_subkey("s1"), _GOOD_VALUE, _UNTIL)),
        ("no subkey", _Raw(block_key(_KEY, 2), None, _GOOD_VALUE, _UNTIL)),
        ("a number as subkey", _Raw(block_key(_KEY, 2), 7, _GOOD_VALUE, _UNTIL)),
        ("NaN", _Raw(block_key(_KEY, 2), "s1", _GOOD_VALUE, math.nan)),
        ("infinity", _Raw(block_key(_KEY, 2), "s1", _GOOD_VALUE, math.inf)),
        ("a longer life", _Raw(block_key(_KEY, 2), "s1", _GOOD_VALUE, _UNTIL + 5)),
        ("a shorter life", _Raw(block_key(_KEY, 2), "s1", _GOOD_VALUE, _UNTIL - 5)),
        (
            "a record from the future",
            _Raw(
                block_key(_KEY, 2),
                "s1",
                serialize(replace(_RECORD, issued_at=_NOW + 10).encode()),
                _UNTIL + 10,
            ),
        ),
        ("too long", _Raw(block_key(_KEY, 2), "s1", serialize(_RECORD.encode() + bytes(2000)), _UNTIL)),
        ("trailing bytes", _Raw(block_key(_KEY, 2), "s1", _GOOD_VALUE + b"\x00", _UNTIL)),
        ("not bytes", _Raw(block_key(_KEY, 2), "s1", msgpack.packb("text"), _UNTIL)),
        ("an extension", _Raw(block_key(_KEY, 2), "s1", msgpack.packb(msgpack.ExtType(0x50, b"")), _UNTIL)),
        ("empty", _Raw(block_key(_KEY, 2), "s1", b"", _UNTIL)),
        (
            "a statement under another block",
            _Raw(block_key(_KEY, 1), operator_subkey("s1"), pack_statement(_KEY, _STATEMENT), _UNTIL),
        ),
        (
            "a statement of another model",
            _Raw(
                block_key(_KEY, 0), operator_subkey("s1"), pack_statement("demo-cdcdcdcd", _STATEMENT), _UNTIL
            ),
        ),
        (
            "a statement under a malformed model",
            _Raw(block_key(_KEY, 0), operator_subkey("s1"), pack_statement("../x", _STATEMENT), _UNTIL),
        ),
        (
            "a model under another key",
            _Raw(MODELS_KEY, "demo-cdcdcdcd", serialize(_MODEL.encode()), _NOW + 100),
        ),
        ("a model for long", _Raw(MODELS_KEY, _KEY, serialize(_MODEL.encode()), _NOW + 121)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_all_else_is_refused(why: str, raw: _Raw) -> None:
    assert not _valid(raw)


@given(st.binary(max_size=1500), st.binary(max_size=40), st.floats())
def test_any_bytes_are_refused_without_an_exception(value: bytes, subkey: bytes, expires: float) -> None:
    raw = _Raw(block_key(_KEY, 2), "s1", value, expires)
    raw.subkey = subkey
    assert not _valid(raw)


_anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=8)
    | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@given(st.sampled_from(["s1", "s1@operator", "@operator", "", "a@b"]), _anything)
def test_decoding_raises_named_errors_only(subkey: str, value: Any) -> None:
    try:
        unpack_value(subkey, value)
    except BlockSwarmError:
        return
    raise AssertionError("hostile value accepted")


def test_an_expired_value_is_left_to_the_store() -> None:
    # Refusing one value would make hivemind refuse the whole dictionary that it came in.
    old = replace(_RECORD, issued_at=_NOW - 31)
    assert _valid(_Raw(block_key(_KEY, 2), "s1", serialize(old.encode()), old.expires_at))
