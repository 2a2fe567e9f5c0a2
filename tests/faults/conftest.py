"""One swarm of real processes over a tiny model, shared by all kill points; what a trial kills is started again."""

import pytest
import torch
from trial import SPANS, Arena

from swarm_processes import SwarmProcesses
from tiny_model import tiny_llama


@pytest.fixture(scope="session")
def arena(tmp_path_factory):
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("faults")
    model = tiny_llama(folder / "model", blocks=6, seed=3)
    with SwarmProcesses(folder, model, forked=True) as swarm:
        swarm.start_directory()
        for server_id, blocks in SPANS.items():
            swarm.start_server(server_id, blocks)
        swarm.wait_ready()
        with Arena.over(swarm, model) as made:
            yield made
