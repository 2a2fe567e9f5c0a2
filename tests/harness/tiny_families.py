"""A tiny random model of every family, with multipliers that differ from the family's defaults."""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

BLOCKS = 5

# Set wherever a family's config knows the name.
_SIZES: dict[str, Any] = {
    "hidden_size": 64, "n_embd": 64, "d_model": 64, "num_attention_heads": 4, "n_head": 4, "n_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 96, "ffn_dim": 96, "ffn_hidden_size": 96,
    "n_inner": 96, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32, "num_hidden_layers": BLOCKS,
    "n_layer": BLOCKS, "n_layers": BLOCKS, "vocab_size": 256, "num_experts": 4, "num_local_experts": 4,
    "n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1, "n_group": 2, "topk_group": 1,
    "first_k_dense_replace": 2, "max_position_embeddings": 128, "n_positions": 128, "max_seq_len": 128,
    "sliding_window": 8, "rotary_dim": 8, "partial_rotary_factor": 0.5, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2, "query_pre_attn_scalar": 20, "rms_norm_eps": 1e-3, "layer_norm_epsilon": 1e-3,
    "layer_norm_eps": 1e-3, "logit_scale": 0.3, "routed_scaling_factor": 1.7, "initializer_range": 0.1,
    "attention_dropout": 0.1, "hidden_dropout": 0.1, "resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1,
}  # fmt: skip

_SLIDING, _FULL = "sliding_attention", "full_attention"
_MIXED = [_SLIDING, _FULL, _SLIDING, _SLIDING, _FULL]

# What else a family, or a variant of one (`family:variant`), needs or is worth testing with.
_OWN: dict[str, dict[str, Any]] = {
    "bloom": {"apply_residual_connection_post_layernorm": True},
    "cohere2": {"layer_types": _MIXED},
    "deepseek_v3": {
        "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "qk_head_dim": 16,
        "v_head_dim": 12, "head_dim": 8, "num_key_value_heads": 4,
    },
    "exaone4": {"layer_types": _MIXED},
    "falcon:alibi": {"alibi": True, "multi_query": False, "parallel_attn": False, "bias": True},
    "falcon:new": {"new_decoder_architecture": True, "num_kv_heads": 2},
    "gemma2": {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0, "layer_types": _MIXED},
    "gemma3_text": {"final_logit_softcapping": 3.0, "layer_types": _MIXED},
    "gpt2": {"scale_attn_by_inverse_layer_idx": True},
    "gpt2:upcast": {"reorder_and_upcast_attn": True, "scale_attn_by_inverse_layer_idx": True},
    "gpt_bigcode:heads": {"multi_query": False},
    "gpt_neox:serial": {"use_parallel_residual": False},
    "gpt_oss": {"layer_types": _MIXED},
    "granite": {
        "embedding_multiplier": 3.0, "attention_multiplier": 0.3, "residual_multiplier": 0.7, "logits_scaling": 2.0,
    },
    "lfm2": {"layer_types": ["conv", _FULL, "conv", "conv", _FULL]},
    "llama:llama3": {
        "rope_parameters": {
            "rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 32,
        },
        "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True,
    },
    "llama:yarn": {
        "rope_parameters": {
            "rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 32,
        },
    },
    "mistral:full": {"sliding_window": None},
    "opt": {"word_embed_proj_dim": 64},
    "opt:projected": {"word_embed_proj_dim": 32, "do_layer_norm_before": False},
    "phi3": {"partial_rotary_factor": 1.0},
    "qwen2:sliding": {"use_sliding_window": True, "max_window_layers": 2, "layer_types": _MIXED},
    "qwen3_moe": {"decoder_sparse_step": 1, "mlp_only_layers": [2], "norm_topk_prob": True},
    "smollm3": {"no_rope_layers": [1, 0, 1, 1, 0], "layer_types": [_FULL] * BLOCKS},
    "stablelm": {"qk_layernorm": True, "use_parallel_residual": True},
}  # fmt: skip


def variants(families: frozenset[str]) -> list[str]:
    """Every family, and after it its variants."""
    return sorted(families | {name for name in _OWN if ":" in name})


def tiny_config(name: str) -> Any:
    """Config of five blocks for a family or variant."""
    family = name.partition(":")[0]
    defaults = AutoConfig.for_model(family).to_dict()
    chosen = {key: value for key, value in _SIZES.items() if key in defaults}
    for key in ("layer_types", "mlp_layer_types"):
        if isinstance(defaults.get(key), list):
            chosen[key] = None
    chosen.update(_OWN.get(family, {}) | _OWN.get(name, {}))
    return AutoConfig.for_model(family, **chosen)


def save_tiny(name: str, folder: Path, *, seed: int = 0, **options: Any) -> Path:
    """Write a random model, as `save_pretrained` does. No parameter has the value it is usually created with."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(tiny_config(name))
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
    model.save_pretrained(folder, **options)
    return folder
