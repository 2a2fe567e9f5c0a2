"""An API server on loopback, and the operator's connection to it."""

import pytest
import pytest_asyncio
from operator_api import StubApi, write_kubeconfig

from blockswarm_operator.cluster import Cluster
from blockswarm_operator.metrics import Metrics


@pytest.fixture
def metrics():
    return Metrics()


@pytest.fixture
def kubeconfig(monkeypatch, tmp_path):
    path = tmp_path / "kubeconfig"
    monkeypatch.setenv("KUBECONFIG", str(path))
    return path


@pytest_asyncio.fixture
async def stub_api(kubeconfig):
    async with StubApi() as api:
        write_kubeconfig(kubeconfig, api.port)
        yield api


@pytest_asyncio.fixture
async def cluster(stub_api, metrics):
    made = await Cluster.connect(metrics)
    yield made
    await made.close()
