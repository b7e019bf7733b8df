"""`Invoker`: executes a run with the user's reconciler and error policy, and returns the run's outcome.

    result of the run                       outcome
    the store has no such object            nothing runs, no error; no state of the key is kept
    an Action                               success: the key waits for a change, or for the Action's time
    any other return value                  TypeError, handled as a failure
    TerminalError, DecodeError of this      one failure, without a retry. The key runs again only for a version of the
    object; also as a cause                 object that this run neither saw nor wrote, a change of a related object, a
                                            trigger, or a resync
    a conflict (409)                        the first few in a row: a retry soon, without an error; then a failure
    any other exception, also SystemExit    failure: the error policy decides when to retry, until the attempts of the
                                            backoff are used up
    the error policy raises                 both errors are logged; the default backoff applies

If `on_success` raises, the run fails. `RunLog` logs the outcome. The Invoker never raises, except KeyboardInterrupt in
the main thread (in a simulation), and holds no lock.

Each run has a scope (see `core.scope`) with the controller client's write fences, which can refuse writes. The fences
also apply to clients that are derived from the same root client. Each run also has parts, such as a timeout, a
recording or an observer; they begin in order and end in reverse order.

`RunLog`: logs the runs of a controller, so that an outage fits into a few lines.

    a run ends                          level    logged
    with success, like the run before   DEBUG    a line per run: object, reason, duration, result
    with success, after failures        INFO     the number of attempts and the time
    with the first or another error     ERROR    the error with its traceback from the first line of user code; a
                                                 KubeError without a traceback; a RequestError with its line of user
                                                 code
    with the same error as before       ERROR    one line each time the number of attempts doubles
    with a conflict that is retried     DEBUG    a line per run

If many keys of a controller fail in the same way (same class of error, same code), the first ten in a minute are logged
by name. After that, one line is logged each time their number doubles. Recoveries are logged in the same way. Conflicts
about fields of another manager, and runs that the shutdown ends, are logged as WARNING; a terminating namespace as
INFO.

`user_trace` finds the lines of a traceback that belong to the user's code.

Safe to use from any thread; no lock is held while anything is logged.
"""
from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Protocol

import msgspec

from kubectl_runtime.core.base.errors import (
    FIELD_CONFLICT,
    ApiError,
    KubeError,
    RequestError,
    is_lost_race,
)
from kubectl_runtime.core.base.guard import (
    Guard,
    GuardedLogger,
    Home,
    described,
    name_of,
    pass_interrupt,
)
from kubectl_runtime.core.base.observer import Observer, RunResult, callbacks
from kubectl_runtime.core.base.plain import Key
from kubectl_runtime.core.base.threads import Clock
from kubectl_runtime.core.meta.problems import DecodeError
from kubectl_runtime.core.objects.partial import InvalidObject
from kubectl_runtime.core.scope import RunScope, StopToken, current_scope, enter_scope, leave_scope
from kubectl_runtime.runtime.events.recorder import TERMINATING
from kubectl_runtime.runtime.logs import run_fields, said
from kubectl_runtime.runtime.queue.runs import (
    GONE,
    NO_WRITES,
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
    wrong_type,
)
from kubectl_runtime.runtime.status import ReadyCondition
from kubectl_runtime.runtime.store.store import Store

_LIBRARY = __name__.partition(".")[0]


def user_trace(error: BaseException) -> TracebackType | None:
    """The traceback from the first line of user code; the whole traceback if it has no user code."""
    trace = error.__traceback__
    while trace is not None and _is_ours(trace):
        trace = trace.tb_next
    return trace or error.__traceback__


def user_place(error: BaseException) -> str:
    """The last line of user code, such as `greeter.py:12, in reconcile`; empty if there is none."""
    found, trace = None, error.__traceback__
    while trace is not None:
        if not _is_ours(trace):
            found = trace
        trace = trace.tb_next
    if found is None:
        return ""
    code = found.tb_frame.f_code
    return f"{os.path.basename(code.co_filename)}:{found.tb_lineno}, in {code.co_name}"


