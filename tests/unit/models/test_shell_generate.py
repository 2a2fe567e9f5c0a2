"""transformers' generate over the shell gives what it gives over the whole model."""

import pytest
import torch
from shells import make_shell, make_whole
from transformers import StoppingCriteria, TextStreamer

from blockswarm_wire.errors import InvalidArgument, Unsupported


def prompt(rows=1, tokens=7, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, 60, (rows, tokens), generator=generator)


def both(whole, shell, ids, **kwargs):
    kwargs.setdefault("max_new_tokens", 10)
    torch.manual_seed(5)
    want = whole.generate(ids, **kwargs)
    torch.manual_seed(5)
    return want, shell.generate(ids, **kwargs)


@pytest.mark.parametrize(
    "how",
    [
        {"do_sample": False},
        {"do_sample": True, "temperature": 0.7, "top_k": 20, "top_p": 0.9, "repetition_penalty": 1.2},
        {"num_beams": 4, "do_sample": False},
        {"num_beams": 3, "num_return_sequences": 2, "do_sample": False},
        {"num_return_sequences": 3, "do_sample": True},
        {"prompt_lookup_num_tokens": 3, "do_sample": False, "max_new_tokens": 30},
        {"max_length": 12, "max_new_tokens": None},
        {"min_new_tokens": 4, "eos_token_id": 11},
        {"prefill_chunk_size": 3},
    ],
    ids=lambda how: "-".join(how),
)
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_same_as_whole(family, how):
    whole = make_whole(family)
    want, got = both(whole, make_shell(whole), prompt(), **how)
    assert got.tolist() == want.tolist()


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("family", ["llama", "gpt2", "bloom", "opt"])
def test_left_padded_batch(family, beams):
    whole = make_whole(family)
    ids = prompt(rows=3, tokens=9)
    mask = torch.ones_like(ids)
    for row, pad in enumerate((0, 4, 8)):
        ids[row, :pad] = 0
        mask[row, :pad] = 0
    shell = make_shell(whole)
    want, got = both(whole, shell, ids, attention_mask=mask, num_beams=beams, do_sample=False)
    assert got.tolist() == want.tolist()
    assert shell.remote.sessions[0].calls[0][3] == [0, 4, 8]


def test_padding_is_found_out_where_the_pad_token_is_its_own(whole, shell):
    ids = prompt(rows=2)
    ids[1, :3] = 0
    want, got = both(whole, shell, ids, do_sample=False)
    assert got.tolist() == want.tolist()
    assert shell.remote.sessions[0].calls[0][3] == [0, 3]


def test_returned_dict(whole, shell):
    kwargs = {"return_dict_in_generate": True, "output_scores": True, "output_logits": True}
    want, got = both(whole, shell, prompt(), **kwargs)
    assert got.sequences.tolist() == want.sequences.tolist()
    assert len(got.scores) == len(want.scores) == 10
    torch.testing.assert_close(torch.stack(got.logits), torch.stack(want.logits))
    want, got = both(whole, shell, prompt(), num_beams=3, **kwargs)
    assert got.beam_indices.tolist() == want.beam_indices.tolist()
    torch.testing.assert_close(got.sequences_scores, want.sequences_scores)


class StopAfter(StoppingCriteria):
    def __init__(self, length):
        self.length = length

    def __call__(self, input_ids, scores, **kwargs):
        return torch.full((len(input_ids),), input_ids.shape[1] >= self.length)


def test_stopping_criteria(shell):
    got = shell.generate(prompt(), max_new_tokens=10, stopping_criteria=[StopAfter(9)])
    assert got.shape == (1, 9)


def test_assistant_model(whole, shell):
    assistant = make_whole(seed=1)
    want = whole.generate(prompt(), max_new_tokens=10, do_sample=False)
    got = shell.generate(prompt(), max_new_tokens=10, do_sample=False, assistant_model=assistant)
    assert got.tolist() == want.tolist()


def test_without_a_prompt_it_starts_from_bos(whole, shell):
    want, got = both(whole, shell, None, do_sample=False)
    assert got.tolist() == want.tolist()


def test_embeddings_instead_of_ids(whole, shell):
    embeds = whole.get_input_embeddings()(prompt())
    want, got = both(whole, shell, None, inputs_embeds=embeds, do_sample=False)
    assert got.tolist() == want.tolist()


