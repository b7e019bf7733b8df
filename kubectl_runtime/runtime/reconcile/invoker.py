"""`Invoker`: from a run to its outcome, by way of the user's reconciler and error policy.

    the store has no such object            nothing runs, no error; nothing about the key is kept
    an Action                               success: wait for a change, or for the time it names
    anything else returned                  TypeError, handled as a failure
    DecodeError of this very object         logged; nothing runs again until its resourceVersion changes
    a conflict (409)                        failure, one quiet line: somebody else was faster
    its namespace is being deleted (403)    failure, one quiet line: a watch was faster than the one of the object
    any other exception, SystemExit too     failure: logged once with traceback, attempt and delay
    the error policy raises                 both are logged; the default backoff applies

Never raises, except KeyboardInterrupt in the main thread (a simulation's). Holds no lock.
"""
from __future__ import annotations

from typing import Any

from kubectl_runtime.core.base.errors import ApiError
from kubectl_runtime.core.base.observer import RunResult
from kubectl_runtime.core.meta.problems import DecodeError
from kubectl_runtime.core.objects.invalid import InvalidObject
from kubectl_runtime.runtime.events.writing import TERMINATING
from kubectl_runtime.runtime.queue.runs import GONE, SKIPPED, SUCCEEDED, Outcome, Run, enter_run
from kubectl_runtime.runtime.reconcile.action import Action
from kubectl_runtime.runtime.reconcile.context import Context, Environment
from kubectl_runtime.runtime.reconcile.reconciler import ErrorPolicy, ReconcileFunction
from kubectl_runtime.runtime.reflector.store import Store
from kubectl_runtime.runtime.usercode import described, name_of, pass_interrupt

OWNED = "FieldManagerConflict"
"""The reason of a cause where an apply met a field of another manager: unlike a stale write, no retry helps."""


class Invoker:
    """Runs one controller's reconciler. Safe to use from any thread."""

    def __init__(self, reconcile: ReconcileFunction[Any], error_policy: ErrorPolicy[Any] | None, store: Store[Any],
                 environment: Environment[Any]) -> None:
        """Without an `error_policy` a failing key waits its backoff."""
        self._reconcile = reconcile
        self._error_policy = error_policy
        self._store = store
        self._environment = environment

    def __call__(self, run: Run) -> Outcome:
        """Reconcile the object of `run` as the store has it now."""
        ref = run.request.ref
        obj = self._store.get(ref.name, ref.namespace)
        if obj is None:
            return GONE
        if run.decode_failed_at is not None and obj.resource_version == run.decode_failed_at:
            return SKIPPED
        if isinstance(obj, InvalidObject):
            return self._undecodable(obj, obj.error)
        ctx: Context[Any] = Context(self._environment, run, obj.uid)
        enter_run(run)
        try:
            action = self._reconcile(obj, ctx)
            if not isinstance(action, Action):
                raise _wrong_type(self._reconcile, action, ref)
            after = action.requeue_after
            return SUCCEEDED if after is None else Outcome(after, RunResult.REQUEUE_AFTER)
        except BaseException as error:  # noqa: BLE001 - no exception of user code ends a thread of the library
            return self._failed(obj, error, ctx)
        finally:
            enter_run(None)

    def _failed(self, obj: Any, error: BaseException, ctx: Context[Any]) -> Outcome:
        pass_interrupt(error)
        if isinstance(error, DecodeError) and error.ref == ctx.ref:
            return self._undecodable(obj, error)
        delay = self._delay_after(obj, error, ctx)
        self._log_failure(error, ctx, delay)
        return Outcome(delay, RunResult.ERROR, error)

    def _delay_after(self, obj: Any, error: BaseException, ctx: Context[Any]) -> float | None:
        if self._error_policy is None:
            return ctx.backoff_delay
        try:
            action = self._error_policy(obj, error, ctx)
            if not isinstance(action, Action):
                raise _wrong_type(self._error_policy, action, ctx.ref)
            return action.requeue_after
        except BaseException as second:
            pass_interrupt(second)
            logger = self._environment.logger
            logger.error("the error policy %s failed on %s: %s; the default backoff applies",
                         name_of(self._error_policy), ctx.ref, described(second), exc_info=second)
            return ctx.backoff_delay

    def _log_failure(self, error: BaseException, ctx: Context[Any], delay: float | None) -> None:
        logger = self._environment.logger
        again = "waits for a change" if delay is None else f"again in {_readable(delay)}"
        if isinstance(error, ApiError) and any(cause.reason == OWNED for cause in error.status.causes):
            logger.warning("%s: fields belong to somebody else, until you leave them out or take them with force=True "
                           "(attempt %d, %s): %s", ctx.ref, ctx.attempt, again, error)
        elif isinstance(error, ApiError) and any(cause.reason == TERMINATING for cause in error.status.causes):
            logger.info("%s: a namespace is being deleted (attempt %d, %s): %s", ctx.ref, ctx.attempt, again, error)
        elif isinstance(error, ApiError) and error.is_conflict:
            logger.info("%s: conflict, somebody else changed it meanwhile (attempt %d, %s): %s", ctx.ref, ctx.attempt,
                        again, error)
        elif ctx.stop.is_set():
            logger.warning("%s: ended by the shutdown: %s", ctx.ref, described(error))
        else:
            logger.error("%s: reconcile failed (attempt %d, %s): %s", ctx.ref, ctx.attempt, again, described(error),
                         exc_info=error, extra={"ref": ctx.ref, "reconcile_id": ctx.reconcile_id})

    def _undecodable(self, obj: Any, error: DecodeError) -> Outcome:
        logger = self._environment.logger
        logger.error("%s; at resourceVersion %s this cannot get better: waits for the object to change",
                     error, obj.resource_version or "unknown")
        return Outcome(None, RunResult.TERMINAL_ERROR, error, decode_failed_at=obj.resource_version)


def _wrong_type(function: Any, returned: object, ref: object) -> TypeError:
    return TypeError(f"{name_of(function)} returned {type(returned).__name__} for {ref}: "
                     "return Action.await_change() or Action.requeue(seconds)")


def _readable(delay: float) -> str:
    return f"{delay * 1000:.0f} ms" if delay < 1 else f"{delay:.1f} s"
