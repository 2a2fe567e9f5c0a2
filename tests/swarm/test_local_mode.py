"""`blockswarm up`, `status` and `down` with real processes and a tiny model."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from swarm_processes import wait_for
from tiny_model import tiny_llama

SECONDS = 90.0
BLOCKS = 4
DOCUMENT = """
apiVersion: blockswarm.io/v1alpha1
kind: BlockServer
metadata: {{name: {name}}}
spec:
  model: {{name: tiny, source: {{path: model}}}}
  blocks: {{start: {start}, end: {end}}}
  replicas: {replicas}
  cache: {{tokens: 512}}
  compute: {{threads: 1}}
"""


@pytest.fixture(scope="module")
def manifests(tmp_path_factory):
    """A folder with a model and two manifests: of one server, and of two spans with three servers."""
    folder = tmp_path_factory.mktemp("local")
    tiny_llama(folder / "model", blocks=BLOCKS)
    (folder / "one.yaml").write_text(DOCUMENT.format(name="all", start=0, end=BLOCKS, replicas=1))
    (folder / "three.yaml").write_text(
        DOCUMENT.format(name="front", start=0, end=2, replicas=2)
        + "---"
        + DOCUMENT.format(name="back", start=1, end=BLOCKS, replicas=1)
    )
    return folder


class Machine:
    """The commands of one user with a state folder of their own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._environment = {**os.environ, "XDG_STATE_HOME": str(home), "COLUMNS": "200"}
        self._environment.pop("BLOCKSWARM_DIRECTORY", None)
        self.up_process: subprocess.Popen[bytes] | None = None

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            self._words(*words),
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    def up(self, manifest: Path) -> None:
        """Start in the foreground, and wait until the swarm is ready."""
        with (self.home / "up.out").open("wb") as output:
            words = self._words("up", "-f", str(manifest), "--listen", "127.0.0.1:0")
            self.up_process = subprocess.Popen(words, env=self._environment, stdout=output, stderr=output)
        wait_for(lambda: self.state().get("ready"), timeout=SECONDS, what="the swarm is ready")

    def _words(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "blockswarm.cli", *words]

    def state(self) -> dict:
        file = self.home / "blockswarm" / "swarm.json"
        return json.loads(file.read_text()) if file.exists() else {}

    def output(self) -> str:
        return (self.home / "up.out").read_text()

    def servers(self) -> dict[str, dict]:
        """What `status -o json` says, by server id."""
        answer = self.run("status", "-o", "json")
        assert answer.returncode == 0, answer.stderr
        return {
            server["id"]: server
            for model in json.loads(answer.stdout)["models"]
            for server in model["servers"]
        }

    def family(self) -> list[psutil.Process]:
        """All processes of the swarm, p2pd included."""
        return psutil.Process(self.state()["pid"]).children(recursive=True)


@pytest.fixture
def machine(tmp_path):
    made = Machine(tmp_path)
    yield made
    pid = made.state().get("pid")
    if pid is not None and psutil.pid_exists(pid):
        os.kill(pid, signal.SIGKILL)
    if made.up_process is not None:
        made.up_process.wait(SECONDS)


def assert_all_end(family: list[psutil.Process]) -> None:
    assert any(process.name() == "p2pd" for process in family if process.is_running())
    _, alive = psutil.wait_procs(family, timeout=20)
    assert not alive, f"orphans: {alive}"


def test_a_swarm_from_start_to_ctrl_c(machine, manifests):
    machine.up(manifests / "three.yaml")
    servers = machine.servers()

    assert {name: (one["start"], one["end"], one["state"]) for name, one in servers.items()} == {
        "front-0": (0, 2, "ONLINE"),
        "front-1": (0, 2, "ONLINE"),
        "back-0": (1, 4, "ONLINE"),
    }
    assert all(one["kv_tokens_total"] == 512 and one["sessions"] == 0 for one in servers.values())
    for name in servers:
        assert f"{name} online at {servers[name]['address']}" in machine.output()
    table = machine.run("status").stdout
    assert "each on at least 1 servers" in table
    assert "front-1" in table

    # A second swarm of the same user is refused; the first goes on.
    second = machine.run("up", "-f", str(manifests / "one.yaml"), "--listen", "127.0.0.1:0")
    assert second.returncode == 2
    assert "blockswarm down" in second.stderr

    # A killed server comes back by itself, as another instance.
    os.kill(servers["front-1"]["pid"], signal.SIGKILL)
    wait_for(
        lambda: "front-1 is online again" in machine.output(), timeout=SECONDS, what="the server is back"
    )
    assert "front-1 was killed by SIGKILL; restarting in 1 s" in machine.output()
    again = machine.servers()["front-1"]
    assert again["state"] == "ONLINE"
    assert again["pid"] != servers["front-1"]["pid"]
    assert again["instance"] != servers["front-1"]["instance"]

    # A killed directory comes back where it was, so that servers and clients find it again.
    directory = next(process for process in machine.state()["processes"] if process["kind"] == "directory")
    os.kill(directory["pid"], signal.SIGKILL)
    wait_for(
        lambda: "directory is online again" in machine.output(), timeout=SECONDS, what="the directory is back"
    )
    wait_for(
        lambda: len(machine.servers()) == 3, timeout=SECONDS, what="the servers have joined again", every=0.5
    )

    family = machine.family()
    machine.up_process.send_signal(signal.SIGINT)
    assert machine.up_process.wait(SECONDS) == 0
    assert_all_end_quietly(family)
    assert machine.run("status").returncode == 2


def assert_all_end_quietly(family: list[psutil.Process]) -> None:
    """`up` waits for its children, so nothing may be left when it has ended."""
    _, alive = psutil.wait_procs(family, timeout=2)
    assert not alive, f"orphans: {alive}"


def test_a_detached_swarm_ends_by_down(machine, manifests):
    started = machine.run("up", "-d", "-f", str(manifests / "one.yaml"), "--listen", "127.0.0.1:0")
    assert started.returncode == 0, started.stderr
    assert "all-0 online" in started.stdout
    family = machine.family()
    ended = machine.run("down")
    assert (ended.returncode, "(1 servers)" in ended.stdout) == (0, True)
    assert_all_end_quietly(family)


def test_a_killed_up_leaves_no_orphans(machine, manifests):
    machine.up(manifests / "one.yaml")
    family = machine.family()
    machine.up_process.kill()
    assert_all_end(family)
    assert machine.run("down").stdout.strip() == "no swarm runs on this machine"


def test_a_server_that_cannot_load_ends_up_with_its_reason(machine, manifests, tmp_path):
    model = tiny_llama(tmp_path / "model", blocks=BLOCKS)
    shard = model / "model.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1000])
    (tmp_path / "broken.yaml").write_text((manifests / "one.yaml").read_text())
    ended = machine.run("up", "-f", str(tmp_path / "broken.yaml"), "--listen", "127.0.0.1:0")
    assert ended.returncode == 1
    assert "all-0 ended with status 2" in ended.stderr
    assert "model.safetensors" in ended.stderr
