"""What transformers sees as the KV cache: a view of a session, since the real one lies on the servers."""

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from blockswarm.models.protocol import Session
from blockswarm_wire.errors import InvalidArgument, Unsupported


class RemoteCacheLayer(CacheLayerMixin):  # type: ignore[misc]
    """Stands for all remote layers at once; nothing is ever stored in it."""

    is_croppable = True

    def __init__(self, cache: "RemoteCache") -> None:
        super().__init__()
        self._cache = cache
        self.is_initialized = True

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        raise Unsupported("the KV cache lies on the servers; no layer may write into it here")

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> None:
        raise Unsupported("the KV cache lies on the servers; no layer may write into it here")

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self._cache.get_seq_length() + query_length, 0

    def get_seq_length(self) -> int:
        return self._cache.get_seq_length()

    def get_max_length(self) -> int:
        return self._cache.max_length


class RemoteCache(Cache):  # type: ignore[misc]
    """The cache of one or several forward passes over one session.

    Args:
        session: where the real cache is.
        prefix: leading positions of the session that hold trained prompts; transformers does not count them.
        fold: every `fold` rows of the next step are the same sequence, of which the session holds one row; they
            part after that step (beams, num_return_sequences).

    `fed` are the ids of the steps so far, from position `begun` on.
    """

    def __init__(self, session: Session, *, prefix: int = 0, fold: int = 1) -> None:
        self.session = session
        self.prefix = prefix
        self.fold = fold
        self.begun = max(0, session.position - prefix)
        self.fed: list[torch.Tensor] = []
        self._order: torch.Tensor | None = None
        super().__init__(layers=[RemoteCacheLayer(self)])

    @property
    def max_length(self) -> int:
        """Tokens that the session may hold, without the trained prompts."""
        return self.session.max_length - self.prefix

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return max(0, self.session.position - self.prefix)

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Row i becomes row beam_idx[i], from the next step on."""
        self._order = beam_idx if self._order is None else self._order[beam_idx]

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        self.reorder_cache(indices)

    def batch_repeat_interleave(self, repeats: int) -> None:
        rows = self._rows()
        self.reorder_cache(torch.arange(rows).repeat_interleave(repeats))

    def _rows(self) -> int:
        if self._order is not None:
            return len(self._order)
        if self.session.batch is None:
            raise InvalidArgument("the session holds no rows yet: run a step before reordering its cache")
        return self.session.batch

    def take_order(self) -> torch.Tensor | None:
        """The hypo_ids of the next step; asked once per step."""
        order, self._order = self._order, None
        return order

    def crop(self, tokens_to_remove: int) -> None:
        """Roll the session back by `-tokens_to_remove` tokens."""
        if tokens_to_remove > 0:
            raise InvalidArgument(f"crop takes a negative number of tokens, not {tokens_to_remove}")
        if tokens_to_remove:
            self.session.position += int(tokens_to_remove)
            if self.fed:
                self.fed = [torch.cat(self.fed, dim=1)[:, : int(tokens_to_remove)]]

    def unfold(self, output: torch.Tensor) -> torch.Tensor:
        """Copy each row of `output` for the sequences that part after this step, and remember to do so remotely."""
        self._order = torch.arange(len(output)).repeat_interleave(self.fold)
        output = output.repeat_interleave(self.fold, dim=0)
        self.fold = 1
        return output

    def reset(self) -> None:
        self.session.position = 0
        self.fed = []

    @property
    def batch_size(self) -> int:
        return -1 if self.session.batch is None else self.session.batch

    @property
    def is_compileable(self) -> bool:
        return False
