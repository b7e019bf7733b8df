"""`WorkQueue`: which key runs next, and what its end means. Pure: no clock, no lock, no thread.

It joins the scheduler (when), the set of running keys (not twice at once) and the failures (how long to wait):

    state of a key       trigger                    take             finish
    idle                 -> scheduled               -                -
    scheduled            merged by the scheduler    -> running,      -
                                                    slot emptied
    backing off          own echo: absorbed by the  as scheduled     -
                         retry; else runs now,
                         count kept
    running              -> running + scheduled     skipped          success  -> scheduled (requeue) or idle; count 0
                                                                     failure  -> backing off; count + 1
                                                                     gone     -> idle; count 0
                                                                     skipped  -> idle; count kept
    running + scheduled  merged                     skipped          -> scheduled, at the earlier of both; after a
                                                                     failure triggers that were only the run's own
                                                                     echoes are absorbed by the retry

A trigger that says the object itself was deleted is a `forget` instead: it drops the count and the slot, since there is
nothing to reconcile; a run in progress then leaves nothing behind. If the object is created again, that is a new
trigger.

`close` drops everything pending and refuses what comes later; runs in progress may still finish.
"""
from __future__ import annotations

from collections.abc import Iterable

from kubectl_runtime.core.base.keys import Key
from kubectl_runtime.runtime.queue.key_backoff import Failures, Version
from kubectl_runtime.runtime.queue.runs import SKIPPED, Outcome, Run
from kubectl_runtime.runtime.queue.scheduler import Scheduler
from kubectl_runtime.runtime.triggers.triggers import Reason, ReconcileRequest

REQUEUED = "reconciler requested retry"
RETRIED = "error policy requested retry"


class WorkQueue:
    """The decisions of one controller's queue.

    The owner serialises calls and passes the time of one monotonic clock.
    """

    def __init__(self, scheduler: Scheduler[Key, ReconcileRequest]) -> None:
        self._scheduler = scheduler
        self._failures: Failures[Key] = Failures()
        self._running: dict[Key, Run] = {}
        self._closed = False

    @property
    def running(self) -> Iterable[Run]:
        return self._running.values()

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def failing(self) -> int:
        """How many keys failed the last time they ran."""
        return len(self._failures)

    def __len__(self) -> int:
        """How many keys are scheduled, due or not."""
        return len(self._scheduler)

    def due_at(self, key: Key) -> float | None:
        return self._scheduler.due_at(key)

    def trigger(self, request: ReconcileRequest, now: float) -> None:
        """Something changed that `request.ref` may care about.

        The ref is already of the controller's own kind and scope.
        """
        if self._closed:
            return
        key, cause = request.ref.key, request.cause
        if request.reason is Reason.OBJECT_DELETED:
            self.forget(key)
            return
        run = self._running.get(key)
        if run is not None:
            run.arrived(cause)
        elif cause is not None and self._failures.is_echo(key, cause) and key in self._scheduler:
            return
        self._scheduler.trigger(key, request, now)

    def take(self, now: float) -> Run | None:
        """Start the key that has been due longest and does not run; None when there is none."""
        entry = None if self._closed else self._scheduler.pop_due(now, self._running)
        if entry is None:
            return None
        state = self._failures.get(entry.key)
        run = Run(entry.key, entry.message, state.count if state else 0, state.decode_failed_at if state else None, now,
                  now - entry.at)
        self._running[entry.key] = run
        return run

    def finish(self, run: Run, outcome: Outcome, now: float) -> bool:
        """`run` ended with `outcome`: the key is free, and scheduled anew if it should be. Whether that is a retry."""
        del self._running[run.key]
        if self._closed:
            return False
        failed, retried = outcome.failed, False
        if run.forgotten:
            self._failures.forget(run.key)
        elif failed:
            self._fail(run, outcome)
        elif outcome.result is not SKIPPED.result:
            self._failures.forget(run.key)
        if outcome.delay is not None and not run.forgotten:
            retried = failed
            reason = RETRIED if failed else REQUEUED
            self._scheduler.add(run.key, ReconcileRequest(run.request.ref, reason), now + outcome.delay, now)
        self._scheduler.release(run.key)
        return retried

    def abandon(self, run: Run) -> None:
        """A defect ended `run` without an outcome: its key does not run any more."""
        self._running.pop(run.key, None)

    def forget(self, key: Key) -> None:
        """The object of `key` was deleted: drop its count and its slot."""
        self._failures.forget(key)
        self._scheduler.remove(key)
        run = self._running.get(key)
        if run is not None:
            run.forgotten = True

    def due(self, now: float) -> int:
        """How many keys could run now, were there enough workers; those that run already, again, are among them."""
        return self._scheduler.ready_count(now)

    def next_due(self) -> float | None:
        """When the next key becomes due that is not yet; None when none waits."""
        return self._scheduler.next_due()

    def close(self) -> int:
        """Shutdown begins: no new runs. How many pending keys were dropped."""
        self._closed = True
        self._failures.clear()
        return self._scheduler.clear()

    def _fail(self, run: Run, outcome: Outcome) -> None:
        state = self._failures.failed(run.key, run.writes, decode_failed_at=outcome.decode_failed_at)
        if outcome.delay is not None and run.arrivals and _all_echoes(run.arrivals, state.writes):
            self._scheduler.remove(run.key)


def _all_echoes(causes: Iterable[Version], writes: dict[Version, None]) -> bool:
    return all(cause in writes for cause in causes)
