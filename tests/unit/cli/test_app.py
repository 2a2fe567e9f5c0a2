"""The command line as a person meets it: help, mistakes, exit statuses."""

import pytest

from blockswarm.cli.app import main
from blockswarm_wire import __version__
from blockswarm_wire.errors import CacheFull, InvalidArgument

MANIFEST = """
apiVersion: blockswarm.io/v1alpha1
kind: BlockServer
metadata: {name: a}
spec:
  model: {name: tiny, source: {path: tiny}}
  blocks: {start: 0, end: 1}
"""


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("BLOCKSWARM_DIRECTORY", raising=False)
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def command(capsys):
    def run(*words):
        with pytest.raises(SystemExit) as end:
            main(list(words))
        code = end.value.code or 0
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_help_lists_all_commands_those_of_the_services_included(command):
    code, out, _ = command("--help")
    assert code == 0
    for name in ("generate", "chat", "up", "status", "down"):
        assert name in out


def test_version(command):
    code, out, _ = command("--version")
    assert (code, out.strip()) == (0, __version__)


@pytest.mark.parametrize("words", [["status"], ["generate", "hello"], ["chat"]])
def test_without_a_swarm_a_command_is_a_mistake(command, words):
    code, _, err = command(*words)
    assert code == 2
    assert "no swarm was named" in err
    assert "Traceback" not in err


def test_down_without_a_swarm_is_no_error(command):
    code, out, _ = command("down")
    assert (code, out.strip()) == (0, "no swarm runs on this machine")


@pytest.mark.parametrize(("error", "status"), [(InvalidArgument("mine"), 2), (CacheFull("theirs"), 1)])
def test_the_status_tells_whose_fault_it_was(command, monkeypatch, error, status):
    def fail(directory, peers):
        raise error

    monkeypatch.setattr("blockswarm_services.local.status.find_swarm", fail)
    code, _, err = command("status")
    assert code == status
    assert f"error: {error}" in err


@pytest.fixture
def up(command, tmp_path):
    """Runs `up` on a manifest; the model it names has two blocks."""
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.json").write_text('{"model_type": "llama", "num_hidden_layers": 2}')

    def run(text):
        (tmp_path / "m.yaml").write_text(text)
        return command("up", "-f", str(tmp_path / "m.yaml"), "--listen", "127.0.0.1:0")

    return run


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (MANIFEST, r"no BlockServer covers blocks 1:2 of model 'tiny'"),
        (MANIFEST + "---" + MANIFEST, "'a' is used by an earlier document"),
        (MANIFEST.replace("end: 1", "end: 3"), "set blocks.end to 2 or less"),
        (MANIFEST + "  replica: 2\n", "spec.replica: unknown field"),
        (MANIFEST.replace("path: tiny", "path: nowhere"), "nowhere does not exist"),
        (MANIFEST.replace("start: 0", "start: 1"), "must be greater than start"),
        ("a: [", "is not YAML"),
        ("", "holds no BlockServer"),
    ],
)
def test_a_bad_manifest_is_refused_before_anything_starts(up, text, message):
    code, _, err = up(text)
    assert code == 2
    assert message in err


def test_a_family_that_cannot_be_cut_is_refused_before_anything_starts(up, tmp_path):
    (tmp_path / "tiny" / "config.json").write_text('{"model_type": "mamba2", "num_hidden_layers": 2}')
    code, _, err = up(MANIFEST)
    assert code == 2
    assert "'mamba2' cannot be served in spans" in err


def test_a_missing_manifest_is_named(command):
    code, _, err = command("up", "-f", "/nowhere/m.yaml")
    assert code == 2
    assert "/nowhere/m.yaml cannot be read" in err


def test_a_port_in_use_is_named_with_a_remedy(command, tmp_path):
    import socket

    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.json").write_text('{"model_type": "llama", "num_hidden_layers": 1}')
    (tmp_path / "m.yaml").write_text(MANIFEST)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        code, _, err = command("up", "-f", str(tmp_path / "m.yaml"), "--listen", address)
    assert code == 2
    assert f"cannot listen on {address}" in err
    assert "--listen" in err
