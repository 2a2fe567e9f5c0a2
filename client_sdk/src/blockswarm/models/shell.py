"""A transformers model whose layers are remote: the family's own class with a few methods put before it."""

from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from blockswarm.models.core import RemoteCore, make_remote, refuse, remote_class
from blockswarm.models.facade import Head, Transformer
from blockswarm.models.generation import RemoteGeneration
from blockswarm.models.layers import RemoteLayers
from blockswarm.models.prompts import Prompts
from blockswarm.models.protocol import Session
from blockswarm.models.remote import RemoteSequential
from blockswarm_wire.errors import InvalidArgument, Unsupported

# Whether the family's own forward is running: then `self.lm_head` is the plain head, since the norm has been applied.
_INSIDE: ContextVar[bool] = ContextVar("blockswarm_inside_forward", default=False)


class DistributedModel:
    """What every shell offers, with or without a head."""

    if TYPE_CHECKING:
        config: Any
        _transformer: Transformer
        _prompts: Prompts | None
        _plain_head: nn.Module | None
        _plain_forward: Any
        _parameter_names: tuple[str, ...]

    @property
    def transformer(self) -> Transformer:
        """Embeddings and remote blocks under one name in every family."""
        return self._transformer

    @property
    def remote(self) -> RemoteSequential:
        """All blocks of the model."""
        return self._transformer.h

    @property
    def active_session(self) -> Session | None:
        """The session of the innermost `with model.inference_session(…)` of this thread or task."""
        return self.remote.active_session

    def inference_session(self, max_length: int, *, max_batch: int | None = None) -> Any:
        """A context manager that opens a session, makes it the active one and closes it.

        Args:
            max_length: tokens that the session may hold in all (prompts of prompt tuning included).
            max_batch: rows that it may hold, beams included; None = those that the first call needs.
        """
        return self.remote.inference_session(max_length, max_batch=max_batch)

    def use_session(self, session: Session) -> Any:
        """A context manager that makes an open session the active one."""
        return self.remote.use_session(session)

    def save_prompts(self, path: str | Path) -> None:
        """Write the trained prompts as a safetensors file."""
        self._tuned().save(path)

    def load_prompts(self, path: str | Path) -> None:
        """Read prompts that `save_prompts` wrote for a model of this shape."""
        self._tuned().load(path)

    def _tuned(self) -> Prompts:
        if self._prompts is None:
            raise InvalidArgument(
                'this model has no prompts: load it with tuning_mode="ptune" or "deep_ptune" and pre_seq_len=…'
            )
        return self._prompts

    def save_pretrained(self, *args: Any, **kwargs: Any) -> None:
        raise Unsupported("only a part of the model is here; save_prompts(path) saves what was trained")

    def get_output_embeddings(self) -> nn.Module | None:
        return self._plain_head


class DistributedBase(DistributedModel, RemoteCore):
    """A base model that runs the remote layers itself, without a head."""


class DistributedHeaded(RemoteGeneration, DistributedModel):
    """A model with a head over a base model that runs the remote layers."""

    if TYPE_CHECKING:
        _head: Head | None

    @property
    def lm_head(self) -> Any:
        """Final norm and head over the raw output of `session.step`; the plain head inside the family's own code."""
        if self._plain_head is None:
            raise AttributeError(f"{type(self).__name__} has no head over the vocabulary")
        return self._plain_head if _INSIDE.get() else self._head

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        refuse(kwargs)
        token = _INSIDE.set(True)
        try:
            return self._plain_forward(*args, **kwargs)
        finally:
            _INSIDE.reset(token)


def dress(model: Any, core: Any, layers: RemoteLayers) -> Any:
    """Turn a transformers model, whose list of layers is `layers` alone, into a shell; in place, and returned.

    The object changes its class: so the weights are loaded and tied by transformers' own code first.

    Args:
        model: of any class with or without a head.
        core: the module in it (or itself) that holds the list of layers.
        layers: what stands in that list.
    """
    plain = model.get_output_embeddings()
    if core is model:
        make_remote(core, layers, mixin=DistributedBase)
    else:
        make_remote(core, layers)
        model.__class__ = remote_class(type(model), DistributedHeaded)
        object.__setattr__(model, "_head", None if plain is None else Head(model, plain))
        model.config._attn_implementation = core.config._attn_implementation
    object.__setattr__(model, "_transformer", Transformer(core, layers.remote))
    object.__setattr__(model, "_prompts", layers.prompts)
    object.__setattr__(model, "_plain_head", plain)
    return model
