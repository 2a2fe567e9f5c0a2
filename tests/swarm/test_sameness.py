"""The same ids as unsplit transformers, over real servers. Cheap cases first."""

import pytest
import torch
from sameness import assert_same
from texts import ragged, tokens

NEW = 64
GREEDY = {"do_sample": False, "max_new_tokens": NEW, "min_new_tokens": NEW}
SCORES = {"return_dict_in_generate": True, "output_scores": True}
LENGTHS = {
    1: [1, 1, 1, 1],
    17: [17, 11, 5, 1],
    300: [300, 200, 90, 17],
    1000: [1000, 640, 480, 300],  # pads of 520 and 700 tokens: longer than a chunk of 512
}


def greedy(whole, ids, **kwargs):
    return whole.generate(ids, **{**GREEDY, **SCORES, **kwargs})


@pytest.mark.parametrize("length", list(LENGTHS))
def test_one_row(model, whole, tokenizer, length):
    ids = tokens(tokenizer, length)
    got = model.generate(ids, **GREEDY)
    assert_same(greedy(whole, ids), got, length, f"{length} tokens")


@pytest.mark.parametrize("length", [1, 17, 300])
def test_ragged_batch(model, whole, tokenizer, length):
    ids, mask = ragged(tokenizer, LENGTHS[length])
    got = model.generate(ids, attention_mask=mask, **GREEDY)
    assert_same(greedy(whole, ids, attention_mask=mask), got, length, f"4 rows of {LENGTHS[length]}")


def test_second_ragged_turn(model, whole, tokenizer):
    ids, mask = ragged(tokenizer, [17, 11, 5, 1])
    more, more_mask = ragged(tokenizer, [3, 9, 1, 12], start=500)
    how = {**GREEDY, "max_new_tokens": 24, "min_new_tokens": 24}
    with model.inference_session(max_length=128) as session:
        first = model.generate(ids, attention_mask=mask, session=session, **how)
        second = model.generate(more, attention_mask=more_mask, session=session, **how)
    # The reference goes on from what the session said, so that a near-tie in the first turn does not spoil the second.
    whole_mask = torch.cat([mask, torch.ones(4, 24, dtype=mask.dtype), more_mask], dim=1)
    assert_same(greedy(whole, ids, attention_mask=mask, **how), first, 17, "first turn")
    before = torch.cat([first, more], dim=1)
    want = greedy(whole, before, attention_mask=whole_mask, **how)
    assert_same(want, torch.cat([first, second], dim=1), before.shape[1], "second ragged turn")


def test_sampling_with_a_seed(model, whole, tokenizer):
    ids = tokens(tokenizer, 17)
    how = {"do_sample": True, "temperature": 0.8, "top_p": 0.95, "top_k": 40, "repetition_penalty": 1.1}
    torch.manual_seed(11)
    want = whole.generate(ids, max_new_tokens=NEW, num_return_sequences=2, **how)
    torch.manual_seed(11)
    got = model.generate(ids, max_new_tokens=NEW, num_return_sequences=2, **how)
    assert got.tolist() == want.tolist()


def test_four_beams_and_going_on_after_them(model, whole, tokenizer):
    ids = tokens(tokenizer, 17)
    how = {"num_beams": 4, "do_sample": False, "max_new_tokens": 32, **SCORES}
    want = whole.generate(ids, **how)
    with model.inference_session(max_length=128) as session:
        got = model.generate(ids, session=session, **how)
        assert (session.position, session.batch) == (17, 1)
        then = model.generate(None, session=session, do_sample=False, max_new_tokens=8)
    if got.sequences.tolist() != want.sequences.tolist():
        torch.testing.assert_close(got.sequences_scores, want.sequences_scores, atol=1e-4, rtol=0)
    after = whole.generate(got.sequences, do_sample=False, max_new_tokens=8, **SCORES)
    assert_same(after, torch.cat([got.sequences, then], dim=1), got.sequences.shape[1], "after beams")


def test_rolling_back(model, whole, tokenizer):
    how = {**GREEDY, "max_new_tokens": 16, "min_new_tokens": 16}
    new = tokens(tokenizer, 5, start=900)
    with model.inference_session(max_length=1100) as session:
        model.generate(tokens(tokenizer, 700), session=session, **how)
        # One and ten tokens; into the middle of the second chunk (512…700) and of the first; to nothing.
        for position in (session.position - 1, session.position - 11, 600, 300, 17, 0):
            session.position = position
            kept = session.output_ids[:, :position]
            got = model.generate(new, session=session, **how)
            ids = torch.cat([kept, new], dim=1)
            want = greedy(whole, ids, **how)
            assert_same(want, torch.cat([kept, got], dim=1), ids.shape[1], f"rolled back to {position}")


@torch.no_grad()
def test_rolling_back_across_a_reorder(model, whole, tokenizer):
    """Four rows go on from one prompt, change places, and are rolled back to before they did."""
    prompt = tokens(tokenizer, 17)
    embed, head = model.transformer.word_embeddings, model.lm_head
    order = torch.tensor([2, 0, 3, 3])
    first = torch.tensor([[100], [200], [300], [400]])
    second = torch.tensor([[500], [600], [700], [800]])
    with model.inference_session(max_length=64, max_batch=4) as session:
        session.step(embed(prompt))
        session.step(embed(first), hypo_ids=torch.zeros(4, dtype=torch.int64))
        before = session.step(embed(second))
        session.step(embed(second), hypo_ids=order)
        session.position = 18
        again = session.step(embed(second[order]))
        session.position = 17
        fresh = session.step(embed(first))
    torch.testing.assert_close(again, before[order], atol=2e-4, rtol=1e-4)
    ids = torch.cat([prompt.expand(4, -1), first[order], second[order]], dim=1)
    torch.testing.assert_close(head(again)[:, -1], whole(ids).logits[:, -1], atol=1e-3, rtol=1e-4)
    ids = torch.cat([prompt.expand(4, -1), first], dim=1)
    torch.testing.assert_close(head(fresh)[:, -1], whole(ids).logits[:, -1], atol=1e-3, rtol=1e-4)


def test_ragged_batch_with_a_pad_longer_than_a_chunk(model, whole, tokenizer):
    ids, mask = ragged(tokenizer, LENGTHS[1000])
    how = {**GREEDY, "max_new_tokens": NEW, "min_new_tokens": NEW}
    got = model.generate(ids, attention_mask=mask, **how)
    assert_same(greedy(whole, ids, attention_mask=mask, **how), got, 1000, f"4 rows of {LENGTHS[1000]}")
