"""What the usual linters say: nothing. They live in an environment of their own, made by `make tools`."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml
from rendering import ROOT, VARIANTS, output

BIN = ROOT / ".venv-k8s" / "bin"
SKIPS = Path(__file__).parent / "checkov-skips.yaml"
PLAIN = ROOT / "manifests" / "operator" / "blockswarm.yaml"
SAMPLES = sorted((ROOT / "manifests" / "samples").glob("*.yaml"))
DOCKERFILES = [ROOT / f"Dockerfile.{part}" for part in ("server", "operator", "client")]
KUBERNETES = ["1.32.0", "1.34.0", "1.37.0"]


def run(tool, *words):
    program = BIN / tool
    if not program.exists():
        pytest.fail(f"{tool} is missing: run `make tools`")
    return subprocess.run([program, *words], capture_output=True, text=True, timeout=110)


@pytest.fixture(scope="session")
def rendered(tmp_path_factory):
    """Variant → file with what it renders, without the pod of `helm test` (probes mean nothing to what runs once)."""
    folder = tmp_path_factory.mktemp("rendered")
    paths = {}
    for number, (name, chosen) in enumerate(VARIANTS.items()):
        paths[name] = folder / f"{number}.yaml"
        paths[name].write_text(output(chosen, "--skip-tests"))
    return paths


def test_hadolint_finds_nothing():
    done = run("hadolint", "--failure-threshold", "info", *map(str, DOCKERFILES))
    assert done.returncode == 0, done.stdout


def skips():
    return yaml.safe_load(SKIPS.read_text())


def test_few_checks_are_skipped_and_each_with_a_reason():
    assert len(skips()) <= 3
    assert all(len(reason.split()) > 8 for reason in skips().values())


def test_checkov_finds_nothing(rendered):
    chosen = [rendered["defaults"], rendered["much at once"], rendered["some namespaces"], PLAIN]
    files = [*map(str, chosen), *map(str, DOCKERFILES)]
    words = ["--framework", "kubernetes", "dockerfile", "--skip-download", "--output", "json", "--quiet"]
    done = run("checkov", *words, "--skip-check", ",".join(skips()), "--file", *files)
    reports = json.loads(done.stdout)
    reports = reports if isinstance(reports, list) else [reports]
    assert {report["check_type"] for report in reports} == {"kubernetes", "dockerfile"}
    failed = [
        f"{check['check_id']} {check['check_name']}: {check['resource']}"
        for report in reports
        for check in report["results"]["failed_checks"]
    ]
    assert not failed, "\n".join(sorted(set(failed)))
    assert all(report["summary"]["passed"] > 100 for report in reports)
    assert not any(report["summary"]["parsing_errors"] for report in reports)


@pytest.mark.parametrize("version", KUBERNETES)
def test_kubernetes_knows_every_field(rendered, version):
    files = [*rendered.values(), PLAIN, *SAMPLES]
    done = run("kubernetes-validate", "--strict", "-k", version, *map(str, files))
    said = done.stdout + done.stderr
    assert done.returncode == 0, "\n".join(line for line in said.splitlines() if " passed " not in line)
    assert said.count(" passed ") > 100
    # Kinds of its own it does not know, and passes over.
    assert "application.yaml passed for resource deployment/story" in said
