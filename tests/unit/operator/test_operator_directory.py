"""The directory as the operator uses it, against real gRPC servers in this process."""

import asyncio
import contextlib
import time
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from operator_objects import FINGERPRINT, MODEL_KEY, record

from blockswarm_operator import directory as module
from blockswarm_operator.directory import Directory, DirectoryUnreachable
from blockswarm_wire import addresses
from blockswarm_wire.errors import Unreachable
from blockswarm_wire.fingerprint import model_key
from blockswarm_wire.record import State, Statement
from blockswarm_wire.span import Span
from blockswarm_wire.v1 import directory_pb2 as pb
from blockswarm_wire.v1 import directory_pb2_grpc

SPAN = Span(0, 10)
OTHER_KEY = model_key("demo", "cd" * 32)


class Stub(directory_pb2_grpc.DirectoryServicer):
    """One directory: what it shows is set by the test."""

    def __init__(self):
        self.models = [_model(MODEL_KEY)]
        self.entries: dict[str, dict[str, pb.Entry]] = {MODEL_KEY: {}}
        self.published: list[pb.PublishRequest] = []
        self.stored = 1
        self.hangs = False
        self.watchers = 0
        self._news = asyncio.Condition()
        self._server: Any = None
        self.address = ("127.0.0.1", 0)

    async def start(self, port=0):
        self._server = grpc.aio.server()
        directory_pb2_grpc.add_DirectoryServicer_to_server(self, self._server)
        self.address = ("127.0.0.1", self._server.add_insecure_port(f"127.0.0.1:{port}"))
        await self._server.start()
        return self

    async def stop(self):
        await self._server.stop(None)

    async def show(self, *entries, key=MODEL_KEY):
        async with self._news:
            self.entries[key] = {one.server_id: one for one in entries}
            self._news.notify_all()

    async def Models(self, request, context):
        await self._maybe_hang()
        return pb.ModelsResponse(models=self.models)

    async def Lookup(self, request, context):
        return pb.LookupResponse(entries=self.entries.get(request.model_key, {}).values())

    async def Publish(self, request, context):
        await self._maybe_hang()
        self.published.append(request)
        return pb.PublishResponse(stored=self.stored)

    async def Watch(self, request, context):
        self.watchers += 1
        try:
            while True:
                yield pb.LookupResponse(entries=self.entries.get(request.model_key, {}).values())
                async with self._news:
                    await self._news.wait()
        finally:
            self.watchers -= 1

    async def _maybe_hang(self):
        if self.hangs:
            await asyncio.Event().wait()


def _model(key, name="demo"):
    return pb.Model(key=key, name=name, num_blocks=100, fingerprint=FINGERPRINT)


def _entry(server_id="a", **values):
    made = record(server_id, SPAN, issued_at=time.time(), **values)
    return pb.Entry(server_id=server_id, record=made.encode())


def _said(server_id="a", state=State.JOINING, **values):
    return Statement(server_id=server_id, state=state, **{"issued_at": time.time(), **values})


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(module, "_RETRY_SECONDS", 0.01)


@pytest.fixture
async def stubs():
    """Three directories."""
    found = [await Stub().start() for _ in range(3)]
    yield found
    for one in found:
        await one.stop()


class Around:
    """A Directory and what it told."""

    def __init__(self, addresses):
        self.addresses = list(addresses)
        self.changed = []
        self.up = []
        self.directory = Directory(
            "dns:///directory.system.svc:31340", self.changed.append, up=self.up.append
        )
        self.ours = {"a"}

    def follow(self, model="m", name="demo"):
        self.directory.follow(model, name, lambda: self.ours)

    def known(self, model="m"):
        return self.directory.known(model)


@pytest.fixture
async def around(stubs, monkeypatch):
    made = Around([one.address for one in stubs])

    def look_up(target):
        assert target == "dns:///directory.system.svc:31340"
        if not made.addresses:
            raise Unreachable("no such name")
        return sorted(f"{host}:{port}" for host, port in made.addresses)

    monkeypatch.setattr(addresses, "_look_up", look_up)
    yield made
    await made.directory.close()


async def _until(condition, seconds=8):
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110  # what is waited for comes over the network
            await asyncio.sleep(0.005)


async def _all_show(stubs, *entries, key=MODEL_KEY):
    for one in stubs:
        await one.show(*entries, key=key)


async def test_a_model_is_known_by_the_record_of_one_of_our_servers(stubs, around):
    around.follow()
    await around.directory.first_answer("m")
    assert (around.known().key, around.known().reachable) == ("", True)
    # Another swarm has a model of the same name, and somebody else's server speaks under ours.
    for one in stubs:
        one.models = [_model(OTHER_KEY), _model(MODEL_KEY), _model(model_key("x", FINGERPRINT), name="x")]
        await one.show(_entry("stranger"), key=OTHER_KEY)
    await _all_show(stubs, _entry("a"))
    await _until(lambda: "a" in around.known().records)
    assert around.known().key == MODEL_KEY
    assert around.known().heard > 0
    assert "m" in around.changed
    assert around.up[-1] is True
    assert around.known().views(time.time())["a"].state is State.ONLINE


