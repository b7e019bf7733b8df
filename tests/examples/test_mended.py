"""The page on kube-rs's issues: each row names a test, which is in the file that it links to."""
from __future__ import annotations

import re

from tests.examples.programs import ROOT

PAGE = (ROOT / "examples" / "guides" / "MENDED.md").read_text()
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines()
        if line.startswith("|") and not line.startswith(("| issue", "| in kube-rs", "|--"))]
WITHOUT = {"#725"}
"""Issues that are not solved here either."""


def test_each_row_names_a_test_that_exists() -> None:
    assert len(ROWS) > 50
    for row in ROWS:
        named = re.fullmatch(r"\[`(test_\w+)`\]\(../../(tests/\S+\.py)\)", row[-1])
        if named is None:
            assert row[0] in WITHOUT, row
        else:
            assert re.search(rf"^ *def {named[1]}\b", (ROOT / named[2]).read_text(encoding="utf-8"), re.MULTILINE), row


def test_no_cell_is_empty_and_the_tables_are_whole() -> None:
    assert {len(row) for row in ROWS} == {3, 4}
    assert all(all(row) for row in ROWS)
