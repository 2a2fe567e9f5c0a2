"""Write manifests/crds/blockservers.yaml from the resource's model.

    python scripts/crd.py [TARGET]

The file is checked in; a test compares it with that of a new run.
"""

import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "manifests" / "crds" / "blockservers.yaml"

_NOTE = "# Written by scripts/crd.py from blockswarm_wire.resource: change the model, then run `make crd`.\n"


class _Dumper(yaml.SafeDumper):
    """YAML without aliases, lists indented below their key."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        return super().increase_indent(flow, False)


def text() -> str:
    """The file's contents."""
    from blockswarm_wire.crd import crd

    return _NOTE + yaml.dump(crd(), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)


def write(target: Path) -> None:
    """Write the file."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text())


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else FILE)
