"""What the guides tell to save and run does what they say."""
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples.programs import LIMIT, ROOT, blocks, environment

GUIDE = ROOT / "examples" / "guides" / "first-controller.md"
APPLY_GUIDE = ROOT / "examples" / "guides" / "server-side-apply-and-conditions.md"
TESTING_GUIDE = ROOT / "examples" / "guides" / "testing-without-a-cluster.md"


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A folder with the guide's two files."""
    program, test = blocks(GUIDE, "python")
    (tmp_path / "greeting.py").write_text(program)
    (tmp_path / "test_greeting.py").write_text(test)
    return tmp_path


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=folder, env=environment(), capture_output=True, text=True,
                          timeout=LIMIT, check=False)


def test_the_test_of_the_guide_passes(saved: Path) -> None:
    done = run(saved, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_greeting.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_the_tests_of_the_testing_guide_pass(saved: Path, pytestconfig: pytest.Config) -> None:
    installed = pytestconfig.pluginmanager.has_plugin("kubectl_runtime")  # by its entry point
    plugin = [] if installed else ["-p", "kubectl_runtime.testing.pytest_plugin"]
    (saved / "test_greeting.py").unlink()
    save_blocks(TESTING_GUIDE, saved)
    done = run(saved, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout", "30", *plugin)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "9 passed" in done.stdout


def save_blocks(guide: Path, folder: Path) -> None:
    """Each block as a file; its first line is a comment with the file's name."""
    for block in blocks(guide, "python"):
        (folder / block.partition("\n")[0].removeprefix("# ")).write_text(block)


def test_the_tests_of_the_guide_to_apply_and_conditions_pass(tmp_path: Path) -> None:
    save_blocks(APPLY_GUIDE, tmp_path)
    done = run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout", "30")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


def test_the_program_prints_its_crd(saved: Path) -> None:
    done = run(saved, "greeting.py", "--crd")
    assert json.loads(done.stdout)["metadata"]["name"] == "greetings.example.com", done.stderr


def test_the_types_of_the_program_are_right(saved: Path) -> None:
    pytest.importorskip("mypy", reason="mypy comes with the extra 'lint'")
    done = run(saved, "-m", "mypy", "--strict", "--cache-dir", str(saved / "cache"), "greeting.py")
    assert done.returncode == 0, done.stdout


def test_files_that_are_named_exist() -> None:
    for name in ("access.yaml", "crd.yaml", "deployment.yaml", "Dockerfile"):
        assert f"examples/deploy/{name}" in GUIDE.read_text()
        assert (ROOT / "examples" / "deploy" / name).exists()
