"""Trained prompts stand before each row's first real token, and survive saving."""

import pytest
import torch
from shells import make_shell

from blockswarm.models.prompts import Prompts
from blockswarm_wire.errors import InvalidArgument


def prompt(rows=1, tokens=7):
    return torch.randint(3, 60, (rows, tokens), generator=torch.Generator().manual_seed(0))


def test_prepend_stands_behind_the_padding(make_prompts):
    prompts = make_prompts("ptune", 2)
    hidden = torch.randn(2, 4, 32)
    dressed, deep = prompts.prepend(hidden, [0, 3])
    assert deep is None
    torch.testing.assert_close(dressed[0], torch.cat([prompts.shallow, hidden[0]]))
    torch.testing.assert_close(dressed[1], torch.cat([hidden[1, :3], prompts.shallow, hidden[1, 3:]]))
    torch.testing.assert_close(prompts.strip(dressed, [0, 3]), hidden)
    torch.testing.assert_close(prompts.strip(prompts.prepend(hidden, None)[0], None), hidden)


@pytest.mark.parametrize("mode", ["ptune", "deep_ptune"])
@pytest.mark.parametrize("beams", [1, 3])
def test_session_and_pass_agree(whole, make_prompts, mode, beams):
    """Greedy by whole passes, and by a session that was given the prompts once."""
    shell = make_shell(whole, prompts=make_prompts(mode))
    ids = prompt(rows=2)
    mask = torch.ones_like(ids)
    mask[1, :2] = 0
    want = shell.generate(ids, attention_mask=mask, max_new_tokens=6, do_sample=False, num_beams=beams)
    assert shell.remote.sessions[0].max_length == 3 + 7 + 6
    if beams == 1:
        by_passes, grown = ids, mask
        with torch.no_grad():
            for _ in range(6):
                logits = shell(by_passes, attention_mask=grown).logits[:, -1]
                by_passes = torch.cat([by_passes, logits.argmax(-1, keepdim=True)], 1)
                grown = torch.cat([grown, grown.new_ones(2, 1)], 1)
        assert want.tolist() == by_passes.tolist()
    with shell.inference_session(max_length=64) as session:
        parts = [
            shell.generate(
                ids, attention_mask=mask, max_new_tokens=4, session=session, do_sample=False, num_beams=beams
            )
        ]
        assert session.position == (3 + 7 + 3 if beams == 1 else 3 + 7)
        parts += [shell.generate(None, max_new_tokens=2, session=session, do_sample=False)]
        got = torch.cat(parts, 1)
        session.position = 3 + 5
        again = shell.generate(prompt(rows=2, tokens=2), max_new_tokens=2, session=session, do_sample=False)
    assert again.shape == (2, 4)
    if beams == 1:
        assert got.tolist() == want.tolist()


@pytest.mark.parametrize("mode", ["ptune", "deep_ptune"])
def test_every_prompt_gets_a_gradient(whole, make_prompts, mode):
    shell = make_shell(whole, prompts=make_prompts(mode))
    shell.requires_grad_(False)
    for parameter in shell._prompts.parameters():
        parameter.requires_grad_(True)
    ids = prompt(rows=2)
    shell(ids, labels=ids).loss.backward()
    for parameter in shell._prompts.parameters():
        assert bool((parameter.grad != 0).any())


@pytest.mark.parametrize("mode", ["ptune", "deep_ptune"])
def test_save_and_load(make_prompts, tmp_path, mode):
    one, two = make_prompts(mode), make_prompts(mode)
    one.save(tmp_path / "p.safetensors")
    two.load(tmp_path / "p.safetensors")
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    with pytest.raises(InvalidArgument, match="shapes"):
        make_prompts(mode, 5).load(tmp_path / "p.safetensors")
    with pytest.raises(InvalidArgument, match="cannot be read"):
        two.load(tmp_path / "absent.safetensors")
    (tmp_path / "bad.safetensors").write_bytes(b"nonsense")
    with pytest.raises(InvalidArgument, match="cannot be read"):
        two.load(tmp_path / "bad.safetensors")


def test_bad_settings():
    with pytest.raises(InvalidArgument, match="tuning_mode"):
        Prompts("prefix", 2, 8, 2)
    with pytest.raises(InvalidArgument, match="pre_seq_len"):
        Prompts("ptune", 0, 8, 2)
