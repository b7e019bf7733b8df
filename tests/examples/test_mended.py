"""The page on kube-rs's threads: each test that it names is there, and no row is without one."""
from __future__ import annotations

import re

from tests.examples.programs import ROOT

PAGE = (ROOT / "examples" / "guides" / "MENDED.md").read_text()
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines()
        if line.startswith("|") and not line.startswith(("| issue", "| behaviour", "|--"))]
DEFINED = {name for path in (ROOT / "tests").rglob("test_*.py")
           for name in re.findall(r"^ *def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)}
WITHOUT = {"#725"}
"""Threads whose answer is that it is not here either."""


def test_each_row_names_a_test_that_exists() -> None:
    assert len(ROWS) > 50
    for row in ROWS:
        named = re.fullmatch(r"`(test_\w+)`", row[-1])
        assert row[0] in WITHOUT if named is None else named[1] in DEFINED, row


def test_no_cell_is_empty_and_the_tables_are_whole() -> None:
    assert {len(row) for row in ROWS} == {3, 4}
    assert all(all(row) for row in ROWS)
