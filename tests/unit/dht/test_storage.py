"""hivemind's storage faults stay closed: a refused store never shortens a life, and nothing lives for ever."""

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockswarm_dht import storage as module
from blockswarm_dht.hivemind_core import DHTID, MSGPackSerializer
from blockswarm_dht.storage import SafeDictionary, SafeStorage

_KEY = DHTID.generate(source="key")


def _expiries(storage: SafeStorage) -> list[float]:
    return [item.expiration_time for _, item in storage.items()]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """[now]: what hivemind's store and ours take for the time."""
    now = [1000.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    timed = module.DHTLocalStorage.__mro__[1]
    monkeypatch.setitem(timed.store.__globals__, "get_dht_time", lambda: now[0])
    return now


def test_a_refused_shorter_expiry_leaves_the_life_as_it_was(clock: list[float]) -> None:
    storage = SafeStorage()
    assert storage.store_subkey(_KEY, "s", b"good", 1030.0)
    assert not storage.store_subkey(_KEY, "s", b"bad", 1001.0)
    clock[0] = 1029.0
    found = storage.get(_KEY)
    assert found is not None
    assert found.value.get("s").value == b"good"
    clock[0] = 1031.0
    assert storage.get(_KEY) is None


@pytest.mark.parametrize("expiry", [math.nan, math.inf, -math.inf, 5, None, "soon"])
def test_an_expiry_that_is_no_finite_time_is_refused(clock: list[float], expiry: object) -> None:
    storage = SafeStorage()
    assert storage.store_subkey(_KEY, "s", b"good", 1030.0)
    assert not storage.store_subkey(_KEY, "s", b"bad", expiry)  # type: ignore[arg-type]
    assert not storage.store_subkey(_KEY, "t", b"bad", expiry)  # type: ignore[arg-type]
    assert not storage.store(DHTID.generate(source="other"), b"bad", expiry)  # type: ignore[arg-type]
    assert storage.store_subkey(_KEY, "s", b"better", 1040.0)
    clock[0] = 1050.0
    assert len(storage) == 0


def test_a_full_store_keeps_what_it_has(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_KEYS", 2)
    monkeypatch.setattr(module, "MAX_SUBKEYS", 2)
    storage = SafeStorage()
    keys = [DHTID.generate(source=f"k{number}") for number in range(3)]
    assert [storage.store_subkey(key, "s", b"v", 1030.0) for key in keys] == [True, True, False]
    assert [storage.store_subkey(keys[0], name, b"v", 1031.0) for name in "stu"] == [True, True, False]
    clock[0] = 1032.0
    assert storage.store_subkey(keys[2], "s", b"v", 1060.0)


def test_arriving_dictionaries_are_safe_ones_too() -> None:
    dictionary = SafeDictionary()
    assert dictionary.store("s", b"v", time.time() + 30)
    arrived = MSGPackSerializer.loads(MSGPackSerializer.dumps(dictionary))
    assert isinstance(arrived, SafeDictionary)
    assert arrived.get("s").value == b"v"


def test_what_is_accepted_is_told() -> None:
    storage, told = SafeStorage(), []
    storage.on_stored = lambda key, subkey, value: told.append((key, subkey, value))
    now = time.time()
    storage.store_subkey(_KEY, "s", b"one", now + 30)
    storage.store_subkey(_KEY, "s", b"older", now + 20)
    assert told == [(_KEY.to_bytes(), "s", b"one")]


_times = st.one_of(st.floats(), st.floats(900, 1200))


@given(st.lists(st.tuples(st.sampled_from("ab"), _times), max_size=12))
def test_stores_in_any_order_leave_the_longest_life(stores: list[tuple[str, float]]) -> None:
    storage = SafeStorage()
    now = time.time()
    best: dict[str, float] = {}
    for name, offset in stores:
        expiry = now + offset
        accepted = storage.store_subkey(_KEY, name, b"v", expiry)
        allowed = math.isfinite(expiry) and offset > 60 and expiry > best.get(name, -math.inf)
        if math.isfinite(expiry) and abs(offset) > 60:
            assert accepted == allowed
        if accepted:
            best[name] = expiry
    found = storage.get(_KEY)
    kept = {} if found is None else {name: item.expiration_time for name, item in found.value.items()}
    assert kept == best
