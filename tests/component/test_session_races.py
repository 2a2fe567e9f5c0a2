"""Sessions against servers in this process, at the moments that real kills seldom hit: cancels, moves, small spares."""

import asyncio
import contextlib

import grpc
import pytest
import pytest_asyncio
import torch

from block_server import make_host, serving
from blockswarm.config import ClientConfig
from blockswarm.routing.hop import Hop, MissingBlocks
from blockswarm.session import AsyncInferenceSession, SessionLost
from blockswarm_services.server import infer
from blockswarm_services.server.drain import drain
from blockswarm_services.server.step import apply as real_apply
from blockswarm_wire.errors import InvalidArgument, NeverFits
from blockswarm_wire.limits import CHANNEL_OPTIONS
from blockswarm_wire.span import Span

HIDDEN = 64


class Swarm:
    """Servers in this event loop, and a manager over them that tells what it was told."""

    def __init__(self, folder, stack: contextlib.AsyncExitStack) -> None:
        self.folder, self.stack = folder, stack
        self.hosts, self.addresses, self.channels, self.failed = {}, {}, {}, []
        self.busy = asyncio.Event()
        self.down: set[str] = set()
        self.config = ClientConfig(
            directory="unused:1", failover_timeout=5.0, min_backoff=0.01, max_backoff=0.1
        )
        self.num_blocks = 3
        self.fingerprint = ""

    async def add(self, name: str, start: int, end: int, **options):
        host = make_host(self.folder, Span(start, end), 3, **options)
        host.server_id = name
        self.hosts[name] = host
        self.addresses[name] = await self.stack.enter_async_context(serving(host))
        self.fingerprint = host.fingerprint
        return host

    async def make_sequence(self, start, end, *, cache_tokens=0, exclude=frozenset(), **_):
        hops, at = [], start
        while at < end:
            fits = [
                name
                for name, host in self.hosts.items()
                if at in host.span and name not in exclude | self.down and not host.draining
            ]
            if not fits:
                raise MissingBlocks("tiny", [(at, end)])
            name = fits[0]
            last = min(end, self.hosts[name].span.end)
            hops.append(Hop(name, self.hosts[name].instance, self.addresses[name], at, last))
            at = last
        return hops

    def on_failure(self, server_id, instance, error):
        self.failed.append((server_id, error))
        self.down.add(server_id)

    def on_success(self, server_id, instance): ...

    def on_busy(self, server_id):
        self.busy.set()

    async def changed(self, timeout, **_):
        await asyncio.sleep(min(timeout, 0.05))
        return False

    def channel(self, address):
        if address not in self.channels:
            self.channels[address] = grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
        return self.channels[address]


@pytest_asyncio.fixture
async def swarm(folder):
    async with contextlib.AsyncExitStack() as stack:
        made = Swarm(folder, stack)
        yield made
        for channel in made.channels.values():
            await channel.close()


def inputs(tokens: int, seed: int, batch: int = 1) -> torch.Tensor:
    return torch.randn(batch, tokens, HIDDEN, generator=torch.Generator().manual_seed(seed))


async def test_a_caller_that_reuses_its_tensor_does_not_rewrite_the_history(swarm):
    await swarm.add("a", 0, 3)
    await swarm.add("b", 0, 3)
    buffer = inputs(5, 0)
    async with AsyncInferenceSession(swarm, 32) as session:
        want = [await session.step(buffer), await session.step(inputs(1, 1))]
        session.position = 5
        buffer.fill_(7.0)
        swarm.down.add("a")
        session._chain[0].abandon()
        session._chain[0].hop = (await swarm.make_sequence(0, 3))[0]
        assert torch.equal(await session.step(inputs(1, 1)), want[1])