def _is_ours(trace: TracebackType) -> bool:
    module = trace.tb_frame.f_globals.get("__name__")
    return isinstance(module, str) and module.partition(".")[0] == _LIBRARY


ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]
"""The type of `exc_info` in `logging`."""

SINGLY, WITHIN = 10, 60.0
"""The number of keys with the same failure that are logged by name, within this many seconds."""

MOST_KINDS = 20
"""The number of kinds of failures that are counted separately within `WITHIN`; further kinds are counted together."""


Alike = tuple[str, int]
"""The key by which failures are grouped: the class of the error, and its code."""

OTHER_KINDS: Alike = ("errors of many kinds", 0)


class LastFailure(msgspec.Struct, frozen=True):
    """The log's record of a key whose last run failed."""

    text: str
    alike: Alike
    attempts: int
    since: float
    run_id: str = ""
    """The id of the last failed run, as in log lines."""
    succeeded: float | None = None
    """When the key last succeeded; None if unknown."""


KEPT = 4096
"""The maximum number of keys whose last success is remembered for a controller. When it is reached, the older half is
forgotten."""


class FailureGroup:
    """Counts failures of one kind within `WITHIN`, and decides which of them are logged. Pure."""

    def __init__(self) -> None:
        self._since = float("-inf")
        self.count = 0

    def add(self, now: float) -> bool:
        """Count one more failure. Returns whether to log it: the first `SINGLY` failures are logged by name, then
        their number is logged each time it doubles."""
        if now - self._since >= WITHIN:
            self._since, self.count = now, 0
        self.count += 1
        times, rest = divmod(self.count, SINGLY)
        return self.count <= SINGLY or (not rest and times & (times - 1) == 0)

    def may_repeat(self, now: float) -> bool:
        """Whether a failure that has already been counted may be logged again. If it may, count it once more."""
        if now - self._since < WITHIN and self.count >= SINGLY:
            return False
        return self.add(now)

    @property
    def together(self) -> bool:
        """Whether the log line for the last failure gives the number of failures."""
        return self.count > SINGLY

    def age(self, now: float) -> float:
        """Seconds since the first failure of the current count."""
        return now - self._since


