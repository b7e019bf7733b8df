"""SIGINT and SIGTERM become a graceful shutdown; a second one ends the process at once.

    state       signal n                                          close()
    installed   number put into a queue; -> signalled             previous handlers come back
    signalled   the program's own handler, if it had one;         previous handlers come back
                else the process ends with status 128 + n

A signal handler runs in the main thread between any two instructions, also while that thread holds a lock. So these take none:
they put a number into a `SimpleQueue` (which is made for it) and leave the rest to whoever waits there. For the same reason the
second signal writes one line with `os.write` and ends with `os._exit`. It does not leave this to the default disposition, because
the kernel ignores that for process 1 of a container.
"""
from __future__ import annotations

import logging
import os
import signal
import threading
from queue import SimpleQueue
from types import FrameType
from typing import Any

log = logging.getLogger(__name__)

SIGNALS = (signal.SIGINT, signal.SIGTERM)

_DEFAULTS = (signal.SIG_DFL, signal.SIG_IGN, signal.default_int_handler, None)


class ShutdownSignals:
    """The handlers of one controller. Made, installed and closed in the main thread."""

    def __init__(self, heard: SimpleQueue[int | None]) -> None:
        """`heard` gets the number of the first signal."""
        self._heard = heard
        self._previous: dict[signal.Signals, Any] = {}
        self.installed = False

    def install(self) -> None:
        """Take over the signals. Off the main thread, where Python allows no handlers, only warns."""
        if threading.current_thread() is not threading.main_thread():
            log.warning("shutdown_on_signal has no effect in thread %r: Python handles signals in the main thread only; "
                        "stop the controller by other means", threading.current_thread().name)
            return
        self.installed = True
        for number in SIGNALS:
            self._previous[number] = signal.getsignal(number)
            signal.signal(number, self._first)

    def close(self) -> None:
        """Give the signals back to whom they belonged. Harmless when nothing was installed, or twice.

        Off the main thread this is not allowed; it then happens when the next signal comes.
        """
        self.installed = False
        if threading.current_thread() is threading.main_thread():
            while self._previous:
                number, previous = self._previous.popitem()
                signal.signal(number, signal.SIG_DFL if previous is None else previous)

    def _first(self, number: int, _frame: FrameType | None) -> None:
        if not self.installed:  # closed in another thread: this signal belongs to the handlers of before
            self.close()
            signal.raise_signal(number)
            return
        for known, previous in self._previous.items():
            signal.signal(known, _exit_at_once if previous in _DEFAULTS else previous)
        self._heard.put(number)


def _exit_at_once(number: int, frame: FrameType | None) -> None:
    os.write(2, f"{signal.Signals(number).name} again: ending at once\n".encode())
    os._exit(128 + number)
