"""An application in a pod that opens sessions and holds them, doing nothing, until its stdin ends.

    python hold_sessions.py MODEL DIRECTORY COUNT LENGTH

LENGTH: tokens that each session may hold, so that servers promise memory for that many.
"""

import contextlib
import sys

import torch

from blockswarm import AutoDistributedModelForCausalLM


def main() -> None:
    folder, directory, count, length = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    model = AutoDistributedModelForCausalLM.from_pretrained(folder, directory=directory)
    with contextlib.ExitStack() as held:
        for _ in range(count):
            session = held.enter_context(model.inference_session(max_length=length))
            session.step(torch.zeros(1, 1, model.config.hidden_size))
            print("open", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
