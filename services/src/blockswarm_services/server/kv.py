"""The KV cache of one leg: buffers that grow with use, can be cut back and reordered, and are counted.

A leg's layers are numbered as in the whole model, so the cache shifts the numbers that layers pass to it.
What transformers' mask functions ask is answered by the place in this cache.
"""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import Cache, DynamicCache
from transformers.cache_utils import CacheLayerMixin, DynamicLayer, DynamicSlidingWindowLayer

from blockswarm_wire.errors import CannotTruncate, InvalidArgument

# A full buffer grows by this many tokens or this part of its length, whichever is more: 50 tokens hold memory
# for at most 58, and a token costs a constant number of copies.
_STEP = 8
_PART = 8


class GrowingLayer(CacheLayerMixin):  # type: ignore[misc]
    """Keys and values of one layer, `[..., tokens, width]`, in buffers with room for some more tokens.

    Attributes:
        length: tokens held.
        limit: tokens it will ever hold, or None.
    """

    is_sliding = False
    is_croppable = True

    def __init__(self, limit: int | None = None) -> None:
        super().__init__()
        self.length = 0
        self.limit = limit
        self.is_initialized = True
        self._buffers: tuple[torch.Tensor, torch.Tensor] | None = None

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append `[..., n, width]`; gives what attention may see, as views valid until the next change."""
        past, count = self.length, key_states.shape[-2]
        end = past + count
        if self._buffers is None or end > self._buffers[0].shape[-2]:
            self._resize(key_states, value_states, end)
        assert self._buffers is not None
        keys, values = self._buffers
        keys.narrow(-2, past, count).copy_(key_states)
        values.narrow(-2, past, count).copy_(value_states)
        self.length = end
        first = self._first_visible(past)
        return keys.narrow(-2, first, end - first), values.narrow(-2, first, end - first)

    def _first_visible(self, past: int) -> int:
        return 0

    def _resize(self, keys: torch.Tensor, values: torch.Tensor, end: int) -> None:
        """Move to fresh buffers like `keys` and `values` with room for `end` tokens and some more."""
        capacity = end + max(_STEP, end // _PART)
        if self.limit is not None:
            capacity = max(end, min(capacity, self.limit))
        old = self._buffers
        fresh = []
        for number, like in enumerate((keys, values)):
            shape = (*like.shape[:-2], capacity, like.shape[-1])
            buffer = torch.empty(shape, dtype=like.dtype, device=like.device)
            if old is not None and self.length:
                buffer.narrow(-2, 0, self.length).copy_(old[number].narrow(-2, 0, self.length))
            fresh.append(buffer)
        self._buffers = (fresh[0], fresh[1])

    def truncate(self, length: int) -> None:
        """Keep the first `length` tokens, and give back memory that they do not need."""
        self.length = length
        if self._buffers is None:
            return
        if length == 0:
            self._buffers = None
        elif self._buffers[0].shape[-2] > length + 2 * max(_STEP, length // _PART):
            self._resize(*self._buffers, length)

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Take these batch rows, any number of them, in this order."""
        if self._buffers is not None:
            keys, values = self._buffers
            index = beam_idx.to(keys.device)
            self._buffers = (keys.index_select(0, index), values.index_select(0, index))

    @property
    def capacity(self) -> int:
        """Tokens per row for which memory is allocated."""
        return 0 if self._buffers is None else int(self._buffers[0].shape[-2])

    @property
    def nbytes(self) -> int:
        """Bytes allocated."""
        return 0 if self._buffers is None else sum(b.nbytes for b in self._buffers)

    @property
    def token_bytes(self) -> int:
        """Bytes of one token of one row; 0 before the first update."""
        return 0 if self._buffers is None else self.nbytes // (self.capacity * self._buffers[0].shape[0])

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Nothing to prepare: the first update allocates."""

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """(tokens that the next update will show, number of the first of them)."""
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        """Tokens held."""
        return self.length

    def get_max_length(self) -> int:
        """No maximum."""
        return -1


class GrowingSlidingLayer(GrowingLayer):
    """A layer that sees the last `window` tokens. All are kept, so that it can be cut back."""

    is_sliding = True

    def __init__(self, window: int, limit: int | None = None) -> None:
        super().__init__(limit)
        self.sliding_window = window

    def _first_visible(self, past: int) -> int:
        return max(past - self.sliding_window + 1, 0)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """(tokens that the next update will show, number of the first of them)."""
        first = self._first_visible(self.length)
        return self.length - first + query_length, first

    def get_max_length(self) -> int:
        """The window."""
        return self.sliding_window


class LegCache(Cache):  # type: ignore[misc]
    """Keys and values of blocks `start`… of one leg, and the state of layers without attention.

    Args:
        config: transformers config of just these blocks.
        start: number of the first block.
        limit: tokens per row that it will ever hold, or None.

    Attributes:
        length: tokens per row, padding included.
        rows: batch rows; 0 before the first step.
    """

    def __init__(self, config: Any, start: int, *, limit: int | None = None) -> None:
        self._config, self._start, self._limit = config, start, limit
        self.length = 0
        self.rows = 0
        super().__init__(layers=self._fresh_layers())
        self._growing: list[GrowingLayer] = [la for la in self.layers if isinstance(la, GrowingLayer)]

    def _fresh_layers(self) -> list[Any]:
        return [_growing(layer, self._limit) for layer in DynamicCache(config=self._config).layers]

    @property
    def can_truncate(self) -> bool:
        """Whether every layer's state can be cut back to an earlier token."""
        return len(self._growing) == len(self.layers)

    @property
    def used_tokens(self) -> int:
        """Tokens × rows held."""
        return self.length * self.rows

    @property
    def allocated_tokens(self) -> int:
        """Tokens × rows for which memory is allocated."""
        if not self._growing:
            return self.used_tokens
        return max(layer.capacity for layer in self._growing) * self.rows

    @property
    def nbytes(self) -> int:
        """Bytes allocated for all layers."""
        return sum(_nbytes(layer) for layer in self.layers)

    @property
    def token_bytes(self) -> int:
        """Bytes that one token of one row takes in all layers together; needs one step to have been taken."""
        return sum(layer.token_bytes for layer in self._growing)

    def truncate(self, length: int) -> None:
        """Keep the first `length` tokens of every row. Truncation to 0 works for every family.

        Raises:
            InvalidArgument: it does not hold that many tokens.
            CannotTruncate: a layer's state cannot be cut back; rebuild the leg by replay.
        """
        if not 0 <= length <= self.length:
            raise InvalidArgument(f"position {length} is not within 0…{self.length}, the tokens held")
        if length == self.length:
            return
        if length == 0:
            self.clear()
            return
        if not self.can_truncate:
            raise CannotTruncate("this model's layers keep a state that cannot be rolled back")
        for layer in self._growing:
            layer.truncate(length)
        self.length = length

    def clear(self) -> None:
        """Forget all tokens and rows, and give the memory back."""
        self.layers = self._fresh_layers()
        self._growing = [layer for layer in self.layers if isinstance(layer, GrowingLayer)]
        self.length = 0
        self.rows = 0

    def reorder(self, rows: Sequence[int] | torch.Tensor) -> None:
        """Take these batch rows, at least one, in this order; any may come several times or not at all.

        Raises:
            InvalidArgument: no row, or one that does not exist.
        """
        wanted = [int(row) for row in rows]
        if not wanted or (self.rows and not all(0 <= row < self.rows for row in wanted)):
            raise InvalidArgument(f"hypo_ids must be rows within 0…{self.rows - 1}, at least one")
        if self.rows and wanted != list(range(self.rows)):
            index = torch.tensor(wanted, dtype=torch.int64)
            for layer in self.layers:
                layer.reorder_cache(index)
        if self.rows:
            self.rows = len(wanted)

    def begin(self, rows: int) -> None:
        """A step of `rows` batch rows starts.

        Raises:
            InvalidArgument: the cache holds another number of rows.
        """
        if self.rows not in (0, rows):
            raise InvalidArgument(f"the step has {rows} rows, the leg has {self.rows}: reorder with hypo_ids")

    def commit(self, rows: int, tokens: int) -> None:
        """The step went through all layers."""
        self.rows = rows
        self.length += tokens

    def undo(self) -> bool:
        """A step failed half-way: cut all layers back. False when that cannot be done and the leg is lost."""
        if self.length == 0:
            self.clear()
            return True
        for layer in self._growing:
            layer.truncate(self.length)
        return self.can_truncate

    # What layers call, with their number in the whole model.

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append to a layer and give what attention may see."""
        shown: tuple[torch.Tensor, torch.Tensor] = self.layers[layer_idx - self._start].update(
            key_states, value_states
        )
        return shown

    def get_conv_state(self, layer_idx: int, state_idx: int = 0) -> Any:
        """State of a convolution, None before the first step."""
        return super().get_conv_state(layer_idx - self._start, state_idx)

    def update_conv_state(self, conv_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any) -> Any:
        """Append to the state of a convolution."""
        return super().update_conv_state(conv_states, layer_idx - self._start, *args, **kwargs)

    def get_recurrent_state(self, layer_idx: int, state_idx: int = 0) -> Any:
        """State of a linear attention, None before the first step."""
        return super().get_recurrent_state(layer_idx - self._start, state_idx)

    def update_recurrent_state(self, states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any) -> Any:
        """Replace the state of a linear attention."""
        return super().update_recurrent_state(states, layer_idx - self._start, *args, **kwargs)

    def is_recording_past(self, layer_idx: int) -> bool:
        """Whether a convolution keeps its past; never here."""
        return False

    # What transformers' mask functions ask, with the place in this cache.

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Tokens held by a layer; by the leg where the layer does not count them."""
        layer = self.layers[layer_idx] if layer_idx < len(self.layers) else None
        return layer.length if isinstance(layer, GrowingLayer) else self.length

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        """(tokens that attention will see, number of the first of them)."""
        layer = self.layers[layer_idx] if layer_idx < len(self.layers) else None
        if isinstance(layer, GrowingLayer):
            return layer.get_mask_sizes(query_length)
        return self.length + query_length, 0


def _growing(layer: Any, limit: int | None) -> Any:
    """Our layer in place of transformers' own of the same kind; kinds without a length stay."""
    if type(layer) is DynamicSlidingWindowLayer:
        return GrowingSlidingLayer(layer.sliding_window, limit)
    if type(layer) is DynamicLayer:
        return GrowingLayer(limit)
    return layer


def _nbytes(layer: Any) -> int:
    if isinstance(layer, GrowingLayer):
        return layer.nbytes
    states = [*getattr(layer, "conv_states", {}).values(), *getattr(layer, "recurrent_states", {}).values()]
    return sum(state.nbytes for state in states if state is not None)
