"""Families of three kinds over real server processes: learned positions, sliding windows, fused experts."""

import pytest
import torch

from blockswarm import AutoDistributedModelForCausalLM
from swarm_processes import SwarmProcesses
from tiny_families import BLOCKS, save_tiny
from unsplit import logits_of_whole

CHUNKS = [slice(0, 4), slice(4, 12), *(slice(i, i + 1) for i in range(12, 20))]


@pytest.mark.parametrize("name", ["gpt2", "gemma3_text", "mixtral"])
@torch.inference_mode()
def test_bit_equal_over_processes(name, tmp_path):
    model = save_tiny(name, tmp_path / name)
    ids = torch.randint(3, 200, (2, 20), generator=torch.Generator().manual_seed(1))

    with SwarmProcesses(tmp_path, model, name=name, forked=True) as processes:
        processes.start_directory()
        for server, blocks in (("one", "0:1"), ("two", "1:4"), ("three", f"4:{BLOCKS}")):
            processes.start_server(server, blocks, cache_tokens=1024, deterministic=True)
        processes.wait_ready()
        client = AutoDistributedModelForCausalLM.from_pretrained(
            model, directory=processes.target, deterministic=True
        )
        with client.inference_session(max_length=20) as session:
            spans = torch.cat([client(ids[:, chunk]).logits for chunk in CHUNKS], dim=1)
            assert len(session.chain) == 3

    assert torch.equal(spans, logits_of_whole(model, ids, CHUNKS))
