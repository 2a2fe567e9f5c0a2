"""The operator is light, and its folder hides nothing."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def _python(code, cwd=None):
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def test_the_folder_is_no_package():
    """Else `import operator` would find it instead of the standard library's wherever the repository is the root."""
    assert (ROOT / "operator" / "pyproject.toml").exists()
    assert not (ROOT / "operator" / "__init__.py").exists()
    assert not (ROOT / "tests" / "unit" / "operator" / "__init__.py").exists()
    for folder in (ROOT, ROOT / "tests" / "unit", ROOT / "operator"):
        assert _python("import operator; print(operator.itemgetter(1)('ab'))", cwd=folder) == "b"


def test_the_operator_needs_neither_torch_nor_hivemind():
    heavy = (
        "torch",
        "hivemind",
        "transformers",
        "numpy",
        "blockswarm_services",
        "blockswarm_dht",
    )
    code = f"import sys, blockswarm_operator.main; print([name for name in {heavy!r} if name in sys.modules])"
    assert _python(code) == "[]"