async def test_a_cancelled_step_with_reordered_rows_leaves_no_trace(swarm, monkeypatch):
    await swarm.add("a", 0, 1)
    await swarm.add("b", 1, 3)
    async with AsyncInferenceSession(swarm, 32) as session:
        await session.step(inputs(4, 0, batch=2))
        order = torch.tensor([1, 1])
        want = await session.step(inputs(1, 1, batch=2), hypo_ids=order)
        again = AsyncInferenceSession(swarm, 32)
        await again.step(inputs(4, 0, batch=2))
        for _ in range(3):
            task = asyncio.create_task(again.step(inputs(1, 1, batch=2), hypo_ids=order))
            await asyncio.sleep(0.004)
            task.cancel()
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            if again.position == 5:  # it was faster than the cancel
                again.position = 4
                await again.close()
                again = AsyncInferenceSession(swarm, 32)
                await again.step(inputs(4, 0, batch=2))
        assert torch.equal(await again.step(inputs(1, 1, batch=2), hypo_ids=order), want)
        await again.close()
    assert swarm.failed == [], "a healthy server was blamed for the caller's cancel"


async def test_a_wrong_first_step_does_not_bind_the_session(swarm):
    await swarm.add("a", 0, 3)
    async with AsyncInferenceSession(swarm, 32) as session:
        with pytest.raises(InvalidArgument, match="hidden: shape"):
            await session.step(torch.zeros(1, 2, 32))
        assert (await session.step(inputs(2, 0, batch=3))).shape == (3, 2, HIDDEN)


async def test_a_move_goes_to_a_server_with_room_or_stays(swarm):
    old = await swarm.add("a", 0, 3)
    await swarm.add("full", 0, 3, cache_tokens=16)
    async with AsyncInferenceSession(swarm, 16) as holder, AsyncInferenceSession(swarm, 16) as session:
        await session.step(inputs(3, 0))
        swarm.down.add("a")
        await holder.step(inputs(1, 0))
        swarm.down.clear()
        leaving = asyncio.create_task(drain(old, 30.0))
        async with asyncio.timeout(10):
            await swarm.busy.wait()
            # The present server goes on while there is nowhere to go.
            await session.step(inputs(1, 1))
            assert session.chain[0].server_id == "a"
            await swarm.add("roomy", 0, 3)
            swarm.down.add("full")
            await leaving
        assert session.chain[0].server_id == "roomy"
        assert session.stats.failovers == 0


async def test_a_notice_of_a_server_that_was_left_already_moves_nothing(swarm):
    await swarm.add("a", 0, 3)
    await swarm.add("b", 0, 3)
    async with AsyncInferenceSession(swarm, 16) as session:
        await session.step(inputs(3, 0))
        segment = session._chain[0]
        await session._move(segment, "some earlier instance")
        assert session.chain[0].server_id == "a"
        assert session.stats.moves == 0


async def test_a_spare_that_is_too_small_is_left_out_and_told_at_once_to_a_new_session(swarm):
    await swarm.add("small", 0, 3, cache_tokens=8)
    await swarm.add("large", 0, 3)
    async with AsyncInferenceSession(swarm, 16) as session:
        await session.step(inputs(3, 0))
        assert session.chain[0].server_id == "large"
        swarm.down.add("large")
        session._chain[0].abandon()
        session._chain[0].hop = (await swarm.make_sequence(0, 3))[0]
        with pytest.raises(SessionLost, match="NeverFits"):
            await session.step(inputs(1, 1))
    async with AsyncInferenceSession(swarm, 16) as session:
        with pytest.raises(NeverFits, match="open a shorter session"):
            await session.step(inputs(3, 0))


async def test_a_server_that_answers_nonsense_is_left_and_the_next_one_does_not_see_it(swarm, monkeypatch):
    bad = await swarm.add("bad", 0, 1)
    await swarm.add("good", 0, 1)
    await swarm.add("tail", 1, 3)

    def apply(model, leg, plan, step):
        compute = real_apply(model, leg, plan, step)

        def spoiled():
            cache, output = compute()
            if model is bad.model:
                output.shape[2] = output.shape[2] // 2
            return cache, output

        return spoiled

    monkeypatch.setattr(infer, "apply", apply)
    async with AsyncInferenceSession(swarm, 16) as session:
        await session.step(inputs(3, 0))
        assert [hop.server_id for hop in session.chain] == ["good", "tail"]
    assert [name for name, _ in swarm.failed] == ["bad"]
