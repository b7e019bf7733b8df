"""`Invoker`: from a run to its outcome, by way of the user's reconciler and error policy.

    the store has no such object            nothing runs, no error; no state of the key is kept
    an Action                               success: wait for a change, or for the time it names
    any other return value                  TypeError, handled as a failure
    TerminalError, DecodeError of this      one failure, without a retry. Only news lead to a run: a version of the
    object; also as a cause                 object that this run neither saw nor wrote, a change of a related object, a
                                            trigger, a resync
    a conflict (409)                        a few times in a row: soon again, quietly; then a failure
    any other exception, also SystemExit    failure: the error policy decides when to try again
    the error policy raises                 both errors are logged; the default backoff applies

An error of `on_success` is a failure of the run. `RunLog` logs the outcome. It never raises, except KeyboardInterrupt
in the main thread (in a simulation), and holds no lock.

Each run has a scope (see `core.scope`) with the fences of the controller's client, which hold for all clients derived
from it; and parts, such as a timeout, a recording or an observer, which begin in order and end in reverse order.

`RunTimeouts`: each run gets a stop token that is set at its `run_timeout`, or with the shutdown; the library's calls in
the run's thread obey it. Code that polls or waits for the token sees the time by itself. The dispatcher calls `check`
for callbacks: a request that waits for its answer, a wait for several tokens. Without `run_timeout` it costs nothing.

`BlockedLog`: a warning when all workers have been at the same runs for `AFTER` seconds while keys are due, and again
when the time has doubled; INFO when runs end again. Within `SILENCE` seconds of a warning only a block that lasts twice
as long is logged. It affects neither readiness nor liveness: one run that ends is enough, and a restart would begin the
same calls again. The dispatcher calls it.
"""
from __future__ import annotations

import threading
from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from typing import Any, Protocol

from kubectl_runtime.core.base.clock import Clock
from kubectl_runtime.core.base.errors import is_lost_race
from kubectl_runtime.core.base.guard import Guard, GuardedLogger, Home, name_of, not_awaitable, pass_interrupt
from kubectl_runtime.core.base.observer import Observer, RunResult, hearers
from kubectl_runtime.core.base.plain import Key
from kubectl_runtime.core.base.stop import StopToken
from kubectl_runtime.core.meta.problems import DecodeError
from kubectl_runtime.core.objects.partial import InvalidObject
from kubectl_runtime.core.scope import RunScope, current_scope, enter_scope, leave_scope
from kubectl_runtime.runtime.lifecycle.lifecycle import Shutdown
from kubectl_runtime.runtime.logs import said
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
)
from kubectl_runtime.runtime.reconcile.run_log import RunLog, readable
from kubectl_runtime.runtime.status import ReadyCondition
from kubectl_runtime.runtime.store.store import Store

SuccessFunction = Callable[[Any, Action, Context[Any]], object]


class RunPart(Protocol):
    """Something that takes part in each run of a controller, in the run's thread. Raises nothing."""

    def begin(self, run: Run, scope: RunScope) -> bool:
        """The run begins in this scope, which the part may change. False cancels the run; then `end` is not called."""

    def end(self, run: Run, outcome: Outcome) -> None:
        """The run has ended; its scope is still in force. After a defect `outcome` is an error."""


class EndedReads(Protocol):
    """Keeps what runs have read as the dependencies of their objects."""

    @property
    def readers(self) -> Container[Key]:
        """The objects whose runs have read something."""

    def end(self, run: Run, outcome: Outcome) -> None:
        """The run has ended, and it has read something, or an earlier run of its object has. Raises nothing."""


