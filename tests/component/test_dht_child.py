"""How p2pd is started and ended: under any loop, without Python in the child, and with nothing left behind."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import psutil
import pytest
import uvloop

from blockswarm_dht.child import Child
from blockswarm_dht.node import SwarmNode
from blockswarm_wire.errors import Unreachable

# Nobody has this address (RFC 5737), so p2pd cannot listen there.
_NO_ADDRESS = "/ip4/192.0.2.1/tcp/1"

# In an interpreter of its own: what is registered for a fork stays registered.
_STARTS_A_NODE = """
    import os, uvloop
    from blockswarm_dht.node import SwarmNode

    os.register_at_fork(after_in_child=lambda: os.write(2, b"Python ran in a child"))

    async def main():
        node = await SwarmNode.create(listen=None, client_mode=True)
        print(node.p2pd_alive)
        await node.shutdown()

    uvloop.run(main())
"""


@pytest.fixture(params=[uvloop.new_event_loop, asyncio.SelectorEventLoop], ids=["uvloop", "asyncio"])
def runner(request):
    with asyncio.Runner(loop_factory=request.param) as running:
        yield running


def test_no_python_runs_between_the_fork_and_p2pd():
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(_STARTS_A_NODE)], capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_a_node_leaves_nothing_behind(runner):
    me = psutil.Process()
    others, sockets = me.children(), []

    async def live_and_die(*, violently):
        node = await SwarmNode.create(listen="127.0.0.1:0")
        told = asyncio.get_running_loop().create_future()
        node.on_p2pd_death = told.set_result
        pid = node.p2pd_pid
        sockets.append(Path(node._p2p.daemon_listen_maddr["unix"]))
        assert os.getpgid(pid) == pid, "its own process group"
        if violently:
            os.kill(pid, signal.SIGKILL)
            assert await asyncio.wait_for(told, 5) == -signal.SIGKILL
            assert not node.p2pd_alive
        await node.shutdown()
        assert not psutil.pid_exists(pid), "not even a zombie"

    async def fail():
        with pytest.raises(Unreachable, match=r"did not start: .*failed to listen"):
            await SwarmNode.create(listen=_NO_ADDRESS)

    async def be_cancelled():
        starting = asyncio.create_task(SwarmNode.create(listen="127.0.0.1:0"))
        await asyncio.sleep(0)
        assert me.children() != others, "it was cancelled too early to mean anything"
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting

    async def every_way():
        await live_and_die(violently=False)
        await live_and_die(violently=True)
        await fail()
        await be_cancelled()

    runner.run(every_way())  # The loop's own files are opened by now.
    files, threads = me.num_fds(), threading.active_count()
    runner.run(every_way())
    assert me.num_fds() <= files
    assert threading.active_count() <= threads
    assert me.children() == others
    assert not [socket for socket in sockets if socket.exists()]


def test_a_child_is_heard_to_the_end_and_keeps_its_status(runner):
    talks = "import sys; print('x' * 300_000); print('last', file=sys.stderr); sys.exit(3)"

    async def listen():
        child = Child([sys.executable, "-c", talks], os.environ)
        heard = await asyncio.wait_for(child.stdout.read(), 30)
        assert heard == b"x" * 300_000 + b"\nlast\n"
        assert await child.wait() == 3 == child.returncode

    runner.run(listen())


def test_a_child_that_closes_its_output_is_ended(runner):
    closes = "import os, signal; os.close(1); os.close(2); signal.pause()"

    async def wait():
        child = Child([sys.executable, "-c", closes], os.environ)
        assert await asyncio.wait_for(child.wait(), 30) == -signal.SIGKILL

    runner.run(wait())


def test_a_thread_that_blocks_signals_can_still_end_its_p2pd(runner):
    async def live():
        node = await SwarmNode.create(listen="127.0.0.1:0")
        await asyncio.wait_for(node.shutdown(), 10)

    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        runner.run(live())
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
