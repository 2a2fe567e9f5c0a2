"""SwarmNode over real p2pd processes: joining, repair, read-back, refusals, merging, death."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import psutil
import pytest
from directory_process import free_port

from blockswarm_dht.hivemind_core import DHTID, P2P, PeerID
from blockswarm_dht.node import SwarmNode
from blockswarm_wire.errors import InvalidArgument
from blockswarm_wire.record import ServerRecord, State, Statement, block_key

_FINGERPRINT = "ab" * 32


def record(
    server_id: str = "s1", start: int = 0, end: int = 3, *, issued_at: float | None = None
) -> ServerRecord:
    return ServerRecord(
        server_id=server_id,
        state=State.ONLINE,
        model="demo",
        num_blocks=8,
        start=start,
        end=end,
        address="127.0.0.1:31330",
        instance="i1",
        fingerprint=_FINGERPRINT,
        issued_at=time.time() if issued_at is None else issued_at,
    )


_KEY = record().model_key


async def eventually(condition: Callable[[], Awaitable[bool]], seconds: float) -> float:
    """Wait until the condition holds; how long it took."""
    started = time.monotonic()
    while not await condition():
        assert time.monotonic() - started < seconds, "did not come true in time"
        await asyncio.sleep(0.05)
    return time.monotonic() - started


@pytest.fixture
async def nodes() -> AsyncIterator[list[SwarmNode]]:
    made: list[SwarmNode] = []
    yield made
    await asyncio.gather(*(node.shutdown() for node in made))


async def _node(nodes: list[SwarmNode], **options: object) -> SwarmNode:
    node = await SwarmNode.create(**{"listen": "127.0.0.1:0", **options})  # type: ignore[arg-type]
    nodes.append(node)
    return node


def _identity(folder: Path, name: str) -> tuple[Path, str, str]:
    """A key file, a listening address and the multiaddr that both will have."""
    path, port = folder / name, free_port()
    P2P.generate_identity(str(path))
    peer = PeerID.from_identity(path.read_bytes()).to_base58()
    return path, f"127.0.0.1:{port}", f"/ip4/127.0.0.1/tcp/{port}/p2p/{peer}"


async def test_records_and_statements_reach_every_kind_of_node(nodes: list[SwarmNode]) -> None:
    first = await _node(nodes)
    server = await _node(nodes, initial_peers=first.peers)
    client = await _node(nodes, listen=None, client_mode=True, initial_peers=first.peers)
    told: list[str] = []
    first.on_found = lambda found: told.append(found.model_key)
    mine = record()
    assert await server.store_server(mine)
    joining = Statement(server_id="s2", state=State.JOINING, issued_at=time.time(), reason="pod pending")
    assert await first.store_statements(_KEY, [joining]) == 1
    for node in (first, server, client):
        assert await node.lookup(_KEY, 8) == [(mine, None, "s1"), (None, joining, "s2")]
        assert [entry.key for entry in await node.models()] == [_KEY]
    assert _KEY in told
    assert client.peers == []


async def test_a_store_with_nobody_there_is_not_believed(nodes: list[SwarmNode]) -> None:
    lone = await _node(nodes)
    assert not await lone.store_server(record())
    assert lone.connected == 0
    client = await _node(nodes, listen=None, client_mode=True)
    assert not await client.store_server(record("s2"))
    assert await client.lookup(_KEY, 8) == []


async def test_clock_skew_and_repeats_are_named(nodes: list[SwarmNode]) -> None:
    node = await _node(nodes)
    with pytest.raises(InvalidArgument, match="clock skew"):
        await node.store_server(record(issued_at=time.time() + 10))
    with pytest.raises(InvalidArgument, match="expired"):
        await node.store_server(record(issued_at=time.time() - 40))
    same = record()
    await node.store_server(same)
    with pytest.raises(InvalidArgument, match="later than the last one"):
        await node.store_server(same)


async def test_forged_values_are_refused_over_the_network(nodes: list[SwarmNode]) -> None:
    honest = await _node(nodes)
    hostile = await _node(nodes, initial_peers=honest.peers)
    mine = record()
    assert await hostile.store_server(mine)
    raw = hostile._node
    key, value = DHTID.generate(source=block_key(_KEY, 0)), raw.protocol.serializer.dumps(mine.encode())
    forged = [
        (key, "s2", value, mine.expires_at),
        (key, "s1", value, float("nan")),
        (key, "s1", value, float("inf")),
        (key, "s1", value, mine.expires_at - 20),
        (DHTID.generate(source=block_key(_KEY, 7)), "s1", value, mine.expires_at),
        (DHTID.generate(source="junk"), "x", b"\x00" * 500_000, mine.expires_at),
    ]
    for where, subkey, data, expires in forged:
        answer = await raw.protocol.call_store(
            honest._node.peer_id, [where], [data], [expires], subkeys=[subkey]
        )
        assert not any(answer or [])
    assert await honest.lookup(_KEY, 8) == [(mine, None, "s1")]


async def test_nodes_start_before_their_peers_and_join_when_these_come(
    nodes: list[SwarmNode], tmp_path: Path
) -> None:
    key, listen, multiaddr = _identity(tmp_path, "late.key")
    server = await _node(nodes, initial_peers=[multiaddr])
    assert server.connected == 0
    assert server.missing_peers == 1
    assert not await server.store_server(record())
    late = await _node(nodes, listen=listen, identity_path=key)

    async def visible() -> bool:
        return len(await late.lookup(_KEY, 8)) == 1

    assert await eventually(visible, 15) < 8
    assert server.missing_peers == 0


async def test_two_that_started_apart_become_one(nodes: list[SwarmNode], tmp_path: Path) -> None:
    ends = [_identity(tmp_path, name) for name in ("a.key", "b.key")]
    for (key, listen, _), (_, _, other) in zip(ends, reversed(ends), strict=True):
        await _node(nodes, listen=listen, identity_path=key, initial_peers=[other])
    first, second = nodes
    # A server that knows only one of them.
    server = await _node(nodes, initial_peers=[ends[1][2]])

    async def one() -> bool:
        return first.missing_peers == second.missing_peers == 0

    await eventually(one, 15)
    assert await server.store_server(record())
    assert [row[2] for row in await first.lookup(_KEY, 8)] == ["s1"]


async def test_a_member_that_lost_its_routing_table_gets_it_back(nodes: list[SwarmNode]) -> None:
    first = await _node(nodes)
    server = await _node(nodes, initial_peers=first.peers)
    table = server._node.protocol.routing_table
    for node_id in list(table.uid_to_peer_id):
        del table[node_id]
    assert server.connected == 0

    async def back() -> bool:
        return server.connected > 0

    await eventually(back, 10)


async def test_a_taken_port_names_the_flag(nodes: list[SwarmNode]) -> None:
    port = int((await _node(nodes)).peers[0].split("/")[4])
    with pytest.raises(InvalidArgument, match=f"--dht-listen 127.0.0.1:{port}: the port is in use"):
        await _node(nodes, listen=f"127.0.0.1:{port}")
    with pytest.raises(InvalidArgument, match="--peer 'nonsense'"):
        await _node(nodes, initial_peers=["nonsense"])


async def test_the_death_of_p2pd_is_told(nodes: list[SwarmNode]) -> None:
    node = await _node(nodes)
    told: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    node.on_p2pd_death = told.set_result
    os.kill(node.p2pd_pid, signal.SIGKILL)
    assert await asyncio.wait_for(told, 5) == -signal.SIGKILL
    assert not node.p2pd_alive


_HOLDER = """
    import asyncio, sys
    from blockswarm_dht.node import SwarmNode

    async def main():
        node = await SwarmNode.create(listen="127.0.0.1:0")
        print(node.p2pd_pid, flush=True)
        await asyncio.Event().wait()

    asyncio.run(main())
"""


def _anonymous_mb(pid: int) -> float:
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    line = next(line for line in rollup.splitlines() if line.startswith("Anonymous:"))
    return int(line.split()[1]) / 1024


def test_p2pd_dies_with_its_parent_and_the_pair_is_small() -> None:
    parent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(_HOLDER)], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    try:
        daemon = psutil.Process(int(parent.stdout.readline()))
        assert psutil.Process(parent.pid).children(recursive=True) == [daemon], "no process but p2pd"
        assert daemon.name().startswith("p2pd")
        used = _anonymous_mb(parent.pid) + _anonymous_mb(daemon.pid)
        assert used < 120, f"{used:.0f} MB"
    finally:
        parent.kill()
        parent.wait(10)
        parent.stdout.close()
    daemon.wait(5)


def test_the_node_loads_no_torch_and_a_later_import_of_hivemind_works() -> None:
    script = """
        import sys
        import blockswarm_dht.node
        assert "torch" not in sys.modules, "torch"
        assert not {"hivemind", "hivemind.dht", "hivemind.utils"} & set(sys.modules)
        import hivemind.dht
        assert hivemind.dht.DHTNode is blockswarm_dht.node.DHTNode
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, timeout=100)
