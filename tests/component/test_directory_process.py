"""Directories as real processes: their API, their death and return, their command line."""

import asyncio
import signal
import subprocess
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from shutil import which

import grpc.aio
import psutil
import pytest
from directory_process import DirectoryProcess, free_port
from test_dht_node import eventually, record

from blockswarm.discovery.dht import DhtDiscovery
from blockswarm.discovery.directory import DirectoryDiscovery
from blockswarm.discovery.door import Discovery
from blockswarm_dht.directories import find_peers
from blockswarm_dht.node import SwarmNode
from blockswarm_services.server.directories import Directories
from blockswarm_wire.errors import InvalidArgument, Unreachable
from blockswarm_wire.record import ServerView, State, Statement
from blockswarm_wire.v1 import directory_pb2 as pb
from blockswarm_wire.v1 import directory_pb2_grpc as pb_grpc

_KEY = record().model_key


@pytest.fixture
def directories(tmp_path: Path) -> Iterator[list[DirectoryProcess]]:
    """Two directories, the second of which joins the first."""
    first = DirectoryProcess(tmp_path, "first")
    peers = tuple(first.start()["peers"])
    second = DirectoryProcess(tmp_path, "second", peers=peers)
    second.start()
    yield [first, second]
    for process in (first, second):
        process.kill()


@pytest.fixture
async def server(directories: list[DirectoryProcess]) -> AsyncIterator[SwarmNode]:
    """A node that holds a record, as a block server does."""
    targets = [process.address for process in directories]
    node = await SwarmNode.create(listen="127.0.0.1:0", find_peers=find_peers(targets))
    yield node
    await node.shutdown()


def _ids(views: list[ServerView]) -> list[str]:
    return [view.server_id for view in views]


async def _sees(discovery: DirectoryDiscovery | DhtDiscovery, server_id: str) -> bool:
    try:
        return server_id in _ids(await discovery.lookup(_KEY, 8))
    except Unreachable:
        return False


async def test_both_doors_give_the_same_records(
    directories: list[DirectoryProcess], server: SwarmNode
) -> None:
    assert await server.store_server(record())
    first, second = (DirectoryDiscovery(process.address) for process in directories)
    doors: list[Discovery] = [first, second, DhtDiscovery(await first.peers())]
    try:
        views = [await door.lookup(_KEY, 8) for door in doors]
        assert views[0] == views[1] == views[2]
        assert _ids(views[0]) == ["s1"]
        models = [await door.models() for door in doors]
        assert models[0] == models[1] == models[2] != []
    finally:
        for door in doors:
            await door.close()


async def test_a_statement_is_shown_before_the_dht_has_it(
    directories: list[DirectoryProcess], server: SwarmNode
) -> None:
    statement = Statement(server_id="s9", state=State.JOINING, issued_at=time.time())
    entry = pb.Entry(server_id="s9", statement=statement.encode())
    async with grpc.aio.insecure_channel(directories[0].address) as channel:
        stub = pb_grpc.DirectoryStub(channel)
        watch = stub.Watch(pb.LookupRequest(model_key=_KEY))
        assert not (await asyncio.wait_for(watch.read(), 5)).entries
        published = asyncio.ensure_future(stub.Publish(pb.PublishRequest(model_key=_KEY, entries=[entry])))
        seen = await asyncio.wait_for(watch.read(), 1)
        assert [item.server_id for item in seen.entries] == ["s9"]
        assert (await published).stored == 1
        found = await stub.Lookup(pb.LookupRequest(model_key=_KEY), timeout=5)
        assert list(found.entries) == list(seen.entries)


async def test_a_server_shows_itself_to_every_directory(tmp_path: Path) -> None:
    """Two that know nothing of each other, so that neither can have it from the DHT; a third is away."""
    alone = [DirectoryProcess(tmp_path, name) for name in ("one", "other")]
    for process in alone:
        process.start()
    away = f"127.0.0.1:{free_port()}"
    try:
        await Directories([away, *(process.address for process in alone), "name.invalid:1"]).show(record())
        for process in alone:
            door = DirectoryDiscovery(process.address)
            assert await _sees(door, "s1")
            await door.close()
        entry = pb.Entry(server_id="s1", record=record().encode())
        async with grpc.aio.insecure_channel(alone[0].address) as channel:
            for _ in ("the server's", "what the operator relays"):
                answer = await pb_grpc.DirectoryStub(channel).Publish(_publish(entry), timeout=5)
                assert answer.stored == 0, "records are stored by their servers"
    finally:
        for process in alone:
            process.kill()


def _publish(*entries: pb.Entry) -> pb.PublishRequest:
    return pb.PublishRequest(model_key=_KEY, entries=entries)


async def test_bad_publishes_are_named_errors(directories: list[DirectoryProcess]) -> None:
    ahead = record(issued_at=time.time() + 1e6)
    bad = [
        (pb.PublishRequest(model_key="nonsense"), "not a model key"),
        (_publish(), "entries"),
        (_publish(pb.Entry(server_id="x")), "neither record nor statement"),
        (_publish(pb.Entry(server_id="x", record=b"\xc1")), "msgpack"),
        (_publish(pb.Entry(server_id="other", record=record().encode())), "differs"),
        (_publish(pb.Entry(server_id="s1", record=ahead.encode())), "clock skew"),
    ]
    async with grpc.aio.insecure_channel(directories[0].address) as channel:
        for request, text in bad:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await pb_grpc.DirectoryStub(channel).Publish(request, timeout=5)
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert text in (caught.value.details() or "")
    door = DirectoryDiscovery(directories[0].address)
    with pytest.raises(InvalidArgument, match="not a model key"):
        await door.lookup("nonsense", 8)
    await door.close()


