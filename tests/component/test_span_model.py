"""One span of a tiny model: sub-ranges, prompts, rollback, beams, padding, gradients, failures, memory."""

import pytest
import torch

from blockswarm_services.server.model import SpanModel, first_real, positions
from blockswarm_wire.errors import CannotTruncate, InvalidArgument, ServerFault, Unsupported, WrongSpan
from blockswarm_wire.model.source import open_model
from blockswarm_wire.span import Span
from tiny_families import BLOCKS, save_tiny, tiny_config
from unsplit import unsplit

FAMILIES = ["llama", "gemma3_text", "gpt2", "mixtral", "falcon:alibi"]


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    made = {}

    def get(name):
        if name not in made:
            made[name] = save_tiny(name, tmp_path_factory.mktemp("model"))
        return made[name]

    return get


def span_of(folders, name, start=0, end=BLOCKS):
    return SpanModel.load(open_model(folders(name)), Span(start, end), dtype=torch.float32)


def run(model, cache, hidden, **kwargs):
    where = torch.arange(cache.length, cache.length + hidden.shape[1])[None]
    return model.forward(hidden, cache, position_ids=kwargs.pop("position_ids", where), **kwargs)


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", FAMILIES)
def test_any_sub_range_does_what_its_own_span_would(folders, name):
    whole, hidden = span_of(folders, name, 1, BLOCKS), randn(2, 9, 64)
    for start, end in [(1, 2), (2, 4), (4, 5), (1, 5)]:
        alone = span_of(folders, name, start, end)
        mine, theirs = whole.new_cache(start, end), alone.new_cache()
        for chunk in (hidden[:, :6], hidden[:, 6:7], hidden[:, 7:]):
            got = run(whole, mine, chunk, start=start, end=end)
            assert torch.equal(got, run(alone, theirs, chunk))


@pytest.mark.parametrize("name", FAMILIES)
def test_rollback_leaves_no_trace(folders, name):
    model, hidden = span_of(folders, name), randn(2, 20, 64)
    fresh, cut = model.new_cache(), model.new_cache()
    run(model, fresh, hidden[:, :8])
    run(model, cut, hidden[:, :8])
    run(model, cut, randn(2, 11, 64, seed=1))
    cut.truncate(8)
    assert torch.equal(run(model, fresh, hidden[:, 8:9]), run(model, cut, hidden[:, 8:9]))
    cut.truncate(0)
    again = model.new_cache()
    assert torch.equal(run(model, again, hidden), run(model, cut, hidden))


@pytest.mark.parametrize("name", [*FAMILIES, "lfm2"])
def test_beams_expand_and_shrink(folders, name):
    model, hidden = span_of(folders, name), randn(3, 8, 64)
    beams = model.new_cache()
    run(model, beams, hidden[:, :7])
    beams.reorder([2, 0, 0, 1, 2])
    many = run(model, beams, hidden[[2, 0, 0, 1, 2], 7:])
    assert torch.equal(many[1], many[2])
    beams.reorder([3])
    assert beams.rows == 1
    plain = model.new_cache()
    run(model, plain, hidden[:, :7])
    torch.testing.assert_close(many[[1, 3, 0]], run(model, plain, hidden[:, 7:]), atol=1e-5, rtol=1e-5)


def test_prompts_are_added_to_the_first_tokens_that_are_no_padding(folders):
    model, hidden, prompts = span_of(folders, "llama"), randn(2, 6, 64), randn(BLOCKS, 2, 3, 64, seed=1)
    mask = torch.ones(2, 6, dtype=torch.bool)
    mask[0, :2] = False
    got = run(
        model, model.new_cache(), hidden, prompts=prompts, prompt_starts=[2, 0], mask=mask,
        position_ids=positions(mask, 6),
    )  # fmt: skip

    for row, first in ((0, 2), (1, 0)):
        want = hidden[row : row + 1, first:]
        for block in range(BLOCKS):
            want = want.clone()
            want[:, :3] += prompts[block, row]
            one = model.new_cache(block, block + 1)
            want = run(model, one, want, start=block, end=block + 1)
        torch.testing.assert_close(got[row, first:], want[0], atol=1e-5, rtol=1e-5)
    assert not run(model, model.new_cache(), hidden).equal(got), "the hooks must be gone afterwards"