async def test_a_model_that_nobody_serves_yet_is_no_news(stubs, around):
    around.follow()
    await around.directory.first_answer("m")
    for _ in range(10):
        await asyncio.sleep(0.01)
    assert around.changed == []


async def test_changes_are_followed(stubs, around):
    await _all_show(stubs, _entry("a"))
    around.follow()
    await _until(lambda: "a" in around.known().records)
    around.changed.clear()
    await _all_show(stubs, _entry("a", sessions=3), _entry("b"))
    await _until(lambda: "b" in around.known().records)
    assert around.known().records["a"].sessions == 3
    assert around.changed == ["m"]
    await _all_show(stubs, _entry("a"))
    await _until(lambda: "b" not in around.known().records)


async def test_renewals_and_load_are_taken_but_are_no_news(stubs, around):
    await _all_show(stubs, _entry("a"))
    around.follow()
    await _until(lambda: "a" in around.known().records)
    around.changed.clear()
    await _all_show(stubs, _entry("a", sessions=3))
    await _until(lambda: around.known().records["a"].sessions == 3)
    assert around.changed == []
    await _all_show(stubs, _entry("a", sessions=3, state=State.DRAINING))
    await _until(lambda: around.changed == ["m"])


async def test_malformed_entries_are_ignored(stubs, around):
    await _all_show(
        stubs,
        _entry("a"),
        pb.Entry(server_id="b", record=b"\xff"),
        pb.Entry(server_id="c", record=record("d", SPAN, issued_at=time.time()).encode()),
        pb.Entry(server_id="e", statement=b"x"),
    )
    for one in stubs:
        one.models.insert(0, pb.Model(key="???", name="demo", num_blocks=0, fingerprint="no"))
    around.follow()
    await _until(lambda: around.known().records)
    assert around.known().records.keys() == {"a"}


async def test_the_newest_statement_counts_and_old_ones_go(stubs, around):
    now = time.time()
    old = pb.Entry(server_id="old", statement=_said("old", issued_at=now - 60).encode())
    mine = pb.Entry(server_id="a", record=_entry("a").record, statement=_said(state=State.DRAINING).encode())
    await _all_show(stubs, mine, old)
    around.follow()
    await _until(lambda: "a" in around.known().stated)
    assert "old" not in around.known().stated
    assert around.known().views(time.time())["a"].state is State.DRAINING
    # A directory that lags behind does not undo what we said ourselves.
    newer = _said(state=State.JOINING, issued_at=time.time())
    await around.directory.publish("m", {"a": newer})
    around.changed.clear()
    await _all_show(stubs, mine, _entry("b"))
    await _until(lambda: "b" in around.known().records)
    assert around.known().stated["a"] == newer


async def test_statements_go_to_all_directories_and_one_success_is_enough(stubs, around, monkeypatch):
    monkeypatch.setattr(module, "CALL_SECONDS", 0.3)
    await _all_show(stubs, _entry("a"))
    around.follow()
    await _until(lambda: around.known().key)
    said = {"a": _said(state=State.DRAINING, instance="run-a")}
    await around.directory.publish("m", said)
    assert all(len(one.published) == 1 for one in stubs)
    request = stubs[0].published[0]
    assert request.model_key == MODEL_KEY
    assert Statement.decode(request.entries[0].statement) == said["a"]
    assert around.known().stated["a"] == said["a"]
    # One hangs, one has no peer to hold it.
    stubs[0].hangs, stubs[1].stored = True, 0
    await around.directory.publish("m", {"a": _said()})
    stubs[2].stored = 0
    with pytest.raises(DirectoryUnreachable):
        await around.directory.publish("m", {"a": _said()})


async def test_nothing_is_stated_about_a_model_that_is_not_known(stubs, around):
    await around.directory.publish("m", {"a": _said()})
    around.follow()
    await around.directory.first_answer("m")
    await around.directory.publish("m", {"a": _said()})
    assert not any(one.published for one in stubs)


async def test_a_directory_that_goes_is_no_loss(stubs, around):
    await _all_show(stubs, _entry("a"))
    around.follow()
    await _until(lambda: sum(one.watchers for one in stubs) == 1)
    await _until(lambda: around.known().records)
    for _ in range(6):  # whichever it watches, again and again
        (watched,) = [one for one in stubs if one.watchers]
        port = watched.address[1]
        await watched.stop()
        await _until(lambda w=watched: any(one.watchers for one in stubs if one is not w))
        watched.watchers = 0
        await watched.start(port)
    assert False not in around.up
    assert around.known().reachable


