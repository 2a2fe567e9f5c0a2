"""The supervisor with programs that do what each test needs; no server is involved."""

import asyncio
import json
import os
import signal
import sys

import psutil
import pytest

from blockswarm_services.local.child import Command
from blockswarm_services.local.supervisor import StartFailed, Supervisor

READY = """
import json, os, signal, sys, time
path = sys.argv[sys.argv.index("--ready-file") + 1]
open(path + ".new", "w").write(json.dumps({"address": "here", "pid": os.getpid(), "words": sys.argv[1:]}))
os.replace(path + ".new", path)
signal.pause()
"""
DEADLINE = 20.0


def command(name: str, program: str, *words: str, kind: str = "server") -> Command:
    return Command(id=name, kind=kind, words=(sys.executable, "-c", program, *words))


class Watch:
    """Collects the changes of all processes and lets a test wait for one."""

    def __init__(self):
        self.seen = []
        self._change = asyncio.Event()

    def __call__(self, status):
        self.seen.append((status.command.id, status.state, status.note))
        self._change.set()

    async def until(self, name, state, count=1):
        async with asyncio.timeout(DEADLINE):
            while sum(seen[:2] == (name, state) for seen in self.seen) < count:
                self._change.clear()
                await self._change.wait()


@pytest.fixture
async def swarm(tmp_path):
    watch = Watch()
    supervisor = Supervisor(tmp_path, on_change=watch, first_pause=0.01)
    yield supervisor, watch
    supervisor.kill()
    await supervisor.stop(grace=DEADLINE)


async def test_add_answers_with_what_the_process_wrote(swarm):
    supervisor, watch = swarm
    facts = await supervisor.add(command("a", READY), deadline=DEADLINE)
    assert facts["address"] == "here"
    assert facts["pid"] == supervisor.statuses["a"].pid
    assert [state for _, state, _ in watch.seen] == ["starting", "online"]


async def test_a_killed_process_comes_back_and_the_reason_is_told(swarm):
    supervisor, watch = swarm
    facts = await supervisor.add(command("a", READY), deadline=DEADLINE)
    os.kill(facts["pid"], signal.SIGKILL)
    await watch.until("a", "online", count=2)
    assert ("a", "waiting", "was killed by SIGKILL; restarting in 0 s") in watch.seen
    assert supervisor.statuses["a"].restarts == 1
    assert supervisor.statuses["a"].pid != facts["pid"]


async def test_later_starts_use_the_pinned_command(swarm):
    supervisor, watch = swarm

    def pin(old, facts):
        return Command(id=old.id, kind=old.kind, words=(*old.words, f"pinned-{facts['address']}"))

    facts = await supervisor.add(command("a", READY), deadline=DEADLINE, pin=pin)
    os.kill(facts["pid"], signal.SIGKILL)
    await watch.until("a", "online", count=2)
    assert supervisor.statuses["a"].facts["words"][0] == "pinned-here"


async def test_a_mistake_in_the_command_line_fails_at_once_with_the_log(swarm):
    supervisor, watch = swarm
    program = "import sys; sys.exit(print('--blocks: no such span', file=sys.stderr) or 2)"
    with pytest.raises(StartFailed, match=r"(?s)a ended with status 2 before it was ready.*no such span"):
        await supervisor.add(command("a", program), deadline=DEADLINE)
    assert [state for _, state, _ in watch.seen] == ["starting", "stopped"]


async def test_a_process_that_never_comes_up_is_given_up_after_three_tries(swarm):
    supervisor, watch = swarm
    with pytest.raises(StartFailed, match="ended with status 1"):
        await supervisor.add(command("a", "import sys; sys.exit(1)"), deadline=DEADLINE)
    assert [state for _, state, _ in watch.seen].count("starting") == 3


async def test_a_start_has_a_deadline(swarm):
    supervisor, _ = swarm
    with pytest.raises(StartFailed, match="not ready within 0 s"):
        await supervisor.add(command("a", "import signal; signal.pause()"), deadline=0.2)


async def test_stop_ends_servers_before_the_directory_and_kills_the_stubborn(tmp_path):
    watch = Watch()
    supervisor = Supervisor(tmp_path, on_change=watch)
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + READY
    pids = [
        (await supervisor.add(command("d", READY, kind="directory"), deadline=DEADLINE))["pid"],
        (await supervisor.add(command("a", READY), deadline=DEADLINE))["pid"],
        (await supervisor.add(command("b", deaf), deadline=DEADLINE))["pid"],
    ]
    await supervisor.stop(grace=0.3)
    stopped = [name for name, state, _ in watch.seen if state == "stopped"]
    assert stopped == ["a", "b", "d"]
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_children_die_with_a_killed_parent(tmp_path):
    import subprocess

    parent = f"""
import asyncio, json
from pathlib import Path
from blockswarm_services.local.child import Command
from blockswarm_services.local.supervisor import Supervisor

async def main():
    supervisor = Supervisor(Path({str(tmp_path)!r}), on_change=lambda status: None)
    words = ({sys.executable!r}, "-c", {READY!r})
    facts = await supervisor.add(Command(id="a", kind="server", words=words), deadline={DEADLINE})
    print(json.dumps(facts), flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""
    process = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    child = psutil.Process(json.loads(process.stdout.readline())["pid"])
    process.kill()
    process.wait(DEADLINE)
    process.stdout.close()
    _gone, alive = psutil.wait_procs([child], timeout=DEADLINE)
    assert not alive
