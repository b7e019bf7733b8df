"""`observed`: runs of which an observer hears, in their thread."""
from __future__ import annotations

from kubectl_runtime.core.base.clock import Clock
from kubectl_runtime.core.base.observer import Observer, RunResult, hearers, tell
from kubectl_runtime.runtime.queue.runs import Execute, Outcome, Run


def observed(execute: Execute, controller: str, observer: Observer, clock: Clock) -> Execute:
    """`execute`, of whose runs `observer` hears in their thread; one that a defect ends has an end as well."""
    started, ended = hearers(observer, "run_started", controller), hearers(observer, "run_ended", controller)
    if not started and not ended:
        return execute

    def run_and_tell(run: Run) -> Outcome:
        # Not by `tell`: with one observer this would be a call more for each end, and packing and unpacking the values.
        for hear, guard in started:
            try:
                hear(run.key, run.request.reason, run.waited, run.depth, run.started)
            except BaseException as error:  # noqa: BLE001 - it may be anybody's
                guard.failed(error)
            else:
                if guard.count:
                    guard.succeeded()
        try:
            outcome = execute(run)
        except BaseException as error:
            tell(ended, run.key, RunResult.ERROR, clock.monotonic() - run.started, error)
            raise
        took = clock.monotonic() - run.started
        for hear, guard in ended:
            try:
                hear(run.key, outcome.result, took, outcome.error)
            except BaseException as error:  # noqa: BLE001 - as above
                guard.failed(error)
            else:
                if guard.count:
                    guard.succeeded()
        return outcome

    return run_and_tell
