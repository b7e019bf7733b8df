"""The soak of tests/soak over real sockets, in short: each fault once, ten rounds; and what its judge finds."""
from __future__ import annotations

from typing import Any

import pytest

from tests.soak.socket_judge import problems_of, soaked

HELD = {"threads": 22, "descriptors": 20, "blocks": 150_000, "resident_kib": 40_000}
FINE: dict[str, Any] = {
    "seed": 7, "wrong": [], "before": HELD, "early": HELD, "late": HELD, "after": HELD, "threads_left": ["MainThread"]}


def test_after_every_fault_everything_is_as_it_has_to_be_and_nothing_is_left() -> None:
    result = soaked(5, 1, 30)
    assert problems_of(result) == []
    assert result["rounds"] >= 10
    assert len(set(result["happened"]) - {"a deletion failed"}) == 10, "each kind of fault came"


@pytest.mark.parametrize(("change", "problem"), [
    ({"wrong": ["c0/p1 has no right child"]}, "not converged: c0/p1 has no right child"),
    ({"threads_left": ["MainThread", "c0 worker 1"]}, "threads are left"),
    ({"after": {**HELD, "descriptors": 21}}, "descriptors are left: 21 after 20"),
    ({"late": {**HELD, "threads": 23}}, "threads grew from 22 to 23"),
    ({"late": {**HELD, "descriptors": 50}}, "descriptors grew from 20 to 50"),
    ({"late": {**HELD, "blocks": 160_000}}, "allocated blocks grew"),
    ({"late": {**HELD, "resident_kib": 60_000}}, "resident memory grew")])
def test_the_judge_names_what_is_wrong_and_the_seed(change: dict[str, Any], problem: str) -> None:
    assert problems_of(FINE) == []
    assert [found.startswith(problem) and found.endswith("(seed 7)") for found in problems_of({**FINE, **change})] == [
        True]
