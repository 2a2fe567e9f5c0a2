"""A tiny llama on disk, in one file or in shards."""

import pytest
import torch
from hub_stub import Hub
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.utils import logging as transformers_logging


@pytest.fixture(autouse=True)
def _quiet():
    torch.set_num_threads(1)
    transformers_logging.disable_progress_bar()


@pytest.fixture
def save(tmp_path):
    def make(*, sharded=False, name="model"):
        torch.manual_seed(0)
        config = LlamaConfig(
            hidden_size=32, num_attention_heads=2, num_key_value_heads=1, intermediate_size=48, num_hidden_layers=4,
            vocab_size=64, max_position_embeddings=64,
        )  # fmt: skip
        LlamaForCausalLM(config).save_pretrained(tmp_path / name, max_shard_size="20KB" if sharded else "1GB")
        return tmp_path / name

    return make


@pytest.fixture
def hub(monkeypatch, tmp_path):
    with Hub() as server:
        from huggingface_hub import constants

        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        template = server.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        yield server
