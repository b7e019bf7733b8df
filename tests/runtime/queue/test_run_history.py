"""What is kept of runs that have ended: a few, and nothing that they refer to."""
from __future__ import annotations

import gc
import weakref

from hypothesis import given
from hypothesis import strategies as st

from kubectl_runtime.core.base.observer import RunResult
from kubectl_runtime.runtime.queue.runs import LATELY, RECENT, SLOWEST, SUCCEEDED, Outcome, Run, RunHistory
from tests.runtime.reconcile.test_runner import request


class Failure(ValueError):
    """Can be referred to weakly."""


def run_of(name: str, started: float) -> Run:
    return Run(("default", name), request(name), None, started, waited=0.5)


def test_the_last_runs_are_kept_the_latest_first() -> None:
    history = RunHistory()
    for number in range(RECENT + 10):
        history.ended(run_of(f"key-{number}", number), SUCCEEDED, number + 0.25)
    found = history.recent(RECENT + 10)
    assert [row.key[1] for row in found] == [f"key-{number}" for number in range(RECENT + 9, 9, -1)]
    assert (found[0].took, found[0].waited, found[0].result) == (0.25, 0.5, RunResult.SUCCESS)
    assert (history.runs, history.failed) == (RECENT + 10, 0)


def test_a_failure_counts_and_what_the_log_was_told_is_kept() -> None:
    history = RunHistory()
    history.ended(run_of("a", 0), Outcome(1.0, RunResult.ERROR, ValueError("no"), last_failure="told"), 1)
    assert (history.failed, history.recent(1)[0].last_failure) == (1, "told")


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 100), st.integers(0, 900)), max_size=150))
def test_the_slowest_keys_are_those_of_the_last_hour_with_their_longest_run(
        runs: list[tuple[int, int, int]]) -> None:
    history, now, ended = RunHistory(), 0.0, list[tuple[str, float, float]]()
    for number, took, pause in runs:
        now += pause
        history.ended(run_of(f"key-{number}", now), SUCCEEDED, now + took)
        now += took
        ended.append((f"key-{number}", took, now))
    found = history.slowest(SLOWEST, now)
    assert [row.took for row in found] == sorted((row.took for row in found), reverse=True)
    assert len({row.key for row in found}) == len(found) <= SLOWEST
    assert all(now - row.ended < LATELY for row in found)
    lately: dict[str, float] = {}
    for name, took, at in ended:
        if now - at < LATELY:
            lately[name] = max(took, lately.get(name, 0.0))
    if now < LATELY and lately:  # nothing was forgotten, so it is exact
        best = sorted(lately.values(), reverse=True)[:SLOWEST]
        assert [row.took for row in found if row.took] == [took for took in best if took]


def test_a_slow_run_is_forgotten_after_an_hour_and_makes_room() -> None:
    history = RunHistory()
    for number in range(SLOWEST):
        history.ended(run_of(f"old-{number}", 0), SUCCEEDED, 100 + number)
    history.ended(run_of("quick", 200), SUCCEEDED, 201)
    assert "quick" not in {row.key[1] for row in history.slowest(SLOWEST, 201)}
    history.ended(run_of("quick", 100 + LATELY), SUCCEEDED, 101 + LATELY)
    assert "quick" in {row.key[1] for row in history.slowest(SLOWEST, 101 + LATELY)}


def test_neither_the_run_nor_its_error_is_kept() -> None:
    history = RunHistory()
    error = Failure("with a traceback, and what its frames hold")
    run, outcome = run_of("a", 0), Outcome(1.0, RunResult.ERROR, error)
    history.ended(run, outcome, 5)
    gone = weakref.ref(error)
    del run, outcome, error
    gc.collect()
    assert gone() is None