async def test_none_is_left(stubs, around):
    await _all_show(stubs, _entry("a"))
    around.follow()
    await _until(lambda: around.known().records)
    around.changed.clear()
    for one in stubs:
        await one.stop()
    await _until(lambda: not around.known().reachable)
    assert around.changed[-1] == "m"
    assert around.up[-1] is False
    assert around.known().records.keys() == {"a"}  # the last that was heard
    # One comes back under another address.
    back = await Stub().start()
    await back.show(_entry("a"))
    around.addresses = [back.address]
    await _until(lambda: around.known().reachable)
    await back.stop()


async def test_a_name_that_leads_nowhere(around):
    around.addresses = []
    around.follow()
    async with asyncio.timeout(5):
        await around.directory.first_answer("m")
    await _until(lambda: not around.known().reachable)
    with pytest.raises(DirectoryUnreachable):
        await around.directory._addresses()


async def test_a_name_server_that_is_away_does_not_matter_once_addresses_are_known(stubs, around):
    await _all_show(stubs, _entry("a"))
    around.follow()
    await _until(lambda: around.known().records)
    around.addresses = []
    await around.directory.publish("m", {"a": _said()})
    assert any(one.published for one in stubs)


async def test_an_address_that_is_gone_ends_nobodys_following(stubs, around):
    """Its channel is closed under every model's stream, which gRPC tells as a cancellation."""
    await _all_show(stubs, _entry("a"))
    around.addresses = [stubs[0].address]
    for model in ("m", "n", "o"):
        around.follow(model)
    await _until(lambda: stubs[0].watchers == 3)
    around.addresses = [stubs[1].address]
    await around.directory.publish("m", {"a": _said()})  # looks the addresses up
    await _until(lambda: stubs[1].watchers == 3)
    await _all_show(stubs, _entry("a", sessions=7))
    await _until(lambda: all(around.known(m).records["a"].sessions == 7 for m in ("m", "n", "o")))


async def test_other_weights_have_another_key(stubs, around):
    await _all_show(stubs, _entry("a"))
    around.follow()
    await _until(lambda: around.known().key == MODEL_KEY)
    # The folder was exchanged and every server restarted.
    around.ours = {"b"}
    for one in stubs:
        one.models.append(_model(OTHER_KEY))
    await _all_show(stubs, key=MODEL_KEY)
    await _all_show(stubs, _entry("b", fingerprint="cd" * 32), key=OTHER_KEY)
    await _until(lambda: around.known().records.keys() == {"b"})
    assert around.known().key == OTHER_KEY


async def test_left_models_are_not_followed(stubs, around):
    await _all_show(stubs, _entry("a"))
    around.follow()
    around.follow()
    await _until(lambda: sum(one.watchers for one in stubs) == 1)
    await around.directory.leave("m")
    await _until(lambda: not any(one.watchers for one in stubs))
    assert around.known().key == ""
    await around.directory.leave("m")
    around.follow()
    await _until(lambda: around.known().records)


@contextlib.asynccontextmanager
async def _block_server():
    server = grpc.aio.server()
    servicer = health.aio.HealthServicer()  # type: ignore[attr-defined]
    await servicer.set("", health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


async def test_a_health_call_tells_whether_a_server_lives(around, monkeypatch):
    monkeypatch.setattr(module, "HEALTH_SECONDS", 0.5)
    async with _block_server() as address:
        assert await around.directory.healthy(address)
    assert not await around.directory.healthy(address)
    # One that takes the connection and says nothing, as a frozen process does.
    listener = await asyncio.start_server(lambda reader, writer: asyncio.sleep(60), "127.0.0.1", 0)
    host, port = listener.sockets[0].getsockname()
    assert not await around.directory.healthy(f"{host}:{port}")
    listener.close()


async def test_who_comes_online_is_shown_to_all_directories_before_anybody_is_told(stubs, around):
    """Else an old server could be let go of whose successor clients of another directory do not know yet."""
    await _all_show(stubs, _entry("a"))
    around.follow()
    await _until(lambda: around.known().records)
    assert not any(one.published for one in stubs), "what was there before is no news"
    told_before = []
    around.directory._changed = lambda model: told_before.append([len(one.published) for one in stubs])
    (watched,) = [one for one in stubs if one.watchers]
    await watched.show(_entry("a"), _entry("b", instance="new"))
    await _until(lambda: "b" in around.known().records and told_before)
    assert told_before[0] == [1, 1, 1]
    for one in stubs:
        (entry,) = one.published[0].entries
        assert (entry.server_id, entry.record != b"", entry.statement) == ("b", True, b"")
    await watched.show(_entry("a"), _entry("b", instance="new", sessions=3))
    await _until(lambda: around.known().records["b"].sessions == 3)
    assert [len(one.published) for one in stubs] == [1, 1, 1]
