"""Client settings: what is refused, and where the swarm's name comes from."""

import pytest

from blockswarm.config import DIRECTORY_VARIABLE, ClientConfig, split_targets
from blockswarm.discovery.choose import open_discovery
from blockswarm.discovery.dht import DhtDiscovery
from blockswarm.discovery.directory import DirectoryDiscovery
from blockswarm_wire.errors import InvalidArgument


def test_lists_become_sets_and_tuples() -> None:
    config = ClientConfig(initial_peers=["/a"], allowed_servers=["x"], blocked_servers=["y"])  # type: ignore[arg-type]
    assert config.initial_peers == ("/a",)
    assert config.allowed_servers == frozenset({"x"})
    assert config.blocked_servers == frozenset({"y"})
    assert isinstance(open_discovery(config), DhtDiscovery)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"directory": "a:1", "initial_peers": ("/x",)}, "not both"),
        ({"initial_peers": "/x"}, "must be a list"),
        ({"allowed_servers": "x"}, "must be a list"),
        ({"chunk_tokens": 0}, "chunk_tokens"),
        ({"chunk_tokens": 513}, "chunk_tokens"),
        ({"max_retries": 0}, "max_retries"),
        ({"min_backoff": 2.0, "max_backoff": 1.0}, "min_backoff <= max_backoff"),
        ({"failover_timeout": float("nan")}, "failover_timeout"),
        ({"connect_timeout": -1.0}, "connect_timeout"),
    ],
)
def test_bad_settings_are_named(values: dict[str, object], text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        ClientConfig(**values)  # type: ignore[arg-type]


def test_the_environment_names_the_swarm_when_nothing_else_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DIRECTORY_VARIABLE, raising=False)
    with pytest.raises(InvalidArgument, match="no swarm was named"):
        open_discovery(ClientConfig())
    monkeypatch.setenv(DIRECTORY_VARIABLE, "one:1, dns:///two:2")
    assert ClientConfig().targets() == ("one:1", "dns:///two:2")
    assert ClientConfig(directory="three:3").targets() == ("three:3",)
    door = open_discovery(ClientConfig())
    assert isinstance(door, DirectoryDiscovery)
    assert door.targets == ("one:1", "dns:///two:2")
    assert split_targets(["a:1", " "]) == ("a:1",)
