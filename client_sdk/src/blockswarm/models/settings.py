"""Generation parameters as transformers resolves them."""

from typing import Any


class Settings:
    """Looks a parameter up in the keywords, then in generation_config, then in the model's own generation_config."""

    def __init__(self, model: Any, generation_config: Any, kwargs: dict[str, Any]) -> None:
        given = {} if generation_config is None else vars(generation_config)
        self._sources = (kwargs, given, vars(model.generation_config))

    def __call__(self, name: str) -> Any:
        return next((source[name] for source in self._sources if source.get(name) is not None), None)

    @property
    def beams(self) -> int:
        return int(self("num_beams") or 1)

    @property
    def returned(self) -> int:
        """Sequences answered per row of the input."""
        return int(self("num_return_sequences") or 1)

    @property
    def expand(self) -> int:
        """Copies that transformers makes of every row."""
        return max(self.beams, self.returned)

    def length(self, tokens: int) -> int:
        """Tokens in all, of which `tokens` are given; transformers generates 20 where nothing is said."""
        new, total = self("max_new_tokens"), self("max_length")
        if new is None and total is not None:
            return max(int(total), tokens)
        return tokens + (20 if new is None else int(new))

    @property
    def pads_are_marked(self) -> bool:
        """Whether a pad token in the input means padding: not where it is also an end token."""
        pad, end = self("pad_token_id"), self("eos_token_id")
        return pad is not None and pad not in (end if isinstance(end, list) else [end])

    @property
    def filler(self) -> int:
        """An id for positions whose token nobody knows, since they were filled by hidden states."""
        for name in ("pad_token_id", "eos_token_id", "bos_token_id"):
            value = self(name)
            if value is not None:
                return int(value[0] if isinstance(value, list) else value)
        return 0
