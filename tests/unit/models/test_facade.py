"""Driving a session by hand, and models called without one."""

import pytest
import torch
from shells import make_shell, make_whole
from transformers import DynamicCache

from blockswarm.models.remote import RemoteSequential
from blockswarm_wire.errors import InvalidArgument, Unsupported

FAMILIES = ["llama", "gpt2", "bloom", "opt", "gemma2", "cohere", "granite", "gpt_neox", "falcon", "mpt"]


def prompt(rows=1, tokens=7):
    return torch.randint(3, 60, (rows, tokens), generator=torch.Generator().manual_seed(0))


def lively(family):
    """Multipliers and caps that differ from the defaults, where the family has them."""
    return make_whole(
        family,
        embedding_multiplier=3.0,
        logits_scaling=0.5,
        logit_scale=0.25,
        final_logit_softcapping=5.0,
        residual_multiplier=0.7,
        word_embed_proj_dim=16,
    )


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_by_hand_as_the_seed_does_it(family):
    whole = lively(family)
    model = make_shell(whole)
    inputs = prompt()
    ids, logits_by_hand = [inputs], []
    with model.inference_session(max_length=50) as session:
        embs = model.transformer.word_embeddings(inputs)
        hidden = session.step(embs)
        for _ in range(6):
            logits = model.lm_head(hidden[:, -1:, :])
            logits_by_hand.append(logits)
            next_token = torch.argmax(logits, dim=-1)
            ids.append(next_token)
            embs = model.transformer.word_embeddings(next_token)
            hidden = session.step(embs)
    want = whole.generate(
        inputs, max_new_tokens=6, do_sample=False, return_dict_in_generate=True, output_logits=True
    )
    assert torch.cat(ids, dim=1).tolist() == want.sequences.tolist()
    torch.testing.assert_close(
        torch.cat(logits_by_hand, 1), torch.stack(want.logits, 1), atol=1e-4, rtol=1e-4
    )


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_logits_without_a_session(family):
    whole = lively(family)
    shell = make_shell(whole)
    torch.testing.assert_close(shell(prompt()).logits, whole(prompt()).logits, atol=1e-4, rtol=1e-4)
    assert shell(prompt()).cache is None


@torch.no_grad()
def test_forward_inside_a_session_goes_on(whole, shell):
    ids = prompt()
    with shell.inference_session(max_length=16) as session:
        parts = [shell(ids[:, :4]).logits, shell(ids[:, 4:]).logits]
        assert session.position == 7
    torch.testing.assert_close(torch.cat(parts, 1), whole(ids).logits, atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_the_returned_cache_may_be_passed_on(whole, shell):
    ids = prompt()
    with shell.inference_session(max_length=16):
        first = shell(ids[:, :4])
        second = shell(ids[:, 4:], cache=first.cache)
    torch.testing.assert_close(second.logits, whole(ids).logits[:, 4:], atol=1e-4, rtol=1e-4)


def test_final_norm_explains_itself(shell):
    for name in ("ln_f", "norm"):
        with pytest.raises(AttributeError, match="lm_head"):
            getattr(shell.transformer, name)
    gpt2 = make_shell(make_whole("gpt2"))
    with pytest.raises(AttributeError, match="lm_head"):
        _ = gpt2.transformer.ln_f
    assert gpt2.transformer.wte is gpt2.get_input_embeddings()


def test_names_of_the_plain_modules_still_work(whole, shell):
    assert shell.lm_head.weight is shell.get_output_embeddings().weight
    assert shell.transformer.word_embeddings.num_embeddings == 64
    assert shell.transformer.embed_tokens is shell.get_input_embeddings()
    assert set(shell.state_dict()) == {k for k in whole.state_dict() if ".layers." not in k}


def test_ranges_of_blocks(shell):
    blocks = RemoteSequential(shell.config, shell.remote.manager)
    assert isinstance(shell.transformer.h, RemoteSequential)
    assert len(blocks) == 4
    assert (blocks[1:3].start, blocks[1:3].end) == (1, 3)
    assert (blocks[-1].start, blocks[-1].end) == (3, 4)
    assert (blocks[1:][1:2].start, blocks[1:][1:2].end) == (2, 3)
    assert [len(part) for part in blocks] == [4]
    with pytest.raises(IndexError):
        blocks[4]
    with pytest.raises(InvalidArgument, match="3:3"):
        blocks[3:3]
    with pytest.raises(InvalidArgument, match="step 1"):
        blocks[::2]


def test_refusals_of_forward(shell):
    with pytest.raises(Unsupported, match="output_hidden_states"):
        shell(prompt(), output_hidden_states=True)
    with pytest.raises(Unsupported, match="inference_session"):
        shell(prompt(), cache=DynamicCache(config=shell.config))
    with pytest.raises(Unsupported, match="save_prompts"):
        shell.save_pretrained("/nowhere")
    with pytest.raises(InvalidArgument, match="tuning_mode"):
        shell.save_prompts("/nowhere")
    with pytest.raises(InvalidArgument, match="hypo_ids"):
        shell.transformer.h(torch.zeros(1, 1, 32), hypo_ids=torch.tensor([0]))


def test_padding_without_a_session(whole, shell):
    ids = prompt(rows=2)
    mask = torch.ones_like(ids)
    mask[1, :3] = 0
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    with torch.no_grad():
        got = shell(ids, attention_mask=mask).logits
        want = whole(ids, attention_mask=mask, position_ids=positions).logits
        torch.testing.assert_close(got[mask.bool()], want[mask.bool()], atol=1e-4, rtol=1e-4)
        mask = torch.ones_like(ids)
        mask[1, 4:] = 0
        got = shell(ids, attention_mask=mask).logits
        want = whole(ids, attention_mask=mask).logits
        torch.testing.assert_close(got[mask.bool()], want[mask.bool()], atol=1e-4, rtol=1e-4)
    mask[1, 2] = 0
    mask[1, 4:] = 1
    with pytest.raises(InvalidArgument, match="between real tokens"):
        shell(ids, attention_mask=mask)


def test_gradients_reach_embedding_and_head(whole, shell):
    ids = prompt(rows=2)
    shell(ids, labels=ids).loss.backward()
    whole.zero_grad()
    whole(ids, labels=ids).loss.backward()
    for name in ("model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"):
        got, want = shell.get_parameter(name).grad, whole.get_parameter(name).grad
        torch.testing.assert_close(got, want, atol=1e-4, rtol=1e-4)
