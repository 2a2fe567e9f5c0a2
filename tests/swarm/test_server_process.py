"""A block server as a process: what it costs, how it leaves, and how it says that it cannot start."""

import json
import shutil
import signal
import socket
import time
from pathlib import Path

import psutil
import pytest
import torch

from blockswarm import loop
from blockswarm.config import ClientConfig
from blockswarm.discovery.choose import open_discovery
from blockswarm.routing.manager import RemoteSequenceManager
from blockswarm.session import InferenceSession, SessionLost
from swarm_processes import SwarmProcesses, wait_for
from tiny_model import tiny_llama

HIDDEN = 64


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Path:
    torch.set_num_threads(1)
    return tiny_llama(tmp_path_factory.mktemp("tiny") / "model", blocks=4)


@pytest.fixture
def lone(tmp_path, tiny):
    with SwarmProcesses(tmp_path, tiny) as made:
        made.start_directory()
        yield made


def manager_of(swarm: SwarmProcesses, **settings) -> RemoteSequenceManager:
    """The client's view of the only model of the swarm."""
    config = ClientConfig(directory=swarm.target, **settings)
    discovery = open_discovery(config)
    (model,) = loop.run(discovery.models())
    return RemoteSequenceManager(discovery, model, config=config)


def inputs(tokens: int, seed: int, size: int = HIDDEN) -> torch.Tensor:
    return torch.randn(1, tokens, size, generator=torch.Generator().manual_seed(seed))


