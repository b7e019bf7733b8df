"""What a key is told of its own writes waits for what others ask for: the work queue and its memory, alone."""
from __future__ import annotations

import pytest

from kubectl_runtime.client.api.client import Write
from kubectl_runtime.core.base.observer import RunResult
from kubectl_runtime.core.base.plain import Key
from kubectl_runtime.core.meta.gvk import ApiResource, ObjectRef
from kubectl_runtime.runtime.queue import own_writes
from kubectl_runtime.runtime.queue.own_writes import OwnEvents
from kubectl_runtime.runtime.queue.runs import SUCCEEDED, Outcome, Repeated, Run
from kubectl_runtime.runtime.queue.scheduler import Scheduler
from kubectl_runtime.runtime.queue.work_queue import WorkQueue
from kubectl_runtime.runtime.triggers.triggers import Reason, ReconcileRequest

KIND = ApiResource("", "v1", "ConfigMap", "configmaps")


def ref(name: str) -> ObjectRef:
    return ObjectRef(KIND, name, "default")


def changed(queue: WorkQueue, name: str, version: str, *, uid: str = "u", background: bool = False) -> None:
    queue.trigger(ReconcileRequest(ref(name), Reason.OBJECT_UPDATED, (uid, version)), 0, background=background)


def run_next(queue: WorkQueue, *writes: str, outcome: Outcome = SUCCEEDED, meanwhile: tuple[str, ...] = ()) -> str:
    """The key that runs next: it makes these versions, some of which are seen before it ends."""
    run = started(queue)
    finish(queue, run, *writes, outcome=outcome, meanwhile=meanwhile)
    return run.key[1]


def started(queue: WorkQueue) -> Run:
    run = queue.take(0)
    assert run is not None
    return run


def finish(queue: WorkQueue, run: Run, *writes: str, outcome: Outcome = SUCCEEDED,
           meanwhile: tuple[str, ...] = ()) -> None:
    for version in writes:
        run.wrote(Write(run.request.ref, "patch", version, "u", None))
    for version in meanwhile:
        changed(queue, run.key[1], version)
    queue.finish(run, outcome, 0)


def after_a_start(*names: str) -> WorkQueue:
    queue = WorkQueue(Scheduler())
    for name in names:
        changed(queue, name, f"first of {name}", background=True)
    return queue


def rest(queue: WorkQueue) -> list[str]:
    names = []
    while (run := queue.take(0)) is not None:
        names.append(run.key[1])
        queue.finish(run, SUCCEEDED, 0)
    return names


def test_after_a_start_each_object_is_reconciled_once_before_an_own_event_has_one_reconciled_again() -> None:
    queue = after_a_start("a", "b", "c")
    order = []
    for number in range(3):
        order.append(run_next(queue, f"{number}"))
        changed(queue, order[-1], f"{number}")
    assert order + rest(queue) == ["a", "b", "c", "a", "b", "c"]


def test_so_it_is_when_the_own_event_comes_before_the_run_has_ended() -> None:
    queue = after_a_start("a", "b", "c")
    order = [run_next(queue, f"{number}", meanwhile=(f"{number}",)) for number in range(3)]
    assert order + rest(queue) == ["a", "b", "c", "a", "b", "c"]


def test_so_it_is_when_a_worker_has_met_the_own_event_and_set_it_aside() -> None:
    queue = after_a_start("a", "b")
    run = started(queue)
    changed(queue, "a", "1")
    other = started(queue)  # looked at `a` first, which runs
    changed(queue, "c", "7")
    finish(queue, run, "1")
    assert (other.key[1], rest(queue)) == ("b", ["c", "a"])


def test_a_change_by_somebody_else_goes_first_as_ever() -> None:
    queue = after_a_start("a", "b", "c")
    assert run_next(queue, "1") == "a"
    changed(queue, "a", "2")
    assert rest(queue) == ["a", "b", "c"]


def test_an_own_event_and_a_change_by_somebody_else_together_go_first() -> None:
    queue = after_a_start("a", "b", "c")
    assert run_next(queue, "1", meanwhile=("1", "2")) == "a"
    assert rest(queue) == ["a", "b", "c"]
    queue = after_a_start("a", "b", "c")
    assert run_next(queue, "1") == "a"
    changed(queue, "a", "1")
    changed(queue, "a", "2")
    assert rest(queue) == ["a", "b", "c"]


def test_the_end_of_an_object_that_the_run_deleted_is_an_own_event() -> None:
    queue = after_a_start("a", "b", "c")
    run = started(queue)
    run.wrote(Write(ref("child"), "delete", "", "child's", None))
    queue.finish(run, SUCCEEDED, 0)
    changed(queue, "a", "9", uid="child's")
    assert rest(queue) == ["b", "c", "a"]


def test_of_each_write_one_change_is_the_own_event_and_only_for_the_key_that_wrote() -> None:
    queue = after_a_start("a", "b", "c")
    assert run_next(queue, "1") == "a"
    changed(queue, "c", "1")
    assert run_next(queue) == "c"
    changed(queue, "a", "1")
    assert rest(queue) == ["b", "a"]
    queue = after_a_start("a", "b", "c")
    assert run_next(queue, "1", meanwhile=("1",)) == "a"
    changed(queue, "a", "1")  # told twice: whatever that is, it is no own event
    assert rest(queue) == ["a", "b", "c"]


def test_who_asks_to_run_again_at_once_is_not_put_behind_others_by_an_own_event() -> None:
    queue = after_a_start("a", "b")
    changed(queue, "x", "0")
    assert run_next(queue, "1", meanwhile=("1",), outcome=Outcome(0.0, repeated=Repeated.SOON)) == "x"
    assert rest(queue) == ["x", "a", "b"]


def test_a_later_appointment_makes_no_news_of_an_own_event_and_is_kept() -> None:
    queue = after_a_start("a", "b")
    changed(queue, "x", "0")
    assert run_next(queue, "1", meanwhile=("1",), outcome=Outcome(300.0)) == "x"
    assert [run_next(queue) for _ in "ab"] == ["a", "b"]
    assert started(queue).key[1] == "x"


def test_what_a_failed_run_wrote_is_the_business_of_its_retry() -> None:
    queue = after_a_start("a", "b")
    assert run_next(queue, "1", meanwhile=("1",), outcome=Outcome(5.0, RunResult.ERROR)) == "a"
    assert rest(queue) == ["b"]
    assert queue.due_at(ref("a").key) == 5.0


def test_the_memory_is_bounded_and_the_oldest_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_writes, "MAX_EXPECTED", 3)
    key: Key = ref("a").key
    memory = OwnEvents()
    memory.expect(key, [("u", str(number)) for number in range(5)])
    assert len(memory) == 3
    assert [memory.met(key, ("u", str(number))) for number in range(5)] == [False, False, True, True, True]
    assert len(memory) == 0
