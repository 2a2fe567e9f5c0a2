"""Show text while its tokens come in."""

from collections.abc import Callable
from typing import Any

_UNFINISHED = "\ufffd"


class TextStream:
    """A streamer for `generate` (one row): calls `show` with each new piece of text, as soon as it is whole.

    Args:
        tokenizer: turns ids into text; special tokens are left out.
        show: gets the pieces; joined they are the text of `ids`.
    """

    def __init__(self, tokenizer: Any, show: Callable[[str], None]) -> None:
        self._tokenizer = tokenizer
        self._show = show
        self._prompt_is_next = True
        self._line_start = 0
        self._shown = 0
        self.ids: list[int] = []

    def put(self, value: Any) -> None:
        """Take the prompt's ids at first, then the generated ones."""
        if self._prompt_is_next:
            self._prompt_is_next = False
            return
        self.ids.extend(value.flatten().tolist())
        text = self._text()
        if text.endswith(_UNFINISHED):
            # Bytes of a character whose rest is in a later token.
            return
        self._emit(text)
        if text.endswith("\n"):
            # Nothing behind a line's end changes what stands before it, so old ids need not be decoded again.
            self._line_start, self._shown = len(self.ids), 0

    def end(self) -> None:
        """Show what was held back; the next `put` is a prompt again."""
        self._emit(self._text())
        self._prompt_is_next = True

    def _text(self) -> str:
        return str(self._tokenizer.decode(self.ids[self._line_start :], skip_special_tokens=True))

    def _emit(self, text: str) -> None:
        if len(text) > self._shown:
            self._show(text[self._shown :])
            self._shown = len(text)


def show_on_stdout(piece: str) -> None:
    """Print at once, without a line's end."""
    print(piece, end="", flush=True)
