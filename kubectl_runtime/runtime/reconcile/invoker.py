"""`Invoker`: from a run to its outcome, by way of the user's reconciler and error policy.

    the store has no such object            nothing runs, no error; nothing about the key is kept
    an Action                               success: wait for a change, or for the time it names
    anything else returned                  TypeError, handled as a failure
    TerminalError, DecodeError of this      failure, once, without a retry. News lead to a run: another version of the
    very object; also as a cause            object than the one seen and those that the run wrote, a change of anything
                                            else that it is mapped from, a trigger, a resync
    a conflict (409)                        a few times in a row: soon again, quietly; then a failure
    any other exception, SystemExit too     failure: the error policy says when to try again
    the error policy raises                 both are logged; the default backoff applies

What `on_success` raises is a failure of the run. What is logged of all this is `RunLog`'s business. Never raises,
except KeyboardInterrupt in the main thread (a simulation's). Holds no lock.

A run begins and ends here: its scope (see `core.scope`) with the fences of the controller's client, which hold for
every relative of that client, and its parts, such as a timeout, a recording or an observer. The parts begin in their
order and end in the reverse order.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from kubectl_runtime.core.base.clock import Clock
from kubectl_runtime.core.base.errors import is_lost_race
from kubectl_runtime.core.base.guard import Guard, pass_interrupt
from kubectl_runtime.core.base.observer import Observer, RunResult, hearers
from kubectl_runtime.core.meta.problems import DecodeError
from kubectl_runtime.core.scope import RunScope, current_scope, enter_scope, leave_scope
from kubectl_runtime.runtime.queue.runs import (
    GONE,
    SKIPPED,
    SUCCEEDED,
    Execute,
    Outcome,
    Run,
    conflicted,
    requeued,
)
from kubectl_runtime.runtime.reconcile.loop_detector import LoopDetector
from kubectl_runtime.runtime.reconcile.reconciler import (
    Action,
    Context,
    Environment,
    ErrorPolicy,
    ReconcileFunction,
    Reconciler,
    ResultCallback,
    RunReport,
    TerminalError,
)
from kubectl_runtime.runtime.reconcile.run_log import RunLog
from kubectl_runtime.runtime.store.store import Store
from kubectl_runtime.runtime.usercode import name_of, not_awaitable

SuccessFunction = Callable[[Any, Action, Context[Any]], object]


class RunPart(Protocol):
    """Something that takes part in each run of a controller, in the run's thread. Raises nothing."""

    def begin(self, run: Run, scope: RunScope) -> bool:
        """The run begins, in this scope, which it may change. False: there is to be none; it then has no `end`."""

    def end(self, run: Run, outcome: Outcome) -> None:
        """The run has ended; its scope is still in force. After a defect `outcome` is an error."""


