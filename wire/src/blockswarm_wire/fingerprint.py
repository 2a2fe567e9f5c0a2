"""Which model is this? An identity made of contents; names and paths are labels.

fingerprint = sha256(canonical config, weights id, dtype, quantization). Two folders with the same bytes agree, two
fine-tunes with one config do not.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from blockswarm_wire.errors import InvalidArgument

# Keys of config.json that say where a model came from or how it is loaded, not what it is.
_LABELS = frozenset({"_name_or_path", "transformers_version", "dtype", "torch_dtype"})
_SHA256 = re.compile(r"[0-9a-f]{64}")

DTYPES = ("float32", "bfloat16", "float16")
QUANTIZATIONS = ("none",)


def canonical_config(config: Mapping[str, Any]) -> bytes:
    """`config.json` with sorted keys, without the keys that are mere labels."""
    kept = {key: value for key, value in config.items() if key not in _LABELS}
    return json.dumps(kept, sort_keys=True, separators=(",", ":")).encode()


def weights_id(files: Mapping[str, str]) -> str:
    """sha256 over the sorted (file name, sha256) of all safetensors files.

    Raises:
        InvalidArgument: no file, or a value that is not a lower-case hex sha256.
    """
    if not files:
        raise InvalidArgument("the model has no .safetensors file")
    for name, digest in files.items():
        if not _SHA256.fullmatch(digest):
            raise InvalidArgument(f"sha256 of {name!r} is not 64 lower-case hex digits")
    lines = "".join(f"{name}\0{digest}\n" for name, digest in sorted(files.items()))
    return hashlib.sha256(lines.encode()).hexdigest()


def fingerprint(config: Mapping[str, Any], weights: str, dtype: str, quantization: str = "none") -> str:
    """Identity of a model as it is computed with: 64 hex digits.

    Args:
        config: contents of config.json.
        weights: what `weights_id` gave.
        dtype: one of DTYPES; the type in which the blocks compute.
        quantization: one of QUANTIZATIONS.
    """
    if dtype not in DTYPES:
        raise InvalidArgument(f"dtype {dtype!r} is not one of {', '.join(DTYPES)}")
    if quantization not in QUANTIZATIONS:
        raise InvalidArgument(f"quantization {quantization!r} is not one of {', '.join(QUANTIZATIONS)}")
    parts = (canonical_config(config), weights.encode(), dtype.encode(), quantization.encode())
    return hashlib.sha256(b"\0".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()


def slug(name: str) -> str:
    """A label as part of a DHT key: lower case, digits, dashes, at most 40 characters."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40] or "model"


def model_key(name: str, identity: str) -> str:
    """The DHT key of a model: `slug(name)-fingerprint[:8]`."""
    if not _SHA256.fullmatch(identity):
        raise InvalidArgument("a fingerprint is 64 lower-case hex digits")
    return f"{slug(name)}-{identity[:8]}"
