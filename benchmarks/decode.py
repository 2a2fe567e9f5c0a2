"""`make bench`: decode speed of one session over three servers on loopback against plain transformers.

All sides take turns in the same run, so that whatever else the machine does hits all. transformers runs in two
processes of its own, with idle threads spinning (torch's default) and sleeping: on an idle machine the first is the
faster one, on a busy machine the second; each round's ratio is against the faster. Exit status 1 when the median ratio
is below --require or the ids differ.
"""

import os

# Before torch is imported, as a client that shares its machine with servers should do.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import argparse
import functools
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from blockswarm import AutoDistributedModelForCausalLM
from local_swarm import MANIFEST, MODEL, local_swarm
from timing import Ticks, prompt_ids

NAMES = ("blockswarm", "transformers", "... sleeping")
_WIDTH = 14
_WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")

# (tokens of the prompt, new tokens) -> (ids, decode seconds).
Side = Callable[[int, int], tuple[list[int], float]]


class Plain:
    """A process with plain transformers. `wait`: OMP_WAIT_POLICY, None = torch's default."""

    def __init__(self, wait: str | None) -> None:
        environment = {name: value for name, value in os.environ.items() if name not in _WAITING}
        if wait is not None:
            environment["OMP_WAIT_POLICY"] = wait
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("plain.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def run(self, prompt: int, new: int) -> tuple[list[int], float]:
        """(ids, decode seconds) of one generation."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"prompt": prompt, "new": new}) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        return answer["ids"], answer["seconds"]

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def over_swarm(model: Any, prompt: int, new: int) -> tuple[list[int], float]:
    """(ids, decode seconds) of one generation over the swarm, in a session of its own."""
    ticks = Ticks()
    with torch.inference_mode():
        model.generate(
            prompt_ids(prompt),
            attention_mask=torch.ones(1, prompt, dtype=torch.long),
            min_new_tokens=new,
            max_new_tokens=new,
            do_sample=False,
            streamer=ticks,
        )
    return ticks.ids, ticks.decode_seconds


def measure(sides: Sequence[Side], options: argparse.Namespace) -> tuple[list[list[float]], bool]:
    """Speeds by round of each side, tokens per second, and whether all ids were equal."""
    rounds, same = [], True
    print(f"{'round':>5}" + "".join(f"{name:>{_WIDTH}}" for name in NAMES) + f"{'ratio':>8}    (tokens/s)")
    # The first round warms all up and does not count.
    for number in range(options.rounds + 1):
        # Who goes first changes, in case the machine slows down or speeds up.
        order = [(number + place) % len(sides) for place in range(len(sides))]
        results = {side: sides[side](options.prompt, options.new) for side in order}
        same = same and all(ids == results[0][0] for ids, _ in results.values())
        speeds = [(options.new - 1) / results[side][1] for side in range(len(sides))]
        label = str(number) if number else "warm"
        row = "".join(f"{speed:{_WIDTH}.1f}" for speed in speeds)
        print(f"{label:>5}{row}{_ratio(speeds):8.3f}", flush=True)
        if number:
            rounds.append(speeds)
    return rounds, same


def _ratio(speeds: Sequence[float]) -> float:
    return speeds[0] / max(speeds[1:])


def report(rounds: Sequence[Sequence[float]], same: bool, require: float) -> int:
    """Print the last lines of the table; the exit status."""
    columns = [(name, [speeds[side] for speeds in rounds], 1) for side, name in enumerate(NAMES)]
    ratios = [_ratio(speeds) for speeds in rounds]
    for name, values, places in (*columns, ("ratio", ratios, 3)):
        middle, low, high = statistics.median(values), min(values), max(values)
        print(f"{name:>{_WIDTH}}: median {middle:.{places}f}, spread {low:.{places}f} to {high:.{places}f}")
    ratio = statistics.median(ratios)
    print(f"ids identical to transformers: {'yes' if same else 'no'}")
    print(f"ratio {ratio:.3f} >= {require}: {'yes' if ratio >= require else 'no'}")
    return 0 if same and ratio >= require else 1


def main() -> int:
    """Run the benchmark; the exit status."""
    parser = argparse.ArgumentParser(
        prog="decode", description="Decode speed over three servers on loopback."
    )
    parser.add_argument("--rounds", type=int, default=9, help="rounds that count (default: 9)")
    parser.add_argument("--prompt", type=int, default=64, help="tokens of the prompt (default: 64)")
    parser.add_argument("--new", type=int, default=128, help="new tokens (default: 128)")
    parser.add_argument("--require", type=float, default=0.9, help="least median ratio (default: 0.9)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        manifest = Path(folder) / "three.yaml"
        text = MANIFEST.read_text().replace("replicas: 2", "replicas: 1")
        manifest.write_text(text.replace("../../.models/smollm2-135m-instruct", str(MODEL)))
        with local_swarm(manifest) as swarm:
            model = AutoDistributedModelForCausalLM.from_pretrained(str(MODEL), directory=swarm.directory)
            spinning, sleeping = Plain(None), Plain("PASSIVE")
            try:
                sides = (functools.partial(over_swarm, model), spinning.run, sleeping.run)
                return report(*measure(sides, options), options.require)
            finally:
                spinning.close()
                sleeping.close()


if __name__ == "__main__":
    sys.exit(main())
