"""`ShutdownLog`: what a controller or manager logs while it ends, written by a thread that no caller has to wait for.

    info, error     queue a line; the thread starts with the first line, writes in order, and ends after `finish`
    finish(until)   accept no more lines; block until all are written, at most until that moment, and not for a handler
                    that has had one line for `LINE_SECONDS`
    collecting()    within this block, everything that the calling thread logs is queued

A log handler is user code and may block. A shutdown that keeps its time must not wait for a handler, nor wait again at
the end for a handler that has blocked since the beginning.
"""
from __future__ import annotations

import threading
import time
from contextlib import AbstractContextManager
from functools import partial
from queue import SimpleQueue

from kubectl_runtime.core.base.guard import GuardedLogger, Line, written_by
from kubectl_runtime.core.base.interpreter import Thread

LINE_SECONDS = 1.0
"""How long a log handler may take for one line before it counts as blocked."""


class ShutdownLog:
    """The log of a shutdown. Safe to use from any thread. Blocks only in `finish`."""

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
        self._put(partial(self._logger.info, text, *arguments))

    def error(self, text: str, *arguments: object) -> None:
        """Log a line at ERROR, soon. Does not block."""
        self._put(partial(self._logger.error, text, *arguments))

    def collecting(self) -> AbstractContextManager[None]:
        """Queue everything that the calling thread logs within the block."""
        return written_by(self._put)

    def finish(self, until: float) -> None:
        """Wait for the queued lines, at most until this moment of `time.monotonic`: handlers take real time."""
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

    def _put(self, line: Line) -> None:
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
