"""Several calls of generate in one session, as Petals' users know them."""

import pytest
import torch
from shells import make_shell, make_whole

from blockswarm_wire.errors import InvalidArgument, MaxLengthExceeded, Unsupported

GREEDY = {"do_sample": False}


def ids_of(*shape, seed=0):
    return torch.randint(3, 60, shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(params=["llama", "gpt2"])
def pair(request):
    whole = make_whole(request.param)
    return whole, make_shell(whole)


def test_one_call_equals_many(pair):
    whole, shell = pair
    want = whole.generate(ids_of(1, 7), max_new_tokens=12, **GREEDY)
    with shell.inference_session(max_length=32) as session:
        parts = [shell.generate(ids_of(1, 7), max_new_tokens=1, session=session, **GREEDY)]
        parts += [shell.generate(None, max_new_tokens=5, session=session, **GREEDY)]
        parts += [shell.generate(max_new_tokens=1, **GREEDY) for _ in range(6)]  # the active session
    assert torch.cat(parts, dim=1).tolist() == want.tolist()
    assert [part.shape[1] for part in parts] == [8, 5, 1, 1, 1, 1, 1, 1]
    assert session.output_ids.tolist() == want.tolist()
    assert session.position == want.shape[1] - 1
    assert all(call[1] == 1 for call in session.calls[1:])


def test_chat_turns(pair):
    whole, shell = pair
    first = whole.generate(ids_of(2, 6), max_new_tokens=5, **GREEDY)
    want = whole.generate(torch.cat([first, ids_of(2, 4, seed=1)], 1), max_new_tokens=5, **GREEDY)
    with shell.inference_session(max_length=64) as session:
        one = shell.generate(ids_of(2, 6), max_new_tokens=5, session=session, **GREEDY)
        two = shell.generate(ids_of(2, 4, seed=1), max_new_tokens=5, session=session, **GREEDY)
    assert one.tolist() == first.tolist()
    assert torch.cat([one, two], 1).tolist() == want.tolist()
    assert session.calls[5][:2] == (2, 5)  # the last token of the first turn and the new prompt


def test_second_ragged_turn(pair):
    whole, shell = pair
    mask = [torch.ones(2, 6, dtype=torch.int64), torch.ones(2, 4, dtype=torch.int64)]
    mask[0][0, :2] = 0
    mask[1][1, :3] = 0
    first = whole.generate(ids_of(2, 6), attention_mask=mask[0], max_new_tokens=5, **GREEDY)
    # The last token of the first turn is fed together with the second: its padding is not at the step's start.
    both = torch.cat([mask[0], torch.ones(2, 5, dtype=torch.int64), mask[1]], 1)
    ids = torch.cat([first, ids_of(2, 4, seed=1)], 1)
    want = whole.generate(ids, attention_mask=both, max_new_tokens=5, **GREEDY)
    with shell.inference_session(max_length=64) as session:
        one = shell.generate(
            ids_of(2, 6), attention_mask=mask[0], max_new_tokens=5, session=session, **GREEDY
        )
        two = shell.generate(
            ids_of(2, 4, seed=1), attention_mask=mask[1], max_new_tokens=5, session=session, **GREEDY
        )
    assert torch.cat([one, two], 1).tolist() == want.tolist()


def test_sampling_and_penalty_see_the_past(pair):
    whole, shell = pair
    how = {"do_sample": True, "temperature": 0.8, "repetition_penalty": 1.5}
    torch.manual_seed(3)
    want = whole.generate(ids_of(1, 5), max_new_tokens=12, **how)
    with shell.inference_session(max_length=64) as session:
        torch.manual_seed(3)
        parts = [shell.generate(ids_of(1, 5), max_new_tokens=6, session=session, **how)]
        parts += [shell.generate(None, max_new_tokens=6, session=session, **how)]
    assert torch.cat(parts, 1).tolist() == want.tolist()


@pytest.mark.parametrize("returned", [1, 2])
def test_beams_roll_back_and_their_choice_is_fed_again(pair, returned):
    whole, shell = pair
    how = {"num_beams": 3, "do_sample": False}
    first = whole.generate(ids_of(1, 6), max_new_tokens=6, num_return_sequences=returned, **how)
    want = whole.generate(torch.cat([first[:1], ids_of(1, 3, seed=1)], 1), max_new_tokens=6, **how)
    then = whole.generate(want, max_new_tokens=4, **GREEDY)
    with shell.inference_session(max_length=64) as session:
        one = shell.generate(
            ids_of(1, 6), max_new_tokens=6, session=session, num_return_sequences=returned, **how
        )
        assert (session.position, session.batch) == (6, 1)
        two = shell.generate(ids_of(1, 3, seed=1), max_new_tokens=6, session=session, **how)
        three = shell.generate(None, max_new_tokens=4, session=session, **GREEDY)
    assert one.tolist() == first.tolist()
    assert torch.cat([one[:1], two], 1).tolist() == want.tolist()
    assert torch.cat([one[:1], two, three], 1).tolist() == then.tolist()


def test_greedy_then_sequences_part_within_the_session(pair):
    whole, shell = pair
    with shell.inference_session(max_length=64, max_batch=3) as session:
        one = shell.generate(ids_of(1, 6), max_new_tokens=2, session=session, **GREEDY)
        shell.generate(None, max_new_tokens=1, do_sample=True, num_return_sequences=3, session=session)
        assert session.batch == 3
        got = shell.generate(None, max_new_tokens=3, session=session, **GREEDY)
    assert got.shape == (3, 3)
    assert session.output_ids.shape == (3, 12)
    want = whole.generate(session.output_ids[:, :9], max_new_tokens=3, **GREEDY)
    assert session.output_ids.tolist() == want.tolist()
    assert session.output_ids[:, :8].tolist() == one.expand(3, -1).tolist()


@pytest.mark.parametrize("back", [1, 3, 8])
def test_rolling_back(pair, back):
    whole, shell = pair
    with shell.inference_session(max_length=64) as session:
        one = shell.generate(ids_of(1, 6), max_new_tokens=6, session=session, **GREEDY)
        session.position -= back
        kept = one[:, : session.position]
        two = shell.generate(ids_of(1, 3, seed=1), max_new_tokens=5, session=session, **GREEDY)
        want = whole.generate(torch.cat([kept, ids_of(1, 3, seed=1)], 1), max_new_tokens=5, **GREEDY)
        assert torch.cat([kept, two], 1).tolist() == want.tolist()
        session.position -= back
        kept = session.output_ids[:, : session.position]
        got = shell.generate(None, max_new_tokens=3, session=session, **GREEDY)
        want = whole.generate(kept, max_new_tokens=3, **GREEDY)
        assert torch.cat([kept, got], 1).tolist() == want.tolist()


def test_rolling_back_to_zero_starts_anew(pair):
    whole, shell = pair
    with shell.inference_session(max_length=64) as session:
        shell.generate(ids_of(1, 6), max_new_tokens=6, session=session, **GREEDY)
        session.position = 0
        got = shell.generate(ids_of(1, 4, seed=2), max_new_tokens=5, session=session, **GREEDY)
    assert got.tolist() == whole.generate(ids_of(1, 4, seed=2), max_new_tokens=5, **GREEDY).tolist()


def test_last_token_may_be_replaced(pair):
    whole, shell = pair
    with shell.inference_session(max_length=64) as session:
        one = shell.generate(ids_of(1, 6), max_new_tokens=3, session=session, **GREEDY)
        one[:, -1] = 17
        session.output_ids = one.clone()
        two = shell.generate(ids_of(1, 2, seed=1), max_new_tokens=3, session=session, **GREEDY)
    want = whole.generate(torch.cat([one, ids_of(1, 2, seed=1)], 1), max_new_tokens=3, **GREEDY)
    assert torch.cat([one, two], 1).tolist() == want.tolist()


def test_generate_after_steps_by_hand(pair):
    whole, shell = pair
    ids = ids_of(1, 6)
    with shell.inference_session(max_length=64) as session:
        session.step(shell.transformer.word_embeddings(ids[:, :4]))
        got = shell.generate(ids[:, 4:], max_new_tokens=4, session=session, **GREEDY)
    assert got.tolist() == whole.generate(ids, max_new_tokens=4, **GREEDY)[:, 4:].tolist()


def test_an_interrupt_leaves_a_session_that_goes_on(pair):
    whole, shell = pair

    class Interrupt:
        def __init__(self):
            self.left = 4

        def put(self, value):
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt

    want = whole.generate(ids_of(1, 6), max_new_tokens=12, **GREEDY)
    with shell.inference_session(max_length=64) as session:
        with pytest.raises(KeyboardInterrupt):
            shell.generate(ids_of(1, 6), max_new_tokens=12, session=session, streamer=Interrupt(), **GREEDY)
        done = session.position
        assert session.output_ids.tolist() == want[:, :done].tolist()
        got = shell.generate(None, max_new_tokens=18 - done, session=session, **GREEDY)
    assert torch.cat([want[:, :done], got], 1).tolist() == want.tolist()


def test_an_interrupt_of_beams_rolls_back(pair):
    _, shell = pair

    left = [10]

    def fail(*args):
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        return list(range(64))

    with shell.inference_session(max_length=64) as session:
        with pytest.raises(KeyboardInterrupt):
            shell.generate(
                ids_of(1, 6), max_new_tokens=12, num_beams=3, prefix_allowed_tokens_fn=fail, session=session
            )
        assert session.position == 6
        assert session.output_ids.tolist() == ids_of(1, 6).expand(3, -1).tolist()


def test_streamer_is_shown_this_turn_only(shell):
    class Recorder:
        def __init__(self):
            self.values = []

        def put(self, value):
            self.values += value.flatten().tolist()

        def end(self):
            pass

    with shell.inference_session(max_length=64) as session:
        shell.generate(ids_of(1, 6), max_new_tokens=3, session=session, **GREEDY)
        recorder = Recorder()
        got = shell.generate(ids_of(1, 2), max_new_tokens=3, session=session, streamer=recorder, **GREEDY)
    assert recorder.values == got.flatten().tolist()


def test_refusals(shell):
    with shell.inference_session(max_length=20) as session:
        shell.generate(ids_of(2, 6), max_new_tokens=3, session=session)
        with pytest.raises(InvalidArgument, match="3 rows"):
            shell.generate(ids_of(3, 2), max_new_tokens=3, session=session)
        with pytest.raises(InvalidArgument, match="attention_mask"):
            shell.generate(ids_of(2, 2), attention_mask=torch.ones(2, 5), max_new_tokens=3, session=session)
        with pytest.raises(Unsupported, match="inputs_embeds"):
            shell.generate(inputs_embeds=torch.zeros(2, 2, 32), max_new_tokens=3, session=session)
        with pytest.raises(MaxLengthExceeded, match="Maximum length exceeded"):
            shell.generate(ids_of(2, 6), max_new_tokens=30, session=session)


def test_max_length_counts_the_past(shell):
    with shell.inference_session(max_length=32) as session:
        shell.generate(ids_of(1, 6), max_new_tokens=4, session=session)
        got = shell.generate(ids_of(1, 2), max_length=15, session=session)
    assert got.shape == (1, 5)
    assert session.output_ids.shape == (1, 15)