@pytest.mark.parametrize(
    "name", ["llama", "gemma2", "gemma3_text", "bloom", "mpt", "gpt_oss", "qwen2:sliding", "lfm2"]
)
def test_padding_of_any_kind_stays_out(folders, name):
    model, hidden = span_of(folders, name), randn(2, 24, 64)
    mask = torch.ones(2, 24, dtype=torch.bool)
    mask[0, :14] = False
    dirty = hidden.clone()
    dirty[0, :14] = float("nan")
    cache, parts = model.new_cache(), []
    for chunk in (slice(0, 10), slice(10, 20), slice(20, 21), slice(21, 24)):
        seen = mask[:, : chunk.stop]
        where = positions(seen, chunk.stop - chunk.start)
        parts.append(run(model, cache, dirty[:, chunk], mask=seen, position_ids=where))
    got = torch.cat(parts, 1)

    alone = model.new_cache()
    want = [run(model, alone, hidden[:1, chunk]) for chunk in (slice(14, 20), slice(20, 21), slice(21, 24))]
    assert torch.equal(got[0, :14], torch.zeros(14, 64))
    torch.testing.assert_close(got[0, 14:], torch.cat(want, 1)[0], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_pass_agrees_with_a_step_and_has_the_whole_models_gradients(folders, name):
    model, hidden = span_of(folders, name), randn(2, 7, 64).requires_grad_()
    prompts = (0.1 * randn(BLOCKS, 1, 2, 64, seed=3)).requires_grad_()
    output = model.pass_forward(hidden, prompts)
    step = run(model, model.new_cache(), hidden.detach(), prompts=prompts.detach())
    torch.testing.assert_close(output.detach(), step, atol=1e-5, rtol=1e-5)

    direction = randn(*output.shape, seed=4)
    grads = torch.autograd.grad(output, [hidden, prompts], direction)
    for value, grad in zip((hidden, prompts), grads, strict=True):
        way = randn(*value.shape, seed=5)
        with torch.no_grad():
            outputs = []
            for sign in (1, -1):
                moved = [v + sign * 1e-3 * way if v is value else v for v in (hidden, prompts)]
                outputs.append((model.pass_forward(*moved).double() * direction).sum())
        slope = (outputs[0] - outputs[1]) / 2e-3
        assert float((grad * way).sum()) == pytest.approx(float(slope), rel=0.05, abs=0.5)


def test_a_failed_step_leaves_the_leg_as_it_was(folders, monkeypatch):
    model, hidden = span_of(folders, "gemma3_text"), randn(1, 12, 64)
    cache, fresh = model.new_cache(), model.new_cache()
    run(model, cache, hidden[:, :11])
    run(model, fresh, hidden[:, :11])
    last = cache.layers[3]
    with monkeypatch.context() as broken:
        broken.setattr(last, "update", lambda *args, **kwargs: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(model, cache, hidden[:, 11:])
    assert cache.length == 11
    assert torch.equal(run(model, cache, hidden[:, 11:]), run(model, fresh, hidden[:, 11:]))


def test_a_failed_step_of_a_state_that_cannot_be_cut_loses_the_leg(folders, monkeypatch):
    model, hidden = span_of(folders, "lfm2"), randn(1, 12, 64)
    cache = model.new_cache()
    run(model, cache, hidden[:, :11])
    monkeypatch.setattr(cache.layers[4], "update", lambda *args, **kwargs: 1 / 0)
    with pytest.raises(ServerFault, match="half-way"):
        run(model, cache, hidden[:, 11:])
    with pytest.raises(CannotTruncate):
        cache.truncate(5)


def test_refuses_what_does_not_fit(folders):
    model = span_of(folders, "llama", 1, 3)
    cache = model.new_cache()
    with pytest.raises(InvalidArgument, match=r"\[1, 2, 63\]"):
        run(model, cache, randn(1, 2, 63))
    with pytest.raises(InvalidArgument, match="float64"):
        run(model, cache, randn(1, 2, 64).double())
    with pytest.raises(InvalidArgument, match="prompts"):
        run(model, cache, randn(1, 2, 64), prompts=randn(3, 1, 1, 64))
    with pytest.raises(WrongSpan, match="1:3"):
        model.new_cache(0, 2)
    with pytest.raises(WrongSpan):
        run(model, cache, randn(1, 2, 64), start=2, end=4)
    assert run(model, cache, randn(1, 0, 64)).shape == (1, 0, 64)
    assert cache.length == 0


def test_loads_its_blocks_only(folders):
    whole, model = unsplit(folders("llama")), span_of(folders, "llama", 1, 3)
    assert model.weight_bytes == sum(
        weight.nbytes for layer in whole.model.layers[1:3] for weight in layer.parameters()
    )
    assert (model.num_blocks, model.model_blocks, model.hidden_size) == (2, BLOCKS, 64)
    assert model.bytes_per_token == 2 * 2 * 2 * 16 * 4
    with pytest.raises(InvalidArgument, match="has 5 blocks"):
        span_of(folders, "llama", 3, 6)


@pytest.mark.parametrize(("name", "dtype"), [("llama", torch.bfloat16), ("deepseek_v3", torch.bfloat16)])
def test_computes_in_another_dtype_than_the_checkpoint(folders, name, dtype):
    model = SpanModel.load(open_model(folders(name)), Span(1, 4), dtype=dtype)
    output = run(model, model.new_cache(), randn(1, 3, 64).to(dtype))
    assert output.dtype == dtype
    assert bool(output.isfinite().all())


def test_a_family_that_cannot_be_cut_is_refused_before_weights_are_read(tmp_path):
    config = tiny_config("llama")
    config.save_pretrained(tmp_path)
    text = (tmp_path / "config.json").read_text().replace('"llama"', '"mamba2"')
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(Unsupported, match="mamba2"):
        SpanModel.load(open_model(tmp_path), Span(0, 1), dtype=torch.float32)


def test_finds_the_first_token_that_is_no_padding():
    mask = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1], [0, 0, 0, 0]], dtype=torch.bool)
    assert first_real(mask) == [2, 0, 4]
    assert positions(mask, 2).tolist() == [[0, 1], [2, 3], [0, 0]]