def test_input_ids_by_keyword(whole, shell):
    want = whole.generate(prompt(), max_new_tokens=4, do_sample=False)
    assert shell.generate(input_ids=prompt(), max_new_tokens=4, do_sample=False).tolist() == want.tolist()


def test_a_session_of_its_own_is_as_long_as_needed_and_closed(shell):
    shell.generate(prompt(), max_new_tokens=10)
    shell.generate(prompt(), max_length=12)
    shell.generate(prompt())
    assert [session.max_length for session in shell.remote.sessions] == [17, 12, 27]
    assert all(session.closed for session in shell.remote.sessions)


def test_beams_prefill_one_row_and_expand_after_it(shell):
    shell.generate(prompt(rows=2), max_new_tokens=4, num_beams=3, do_sample=False)
    session = shell.remote.sessions[0]
    assert session.reserved == 6
    assert [call[:2] for call in session.calls] == [(2, 7), (6, 1), (6, 1), (6, 1)]
    assert session.calls[1][2] is not None


def test_only_new_tokens_travel(shell):
    shell.generate(prompt(), max_new_tokens=4, do_sample=False)
    assert [call[:2] for call in shell.remote.sessions[0].calls] == [(1, 7), (1, 1), (1, 1), (1, 1)]
    assert all(call[2] is None and call[3] is None for call in shell.remote.sessions[0].calls)


@pytest.mark.parametrize(
    "argument",
    [
        {"output_attentions": True},
        {"output_hidden_states": True},
        {"use_cache": False},
        {"negative_prompt_ids": torch.ones(1, 1)},
        {"guidance_scale": 2.0},
        {"cache_implementation": "static"},
        {"cache_implementation": "paged"},
        {"past_key_values": ()},
        {"position_ids": torch.arange(7)[None]},
        {"custom_generate": "someone/something"},
        {"speculation_type": "dflash"},
    ],
    ids=lambda argument: next(iter(argument)),
)
def test_what_cannot_work_is_refused_by_name(shell, argument):
    with pytest.raises(Unsupported, match=next(iter(argument))):
        shell.generate(prompt(), max_new_tokens=2, **argument)
    assert not shell.remote.sessions


def test_padding_anywhere_is_cut_into_steps(whole, shell):
    mask = torch.ones(2, 7, dtype=torch.int64)
    mask[0, 2:4] = 0
    mask[1, 5] = 0
    want, got = both(whole, shell, prompt(rows=2), attention_mask=mask, do_sample=False)
    assert got.tolist() == want.tolist()
    calls = shell.remote.sessions[0].calls
    assert [call[1:] for call in calls[:3]] == [(2, None, None), (3, None, [2, 0]), (2, None, [0, 1])]


def test_right_padding_is_refused(shell):
    mask = torch.ones(2, 7, dtype=torch.int64)
    mask[0, -1] = 0
    with pytest.raises(InvalidArgument, match="pad on the left"):
        shell.generate(prompt(rows=2), attention_mask=mask, max_new_tokens=2)


def test_a_mask_of_another_width_is_refused(shell):
    with pytest.raises(InvalidArgument, match="attention_mask"):
        shell.generate(prompt(), attention_mask=torch.ones(1, 6), max_new_tokens=2)


def test_streamer_gets_prompt_and_tokens(shell):
    class Tokens:
        def __init__(self):
            self.seen = []

        def decode(self, ids, **kwargs):
            return " ".join(str(int(i)) for i in ids) + " "

    class Recorder(TextStreamer):
        def __init__(self, **kwargs):
            super().__init__(Tokens(), **kwargs)
            self.text = ""

        def on_finalized_text(self, text, stream_end=False):
            self.text += text

    recorder = Recorder()
    got = shell.generate(prompt(), max_new_tokens=5, do_sample=False, streamer=recorder)
    assert recorder.text.split() == [str(int(i)) for i in got[0]]
    recorder = Recorder(skip_prompt=True)
    got = shell.generate(prompt(), max_new_tokens=5, do_sample=False, streamer=recorder)
    assert recorder.text.split() == [str(int(i)) for i in got[0, 7:]]
