"""`LastWords`: what a controller or manager logs while it ends, written by a thread that nobody has to wait for.

    info, error     put a line in; the thread starts with the first one, writes them in order, and ends after `finish`
    finish(until)   no more lines; blocks until all are written, at most until that moment, and not for a handler that
                    has had one line for `LINE_SECONDS`
    taken_down()    for what logs by itself: within this, the lines of the calling thread are put in

A log handler is user code and may block. What keeps the time of a shutdown must not stand in one, nor wait anew at the
end for one that has blocked all the while.
"""
from __future__ import annotations

import threading
import time
from contextlib import AbstractContextManager
from functools import partial
from queue import SimpleQueue

from kubectl_runtime.core.base.guarded_log import Line, written_by
from kubectl_runtime.core.interpreter.contexts import Thread
from kubectl_runtime.runtime.usercode import GuardedLogger

LINE_SECONDS = 1.0
"""How long a log handler may take for one line before it counts as blocked."""


class LastWords:
    """The log lines of an end, written by a thread of their own: a handler that blocks cannot delay the end. Safe to
    use from any thread. Blocks only in `finish`."""

    def __init__(self, logger: GuardedLogger, name: str) -> None:
        """`name` of the thread."""
        self._logger = logger
        self._lines: SimpleQueue[Line | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread = Thread(target=self._write, name=name, daemon=True)
        self._begun = False
        self._finished = False
        self._written = threading.Event()
        self._line_since = float("inf")
        """When the line that is being written began."""

    def info(self, text: str, *arguments: object) -> None:
        """Log a line at INFO, soon. Does not block."""
        self._say(partial(self._logger.info, text, *arguments))

    def error(self, text: str, *arguments: object) -> None:
        """Log a line at ERROR, soon. Does not block."""
        self._say(partial(self._logger.error, text, *arguments))

    def taken_down(self) -> AbstractContextManager[None]:
        """Within this, all that the calling thread logs is written so."""
        return written_by(self._say)

    def finish(self, until: float) -> None:
        """Wait for the lines at most until this moment of `time.monotonic`: what is waited for is real. See the module.
        """
        with self._lock:
            begun = self._begun
            if not self._finished:
                self._finished = True
                self._lines.put(None)
        if begun and self._thread is not threading.current_thread():  # it is, where a log handler stops the controller
            # No join: it may be just about to start.
            while (left := min(until, self._line_since + LINE_SECONDS) - time.monotonic()) > 0:
                if self._written.wait(left):
                    break

    def _say(self, line: Line) -> None:
        with self._lock:
            finished, begun, self._begun = self._finished, self._begun, True
            if not finished:
                self._lines.put(line)
        if finished:
            with written_by(None):
                line()
        elif not begun:
            try:
                self._thread.start()
            except RuntimeError:  # the interpreter ends, or there are no more threads: then it is written here
                with self._lock:
                    self._begun = False
                self._lines.put(None)
                self._write()

    def _write(self) -> None:
        with written_by(None):
            while (line := self._lines.get()) is not None:
                self._line_since = time.monotonic()
                line()
                self._line_since = float("inf")
        self._written.set()
