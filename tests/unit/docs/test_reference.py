import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def load(name: str):
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def pages():
    return load("reference").pages()


@pytest.mark.parametrize("name", ["commands.md", "processes.md", "manifest.md", "metrics.md"])
def test_the_reference_says_what_the_code_says(pages, name):
    written = (ROOT / "docs" / "reference" / name).read_text()
    assert written == pages[name], "the reference is stale: run `make reference`"


def test_every_series_and_option_that_a_guide_names_exists(pages):
    import re

    known = set(re.findall(r"blockswarm_[a-z_]+", pages["metrics.md"]))
    options = set(re.findall(r"--[a-z-]+", pages["commands.md"] + pages["processes.md"]))
    for guide in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        text = guide.read_text()
        named = {
            re.sub(r"_(bucket|sum|count)$", "", series)
            for series in re.findall(r"blockswarm_[a-z_]+", text)
            if series not in ("blockswarm_wire", "blockswarm_dht", "blockswarm_services")
        }
        assert named <= known, guide.name
        for line in re.findall(r"^blockswarm[ -].*$", text, flags=re.MULTILINE):
            assert set(re.findall(r"--[a-z-]+", line)) <= options, (guide.name, line)
