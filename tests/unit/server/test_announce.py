"""When a server tells the DHT and the directories what it is."""

import asyncio
from typing import cast

import pytest

from blockswarm_dht.node import SwarmNode
from blockswarm_services.server import announce
from blockswarm_services.server.announce import Announcer
from blockswarm_services.server.directories import Directories
from blockswarm_wire.record import ServerRecord, State


class Node:
    """A DHT that takes everything. `takes`: cleared while it hangs."""

    def __init__(self) -> None:
        self.stored: list[State] = []
        self.takes = asyncio.Event()
        self.takes.set()
        self._news = asyncio.Condition()

    async def store_server(self, record: ServerRecord) -> bool:
        await self.takes.wait()
        async with self._news:
            self.stored.append(record.state)
            self._news.notify_all()
        return True

    async def until_stored(self, state: State, times: int) -> None:
        async with asyncio.timeout(5), self._news:
            await self._news.wait_for(lambda: self.stored.count(state) >= times)


class Shown:
    """Directories that take everything, or that hang."""

    def __init__(self, *, hang: bool = False) -> None:
        self.states: list[State] = []
        self.draining = asyncio.Event()
        self._hang = hang

    async def show(self, record: ServerRecord) -> None:
        self.states.append(record.state)
        if record.state is State.DRAINING:
            self.draining.set()
        if self._hang:
            await asyncio.Event().wait()


def _describe(state: State, issued_at: float) -> ServerRecord:
    return ServerRecord(
        server_id="s",
        state=state,
        model="demo",
        num_blocks=8,
        start=0,
        end=8,
        address="127.0.0.1:1",
        instance="i",
        fingerprint="ab" * 32,
        issued_at=issued_at,
    )


def _announcer(node: Node, shown: Shown) -> Announcer:
    return Announcer(cast(SwarmNode, node), cast(Directories, shown), _describe)


async def test_changes_of_state_are_shown_and_heartbeats_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(announce, "HEARTBEAT_SECONDS", 0.0)
    node, shown = Node(), Shown()
    announcer = _announcer(node, shown)
    announcer.start()
    for state in (State.JOINING, State.ONLINE, State.DRAINING):
        announcer.say(state)
        await node.until_stored(state, times=3)
    await announcer.close(deadline=5)
    assert shown.states == [State.JOINING, State.ONLINE, State.DRAINING, State.OFFLINE]
    assert node.stored[-1] is State.OFFLINE


async def test_directories_that_hang_delay_nothing_but_the_end() -> None:
    node, shown = Node(), Shown(hang=True)
    announcer = _announcer(node, shown)
    announcer.start()
    await node.until_stored(State.JOINING, times=1)
    announcer.say(State.ONLINE)
    async with asyncio.timeout(5):
        await announcer.online.wait()
    await announcer.close(deadline=0.01)
    assert node.stored == [State.JOINING, State.ONLINE, State.OFFLINE]


async def test_a_dht_that_hangs_delays_no_directory() -> None:
    node, shown = Node(), Shown()
    node.takes.clear()
    announcer = _announcer(node, shown)
    announcer.start()
    announcer.say(State.ONLINE)
    announcer.say(State.DRAINING)
    async with asyncio.timeout(5):
        await shown.draining.wait()
    assert shown.states == [State.JOINING, State.ONLINE, State.DRAINING]
    await announcer.close(deadline=0.01)
    assert node.stored == []
