"""Servers die at seeded points of real work; the session goes on with the same tokens, and the survivors' books close.

A seed that fails is printed with its plan; run it alone with `make faults FAULTS_ARGS="-k 'seed17-'"`.
"""

import contextlib
import itertools
import time

import pytest
from plan import CASES, TRIGGERS, WORKLOADS, Plan, draw
from trial import freeze, perform

from swarm_processes import wait_for

SMOKE = 20
FULL = 210


def seeds(count: int, **options):
    return [pytest.param(seed, id=f"seed{seed}-", **options) for seed in range(count)]


@pytest.mark.parametrize("seed", seeds(SMOKE))
def test_kill_points_smoke(arena, seed):
    perform(arena, draw(seed))


@pytest.mark.faults
@pytest.mark.parametrize("seed", seeds(FULL))
def test_kill_points(arena, seed, record_property):
    perform(arena, draw(seed))
    record_property("gap", arena.gaps[-1])


@pytest.mark.faults
def test_summary_of_the_kill_points(arena):
    gaps = sorted(arena.gaps)
    assert gaps, "run the kill points before this"
    print(
        f"\n{len(gaps)} kill points; longest gap besides the servers' own compute: {gaps[-1]:.3f} s "
        f"(median {gaps[len(gaps) // 2]:.3f} s); steps bit-equal to the undisturbed run: "
        f"{arena.bit_equal} of {arena.compared}"
    )


def test_the_seeds_cover_every_case_workload_and_trigger():
    plans = [draw(seed) for seed in range(FULL)]
    assert {plan.case for plan in plans} == set(CASES)
    assert {plan.workload for plan in plans} == set(WORKLOADS)
    assert {kill.trigger for plan in plans for kill in plan.kills} >= set(TRIGGERS)
    smoke = plans[:SMOKE]
    assert {plan.case for plan in smoke} == set(CASES)
    assert {plan.workload for plan in smoke} == set(WORKLOADS)


@pytest.mark.parametrize("server", ["a", "b", "c"])
def test_a_frozen_server_is_noticed_within_five_seconds_and_fenced_when_it_thaws(arena, server):
    plan = Plan(1, "chat", "frozen", (("a", 0, 2), ("b", 2, 4), ("c", 4, 6)), frozenset(), ())
    arena.heal()
    with arena.session(plan) as session:
        want = arena.work(plan, lambda step: None, session)
    times: list[float] = []
    with arena.session(plan) as session, contextlib.ExitStack() as stack:

        def hook(step: int) -> None:
            times.append(time.monotonic())
            if step == 4:
                stack.enter_context(freeze(arena, server))

        got = arena.work(plan, hook, session)
        assert session.stats.failovers == 1
    assert got.ids == want.ids
    assert max(later - earlier for earlier, later in itertools.pairwise(times)) <= 5.0
    wait_for(
        lambda: not any(map(any, arena.held().values())), timeout=15, what=f"KV books at zero: {arena.held()}"
    )
