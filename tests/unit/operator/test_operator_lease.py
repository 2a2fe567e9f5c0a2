"""The Lease: who may take it, and how a holder lets go of it in time."""

import asyncio
from typing import Any

import pytest

from blockswarm_operator import lease as module
from blockswarm_operator.cluster import ApiError
from blockswarm_operator.lease import LEASE_SECONDS, Lease, Sighting, may_take, sighting


def _lease(holder="other", renewed="t1"):
    return {"spec": {"holderIdentity": holder, "renewTime": renewed}}


def test_a_renewal_is_seen_at_our_own_time():
    first = sighting(_lease(), None, now=10.0)
    assert first == Sighting("other", "t1", 10.0)
    assert sighting(_lease(), first, now=15.0) is first
    assert sighting(_lease(renewed="t2"), first, now=15.0) == Sighting("other", "t2", 15.0)
    assert sighting(_lease(holder="third"), first, now=15.0).at == 15.0
    # Whatever the other machine's clock says.
    assert sighting(_lease(renewed="1970-01-01T00:00:00Z"), None, now=10.0).at == 10.0
    assert sighting({"spec": None}, None, now=1.0) == Sighting("", "", 1.0)
    assert sighting({}, None, now=1.0) == Sighting("", "", 1.0)


@pytest.mark.parametrize(
    ("holder", "age", "taken"),
    [
        ("me", 0.0, True),
        ("", 0.0, True),
        ("other", 0.0, False),
        ("other", LEASE_SECONDS - 0.1, False),
        ("other", LEASE_SECONDS, True),
    ],
)
def test_who_may_take_it(holder, age, taken):
    assert may_take(Sighting(holder, "t", 100.0), "me", 100.0 + age) is taken


class Api:
    """An API server with one Lease."""

    def __init__(self):
        self.lease: Any = None
        self.version = 0
        self.broken = None
        self.troubles = []
        self.hangs = False
        self.renewals = 0
        self.taken_after = None

    async def read(self, kind, namespace, name):
        await self._maybe()
        assert (kind, namespace, name) == ("Lease", "system", "operator")
        if self.lease is None:
            return None
        return {**self.lease, "metadata": {**self.lease["metadata"], "resourceVersion": str(self.version)}}

    async def create(self, manifest):
        await self._maybe()
        if self.lease is not None:
            raise ApiError(409, "exists")
        self._store(manifest)

    async def replace(self, manifest):
        await self._maybe()
        if manifest["metadata"].get("resourceVersion") != str(self.version):
            raise ApiError(409, "changed")
        self._store(manifest)

    async def _maybe(self):
        if self.hangs:
            await asyncio.Event().wait()
        if self.broken:
            raise self.broken
        if self.troubles:
            raise self.troubles.pop()

    def _store(self, manifest):
        self.version += 1
        self.lease = manifest
        self.renewals += 1
        if self.renewals == self.taken_after:
            self.lease = {**manifest, "spec": {**manifest["spec"], "holderIdentity": "other"}}

    @property
    def holder(self):
        return self.lease["spec"]["holderIdentity"]


@pytest.fixture
def clock(monkeypatch):
    """Time that passes with sleeps only."""

    class Clock:
        now = 1000.0

        def monotonic(self):
            return self.now

    clock, real = Clock(), asyncio.sleep

    async def sleep(seconds):
        clock.now += seconds
        await real(0)

    monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(module.asyncio, "sleep", sleep)
    return clock


def _for(api, identity="me"):
    return Lease(api, "system", "operator", identity)


async def test_the_first_one_takes_it_and_gives_it_back(clock):
    api = Api()
    mine = _for(api)
    await mine.acquire()
    assert api.holder == "me"
    spec = api.lease["spec"]
    assert (spec["leaseDurationSeconds"], spec["leaseTransitions"]) == (LEASE_SECONDS, 1)
    await mine.release()
    assert api.holder == ""
    other = _for(api, "other")
    await other.acquire()
    assert api.holder == "other"
    await mine.release()
    assert api.holder == "other"


async def test_a_second_one_waits_for_the_whole_time(clock):
    api = Api()
    await _for(api).acquire()
    began = clock.now
    await _for(api, "other").acquire()
    assert api.holder == "other"
    assert clock.now - began >= LEASE_SECONDS
    assert api.lease["spec"]["leaseTransitions"] == 2


async def test_the_holder_stops_when_it_was_taken(clock):
    api = Api()
    mine = _for(api)
    await mine.acquire()
    api.lease["spec"]["holderIdentity"] = "other"
    began = clock.now
    await mine.hold()
    assert clock.now - began <= 2
    assert api.holder == "other"


async def test_the_holder_gives_up_before_another_may_take_it(clock):
    api = Api()
    mine = _for(api)
    await mine.acquire()
    began = clock.now
    api.broken = ApiError(503, "no")
    await mine.hold()
    assert clock.now - began < LEASE_SECONDS


async def test_a_short_trouble_is_survived(clock):
    api = Api()
    mine = _for(api)
    for _ in range(3):
        await mine.acquire()
        began, api.troubles = clock.now, [ApiError(500, "no"), TimeoutError()]
        api.taken_after = api.renewals + 4
        await mine.hold()
        # Held through the trouble, and until somebody else had it.
        assert api.renewals == api.taken_after
        assert clock.now - began >= 6


async def test_an_api_server_that_hangs_does_not_make_the_holder_late(monkeypatch):
    monkeypatch.setattr(module, "_GIVE_UP_SECONDS", 0.04)
    monkeypatch.setattr(module, "_PERIOD", 0.01)
    api = Api()
    mine = _for(api)
    await mine.acquire()
    api.hangs = True
    async with asyncio.timeout(1):
        await mine.hold()


async def test_a_lease_without_a_spec_is_nobodys(clock):
    api = Api()
    api._store({"metadata": {"name": "operator", "namespace": "system"}})
    mine = _for(api)
    async with asyncio.timeout(5):
        await mine.acquire()
    assert api.holder == "me"


async def test_giving_it_back_does_not_wait_for_a_dead_api_server(clock, monkeypatch):
    api = Api()
    mine = _for(api)
    await mine.acquire()
    api.broken = ApiError(0, "timeout")
    await mine.release()
    assert api.holder == "me"