class Invoker:
    """Runs one controller's reconciler. Safe to use from any thread."""

    def __init__(self, reconcile: ReconcileFunction[Any], error_policy: ErrorPolicy[Any] | None, store: Store[Any],
                 environment: Environment[Any], on_result: ResultCallback | None = None, *,
                 parts: Sequence[RunPart] = (), on_crowd: Callable[[], object] = lambda: None,
                 ready: str | None = None, reads: EndedReads | None = None) -> None:
        """Without an `error_policy` a failing key waits its backoff. `on_result` gets a report of each run that called
        the reconciler, in the thread of the run. `parts` take part in each run. `on_crowd`: see `RunLog`. `ready`: the
        type of the condition that shows how the last run ended. `reads`: learns of the end of runs after all parts."""
        self._reconcile = reconcile
        self._on_success = success_function(reconcile)
        self._error_policy = error_policy
        self._store = store
        self._environment = environment
        self._stored = environment.stored
        self._on_result = on_result
        self._log = RunLog(environment.logger, environment.clock, environment.shutdown.aborted, on_crowd)
        self._policy_guard = Guard(f"the error policy {name_of(error_policy)}, which the default backoff replaces,",
                                   environment.logger, environment.clock)
        self._result_guard = Guard(f"the result callback {name_of(on_result)}", environment.logger, environment.clock)
        self.loops = LoopDetector(environment.logger, environment.clock)
        self._parts = tuple(parts)
        self._reads = reads
        self._readers: Container[Key] = () if reads is None else reads.readers
        self._home = Home()
        self._stop, self._cut = environment.shutdown.aborted, environment.shutdown.cut
        self._fences = getattr(environment.client, "fences", ())
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
        """A whole run, from its beginning to its end."""
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
        except BaseException as error:  # a defect, no memory, or an exception set by another thread
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
            scope.logged = ctx  # log lines of this thread name the run
        outcome = self._failed(obj, obj.error, ctx, run) if invalid else self._run(obj, ctx, run)
        return replace(outcome, delays_requeue=True) if self._tell(run, ctx, outcome) else outcome

    def _run(self, obj: Any, ctx: Context[Any], run: Run) -> Outcome:
        try:
            action = not_awaitable(self._reconcile(obj, ctx), self._reconcile)
            self._home.check(name_of(self._reconcile))
            if not isinstance(action, Action):
                raise _wrong_type(self._reconcile, action, ctx.ref)
            if self._on_success is not None:
                self._on_success(obj, action, ctx)
        except BaseException as error:  # noqa: BLE001 - no exception of user code ends a thread of the library
            self._home.check(name_of(self._reconcile), error)
            return self._failed(obj, error, ctx, run)
        try:
            if self._ready is not None:
                self._ready.succeeded(self._given(run), ctx.ref, run, action.reason, action.message)
            return SUCCEEDED if action.requeue_after is None else requeued(run, action.requeue_after)
        except BaseException as error:  # noqa: BLE001 - layers of a client are user code, too
            return self._failed(obj, error, ctx, run, says_so=False)

    def _given(self, run: Run) -> Any:
        """The object of `run` as it was given to the run, even if the reconciler has changed its copy."""
        assert run.record is not None
        return self._store.reader(run.record)

    def _failed(self, obj: Any, error: BaseException, ctx: Context[Any], run: Run, *, says_so: bool = True) -> Outcome:
        """`says_so`: whether the condition reports the failure."""
        pass_interrupt(error)
        if self._environment.data is None and isinstance(error, AttributeError):
            _note_missing_context(error)
        quiet = conflicted(run, error, self._environment.rng) if is_lost_race(error) else None
        if quiet is not None:
            return quiet
        if self._ready is not None and says_so and not isinstance(obj, InvalidObject):
            self._ready_guard.call(None, str(ctx.ref), self._ready.failed, self._given(run), ctx.ref, run, error)
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
        """Log the run and report it. Returns whether its key needs a requeue delay."""
        timeout, now = self._environment.run_timeout, self._environment.clock.monotonic()
        if timeout is not None and now - run.started > timeout:
            self._log.overdue(ctx, now - run.started, timeout)
        self._log.ended(run, ctx, outcome, now)
        delayed = False
        if outcome is not SUCCEEDED or run.writes is not NO_WRITES or run.triggered_itself or (
                run.key in self.loops.trails):  # else nothing can be a loop
            delayed = self.loops.ended(run, outcome, now)
        if self._on_result is not None:
            report = RunReport(ctx.ref, outcome.result, now - run.started, ctx.attempt, ctx.reason, ctx.reconcile_id,
                               outcome.delay, outcome.error)
            self._result_guard.call(None, str(ctx.ref), self._on_result, report)
        return delayed


def _gone(_run: Run) -> Outcome:
    return GONE


def success_function(reconcile: ReconcileFunction[Any]) -> SuccessFunction | None:
    """The `on_success` of the reconciler that this method belongs to; None when it does not override it."""
    owner = getattr(reconcile, "__self__", None)
    if not isinstance(owner, Reconciler) or type(owner).on_success is Reconciler.on_success:
        return None
    return owner.on_success


def _note_missing_context(error: AttributeError) -> None:
    """If user code that mentions `data` read an attribute of None, note in the error that no `context=` was given."""
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
    """The run part that notifies an observer, in the run's thread."""

    def __init__(self, controller: str, observer: Observer, clock: Clock) -> None:
        self._started = hearers(observer, "run_started", controller)
        self._ended = hearers(observer, "run_ended", controller)
        self._clock = clock

    def __bool__(self) -> bool:
        return bool(self._started or self._ended)

    def begin(self, run: Run, scope: RunScope) -> bool:  # noqa: ARG002
        """As `RunPart.begin`."""
        # Not by `together`: with one observer that would be one more call for each run, and packing of the values.
        for hear, guard in self._started:
            try:
                hear(run.key, run.request.reason, run.waited, run.depth, run.started)
            except BaseException as error:  # noqa: BLE001 - observers are user code
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


