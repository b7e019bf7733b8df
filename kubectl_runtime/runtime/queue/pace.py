"""What a key may ask for in a row: to run again at once, and to have lost against somebody else. Pure functions.

    in a row                    1      2      3      4      5      6 and more
    asks for less than 0.1 s    5 ms   10     20     40     80     100 ms, or what it asks if that is more
    a conflict                  5 ms   10     20     40     80     an ordinary failure

The first is for a reconciler that polls something: ten times a second is often enough, and one that always asks for 0
would otherwise keep a processor busy. 0.1 s or more are kept as asked, and end the row. A conflict is not a failure:
the object has changed since it was read, the watch is about to say so, and the next run works on the newer one. Five
conflicts in a row count as a failure. The delays of conflicts are jittered, so that two writers which disturb each
other do not retry at the same moments.

A key in a loop (see `LoopDetector`) waits 0.1 s after each run, whatever asks for the next one: what loops keeps
neither a processor nor the API server busy. Changes in this time are seen by the run that follows.
"""
from __future__ import annotations

import random

from kubectl_runtime.core.base.backoff import ExponentialBackoff
from kubectl_runtime.core.base.observer import RunResult
from kubectl_runtime.runtime.queue.runs import CONFLICT, SOON, Outcome, Run

LEAST = 0.1
"""Seconds; who asks to run again sooner is slowed down."""

CONFLICTS = 5
"""How many in a row are retried quietly."""

_REQUEUE_AFTER, _ERROR = RunResult.REQUEUE_AFTER, RunResult.ERROR
_STEPS = ExponentialBackoff(0.005, 2.0, LEAST)
_JITTERED = ExponentialBackoff(0.005, 2.0, LEAST, 0.5)


def requeued(run: Run, after: float) -> Outcome:
    """The outcome of a `run` that succeeded and wants another one `after` so many seconds."""
    if after >= LEAST:
        return Outcome(after, _REQUEUE_AFTER)
    times = run.times_in_a_row(SOON) + 1
    least = _STEPS.delay(times, lambda: 0.0)
    return Outcome(max(after, least), _REQUEUE_AFTER, streak=SOON)


def conflicted(run: Run, error: BaseException, rng: random.Random) -> Outcome | None:
    """The outcome of a `run` that met a newer version; None when that is to be handled as any other failure."""
    times = run.times_in_a_row(CONFLICT) + 1
    if times > CONFLICTS:
        return None
    return Outcome(_JITTERED.delay(times, rng.random), _ERROR, error, streak=CONFLICT)
