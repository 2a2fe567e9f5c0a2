"""One swarm of real processes for all tests here: SmolLM2-135M in three spans, two servers each."""

import functools
import os
from pathlib import Path

import pytest
import torch
from sameness import NEAR_TIES

from swarm_processes import SwarmProcesses

MODEL = Path(__file__).parents[2] / ".models" / "smollm2-135m-instruct"
SPANS = ("0:10", "10:20", "20:30")


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def model_folder():
    if not (MODEL / "config.json").exists():
        pytest.fail(f"{MODEL} is missing: run `make {MODEL.relative_to(MODEL.parents[1])}`")
    return MODEL


@pytest.fixture(scope="session")
def swarm(tmp_path_factory, model_folder):
    folder = tmp_path_factory.mktemp("swarm")
    with SwarmProcesses(folder, model_folder, name="smollm2-135m-instruct", forked=True) as processes:
        processes.start_directory()
        for replica in "ab":
            for number, blocks in enumerate(SPANS):
                processes.start_server(f"s{number}{replica}", blocks, cache_tokens=32768)
        processes.wait_ready()
        old = os.environ.get("BLOCKSWARM_DIRECTORY")
        os.environ["BLOCKSWARM_DIRECTORY"] = processes.target
        yield processes
        os.environ.pop("BLOCKSWARM_DIRECTORY")
        if old is not None:
            os.environ["BLOCKSWARM_DIRECTORY"] = old


@pytest.fixture(scope="session")
def model(swarm, model_folder):
    from blockswarm import AutoDistributedModelForCausalLM

    return AutoDistributedModelForCausalLM.from_pretrained(model_folder)


@pytest.fixture(scope="session")
def whole(model_folder):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32).eval()
    model.generate = _with_two_threads(model.generate)
    return model


def _with_two_threads(function):
    """The servers are idle while the whole model computes: it may have both cores."""

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        torch.set_num_threads(min(2, os.cpu_count() or 1))
        try:
            return function(*args, **kwargs)
        finally:
            torch.set_num_threads(1)

    return wrapper


@pytest.fixture(scope="session")
def tokenizer(model_folder):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(model_folder, padding_side="left")


def pytest_terminal_summary(terminalreporter):
    if NEAR_TIES.compared:
        terminalreporter.write_line(str(NEAR_TIES))
