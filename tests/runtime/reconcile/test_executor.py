"""The default executor: its threads do what was submitted, all of it, and then end."""
from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Iterator

import pytest

from kubectl_runtime.runtime.reconcile.runner import ThreadExecutor
from kubectl_runtime.testing import eventually

LIMIT = 20.0


def started(size: int, bugs: list[BaseException]) -> ThreadExecutor:
    executor = ThreadExecutor(size, "test worker", bugs.append)
    for thread in executor.threads:
        thread.start()
    return executor


def joined(executor: ThreadExecutor) -> list[bool]:
    for thread in executor.threads:
        thread.join(LIMIT)
    return [thread.is_alive() for thread in executor.threads]


def test_all_that_was_submitted_is_done_to_its_end_before_the_threads_end() -> None:
    done: list[int] = []

    def work(number: int) -> Iterator[None]:
        yield
        yield
        done.append(number)

    executor = started(1, [])
    for number in range(100):
        executor.submit(work(number))
    executor.close()
    assert joined(executor) == [False]
    assert done == [*range(100)]


def test_after_the_close_each_thread_ends_by_itself_and_one_at_work_when_that_is_done() -> None:
    begun, go_on, done = threading.Event(), threading.Event(), threading.Event()

    def work() -> Iterator[None]:
        begun.set()
        yield
        go_on.wait(LIMIT)
        done.set()

    executor = started(3, [])
    executor.submit(work())
    assert begun.wait(LIMIT)
    executor.close()
    eventually(lambda: sum(thread.is_alive() for thread in executor.threads), (1).__eq__, timeout=LIMIT)
    assert not done.is_set()
    go_on.set()
    assert joined(executor) == [False] * 3
    assert done.is_set()


def test_a_defect_in_the_work_is_told_and_ends_no_thread() -> None:
    bugs: list[BaseException] = []
    done: list[int] = []

    def broken(error: BaseException) -> Iterator[None]:
        yield
        raise error

    def work() -> Iterator[None]:
        yield
        done.append(1)

    errors = [ValueError("planned"), SystemExit(3), GeneratorExit(), KeyboardInterrupt()]
    executor = started(1, bugs)
    for error in errors:
        executor.submit(broken(error))
        executor.submit(work())
    executor.close()
    assert joined(executor) == [False]
    assert bugs == errors
    assert len(done) == len(errors)


def interrupt(thread: threading.Thread, error: type[BaseException]) -> None:
    """Set an exception in a thread from outside, as watchdogs and debuggers do."""
    assert thread.ident is not None
    assert ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(error)) == 1


def idle(executor: ThreadExecutor) -> bool:
    """Whether each thread waits for work. One that still logs the last interrupt could lose the lock of its handler:
    from Python 3.14 on an exception from outside may come between taking a lock and the block that frees it."""
    frames = sys._current_frames()
    return all(frames[thread.ident].f_code.co_name == "_run" for thread in executor.threads if thread.ident)


@pytest.mark.parametrize("error", [ValueError, MemoryError, SystemExit, KeyboardInterrupt, GeneratorExit])
@pytest.mark.parametrize("size", [1, 3])
def test_an_exception_that_is_set_in_idle_threads_costs_neither_a_thread_nor_work(
        error: type[BaseException], size: int, caplog: pytest.LogCaptureFixture) -> None:
    bugs: list[BaseException] = []
    done: set[int] = set()

    def work(number: int) -> Iterator[None]:
        yield
        done.add(number)

    executor = started(size, bugs)
    executor.submit(work(-1))
    eventually(lambda: done, bool, timeout=LIMIT, every=0.005)
    for round_ in range(5):
        eventually(lambda: idle(executor), bool, timeout=LIMIT, every=0.005)
        for thread in executor.threads:
            interrupt(thread, error)
        for number in range(20):
            executor.submit(work(100 * round_ + number))
        eventually(lambda: len(done), (1 + 20 * (round_ + 1)).__eq__, timeout=LIMIT, every=0.005)
    assert all(thread.is_alive() for thread in executor.threads)
    eventually(lambda: idle(executor), bool, timeout=LIMIT, every=0.005)
    for thread in executor.threads:
        interrupt(thread, error)
    executor.close()
    assert joined(executor) == [False] * size
    assert bugs == []
    assert any("interrupted from outside by " + error.__name__ in record.getMessage() for record in caplog.records)


def test_its_threads_are_daemons_with_the_name_of_the_controller() -> None:
    executor = started(2, [])
    assert [(thread.name, thread.daemon) for thread in executor.threads] == [
        ("test worker 1", True), ("test worker 2", True)]
    executor.close()
    assert joined(executor) == [False, False]
