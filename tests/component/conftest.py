"""A block server in this process, for tests of one server: two of the three blocks of a tiny model."""

import pytest
import pytest_asyncio
import torch

from block_server import make_host
from blockswarm_wire.span import Span
from tiny_model import tiny_llama


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    torch.set_num_threads(1)
    return tiny_llama(tmp_path_factory.mktemp("model"), blocks=3)


@pytest_asyncio.fixture
async def host(folder):
    return make_host(folder, Span(0, 2), 3, cache_tokens=512)
