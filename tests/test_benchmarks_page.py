"""The page of benchmarks names every script, and no other."""
from __future__ import annotations

import re

from tests.examples.programs import ROOT

FOLDER = ROOT / "tests" / "benchmarks"


def test_every_benchmark_is_on_the_page_and_the_page_names_no_other() -> None:
    named = set(re.findall(r"`(\w+\.py)`", (FOLDER / "README.md").read_text()))
    assert named == {script.name for script in FOLDER.glob("*.py")}


def test_each_says_how_it_is_run() -> None:
    for script in FOLDER.glob("*.py"):
        assert re.search(rf"python (-m tests\.benchmarks\.{script.stem}|tests/benchmarks/{script.name})",
                         script.read_text()), script.name
