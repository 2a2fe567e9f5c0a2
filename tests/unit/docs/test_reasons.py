"""The guide's table of conditions holds every reason that the operator gives for what is not well, and no other."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
OPERATOR = ROOT / "operator" / "src" / "blockswarm_operator"
WELL = {"Valid", "NoReplicasWanted", "AllScheduled", "Loaded", "Online", "ServerOnline", "Complete", "InSync"}


def _given() -> set[str]:
    text = "".join(path.read_text() for path in OPERATOR.rglob("*.py"))
    by_status = re.findall(r'"(?:True|False|Unknown)",\s*"(?!True|False|Unknown)([A-Z][A-Za-z]+)"(?!:)', text)
    by_step = re.findall(r'(?:progress=\(|return )"([A-Z][A-Za-z]+)", (?:f?"|text\))', text)
    return {*by_status, *by_step}


def _told() -> set[str]:
    table = (ROOT / "docs" / "kubernetes.md").read_text().partition("## Troubleshoot by condition")[2]
    cells = re.findall(r"^\| [A-Z]\w+ \| ([A-Z][\w, ]*) \|", table.partition("\n## ")[0], re.MULTILINE)
    return {reason for cell in cells for reason in cell.split(", ")}


def test_every_reason_that_is_given_is_told_and_no_other():
    assert _told() == _given() - WELL
