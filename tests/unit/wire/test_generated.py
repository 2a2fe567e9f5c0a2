"""The generated protocol code is that of the .proto files beside it."""

import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[3]
_PACKAGE = Path("blockswarm_wire") / "v1"


def test_generated_code_is_not_stale(tmp_path: Path) -> None:
    subprocess.run([sys.executable, _ROOT / "scripts" / "proto.py", tmp_path], check=True, timeout=60)
    fresh = {path.name: path.read_bytes() for path in (tmp_path / _PACKAGE).iterdir()}
    folder = _ROOT / "wire" / "src" / _PACKAGE
    kept = {path.name: path.read_bytes() for path in folder.iterdir() if "_pb2" in path.name}
    assert fresh.keys() == kept.keys()
    stale = sorted(name for name in fresh if fresh[name] != kept[name])
    assert not stale, f"run `make proto`: {', '.join(stale)}"
