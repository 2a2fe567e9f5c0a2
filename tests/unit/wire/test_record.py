"""Records, statements, model entries: they survive the trip, and nothing else gets through."""

import itertools
import math
from dataclasses import fields, replace
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockswarm_wire import limits
from blockswarm_wire.errors import BlockSwarmError, InvalidArgument, UnsupportedVersion
from blockswarm_wire.fingerprint import model_key
from blockswarm_wire.record import (
    ModelEntry,
    ServerRecord,
    ServerView,
    State,
    Statement,
    block_key,
    check_fresh,
    merge,
    operator_subkey,
    parse_block_key,
    parse_subkey,
)

_FINGERPRINT = "ab" * 32
_RECORD = ServerRecord(
    server_id="s",
    state=State.ONLINE,
    model="demo",
    num_blocks=8,
    start=0,
    end=8,
    address="10.0.0.1:31330",
    instance="i",
    fingerprint=_FINGERPRINT,
    issued_at=100.0,
)
_STATEMENT = Statement(server_id="s", state=State.DRAINING, issued_at=100.0)
_ENTRY = ModelEntry(key=model_key("demo", _FINGERPRINT), name="demo", num_blocks=8, fingerprint=_FINGERPRINT)
_KINDS: list[Any] = [ServerRecord, Statement, ModelEntry]
_SAMPLES: list[Any] = [_RECORD, _STATEMENT, _ENTRY]

_ids = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)
_labels = st.text(
    st.characters(categories=("L", "N", "P"), max_codepoint=0x2FF), min_size=1, max_size=30
).filter(str.isprintable)
_numbers = st.floats(0, 1e12)
_counts = st.integers(0, 2**40)


@st.composite
def _records(draw: st.DrawFn) -> ServerRecord:
    blocks = draw(st.integers(1, 200))
    start = draw(st.integers(0, blocks - 1))
    host = draw(st.sampled_from(["10.0.0.1", "[::1]", "server-0.swarm.svc.cluster.local"]))
    return ServerRecord(
        server_id=draw(_ids),
        state=draw(st.sampled_from(list(State))),
        model=draw(_labels),
        num_blocks=blocks,
        start=start,
        end=draw(st.integers(start + 1, blocks)),
        address=f"{host}:{draw(st.integers(1, 65535))}",
        instance=draw(_ids),
        fingerprint=draw(st.from_regex(r"[0-9a-f]{64}", fullmatch=True)),
        issued_at=draw(_numbers),
        has_embedding=draw(st.booleans()),
        has_head=draw(st.booleans()),
        metrics_port=draw(st.integers(0, 65535)),
        forward_rps=draw(_numbers),
        inference_rps=draw(_numbers),
        kv_capacity=draw(_counts),
        kv_promised=draw(_counts),
        kv_used=draw(_counts),
        sessions=draw(_counts),
        queue_delay=draw(_numbers),
        adapters=tuple(draw(st.lists(_ids, max_size=4))),
        next_pings=draw(st.dictionaries(_ids, _numbers, max_size=4)),
    )


@given(_records())
def test_records_survive_the_trip(record: ServerRecord) -> None:
    data = record.encode()
    assert len(data) <= limits.MAX_RECORD_BYTES
    assert ServerRecord.decode(data) == record
    assert record.expires_at == record.issued_at + limits.RECORD_TTL_SECONDS
    assert parse_block_key(block_key(record.model_key, record.start)) == (record.model_key, record.start)


@given(
    st.builds(
        Statement,
        server_id=_ids,
        state=st.sampled_from([State.JOINING, State.DRAINING, State.OFFLINE]),
        issued_at=_numbers,
        instance=st.one_of(st.just(""), _ids),
        reason=st.text(max_size=60),
    )
)
def test_statements_survive_the_trip(statement: Statement) -> None:
    assert Statement.decode(statement.encode()) == statement


@given(_labels, st.integers(1, limits.MAX_BLOCKS))
def test_model_entries_survive_the_trip(name: str, blocks: int) -> None:
    entry = ModelEntry(
        key=model_key(name, _FINGERPRINT), name=name, num_blocks=blocks, fingerprint=_FINGERPRINT
    )
    assert ModelEntry.decode(entry.encode()) == entry


