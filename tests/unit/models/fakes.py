"""A swarm in one object: the model's own layers, driven like a chain of servers, without any wire."""

import copy

import torch

from blockswarm_services.server.model import SpanModel, positions, span_cut
from blockswarm_wire.errors import InvalidArgument, MaxLengthExceeded
from blockswarm_wire.span import Span


class Far:
    """The server's own code around the layers of `model`."""

    def __init__(self, model):
        blocks = Span(0, model.config.num_hidden_layers)
        cut = copy.deepcopy(model).requires_grad_(False)
        span_cut(blocks)(cut)
        self.span = SpanModel(cut, blocks, model_blocks=len(blocks))


class FakeSession:
    """`InferenceSession` over a Far."""

    def __init__(self, far, max_length):
        self.far = far
        self.max_length = max_length
        self.output_ids = None
        self.batch = None
        self.reserved = None
        self.closed = False
        self.calls = []
        self._position = 0
        self._mask: torch.Tensor | None = None
        self._cache = far.span.new_cache()

    def reserve(self, rows):
        assert self.batch is None or rows <= self.reserved
        self.reserved = max(rows, self.reserved or 0)

    @property
    def position(self):
        return self._position

    @position.setter
    def position(self, value):
        if not 0 <= value <= self._position:
            raise InvalidArgument(f"position {value}")
        if value < self._position:
            self._mask = self._mask[:, :value] if value and self._mask is not None else None
            if value:
                self._cache.truncate(value)
            else:
                self._cache = self.far.span.new_cache()
        self._position = value

    def padding(self):
        return None if self._mask is None or bool(self._mask.all()) else ~self._mask

    @property
    def last_token_id(self):
        return None if self.output_ids is None else self.output_ids[:, -1:]

    @torch.no_grad()
    def step(self, inputs, prompts=None, hypo_ids=None, *, pad=None):
        assert not self.closed
        rows, tokens = inputs.shape[:2]
        self.calls.append((rows, tokens, None if hypo_ids is None else hypo_ids.tolist(), pad))
        if self._position + tokens > self.max_length:
            raise MaxLengthExceeded(
                f"Maximum length exceeded: prefix {self._position} + current {tokens} "
                f"exceeds pre-allocated maximum {self.max_length}"
            )
        if hypo_ids is not None and self._mask is not None:
            self._cache.reorder(hypo_ids.tolist())
            self._mask = self._mask[hypo_ids]
            self.batch = len(hypo_ids)
        assert self.batch in (None, rows) or not self._position, (self.batch, rows)
        assert self.reserved is None or rows <= self.reserved
        self.batch = rows
        self.reserved = self.reserved or rows
        pad = pad or [0] * rows
        real = torch.arange(tokens)[None] >= torch.tensor(pad)[:, None]
        self._mask = real if self._mask is None else torch.cat([self._mask, real], 1)
        if tokens == 0:
            return inputs
        output = self.far.span.forward(
            inputs.detach(),
            self._cache,
            position_ids=positions(self._mask, tokens),
            mask=None if bool(self._mask.all()) else self._mask,
            prompts=prompts,
            prompt_starts=pad,
        )
        self._position += tokens
        return output.clone()

    def close(self, *exc):
        self.closed = True

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()
