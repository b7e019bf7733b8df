"""Scheduler, queue and runner together: by example, against a model, and with real threads."""
from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kubectl_runtime.client.api.client import Write
from kubectl_runtime.core.base.observer import RunResult
from kubectl_runtime.core.base.plain import Key
from kubectl_runtime.core.base.threads import SYSTEM_CLOCK
from kubectl_runtime.core.meta.gvk import ApiResource, ObjectRef
from kubectl_runtime.runtime.queue.runs import SKIPPED, SUCCEEDED, Outcome, Repeated, RetryRateLimit, Run
from kubectl_runtime.runtime.queue.scheduler import Scheduler
from kubectl_runtime.runtime.queue.work_queue import WorkQueue
from kubectl_runtime.runtime.reconcile.runner import Runner, ThreadExecutor
from kubectl_runtime.runtime.triggers.triggers import Reason, ReconcileRequest
from kubectl_runtime.testing import eventually
from kubectl_runtime.testing.clock import SimClock, SimExecutor
from tests.thoroughness import examples

KIND = ApiResource("", "v1", "ConfigMap", "configmaps")
FAILED = Outcome(5.0, RunResult.ERROR)


def request(name: str, cause: tuple[str, str] | None = None, reason: str = Reason.OBJECT_UPDATED) -> ReconcileRequest:
    return ReconcileRequest(ObjectRef(KIND, name, "default"), reason, cause)


class Rig:
    """A runner in simulation whose reconciler answers what `outcomes` says, success by default."""

    def __init__(self, *, concurrency: int = 10, seed: int = 0, debounce: float = 0.0, gate_open: bool = True) -> None:
        self.clock = SimClock()
        self.executor = SimExecutor(seed)
        rate_limit = RetryRateLimit()
        self.queue = WorkQueue(Scheduler(debounce=debounce, rate_limit=rate_limit), rate_limit)
        self.outcomes: dict[str, list[Outcome]] = {}
        self.writes: dict[str, tuple[str, str]] = {}
        self.ran: list[tuple[str, int, float]] = []
        self.runner = Runner(self.queue, self.execute, self.executor, concurrency=concurrency, clock=self.clock)
        if gate_open:
            self.runner.open()

    def execute(self, run: Run) -> Outcome:
        name = run.key[1]
        self.ran.append((name, run.failures + 1, self.clock.monotonic()))
        if name in self.writes:
            uid, version = self.writes[name]
            run.wrote(Write(run.request.ref, "patch", version, uid, None))
        planned = self.outcomes.get(name)
        return planned.pop(0) if planned else SUCCEEDED

    def trigger(self, *names: str, cause: tuple[str, str] | None = None, reason: str = Reason.OBJECT_UPDATED) -> None:
        self.runner.trigger_all([request(name, cause, reason) for name in names])

    def run(self, seconds: float = 0.0) -> list[str]:
        """Let `seconds` pass, running everything that becomes due; the keys that ran."""
        before, end = len(self.ran), self.clock.monotonic() + seconds
        while True:
            self.executor.run()
            delay = self.runner.step()
            if len(self.executor):
                continue
            if delay is None or self.clock.monotonic() + delay > end:
                break
            self.clock.advance(delay)
        self.clock.advance(end - self.clock.monotonic())
        return [name for name, _, _ in self.ran[before:]]


def test_nothing_runs_before_the_gate_opens_and_each_key_that_waited_runs_once() -> None:
    rig = Rig(gate_open=False)
    rig.trigger("a", "b", "a")
    assert rig.run(10) == []
    rig.runner.open()
    assert sorted(rig.run()) == ["a", "b"]


def test_a_trigger_while_its_key_runs_leads_to_one_more_run_after_it() -> None:
    rig = Rig()
    rig.trigger("a")
    rig.executor.step()  # taken: running from now on
    rig.trigger("a", "b")
    rig.trigger("a")
    rig.executor.step(1)
    rig.executor.step(1)
    assert [name for name, _, _ in rig.ran] == ["b"]
    assert rig.run() == ["a", "a"]


def test_no_more_runs_at_once_than_the_concurrency_and_the_next_begins_when_one_ends() -> None:
    rig = Rig(concurrency=2)
    rig.trigger("a", "b", "c")
    rig.executor.step(0)
    rig.executor.step(1)
    assert [run.key[1] for run in rig.runner.running()] == ["a", "b"]
    assert len(rig.executor) == 2
    assert sorted(rig.run()) == ["a", "b", "c"]


