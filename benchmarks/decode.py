"""`make bench`: decode speed of one session over three servers on loopback against plain transformers.

Both sides take turns in the same run, so that whatever else the machine does hits both. Exit status 1 when the median
ratio is below --require or the ids differ.
"""

import os

# Before torch is imported, as a client that shares its machine with servers should do.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from blockswarm import AutoDistributedModelForCausalLM
from local_swarm import MANIFEST, MODEL, local_swarm
from timing import Ticks, prompt_ids


class Plain:
    """The process with plain transformers. Its environment is left as torch likes it."""

    def __init__(self) -> None:
        environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
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


def measure(model: Any, plain: Plain, options: argparse.Namespace) -> tuple[list[float], list[float], bool]:
    """Speeds of the swarm and of transformers, tokens per second by round, and whether all ids were equal."""
    swarm_speeds, plain_speeds, same = [], [], True
    print(f"{'round':>5}  {'blockswarm':>12}  {'transformers':>12}  {'ratio':>6}    (tokens/s)")
    # The first round warms both up and does not count.
    for number in range(options.rounds + 1):
        sides = [
            lambda: over_swarm(model, options.prompt, options.new),
            lambda: plain.run(options.prompt, options.new),
        ]
        # Who goes first alternates, in case the machine slows down or speeds up.
        order = (0, 1) if number % 2 else (1, 0)
        results = {side: sides[side]() for side in order}
        same = same and results[0][0] == results[1][0]
        ours, theirs = ((options.new - 1) / results[side][1] for side in (0, 1))
        label = str(number) if number else "warm"
        print(f"{label:>5}  {ours:12.1f}  {theirs:12.1f}  {ours / theirs:6.3f}", flush=True)
        if number:
            swarm_speeds.append(ours)
            plain_speeds.append(theirs)
    return swarm_speeds, plain_speeds, same


def report(ours: list[float], theirs: list[float], same: bool, require: float) -> int:
    """Print the last lines of the table; the exit status."""
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    for label, values, places in (("blockswarm", ours, 1), ("transformers", theirs, 1), ("ratio", ratios, 3)):
        middle, low, high = statistics.median(values), min(values), max(values)
        print(f"{label:>12}: median {middle:.{places}f}, spread {low:.{places}f} to {high:.{places}f}")
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
        with local_swarm(manifest, quiet=True) as swarm:
            model = AutoDistributedModelForCausalLM.from_pretrained(str(MODEL), directory=swarm.directory)
            plain = Plain()
            try:
                return report(*measure(model, plain, options), options.require)
            finally:
                plain.close()


if __name__ == "__main__":
    sys.exit(main())
