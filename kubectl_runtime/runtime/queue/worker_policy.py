"""`WorkerPolicy`: how many workers a runner uses, and when. Pure: no clock, no lock, no thread.

Threads of one interpreter take turns. A worker whose runs wait for something (a request to an API server takes
milliseconds) loses nothing to others, so as many as may be work at once. A worker whose runs only look and find nothing
to do competes: with other workers (ten were 2.5 times slower than one, measured), and with the watch that feeds it,
which has to wait for its turn (5 ms) after each read from its socket.

    runs usually take   keys are due, workers there are         a run ended
    1 ms or more        call another one                        take the next
    less: *short*       call one if there is none, or if none   go home if another worker has begun a run since and is
                        began a run for the `patience`          at it; else rest if triggers keep coming and this one
                                                                has worked for `SLICE`; else take the next

Resting means that no worker is called for `REST`. Meanwhile the watch catches up, and keys that change again run once
instead of twice: under a flood of events the last versions are reconciled sooner.

An executor without patience (a simulation, an interpreter without a global lock) never has short runs.
"""
from __future__ import annotations

from math import inf

from kubectl_runtime.runtime.queue.runs import Run

SHORT = 0.001
"""Seconds. A run below this has asked nobody for anything."""

SMOOTHING = 8
"""Runs over which the usual duration is averaged: one that the operating system interrupts does not change much."""

SLICE, REST = 0.0005, 0.008
"""Seconds of work and of rest in turn, while triggers keep coming: all but a sixteenth of the time is the watch's then.
A slice is a hundred runs that do nothing; with twice as much work and half the rest the whole pipeline took a seventh
less in a second (tests/benchmarks/firehose.py)."""

LULL = 0.01
"""Seconds without a trigger after which they do not keep coming any more; two turns of another thread."""


class WorkerPolicy:
    """Decides whether to call another worker when keys are due. Times are seconds of one monotonic clock; its owner
    serialises the calls."""

    def __init__(self, patience: float) -> None:
        """`patience`: seconds for which it is better to wait for a busy worker than to call another one."""
        self._patience = patience
        self._usual = inf
        self.short = False
        """Whether runs usually end so soon that workers only compete. Not before one has ended."""
        self._last_trigger = -inf
        self._last_call = -inf
        self._last_start = -inf
        self._last_run: Run | None = None
        self._rest_until: float | None = None

    def triggered(self, now: float) -> None:
        """Keys became due."""
        self._last_trigger = now

    def call_at(self, workers: int) -> float:
        """When to call a worker, given that keys are due and `workers` are at work; -inf: at once."""
        if not self.short or (not workers and self._rest_until is None):
            return -inf
        return self.ask_again()

    def ask_again(self) -> float:
        """When `call_at` is to be asked even if nothing changes."""
        return self._rest_until if self._rest_until is not None else self._last_start + self._patience

    def called(self, now: float) -> None:
        """A worker was called."""
        self._last_call = self._last_start = now
        self._rest_until = None

    def began(self, run: Run, now: float) -> None:
        """A worker began `run`."""
        self._last_start, self._last_run = now, run

    def ended(self, run: Run, now: float) -> bool:
        """`run` is over; whether its worker is to take the next one."""
        took = now - run.started
        usual = self._usual
        self._usual = usual = took if usual == inf else usual + (took - usual) / SMOOTHING
        self.short = short = usual < SHORT and self._patience > 0
        if run is self._last_run:
            self._last_run = None
        if not short:
            return True
        if self._last_run is not None:
            return False
        if now - self._last_call >= SLICE and now - self._last_trigger < LULL:
            self._rest_until = now + REST
            return False
        return True