def test_a_requeue_is_measured_from_the_end_of_the_run() -> None:
    rig = Rig()
    rig.outcomes["a"] = [Outcome(10.0)]
    rig.trigger("a")
    rig.executor.step()
    rig.executor.step()
    rig.clock.advance(7)  # the run takes 7 s
    rig.executor.step()
    assert rig.queue.due_at(("default", "a")) == 17


def test_a_failing_key_waits_alone_and_holds_no_worker() -> None:
    rig = Rig(concurrency=1)
    rig.outcomes["bad"] = [FAILED, FAILED]
    rig.trigger("bad", "good")
    assert rig.run(1) == ["bad", "good"]
    rig.trigger("good")
    assert rig.run(1) == ["good"]
    assert rig.run(20) == ["bad", "bad"]
    assert [attempt for name, attempt, _ in rig.ran if name == "bad"] == [1, 2, 3]


def test_success_starts_the_count_over_even_when_it_requeues() -> None:
    rig = Rig()
    rig.outcomes["a"] = [FAILED] * 4 + [Outcome(1.0), FAILED]
    rig.trigger("a")
    rig.run(60)
    assert [attempt for _, attempt, _ in rig.ran] == [1, 2, 3, 4, 5, 1, 2]


def test_a_trigger_during_backoff_runs_at_once_and_keeps_the_count() -> None:
    rig = Rig()
    rig.outcomes["a"] = [FAILED, FAILED]
    rig.trigger("a")
    rig.run(1)
    rig.trigger("a")
    rig.run(0)
    assert rig.ran == [("a", 1, 0.0), ("a", 2, 1.0)]


def test_the_own_event_of_its_own_write_does_not_bring_a_retry_forward() -> None:
    rig = Rig()
    rig.outcomes["a"], rig.writes["a"] = [FAILED, FAILED], ("uid", "7")
    rig.trigger("a")
    rig.run(1)
    rig.trigger("a", cause=("uid", "7"))
    assert rig.run(1) == []
    rig.trigger("a", cause=("uid", "8"))
    assert rig.run(0) == ["a"]
    assert rig.ran[-1][1] == 2


def test_an_own_event_that_overtakes_the_end_of_the_run_does_not_bring_its_retry_forward_either() -> None:
    rig = Rig()
    rig.outcomes["a"], rig.writes["a"] = [FAILED, FAILED, FAILED], ("uid", "7")
    for foreign in ([], [("uid", "8")], [None]):
        rig.trigger("a")
        rig.executor.step()
        for cause in [("uid", "7"), *foreign]:
            rig.trigger("a", cause=cause)
        before = len(rig.ran)
        rig.run(1)
        assert len(rig.ran) - before == (2 if foreign else 1), foreign
        rig.run(100)


def test_an_own_event_after_a_success_is_a_trigger_like_any_other() -> None:
    rig = Rig()
    rig.writes["a"] = ("uid", "7")
    rig.trigger("a")
    rig.run()
    rig.trigger("a", cause=("uid", "7"))
    assert rig.run() == ["a"]


def test_a_deleted_object_leaves_neither_retry_nor_count_behind() -> None:
    rig = Rig()
    rig.outcomes["a"] = [FAILED, FAILED]
    rig.trigger("a")
    rig.run(6)
    assert rig.queue.failing == 1
    rig.trigger("a", reason=Reason.OBJECT_DELETED)
    assert (rig.queue.failing, len(rig.queue), rig.run(100)) == (0, 0, [])
    rig.trigger("a")
    rig.run()
    assert rig.ran[-1][1] == 1


def test_a_run_whose_object_is_deleted_meanwhile_leaves_nothing_behind() -> None:
    rig = Rig()
    rig.outcomes["a"] = [FAILED]
    rig.trigger("a")
    rig.executor.step()
    rig.trigger("a", reason=Reason.OBJECT_DELETED)
    assert rig.run(100) == ["a"]
    assert (rig.queue.failing, len(rig.queue)) == (0, 0)


def test_a_skipped_run_keeps_the_count() -> None:
    rig = Rig()
    rig.outcomes["a"] = [Outcome(None, RunResult.ERROR), SKIPPED]
    for _ in range(3):
        rig.trigger("a")
        rig.run()
    assert [attempt for _, attempt, _ in rig.ran] == [1, 2, 2]


