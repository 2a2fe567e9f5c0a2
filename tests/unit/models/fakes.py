"""A swarm in one object: the model's own layers, driven like a chain of servers, without any wire."""

import copy
import inspect

import torch
from torch import nn
from transformers import DynamicCache

from blockswarm_wire.errors import InvalidArgument, MaxLengthExceeded


class Far:
    """What the servers compute: the layers start:end of `model` on hidden states, with neither embedding nor head."""

    def __init__(self, model):
        self.model = copy.deepcopy(model).requires_grad_(False)
        core = self.model.base_model
        self.core = core.decoder if hasattr(core, "decoder") else core
        for name in ("norm", "ln_f", "final_layernorm", "final_layer_norm", "word_embeddings_layernorm"):
            if isinstance(getattr(self.core, name, None), nn.Module):
                setattr(self.core, name, nn.Identity())
        for name in ("wpe", "embed_positions"):
            if hasattr(self.core, name):
                getattr(self.core, name).weight.data.zero_()
        self.config = self.core.config

    def __call__(self, hidden, mask, cache=None, prompts=None, starts=None):
        accepts = inspect.signature(self.core.forward).parameters
        positions = (mask.cumsum(1) - 1).clamp(min=0)[:, -hidden.shape[1] :]
        hooks = self._add_prompts(prompts, starts)
        try:
            return self.core(
                inputs_embeds=hidden,
                attention_mask=mask.long(),
                **({"position_ids": positions} if "position_ids" in accepts else {}),
                cache=cache,
                use_cache=cache is not None,
            ).last_hidden_state
        finally:
            for hook in hooks:
                hook.remove()

    def _add_prompts(self, prompts, starts):
        if prompts is None:
            return []

        def adder(own):
            def add(module, args):
                hidden = args[0]
                length = own.shape[1]
                rows = []
                for row in range(len(hidden)):
                    extra = torch.zeros_like(hidden[row])
                    at = starts[row]
                    part = own[row if len(own) > 1 else 0]
                    extra = torch.cat([extra[:at], part, extra[at + length :]])
                    rows.append(hidden[row] + extra)
                return (torch.stack(rows), *args[1:])

            return add

        layers = self.core.layers
        return [
            layer.register_forward_pre_hook(adder(own)) for layer, own in zip(layers, prompts, strict=True)
        ]


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
        self._mask = None
        self._cache = DynamicCache(config=far.config)

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
            self._cache.crop(value - self._position)
            self._mask = self._mask[:, :value] if value else None
            if value == 0:
                self._cache = DynamicCache(config=self.far.config)
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
        if hypo_ids is not None and self._position:
            self._cache.reorder_cache(hypo_ids)
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
        output = self.far(inputs.detach(), self._mask, self._cache, prompts, pad)
        self._position += tokens
        return output * real[..., None]

    def close(self, *exc):
        self.closed = True

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()
