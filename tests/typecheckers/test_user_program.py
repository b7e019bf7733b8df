"""What type checkers make of a user's program: every deliberate mistake is found, and nothing else is complained of.

mypy is part of the extra `lint`; pyright has an environment of its own (`tox run -e typing`), without it its half is
skipped. Neither may depend on the project's own settings: a user has none of them.
"""
from __future__ import annotations

import importlib
import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kubectl_runtime.facade import TOPICS

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PROGRAM = HERE / "user_program.py"
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
LIMIT = 300
"""Seconds."""

Errors = dict[str, set[int]]
"""File name -> lines."""


def run(*arguments: str) -> str:
    return subprocess.run([sys.executable, "-m", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=LIMIT,
                          check=False).stdout


def mypy(*files: Path) -> Errors:
    output = run("mypy", "--strict", "--config-file=", "--no-error-summary", *map(str, files))
    found: Errors = {}
    for name, line in re.findall(r"^(.*?):(\d+): error: ", output, re.MULTILINE):
        found.setdefault(Path(name).name, set()).add(int(line))
    return found


def pyright(*files: Path) -> Errors:
    output = run("pyright", "--outputjson", "--pythonpath", sys.executable, *map(str, files))
    found: Errors = {}
    for said in json.loads(output)["generalDiagnostics"]:
        if said["severity"] == "error":
            found.setdefault(Path(said["file"]).name, set()).add(said["range"]["start"]["line"] + 1)
    return found


@pytest.fixture(params=[mypy, pyright], ids=["mypy", "pyright"])
def checker(request: pytest.FixtureRequest) -> Callable[..., Errors]:
    if importlib.util.find_spec(request.param.__name__) is None:
        pytest.skip(f"{request.param.__name__} is not installed")
    found: Callable[..., Errors] = request.param
    return found


@pytest.mark.timeout(LIMIT + 10)
def test_every_mistake_of_a_program_is_found_and_no_other_line(checker: Callable[..., Errors]) -> None:
    lines = PROGRAM.read_text().split("\n")
    mistakes = {number: line.strip() for number, line in enumerate(lines, 1) if "# mistake" in line}
    assert len(mistakes) >= 32
    found = checker(PROGRAM).get(PROGRAM.name, set())
    assert {number: line for number, line in mistakes.items() if number not in found} == {}
    assert {number: lines[number - 1] for number in found - mistakes.keys()} == {}


@pytest.mark.timeout(LIMIT + 10)
def test_a_star_brings_the_names(checker: Callable[..., Errors], tmp_path: Path) -> None:
    program = tmp_path / "star.py"
    program.write_text('from kubectl_runtime import *\n\nAction.requeue(5)\nAction.requeue("5 s")  # mistake\n')
    assert checker(program) == {"star.py": {4}}


@pytest.mark.timeout(LIMIT + 10)
def test_each_name_of_the_facade_and_of_each_topic_is_seen(checker: Callable[..., Errors], tmp_path: Path) -> None:
    """And is no `Any`: where a module gave any name at all, the last line were right too."""
    program, lines = tmp_path / "names.py", []
    for module in ("kubectl_runtime", *(f"kubectl_runtime.{topic}" for topic in TOPICS)):
        names = importlib.import_module(module).__all__
        lines += [f"from {module} import {name} as n{len(lines) + number}" for number, name in enumerate(names)]
        lines.append(f"from {module} import absent as n{len(lines)}  # mistake")
    program.write_text("\n".join(lines))
    assert checker(program) == {"names.py": {number for number, line in enumerate(lines, 1) if "mistake" in line}}


@pytest.mark.timeout(LIMIT + 10)
def test_the_examples_raise_no_false_alarm(checker: Callable[..., Errors]) -> None:
    assert checker(*EXAMPLES) == {}
