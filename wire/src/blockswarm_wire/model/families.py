"""The families of models that can be cut into spans, and the ones that are known not to."""

from collections.abc import Mapping
from typing import Any

from blockswarm_wire.errors import InvalidArgument, Unsupported

# model_type of config.json. Each is tested: cut into uneven spans, with multipliers that differ from the
# defaults, its logits are bit-equal to the unsplit model's.
SUPPORTED = frozenset(
    {
        "bloom", "cohere", "cohere2", "deepseek_v3", "dots1", "ernie4_5", "exaone4", "falcon", "gemma",
        "gemma2", "gemma3_text", "glm4", "glm4_moe", "gpt2", "gpt_bigcode", "gpt_neox", "gpt_oss", "gptj",
        "granite", "helium", "hunyuan_v1_dense", "lfm2", "llama", "mistral", "mixtral", "mpt", "nemotron",
        "olmo2", "olmoe", "opt", "phi", "phi3", "qwen2", "qwen3", "qwen3_moe", "seed_oss", "smollm3",
        "stablelm", "starcoder2",
    }
)  # fmt: skip

# Why a family that people will try is refused.
_REASONS = {
    "minimax": "it keeps a cache of its own kind",
    "mamba2": "it has no attention layers",
    "qwen3_next": "its linear attention has not been tested in parts",
}


def check_family(config: Mapping[str, Any]) -> str:
    """The `model_type` of a raw config.json, if it can be cut.

    Code that a repository carries (`auto_map`) is never run; a family that transformers knows is built from
    transformers' own class.

    Raises:
        InvalidArgument: the config names no model_type.
        Unsupported: the family cannot be cut into spans.
    """
    family = config.get("model_type")
    if not isinstance(family, str):
        raise InvalidArgument("config.json has no `model_type`: is it a transformers model?")
    if config.get("quantization_config") is not None:
        raise Unsupported(
            "this checkpoint is quantized, which is not supported: use its unquantized original"
        )
    if config.get("is_encoder_decoder"):
        raise Unsupported(f"model family {family!r} is an encoder-decoder, which cannot be cut into spans")
    if family in SUPPORTED:
        return family
    reason = _REASONS.get(family, "it has not been tested in parts")
    if "auto_map" in config and family not in _REASONS:
        reason = "it needs code from its repository, which is never run"
    raise Unsupported(
        f"model family {family!r} cannot be served in spans: {reason}. Families that can: "
        f"{', '.join(sorted(SUPPORTED))}"
    )