class RunLog:
    """The log lines of one controller's runs. Safe to use from any thread."""

    def __init__(self, logger: GuardedLogger, clock: Clock, aborted: StopToken,
                 on_many: Callable[[], object] = lambda: None) -> None:
        """`aborted`: the shutdown's token that ends runs. `on_many` is called when many keys have the same failure; it
        must not block."""
        self._logger = logger
        self._enabled_for = logger.logger.isEnabledFor  # bypasses the adapter, which only forwards the call
        self._clock = clock
        self._aborted = aborted
        self._on_many = on_many
        self._lock = threading.Lock()
        self._failures: dict[Alike, FailureGroup] = {}
        self._recoveries: dict[Alike, FailureGroup] = {}
        self._succeeded: dict[Key, float] = {}
        """When keys last succeeded. The older half is in `_succeeded_before`, which is dropped as a whole."""
        self._succeeded_before: dict[Key, float] = {}

    def failed(self, run: Run, ctx: Context[Any], outcome: Outcome, error: BaseException) -> LastFailure:
        """Log a failed run. Returns the record that the next failure of the same key needs."""
        now = self._clock.monotonic()
        before = run.last_failure if isinstance(run.last_failure, LastFailure) else None
        text = described(error)
        alike = (type(error).__name__, error.code if isinstance(error, ApiError) else 0)
        attempts = before.attempts + 1 if before is not None else 1
        earlier = self._succeeded_before.pop(run.key, None)
        succeeded = self._succeeded.pop(run.key, earlier) if before is None else before.succeeded
        since = before.since if before is not None else now
        failure = LastFailure(text, alike, attempts, since, ctx.reconcile_id, succeeded)
        if ctx.stop.is_set():
            why = "by the shutdown" if self._aborted.is_set() else f"by its stop token ({ctx.stop.reason})"
            self._say(logging.WARNING, ctx, "%s: ended %s: %s", said(ctx.ref), why, text)
        elif before is None or before.text != text:
            self._new_failure(failure, ctx, outcome, error, now)
        elif attempts & (attempts - 1) == 0:
            self._still_fails(failure, ctx, outcome, error, now)
        return failure

    def ended(self, run: Run, ctx: Context[Any], outcome: Outcome, now: float) -> None:
        """Log the end of a run: a recovery at INFO, and every run at DEBUG."""
        failure = run.last_failure
        if outcome.error is None:
            if isinstance(failure, LastFailure):
                self._recovered(failure, ctx, now)
            self._succeeded[run.key] = now
            if len(self._succeeded) >= KEPT // 2:
                self._succeeded_before, self._succeeded = self._succeeded, {}
        if self._enabled_for(logging.DEBUG):
            self._say(logging.DEBUG, ctx, "%s: ran %s (%s): %s", said(ctx.ref), readable(now - run.started),
                      ctx.reason or "no reason given", _result(outcome))

    def overdue(self, ctx: Context[Any], took: float, timeout: float) -> None:
        """Log that a run took longer than its `run_timeout`."""
        self._say(logging.WARNING, ctx, "%s: took %s, longer than the run_timeout of %s: end the run when "
                  "ctx.stop is set", said(ctx.ref), readable(took), readable(timeout))

    def _new_failure(self, failure: LastFailure, ctx: Context[Any], outcome: Outcome, error: BaseException,
                     now: float) -> None:
        with self._lock:
            alike, group = _group_of(self._failures, failure.alike, now)
            tell, together, count, age = group.add(now), group.together, group.count, group.age(now)
        level, what = _kind(error, outcome)
        if not tell:
            return
        if together:
            self._say(level, ctx, "%d objects have failed (%s) within %s, the last one is %s: %s", count,
                      _alike(alike), readable(age), said(ctx.ref), failure.text)
            self._on_many()
            return
        place = user_place(error) if isinstance(error, RequestError) else ""
        trace = None if isinstance(error, KubeError) else (type(error), error, user_trace(error))
        self._say(level, ctx, "%s: %s (attempt %d, %s): %s%s%s", said(ctx.ref), what, failure.attempts, _again(outcome),
                  failure.text, f" ({place})" if place else "",
                  "; more failures of this kind are only counted for a while" if count == SINGLY else "", trace=trace)

    def _still_fails(self, failure: LastFailure, ctx: Context[Any], outcome: Outcome, error: BaseException,
                     now: float) -> None:
        with self._lock:
            tell = _group_of(self._failures, failure.alike, now)[1].may_repeat(now)
        if tell:
            level, _ = _kind(error, outcome)
            self._say(level, ctx, "%s: still fails after %d attempts in %s (%s): %s", said(ctx.ref), failure.attempts,
                      readable(now - failure.since), _again(outcome), failure.text)

    def _recovered(self, failure: LastFailure, ctx: Context[Any], now: float) -> None:
        with self._lock:
            alike, group = _group_of(self._recoveries, failure.alike, now)
            tell, together, count, age = group.add(now), group.together, group.count, group.age(now)
        if tell and together:
            self._say(logging.INFO, ctx, "%d objects work again after failures (%s) within %s, the last one %s", count,
                      _alike(alike), readable(age), said(ctx.ref))
        elif tell:
            self._say(logging.INFO, ctx, "%s: works again after %d failed attempt%s in %s", said(ctx.ref),
                      failure.attempts, "" if failure.attempts == 1 else "s", readable(now - failure.since))

    def _say(self, level: int, ctx: Context[Any], message: str, *args: object,
             trace: ExcInfo | None = None) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, message, *args, exc_info=trace, extra=run_fields(ctx))


def _group_of(groups: dict[Alike, FailureGroup], alike: Alike, now: float) -> tuple[Alike, FailureGroup]:
    """The kind of a failure and its group. Kinds beyond the first `MOST_KINDS` share one group."""
    found = groups.get(alike)
    if found is None and len(groups) >= MOST_KINDS:
        for kind in [kind for kind, group in groups.items() if group.age(now) >= WITHIN]:
            del groups[kind]
        if len(groups) >= MOST_KINDS:
            alike = OTHER_KINDS
            found = groups.get(alike)
    if found is None:
        found = groups[alike] = FailureGroup()
    return alike, found


