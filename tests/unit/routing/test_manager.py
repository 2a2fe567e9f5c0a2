"""RemoteSequenceManager over a hand-fed discovery: what is used, what is not, and when it tells of changes."""

import asyncio
import time
from typing import Any

import grpc.aio
import pytest

from blockswarm.config import ClientConfig
from blockswarm.discovery.door import OnChange
from blockswarm.routing.manager import Hop, MissingBlocks, RemoteSequenceManager
from blockswarm_wire.errors import InvalidArgument, Unreachable
from blockswarm_wire.fingerprint import model_key
from blockswarm_wire.record import ModelEntry, ServerRecord, ServerView, State
from blockswarm_wire.v1 import block_server_pb2 as pb
from blockswarm_wire.v1 import block_server_pb2_grpc as pb_grpc

_FINGERPRINT = "ab" * 32
_MODEL = ModelEntry(key=model_key("demo", _FINGERPRINT), name="demo", num_blocks=8, fingerprint=_FINGERPRINT)


class _Fed:
    """A discovery that says what the test says."""

    stale = False

    def __init__(self, views: list[ServerView] | None) -> None:
        self.views = views
        self._listeners: list[OnChange] = []

    def say(self, views: list[ServerView]) -> None:
        self.views = views
        for listener in self._listeners:
            listener(views)

    async def models(self) -> list[ModelEntry]:
        return [_MODEL]

    async def lookup(self, model_key: str, num_blocks: int) -> list[ServerView]:
        if self.views is None:
            raise Unreachable("away")
        return self.views

    def watch(self, model_key: str, num_blocks: int, on_change: OnChange) -> "asyncio.Task[None]":
        async def run() -> None:
            self._listeners.append(on_change)
            if self.views is not None:
                on_change(self.views)
            await asyncio.Event().wait()

        return asyncio.create_task(run())

    async def close(self) -> None:
        return


def _view(name: str, start: int, end: int, *, state: State = State.ONLINE, **values: Any) -> ServerView:
    fields: dict[str, Any] = {
        "address": "127.0.0.1:1",
        "instance": "i1",
        "fingerprint": _FINGERPRINT,
        "inference_rps": 100.0,
        **values,
    }
    record = ServerRecord(
        server_id=name,
        state=state,
        model="demo",
        num_blocks=8,
        start=start,
        end=end,
        issued_at=time.time(),
        **fields,
    )
    return ServerView(server_id=name, state=state, record=record)


@pytest.fixture
async def fed() -> _Fed:
    return _Fed([_view("a", 0, 4), _view("b", 4, 8, inference_rps=200.0), _view("c", 4, 8)])


async def _manager(fed: _Fed, **settings: Any) -> RemoteSequenceManager:
    config = ClientConfig(directory="unused:1", connect_timeout=0.3, seed=1, **settings)
    return RemoteSequenceManager(fed, _MODEL, config=config)


async def _route(manager: RemoteSequenceManager, **options: Any) -> list[str]:
    return [f"{hop.server_id} {hop.start}:{hop.end}" for hop in await manager.make_sequence(0, 8, **options)]


async def test_the_fastest_chain_is_chosen(fed: _Fed) -> None:
    manager = await _manager(fed)
    assert await _route(manager) == ["a 0:4", "b 4:8"]
    assert await manager.make_sequence(5, 7) == [Hop("b", "i1", "127.0.0.1:1", 5, 7)]
    assert len(manager) == manager.num_blocks == 8
    await manager.close()


async def test_a_failed_instance_leaves_at_once_and_a_new_one_returns(fed: _Fed) -> None:
    manager = await _manager(fed)
    await manager.ready()
    manager.on_failure("b", "i1", RuntimeError())
    assert await _route(manager) == ["a 0:4", "c 4:8"]
    fed.say([_view("a", 0, 4), _view("b", 4, 8, inference_rps=200.0, instance="i2"), _view("c", 4, 8)])
    assert await _route(manager) == ["a 0:4", "b 4:8"]
    await manager.close()


async def test_a_lone_failed_server_is_held_off_then_tried_again(fed: _Fed) -> None:
    manager = await _manager(fed)
    await manager.ready()
    manager.on_failure("a", "i1", RuntimeError())
    with pytest.raises(MissingBlocks, match="blocks 0:4 of demo") as caught:
        await manager.make_sequence(0, 8)
    assert caught.value.ranges == ((0, 4),)
    started = time.monotonic()
    assert await manager.changed(5.0)
    assert 0.5 < time.monotonic() - started < 2.0
    assert await _route(manager) == ["a 0:4", "b 4:8"]
    manager.on_success("a", "i1")
    await manager.close()


