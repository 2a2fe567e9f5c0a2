"""What the decode benchmark measures, the same on both sides."""

import time

import torch

_VOCABULARY = 49_000


def prompt_ids(tokens: int) -> torch.Tensor:
    """A fixed prompt [1, tokens] of arbitrary ids."""
    generator = torch.Generator().manual_seed(1)
    return torch.randint(100, _VOCABULARY, (1, tokens), generator=generator)


class Ticks:
    """A streamer that notes ids and their times."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self._times: list[float] = []
        self._prompt_is_next = True

    def put(self, value: torch.Tensor) -> None:
        """The prompt at first, then one token at a time."""
        if self._prompt_is_next:
            self._prompt_is_next = False
            return
        self._times.append(time.perf_counter())
        self.ids.extend(value.flatten().tolist())

    def end(self) -> None:
        """Nothing is held back."""

    @property
    def decode_seconds(self) -> float:
        """From the first new token to the last one: the prompt's own time does not count."""
        return self._times[-1] - self._times[0]