@pytest.mark.parametrize("kind", _KINDS)
@given(
    data=st.one_of(st.binary(max_size=1200), st.binary(max_size=30).map(lambda tail: b"\x81\xa1v\x01" + tail))
)
def test_any_bytes_give_a_named_error(kind: Any, data: bytes) -> None:
    with pytest.raises(BlockSwarmError):
        kind.decode(data)


_anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=12)
    | st.binary(max_size=12),
    lambda inner: st.lists(inner, max_size=10) | st.dictionaries(st.text(max_size=4), inner, max_size=10),
    max_leaves=20,
)


@pytest.mark.parametrize("sample", _SAMPLES, ids=lambda sample: type(sample).__name__)
@given(data=st.data())
def test_one_wrong_field_gives_a_valid_object_or_a_named_error(sample: Any, data: st.DataObject) -> None:
    body = msgpack.unpackb(sample.encode())
    field = data.draw(st.sampled_from([spec.name for spec in fields(sample)]))
    body[sample.WIRE[field]] = data.draw(_anything)
    try:
        changed = type(sample).decode(msgpack.packb(body))
    except BlockSwarmError:
        return
    assert type(sample).decode(changed.encode()) == changed


@pytest.mark.parametrize("sample", _SAMPLES, ids=lambda sample: type(sample).__name__)
def test_truncated_foreign_and_newer_data(sample: Any) -> None:
    kind, data = type(sample), sample.encode()
    for length in range(len(data)):
        with pytest.raises(InvalidArgument):
            kind.decode(data[:length])
    with pytest.raises(InvalidArgument, match="bytes"):
        kind.decode(data + bytes(2000))
    body = msgpack.unpackb(data)
    assert kind.decode(msgpack.packb({**body, "later": [1, {"x": 2}]})) == sample
    with pytest.raises(UnsupportedVersion, match="version 2"):
        kind.decode(msgpack.packb({**body, "v": 2}))
    for short in (name for name in body if name != "v"):
        rest = {name: value for name, value in body.items() if name != short}
        try:
            kind.decode(msgpack.packb(rest))
        except InvalidArgument:
            continue
        assert short not in {"id", "st", "k", "f", "t"}, f"{short} is required"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("queue_delay", math.nan),
        ("queue_delay", math.inf),
        ("issued_at", -1.0),
        ("issued_at", math.nan),
        ("forward_rps", "fast"),
        ("next_pings", {"a": math.inf}),
        ("next_pings", {"a": True}),
        ("next_pings", {str(n): 0.1 for n in range(9)}),
        ("adapters", tuple("abcdefghi")),
        ("kv_used", -1),
        ("kv_used", 1.5),
        ("kv_used", True),
        ("sessions", 2**60),
        ("end", 9),
        ("end", 0),
        ("num_blocks", limits.MAX_BLOCKS + 1),
        ("address", "10.0.0.1"),
        ("address", "10.0.0.1:0"),
        ("address", "10.0.0.1:65536"),
        ("address", "a b:1"),
        ("server_id", "a@operator"),
        ("server_id", "x" * 65),
        ("fingerprint", "ab" * 31),
        ("model", "new\nline"),
    ],
)
def test_values_out_of_range_name_the_field(name: str, value: Any) -> None:
    with pytest.raises(InvalidArgument, match=name.replace("end", "(end|start)")):
        replace(_RECORD, **{name: value})


def test_a_record_that_is_too_long_says_so() -> None:
    long = replace(
        _RECORD,
        adapters=tuple(f"{'a' * 60}{n}" for n in range(8)),
        next_pings={f"{'p' * 60}{n}": 0.1 for n in range(8)},
    )
    with pytest.raises(InvalidArgument, match="more than 1024"):
        long.encode()


def test_only_a_server_says_online() -> None:
    with pytest.raises(InvalidArgument, match="only the server itself"):
        Statement(server_id="s", state=State.ONLINE, issued_at=1.0)


@given(st.text(max_size=60))
def test_any_key_or_subkey_is_parsed_or_refused(text: str) -> None:
    for parse in (parse_block_key, parse_subkey):
        try:
            parse(text)
        except InvalidArgument:
            continue
    assert parse_subkey(operator_subkey("s")) == ("s", True)
    assert parse_subkey("s") == ("s", False)