def test_draining_finishes_what_runs_and_drops_what_waits() -> None:
    rig = Rig(concurrency=1)
    rig.outcomes["a"] = [Outcome(1.0)]
    rig.trigger("a", "b")
    rig.executor.step()
    assert rig.runner.drain() == 1
    rig.trigger("c")
    assert rig.run(100) == ["a"]
    assert rig.runner.depth() == 0
    assert rig.runner.wait_idle(lambda: 0.0)


def test_five_thousand_keys_with_immediate_requeues_for_three_rounds_come_to_an_end() -> None:
    rig = Rig()
    names = [f"k{number}" for number in range(5000)]
    rig.outcomes = {name: [Outcome(0.0)] * 2 for name in names}
    rig.trigger(*names)
    assert Counter(rig.run()) == dict.fromkeys(names, 3)


class RunnerMachine(RuleBasedStateMachine):
    """Any order of triggers, deletions, completions, failures, time and shutdown, against the promises."""

    NAMES = st.sampled_from("abcd")

    @initialize(seed=st.integers(0, 2**32), concurrency=st.integers(1, 3), debounce=st.sampled_from([0.0, 2.0]))
    def start(self, seed: int, concurrency: int, debounce: float) -> None:
        self.concurrency, self.debounce = concurrency, debounce
        self.rng = random.Random(seed)
        self.rig = Rig(concurrency=concurrency, seed=seed, debounce=debounce, gate_open=False)
        self.rig.runner.execute = self.execute
        self.opened = self.draining = False
        self.owed: dict[str, float] = {}  # key -> the latest time at which a run must have begun

    def execute(self, run: Run) -> Outcome:
        assert self.opened
        return self.rng.choice([SUCCEEDED, SUCCEEDED, Outcome(self.rng.choice([0.0, 1.0, 50.0])),
                                Outcome(self.rng.choice([0.5, 5.0]), RunResult.ERROR), Outcome(None, RunResult.ERROR),
                                Outcome(0.005, RunResult.ERROR, repeated=Repeated.CONFLICT),
                                Outcome(0.005, RunResult.REQUEUE_AFTER, repeated=Repeated.SOON),
                                Outcome(None, RunResult.TERMINAL_ERROR)])

    def observe(self, before: list[Run]) -> None:
        for run in self.runs():
            if run not in before:
                name = run.key[1]
                assert not self.draining, "a run began after shutdown did"
                assert self.opened, "a run began before the gate opened"
                self.owed.pop(name, None)

    def runs(self) -> list[Run]:
        runs = self.rig.runner.running()
        assert len(runs) == len({run.key for run in runs}), "two runs of one key"
        return runs

    @rule(names=st.lists(NAMES, min_size=1, max_size=5))
    def trigger(self, names: list[str]) -> None:
        self.rig.trigger(*names)
        if not self.draining:
            wait = 10 * self.debounce
            for name in names:
                self.owed.setdefault(name, self.rig.clock.monotonic() + wait)

    @rule()
    def resync(self) -> None:
        self.rig.runner.trigger_all([ReconcileRequest(ObjectRef(KIND, name, "default"), "resync", bulk=True)
                                     for name in "abcd"])
        if not self.draining:
            for name in "abcd":
                self.owed.setdefault(name, self.rig.clock.monotonic() + 10 * self.debounce)

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        self.rig.trigger(name, reason=Reason.OBJECT_DELETED)
        self.owed.pop(name, None)
        assert self.rig.queue.due_at(("default", name)) is None

    @precondition(lambda self: not self.opened)
    @rule()
    def open_gate(self) -> None:
        self.opened = True
        self.rig.runner.open()

    @rule(pieces=st.integers(1, 6))
    def work(self, pieces: int) -> None:
        for _ in range(pieces):
            before = self.runs()
            self.rig.executor.step()
            self.observe(before)

    @rule(seconds=st.sampled_from([0.1, 1.0, 2.0, 30.0]))
    def time(self, seconds: float) -> None:
        self.rig.clock.advance(seconds)
        before = self.runs()
        self.rig.runner.step()
        self.observe(before)

    @precondition(lambda self: not self.draining)
    @rule()
    def drain(self) -> None:
        self.draining = True
        self.rig.runner.drain()
        self.owed.clear()

    @invariant()
    def no_more_workers_than_allowed(self) -> None:
        if hasattr(self, "rig"):
            assert len(self.runs()) <= len(self.rig.executor) <= self.concurrency

    @invariant()
    def an_owed_key_has_its_one_entry_in_time(self) -> None:
        for name, latest in getattr(self, "owed", {}).items():
            due = self.rig.queue.due_at(("default", name))
            assert due is not None, f"the trigger of {name} is lost"
            assert due <= latest

    def teardown(self) -> None:
        """Once nothing new comes and every run succeeds, everything owed runs."""
        if not hasattr(self, "rig"):
            return
        if not self.opened:
            self.open_gate()
        self.rig.runner.execute = lambda run: SUCCEEDED
        for _ in range(100):
            while len(self.rig.executor):
                before = self.runs()
                self.rig.executor.step()
                self.observe(before)
            self.time(60.0)
        assert self.owed == {}
        assert self.runs() == []
        assert (len(self.rig.executor), self.rig.runner.depth()) == (0, 0)
        assert self.draining or self.rig.queue.failing <= 4


