import pytest

from blockswarm.cli import local_state
from blockswarm.cli.local_state import AlreadyRunning, LocalProcess, LocalSwarm


@pytest.fixture(autouse=True)
def state_home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


SWARM = LocalSwarm(
    pid=7,
    directory="127.0.0.1:5",
    models={"tiny": "/models/tiny"},
    ready=True,
    processes=(
        LocalProcess(id="a-0", kind="server", state="online", pid=8, restarts=1, log="/x", metrics="h:1"),
    ),
)


def test_what_is_written_is_read_while_the_lock_is_held():
    with local_state.hold():
        local_state.write(SWARM)
        assert local_state.read() == SWARM
    assert local_state.read() is None


def test_a_file_without_a_living_owner_is_not_believed():
    with local_state.hold() as home:
        local_state.write(SWARM)
        text = (home / "swarm.json").read_text()
    (home / "swarm.json").write_text(text)
    assert local_state.read() is None


def test_nothing_is_known_before_the_first_swarm():
    assert local_state.read() is None


def test_a_second_swarm_is_told_how_to_end_the_first():
    with local_state.hold():
        local_state.write(SWARM)
        with (
            pytest.raises(AlreadyRunning, match=r"process 7.*blockswarm down.*XDG_STATE_HOME"),
            local_state.hold(),
        ):
            pass


def test_readers_do_not_take_each_other_for_a_swarm(state_home):
    with local_state.hold():
        pass
    with (state_home / "blockswarm" / "swarm.lock").open() as other:
        import fcntl

        fcntl.flock(other, fcntl.LOCK_SH)
        assert local_state.read() is None


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"version": 99}', '{"version": 1, "processes": [{}]}'])
def test_an_unreadable_file_is_no_swarm(text):
    with local_state.hold() as home:
        (home / "swarm.json").write_text(text)
        assert local_state.read() is None


def test_the_home_folder_is_the_default(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    for value in ("", "relative/path"):
        monkeypatch.setenv("XDG_STATE_HOME", value)
        assert local_state.folder() == tmp_path / ".local" / "state" / "blockswarm"
