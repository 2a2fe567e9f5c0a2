"""What Prometheus would read: promtool accepts it, and it tells the truth about the KV cache."""

import shutil
import subprocess
import urllib.request

import pytest
import torch

from swarm_processes import wait_for

SERVER_SERIES = {
    "kv_cache_used_tokens",
    "kv_cache_capacity_tokens",
    "kv_cache_used_bytes",
    "kv_cache_capacity_bytes",
    "kv_cache_occupancy_ratio",
    "sessions_active",
    "steps_queued",
    "step_seconds",
    "tokens_total",
    "sessions_lost_total",
    "model_load_seconds",
    "server_info",
}


@pytest.fixture(scope="module")
def promtool():
    found = shutil.which("promtool")
    if found is None:
        pytest.fail("promtool is missing: install Prometheus (Debian: apt-get install prometheus)")
    return found


def read(process) -> str:
    with urllib.request.urlopen(f"http://{process.facts()['metrics']}/metrics", timeout=5) as answer:
        return answer.read().decode()


def endpoints(swarm):
    return [swarm.directory, *swarm.servers.values()]


def names(text: str) -> set[str]:
    return {
        line.split()[2].removeprefix("blockswarm_") for line in text.splitlines() if line.startswith("# TYPE")
    }


def test_promtool_accepts_every_endpoint(swarm, promtool):
    for process in endpoints(swarm):
        checked = subprocess.run(
            [promtool, "check", "metrics"],
            input=read(process),
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert (checked.returncode, checked.stdout + checked.stderr) == (0, ""), process.name


def test_every_series_of_a_server_exists_before_anything_happens(swarm):
    for process in swarm.servers.values():
        found = names(read(process))
        missing = {name for name in SERVER_SERIES if not {name, name.removesuffix("_total")} & found}
        assert not missing


def test_the_directory_shows_coverage(swarm):
    samples = swarm.directory.metrics()
    coverage = {
        name: value for name, value in samples.items() if name.startswith("blockswarm_block_coverage")
    }
    assert len(coverage) == 30
    assert set(coverage.values()) == {2.0}
    assert [value for name, value in samples.items() if name.startswith("blockswarm_coverage_min")] == [2.0]


def used(swarm) -> dict[str, float]:
    return {
        name: process.metrics()["blockswarm_kv_cache_used_tokens"] for name, process in swarm.servers.items()
    }


def test_used_tokens_are_those_that_open_sessions_hold(model, swarm):
    wait_for(lambda: not any(used(swarm).values()), timeout=10, what="sessions of earlier tests are closed")
    hidden = torch.zeros(1, 50, model.config.hidden_size)
    with torch.inference_mode(), model.inference_session(max_length=128) as session:
        session.step(hidden)
        chain = {hop.server_id for hop in session.chain}
        assert used(swarm) == {name: 50.0 if name in chain else 0.0 for name in swarm.servers}

        with model.inference_session(max_length=64) as second:
            second.step(hidden[:, :7].expand(3, -1, -1))
            assert sum(used(swarm).values()) == len(session.chain) * 50 + len(second.chain) * 3 * 7
        wait_for(lambda: sum(used(swarm).values()) == 150, timeout=5, what="the second session is freed")

        session.position = 20
        session.step(hidden[:, :1])
        assert sum(used(swarm).values()) == len(session.chain) * 21

        for name in chain:
            samples = swarm.servers[name].metrics()
            capacity = samples["blockswarm_kv_cache_capacity_tokens"]
            assert capacity == 32768
            assert samples["blockswarm_kv_cache_occupancy_ratio"] == pytest.approx(21 / capacity)
            per_token = samples["blockswarm_kv_cache_capacity_bytes"] / capacity
            assert samples["blockswarm_kv_cache_used_bytes"] == 21 * per_token
            assert samples["blockswarm_sessions_active"] == 1
    wait_for(lambda: not any(used(swarm).values()), timeout=5, what="all is freed")