TestRunnerMachine = RunnerMachine.TestCase
TestRunnerMachine.settings = settings(max_examples=examples(300), stateful_step_count=40, deadline=None)


@pytest.fixture
def hammer() -> Iterator[list[BaseException]]:
    bugs: list[BaseException] = []
    yield bugs
    assert bugs == []


def test_with_real_threads_runs_of_a_key_never_overlap_and_no_trigger_is_lost(hammer: list[BaseException]) -> None:
    keys, per_thread, threads = 50, 2000, 4
    active: set[Key] = set()
    lock = threading.Lock()
    wanted: Counter[Key] = Counter()  # what a trigger's run must see at least
    seen: Counter[Key] = Counter()
    done = threading.Event()
    rng = random.Random(7)

    def execute(run: Run) -> Outcome:
        with lock:
            if run.key in active:
                hammer.append(AssertionError(f"{run.key} overlaps"))
            active.add(run.key)
            current = wanted[run.key]
        with lock:
            active.discard(run.key)
            seen[run.key] = current
            if len(seen) == keys and all(seen[key] == threads * per_thread // keys for key in seen):
                done.set()
        choice = rng.random()
        return Outcome(0.001, RunResult.ERROR) if choice < 0.1 else Outcome(0.0) if choice < 0.2 else SUCCEEDED

    executor = ThreadExecutor(8, "hammer", hammer.append)
    runner = Runner(WorkQueue(Scheduler()), execute, executor, concurrency=8, clock=SYSTEM_CLOCK)
    for thread in executor.threads:
        thread.start()
    runner.open()
    dispatcher = threading.Thread(target=runner.dispatch, args=(lambda: None,))
    dispatcher.start()

    def produce() -> None:
        for number in range(per_thread):
            name = f"k{number % keys}"
            with lock:
                wanted[("default", name)] += 1
            runner.trigger_all([request(name)])

    producers = [threading.Thread(target=produce) for _ in range(threads)]
    for thread in producers:
        thread.start()
    for thread in producers:
        thread.join()
    assert done.wait(30), "a trigger was lost"
    runner.drain()
    assert runner.wait_idle(lambda: SYSTEM_CLOCK.monotonic() + 10)
    executor.close()
    for thread in [dispatcher, *executor.threads]:
        thread.join(10)
        assert not thread.is_alive()


@pytest.mark.parametrize("error", [MemoryError, SystemExit, ZeroDivisionError])
@pytest.mark.parametrize("triggered_while_it_ran", [False, True])
def test_a_defect_in_a_run_leaves_neither_its_key_running_nor_its_worker_counted(
        error: type[BaseException], triggered_while_it_ran: bool) -> None:
    rig = Rig(concurrency=2)
    broken = {"a"}

    def execute(run: Run) -> Outcome:
        if run.key[1] in broken:
            raise error
        return rig.execute(run)

    rig.runner = Runner(rig.queue, execute, rig.executor, concurrency=2, clock=rig.clock)
    rig.runner.open()
    for _ in range(3):
        broken.add("a")
        rig.trigger("a")
        rig.executor.step()
        if triggered_while_it_ran:
            rig.trigger("a", "b")
            rig.executor.step(1)  # takes b, and finds that a runs
        with pytest.raises(error):
            while True:
                rig.executor.step(0)
        broken.clear()
        assert "a" not in [run.key[1] for run in rig.runner.running()]
        if not triggered_while_it_ran:
            rig.trigger("a")
        assert rig.run().count("a") == 1
        assert rig.runner.held() is None
    rig.runner.drain()
    assert rig.runner.wait_idle(rig.clock.monotonic)


@pytest.mark.parametrize("part", ["finish", "_count_repeated", "take", "due"])
@pytest.mark.parametrize("more", [False, True], ids=["nothing else is due", "more is due"])
def test_a_worker_that_a_defect_of_the_queue_ends_is_counted_out_once(
        part: str, more: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(concurrency=1)
    for _ in range(3):
        rig.outcomes["a"] = [Outcome(7.0)]
        rig.trigger("a", *["b"] * more)
        rig.executor.step()
        rig.trigger("a")
        with monkeypatch.context() as broken:
            broken.setattr(rig.queue, part, lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                rig.executor.run()
        assert rig.runner.running() == []
        assert not len(rig.executor)
        rig.outcomes.clear()
        rig.trigger("a", "b")
        assert sorted(rig.run()) == ["a", "b"]
    rig.runner.drain()
    assert rig.runner.wait_idle(rig.clock.monotonic)


def test_the_dispatcher_is_woken_for_a_key_that_is_due_before_what_it_waits_for(hammer: list[BaseException]) -> None:
    """With real threads: a worker asks for a run in 20 ms, while the dispatcher waits for the timer of another key.
    A second worker is busy all the while."""
    ran: list[str] = []
    done = threading.Event()

    def execute(run: Run) -> Outcome:
        ran.append(run.key[1])
        if run.key[1] == "busy":
            done.wait(10)
        if ran.count("soon") == 3:
            done.set()
        return Outcome(3600.0 if run.key[1] == "late" else 0.02)

    executor = ThreadExecutor(2, "worker", hammer.append)
    runner = Runner(WorkQueue(Scheduler()), execute, executor, concurrency=2, clock=SYSTEM_CLOCK)
    dispatcher = threading.Thread(target=runner.dispatch, args=(lambda: None,), daemon=True)
    for thread in [dispatcher, *executor.threads]:
        thread.start()
    runner.open()
    runner.trigger_all([request("late")])
    eventually(lambda: (ran, runner.depth()), (["late"], 1).__eq__, every=0.005)
    runner.trigger_all([request("busy")])
    eventually(lambda: ran, ["late", "busy"].__eq__, every=0.005)
    runner.trigger_all([request("soon")])
    assert done.wait(5), ran
    runner.drain()
    executor.close()
    for thread in [dispatcher, *executor.threads]:
        thread.join(10)
        assert not thread.is_alive()


@pytest.mark.parametrize("keys", [1, 3, 20])
def test_the_dispatcher_sleeps_while_workers_find_the_queue_empty_again_and_again(
        keys: int, hammer: list[BaseException]) -> None:
    turns, ran = 0, threading.Semaphore(0)

    def housekeeping() -> None:
        nonlocal turns
        turns += 1

    def execute(run: Run) -> Outcome:
        ran.release()
        return SUCCEEDED

    executor = ThreadExecutor(2, "worker", hammer.append)
    runner = Runner(WorkQueue(Scheduler()), execute, executor, concurrency=2, clock=SYSTEM_CLOCK)
    dispatcher = threading.Thread(target=runner.dispatch, args=(housekeeping,), daemon=True)
    for thread in [dispatcher, *executor.threads]:
        thread.start()
    runner.open()
    for _ in range(30):
        runner.trigger_all([request(str(number)) for number in range(keys)])
        for _ in range(keys):
            assert ran.acquire(timeout=10)
        eventually(lambda: runner._workers, {}.__eq__, every=0.001)
    runner.drain()
    assert runner.wait_idle(lambda: SYSTEM_CLOCK.monotonic() + 10)
    executor.close()
    for thread in [dispatcher, *executor.threads]:
        thread.join(10)
        assert not thread.is_alive()
    assert turns < 10  # its beginning, `open`, `drain`, and triggers that overlap with these


def test_runs_that_take_long_are_given_to_all_workers_at_once() -> None:
    rig = Rig(concurrency=3)
    rig.runner.open()
    rig.trigger("a")
    rig.executor.step()
    rig.clock.advance(1)
    rig.executor.run()
    rig.trigger("b", "c", "d", "e")
    for choice in range(3):
        rig.executor.step(choice)
    assert [run.key[1] for run in rig.runner.running()] == ["b", "c", "d"]