def _kind(error: BaseException, outcome: Outcome) -> tuple[int, str]:
    """The log level and the text for a failure."""
    causes = [cause.reason for cause in error.status.causes] if isinstance(error, ApiError) else []
    if FIELD_CONFLICT in causes:
        return logging.WARNING, ("applies fields that belong to another manager; leave them out, or take them with "
                                 "force=True")
    if TERMINATING in causes:
        return logging.INFO, "a namespace is being deleted"
    if outcome.result is RunResult.TERMINAL_ERROR:
        return logging.ERROR, "cannot be reconciled as it is"
    return logging.ERROR, "reconcile failed"


def _again(outcome: Outcome) -> str:
    return "waits for a change" if outcome.delay is None else f"again in {readable(outcome.delay)}"


def _alike(alike: Alike) -> str:
    return f"{alike[0]} {alike[1]}" if alike[1] else alike[0]


def _result(outcome: Outcome) -> str:
    if outcome.error is not None:
        return f"{outcome.result}, {_again(outcome)}: {described(outcome.error)}"
    if outcome.result is RunResult.REQUEUE_AFTER:
        return f"{RunResult.SUCCESS}, {_again(outcome)}"
    return str(outcome.result) if outcome.delay is None else f"{outcome.result}, {_again(outcome)}"


def readable(seconds: float) -> str:
    """Returns a duration as text: `12 ms`, `1.5 s`, `20 min`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


SuccessFunction = Callable[[Any, Action, Context[Any]], object]


class RunPart(Protocol):
    """A part of each run of a controller. Its methods are called in the run's thread, and must not raise."""

    def begin(self, run: Run, scope: RunScope) -> bool:
        """The run begins in this scope, which the part may change. If `begin` returns False, the run is cancelled, and
        `end` is not called."""

    def end(self, run: Run, outcome: Outcome) -> None:
        """The run has ended; its scope still applies. After a defect of the library, `outcome` is an error."""


class EndedReads(Protocol):
    """Keeps the reads of runs as dependencies of the runs' objects."""

    @property
    def readers(self) -> Container[Key]:
        """The objects whose runs have read something."""

    def end(self, run: Run, outcome: Outcome) -> None:
        """Called when a run has ended, if that run or an earlier run of the object has read anything. Raises
        nothing."""


