"""An application in a pod: generates greedily through the swarm, on request, and prints one JSON line a token.

    python generate_tokens.py MODEL DIRECTORY ORDERS

ORDERS is a folder. The file `start-N` in it ({"prompt": ids, "tokens": at most, "pace": seconds}) begins run N, the
file `stop-N` ends it after its present token.
"""

import importlib.util
import itertools
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch

from blockswarm import AutoDistributedModelForCausalLM

_LOOK_SECONDS = 0.05


def say(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


class Printer:
    """Streamer and stopping criterion of one generation."""

    def __init__(self, run: int, session: Any, stop: Path, pace: float) -> None:
        self._run, self._session, self._stop, self._pace = run, session, stop, pace
        self._count = -1  # the prompt comes first

    def put(self, ids: torch.Tensor) -> None:
        if self._count >= 0:
            chain = [hop.server_id for hop in self._session.chain]
            say(run=self._run, n=self._count, id=int(ids), t=time.monotonic(), chain=chain)
            time.sleep(self._pace)
        self._count += 1

    def end(self) -> None:
        pass

    def __call__(self, ids: torch.Tensor, scores: Any, **more: Any) -> torch.Tensor:
        return torch.full((ids.shape[0],), self._stop.exists(), dtype=torch.bool)


def generate(model: Any, run: int, order: dict[str, Any], stop: Path) -> None:
    prompt, tokens = torch.tensor([order["prompt"]]), order["tokens"]
    with model.inference_session(max_length=prompt.shape[1] + tokens) as session:
        printer = Printer(run, session, stop, order["pace"])
        model.generate(
            prompt,
            session=session,
            do_sample=False,
            max_new_tokens=tokens,
            min_new_tokens=tokens,
            streamer=printer,
            stopping_criteria=[printer],
        )


def read_order(file: Path) -> dict[str, Any]:
    """The order in a file, once it is there and whole."""
    while True:
        try:
            order: dict[str, Any] = json.loads(file.read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            time.sleep(_LOOK_SECONDS)
        else:
            return order


def main() -> None:
    folder, directory, orders = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    model = AutoDistributedModelForCausalLM.from_pretrained(folder, directory=directory)
    say(ready=True, hivemind=importlib.util.find_spec("hivemind") is not None)
    for run in itertools.count(1):
        order = read_order(orders / f"start-{run}")
        try:
            generate(model, run, order, orders / f"stop-{run}")
        except Exception as error:
            say(run=run, error=f"{type(error).__name__}: {error}")
        else:
            say(run=run, end=True)


if __name__ == "__main__":
    main()