async def test_busy_servers_rank_lower(fed: _Fed) -> None:
    manager = await _manager(fed)
    await manager.ready()
    manager.on_busy("b")
    assert await _route(manager) == ["a 0:4", "c 4:8"]
    await manager.close()


async def test_allowed_blocked_and_excluded_servers(fed: _Fed) -> None:
    blocking = await _manager(fed, blocked_servers=frozenset({"b"}))
    assert await _route(blocking) == ["a 0:4", "c 4:8"]
    allowing = await _manager(fed, allowed_servers=frozenset({"a", "c"}))
    assert await _route(allowing) == ["a 0:4", "c 4:8"]
    assert await _route(blocking, exclude=frozenset()) == ["a 0:4", "c 4:8"]
    with pytest.raises(MissingBlocks):
        await blocking.make_sequence(0, 8, exclude=frozenset({"c"}))
    await blocking.close()
    await allowing.close()


async def test_full_and_draining_servers_come_last(fed: _Fed) -> None:
    fed.views = [
        _view("a", 0, 4, state=State.DRAINING),
        _view("b", 4, 8, inference_rps=200.0, kv_capacity=1000, kv_promised=950),
        _view("c", 4, 8, kv_capacity=1000),
    ]
    manager = await _manager(fed)
    assert await _route(manager, cache_tokens=50) == ["a 0:4", "b 4:8"]
    assert await _route(manager, cache_tokens=51) == ["a 0:4", "c 4:8"]
    await manager.close()


async def test_what_cannot_serve_is_not_used_and_joining_servers_are_named(fed: _Fed) -> None:
    fed.views = [
        _view("a", 0, 4, state=State.JOINING),
        _view("other", 0, 8, fingerprint="cd" * 32),
        _view("gone", 0, 8, state=State.OFFLINE),
        ServerView(server_id="pending", state=State.JOINING, record=None),
    ]
    manager = await _manager(fed)
    with pytest.raises(MissingBlocks) as caught:
        await manager.make_sequence(0, 8)
    assert caught.value.ranges == ((0, 8),)
    assert caught.value.joining == ("a", "pending")
    await manager.close()


async def test_max_throughput_spreads_over_the_holders(fed: _Fed) -> None:
    manager = await _manager(fed)
    last = {(await _route(manager, mode="max_throughput"))[-1] for _ in range(40)}
    assert last == {"b 4:8", "c 4:8"}
    await manager.close()


async def test_changed_wakes_for_servers_not_for_load(fed: _Fed) -> None:
    manager = await _manager(fed)
    await manager.ready()
    version = manager.version
    fed.say([_view("a", 0, 4, kv_used=5), _view("b", 4, 8, inference_rps=200.0), _view("c", 4, 8)])
    assert manager.version == version
    assert not await manager.changed(0.05)
    waiting = asyncio.create_task(manager.changed(5.0))
    await asyncio.sleep(0)
    fed.say([*(fed.views or ()), _view("d", 0, 8)])
    assert await waiting
    assert await manager.changed(5.0, since=version)
    await manager.close()


async def test_an_absent_swarm_is_an_error_within_the_deadline() -> None:
    manager = await _manager(_Fed(None))
    with pytest.raises(Unreachable, match="did not answer within"):
        await manager.make_sequence(0, 8)
    with pytest.raises(Unreachable):
        await manager.refresh()
    with pytest.raises(InvalidArgument, match="not a range"):
        await manager.make_sequence(3, 9)
    await manager.close()


class _Answering(pb_grpc.BlockServerServicer):
    def __init__(self, fingerprint: str) -> None:
        self._fingerprint = fingerprint

    async def Info(self, request: pb.InfoRequest, context: object) -> pb.InfoResponse:
        return pb.InfoResponse(fingerprint=self._fingerprint)


async def test_servers_that_answer_are_preferred_and_their_channels_are_warm() -> None:
    servers, views = [], []
    for name, fingerprint in (("near", _FINGERPRINT), ("wrong", "cd" * 32)):
        server = grpc.aio.server()
        pb_grpc.add_BlockServerServicer_to_server(_Answering(fingerprint), server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        servers.append(server)
        views.append(_view(name, 0, 8, address=f"127.0.0.1:{port}"))
    views.append(_view("fast-but-dead", 0, 8, inference_rps=1e6))
    manager = await _manager(_Fed(views))
    assert await _route(manager) == ["near 0:8"]
    address = views[0].record.address if views[0].record else ""
    assert manager.channel(address) is manager.channel(address)
    assert manager.channel(address).get_state() is grpc.ChannelConnectivity.READY
    await manager.close()
    for server in servers:
        await server.stop(None)
