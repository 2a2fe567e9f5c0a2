"""The part of a transformers model that runs its layers, made to run the remote ones."""

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from blockswarm.models.cache import RemoteCache
from blockswarm.models.layers import RUN, RemoteLayers, Run
from blockswarm_wire.errors import InvalidArgument, Unsupported

# An attention implementation that transformers knows no mask function for: no mask is ever built.
_NO_ATTENTION = "blockswarm"
# Families whose own code fails without a mask; they build one, and nobody reads it.
_WANT_MASK = frozenset({"mpt"})
_REFUSED = {
    "output_attentions": "attention weights never leave the servers; remove output_attentions",
    "output_hidden_states": "hidden states between blocks never leave the servers; call model.transformer.h[:k] on "
    "the embeddings for those before block k",
    "head_mask": "heads cannot be masked remotely; remove head_mask",
    "encoder_hidden_states": "cross attention is not supported; remove encoder_hidden_states",
}


class RemoteCore:
    """Mixed into the class of the module that holds the list of layers.

    `forward` decides what the one remote layer is to do (a session's step or a stateless pass), then runs the
    family's own code around it.
    """

    if TYPE_CHECKING:
        _remote_layers: RemoteLayers
        _plain_forward: Callable[..., Any]
        _parameter_names: tuple[str, ...]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        kwargs.update(zip(self._parameter_names, args, strict=False))
        refuse(kwargs)
        if (run := RUN.get()) is not None and (run.capture or run.replace is not None):
            return self._plain_forward(**kwargs)
        cache = self._cache_of(kwargs)
        kwargs["cache"] = cache
        kwargs["use_cache"] = cache is not None
        token = RUN.set(Run(cache=cache, mask=_mask(kwargs, cache)))
        try:
            output = self._plain_forward(**kwargs)
        finally:
            RUN.reset(token)
        if cache is not None and kwargs.get("input_ids") is not None:
            cache.fed.append(kwargs["input_ids"])
        return output

    def _cache_of(self, kwargs: dict[str, Any]) -> RemoteCache | None:
        cache = kwargs.get("cache")
        if cache is None:
            cache = kwargs.pop("past_key_values", None)
        if isinstance(cache, RemoteCache):
            return cache
        if cache is not None:
            raise Unsupported(
                f"cache: a {type(cache).__name__} cannot hold a remote cache; open a session with "
                "model.inference_session(max_length=…) and call the model inside it"
            )
        layers = self._remote_layers
        session = layers.remote.active_session
        if session is None:
            return None
        return RemoteCache(session, prefix=layers.prompts.length if layers.prompts is not None else 0)


def refuse(kwargs: dict[str, Any]) -> None:
    """
    Raises:
        Unsupported: an argument that needs what stays on the servers; names it and the remedy.
    """
    for name, remedy in _REFUSED.items():
        value = kwargs.get(name)
        if value is not None and value is not False:
            raise Unsupported(f"{name}: {remedy}")


def _mask(kwargs: dict[str, Any], cache: RemoteCache | None) -> torch.Tensor | None:
    mask: torch.Tensor | None = kwargs.get("attention_mask")
    own = kwargs.get("input_ids")
    own = kwargs.get("inputs_embeds") if own is None else own
    if mask is None or own is None:  # without any input, the family's own code says what is missing
        return None
    width = own.shape[1] + (cache.get_seq_length() if cache is not None else 0)
    if mask.shape[-1] != width:
        raise InvalidArgument(
            f"attention_mask covers {mask.shape[-1]} positions, but past and new tokens are {width}"
        )
    return mask


class _NoRotary(nn.Module):
    """Rotary tables are the servers' business: nothing is computed for them here."""

    def forward(self, *args: object, **kwargs: object) -> tuple[None, None]:
        return None, None


def make_remote(core: Any, layers: RemoteLayers, *, mixin: type[Any] = RemoteCore) -> None:
    """Turn `core`, whose list of layers is `layers` alone, into one that runs remotely."""
    core.__class__ = remote_class(type(core), mixin)
    object.__setattr__(core, "_remote_layers", layers)
    core.config._attn_implementation = "eager" if core.config.model_type in _WANT_MASK else _NO_ATTENTION
    for name, _ in list(core.named_children()):
        if name.startswith("rotary_emb"):
            setattr(core, name, _NoRotary())


def remote_class(plain: type[Any], mixin: type[Any]) -> type[Any]:
    """A subclass of `plain` with the mixin's `forward`, which shows plain's signature, since generate asks for it."""
    forward = plain.forward
    signature = inspect.signature(forward)

    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        return mixin.forward(self, *args, **kwargs)

    wrapped.__signature__ = signature  # type: ignore[attr-defined]
    wrapped.__doc__ = forward.__doc__
    return type(
        f"Distributed{plain.__name__}",
        (mixin, plain),
        {
            "__module__": plain.__module__,
            "forward": wrapped,
            "_plain_forward": forward,
            "_parameter_names": tuple(signature.parameters)[1:],
        },
    )


def capture(core: Any, input_ids: torch.Tensor, position_ids: torch.Tensor | None) -> torch.Tensor:
    """What the first block takes for these ids: embeddings with everything that the family does to them."""
    run = Run(capture=True)
    token = RUN.set(run)
    try:
        extra = {"position_ids": position_ids} if "position_ids" in core._parameter_names else {}
        core(input_ids=input_ids, use_cache=False, **extra)
    finally:
        RUN.reset(token)
    assert run.captured is not None
    return run.captured
