"""What sessions do while servers die: each workload is a function that calls `hook(step)` before every step."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

Hook = Callable[[int], None]


@dataclass(frozen=True)
class Result:
    """Ids that came out, and the hidden states behind them."""

    ids: list[list[int]]
    hidden: list[torch.Tensor]


@dataclass
class Client:
    """The client's side of the tiny model: embedding, norm and head of the unsplit one."""

    unsplit: Any
    split: Any

    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        return self.unsplit.model.embed_tokens(ids)

    def next(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.unsplit.lm_head(self.unsplit.model.norm(hidden[:, -1:])).argmax(-1)


def run(workload: str, client: Client, session: Any, seed: int, hook: Hook) -> Result:
    """Do the work on an open session."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        return _WORK[workload](client, session, generator, hook)


def ids_of(generator: torch.Generator, *shape: int) -> torch.Tensor:
    return torch.randint(3, 250, shape, generator=generator)


class Steps:
    """Feeds a session and keeps what came of it."""

    def __init__(self, client: Client, session: Any, hook: Hook) -> None:
        self._client, self._session, self._hook = client, session, hook
        self._count = 0
        self.ids: list[list[int]] = []
        self.hidden: list[torch.Tensor] = []

    def feed(self, ids: torch.Tensor, **more: Any) -> torch.Tensor:
        self._hook(self._count)
        self._count += 1
        hidden = self._session.step(self._client.embed(ids), **more)
        self.hidden.append(hidden)
        found = self._client.next(hidden)
        self.ids.append(found[:, 0].tolist())
        return found

    def decode(self, token: torch.Tensor, count: int) -> torch.Tensor:
        for _ in range(count):
            token = self.feed(token)
        return token

    def result(self) -> Result:
        return Result(self.ids, self.hidden)


def _chat(client, session, generator, hook) -> Result:
    steps = Steps(client, session, hook)
    steps.decode(steps.feed(ids_of(generator, 1, 11)), 9)
    return steps.result()


def _long_prompt(client, session, generator, hook) -> Result:
    steps = Steps(client, session, hook)
    steps.decode(steps.feed(ids_of(generator, 1, 70)), 9)
    return steps.result()


def _ragged(client, session, generator, hook) -> Result:
    steps = Steps(client, session, hook)
    token = steps.feed(ids_of(generator, 3, 21), pad=[0, 13, 5])
    token = steps.decode(token, 4)
    # A second turn, ragged again.
    token = steps.feed(torch.cat([token, ids_of(generator, 3, 9)], dim=1), pad=[0, 0, 0])
    steps.decode(steps.feed(ids_of(generator, 3, 6), pad=[3, 0, 1]), 4)
    return steps.result()


def _deep_prompts(client, session, generator, hook) -> Result:
    steps = Steps(client, session, hook)
    prompts = torch.randn(session.num_blocks, 1, 10, 64, generator=generator) * 0.1
    token = steps.feed(ids_of(generator, 2, 19), pad=[0, 4], prompts=prompts)
    steps.decode(token, 8)
    return steps.result()


def _rollback(client, session, generator, hook) -> Result:
    steps = Steps(client, session, hook)
    token = steps.decode(steps.feed(ids_of(generator, 1, 21)), 3)
    session.position -= 2
    token = steps.decode(token, 2)
    session.position = 13  # in the middle of a chunk
    token = steps.feed(ids_of(generator, 1, 5))
    steps.decode(token, 4)
    return steps.result()


def _two_turns(client, session, generator, hook) -> Result:
    steps = Steps(client, session, hook)
    token = steps.decode(steps.feed(ids_of(generator, 2, 9)), 4)
    token = steps.feed(torch.cat([token, ids_of(generator, 2, 17)], dim=1))
    steps.decode(token, 4)
    return steps.result()


def _beams(client, session, generator, hook) -> Result:
    """transformers' own beam search; the hook runs once a step, from a logits processor."""
    ids, count = ids_of(generator, 1, 13), iter(range(1_000))

    def processor(_: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        hook(next(count))
        return scores

    hook(next(count))
    found = client.split.generate(
        ids, session=session, num_beams=4, do_sample=False, max_new_tokens=10, logits_processor=[processor]
    )
    return Result(found.tolist(), [])


_WORK = {
    "chat": _chat,
    "long prompt": _long_prompt,
    "ragged": _ragged,
    "deep prompts": _deep_prompts,
    "rollback": _rollback,
    "two turns": _two_turns,
    "beams": _beams,
}
