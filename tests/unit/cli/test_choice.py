"""Which swarm and which model a command takes when it is told less than everything."""

import pytest

from blockswarm.cli import local_state
from blockswarm.cli.local_state import LocalSwarm
from blockswarm.cli.swarm import SwarmAddress, choose_model, find_swarm
from blockswarm_wire.errors import InvalidArgument
from blockswarm_wire.fingerprint import model_key
from blockswarm_wire.record import ModelEntry


@pytest.fixture(autouse=True)
def no_swarm(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("BLOCKSWARM_DIRECTORY", raising=False)


@pytest.fixture
def local():
    with local_state.hold():
        local_state.write(LocalSwarm(pid=1, directory="127.0.0.1:5", models={"tiny": "/models/tiny"}))
        yield


def entry(name: str) -> ModelEntry:
    return ModelEntry(key=model_key(name, "a" * 64), name=name, num_blocks=2, fingerprint="a" * 64)


def test_no_swarm_at_all_tells_three_ways_to_name_one():
    with pytest.raises(InvalidArgument, match=r"--directory.*BLOCKSWARM_DIRECTORY.*blockswarm up"):
        find_swarm(None, None)


@pytest.mark.usefixtures("local")
def test_the_local_swarm_needs_no_name():
    assert find_swarm(None, None) == SwarmAddress(directory="127.0.0.1:5", local=True)


@pytest.mark.usefixtures("local")
def test_an_option_beats_the_environment_and_that_beats_the_local_swarm(monkeypatch):
    monkeypatch.setenv("BLOCKSWARM_DIRECTORY", "far:1")
    assert find_swarm(None, None) == SwarmAddress(directory="far:1")
    assert find_swarm("near:2", None) == SwarmAddress(directory="near:2")
    assert find_swarm(None, ["/ip4/1.2.3.4"]) == SwarmAddress(peers=("/ip4/1.2.3.4",))


@pytest.mark.usefixtures("local")
def test_naming_the_local_directory_is_still_the_local_swarm():
    assert find_swarm("127.0.0.1:5", None).local


def test_two_doors_are_refused():
    with pytest.raises(InvalidArgument, match="not both"):
        find_swarm("a:1", ["/ip4/1.2.3.4"])


@pytest.mark.usefixtures("local")
def test_the_only_model_of_the_local_swarm_needs_no_name():
    swarm = find_swarm(None, None)
    assert choose_model(None, swarm, [entry("tiny")]) == "/models/tiny"
    assert choose_model("tiny", swarm, []) == "/models/tiny"
    assert choose_model("/other", swarm, []) == "/other"


def test_a_foreign_swarm_needs_a_model_folder():
    swarm = SwarmAddress(directory="far:1")
    with pytest.raises(InvalidArgument, match=r"serves tiny.*--model"):
        choose_model(None, swarm, [entry("tiny")])
    with pytest.raises(InvalidArgument, match=r"serves a, b: choose"):
        choose_model(None, swarm, [entry("b"), entry("a")])
    with pytest.raises(InvalidArgument, match="no model yet"):
        choose_model(None, swarm, [])
