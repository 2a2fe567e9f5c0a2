"""`model.transformer` and `model.lm_head`: names by which one drives a session by hand, the same in every family."""

from typing import Any

import torch
from torch import nn

from blockswarm.models.core import capture
from blockswarm.models.layers import RUN, Run
from blockswarm.models.remote import RemoteSequential

_NORMS = ("ln_f", "norm", "final_layernorm", "final_layer_norm")


class WordEmbeddings:
    """Token ids [batch, tokens] to what the first block takes [batch, tokens, hidden].

    Position embeddings, scaling and normalization are included where the family has them; positions go on from the
    active session's. Other attributes are those of the model's embedding module.
    """

    def __init__(self, core: Any, remote: RemoteSequential) -> None:
        self._core = core
        self._remote = remote

    def __call__(self, input_ids: torch.Tensor) -> torch.Tensor:
        return capture(self._core, input_ids, self._positions(input_ids))

    def _positions(self, input_ids: torch.Tensor) -> torch.Tensor:
        session = self._remote.active_session
        first = 0 if session is None else session.position
        positions = torch.arange(first, first + input_ids.shape[1], device=input_ids.device)[None]
        padding = session.padding() if session is not None and first else None
        if padding is not None:
            positions = positions - padding.sum(dim=1, keepdim=True).to(positions)
        return positions

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core.get_input_embeddings(), name)

    def __repr__(self) -> str:
        return f"WordEmbeddings({self._core.get_input_embeddings()})"


class Transformer:
    """`model.transformer`: `word_embeddings`, the remote blocks `h`, and otherwise the family's own base model."""

    def __init__(self, core: Any, remote: RemoteSequential) -> None:
        self._core = core
        self.h = remote
        self.word_embeddings = WordEmbeddings(core, remote)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._core(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name in _NORMS:
            raise AttributeError(
                f"transformer.{name}: the final norm is part of model.lm_head, which takes the raw output of "
                "session.step; call model.lm_head(hidden)"
            )
        return getattr(self._core, name)

    def __repr__(self) -> str:
        return f"Transformer(word_embeddings={self.word_embeddings}, h={self.h})"


class Head(nn.Module):
    """Raw output of the last block [batch, tokens, hidden] to logits [batch, tokens, vocabulary].

    Everything that the family does after its layers is included: final norm, head, scaling or capping of logits.
    Parameters and other attributes are those of the model's head module.
    """

    def __init__(self, model: Any, plain: nn.Module) -> None:
        super().__init__()
        object.__setattr__(self, "_model", model)  # not a submodule: the model is above this, not below
        self.plain = plain

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        width = self._model.get_input_embeddings().weight.shape[-1]
        blank = hidden.new_zeros(*hidden.shape[:2], width)
        token = RUN.set(Run(replace=hidden))
        try:
            logits: torch.Tensor = self._model(inputs_embeds=blank, use_cache=False).logits
        finally:
            RUN.reset(token)
        return logits

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("plain"), name)
