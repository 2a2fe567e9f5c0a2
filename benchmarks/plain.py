"""Plain transformers as a process of its own: generates once for every line on stdin, answers with JSON.

A process apart, so that it runs with torch's own defaults and its threads cannot disturb what it is compared with.
"""

import json
import sys

import torch
from transformers import AutoModelForCausalLM
from transformers.utils import logging as transformers_logging

from local_swarm import MODEL
from timing import Ticks, prompt_ids


def main() -> None:
    """Answer until stdin ends."""
    transformers_logging.disable_progress_bar()
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
    for line in sys.stdin:
        request = json.loads(line)
        ticks = Ticks()
        with torch.inference_mode():
            model.generate(
                prompt_ids(request["prompt"]),
                attention_mask=torch.ones(1, request["prompt"], dtype=torch.long),
                min_new_tokens=request["new"],
                max_new_tokens=request["new"],
                do_sample=False,
                streamer=ticks,
            )
        print(json.dumps({"ids": ticks.ids, "seconds": ticks.decode_seconds}), flush=True)


if __name__ == "__main__":
    main()
