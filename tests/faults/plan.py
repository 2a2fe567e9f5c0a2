"""What a seed means: which work a session does, over which chain, and what is killed when. Pure."""

import random
from dataclasses import dataclass

WORKLOADS = ("chat", "long prompt", "ragged", "deep prompts", "rollback", "two turns", "beams")
# Where a server dies: between steps, or inside one, by the name of its failpoint.
TRIGGERS = ("idle", "received", "computing", "computed", "replied")
CASES = ("one", "two in a row", "both ends", "two legs", "during replay", "other cuts", "at open")


@dataclass(frozen=True)
class Kill:
    """At step `at`: the server that holds block `block` then, or `server` where one is named."""

    at: int
    trigger: str
    count: int
    block: int = 0
    server: str = ""


@dataclass(frozen=True)
class Plan:
    """One trial."""

    seed: int
    workload: str
    case: str
    chain: tuple[tuple[str, int, int], ...]
    forbidden: frozenset[str]
    kills: tuple[Kill, ...]

    def __str__(self) -> str:
        kills = ", ".join(
            f"{kill.server or f'holder of block {kill.block}'} at step {kill.at} ({kill.trigger} x{kill.count})"
            for kill in self.kills
        )
        return f"seed {self.seed}: {self.workload}, {self.case}: {kills}"


def draw(seed: int) -> Plan:
    """The trial of a seed. The first seeds go through all cases, so that a short run meets each."""
    rng = random.Random(seed)
    workload = rng.choice(WORKLOADS) if seed >= len(WORKLOADS) else WORKLOADS[seed]
    case = CASES[seed % len(CASES)]
    start = rng.randrange(3)
    chain = (("a", 0, 2), ("b", 2, 4), ("c", 4, 6))
    victim, block = chain[start][0], 2 * start
    at = rng.choice((0, 1, 2, rng.randrange(3, 8)))
    first = _kill(rng, at, block)
    # Where each block keeps another server, the one that holds everything may be left out.
    spare = case in ("one", "both ends") and rng.random() < 0.5
    forbidden = frozenset(("w",)) if spare else frozenset()
    kills: tuple[Kill, ...] = (first,)
    if case == "two in a row":
        kills = (first, _kill(rng, at + 1, block))
    elif case == "both ends":
        kills = (_kill(rng, at, 0), _kill(rng, at, 4))
    elif case == "two legs":
        chain, forbidden = (("w", 0, 2), ("b", 2, 4), ("w", 4, 6)), frozenset()
        kills = (_kill(rng, at, 0),)
    elif case == "during replay":
        trigger = rng.choice(TRIGGERS[1:])
        kills = (first, Kill(at, trigger, rng.randrange(1, 3), server=f"{victim}2"))
    elif case == "other cuts":
        # Blocks 2 and 3 go on as 2:3 on x and 3:4 on y.
        forbidden = frozenset(("w", "b2"))
        kills = (_kill(rng, at, 2),)
    elif case == "at open":
        kills = (first, Kill(at, "open", 1, server=f"{victim}2"))
    return Plan(seed, workload, case, chain, forbidden, kills)


def _kill(rng: random.Random, at: int, block: int) -> Kill:
    trigger = rng.choice(TRIGGERS)
    # In a prefill of several chunks the server dies at any one of them.
    return Kill(at, trigger, rng.randrange(1, 3) if at == 0 else 1, block)