class Invoker:
    """Runs one controller's reconciler. Safe to use from any thread."""

    def __init__(self, reconcile: ReconcileFunction[Any], error_policy: ErrorPolicy[Any] | None, store: Store[Any],
                 environment: Environment[Any], on_result: ResultCallback | None = None, *,
                 parts: Sequence[RunPart] = (), on_crowd: Callable[[], object] = lambda: None) -> None:
        """Without an `error_policy` a failing key waits its backoff. `on_result` hears how each run ended that called
        the reconciler, in the thread of the run. `parts` take part in each run. `on_crowd`: see `RunLog`."""
        self._reconcile = reconcile
        self._on_success = success_function(reconcile)
        self._error_policy = error_policy
        self._store = store
        self._environment = environment
        self._stored = environment.stored
        self._on_result = on_result
        self._log = RunLog(environment.logger, environment.clock, environment.shutdown.aborted, on_crowd)
        self._policy_guard = Guard(f"the error policy {name_of(error_policy)}, whose place the default backoff takes,",
                                   environment.logger, environment.clock)
        self._result_guard = Guard(f"the result callback {name_of(on_result)}", environment.logger, environment.clock)
        self.loops = LoopDetector(environment.logger, environment.clock)
        self._parts = tuple(parts)
        self._stop, self._cut = environment.shutdown.aborted, environment.shutdown.cut
        self._fences = getattr(environment.client, "fences", ())
        self._family = environment.client.shared if self._fences else None
        self.invoke: Execute = self.invoke_reconciler
        """What a run consists of."""
        self.gone: Execute = _gone
        """What runs instead where the store has no such object."""

    def __call__(self, run: Run) -> Outcome:
        """The whole of a run, from its beginning to its end."""
        scope = RunScope(self._stop, self._cut, run, self._family, self._fences)
        entered = enter_scope(scope)
        begun, outcome = 0, SKIPPED
        try:
            for part in self._parts:
                if not part.begin(run, scope):
                    break
                begun += 1
            else:
                outcome = self.invoke(run)
            return outcome
        except BaseException as error:  # a defect, no memory, or what another thread has set
            outcome = Outcome(None, RunResult.ERROR, error)
            raise
        finally:
            try:
                if begun:
                    for part in self._parts[begun - 1::-1]:
                        part.end(run, outcome)
            finally:
                leave_scope(entered)

    def invoke_reconciler(self, run: Run) -> Outcome:
        """Reconcile the object of `run` as the store has it now."""
        ref = run.request.ref
        record = self._store.record(ref.name, ref.namespace)
        if record is None:
            return self.gone(run)
        head = record.head
        if run.waits_beyond and run.has_nothing_new(record):
            return SKIPPED
        obj, invalid = self._store.reader(record), record.problem is not None
        run.looks_at(record)
        ctx: Context[Any] = Context(self._environment, run, head.uid)
        run.known = self._stored
        scope = current_scope()
        if scope is not None:
            scope.logged = ctx  # log lines of this thread name the run from now on
        outcome = self._failed(obj, obj.error, ctx, run) if invalid else self._run(obj, ctx, run)
        return replace(outcome, delays_requeue=True) if self._tell(run, ctx, outcome) else outcome

    def _run(self, obj: Any, ctx: Context[Any], run: Run) -> Outcome:
        try:
            action = not_awaitable(self._reconcile(obj, ctx), self._reconcile)
            if not isinstance(action, Action):
                raise _wrong_type(self._reconcile, action, ctx.ref)
            if self._on_success is not None:
                self._on_success(obj, action, ctx)
            return SUCCEEDED if action.requeue_after is None else requeued(run, action.requeue_after)
        except BaseException as error:  # noqa: BLE001 - no exception of user code ends a thread of the library
            return self._failed(obj, error, ctx, run)

    def _failed(self, obj: Any, error: BaseException, ctx: Context[Any], run: Run) -> Outcome:
        pass_interrupt(error)
        if self._environment.data is None and isinstance(error, AttributeError):
            _note_missing_context(error)
        quiet = conflicted(run, error, self._environment.rng) if is_lost_race(error) else None
        if quiet is not None:
            return quiet
        own = run.own_changes()
        if _is_terminal(error, ctx):
            versions = {version for uid, version in own if uid == obj.uid}
            outcome = Outcome(None, RunResult.TERMINAL_ERROR, error, own,
                              waits_beyond=frozenset((obj.resource_version, *versions)) - {""})
        else:
            outcome = Outcome(self._delay_after(obj, error, ctx), RunResult.ERROR, error, own)
        return replace(outcome, told=self._log.failed(run, ctx, outcome, error))

    def _delay_after(self, obj: Any, error: BaseException, ctx: Context[Any]) -> float | None:
        if self._error_policy is None:
            return ctx.backoff_delay
        default: float | None = ctx.backoff_delay
        return self._policy_guard.call(default, str(ctx.ref), self._decided, self._error_policy, obj, error, ctx)

    @staticmethod
    def _decided(policy: ErrorPolicy[Any], obj: Any, error: BaseException, ctx: Context[Any]) -> float | None:
        action = not_awaitable(policy(obj, error, ctx), policy)
        if not isinstance(action, Action):
            raise _wrong_type(policy, action, ctx.ref)
        return action.requeue_after

    def _tell(self, run: Run, ctx: Context[Any], outcome: Outcome) -> bool:
        """Log the run and report it. Whether its key has a requeue delay."""
        timeout, now = self._environment.run_timeout, self._environment.clock.monotonic()
        if timeout is not None and now - run.started > timeout:
            self._log.overdue(ctx, now - run.started, timeout)
        self._log.ended(run, ctx, outcome, now)
        delayed = self.loops.ended(run, outcome, now)
        if self._on_result is not None:
            report = RunReport(ctx.ref, outcome.result, now - run.started, ctx.attempt, ctx.reason, ctx.reconcile_id,
                               outcome.delay, outcome.error)
            self._result_guard.call(None, str(ctx.ref), self._on_result, report)
        return delayed


def _gone(_run: Run) -> Outcome:
    return GONE


def success_function(reconcile: ReconcileFunction[Any]) -> SuccessFunction | None:
    """`on_success` of the reconciler that this method belongs to; None when it does not override it."""
    owner = getattr(reconcile, "__self__", None)
    if not isinstance(owner, Reconciler) or type(owner).on_success is Reconciler.on_success:
        return None
    return owner.on_success


def _note_missing_context(error: AttributeError) -> None:
    """Where something was read from None in code that also reads a `data`: that there is none is part of the error."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if error.obj is None and error.name is not None and trace is not None and \
            "data" in trace.tb_frame.f_code.co_names:
        error.add_note("ctx.data is None, as no context= was given: start, run, bind and Manager.add take it")


def _is_terminal(error: BaseException, ctx: Context[Any]) -> bool:
    seen: BaseException | None = error
    for _ in range(20):  # a chain of causes may be a circle
        if seen is None:
            break
        if isinstance(seen, TerminalError) or (isinstance(seen, DecodeError) and seen.ref == ctx.ref):
            return True
        seen = seen.__cause__
    return False


def _wrong_type(function: Any, returned: object, ref: object) -> TypeError:
    return TypeError(f"{name_of(function)} returned {type(returned).__name__} for {ref}: "
                     "return Action.await_change() or Action.requeue(seconds)")


class RunObserver:
    """The part of a run of which an observer is notified, in the run's thread."""

    def __init__(self, controller: str, observer: Observer, clock: Clock) -> None:
        self._started = hearers(observer, "run_started", controller)
        self._ended = hearers(observer, "run_ended", controller)
        self._clock = clock

    def __bool__(self) -> bool:
        return bool(self._started or self._ended)

    def begin(self, run: Run, scope: RunScope) -> bool:  # noqa: ARG002
        """As `RunPart.begin`."""
        # Not by `tell`: with one observer this would be a call more for each end, and packing and unpacking the values.
        for hear, guard in self._started:
            try:
                hear(run.key, run.request.reason, run.waited, run.depth, run.started)
            except BaseException as error:  # noqa: BLE001 - it may be anybody's
                guard.failed(error)
            else:
                if guard.count:
                    guard.succeeded()
        return True

    def end(self, run: Run, outcome: Outcome) -> None:
        """As `RunPart.end`."""
        took = self._clock.monotonic() - run.started
        for hear, guard in self._ended:
            try:
                hear(run.key, outcome.result, took, outcome.error)
            except BaseException as error:  # noqa: BLE001 - as above
                guard.failed(error)
            else:
                if guard.count:
                    guard.succeeded()
