"""Whether the process must be restarted: /healthz is red exactly while a pass does not end. And what else is served."""

import asyncio
import contextlib
import socket
from dataclasses import replace
from types import SimpleNamespace

import aiohttp
import pytest
import pytest_asyncio
from operator_api import says
from operator_objects import SETTINGS
from prometheus_client import CollectorRegistry, Counter

from blockswarm_operator import health, lanes, main

LANE, OTHER = ("models", "m"), ("models", "other")


async def _get(runner, path, **headers):
    """(status, type, text) of an answer."""
    host, port = runner.addresses[0]
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{host}:{port}{path}", headers=headers) as answer,
    ):
        return answer.status, answer.content_type, await answer.text()


@contextlib.asynccontextmanager
async def _serve(healthy=lambda: True, registry=None):
    runner = await health.serve("127.0.0.1:0", registry or CollectorRegistry(), healthy=healthy)
    try:
        yield runner
    finally:
        await runner.cleanup()


# --- what is served ---------------------------------------------------------------------------------------------------


async def test_healthz_asks_each_time():
    answers = [True, False, True]
    async with _serve(lambda: answers.pop(0)) as runner:
        assert await _get(runner, "/healthz") == (200, "text/plain", "ok\n")
        assert await _get(runner, "/healthz") == (503, "text/plain", "a pass does not end\n")
        assert (await _get(runner, "/healthz"))[0] == 200


async def test_whoever_is_not_healthy_is_ready_all_the_same_and_tells_its_metrics():
    registry = CollectorRegistry()
    async with _serve(lambda: False, registry) as runner:
        assert await _get(runner, "/readyz") == (200, "text/plain", "ok\n")
        assert (await _get(runner, "/metrics"))[0] == 200


async def test_metrics_come_in_the_form_that_is_asked_for():
    registry = CollectorRegistry()
    Counter("blockswarm_things", "Things.", registry=registry).inc(2)
    async with _serve(registry=registry) as runner:
        status, kind, text = await _get(runner, "/metrics")
        assert (status, kind) == (200, "text/plain")
        assert "blockswarm_things_total 2.0\n" in text
        status, kind, text = await _get(
            runner, "/metrics", Accept="application/openmetrics-text; version=1.0.0"
        )
        assert (status, kind) == (200, "application/openmetrics-text")
        assert text.endswith("# EOF\n")


@pytest.mark.parametrize("path", ["/", "/healthz/", "/health", "/metrics/x"])
async def test_there_is_nothing_else(path):
    async with _serve() as runner:
        assert (await _get(runner, path))[0] == 404


async def test_brackets_around_an_address_are_no_part_of_it():
    # As those of IPv6, which not every machine has.
    runner = await health.serve("[127.0.0.1]:0", CollectorRegistry(), healthy=lambda: True)
    try:
        assert runner.addresses[0][0] == "127.0.0.1"
    finally:
        await runner.cleanup()


async def test_a_port_that_is_in_use_is_an_error():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(OSError, match="in use"):
            await health.serve(
                f"127.0.0.1:{taken.getsockname()[1]}", CollectorRegistry(), healthy=lambda: True
            )


# --- what healthy means -----------------------------------------------------------------------------------------------


class Passes:
    """Passes that end when they are told how: after how many seconds the next one is due, or an error."""

    def __init__(self):
        self.running = {}

    async def __call__(self, key):
        self.running[key] = asyncio.get_running_loop().create_future()
        try:
            return await self.running[key]
        finally:
            del self.running[key]

    def end(self, key, how):
        if isinstance(how, Exception):
            self.running[key].set_exception(how)
        else:
            self.running[key].set_result(how)


async def _rest():
    """Let all tasks go on until each waits."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture
def clock(monkeypatch):
    """What passes are timed with."""
    made = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(lanes, "time", SimpleNamespace(monotonic=lambda: made.now))
    return made


@pytest.fixture
def passes():
    return Passes()


@pytest_asyncio.fixture
async def work(clock, metrics, passes):
    made = main._Work(SETTINGS, None, metrics)
    made._reconciler = passes
    yield made
    await made.close()


async def test_who_does_nothing_is_healthy(work, clock):
    assert work.healthy()
    clock.now += 1e6
    assert work.healthy()


@pytest.mark.parametrize("how", [60.0, None, RuntimeError("a bug")])
async def test_a_pass_that_does_not_end_is_not_healthy_until_it_ends(work, clock, passes, how):
    work._lanes.poke(LANE)
    await _rest()
    assert work.healthy()
    clock.now += main._STUCK_SECONDS - 1
    assert work.healthy()
    clock.now += 1
    assert not work.healthy()
    passes.end(LANE, how)
    await _rest()
    # Neither the time until the next pass nor the pause after a failure is a pass.
    clock.now += 1e6
    assert work.healthy()


async def test_one_pass_that_does_not_end_is_enough(work, clock, passes):
    work._lanes.poke(LANE)
    await _rest()
    for _ in range(4):
        clock.now += main._STUCK_SECONDS / 4
        work._lanes.poke(OTHER)
        await _rest()
        passes.end(OTHER, 60.0)
        await _rest()
    work._lanes.poke(OTHER)
    await _rest()
    assert set(passes.running) == {LANE, OTHER}
    assert not work.healthy()


async def test_many_passes_that_end_one_after_the_other_are_healthy(work, clock, passes):
    for _ in range(10):
        work._lanes.poke(LANE)
        await _rest()
        clock.now += main._STUCK_SECONDS / 2
        assert work.healthy()
        passes.end(LANE, 60.0)
        await _rest()


async def test_a_pass_that_waits_for_others_has_not_begun(work, clock, passes):
    many = [("models", str(number)) for number in range(20)]
    for lane in many:
        work._lanes.poke(lane)
    await _rest()
    begun = set(passes.running)
    assert len(begun) < len(many)
    clock.now += main._STUCK_SECONDS - 1
    for lane in begun:
        passes.end(lane, 60.0)
    await _rest()
    assert not begun & set(passes.running)
    assert passes.running
    clock.now += 1
    assert work.healthy()


async def test_the_process_shows_whether_its_passes_end(monkeypatch, stub_api):
    """Also while another replica holds the lease, or nobody can take it."""
    runners, stops = [], []
    serve = health.serve

    async def serves(*arguments, **values):
        runners.append(await serve(*arguments, **values))
        return runners[0]

    monkeypatch.setattr(health, "serve", serves)
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "add_signal_handler", lambda number, stop: stops.append(stop))
    stub_api.answer = says(503, {"message": "no etcd"})
    running = asyncio.create_task(main.run(replace(SETTINGS, metrics_listen="127.0.0.1:0")))
    async with asyncio.timeout(60):
        while not stub_api.asked:  # noqa: ASYNC110  # what is waited for is another task's next step
            await asyncio.sleep(0.01)
        assert (await _get(runners[0], "/healthz"))[0] == 200
        assert (await _get(runners[0], "/readyz"))[0] == 200
        assert "blockswarm_operator_leader 0.0" in (await _get(runners[0], "/metrics"))[2]
        monkeypatch.setattr(lanes.Lanes, "oldest", lambda self: main._STUCK_SECONDS)
        assert (await _get(runners[0], "/healthz"))[0] == 503
        stops[0]()
        assert await running == 0