class RunStop(StopToken):
    """Set when the shutdown's token is, or when the time is up; then it stays set."""

    def __init__(self, aborted: StopToken, at: float, clock: Clock) -> None:
        super().__init__(clock=clock)
        self._aborted = aborted
        self.at = at

    @property
    def reason(self) -> str:
        """Why it was set; empty while it is not."""
        return self._aborted.reason or ("its time is up" if self._left() <= 0 else "")

    def is_set(self) -> bool:
        """Whether the run should end."""
        return self._aborted.is_set() or self._left() <= 0

    def set(self, reason: str = "") -> None:
        """Set the shutdown's own token, which `ctx.stop` is without a `run_timeout`."""
        self._aborted.set(reason)

    def expire(self) -> None:
        """Call the callbacks of this token. To be called when its time has come."""
        super().set("its time is up")

    def wait(self, timeout: float | None = None) -> bool:
        """Block until the run should end, or `timeout` seconds have passed. Returns whether the run should end."""
        left = max(0.0, self._left())
        return self._aborted.wait(left if timeout is None else min(timeout, left)) or self.is_set()

    def on_set(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` when the run should end; returns a function that removes it. It may be called twice, at the
        run's timeout and at the shutdown."""
        if self._left() <= 0:
            self.expire()
        forget_time, forget_shutdown = super().on_set(callback), self._aborted.on_set(callback)

        def forget() -> None:
            forget_time()
            forget_shutdown()

        return forget

    def _left(self) -> float:
        return self.at - self._clock.monotonic()


class RunTimeouts:
    """Ends the runs of one controller that take longer than `run_timeout`. Safe to use from any thread."""

    def __init__(self, limit: float | None, shutdown: Shutdown, clock: Clock, wake: Callable[[], None]) -> None:
        """`limit`: seconds that a run has; None: no limit. `wake` makes `check` run soon; it must not block."""
        self._limit = limit
        self._shutdown = shutdown
        self._clock = clock
        self._wake = wake
        self._lock = threading.Lock()
        self._stops: dict[int, RunStop] = {}

    def begin(self, run: Run, scope: RunScope) -> bool:
        """`run` begins in this thread; its calls obey its end. As `RunPart.begin`."""
        if self._limit is None:
            return True
        run.stop = scope.stop = stop = RunStop(self._shutdown.aborted, run.started + self._limit, self._clock)
        with self._lock:
            first = not self._stops
            self._stops[id(run)] = stop
        if first:
            self._wake()
        return True

    def end(self, run: Run, outcome: Outcome) -> None:  # noqa: ARG002
        """`run` has ended; as `RunPart.end`."""
        if self._limit is not None:
            with self._lock:
                self._stops.pop(id(run), None)

    def check(self) -> float | None:
        """Set the tokens whose time has come. Returns the seconds until the next one; None when there is none."""
        if not self._stops:
            return None
        now = self._clock.monotonic()
        with self._lock:
            over = [number for number, stop in self._stops.items() if stop.at <= now]
            expired = [self._stops.pop(number) for number in over]
            wait = min((stop.at - now for stop in self._stops.values()), default=None)
        for stop in expired:
            stop.expire()
        return wait

    def see_through(self) -> None:
        """Go on with `check` for the runs that a drain waits for, until each of them should end."""
        while (wait := self.check()) is not None and not self._shutdown.aborted.wait(wait):
            pass


AFTER = 60.0
"""Seconds."""

SILENCE = 3600.0
"""Seconds after the last warning; then `AFTER` applies again."""

LOOK_EVERY = 1.0
"""Seconds between two looks while all workers are blocked, so that the end is logged soon."""

IDLE_LOOK = 10.0
"""Seconds between two looks at old runs while no key waits for a worker."""

NAMED = 3

Held = tuple[Sequence[Run], int]
"""The runs that occupy all workers, in the order they began, and how many keys are due."""


class BlockedLog:
    """Logs that all workers are blocked by runs that do not end, and when runs end again. For one thread at a time."""

    def __init__(self, logger: GuardedLogger, clock: Clock, held: Callable[[], Held | None],
                 run_timeout: float | None) -> None:
        """`held()` returns None while a worker is free. `run_timeout`: of the controller."""
        self._logger = logger
        self._clock = clock
        self._held = held
        self._remedy = "Give the calls they wait for a timeout, or the controller a time by .run_timeout(seconds)" \
            if run_timeout is None else \
            f"They go on beyond the run timeout of {run_timeout:g} s: give the calls they wait for a timeout, or let " \
            "them look at ctx.stop"
        self._limit = AFTER
        self._told = float("-inf")
        self._since: float | None = None
        """Since when the workers have been at the runs of the last warning; None when no warning is open."""

    def check(self) -> float | None:
        """Log what has changed. Returns the seconds until the next check; None while a worker is free."""
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
