"""Generate the protocol's Python code from its .proto files.

    python scripts/proto.py [TARGET]

The generated files are checked in. TARGET (default: beside the .proto files) lets a test compare them with those
of a new run.
"""

import sys
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent / "wire" / "src"
PACKAGE = Path("blockswarm_wire") / "v1"


def generate(target: Path) -> None:
    """Write messages, stubs and type hints of every .proto file below `target`, at their import paths.

    Raises:
        RuntimeError: protoc refused a file; it has said why on stderr.
    """
    well_known = files("grpc_tools") / "_proto"
    sources = sorted(str(path.relative_to(ROOT)) for path in (ROOT / PACKAGE).glob("*.proto"))
    # The include root is the import root, so that generated imports are right as they come.
    outputs = [f"--{kind}_out={target}" for kind in ("python", "pyi", "grpc_python")]
    status = protoc.main(["protoc", f"-I{ROOT}", f"-I{well_known}", *outputs, *sources])
    if status != 0:
        raise RuntimeError(f"protoc ended with status {status}")


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
