"""Lanes: passes over one key never overlap, pokes are never lost, failures are repeated, keys may end."""

import asyncio
import contextlib

import pytest

from blockswarm_operator import lanes as module
from blockswarm_operator.lanes import Lanes


class Work:
    """Passes that end when they are told to."""

    def __init__(self):
        self.began: list[str] = []
        self.running: set[str] = set()
        self.most = 0
        self.answers: list = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, key):
        assert key not in self.running, "two passes over one key at once"
        self.began.append(key)
        self.running.add(key)
        self.most = max(self.most, len(self.running))
        try:
            await self.gate.wait()
        finally:
            self.running.discard(key)
        answer = self.answers.pop(0) if self.answers else 60.0
        if isinstance(answer, Exception):
            raise answer
        return answer


async def _until(condition):
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110  # what is waited for is another task's next step
            await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def _lanes(work, **values):
    lanes = Lanes(work, **values)
    try:
        yield lanes
    finally:
        await lanes.close()


async def test_a_poke_leads_to_a_pass_and_pokes_during_a_pass_to_one_more():
    work = Work()
    async with _lanes(work) as lanes:
        work.gate.clear()
        lanes.poke("a")
        await _until(lambda: work.running == {"a"})
        for _ in range(5):
            lanes.poke("a")
        work.gate.set()
        await _until(lambda: len(work.began) == 2)
        for _ in range(20):
            await asyncio.sleep(0)
        assert work.began == ["a", "a"]
        assert len(lanes) == 1


async def test_keys_run_beside_each_other_up_to_the_limit():
    work = Work()
    async with _lanes(work, limit=2) as lanes:
        work.gate.clear()
        for key in "abcd":
            lanes.poke(key)
        await _until(lambda: len(work.running) == 2)
        assert lanes.oldest() >= 0.0
        work.gate.set()
        await _until(lambda: len(work.began) == 4)
        assert work.most == 2


async def test_a_pass_comes_again_unpoked_after_the_time_it_asked_for():
    work = Work()
    work.answers = [0.02, 0.02]
    async with _lanes(work) as lanes:
        lanes.poke("a")
        await _until(lambda: len(work.began) == 3)


async def test_a_key_without_a_lane_begins_anew_with_the_next_poke():
    work = Work()
    work.answers = [None]
    async with _lanes(work) as lanes:
        lanes.poke("a")
        await _until(lambda: len(work.began) == 1 and len(lanes) == 0)
        lanes.poke("a")
        await _until(lambda: len(work.began) == 2)
        assert len(lanes) == 1


async def test_a_poke_while_the_last_pass_runs_keeps_the_lane():
    work = Work()
    work.answers = [None, 60.0]
    async with _lanes(work) as lanes:
        work.gate.clear()
        lanes.poke("a")
        await _until(lambda: work.running == {"a"})
        lanes.poke("a")
        work.gate.set()
        await _until(lambda: len(work.began) == 2)
        assert len(lanes) == 1


async def test_a_failed_pass_is_told_and_repeated_with_growing_pauses(monkeypatch):
    pauses = []
    real = asyncio.sleep

    async def sleep(seconds):
        if seconds:
            pauses.append(seconds)
        await real(0)

    monkeypatch.setattr(module.asyncio, "sleep", sleep)
    failed = []
    work = Work()
    work.answers = [ValueError(str(n)) for n in range(10)]
    async with _lanes(work, failed=lambda key, error: failed.append((key, str(error)))) as lanes:
        lanes.poke("a")
        await _until(lambda: len(work.began) == 11)
    assert failed == [("a", str(n)) for n in range(10)]
    assert len(pauses) == 10
    # Each about twice the one before, with some chance in it, and never above half a minute.
    expected = [min(0.5 * 2**n, 30.0) for n in range(10)]
    assert all(0.8 * wanted <= pause <= 1.2 * wanted for pause, wanted in zip(pauses, expected, strict=True))


async def test_one_failing_key_does_not_stop_the_others():
    began = []

    async def work(key):
        began.append(key)
        if key == "bad":
            raise RuntimeError("no")
        return 60.0

    async with _lanes(work) as lanes:
        lanes.poke("bad")
        lanes.poke("good")
        await _until(lambda: "good" in began)


async def test_closing_cuts_passes_where_they_wait():
    work = Work()
    lanes = Lanes(work)
    work.gate.clear()
    lanes.poke("a")
    await _until(lambda: work.running == {"a"})
    async with asyncio.timeout(1):
        await lanes.close()
    assert work.running == set()


async def test_nothing_runs_nothing_is_old():
    lanes = Lanes(Work())
    assert lanes.oldest() == 0.0
    with pytest.raises(TypeError):
        lanes.poke([])  # keys are hashable
