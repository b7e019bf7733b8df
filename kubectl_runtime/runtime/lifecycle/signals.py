"""SIGINT and SIGTERM become a graceful shutdown; a second one ends the process at once.

    state       signal n                                                  the last controller closes
    installed   every controller is notified; -> signalled                previous handlers are restored
    signalled   within 0.5 s of the first: counts as the same signal      previous handlers are restored
                later: the program's previous handler is called; without
                one, the process ends with status 128 + n
    closed      previous handlers are restored, and handle the signal     -

Signals belong to the process, so all controllers that obey signals share one handler. Only the main thread may restore
handlers: if the last controller ends in another thread, they are restored when the main thread next calls `close`, or
at the next signal. A handler that the program installs later stays; it may call the shared handler as if the signal had
called it. One request to stop may send several signals: the command `timeout`, for example, sends a signal to
a process and to its group.

A signal handler runs in the main thread between any two instructions, even while that thread holds a lock. So the
handler takes no lock: it puts the signal's number into a `SimpleQueue`, which is reentrant, and the waiting thread does
the rest. For the same reason it handles the second signal with `os.write` and `os._exit`. The signal's default action
would not do, because the kernel ignores it for process 1 of a container.

In a forked child process there are no controllers, and the previous handlers are restored.
"""
from __future__ import annotations

import logging
import os
import select
import signal
import sys
import threading
import time
from contextlib import suppress
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any

from kubectl_runtime.core.base.guard import guarded_logger
from kubectl_runtime.core.base.threads import MAIN_THREAD_WAIT, Thread

log = guarded_logger(__name__)

SIGNALS = (signal.SIGINT, signal.SIGTERM)

SAME_STOP = 0.5
"""Seconds after the first signal in which another signal counts as the same request to stop."""

_DEFAULTS = (signal.SIG_DFL, signal.SIG_IGN, signal.default_int_handler, None)


class ShutdownSignals:
    """One controller's view of the signals. Call `install` in the main thread, `close` in any thread."""

    def __init__(self) -> None:
        self.heard: SimpleQueue[int | None] = SimpleQueue()
        """Receives the number of the first signal, or None to end the wait without a signal."""

    def wait(self) -> int | None:
        """Block until `heard` has an item, and take the item."""
        while True:  # in short waits, so that a signal that arrives just before a wait is noticed
            try:
                return self.heard.get(timeout=MAIN_THREAD_WAIT)
            except Empty:
                pass

    def release(self) -> None:
        """End the wait without a signal."""
        self.heard.put(None)

    @property
    def installed(self) -> bool:
        """Whether this controller handles the signals now."""
        return self in _process.listeners

    def install(self) -> None:
        """Take over the signals. Outside the main thread, where Python allows no handlers, only log a warning."""
        if threading.current_thread() is not threading.main_thread():
            log.warning("shutdown_on_signal has no effect in thread %r: Python handles signals in the main thread "
                        "only; stop the controller by other means", threading.current_thread().name)
            return
        _process.add(self)

    def close(self) -> None:
        """Restore the previous handlers, unless another controller needs the signals. Without `install`, or when
        repeated, nothing happens.

        Only the main thread may restore handlers. After a call in another thread they are restored when the main thread
        calls `close`, or at the next signal.
        """
        _process.remove(self)


class _ProcessSignals:
    """The handler of the process. `listeners` is replaced under the lock, and the handler reads it without the lock.
    Only the main thread uses the other attributes."""

    def __init__(self) -> None:
        self.listeners: tuple[ShutdownSignals, ...] = ()
        self.previous: dict[int, Any] = {}
        """The previous handlers, by signal. They are kept until the next installation, because another handler may call
        this one."""
        self._installed = False
        self._first_at: float | None = None
        """When the first signal arrived; None before that."""
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._follows_forks = False

    def add(self, listener: ShutdownSignals) -> None:
        if not self._follows_forks and hasattr(os, "register_at_fork"):  # absent on Windows, which has no fork
            self._follows_forks = True
            os.register_at_fork(after_in_child=self.forked)
        if not self.listeners:
            self.restore()  # in case the last controller was closed in another thread, which cannot restore handlers
        self._process = os.getpid()
        with self._lock:
            self.listeners += (listener,)
        if not self._installed:
            self._installed, self._first_at = True, None
            for number in SIGNALS:
                # If the program has saved our handler and set it again, `previous` keeps the handler before it.
                if not self._is_ours(number):
                    self.previous[number] = signal.getsignal(number)
                    signal.signal(number, self.handle)

    def remove(self, listener: ShutdownSignals) -> None:
        with self._lock:
            self.listeners = tuple(other for other in self.listeners if other is not listener)
        if not self.listeners and threading.current_thread() is threading.main_thread():
            self.restore()

    def restore(self) -> None:
        """Restore the previous handlers, except where the program has installed another handler since."""
        if self._installed:
            self._installed = False
            for number, previous in self.previous.items():
                if self._is_ours(number):
                    signal.signal(number, signal.SIG_DFL if previous is None else previous)

    def _is_ours(self, number: int) -> bool:
        return bool(signal.getsignal(number) == self.handle)

    def forked(self) -> None:
        """Called in a forked child process, whose only thread is now the main thread."""
        self._lock = threading.Lock()  # a thread of the parent may have held the old lock
        self.listeners = ()
        self.restore()

    def handle(self, number: int, frame: FrameType | None) -> None:
        listeners = self.listeners
        # The pids differ if a signal arrives in a forked child process before `forked` is called there.
        if not listeners or os.getpid() != self._process:
            self._pass_on(number, frame)
        elif self._first_at is None:
            self._first_at = time.monotonic()
            for listener in listeners:
                listener.heard.put(number)
        elif time.monotonic() - self._first_at >= SAME_STOP:
            previous = self.previous.get(number)
            if previous in _DEFAULTS:
                _write_line(f"{signal.Signals(number).name} again: ending at once\n")
                os._exit(128 + number)
            previous(number, frame)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        self.restore()
        previous = self.previous.get(number)
        if self._is_ours(number):  # the program has saved this handler and set it again
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        elif previous in (signal.SIG_DFL, None):
            # Run the default action, but keep a handler of the program, which may have called this one.
            theirs = signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
            signal.signal(number, theirs)  # reached if the default action did not end the process
        elif callable(previous):
            previous(number, frame)


def _write_line(line: str) -> None:
    """Write to stderr, unless stderr is closed, broken or a full pipe: the process must not hang here."""
    with suppress(OSError, ValueError):
        if not hasattr(select, "poll") or _takes_output(2):  # Windows has no `poll`: write without this check
            os.write(2, line.encode())


def _takes_output(descriptor: int) -> bool:
    watched = select.poll()
    watched.register(descriptor, select.POLLOUT)
    return any(event & select.POLLOUT for _, event in watched.poll(0))


_process = _ProcessSignals()


EXIT_STUCK = 1
"""Exit status if a reconciler did not end within the grace period."""

FLUSH_SECONDS = 2.0


def end_process(status: int) -> None:
    """Flush logs and output, then end the process while other threads may still run.

    Flushing takes locks that a stuck thread may hold, so the flush gets at most 2 s.
    """
    flusher = Thread(target=_flush, name="flush before exit", daemon=True)
    flusher.start()
    flusher.join(FLUSH_SECONDS)
    os._exit(status)


def _flush() -> None:
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
