"""`generate` of transformers over a session: several turns, beams, and only new tokens on the wire."""

import inspect
from typing import TYPE_CHECKING, Any

import torch

from blockswarm.models.cache import RemoteCache
from blockswarm.models.core import refuse
from blockswarm.models.protocol import Session
from blockswarm.models.settings import Settings
from blockswarm.models.turn import OwnPart, Turn
from blockswarm_wire.errors import InvalidArgument, Unsupported

_REFUSED = {
    "negative_prompt_ids": "classifier-free guidance needs a second cache; remove negative_prompt_ids",
    "negative_prompt_attention_mask": "classifier-free guidance needs a second cache; remove it",
    "position_ids": "the servers derive positions from the padding; remove position_ids and give attention_mask",
    "custom_generate": "a custom generation loop may bypass the session; remove custom_generate",
    "cache_implementation": "the KV cache lies on the servers; remove cache_implementation",
    "cache": "the KV cache lies on the servers; pass session=model.inference_session(…) instead of cache",
    "past_key_values": "the KV cache lies on the servers; pass session= instead of past_key_values",
}


class RemoteGeneration:
    """Mixed into a model with a head, before transformers' GenerationMixin."""

    if TYPE_CHECKING:
        config: Any
        generation_config: Any
        dtype: torch.dtype
        active_session: Session | None
        remote: Any
        _prompts: Any
        device: torch.device

    def generate(
        self,
        inputs: torch.Tensor | None = None,
        generation_config: Any = None,
        *args: Any,
        session: Session | None = None,
        streamer: Any = None,
        **kwargs: Any,
    ) -> Any:
        """transformers' `generate`, continuing a session.

        Args:
            inputs: ids [batch, tokens] of this turn only; None goes on from what the session holds.
            generation_config: as in transformers.
            session: one that was opened by `inference_session`; without it the active one, and without that a new one
                for this call.
            streamer: as in transformers; gets only this turn's ids.
            kwargs: as in transformers. `attention_mask` may cover this turn's ids or the session's past too;
                `max_length` counts the past.

        Returns:
            As in transformers, but `sequences` holds only this turn's ids: its prompt and what was generated. Logits
            processors and stopping criteria see the session's earlier ids too.

        Raises:
            Unsupported: an argument that cannot work remotely, such as output_attentions or use_cache=False.
            InvalidArgument: inputs that do not fit the session's rows or attention_mask.
            MaxLengthExceeded: the session is too short for the tokens asked for.
        """
        self._refuse(generation_config, kwargs)
        if session is not None and inspect.iscoroutinefunction(session.step):
            raise InvalidArgument("session: generate needs a blocking InferenceSession, not its async twin")
        if inputs is None:
            inputs = kwargs.pop("input_ids", None)
        session = self.active_session if session is None else session
        if session is not None:
            return self._turn(session, inputs, generation_config, args, streamer, kwargs, last=False)
        length = self._length(inputs, generation_config, kwargs)
        with self.remote.open_session(length) as session:
            return self._turn(session, inputs, generation_config, args, streamer, kwargs, last=True)

    def _turn(
        self,
        session: Session,
        inputs: torch.Tensor | None,
        generation_config: Any,
        args: tuple[Any, ...],
        streamer: Any,
        kwargs: dict[str, Any],
        *,
        last: bool,
    ) -> Any:
        setting = Settings(self, generation_config, kwargs)
        prefix = self._prefix
        turn = Turn.begin(session, inputs, kwargs.pop("attention_mask", None), prefix=prefix, setting=setting)
        if turn.mask is not None:
            kwargs["attention_mask"] = turn.mask
        if turn.past and kwargs.get("inputs_embeds") is not None:
            raise Unsupported(
                "inputs_embeds cannot continue a session with a past; pass ids, or open a new session"
            )
        cache = RemoteCache(session, prefix=prefix, fold=setting.expand)
        turn.reserve(setting.expand, inputs_embeds=kwargs.get("inputs_embeds"))
        if streamer is not None:
            kwargs["streamer"] = OwnPart(streamer, turn.past)
        try:
            result = super().generate(turn.ids, generation_config, *args, cache=cache, **kwargs)  # type: ignore[misc]
        except BaseException:
            turn.abandon(cache, setting)
            raise
        sequences = result if isinstance(result, torch.Tensor) else result.sequences
        own = turn.finish(sequences, setting, blank=self._blank, last=last)
        if isinstance(result, torch.Tensor):
            return own
        result.sequences = own
        return result

    def _blank(self, rows: int) -> torch.Tensor:
        """Hidden states of a step without tokens."""
        width = self.config.get_text_config().hidden_size
        return torch.empty(rows, 0, width, dtype=self.dtype, device=self.device)

    def _refuse(self, generation_config: Any, kwargs: dict[str, Any]) -> None:
        refuse(kwargs)
        for name, remedy in _REFUSED.items():
            if kwargs.get(name) is not None:
                raise Unsupported(f"{name}: {remedy}")
        setting = Settings(self, generation_config, kwargs)
        if setting("use_cache") is False:
            raise Unsupported("use_cache=False would send the whole past at every step; remove use_cache")
        for name in ("output_attentions", "output_hidden_states"):
            if setting(name):
                refuse({name: True})
        if (setting("guidance_scale") or 1) != 1:
            raise Unsupported("guidance_scale needs a second cache; remove guidance_scale")
        for name in ("speculation_type", "use_mtp"):
            if setting(name):
                raise Unsupported(f"{name} needs hidden states that stay on the servers; remove it")

    def _length(self, inputs: torch.Tensor | None, generation_config: Any, kwargs: dict[str, Any]) -> int:
        """Tokens that a session for one call must hold."""
        setting = Settings(self, generation_config, kwargs)
        own = kwargs.get("inputs_embeds") if inputs is None else inputs
        tokens = 1 if own is None else own.shape[1]  # without inputs, transformers starts from one BOS token
        return self._prefix + setting.length(tokens)

    @property
    def _prefix(self) -> int:
        return 0 if self._prompts is None else self._prompts.length