async def test_after_the_loss_of_every_directory_records_are_back_within_15_s(
    directories: list[DirectoryProcess], server: SwarmNode
) -> None:
    by_grpc = DirectoryDiscovery([process.address for process in directories])
    by_dht = DhtDiscovery(await by_grpc.peers())
    changes: list[list[str]] = []
    watch = by_grpc.watch(_KEY, 8, lambda views: changes.append(_ids(views)))
    assert await server.store_server(record())
    for door in (by_grpc, by_dht):
        await eventually(lambda door=door: _sees(door, "s1"), 5)
    for process in directories:
        process.kill()

    async def lonely() -> bool:
        return server.connected == 0 or server.missing_peers > 0

    await eventually(lonely, 10)
    assert _ids(await by_grpc.lookup(_KEY, 8)) == ["s1"], "the last view stays"
    assert by_grpc.stale
    assert not await server.store_server(record("s2", 3, 8))
    for process in directories:
        process.start()
    started = time.monotonic()
    for door in (
        DirectoryDiscovery(directories[0].address),
        DirectoryDiscovery(directories[1].address),
        by_dht,
    ):
        await eventually(lambda door=door: _sees(door, "s2"), 15)
        if door is not by_dht:
            await door.close()

    async def watched() -> bool:
        return changes[-1] == ["s1", "s2"]

    await eventually(watched, 15 - (time.monotonic() - started))
    assert [] not in changes[1:], "a restarted directory's ignorance is not passed on"
    watch.cancel()
    await by_grpc.close()
    await by_dht.close()


async def test_a_directory_that_left_is_replaced_by_the_next(directories: list[DirectoryProcess]) -> None:
    door = DirectoryDiscovery(",".join(process.address for process in directories))
    assert await door.lookup(_KEY, 8) == []
    directories[0].kill()
    assert await door.lookup(_KEY, 8) == []
    assert not door.stale
    await door.close()


async def test_nobody_there_says_what_to_check() -> None:
    door = DirectoryDiscovery("127.0.0.1:9")
    with pytest.raises(Unreachable, match=r"no directory answers \(127.0.0.1:9"):
        await door.lookup(_KEY, 8)
    await door.close()


async def test_metrics_pass_promtool_and_show_coverage(
    directories: list[DirectoryProcess], server: SwarmNode
) -> None:
    assert await server.store_server(record(end=8))
    door = DirectoryDiscovery(directories[0].address)
    await door.lookup(_KEY, 8)
    await door.models()
    text = await asyncio.to_thread(_read, f"http://{directories[0].metrics}/metrics")
    assert f'blockswarm_coverage_min{{model="{_KEY}"}} 1.0' in text
    assert f'blockswarm_block_coverage{{block="7",model="{_KEY}"}} 1.0' in text
    assert "blockswarm_directory_peers 2.0" in text
    if which("promtool"):
        lint = ["promtool", "check", "metrics"]
        await asyncio.to_thread(subprocess.run, lint, input=text.encode(), check=True, timeout=20)
    assert (await asyncio.to_thread(_read, f"http://{directories[0].metrics}/readyz")) == "ok\n"
    await door.close()


def _read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=5) as answer:
        text: str = answer.read().decode()
    return text


def test_sigterm_ends_in_order_and_kill_leaves_nothing(tmp_path: Path) -> None:
    process = DirectoryProcess(tmp_path, "lone")
    process.start()
    family = process.family()
    assert len(family) == 2, "the directory and its p2pd"
    assert process.signal(signal.SIGTERM) == 0
    assert psutil.wait_procs(family, timeout=5)[1] == []
    process.start()
    family = process.family()
    process.kill()
    assert psutil.wait_procs(family, timeout=5)[1] == []


def test_the_death_of_p2pd_ends_the_directory(tmp_path: Path) -> None:
    process = DirectoryProcess(tmp_path, "lone")
    process.start()
    process.family()[1].kill()
    assert process._process is not None
    assert process._process.wait(10) == 1
    assert "p2pd, the DHT daemon, ended" in process.log()


@pytest.mark.parametrize("flag", ["--listen", "--metrics-listen", "--dht-listen"])
def test_a_port_in_use_is_one_line_and_status_2(tmp_path: Path, flag: str) -> None:
    running = DirectoryProcess(tmp_path, "running")
    facts = running.start()
    taken = {
        "--listen": facts["address"],
        "--metrics-listen": facts["metrics"],
        "--dht-listen": "127.0.0.1:" + facts["peers"][0].split("/")[4],
    }[flag]
    try:
        second = DirectoryProcess(tmp_path, "second", extra=(flag, taken))
        ended = subprocess.run(second._arguments, capture_output=True, timeout=30, check=False)
    finally:
        running.kill()
    assert ended.returncode == 2
    last = ended.stderr.decode().strip().splitlines()[-1]
    assert last.startswith(f"blockswarm-directory: {flag} {taken}: ")
    assert "in use" in last
