import torch

from blockswarm.cli.stream import TextStream


class Bytes:
    """A tokenizer whose tokens are bytes; 0 is special."""

    def decode(self, ids, skip_special_tokens):
        assert skip_special_tokens
        return bytes(i for i in ids if i).decode(errors="replace")


def run(data: bytes) -> list[str]:
    pieces: list[str] = []
    stream = TextStream(Bytes(), pieces.append)
    stream.put(torch.tensor([[1, 2, 3]]))
    for byte in data:
        stream.put(torch.tensor([byte]))
    stream.end()
    assert stream.ids == list(data)
    return pieces


def test_every_token_is_shown_at_once_and_the_prompt_never():
    assert run(b"ab c") == ["a", "b", " ", "c"]


def test_a_character_is_held_back_until_it_is_whole():
    assert run("aé€".encode()) == ["a", "é", "€"]


def test_lines_go_on_after_a_line_end():
    assert run(b"a\n\nb\n") == ["a", "\n", "\n", "b", "\n"]


def test_special_tokens_show_nothing():
    assert run(b"a\0") == ["a"]


def test_what_never_became_whole_is_shown_at_the_end():
    assert run("é".encode()[:1]) == ["\ufffd"]


def test_a_second_answer_begins_with_a_prompt_again():
    pieces: list[str] = []
    stream = TextStream(Bytes(), pieces.append)
    for prompt, answer in ((b"x", b"a"), (b"y", b"b")):
        stream.put(torch.tensor([list(prompt)]))
        stream.put(torch.tensor(list(answer)))
        stream.end()
    assert pieces == ["a", "b"]
