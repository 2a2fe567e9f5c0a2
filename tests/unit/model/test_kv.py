"""The cache of a leg against transformers' own, and its accounting."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoConfig, DynamicCache

from blockswarm_services.server.kv import GrowingLayer, GrowingSlidingLayer, LegCache
from blockswarm_wire.errors import CannotTruncate, InvalidArgument

WINDOW = 5


def config(types, window=WINDOW):
    return AutoConfig.for_model(
        "gemma3_text", num_hidden_layers=len(types), layer_types=list(types), sliding_window=window
    )


def states(rows, tokens, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 2, tokens, 4, generator=generator), torch.randn(
        rows, 2, tokens, 3, generator=generator
    )


def step(cache, rows, tokens, seed, start=7):
    cache.begin(rows)
    shown = [cache.update(*states(rows, tokens, seed + i), start + i) for i in range(len(cache.layers))]
    cache.commit(rows, tokens)
    return shown


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=12))
def test_shows_what_transformers_shows(chunks):
    types = ["sliding_attention", "full_attention"]
    ours, theirs = LegCache(config(types), 7), DynamicCache(config=config(types))

    for number, tokens in enumerate(chunks):
        for place in range(2):
            assert ours.get_mask_sizes(tokens, place) == theirs.get_mask_sizes(tokens, place)
        shown = step(ours, 2, tokens, 10 * number)
        for i, (keys, values) in enumerate(shown):
            want = theirs.update(*states(2, tokens, 10 * number + i), i)
            assert torch.equal(keys, want[0])
            assert torch.equal(values, want[1])
    assert ours.get_seq_length() == theirs.get_seq_length() == ours.length == sum(chunks)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_truncation_and_reordering_leave_what_a_plain_list_would(data):
    cache, plain = LegCache(config(["full_attention"]), 7), None
    for number in range(data.draw(st.integers(1, 12))):
        rows = cache.rows or data.draw(st.integers(1, 3))
        if plain is not None and data.draw(st.booleans()):
            length = data.draw(st.integers(0, cache.length))
            cache.truncate(length)
            plain = plain[:, :, :length] if length else None
            rows = cache.rows or rows
        if plain is not None and data.draw(st.booleans()):
            wanted = data.draw(st.lists(st.integers(0, rows - 1), min_size=1, max_size=5))
            cache.reorder(wanted)
            plain, rows = plain[wanted], len(wanted)
        keys = states(rows, data.draw(st.integers(1, 20)), number)[0]
        plain = keys if plain is None else torch.cat([plain, keys], 2)
        shown = step(cache, rows, keys.shape[2], number)[0][0]
        assert torch.equal(shown, plain)
        assert cache.used_tokens == plain.shape[0] * plain.shape[2]
        assert cache.allocated_tokens >= cache.used_tokens


def test_holds_little_more_than_it_needs():
    cache = LegCache(config(["full_attention", "sliding_attention"]), 7)
    for number in range(50):
        step(cache, 3, 1, number)

    assert cache.used_tokens == 150
    assert cache.allocated_tokens <= 1.3 * 150
    assert cache.nbytes <= 1.3 * 150 * cache.token_bytes
    assert cache.token_bytes == 2 * 2 * (4 + 3) * 4


def test_gives_memory_back_when_cut():
    cache = LegCache(config(["full_attention"]), 7)
    step(cache, 1, 500, 0)
    cache.truncate(50)
    assert cache.allocated_tokens <= 65
    cache.truncate(0)
    assert (cache.allocated_tokens, cache.nbytes, cache.rows) == (0, 0, 0)


def test_never_grows_beyond_its_limit():
    cache = LegCache(config(["full_attention"]), 7, limit=12)
    step(cache, 1, 10, 0)
    assert cache.allocated_tokens == 12


def test_copies_each_token_a_constant_number_of_times():
    layer, resized = GrowingLayer(), []
    for number in range(2000):
        layer.update(*states(1, 1, number))
        if layer.capacity not in resized:
            resized.append(layer.capacity)
    assert sum(resized) < 12 * 2000


def test_a_window_is_kept_in_full():
    layer = GrowingSlidingLayer(WINDOW)
    layer.update(*states(1, 20, 0))
    layer.truncate(6)
    keys, _ = layer.update(*states(1, 1, 1))
    assert torch.equal(keys[:, :, :-1], states(1, 20, 0)[0][:, :, 2:6])


def test_refuses_what_it_cannot_do():
    cache = LegCache(config(["full_attention"]), 7)
    step(cache, 2, 4, 0)
    with pytest.raises(InvalidArgument, match="position 5"):
        cache.truncate(5)
    with pytest.raises(InvalidArgument, match="hypo_ids"):
        cache.reorder([0, 2])
    with pytest.raises(InvalidArgument, match="hypo_ids"):
        cache.reorder([])
    with pytest.raises(InvalidArgument, match="3 rows"):
        cache.begin(3)
    assert (cache.length, cache.rows) == (4, 2)


def test_a_state_without_length_cannot_be_cut_but_cleared():
    kinds = AutoConfig.for_model("lfm2", num_hidden_layers=2, layer_types=["conv", "full_attention"])
    cache = LegCache(kinds, 3)
    assert not cache.can_truncate
    cache.update_conv_state(torch.ones(1, 4, 3), 3)
    cache.update(*states(1, 5, 0), 4)
    cache.commit(1, 5)
    assert cache.get_seq_length() == 5
    assert cache.nbytes > 0
    with pytest.raises(CannotTruncate):
        cache.truncate(3)
    cache.reorder([0, 0])
    assert cache.get_conv_state(3).shape[0] == 2
    cache.truncate(0)
    assert cache.get_conv_state(3) is None
    assert cache.length == 0
