"""What users of transformers do with a model, over real servers."""

import asyncio
import threading

import pytest
import torch
from sameness import assert_same
from texts import tokens

from blockswarm import AutoDistributedModelForCausalLM, InvalidArgument, SessionLost
from blockswarm.models.find import ModelNotServed

SCORES = {"return_dict_in_generate": True, "output_scores": True}


def test_only_embedding_norm_and_head_are_here(model, whole):
    own = {name for name, _ in model.named_parameters()}
    assert own == {"model.embed_tokens.weight", "model.norm.weight"}  # the head is tied to the embedding
    assert sum(p.numel() for p in model.parameters()) < 0.25 * sum(p.numel() for p in whole.parameters())


def test_forward_agrees_and_blocks_are_callable(model, whole, tokenizer):
    ids = tokens(tokenizer, 20)
    # Sums in another order; single hidden states of this model reach thousands, and lend others their rounding.
    near = {"atol": 2e-2, "rtol": 1e-3}
    with torch.no_grad():
        torch.testing.assert_close(model(ids).logits, whole(ids).logits, atol=2e-3, rtol=1e-3)
        hidden = model.transformer.word_embeddings(ids)
        part = model.transformer.h[3:17](hidden)  # crosses two servers
        want = whole.model(inputs_embeds=hidden, output_hidden_states=True)
        rotary = whole.model.rotary_emb(hidden, torch.arange(20)[None])
        expected = hidden
        for layer in whole.model.layers[3:17]:
            expected = layer(expected, position_embeddings=rotary)
        torch.testing.assert_close(part, expected, **near)
        everything = model.transformer.h(hidden)
        torch.testing.assert_close(whole.model.norm(everything), want.last_hidden_state, **near)
        with model.transformer.h[3:17].inference_session(max_length=32) as session:
            pieces = [session.step(hidden[:, :7]), session.step(hidden[:, 7:7]), session.step(hidden[:, 7:])]
        torch.testing.assert_close(torch.cat(pieces, dim=1), expected, **near)


def test_prompt_lookup_rolls_back(model, whole, tokenizer):
    ids = tokens(tokenizer, 60)
    how = {"do_sample": False, "max_new_tokens": 24, "prompt_lookup_num_tokens": 4, **SCORES}
    with model.inference_session(max_length=128) as session:
        got = model.generate(ids, session=session, **how)
        then = model.generate(None, session=session, max_new_tokens=4, do_sample=False)
    want = whole.generate(ids, do_sample=False, max_new_tokens=24, **SCORES)
    assert_same(want, got.sequences, 60, "prompt lookup")
    want = whole.generate(got.sequences, do_sample=False, max_new_tokens=4, **SCORES)
    assert_same(want, torch.cat([got.sequences, then], dim=1), 84, "after prompt lookup")


def test_token_by_token(model, whole, tokenizer):
    ids = tokens(tokenizer, 9)
    with model.inference_session(max_length=64) as session:
        parts = [model.generate(ids, session=session, max_new_tokens=1, do_sample=False)]
        parts += [model.generate(None, session=session, max_new_tokens=1, do_sample=False) for _ in range(9)]
        assert session.last_token_id.tolist() == parts[-1].tolist()
    want = whole.generate(ids, do_sample=False, max_new_tokens=10, **SCORES)
    assert_same(want, torch.cat(parts, dim=1), 9, "token by token")


def test_threads_with_sessions_of_their_own(model, whole, tokenizer):
    got = {}

    def work(number):
        ids = tokens(tokenizer, 5 + number, start=50 * number)
        with model.inference_session(max_length=40) as session:
            first = model.generate(ids, max_new_tokens=4, do_sample=False)
            got[number] = torch.cat([first, model.generate(None, session=session, max_new_tokens=4)], dim=1)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for number in range(4):
        ids = tokens(tokenizer, 5 + number, start=50 * number)
        want = whole.generate(ids, do_sample=False, max_new_tokens=8, **SCORES)
        assert_same(want, got[number], ids.shape[1], f"thread {number}")


async def test_blocking_calls_work_where_a_loop_runs(model, tokenizer):
    """As in a notebook."""
    assert asyncio.get_running_loop().is_running()
    assert model.generate(tokens(tokenizer, 4), max_new_tokens=3, do_sample=False).shape == (1, 7)


def test_servers_may_be_chosen(swarm, model_folder, tokenizer):
    ids = tokens(tokenizer, 4)
    only_b = AutoDistributedModelForCausalLM.from_pretrained(
        model_folder, blocked_servers=["s0a", "s1a", "s2a"]
    )
    with only_b.inference_session(max_length=16) as session:
        only_b.generate(ids, max_new_tokens=2)
        assert {hop.server_id for hop in session.chain} == {"s0b", "s1b", "s2b"}
    none = AutoDistributedModelForCausalLM.from_pretrained(
        model_folder, allowed_servers=["s0a", "s2a"], failover_timeout=0.5
    )
    with pytest.raises(SessionLost, match="10:20"):
        none.generate(ids, max_new_tokens=2)


def test_joining_the_dht_instead_of_asking_a_directory(swarm, model_folder, whole, tokenizer):
    peers = swarm.directory.facts()["peers"]
    model = AutoDistributedModelForCausalLM.from_pretrained(model_folder, initial_peers=peers)
    ids = tokens(tokenizer, 5)
    want = whole.generate(ids, do_sample=False, max_new_tokens=5, **SCORES)
    assert_same(want, model.generate(ids, do_sample=False, max_new_tokens=5), 5, "by the DHT")


def test_a_model_that_nobody_serves(swarm, model_folder, tmp_path):
    from tiny_model import tiny_llama

    with pytest.raises(ModelNotServed, match="smollm2-135m-instruct"):
        AutoDistributedModelForCausalLM.from_pretrained(tiny_llama(tmp_path), connect_timeout=0.5)
    with pytest.raises(InvalidArgument, match="served as float32, not as bfloat16"):
        AutoDistributedModelForCausalLM.from_pretrained(model_folder, dtype=torch.bfloat16)
    with pytest.raises(InvalidArgument, match="allowed_server"):
        AutoDistributedModelForCausalLM.from_pretrained(model_folder, allowed_server=["a"])
