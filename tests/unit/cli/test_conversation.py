"""A chat sends only what its session does not hold, and rolls back where the two differ."""

import pytest
import torch

from blockswarm.cli.chat import Conversation


class Words:
    """A tokenizer with one id per character and a template of one line per message."""

    chat_template = "yes"

    def apply_chat_template(self, messages, **_):
        text = "".join(f"{message['role'][0]}:{message['content']}\n" for message in messages) + "a:"
        return {"input_ids": torch.tensor([[ord(letter) for letter in text]])}

    def decode(self, ids, skip_special_tokens):
        return "".join(chr(i) for i in ids)


class Session:
    output_ids = None
    position = 0


class Model:
    """Answers with the next of `answers`; like a real session, its last id is not fed yet."""

    def __init__(self, answers):
        self.answers = list(answers)
        self.sent = []

    def generate(self, inputs, session, streamer, **_):
        self.sent.append("".join(chr(i) for i in inputs[0].tolist()))
        answer = torch.tensor([[ord(letter) for letter in self.answers.pop(0)]])
        held = session.output_ids[:, : session.keep] if session.output_ids is not None else inputs[:, :0]
        session.output_ids = torch.cat([held, inputs, answer], dim=1)
        session.position = session.output_ids.shape[1] - 1
        session.keep = session.output_ids.shape[1]
        streamer.put(inputs)
        for letter in answer[0]:
            streamer.put(letter[None])
        streamer.end()


class RollingSession(Session):
    """Drops what lies behind the position, once that is set below what is held."""

    keep = 0

    def __setattr__(self, name, value):
        if name == "position" and self.output_ids is not None and value < self.output_ids.shape[1] - 1:
            object.__setattr__(self, "keep", value)
        object.__setattr__(self, name, value)


def talk(answers, *texts):
    model = Model(answers)
    conversation = Conversation(model, Words(), RollingSession(), None, {})
    replies = [conversation.turn(text) for text in texts]
    return model, conversation, replies


def test_the_second_turn_sends_only_what_is_new():
    model, _, replies = talk(["yes\n", "no\n"], "one", "two")
    # The template closes the first answer with a line end of its own, since decode gave one already.
    assert model.sent[0] == "u:one\na:"
    assert model.sent[1] == "\nu:two\na:"
    assert replies == ["yes\n", "no\n"]


def test_an_answer_that_reads_differently_rolls_the_session_back():
    model, conversation, _ = talk(["yes"], "one")
    session = conversation._session
    session.output_ids = torch.cat([session.output_ids, torch.tensor([[ord("!"), ord("?")]])], dim=1)
    session.position = session.output_ids.shape[1] - 1
    model.answers.append("no")
    conversation.turn("two")
    assert model.sent[1] == "\nu:two\na:"
    assert "".join(chr(i) for i in session.output_ids[0]) == "u:one\na:yes\nu:two\na:no"


def test_an_interrupted_answer_stays_in_the_conversation():
    class Interrupted(Model):
        def generate(self, inputs, session, streamer, **more):
            super().generate(inputs, session, streamer, **more)
            raise KeyboardInterrupt

    conversation = Conversation(Interrupted(["par"]), Words(), RollingSession(), "be kind", {})
    with pytest.raises(KeyboardInterrupt):
        conversation.turn("one")
    assert [message["content"] for message in conversation._messages] == ["be kind", "one", "par"]
