"""How many workers: by example, on numbers."""
from __future__ import annotations

from math import inf

from kubectl_runtime.core.meta.gvk import ApiResource
from kubectl_runtime.core.meta.refs import ObjectRef
from kubectl_runtime.runtime.queue.runs import Run
from kubectl_runtime.runtime.queue.worker_policy import LULL, REST, SLICE, WorkerPolicy
from kubectl_runtime.runtime.triggers.triggers import ReconcileRequest

KIND = ApiResource("", "v1", "ConfigMap", "configmaps")
PATIENCE = 0.015


def run(started: float, name: str = "a") -> Run:
    return Run(("default", name), ReconcileRequest(ObjectRef(KIND, name, "default")), None, started)


def paced(duration: float, *, patience: float = PATIENCE) -> WorkerPolicy:
    """A pace that has seen one run of this duration end, at time 0."""
    pace = WorkerPolicy(patience)
    first = run(-duration)
    pace.called(-duration)
    pace.began(first, -duration)
    pace.ended(first, 0.0)
    return pace


def test_until_a_run_has_ended_as_many_workers_as_may_be_are_called() -> None:
    assert all(WorkerPolicy(PATIENCE).call_at(workers) == -inf for workers in range(10))


def test_runs_that_wait_for_something_get_all_workers_and_never_rest() -> None:
    pace = paced(0.005)
    assert pace.call_at(9) == -inf
    other = run(0.0)
    pace.triggered(0.1)
    pace.began(other, 0.0)
    assert pace.ended(run(0.05), 0.1)


def test_short_runs_get_one_worker_until_none_has_begun_for_the_patience() -> None:
    pace = paced(0.00001)
    assert pace.call_at(0) == -inf
    pace.called(0.0)
    assert pace.call_at(1) == pace.ask_again() == PATIENCE


def test_a_worker_goes_home_if_another_has_begun_a_run_since() -> None:
    pace = paced(0.00001)
    mine, other = run(0.0, "mine"), run(0.0, "other")
    pace.began(mine, 0.0)
    pace.began(other, 0.0)
    assert not pace.ended(mine, 0.00001)
    assert pace.ended(other, 0.00001)


def test_while_triggers_keep_coming_work_and_rest_take_turns() -> None:
    pace = paced(0.00001)
    pace.called(0.0)
    pace.triggered(0.0)
    assert pace.ended(run(SLICE * 0.5), SLICE * 0.5)
    assert not pace.ended(run(SLICE), SLICE)
    assert pace.call_at(0) == pace.ask_again() == SLICE + REST
    pace.called(SLICE + REST)
    assert pace.ended(run(SLICE + REST), SLICE + REST)


def test_without_new_triggers_nobody_rests() -> None:
    pace = paced(0.00001)
    pace.called(0.0)
    pace.triggered(0.0)
    assert pace.ended(run(LULL), LULL)


def test_a_single_long_run_among_short_ones_does_not_change_the_picture() -> None:
    pace = paced(0.00001)
    pace.ended(run(0.0), 0.005)
    assert pace.short
    for _ in range(5):
        pace.ended(run(0.0), 0.005)
    assert not pace.short


def test_without_patience_no_run_is_short() -> None:
    pace = paced(0.0, patience=0.0)
    pace.called(0.0)
    assert pace.call_at(5) == -inf
    assert pace.ended(run(1.0), 1.0)
