"""The pod of `helm test`, and the notes that lead to it."""

import subprocess
import sys
from typing import Any

import pytest
from rendering import CHART, VARIANTS, container, environment, helm, one, output, render, variant

from blockswarm_wire.resource import load_manifest


def hook(name):
    things = render(VARIANTS[name])
    return one(things, "Pod", "blockswarm-test"), container(things, "Pod", "blockswarm-test")


def test_the_test_is_a_hook_and_its_log_stays():
    pod, _ = hook("defaults")
    notes = pod["metadata"]["annotations"]
    assert notes["helm.sh/hook"] == "test"
    assert notes["helm.sh/hook-delete-policy"] == "before-hook-creation"
    assert pod["spec"]["restartPolicy"] == "Never"
    assert pod["spec"]["activeDeadlineSeconds"] == 300


def test_without_a_model_only_the_directory_is_asked():
    pod, main = hook("defaults")
    assert main["command"][:2] == ["python", "-c"]
    assert len(main["command"]) == 3
    assert pod["metadata"]["namespace"] == "blockswarm-system"
    assert environment(main)["BLOCKSWARM_DIRECTORY"].startswith(
        "dns:///blockswarm-directory.blockswarm-system.svc:"
    )


def test_with_a_model_the_pod_lives_beside_its_claim_and_generates():
    pod, main = hook("test with a model")
    assert pod["metadata"]["namespace"] == "models"
    assert {"name": "model", "persistentVolumeClaim": {"claimName": "smollm2"}} in pod["spec"]["volumes"]
    assert {"name": "model", "mountPath": "/model", "readOnly": True} in main["volumeMounts"]
    assert main["command"][3:5] == ["blockswarm", "generate"]


def test_the_command_line_understands_what_it_is_given():
    import typer.main

    from blockswarm.cli.app import build

    _, main = hook("test with a model")
    group: Any = typer.main.get_command(build())
    command = group.commands["generate"]
    options = command.make_context("generate", main["command"][5:]).params
    assert options["model"] == "/model"
    assert options["max_new_tokens"] == 16
    assert options["prompt"] == "What is a swarm?"


@pytest.fixture
def program(monkeypatch):
    """The hook's program, with a directory that knows one model."""
    scope: dict = {"__name__": "hook"}
    exec((CHART / "files" / "test.py").read_text(), scope)

    async def models():
        return ["tiny, 4 blocks"]

    scope["models"] = models
    return scope["main"]


def test_the_program_passes_only_if_text_comes(program, capfd):
    assert program([]) == 0
    assert "no text was generated" in capfd.readouterr().out
    assert program([sys.executable, "-c", "print('some text')"]) == 0
    assert "some text" in capfd.readouterr().out
    assert program([sys.executable, "-c", "print()"]) == 1
    assert "no text came" in capfd.readouterr().err
    assert program([sys.executable, "-c", "import sys; print('half'); sys.exit(3)"]) == 3


def test_the_program_fails_without_a_directory():
    words = [sys.executable, str(CHART / "files" / "test.py")]
    # Port 9 of this machine: nobody listens there.
    done = subprocess.run(
        words, env={"BLOCKSWARM_DIRECTORY": "127.0.0.1:9"}, capture_output=True, text=True, timeout=60
    )
    assert done.returncode != 0
    assert "127.0.0.1:9" in done.stderr


# --- notes ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def notes(tmp_path):
    import shutil

    import yaml

    chart = shutil.copytree(CHART, tmp_path / "blockswarm")
    show = 'notes: {{ include (print .Template.BasePath "/NOTES.txt") . | toJson }}'
    (chart / "templates" / "show.yaml").write_text(show)

    def read(values=None):
        text = output(variant(values), "--show-only", "templates/show.yaml", chart=chart)
        return yaml.safe_load(text)["notes"]

    return read


def test_the_notes_hold_a_manifest_to_paste(notes):
    text = notes()
    begin, _, rest = text.partition("<<'END'\n")
    manifest, _, _ = rest.partition("\nEND\n")
    servers = load_manifest(manifest, origin="the notes")
    assert [(s.spec.blocks.start, s.spec.blocks.end) for s in servers] == [(0, 15), (15, 30)]
    assert "kubectl apply --namespace default -f - " in begin
    for server in servers:
        assert f"blockserver/{server.metadata.name}" in text
    assert "kubectl wait --namespace default --for=condition=Ready" in text
    assert "--take-ownership" in text
    assert "helm test blockswarm --namespace blockswarm-system" in text
    assert "WARNING" not in text


def test_the_notes_name_a_namespace_that_is_served(notes):
    assert "kubectl apply --namespace models" in notes({"watchNamespaces": ["models"]})


@pytest.mark.parametrize(
    ("values", "warning"),
    [
        ({"directory": {"replicas": 1}}, "directory.replicas is 1"),
        ({"operator": {"replicas": 1}}, "operator.replicas is 1"),
        ({"crds": {"keep": False}}, "deletes ALL BLOCKSERVERS"),
        ({"crds": {"enabled": False}}, "apply it before"),
    ],
)
def test_the_notes_warn_of_risky_values(notes, values, warning):
    assert warning in notes(values)


def test_the_test_and_the_chart_ask_the_same_directory():
    things = render(VARIANTS["directory elsewhere"])
    wanted = environment(container(things, "Deployment", "blockswarm-operator"))["BLOCKSWARM_DIRECTORY"]
    assert environment(container(things, "Pod", "blockswarm-test"))["BLOCKSWARM_DIRECTORY"] == wanted


def test_helm_can_package_it(tmp_path):
    done = helm("package", str(CHART), "--destination", str(tmp_path))
    assert done.returncode == 0, done.stderr
    [archive] = tmp_path.glob("blockswarm-*.tgz")
    # A release and its chart are kept in one secret of at most 1 MiB.
    assert archive.stat().st_size < 700_000