class Invoker:
    """Runs one controller's reconciler. Safe to use from any thread."""

    def __init__(self, reconcile: ReconcileFunction[Any], error_policy: ErrorPolicy[Any] | None, store: Store[Any],
                 environment: Environment[Any], on_result: ResultCallback | None = None, *,
                 parts: Sequence[RunPart] = (), on_many: Callable[[], object] = lambda: None,
                 ready: str | None = None, reads: EndedReads | None = None) -> None:
        """Without an `error_policy` a failing key waits for its backoff. `on_result` gets a report of each run that
        called the reconciler, in the thread of the run. `parts` begin and end with each run. `on_many`: see `RunLog`.
        `ready`: the type of the condition that reports how the last run ended. `reads` is notified of the end of a run
        after all parts."""
        self._reconcile = reconcile
        self._on_success = success_function(reconcile)
        self._error_policy = error_policy
        self._store = store
        self._environment = environment
        self._stored = environment.stored
        self._on_result = on_result
        self._log = RunLog(environment.logger, environment.clock, environment.shutdown.aborted, on_many)
        self._policy_guard = Guard(f"the error policy {name_of(error_policy)}, which the default backoff replaces,",
                                   environment.logger, environment.clock)
        self._result_guard = Guard(f"the result callback {name_of(on_result)}", environment.logger, environment.clock)
        self.loops = LoopDetector(environment.logger, environment.clock)
        self._parts = tuple(parts)
        self._reads = reads
        self._readers: Container[Key] = () if reads is None else reads.readers
        self._home = Home()
        self._stop, self._cut = environment.shutdown.aborted, environment.shutdown.cut
        self._fences = environment.client.fences
        self._family = environment.client.shared if self._fences else None
        self._manager = environment.field_manager
        self._ready = None if ready is None else ReadyCondition(ready, environment.client, environment.field_manager)
        self._ready_guard = Guard(f"the condition {ready}, which does not show a failed run,", environment.logger,
                                  environment.clock)
        self.invoke: Execute = self.invoke_reconciler
        """The body of a run."""
        self.gone: Execute = _gone
        """The body of a run when the store has no such object."""

    def __call__(self, run: Run) -> Outcome:
        """Execute a whole run, with its scope and its parts."""
        scope = RunScope(self._stop, self._cut, run, self._family, self._fences, self._manager)
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
        except BaseException as error:  # a bug here, out of memory, or an exception that another thread set
            outcome = Outcome(None, RunResult.ERROR, error)
            raise
        finally:
            try:
                if begun:
                    for part in self._parts[begun - 1::-1]:
                        part.end(run, outcome)
                run.reads_over = True
                if self._reads is not None and (run.reads is not None or run.key in self._readers):
                    self._reads.end(run, outcome)
            finally:
                leave_scope(entered)

    def invoke_reconciler(self, run: Run) -> Outcome:
        """Reconcile the object of `run` as it is now in the store."""
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
            scope.logged = ctx  # so that this thread's log lines name the run
        outcome = self._failed(obj, obj.error, ctx, run) if invalid else self._run(obj, ctx, run)
        return replace(outcome, delays_requeue=True) if self._report(run, ctx, outcome) else outcome

    def _run(self, obj: Any, ctx: Context[Any], run: Run) -> Outcome:
        try:
            action = self._reconcile(obj, ctx)
            self._home.check(self._reconcile)
            if not isinstance(action, Action):
                raise wrong_type(self._reconcile, action, ctx.ref)
            if self._on_success is not None:
                self._on_success(obj, action, ctx)
        except BaseException as error:  # noqa: BLE001 - no exception of user code ends a thread of the library
            self._home.check(self._reconcile, error)
            return self._failed(obj, error, ctx, run)
        try:
            if self._ready is not None:
                self._ready.succeeded(self._given(run), ctx.ref, run, action.reason, action.message)
            return SUCCEEDED if action.requeue_after is None else requeued(run, action.requeue_after)
        except BaseException as error:  # noqa: BLE001 - layers of a client are user code, too
            return self._failed(obj, error, ctx, run, says_so=False)

    def _given(self, run: Run) -> Any:
        """The object of `run` as the run received it, even if the reconciler has changed its copy."""
        assert run.record is not None
        return self._store.reader(run.record)

    def _failed(self, obj: Any, error: BaseException, ctx: Context[Any], run: Run, *, says_so: bool = True) -> Outcome:
        """Handle the exception of a run, and return the outcome. `says_so`: whether the condition `ready` reports
        it."""
        pass_interrupt(error)
        if self._environment.data is None and isinstance(error, AttributeError):
            _note_missing_context(error)
        quiet = conflicted(run, error, self._environment.rng) if is_lost_race(error) else None
        if quiet is not None:
            return quiet
        if self._ready is not None and says_so and not isinstance(obj, InvalidObject):
            self._ready_guard.call(None, str(ctx.ref), self._ready.failed, self._given(run), ctx.ref, run, error)
        own, terminal = run.own_changes(), _is_terminal(error, ctx)
        delay = None if terminal else self._delay_after(obj, error, ctx)
        outcome = Outcome(delay, RunResult.TERMINAL_ERROR if terminal else RunResult.ERROR, error, own)
        if delay is None:  # no retry is due, and events of the run's own writes must not cause one
            versions = {version for uid, version in own if uid == obj.uid}
            outcome = replace(outcome, waits_beyond=frozenset((obj.resource_version, *versions)) - {""})
        return replace(outcome, last_failure=self._log.failed(run, ctx, outcome, error))

    def _delay_after(self, obj: Any, error: BaseException, ctx: Context[Any]) -> float | None:
        default = ctx.retry_delay
        if self._error_policy is None:
            return default
        decided = self._policy_guard.call(default, str(ctx.ref), self._decided, self._error_policy, obj, error, ctx)
        return None if default is None else decided

    @staticmethod
    def _decided(policy: ErrorPolicy[Any], obj: Any, error: BaseException, ctx: Context[Any]) -> float | None:
        action = policy(obj, error, ctx)
        if not isinstance(action, Action):
            raise wrong_type(policy, action, ctx.ref)
        return action.requeue_after

    def _report(self, run: Run, ctx: Context[Any], outcome: Outcome) -> bool:
        """Log the run, and call `on_result`. Returns whether its key needs a requeue delay."""
        timeout, now = self._environment.run_timeout, self._environment.clock.monotonic()
        if timeout is not None and now - run.started > timeout:
            self._log.overdue(ctx, now - run.started, timeout)
        self._log.ended(run, ctx, outcome, now)
        delayed = False
        if outcome is not SUCCEEDED or run.writes is not NO_WRITES or run.triggered_itself or (
                run.key in self.loops.trails):  # a run without any of these is in no loop
            delayed = self.loops.ended(run, outcome, now)
        if self._on_result is not None:
            report = RunReport(ctx.ref, outcome.result, now - run.started, ctx.attempt, ctx.reason, ctx.reconcile_id,
                               outcome.delay, outcome.error)
            self._result_guard.call(None, str(ctx.ref), self._on_result, report)
        return delayed


