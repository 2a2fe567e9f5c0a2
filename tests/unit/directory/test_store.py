"""The directory's memory: newest wins, the expired go, coverage counts who serves."""

from dataclasses import replace

import pytest

from blockswarm_services.directory import store as module
from blockswarm_services.directory.store import Store
from blockswarm_wire.errors import TooManySessions
from blockswarm_wire.fingerprint import model_key
from blockswarm_wire.record import ModelEntry, ServerRecord, State, Statement

_FINGERPRINT = "ab" * 32
_KEY = model_key("demo", _FINGERPRINT)
_MODEL = ModelEntry(key=_KEY, name="demo", num_blocks=4, fingerprint=_FINGERPRINT)
_RECORD = ServerRecord(
    server_id="a",
    state=State.ONLINE,
    model="demo",
    num_blocks=4,
    start=0,
    end=2,
    address="10.0.0.1:1",
    instance="i",
    fingerprint=_FINGERPRINT,
    issued_at=100.0,
)


def test_the_newest_issue_wins_and_only_news_are_urgent() -> None:
    store = Store()
    assert store.put(_KEY, _RECORD) == (True, True)
    assert store.put(_KEY, _RECORD) == (False, False)
    assert store.put(_KEY, replace(_RECORD, issued_at=110.0, kv_used=5)) == (True, False)
    assert store.put(_KEY, replace(_RECORD, issued_at=105.0, state=State.OFFLINE)) == (False, False)
    assert store.put(_KEY, replace(_RECORD, issued_at=111.0, state=State.DRAINING)) == (True, True)
    said = Statement(server_id="a", state=State.OFFLINE, instance="i", issued_at=112.0)
    assert store.put(_KEY, said) == (True, True)
    assert store.put(_KEY, replace(said, issued_at=113.0)) == (True, False)
    (row,) = store.rows(_KEY, 114.0)
    assert row.record is not None
    assert (row.record.state, row.statement and row.statement.issued_at) == (State.DRAINING, 113.0)


def test_halves_expire_one_by_one() -> None:
    store = Store()
    store.put(_KEY, _RECORD)
    store.put(_KEY, Statement(server_id="a", state=State.DRAINING, issued_at=110.0))
    assert store.expire(129.0) == set()
    assert store.expire(130.0) == {_KEY}
    (row,) = store.rows(_KEY, 130.0)
    assert row.record is None
    assert store.rows(_KEY, 140.0) == []
    assert store.expire(140.0) == {_KEY}
    assert store.size() == 0
    assert store.keys() == set()


def test_coverage_counts_servers_that_serve_and_stays_at_zero() -> None:
    store = Store()
    store.put_model(_MODEL, 100.0)
    assert store.coverage(100.0) == {_KEY: [0, 0, 0, 0]}
    store.put(_KEY, _RECORD)
    store.put(_KEY, replace(_RECORD, server_id="b", start=1, end=4, state=State.DRAINING))
    store.put(_KEY, replace(_RECORD, server_id="c", start=3, end=4, state=State.JOINING))
    assert store.coverage(101.0) == {_KEY: [1, 2, 1, 1]}
    store.put(_KEY, Statement(server_id="a", state=State.OFFLINE, instance="i", issued_at=102.0))
    assert store.coverage(103.0) == {_KEY: [0, 1, 1, 1]}
    assert store.coverage(200.0) == {_KEY: [0, 0, 0, 0]}


def test_models_are_listed_for_two_minutes_and_known_for_an_hour() -> None:
    store = Store()
    store.put_model(_MODEL, 100.0)
    assert store.models(220.0) == [_MODEL]
    assert store.models(221.0) == []
    assert store.model(_KEY) == _MODEL
    store.expire(100.0 + 3601)
    assert store.model(_KEY) is None


def test_a_full_store_refuses_new_servers_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SERVERS", 1)
    monkeypatch.setattr(module, "MAX_MODELS", 1)
    store = Store()
    store.put(_KEY, _RECORD)
    with pytest.raises(TooManySessions):
        store.put(_KEY, replace(_RECORD, server_id="b"))
    assert store.put(_KEY, replace(_RECORD, issued_at=101.0)) == (True, False)
    store.put_model(_MODEL, 1.0)
    other = ModelEntry(
        key=model_key("other", _FINGERPRINT), name="other", num_blocks=1, fingerprint=_FINGERPRINT
    )
    store.put_model(other, 1.0)
    assert store.models(1.0) == [_MODEL]
