"""Every alert fires under its fault, is quiet otherwise, and says what to do."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

import boards

CASES = sorted((Path(__file__).parent / "alerts").glob("*.yaml"))
ALERTS = {rule["alert"]: rule for rule in boards.rules() if "alert" in rule}
GUIDE = Path(__file__).parents[3] / "docs" / "operations.md"


def promtool(*words: str) -> str:
    done = subprocess.run(["promtool", *words], capture_output=True, text=True, timeout=60, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    return said


def fired() -> dict[str, list[set[str]]]:
    """Alert → the label names of each case in which it fires."""
    found: dict[str, list[set[str]]] = {}
    for path in CASES:
        for case in yaml.safe_load(path.read_text())["tests"]:
            for check in case["promql_expr_test"]:
                for sample in check.get("exp_samples", ()):
                    labels = dict(re.findall(r'(\w+)="([^"]*)"', sample["labels"]))
                    found.setdefault(labels["alertname"], []).append(set(labels))
    return found


def test_promtool_accepts_the_rules():
    assert "SUCCESS" in promtool("check", "rules", str(boards.RULES))


@pytest.mark.parametrize("path", CASES, ids=[path.stem for path in CASES])
def test_alerts_fire_under_their_fault_and_are_quiet_otherwise(path):
    promtool("test", "rules", str(path))


def test_every_alert_has_a_case_in_which_it_fires():
    assert set(fired()) == set(ALERTS)


@pytest.mark.parametrize("name", ALERTS)
def test_every_alert_names_severity_remedy_and_guide(name):
    rule = ALERTS[name]
    assert rule["labels"]["severity"] in ("critical", "warning")
    notes = rule["annotations"]
    assert set(notes) == {"summary", "description", "runbook_url"}
    assert len(notes["summary"]) < 140
    assert notes["runbook_url"].endswith(f"/docs/operations.md#{name.lower()}")


@pytest.mark.parametrize("name", ALERTS)
def test_the_guide_has_a_section_for_every_alert(name):
    assert re.search(rf"^#+ {name}$", GUIDE.read_text(), flags=re.MULTILINE)


@pytest.mark.parametrize("name", ALERTS)
def test_texts_use_only_labels_that_the_alert_has(name):
    used = set(re.findall(r"\$labels\.(\w+)", " ".join(ALERTS[name]["annotations"].values())))
    # The case where every series has vanished has no labels at all, and must read well too.
    for labels in fired()[name]:
        assert used <= labels
