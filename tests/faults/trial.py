"""One kill point: the same work undisturbed and with servers dying, and the books of the survivors afterwards."""

import contextlib
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch
from plan import Kill, Plan
from transformers import AutoModelForCausalLM
from work import Client, Hook, Result, run

from blockswarm import AutoDistributedModelForCausalLM, loop
from blockswarm.routing.hop import Hop
from blockswarm.session import InferenceSession
from blockswarm_wire.record import State
from swarm_processes import SwarmProcesses, wait_for

# Two of each third, two that divide the middle otherwise, and one that holds all.
SPANS = {
    "a": "0:2",
    "a2": "0:2",
    "b": "2:4",
    "b2": "2:4",
    "c": "4:6",
    "c2": "4:6",
    "x": "1:3",
    "y": "3:5",
    "w": "0:6",
}
CHUNK_TOKENS = 8
MAX_GAP_SECONDS = 1.0


class Scripted:
    """The real manager, but the first chain is given, and some servers are never chosen."""

    def __init__(self, manager, chain: tuple[tuple[str, int, int], ...], forbidden: frozenset[str]) -> None:
        self._manager, self._chain, self._forbidden = manager, chain, forbidden
        self._first = True

    def __getattr__(self, name: str):
        return getattr(self._manager, name)

    async def make_sequence(self, start: int, end: int, *, exclude=frozenset(), **options) -> list[Hop]:
        if self._first:
            self._first = False
            records = {view.server_id: view.record for view in self._manager.servers}
            return [
                Hop(name, records[name].instance, records[name].address, first, last)
                for name, first, last in self._chain
            ]
        return await self._manager.make_sequence(start, end, exclude=exclude | self._forbidden, **options)


@dataclass
class Arena:
    """The swarm, the client's models, and what has been measured."""

    swarm: SwarmProcesses
    client: Client
    gaps: list[float] = field(default_factory=list)
    bit_equal: int = 0
    compared: int = 0

    @classmethod
    @contextlib.contextmanager
    def over(cls, swarm: SwarmProcesses, model: Path) -> "Iterator[Arena]":
        unsplit = AutoModelForCausalLM.from_pretrained(model).eval()
        split = AutoDistributedModelForCausalLM.from_pretrained(
            model, directory=swarm.target, chunk_tokens=CHUNK_TOKENS, failover_timeout=30.0
        )
        arena = cls(swarm, Client(unsplit, split))
        loop.run(arena.manager.ready())
        yield arena

    @property
    def manager(self):
        return self.client.split.remote.manager

    def session(self, plan: Plan) -> InferenceSession:
        return InferenceSession(Scripted(self.manager, plan.chain, plan.forbidden), 128, max_batch=4)

    def work(self, plan: Plan, hook: Hook, session: InferenceSession) -> Result:
        return run(plan.workload, self.client, session, plan.seed, hook)

    def heal(self) -> None:
        """Start what was killed, and wait until the client knows all servers as they are now."""
        for process in self.swarm.servers.values():
            process.disarm()
            if not process.alive:
                process.start()
        instances = {name: process.facts()["instance"] for name, process in self.swarm.servers.items()}

        def known() -> bool:
            views = {view.server_id: view for view in self.manager.servers}
            return all(
                name in views
                and views[name].state is State.ONLINE
                and views[name].record.instance == instance
                for name, instance in instances.items()
            )

        wait_for(known, timeout=30, what="the client knows every server that was started again")

    def held(self) -> dict[str, tuple[float, float, float]]:
        """KV tokens used and promised, and legs, of every server that runs."""
        names = (
            "blockswarm_kv_cache_used_tokens",
            "blockswarm_kv_cache_promised_tokens",
            "blockswarm_legs_active",
        )
        running = {name: process.metrics() for name, process in self.swarm.servers.items() if process.alive}
        return {name: tuple(samples[metric] for metric in names) for name, samples in running.items()}


def perform(arena: Arena, plan: Plan) -> None:
    """Run one trial; fails with the plan in words."""
    arena.heal()
    with arena.session(plan) as session:
        want = arena.work(plan, lambda step: None, session)
        undisturbed = session.stats.failovers
    assert undisturbed == 0, f"{plan}: the undisturbed run met a failure: {session.stats.lost}"
    with arena.session(plan) as session:
        killer = Killer(arena, plan, session)
        got = arena.work(plan, killer, session)
        killer.finish()
    assert got.ids == want.ids, f"{plan}\nafter {session.stats}\ngot  {got.ids}\nwant {want.ids}"
    arena.compared += len(want.hidden)
    arena.bit_equal += sum(map(torch.equal, got.hidden, want.hidden))
    arena.gaps.append(killer.gap)
    assert killer.gap <= MAX_GAP_SECONDS, (
        f"{plan}: {killer.gap:.2f} s without a step, replay's compute not counted"
    )
    wait_for(
        lambda: not any(map(any, arena.held().values())),
        timeout=10,
        what=f"{plan}: KV books at zero: {arena.held()}",
    )


class Killer:
    """The hook of a disturbed run: kills by the plan, and takes the longest time between two steps."""

    def __init__(self, arena: Arena, plan: Plan, session: InferenceSession) -> None:
        self._arena, self._plan, self._session = arena, plan, session
        self._last = 0.0
        self._computed = 0.0
        self.gap = 0.0

    def __call__(self, step: int) -> None:
        self._measure()
        for kill in self._plan.kills:
            if kill.at == step:
                self._strike(kill)
        self._last = time.monotonic()

    def finish(self) -> None:
        """After the last step."""
        self._measure()

    def _measure(self) -> None:
        stats = self._session.stats
        computed = stats.replay_seconds + stats.compute_seconds
        if self._last:
            self.gap = max(self.gap, time.monotonic() - self._last - (computed - self._computed))
        self._computed = computed

    def _strike(self, kill: Kill) -> None:
        process = self._arena.swarm.servers[kill.server or self._holder(kill.block)]
        if not process.alive:
            return
        if kill.trigger == "idle":
            process.kill()
        else:
            process.arm(kill.trigger, kill.count)

    def _holder(self, block: int) -> str:
        for hop in self._session.chain:
            if hop.start <= block < hop.end:
                return hop.server_id
        return next(name for name, start, end in self._plan.chain if start <= block < end)


def freeze(arena: Arena, server_id: str) -> "contextlib.AbstractContextManager[None]":
    """SIGSTOP a server for the length of a block."""

    @contextlib.contextmanager
    def stopped():
        arena.swarm.servers[server_id].send(signal.SIGSTOP)
        try:
            yield
        finally:
            arena.swarm.servers[server_id].send(signal.SIGCONT)

    return stopped()
