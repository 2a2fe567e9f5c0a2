"""Tiny random models for tests, as folders of the kind that servers load."""

from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM


def tiny_llama(folder: Path, *, blocks: int = 6, seed: int = 0) -> Path:
    """A Llama of 64 hidden units and 256 words in `folder`, saved as safetensors."""
    config = LlamaConfig(
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=blocks,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=256,
        max_position_embeddings=2048,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        tie_word_embeddings=False,
    )
    torch.manual_seed(seed)
    model = LlamaForCausalLM(config).to(torch.float32)
    model.generation_config.eos_token_id = None
    model.save_pretrained(folder, safe_serialization=True)
    return folder
