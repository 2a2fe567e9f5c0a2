"""The compute thread: what it gives back, in which order, and how it ends."""

import asyncio
import threading

import pytest
import pytest_asyncio

from blockswarm_services.server.engine import Engine
from blockswarm_services.server.schedule import Kind
from blockswarm_wire.errors import Gone, InvalidArgument, ServerFault


@pytest_asyncio.fixture
async def engine():
    made = Engine()
    yield made
    made.stop()


def failing(error: Exception):
    def work():
        raise error

    return work


async def occupied(engine: Engine, gate: threading.Event):
    """A job that is running, and ends when the gate opens."""
    began = threading.Event()

    def work() -> None:
        began.set()
        gate.wait(10)

    job = engine.submit(Kind.DECODE, 1, work)
    assert await asyncio.to_thread(began.wait, 10)
    return job


async def test_work_runs_on_one_thread_of_its_own(engine):
    jobs = [engine.submit(Kind.DECODE, 1, lambda: threading.current_thread().name) for _ in range(3)]
    outcomes = [await job.future for job in jobs]
    assert {outcome.value for outcome in outcomes} == {"compute"}
    assert all(outcome.compute_seconds >= 0 and outcome.queue_seconds >= 0 for outcome in outcomes)


async def test_decodes_overtake_prefill_that_waits(engine):
    gate, order = threading.Event(), []
    first = await occupied(engine, gate)
    later = [
        engine.submit(kind, 1, lambda kind=kind: order.append(kind))
        for kind in (Kind.PREFILL, Kind.PASS, Kind.DECODE)
    ]
    assert engine.position(later[0]) >= 1
    gate.set()
    await first.future
    await asyncio.gather(*(job.future for job in later))
    assert order == [Kind.DECODE, Kind.PREFILL, Kind.PASS]
    assert engine.queue_delay > 0


async def test_errors_of_the_tree_pass_and_others_become_the_servers_fault(engine):
    with pytest.raises(InvalidArgument, match="wrong"):
        await engine.submit(Kind.DECODE, 1, failing(InvalidArgument("wrong"))).future
    with pytest.raises(ServerFault, match="KeyError"):
        await engine.submit(Kind.DECODE, 1, failing(KeyError("x"))).future
    assert engine.alive


async def test_an_error_of_the_device_makes_the_engine_dead(engine):
    with pytest.raises(ServerFault):
        await engine.submit(
            Kind.DECODE, 1, failing(RuntimeError("CUDA error: an illegal memory access"))
        ).future
    assert not engine.alive


async def test_a_cancelled_job_that_runs_is_waited_for_and_one_that_waits_never_runs(engine):
    gate, ran = threading.Event(), []
    running = await occupied(engine, gate)
    waiting = engine.submit(Kind.PASS, 1, lambda: ran.append(1))
    engine.cancel(waiting)
    await waiting.ended()
    running.future.cancel()
    engine.cancel(running)
    ended = asyncio.create_task(running.ended())
    await asyncio.sleep(0)
    assert not ended.done()
    gate.set()
    await asyncio.wait_for(ended, 5)
    assert ran == []


async def test_what_waits_when_the_engine_stops_is_told_so():
    engine, gate = Engine(), threading.Event()
    running = await occupied(engine, gate)
    waiting = engine.submit(Kind.PASS, 1, lambda: None)
    gate.set()
    stopping = threading.Thread(target=engine.stop)
    stopping.start()
    await asyncio.gather(running.future, waiting.future, return_exceptions=True)
    stopping.join(5)
    assert not engine.alive
    with pytest.raises(Gone):
        engine.submit(Kind.DECODE, 1, lambda: None)
