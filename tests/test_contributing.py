"""CONTRIBUTING.md and docstrings name files, modules and functions that are there; packages hold no logic."""
from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "kubectl_runtime"

FILES = sorted(PACKAGE.rglob("*.py"))
LAYERS = sorted(path for path in PACKAGE.iterdir() if (path / "__init__.py").exists())


def test_packages_hold_no_logic() -> None:
    """An `__init__` says what is in the room, and may hand on names; a lazy door is a table and `__getattr__`."""
    allowed = (ast.Import, ast.ImportFrom, ast.Expr, ast.If, ast.Assign, ast.AnnAssign)
    for path in FILES:
        if path.name == "__init__.py":
            odd = [node for node in ast.parse(path.read_text()).body if not isinstance(node, allowed)
                   and not (isinstance(node, ast.FunctionDef) and node.name in {"__getattr__", "__dir__"})]
            assert not odd, f"{path.relative_to(ROOT)}, line {odd[0].lineno}"


@pytest.mark.parametrize("tests", [
    ("tests/cli/test_top.py", "-k", "signal_ends_it"),
    pytest.param(("tests/examples/test_pod_inventory.py",), marks=pytest.mark.long),
    pytest.param(("tests/cli/test_dev.py", "-k", "signal or ctrl"), marks=pytest.mark.long)],
    ids=lambda tests: tests[0])
def test_the_suite_runs_in_the_background_of_a_shell(tests: tuple[str, ...], tmp_path: Path) -> None:
    """There SIGINT is ignored, and what a test starts would inherit that."""
    command = shlex.join([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={tmp_path}/b",
                          *tests])
    ended = subprocess.run(["bash", "-c", f"{command} & wait $!"], cwd=ROOT, capture_output=True, text=True,
                           timeout=240, check=False)
    assert ended.returncode == 0, ended.stdout


GUIDE = (ROOT / "CONTRIBUTING.md").read_text()


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:\w+/)+(?:\w+\.py)?)`", GUIDE))))
def test_what_the_guide_for_contributors_points_to_is_there(path: str) -> None:
    assert any((base / path).exists() for base in (ROOT, PACKAGE, PACKAGE / "apiserver"))


@pytest.mark.parametrize("step", re.findall(r"^\d+\. `([\w/]+\.py)`: (.*(?:\n {3}.*)*)", GUIDE, re.MULTILINE),
                         ids=lambda step: step[0])
def test_a_step_of_the_guide_names_what_its_file_defines(step: tuple[str, str]) -> None:
    path, words = step
    source = (PACKAGE / path).read_text()
    for name in re.findall(r"`(?!\w+\.py`)(?:\w+\.)?(\w+)`", words):
        assert re.search(rf"\b{name}\b", source), f"{path} knows no {name}"


LAYER_NAMES = "|".join(path.name for path in LAYERS if path.name != "apiserver")
MODULES = {".".join(path.relative_to(PACKAGE).with_suffix("").parts) for path in FILES}


@pytest.mark.parametrize("layer", [layer for layer in LAYERS if layer.name != "apiserver"], ids=lambda path: path.name)
def test_modules_that_a_docstring_names_are_there(layer: Path) -> None:
    """`core.base.backoff`, or a name within such a module; `client/http/retry.py` likewise."""
    for path in layer.rglob("*.py"):
        text = path.read_text()
        for name in re.findall(rf"`((?:{LAYER_NAMES})(?:\.\w+)+)`", text):
            begins = [name.rsplit(".", cut)[0] for cut in range(1, 3)]
            found = name in MODULES or (PACKAGE / name.replace(".", "/")).is_dir() or any(
                begin in MODULES for begin in begins)
            assert found or name == "client.server_version", f"{path.relative_to(ROOT)}: {name}"
        for name in re.findall(rf"(?<![\w/.])((?:{LAYER_NAMES})/[\w/]+\.py)", text):
            there = (PACKAGE / name).exists() or (PACKAGE / "apiserver" / name).exists()
            assert there, f"{path.relative_to(ROOT)}: {name}"
