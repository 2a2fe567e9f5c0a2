"""Write what is derived from the chart, and what the chart derives from elsewhere.

    python scripts/chart.py

- charts/blockswarm/files/blockservers.yaml: the CRD, a copy of manifests/crds/blockservers.yaml;
- charts/blockswarm/README.md: the table of values, from the comments of values.yaml;
- manifests/operator/blockswarm.yaml: the chart with its defaults as plain YAML, for `kubectl apply`.

The files are checked in; a test compares them with those of a new run.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "charts" / "blockswarm"
NAMESPACE = "blockswarm-system"

_HELM_ONLY = ("app.kubernetes.io/managed-by", "helm.sh/chart", "helm.sh/resource-policy")
_BEGIN, _END = "<!-- values: written by scripts/chart.py -->\n", "<!-- end of values -->\n"
_PLAIN_NOTE = """\
# Written by scripts/chart.py from charts/blockswarm: operator and directory with the chart's defaults.
#
#     kubectl apply --server-side -f blockswarm.yaml
"""


class _Dumper(yaml.SafeDumper):
    """YAML without aliases, lists indented below their key."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        return super().increase_indent(flow, False)


def files() -> Iterator[tuple[Path, str]]:
    """(path, contents), in the order in which they must be written: each may be made from the ones before."""
    yield CHART / "files" / "blockservers.yaml", (ROOT / "manifests/crds/blockservers.yaml").read_text()
    readme = CHART / "README.md"
    yield readme, with_values(readme.read_text())
    yield ROOT / "manifests" / "operator" / "blockswarm.yaml", plain()


def plain() -> str:
    """The chart as plain YAML, with its namespace and without helm's own labels."""
    words = ["template", "blockswarm", str(CHART), "--namespace", NAMESPACE]
    words += ["--kube-version", "1.34.0", "--skip-tests"]
    done = subprocess.run([ROOT / "scripts" / "helm", *words], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": NAMESPACE, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
    }
    things = [namespace, *(thing for thing in yaml.safe_load_all(done.stdout) if thing)]
    for thing in things:
        _forget_helm(thing["metadata"])
    return _PLAIN_NOTE + "---\n".join(
        yaml.dump(thing, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110) for thing in things
    )


def _forget_helm(metadata: dict[str, Any]) -> None:
    for part in ("labels", "annotations"):
        kept = {key: value for key, value in (metadata.get(part) or {}).items() if key not in _HELM_ONLY}
        if kept:
            metadata[part] = kept
        else:
            metadata.pop(part, None)


def with_values(readme: str) -> str:
    """The README with its table of values written anew."""
    head, _, rest = readme.partition(_BEGIN)
    _, _, tail = rest.partition(_END)
    rows = [f"| `{name}` | `{json.dumps(value)}` | {meaning} |\n" for name, value, meaning in values()]
    table = "| value | default | meaning |\n| --- | --- | --- |\n" + "".join(rows)
    return head + _BEGIN + table.replace('`""`', "") + _END + tail


def values() -> Iterator[tuple[str, Any, str]]:
    """(dotted name, default, meaning) of every value, in the file's order. A value is what a comment stands above."""
    text = (CHART / "values.yaml").read_text()
    lines = text.splitlines()
    tree, defaults = yaml.compose(text), yaml.safe_load(text)
    assert isinstance(tree, yaml.MappingNode)
    yield from _values(tree, defaults, lines, "")


def _values(
    node: yaml.MappingNode, defaults: dict[str, Any], lines: list[str], prefix: str
) -> Iterator[tuple[str, Any, str]]:
    for key, below in node.value:
        name, default = f"{prefix}{key.value}", defaults[key.value]
        if isinstance(below, yaml.MappingNode) and _commented(below, lines):
            yield from _values(below, default, lines, f"{name}.")
        else:
            yield name, default, _comment(lines, key.start_mark.line)


def _commented(node: yaml.MappingNode, lines: list[str]) -> bool:
    return any(
        _comment(lines, key.start_mark.line)
        or (isinstance(below, yaml.MappingNode) and _commented(below, lines))
        for key, below in node.value
    )


def _comment(lines: list[str], line: int) -> str:
    above: list[str] = []
    while line > 0 and lines[line - 1].strip().startswith("#"):
        line -= 1
        above.insert(0, lines[line].strip().removeprefix("#").strip())
    return " ".join(above)


def write() -> None:
    """Write all files."""
    for path, text in files():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    write()
