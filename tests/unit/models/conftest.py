import pytest
import torch
from shells import make_shell, make_whole

from blockswarm.models.prompts import Prompts


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def whole():
    return make_whole()


@pytest.fixture
def shell(whole):
    return make_shell(whole)


@pytest.fixture
def make_prompts(whole):
    def make(mode, length=3):
        return Prompts(mode, length, whole.config.hidden_size, whole.config.num_hidden_layers)

    return make
