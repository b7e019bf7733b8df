"""Locks that are free again in a forked child process."""

from __future__ import annotations

import os
import threading

import pytest

from kubectl_runtime.core.base.threads import ForkSafeLock

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


def child(lock: ForkSafeLock) -> int:
    """The exit status of a child that takes the lock: 0 if it was free."""
    process = os.fork()
    if process == 0:
        os._exit(0 if lock.acquire(timeout=5) else 1)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def test_a_lock_that_another_thread_holds_is_free_in_the_child_and_held_in_the_parent() -> None:
    lock, held, end = ForkSafeLock(), threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            end.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(30)
    try:
        assert child(lock) == 0
        assert not lock.acquire(blocking=False)
    finally:
        end.set()
        thread.join(30)
    assert lock.acquire(blocking=False)


def test_a_thread_that_forks_while_it_holds_the_lock_leaves_it_without_an_error_in_both() -> None:
    lock = ForkSafeLock()
    with lock:
        process = os.fork()
    if process == 0:
        os._exit(0 if lock.acquire(blocking=False) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
    assert lock.acquire(blocking=False)


def test_a_lock_that_is_dropped_is_not_kept() -> None:
    import gc
    import weakref

    lock = ForkSafeLock()
    dropped = weakref.ref(lock)
    del lock
    gc.collect()
    assert dropped() is None
