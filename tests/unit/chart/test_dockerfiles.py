"""What the images promise: small, without root, without a shell, the same layers in the same order."""

import json
import re
import tomllib

import pytest
from rendering import ROOT

IMAGES = {
    "server": ["wire", "dht", "services"],
    "operator": ["wire", "operator"],
    "client": ["wire", "client_sdk"],
}


def instructions(part):
    """(word, rest) of every instruction, lines joined, comments away."""
    text = (ROOT / f"Dockerfile.{part}").read_text()
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [tuple(line.split(None, 1)) for line in joined.splitlines() if line.strip()]


def last_stage(part):
    found = instructions(part)
    start = max(index for index, (word, _) in enumerate(found) if word == "FROM")
    return found[start:]


def stages(part):
    """Stage → its instructions."""
    found, name = {}, ""
    for word, rest in instructions(part):
        if word == "FROM":
            name = rest.partition(" AS ")[2] or "image"
            found[name] = [(word, rest)]
        else:
            found[name].append((word, rest))
    return found


@pytest.fixture(params=IMAGES)
def part(request):
    return request.param


def test_the_base_is_pinned(part):
    bases = {rest.split()[0] for word, rest in instructions(part) if word == "FROM"} - stages(part).keys()
    assert bases == {"python:3.11-slim-bookworm"}


def test_it_runs_as_a_number_not_as_root(part):
    assert [rest for word, rest in last_stage(part) if word == "USER"] == ["65532:65532"]


def test_no_shell_is_needed(part):
    final = last_stage(part)
    assert not [word for word, _ in final if word == "RUN"]
    started = [(word, rest) for word, rest in final if word in ("ENTRYPOINT", "CMD")]
    assert started
    for word, rest in started:
        assert isinstance(json.loads(rest), list), (
            f"{word} must have the exec form: a shell would swallow SIGTERM"
        )
    assert ("STOPSIGNAL", "SIGTERM") in final


def test_the_image_holds_only_the_environment(part):
    copied = [rest for word, rest in last_stage(part) if word in ("COPY", "ADD")]
    assert copied[0] == "--from=tools /opt/venv /opt/venv"
    assert all(re.fullmatch(r"--from=[a-z-]+ /added /", rest) for rest in copied[1:])


def test_what_others_wrote_lies_below_the_sources(part):
    order = [rest for word, rest in last_stage(part) if word == "COPY"]
    assert order[-1] == "--from=own /added /"
    for name, lines in stages(part).items():
        sources = [rest for word, rest in lines if word == "COPY" and re.match(r"\w+/ ", rest)]
        assert bool(sources) is (name == "own"), (
            f"{name} copies {sources}: a change of them rebuilds all that follows"
        )
    assert {rest.split("/")[0] for word, rest in stages(part)["own"] if word == "COPY"} == set(IMAGES[part])


def test_server_and_client_share_the_layer_with_torch():
    server, client = stages("server"), stages("client")
    for name in ("tools", "model"):
        assert server[name] == client[name]
    shared = [rest for word, rest in last_stage("server") if word == "COPY"][:2]
    assert [rest for word, rest in last_stage("client") if word == "COPY"][:2] == shared


def test_python_looks_only_where_it_should_and_writes_nothing(part):
    env = " ".join(rest for word, rest in last_stage(part) if word == "ENV")
    for setting in (
        "PYTHONSAFEPATH=1",
        "PYTHONDONTWRITEBYTECODE=1",
        "PYTHONUNBUFFERED=1",
        "HOME=/tmp",
        "LOGNAME=blockswarm",
    ):
        assert setting in env.split()
    assert "compileall" in (ROOT / "scripts" / "image-layer").read_text()


def test_labels_say_what_it_is(part):
    labels = " ".join(rest for word, rest in last_stage(part) if word == "LABEL")
    for name in ("title", "description", "licenses", "source", "version", "revision"):
        assert f"org.opencontainers.image.{name}=" in labels


def test_versions_come_from_the_constraints(part):
    text = (ROOT / f"Dockerfile.{part}").read_text()
    for line in re.findall(r"(?:uv pip|bin/pip) install [^\\&|;]*", text):
        assert "-c constraints.txt" in line or "--no-deps" in line or '"$@"' in line, line
    assert "http" not in re.sub(r"org.opencontainers.image.source=\S+", "", text), (
        "an image names no package host"
    )


def test_the_operator_needs_neither_torch_nor_hivemind():
    assert "--extra" not in (ROOT / "Dockerfile.operator").read_text()
    assert "dht" not in (ROOT / "Dockerfile.client").read_text()
    project = tomllib.loads((ROOT / "operator" / "pyproject.toml").read_text())["project"]
    names = {re.split(r"[^a-z-]", line)[0] for line in project["dependencies"]}
    assert not names & {"torch", "hivemind", "transformers", "numpy", "blockswarm-dht"}


def test_the_commands_are_those_of_the_parts():
    scripts = {
        name: tomllib.loads((ROOT / name / "pyproject.toml").read_text())["project"]["scripts"].keys()
        for name in ("services", "operator", "client_sdk")
    }
    for part, owner in (("server", "services"), ("operator", "operator"), ("client", "client_sdk")):
        started = [json.loads(rest)[0] for word, rest in last_stage(part) if word in ("ENTRYPOINT", "CMD")]
        assert started[0] in scripts[owner]


# --- what reaches a build --------------------------------------------------------------------------------------


def test_only_what_is_named_reaches_a_build():
    lines = [
        line
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    assert lines[0] == "*"
    let_in = {line[1:] for line in lines if line.startswith("!")}
    needed = {source for parts in IMAGES.values() for source in parts} | {
        "constraints.txt",
        "scripts/image-layer",
    }
    assert let_in == needed
    assert {"**/__pycache__", "**/*.pyc", "**/.*"} <= set(lines)
    assert lines.index("**/__pycache__") > max(lines.index(f"!{name}") for name in let_in)


def test_all_that_a_build_copies_is_let_in():
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for part in IMAGES:
        for word, rest in instructions(part):
            if word == "COPY" and not rest.startswith("--from"):
                for source in rest.split()[:-1]:
                    assert (ROOT / source).exists(), source
                    assert any(source == name or source.startswith(f"{name}/") for name in let_in), source