def anonymous_bytes(pid: int) -> int:
    """Anonymous resident memory of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))


def test_memory_processes_and_kv_of_a_server_of_ten_real_blocks(tmp_path, model_folder):
    with SwarmProcesses(tmp_path, model_folder) as swarm:
        swarm.start_directory()
        server = swarm.start_server("a", "0:10", threads=2)
        server.facts()
        manager = manager_of(swarm)
        for request in range(50):
            with InferenceSession(manager, 128, start=0, end=10) as session:
                session.step(inputs(32, request, 576))
                for step in range(4):
                    session.step(inputs(1, step, 576))
        with InferenceSession(manager, 2048, start=0, end=10) as session:
            session.step(inputs(10, 0, 576))
            for step in range(40):
                session.step(inputs(1, step, 576))
            samples = server.metrics()
            assert samples["blockswarm_kv_cache_used_tokens"] == 50
            held, used = (
                samples["blockswarm_kv_cache_allocated_bytes"],
                samples["blockswarm_kv_cache_used_bytes"],
            )
            assert used == 50 * 10 * 2 * 3 * 64 * 4
            assert held <= 1.3 * used, f"{held / used:.2f} x the tokens that the session has"
        family = [psutil.Process(server.pid), *psutil.Process(server.pid).children(recursive=True)]
        names = [process.name() for process in family]
        anonymous = sum(anonymous_bytes(process.pid) for process in family)
        weights = 10 * 3_540_096 * 4
        print(f"\nprocesses {names}, anonymous {anonymous / 1e6:.0f} MB, weights {weights / 1e6:.0f} MB")
        assert len([name for name in names if name != "p2pd"]) <= 2
        assert anonymous <= 1.2 * weights + 250e6
        server.kill()
        wait_for(
            lambda: not any(process.is_running() and process.status() != "zombie" for process in family),
            timeout=5,
            what="no process is left after SIGKILL of the server",
        )


def test_sigterm_moves_idle_sessions_and_the_server_leaves_by_itself(lone):
    first = lone.start_server("a", "0:4", drain_seconds=60)
    first.facts()
    manager = manager_of(lone)
    with InferenceSession(manager, 64) as session:
        want = [session.step(inputs(3, 0)), session.step(inputs(1, 1)), session.step(inputs(1, 2))]
        session.position = 0
        got = [session.step(inputs(3, 0)), session.step(inputs(1, 1))]
        lone.start_server("b", "0:4").facts()
        wait_for(lambda: len(manager.servers) == 2, timeout=15, what="the client knows both servers")
        began = time.monotonic()
        assert first.stop(timeout=30) == 0
        assert time.monotonic() - began < 30, "it waited for its deadline although its session could move"
        assert [hop.server_id for hop in session.chain] == ["b"]
        assert (session.stats.moves, session.stats.failovers) == (1, 0)
        got.append(session.step(inputs(1, 2)))
    assert all(map(torch.equal, got, want))


def test_a_draining_server_refuses_new_sessions_and_a_lone_one_serves_until_its_deadline(lone):
    server = lone.start_server("a", "0:4", drain_seconds=4)
    server.facts()
    manager = manager_of(lone, failover_timeout=60.0)
    with InferenceSession(manager, 64) as session:
        session.step(inputs(3, 0))
        server.send(signal.SIGTERM)
        wait_for(lambda: "draining" in server.tail(), timeout=5, what="the server drains")
        session.step(inputs(1, 1))
        assert session.stats.failovers == 0
        impatient = manager_of(lone, failover_timeout=1.0)
        with InferenceSession(impatient, 64) as other, pytest.raises(SessionLost) as lost:
            other.step(inputs(1, 0))
        assert "Attempts" in str(lost.value)
        assert server.popen is not None
        assert server.popen.wait(20) == 0
        lone.start_server("a", "0:4").facts()
        assert session.step(inputs(1, 2)).shape == (1, 1, HIDDEN)
        assert session.stats.failovers == 1


def test_no_replica_at_all_is_told_after_the_failover_timeout_and_the_session_can_go_on_later(lone):
    server = lone.start_server("a", "0:4")
    server.facts()
    manager = manager_of(lone, failover_timeout=3.0)
    with InferenceSession(manager, 64) as session:
        want = [session.step(inputs(3, 0)), session.step(inputs(1, 1))]
        session.position = 3
        server.kill()
        began = time.monotonic()
        with pytest.raises(SessionLost) as lost:
            session.step(inputs(1, 1))
        assert time.monotonic() - began < 15
        assert "blocks 0:4" in str(lost.value)
        assert "on a: Unreachable" in str(lost.value)
        server.start().facts()
        again = session.step(inputs(1, 1))
        assert torch.equal(again, want[1])


def test_a_server_ends_with_its_p2pd_and_writes_why(lone, tmp_path):
    message = tmp_path / "termination"
    message.touch()
    server = lone.start_server("a", "0:4", env={"BLOCKSWARM_TERMINATION_LOG": str(message)})
    server.facts()
    (p2pd,) = [child for child in psutil.Process(server.pid).children() if child.name() == "p2pd"]
    p2pd.kill()
    assert server.popen is not None
    assert server.popen.wait(15) == 1
    assert "p2pd died" in message.read_text()


def test_a_server_that_is_stopped_while_it_loads_leaves_at_once(lone):
    server = lone.start_server("a", "0:4")
    wait_for(
        lambda: "DHT peer joined" in server.tail(), timeout=60, what="the server has joined", every=0.005
    )
    assert server.stop(timeout=20) == 0
    assert "Traceback" not in server.tail()


def run_to_end(swarm: SwarmProcesses, name: str, blocks: str, *more: str) -> tuple[int, str]:
    process = swarm.start_server(name, blocks)
    process.kill()
    process.command += more
    process.log.unlink()
    process.start()
    assert process.popen is not None
    return process.popen.wait(60), process.tail()


@pytest.mark.parametrize(
    ("blocks", "more", "text"),
    [
        ("0:4", ("--listen", "127.0.0.1:{taken}"), "--listen: cannot listen on"),
        ("0:4", ("--metrics-listen", "127.0.0.1:{taken}"), "--metrics-listen: cannot listen on"),
        ("0:4", ("--dht-listen", "127.0.0.1:{taken}"), "--dht-listen"),
        ("0:9", (), "0:9 reaches beyond the model's 4 blocks"),
        ("4:2", (), "--blocks"),
        ("0:4", ("--model", "/nowhere/at/all"), "/nowhere/at/all"),
        ("0:4", ("--device", "cuda:99"), "--device: cuda:99"),
        ("0:4", ("--device", "abacus"), "--device: 'abacus'"),
    ],
    ids=[
        "gRPC port",
        "metrics port",
        "DHT port",
        "beyond the model",
        "empty span",
        "no model",
        "no such GPU",
        "no device",
    ],
)
def test_a_server_that_cannot_start_says_why_in_one_line_and_exits_with_two(lone, blocks, more, text):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        status, log = run_to_end(lone, "a", blocks, *(word.format(taken=port) for word in more))
    assert status == 2, log
    (line,) = [line for line in log.splitlines() if line.startswith("blockswarm-server:")]
    assert text in line
    assert "Traceback" not in log


def test_a_model_that_cannot_be_served_ends_with_two(lone, tiny, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(tiny, other)
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "model_type": "mamba2"}))
    status, log = run_to_end(lone, "a", "0:4", "--model", str(other))
    assert status == 2, log
    assert "mamba2" in log.splitlines()[-1]
