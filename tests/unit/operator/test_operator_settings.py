"""The operator's environment: defaults, and errors that name the variable."""

import pytest

from blockswarm_operator.settings import Settings
from blockswarm_wire.errors import InvalidArgument

LEAST = {"BLOCKSWARM_DIRECTORY": "dns:///directory:31340", "BLOCKSWARM_SERVER_IMAGE": "example.org/server:1"}


def _settings(**values):
    return Settings.from_env(LEAST | {f"BLOCKSWARM_{name}": value for name, value in values.items()})


def test_defaults():
    found = _settings()
    assert (found.directory, found.server_image) == tuple(LEAST.values())
    assert (found.pull_policy, found.namespaces, found.network_policy) == ("IfNotPresent", (), False)
    assert (found.lease_namespace, found.lease_name, found.metrics_listen) == (
        "default",
        "blockswarm-operator",
        "0.0.0.0:9090",
    )
    assert found.identity


def test_everything_set():
    found = _settings(
        SERVER_IMAGE_PULL_POLICY="Always",
        NAMESPACES=" models, more ,,",
        LEASE_NAMESPACE="system",
        LEASE_NAME="lease",
        IDENTITY="operator-1",
        METRICS_LISTEN="0.0.0.0:8080",
        NETWORK_POLICY="true",
    )
    assert found.namespaces == ("models", "more")
    assert (found.lease_namespace, found.lease_name, found.identity) == ("system", "lease", "operator-1")
    assert (found.pull_policy, found.metrics_listen, found.network_policy) == ("Always", "0.0.0.0:8080", True)


@pytest.mark.parametrize(
    ("text", "value"), [("1", True), ("YES", True), ("False", False), ("", False), ("0", False)]
)
def test_flags(text, value):
    assert _settings(NETWORK_POLICY=text).network_policy is value


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"DIRECTORY": " "}, "BLOCKSWARM_DIRECTORY"),
        ({"SERVER_IMAGE": ""}, "BLOCKSWARM_SERVER_IMAGE"),
        ({"SERVER_IMAGE_PULL_POLICY": "Sometimes"}, "BLOCKSWARM_SERVER_IMAGE_PULL_POLICY"),
        ({"NETWORK_POLICY": "maybe"}, "BLOCKSWARM_NETWORK_POLICY"),
    ],
)
def test_what_is_wrong_is_named(values, name):
    with pytest.raises(InvalidArgument, match=name):
        _settings(**values)
