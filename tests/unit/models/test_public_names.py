"""`import blockswarm` is light, and every public name exists."""

import subprocess
import sys

import pytest

import blockswarm


@pytest.mark.parametrize("name", blockswarm.__all__)
def test_every_name_exists(name):
    assert getattr(blockswarm, name) is not None


def test_importing_costs_neither_torch_nor_transformers():
    heavy = ("torch", "transformers", "grpc", "hivemind")
    code = f"import sys, blockswarm; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"


def test_unknown_names():
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        _ = blockswarm.Nonsense