@pytest.mark.parametrize(
    "text", ["demo", "demo-abababab.", "demo-abababab.-1", "demo-abababab.4096", "demo-abababab.٣"]
)
def test_malformed_block_keys(text: str) -> None:
    with pytest.raises(InvalidArgument):
        parse_block_key(text)


# Who counts: (the server's record, the operator's statement) -> state.
_OFF, _JOIN, _DRAIN = State.OFFLINE, State.JOINING, State.DRAINING
MERGES = [
    (State.ONLINE, 100, None, "", 0, State.ONLINE),
    (State.ONLINE, 100, _OFF, "i", 101, _OFF),
    (State.ONLINE, 100, _OFF, "i", 100, _OFF),
    (State.ONLINE, 102, _OFF, "i", 101, State.ONLINE),
    (State.ONLINE, 100, _OFF, "other", 101, State.ONLINE),
    (State.ONLINE, 100, _OFF, "", 101, State.ONLINE),
    (State.ONLINE, 100, _JOIN, "", 101, State.ONLINE),
    (State.ONLINE, 100, _DRAIN, "", 101, _DRAIN),
    (State.ONLINE, 110, _DRAIN, "i", 101, _DRAIN),
    (State.ONLINE, 100, _DRAIN, "other", 101, State.ONLINE),
    (State.JOINING, 100, _DRAIN, "", 101, State.JOINING),
    (State.OFFLINE, 100, _DRAIN, "", 101, _OFF),
    (None, 0, _JOIN, "", 101, _JOIN),
    (None, 0, _OFF, "i", 101, _OFF),
    (None, 0, None, "", 0, None),
]


@pytest.mark.parametrize(("state", "at", "said", "instance", "said_at", "expected"), MERGES)
def test_merge(
    state: State | None, at: int, said: State | None, instance: str, said_at: int, expected: State | None
) -> None:
    record = None if state is None else replace(_RECORD, state=state, issued_at=float(at))
    statement = (
        None
        if said is None
        else Statement(server_id="s", state=said, issued_at=float(said_at), instance=instance, reason="why")
    )
    view = merge(record, statement, now=111.0)
    assert (None if view is None else view.state) == expected
    if view is not None:
        assert view == ServerView(server_id="s", state=view.state, record=record, reason=view.reason)
        assert (view.reason == "why") == (view.state is said and view.state is not state)


_pairs = st.tuples(st.sampled_from(list(State)), st.integers(90, 130))


@given(_pairs, st.tuples(st.sampled_from([_OFF, _JOIN, _DRAIN]), st.integers(90, 130)), st.integers(100, 170))
def test_expired_halves_never_count(written: tuple[State, int], said: tuple[State, int], now: int) -> None:
    record = replace(_RECORD, state=written[0], issued_at=float(written[1]))
    statement = Statement(server_id="s", state=said[0], issued_at=float(said[1]))
    view = merge(record, statement, now=float(now))
    alive = [half for half in (record, statement) if half.expires_at > now]
    assert (view is None) == (not alive)
    assert view is None or (view.record is record) == (record in alive)
    assert (
        merge(record if record in alive else None, statement if statement in alive else None, now=float(now))
        == view
    )


def test_freshness_names_the_clocks() -> None:
    check_fresh(100.0, now=129.9)
    check_fresh(103.0, now=100.0)
    with pytest.raises(InvalidArgument, match="expired"):
        check_fresh(100.0, now=130.0)
    with pytest.raises(InvalidArgument, match="clock skew"):
        check_fresh(103.1, now=100.0)


def test_wire_names_are_unique() -> None:
    for kind in _KINDS:
        names = list(kind.WIRE.values())
        assert len(set(names)) == len(names) == len(fields(kind))
        assert not any(a == b for a, b in itertools.combinations([*names, "v"], 2))


@pytest.mark.parametrize("value", [1, "yes", None, float("nan")])
def test_a_flag_must_be_true_or_false(value):
    body = msgpack.unpackb(_RECORD.encode()) | {"em": value}
    with pytest.raises(InvalidArgument, match="has_embedding"):
        ServerRecord.decode(msgpack.packb(body))
