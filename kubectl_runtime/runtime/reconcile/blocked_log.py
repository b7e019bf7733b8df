"""`BlockedLog`: says when all workers of a controller are held by runs that do not end, while keys wait for one.

    all workers have been at the same runs for    said
    `AFTER` seconds, and keys are due             a warning: the longest runs, how many keys wait, and what helps
    twice as long as was told last                the same again
    a run has ended since                         info: that runs end again, and for how long none did

Runs that take so long by nature, one after the other, are told once: within `SILENCE` seconds only what lasts twice as
long as was told before is told.

A log line, and no reason to be not ready or not alive: one run that ends is all it takes, so readiness would come and
go with the load, and a restart begins the same calls again. The status page names the longest runs anyway. The
dispatcher looks. A run costs nothing, and a controller with a free worker one comparison a turn. Pure but for the log.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence

from kubectl_runtime.core.base.clock import Clock
from kubectl_runtime.core.base.guarded_log import GuardedLogger
from kubectl_runtime.runtime.logs import said
from kubectl_runtime.runtime.queue.runs import Run
from kubectl_runtime.runtime.reconcile.run_log import readable

AFTER = 60.0
"""Seconds."""

SILENCE = 3600.0
"""Seconds after the last warning; then it begins with `AFTER` again."""

LOOK_EVERY = 1.0
"""Seconds between two looks while it stands, so that its end is told soon."""

IDLE_LOOK = 10.0
"""Seconds between two looks at runs that are old enough, while no key waits for them."""

NAMED = 3

Held = tuple[Sequence[Run], int]
"""The runs that hold all workers, in the order they began, and how many keys are due."""


class BlockedLog:
    """Says in the log that all workers are held by runs that do not end, and when it goes on. For one thread at a
    time."""

    def __init__(self, logger: GuardedLogger, clock: Clock, held: Callable[[], Held | None],
                 run_timeout: float | None) -> None:
        """`held()`: None while a worker is free. `run_timeout`: what the controller was given."""
        self._logger = logger
        self._clock = clock
        self._held = held
        self._remedy = "Give the calls they wait for a timeout, or the controller a Controller(run_timeout=…)" \
            if run_timeout is None else \
            f"They go on beyond run_timeout={run_timeout:g}: give the calls they wait for a timeout, or let them " \
            "look at ctx.stop"
        self._limit = AFTER
        self._told = float("-inf")
        self._since: float | None = None
        """Since when the workers have been at the runs that were told; None when there is nothing to tell an end of."""

    def check(self) -> float | None:
        """Look, and say what has changed. The seconds until it wants to look again; None while a worker is free."""
        held = self._held()
        now = self._clock.monotonic()
        if held is None or not held[0]:
            self._ended(now)
            return None if held is None else IDLE_LOOK
        runs, due = held
        since = max(run.started for run in runs)
        if self._since is not None and since > self._since:
            self._ended(now)
        if now - self._told >= SILENCE:
            self._limit = AFTER
        left = since + self._limit - now
        if left <= 0 and due:
            self._tell(runs, due, now, since)
        if self._since is not None:
            return LOOK_EVERY
        return left if left > 0 else IDLE_LOOK

    def _tell(self, runs: Sequence[Run], due: int, now: float, since: float) -> None:
        longest = ", ".join(f"{said(run.request.ref)} for {readable(now - run.started)}" for run in runs[:NAMED])
        more = f" and {len(runs) - NAMED} more" if len(runs) > NAMED else ""
        keys = "1 key waits" if due == 1 else f"{due} keys wait"
        workers = "the only worker has been at the same run" if len(runs) == 1 else \
            f"all {len(runs)} workers have been at the same runs"
        self._logger.warning("no run ends: %s for %s, and %s. The longest runs: %s%s. %s; "
                             "Controller(concurrency=…) allows more runs at once", workers, readable(now - since),
                             keys, longest, more, self._remedy)
        self._told, self._since, self._limit = now, since, 2 * self._limit

    def _ended(self, now: float) -> None:
        if self._since is not None:
            self._logger.info("runs end again: none had ended for %s", readable(now - self._since))
            self._since = None
