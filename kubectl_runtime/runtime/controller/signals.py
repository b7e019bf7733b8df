"""SIGINT and SIGTERM become a graceful shutdown; a second one ends the process at once.

    state       signal n                                          the last controller closes
    installed   told to every controller; -> signalled            previous handlers come back
    signalled   the program's own handler, if it had one;         previous handlers come back
                else the process ends with status 128 + n

Signals belong to the process, so all controllers that obey them share one pair of handlers.

A signal handler runs in the main thread between any two instructions, also while that thread holds a lock. So these
take none: they put a number into a `SimpleQueue` (which is made for it) and leave the rest to whoever waits there. For
the same reason the second signal writes one line with `os.write` and ends with `os._exit`. It does not leave this to
the default disposition, because the kernel ignores that for process 1 of a container.
"""
from __future__ import annotations

import os
import signal
import threading
from queue import SimpleQueue
from types import FrameType
from typing import Any

from kubectl_runtime.runtime.usercode import guarded_logger

log = guarded_logger(__name__)

SIGNALS = (signal.SIGINT, signal.SIGTERM)

_DEFAULTS = (signal.SIG_DFL, signal.SIG_IGN, signal.default_int_handler, None)


class ShutdownSignals:
    """What one controller hears of signals. Installed in the main thread, closed in any."""

    def __init__(self, heard: SimpleQueue[int | None]) -> None:
        """`heard` gets the number of the first signal."""
        self.heard = heard

    @property
    def installed(self) -> bool:
        return self in _process.listeners

    def install(self) -> None:
        """Take over the signals. Off the main thread, where Python allows no handlers, only warns."""
        if threading.current_thread() is not threading.main_thread():
            log.warning("shutdown_on_signal has no effect in thread %r: Python handles signals in the main thread "
                        "only; stop the controller by other means", threading.current_thread().name)
            return
        _process.add(self)

    def close(self) -> None:
        """Give the signals back to whom they belonged, if no other controller has them. Harmless when nothing was
        installed, or twice.

        Off the main thread this is not allowed; it then happens when the next signal comes.
        """
        _process.remove(self)


class _ProcessSignals:
    """The handlers of the process. `previous` belongs to the main thread; `listeners` is replaced under the lock, and
    read by the handler without it."""

    def __init__(self) -> None:
        self.listeners: tuple[ShutdownSignals, ...] = ()
        self.previous: dict[signal.Signals, Any] = {}
        self._lock = threading.Lock()

    def add(self, listener: ShutdownSignals) -> None:
        if not self.listeners:
            self.restore()  # the last ones were closed in another thread
        with self._lock:
            self.listeners += (listener,)
        if not self.previous:
            for number in SIGNALS:
                self.previous[number] = signal.getsignal(number)
                signal.signal(number, self.first)

    def remove(self, listener: ShutdownSignals) -> None:
        with self._lock:
            self.listeners = tuple(other for other in self.listeners if other is not listener)
        if not self.listeners and threading.current_thread() is threading.main_thread():
            self.restore()

    def restore(self) -> None:
        for number, previous in list(self.previous.items()):
            signal.signal(number, signal.SIG_DFL if previous is None else previous)
            self.previous.pop(number, None)

    def first(self, number: int, _frame: FrameType | None) -> None:
        listeners = self.listeners
        if not listeners:  # this signal belongs to the handlers of before
            if not self.previous:  # somebody kept this handler and put it back when its time was over
                signal.signal(number, signal.SIG_DFL)
            self.restore()
            signal.raise_signal(number)
            return
        for known, previous in self.previous.items():
            signal.signal(known, _exit_at_once if previous in _DEFAULTS else previous)
        for listener in listeners:
            listener.heard.put(number)


_process = _ProcessSignals()


def _exit_at_once(number: int, _frame: FrameType | None) -> None:
    os.write(2, f"{signal.Signals(number).name} again: ending at once\n".encode())
    os._exit(128 + number)
