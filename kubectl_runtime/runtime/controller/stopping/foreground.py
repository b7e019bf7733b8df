"""What `Controller.run` does: wait in the calling thread, stop, and see to it that the process really ends.

    how it ends                                       run()
    a signal, all runs ended within the grace period  returns
    a signal, a reconciler is stuck (a call that the  flushes logs and output, ends the process with status 1
    shutdown ended is not)
    a second signal n                                 the process ends at once with status 128 + n
    KeyboardInterrupt (no shutdown_on_signal)         stops, then raises it
    a stop from elsewhere (a reconciler, say)         returns
    a defect, or stores not complete in time          stops, then raises ControllerError
"""
from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from typing import Protocol

from kubectl_runtime.core.interpreter.contexts import Thread

EXIT_STUCK = 1
"""Exit status when a reconciler did not end within the grace period."""

FLUSH_SECONDS = 2.0


class Foreground(Protocol):
    """What `serve` waits for and stops: a controller or a manager."""

    @property
    def obeys_signals(self) -> bool:
        """Whether SIGINT and SIGTERM are its own now."""

    def obey_signal(self) -> int | None:
        """Block until a signal comes, which begins the stop (its number), or it stops by itself (None)."""

    def stop(self, timeout: float) -> Sequence[object]:
        """End it in at most `timeout` seconds; blocks. Returns what still runs."""

    def abandon(self) -> None:
        """Tell what runs to end at once, and wait for nothing. Does not block."""

    def raise_error(self) -> None:
        """Raise what ended it, if it ended by itself."""


def serve(running: Foreground, grace: float) -> None:
    """Block until `running` is to stop, then stop it. Signals are obeyed if this is the main thread."""
    try:
        obeyed = running.obeys_signals
        running.obey_signal()
        stuck = running.stop(grace)
    except BaseException:
        _stop_after_interrupt(running, grace)
        raise
    if stuck and obeyed:
        end_process(EXIT_STUCK)
    running.raise_error()


def end_process(status: int) -> None:
    """Flush logs and output, then end, whatever other threads do.

    Flushing takes locks that a stuck thread may hold: it gets 2 s.
    """
    flusher = Thread(target=_flush, name="flush before exit", daemon=True)
    flusher.start()
    flusher.join(FLUSH_SECONDS)
    os._exit(status)


def _flush() -> None:
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()


def _stop_after_interrupt(running: Foreground, grace: float) -> None:
    try:
        running.stop(grace)
    except KeyboardInterrupt:  # a second one: the person does not want to wait
        running.abandon()