def _gone(_run: Run) -> Outcome:
    return GONE


def success_function(reconcile: ReconcileFunction[Any]) -> SuccessFunction | None:
    """If `reconcile` is the method of a Reconciler that overrides `on_success`, returns this `on_success`; otherwise
    None."""
    owner = getattr(reconcile, "__self__", None)
    if not isinstance(owner, Reconciler) or type(owner).on_success is Reconciler.on_success:
        return None
    return owner.on_success


def _note_missing_context(error: AttributeError) -> None:
    """Note in the error that no `context=` was given, if user code that mentions `data` has read an attribute of
    None."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if error.obj is None and error.name is not None and trace is not None and \
            "data" in trace.tb_frame.f_code.co_names:
        error.add_note("ctx.data is None, because no context= was given: pass it to start, run, bind or Manager.add")


def _is_terminal(error: BaseException, ctx: Context[Any]) -> bool:
    seen: BaseException | None = error
    for _ in range(20):  # a chain of causes may be circular
        if seen is None:
            break
        if isinstance(seen, TerminalError) or (isinstance(seen, DecodeError) and seen.ref == ctx.ref):
            return True
        seen = seen.__cause__
    return False


class RunObserver:
    """The run part that notifies an observer, in the run's thread."""

    def __init__(self, controller: str, observer: Observer, clock: Clock) -> None:
        self._started = callbacks(observer, "run_started", controller)
        self._ended = callbacks(observer, "run_ended", controller)
        self._clock = clock

    def __bool__(self) -> bool:
        return bool(self._started or self._ended)

    def begin(self, run: Run, scope: RunScope) -> bool:  # noqa: ARG002
        """Like `RunPart.begin`."""
        # `together` is not used: for one observer, it would cost each run one more call and a tuple of arguments.
        for callback, guard in self._started:
            try:
                callback(run.key, run.request.reason, run.waited, run.depth, run.started)
            except BaseException as error:  # noqa: BLE001 - observers are user code
                guard.failed(error)
            else:
                if guard.count:
                    guard.succeeded()
        return True

    def end(self, run: Run, outcome: Outcome) -> None:
        """Like `RunPart.end`."""
        took = self._clock.monotonic() - run.started
        for callback, guard in self._ended:
            try:
                callback(run.key, outcome.result, took, outcome.error)
            except BaseException as error:  # noqa: BLE001 - as above
                guard.failed(error)
            else:
                if guard.count:
                    guard.succeeded()
