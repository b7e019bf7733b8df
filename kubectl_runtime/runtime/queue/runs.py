"""`Run`: one execution of the reconciler for one key, and `Outcome`: how it ended.

A run also collects what its own thread writes through the client meanwhile, which `record_write` is told. It is made by
the thread that works for it, and keeps that thread's id. The thread is how a write finds its run, so a write made by
another thread that a reconciler started is nobody's.
"""
from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kubectl_runtime.core.base.keys import Key
from kubectl_runtime.core.base.observer import RunResult
from kubectl_runtime.runtime.queue.key_backoff import Version
from kubectl_runtime.runtime.triggers.triggers import ReconcileRequest

if TYPE_CHECKING:
    from kubectl_runtime.client.api.writes import Write

MAX_ARRIVALS = 64
"""Causes remembered per run; with more, the trigger behind them counts as somebody else's change."""


# Python 3.11 takes a third of a microsecond to look up a member of an enum.
_ERROR, _TERMINAL_ERROR = RunResult.ERROR, RunResult.TERMINAL_ERROR


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended, and when the key is to run again (seconds from now; None: when something changes)."""

    delay: float | None = None
    result: RunResult = RunResult.SUCCESS
    error: BaseException | None = field(default=None, compare=False)
    """What made it fail."""
    decode_failed_at: str | None = None

    @property
    def failed(self) -> bool:
        return self.result is _ERROR or self.result is _TERMINAL_ERROR


SUCCEEDED = Outcome()
GONE = Outcome(result=RunResult.GONE)
"""There was no such object: nothing was reconciled, and as after a success nothing about the key is kept."""

SKIPPED = Outcome(result=RunResult.SKIPPED)
"""Nothing ran; what is known of the key's failures stays."""


class Run:
    """A key that runs now. `writes` belongs to the running thread, the rest to the queue."""

    __slots__ = ("arrivals", "decode_failed_at", "depth", "failures", "forgotten", "key", "request", "started",
                 "thread_id", "waited", "writes")

    def __init__(self, key: Key, request: ReconcileRequest, failures: int, decode_failed_at: str | None,
                 started: float, waited: float = 0.0) -> None:
        self.key = key
        self.request = request
        self.failures = failures
        """Failures in a row before this run."""
        self.decode_failed_at = decode_failed_at
        self.started = started
        self.waited = waited
        """Seconds since the key was due."""
        self.depth = 0
        """How many keys were due when this one had been taken out."""
        self.thread_id = threading.get_ident()
        self.writes: dict[Version, None] = {}
        self.arrivals: list[Version] | None = []
        """Causes of the triggers that came meanwhile; None when one of them had no known cause."""
        self.forgotten = False
        """The object was deleted meanwhile: the outcome says nothing about its successor."""

    def arrived(self, cause: Version | None) -> None:
        if self.arrivals is None:
            return
        if cause is None or len(self.arrivals) >= MAX_ARRIVALS:
            self.arrivals = None
        else:
            self.arrivals.append(cause)


class _ThisThread(threading.local):
    run: Run | None = None


_this_thread = _ThisThread()


def enter_run(run: Run | None) -> None:
    """From now on this thread works for `run` (None: for nobody)."""
    _this_thread.run = run


def record_write(write: Write) -> None:
    """For `Client.on_write`: this thread wrote an object and was answered this version, whose echo will come on a
    watch."""
    run = _this_thread.run
    if run is not None and write.uid and write.resource_version:
        run.writes[(write.uid, write.resource_version)] = None
