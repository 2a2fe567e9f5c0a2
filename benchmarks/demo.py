"""`make demo`: a chat answer goes on, token for token, while one of its servers is killed.

Starts the sample manifest's six servers, streams an answer, sends SIGKILL to a server of the chain in mid-generation,
and compares the ids with those of plain transformers. Exit status 1 unless they are identical.
"""

import os

# Before torch is imported: threads that spin between two operations would steal the servers' time.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

import itertools
import signal
import sys
import time
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from blockswarm import AutoDistributedModelForCausalLM
from blockswarm.cli.stream import TextStream, show_on_stdout
from local_swarm import MANIFEST, MODEL, local_swarm, pid_of

QUESTION = "Explain why the sky is blue, and why sunsets are red."
NEW_TOKENS = 120
KILL_AFTER = 40


@dataclass
class Run:
    """Ids and arrival times of one generation. `text` shows the tokens; `kill` runs once, after KILL_AFTER of them."""

    text: TextStream | None = None
    session: Any = None
    ids: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    killed_at: int | None = None

    def put(self, value: torch.Tensor) -> None:
        """A streamer's method: the prompt at first, then one token at a time."""
        if self.text is not None:
            self.text.put(value)
        if not self.times:
            self.times.append(time.perf_counter())
            return
        self.times.append(time.perf_counter())
        self.ids.extend(value.flatten().tolist())
        if self.session is not None and len(self.ids) == KILL_AFTER:
            self._kill()

    def end(self) -> None:
        """A streamer's method."""
        if self.text is not None:
            self.text.end()

    def _kill(self) -> None:
        victim = self.session.chain[1]
        pid = pid_of(victim.server_id)
        os.kill(pid, signal.SIGKILL)
        self.killed_at = len(self.ids)
        seconds = time.perf_counter() - self.times[0]
        print(
            f"\n    [SIGKILL to {victim.server_id} (process {pid}) after token {KILL_AFTER}, at {seconds:.2f} s]"
        )

    def speed(self, without: float = 0.0) -> float:
        """Tokens per second from the first token on, `without` some seconds of it."""
        return (len(self.ids) - 1) / (self.times[-1] - self.times[1] - without)

    @property
    def longest_gap(self) -> tuple[float, int]:
        """(seconds, number of the token that came after them)."""
        arrivals = itertools.pairwise(self.times[1:])
        gaps = [(later - sooner, number) for number, (sooner, later) in enumerate(arrivals, start=2)]
        return max(gaps)


def remote(directory: str, tokenizer: Any, inputs: Any) -> Run:
    """Generate over the swarm, killing a server on the way."""
    model = AutoDistributedModelForCausalLM.from_pretrained(str(MODEL), directory=directory)
    length = inputs["input_ids"].shape[1] + NEW_TOKENS
    with torch.inference_mode(), model.inference_session(max_length=length) as session:
        # A step without tokens opens the chain, so that it can be shown before the answer.
        session.step(torch.empty(1, 0, model.config.hidden_size))
        print("\nchain: " + "  ->  ".join(str(hop) for hop in session.chain))
        print(f"\n{QUESTION}\n")
        run = Run(TextStream(tokenizer, show_on_stdout), session)
        model.generate(
            inputs["input_ids"], session=session, max_new_tokens=NEW_TOKENS, do_sample=False, streamer=run
        )
        print("\n\nchain afterwards: " + "  ->  ".join(str(hop) for hop in session.chain))
    return run


def plain(inputs: Any) -> Run:
    """The same with transformers alone."""
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
    run = Run()
    with torch.inference_mode():
        model.generate(**inputs, max_new_tokens=NEW_TOKENS, do_sample=False, streamer=run)
    return run


def main() -> int:
    """Run the demo; the exit status."""
    transformers_logging.disable_progress_bar()
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    inputs = tokenizer.apply_chat_template(
        [{"role": "user", "content": QUESTION}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )
    print("starting six servers: three spans of SmolLM2-135M-Instruct, two replicas each")
    with local_swarm(MANIFEST, show=print) as swarm:
        over_swarm = remote(swarm.directory, tokenizer, inputs)
    print("\nthe same question to plain transformers ...")
    alone = plain(inputs)
    same = over_swarm.ids == alone.ids
    gap, number = over_swarm.longest_gap
    print(f"\ntokens:        {len(over_swarm.ids)}")
    print(
        f"blockswarm:    {over_swarm.speed():.1f} tokens/s, {over_swarm.speed(gap):.1f} without the longest gap"
    )
    print(f"transformers:  {alone.speed():.1f} tokens/s")
    print(f"longest gap between tokens: {gap:.2f} s (before token {number})")
    print(f"identical to transformers: {'yes' if same else 'no'}")
    if over_swarm.killed_at is None:
        print("no server was killed: the answer was too short", file=sys.stderr)
        return 1
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
