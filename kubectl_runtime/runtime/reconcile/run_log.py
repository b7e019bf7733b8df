"""`RunLog`: what a controller logs of its runs, so that an outage fits into a few lines.

    a run ends                          level    logged
    well, as the one before             DEBUG    a line per run: object, reason, duration, result
    well, after failures                INFO     the number of attempts and the time
    the first failure, another error    ERROR    the error with its traceback, from user code on; without it for a
                                                 KubeError; a RequestError with the line of user code that made it
    the same error as before            ERROR    one line at each doubling of the attempts
    a conflict that is retried quietly  DEBUG    a line per run

If many keys of a controller fail alike (same class of error, same code), the first ten in a minute are logged by name,
then one line counts them, at each doubling; recoveries likewise. Fields that belong to another manager and runs that
the shutdown ends are WARNINGs; a namespace that is being deleted is INFO.

`OutageLog` logs when the retries of a controller are held back, and when its last failing object works again. It is in
trouble from the moment that more than `MANY` objects fail; `RunLog` has logged that already. An outage within `WITHIN`
seconds after the last one is not logged, so that a flapping dependency costs two lines a minute. The dispatcher calls
it.

`user_trace` finds the lines of a traceback that belong to the user's code.

Safe to use from any thread; no lock is held while anything is logged.
"""
from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from kubectl_runtime.core.base.clock import Clock
from kubectl_runtime.core.base.errors import FIELD_CONFLICT, ApiError, KubeError, RequestError
from kubectl_runtime.core.base.guard import GuardedLogger, described
from kubectl_runtime.core.base.observer import RunResult
from kubectl_runtime.core.base.plain import Key
from kubectl_runtime.core.base.stop import StopToken
from kubectl_runtime.runtime.events.recorder import TERMINATING
from kubectl_runtime.runtime.logs import run_fields, said
from kubectl_runtime.runtime.queue.runs import Outcome, Run
from kubectl_runtime.runtime.reconcile.reconciler import Context

_LIBRARY = __name__.partition(".")[0]


def user_trace(error: BaseException) -> TracebackType | None:
    """The traceback from the first line of user code on; the whole traceback if there is none."""
    trace = error.__traceback__
    while trace is not None and _is_ours(trace):
        trace = trace.tb_next
    return trace or error.__traceback__


def user_place(error: BaseException) -> str:
    """The last line of user code, as `greeter.py:12, in reconcile`; empty if there is none."""
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
"""What `logging` takes as `exc_info`."""

SINGLY, WITHIN = 10, 60.0
"""This many keys that fail alike are logged by name within this many seconds."""

MOST_KINDS = 20
"""Kinds of failures that are counted separately within `WITHIN`; further kinds are counted together."""


Alike = tuple[str, int]
"""What groups failures: the class of the error and its code."""

OTHER_KINDS: Alike = ("errors of many kinds", 0)


@dataclass(frozen=True, slots=True)
class Told:
    """What the log keeps of a key that failed the last time it ran."""

    text: str
    alike: Alike
    attempts: int
    since: float
    run_id: str = ""
    """The last failed run, as log lines name it."""
    succeeded: float | None = None
    """When it last succeeded; None when that is unknown."""


KEPT = 4096
"""Keys of a controller whose last success is remembered."""


class Crowd:
    """Aggregates failures of one kind within `WITHIN` and decides which are logged. Pure."""

    def __init__(self) -> None:
        self._since = float("-inf")
        self.count = 0

    def add(self, now: float) -> bool:
        """Count one more. Whether to log it: by name up to `SINGLY`, then as a number at each doubling."""
        if now - self._since >= WITHIN:
            self._since, self.count = now, 0
        self.count += 1
        times, rest = divmod(self.count, SINGLY)
        return self.count <= SINGLY or (not rest and times & (times - 1) == 0)

    def may_repeat(self, now: float) -> bool:
        """Whether a failure that was counted already may be logged again; if so, it counts as well."""
        if now - self._since < WITHIN and self.count >= SINGLY:
            return False
        return self.add(now)

    @property
    def together(self) -> bool:
        """Whether the last one is logged as a number."""
        return self.count > SINGLY

    def age(self, now: float) -> float:
        """Seconds since the first failure of the present count."""
        return now - self._since


class RunLog:
    """The log lines of one controller's runs. Safe to use from any thread."""

    def __init__(self, logger: GuardedLogger, clock: Clock, aborted: StopToken,
                 on_crowd: Callable[[], object] = lambda: None) -> None:
        """`aborted`: the shutdown's token, which ends runs. `on_crowd` is called when many keys fail alike; it must not
        block."""
        self._logger = logger
        self._enabled_for = logger.logger.isEnabledFor  # the logger's own, since the adapter only forwards the call
        self._clock = clock
        self._aborted = aborted
        self._on_crowd = on_crowd
        self._lock = threading.Lock()
        self._failures: dict[Alike, Crowd] = {}
        self._recoveries: dict[Alike, Crowd] = {}
        self._succeeded: dict[Key, float] = {}
        """When keys last succeeded, for the `KEPT` latest, oldest first."""

    def failed(self, run: Run, ctx: Context[Any], outcome: Outcome, error: BaseException) -> Told:
        """Log a failed run; returns what the log keeps of it."""
        now = self._clock.monotonic()
        before = run.told if isinstance(run.told, Told) else None
        text = described(error)
        alike = (type(error).__name__, error.code if isinstance(error, ApiError) else 0)
        attempts = before.attempts + 1 if before is not None else 1
        succeeded = self._succeeded.pop(run.key, None) if before is None else before.succeeded
        told = Told(text, alike, attempts, before.since if before is not None else now, ctx.reconcile_id, succeeded)
        if ctx.stop.is_set():
            why = "by the shutdown" if self._aborted.is_set() else f"by its stop token ({ctx.stop.reason})"
            self._say(logging.WARNING, ctx, "%s: ended %s: %s", said(ctx.ref), why, text)
        elif before is None or before.text != text:
            self._fails_anew(told, ctx, outcome, error, now)
        elif attempts & (attempts - 1) == 0:
            self._still_fails(told, ctx, outcome, error, now)
        return told

    def ended(self, run: Run, ctx: Context[Any], outcome: Outcome, now: float) -> None:
        """A run ended, with or without an error."""
        told = run.told
        if outcome.result in (RunResult.SUCCESS, RunResult.REQUEUE_AFTER):
            if isinstance(told, Told):
                self._recovered(told, ctx, now)
            self._succeeded.pop(run.key, None)
            self._succeeded[run.key] = now
            if len(self._succeeded) > KEPT:
                for key in list(self._succeeded)[:KEPT // 4]:
                    self._succeeded.pop(key, None)
        if self._enabled_for(logging.DEBUG):
            self._say(logging.DEBUG, ctx, "%s: ran %s (%s): %s", said(ctx.ref), readable(now - run.started),
                      ctx.reason or "no reason given", _result(outcome))

    def overdue(self, ctx: Context[Any], took: float, timeout: float) -> None:
        """A run has ended that took longer than its `run_timeout`."""
        self._say(logging.WARNING, ctx, "%s: took %s, longer than the %s that run_timeout gives a run: end it when "
                  "ctx.stop is set", said(ctx.ref), readable(took), readable(timeout))

    def _fails_anew(self, told: Told, ctx: Context[Any], outcome: Outcome, error: BaseException, now: float) -> None:
        with self._lock:
            alike, crowd = _crowd(self._failures, told.alike, now)
            tell, together, count, age = crowd.add(now), crowd.together, crowd.count, crowd.age(now)
        level, what = _kind(error, outcome)
        if not tell:
            return
        if together:
            self._say(level, ctx, "%d objects have failed (%s) within %s, the last one is %s: %s", count,
                      _alike(alike), readable(age), said(ctx.ref), told.text)
            self._on_crowd()
            return
        place = user_place(error) if isinstance(error, RequestError) else ""
        trace = None if isinstance(error, KubeError) else (type(error), error, user_trace(error))
        self._say(level, ctx, "%s: %s (attempt %d, %s): %s%s%s", said(ctx.ref), what, told.attempts, _again(outcome),
                  told.text, f" ({place})" if place else "",
                  "; more failures of this kind are only counted for a while" if count == SINGLY else "", trace=trace)

    def _still_fails(self, told: Told, ctx: Context[Any], outcome: Outcome, error: BaseException, now: float) -> None:
        with self._lock:
            tell = _crowd(self._failures, told.alike, now)[1].may_repeat(now)
        if tell:
            level, _ = _kind(error, outcome)
            self._say(level, ctx, "%s: still fails after %d attempts in %s (%s): %s", said(ctx.ref), told.attempts,
                      readable(now - told.since), _again(outcome), told.text)

    def _recovered(self, told: Told, ctx: Context[Any], now: float) -> None:
        with self._lock:
            alike, crowd = _crowd(self._recoveries, told.alike, now)
            tell, together, count, age = crowd.add(now), crowd.together, crowd.count, crowd.age(now)
        if tell and together:
            self._say(logging.INFO, ctx, "%d objects work again after failures (%s) within %s, the last one %s", count,
                      _alike(alike), readable(age), said(ctx.ref))
        elif tell:
            self._say(logging.INFO, ctx, "%s: works again after %d failed attempt%s in %s", said(ctx.ref),
                      told.attempts, "" if told.attempts == 1 else "s", readable(now - told.since))

    def _say(self, level: int, ctx: Context[Any], message: str, *args: object,
             trace: ExcInfo | None = None) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, message, *args, exc_info=trace, extra=run_fields(ctx))


def _crowd(crowds: dict[Alike, Crowd], alike: Alike, now: float) -> tuple[Alike, Crowd]:
    """The kind of a failure and its count; further kinds than `MOST_KINDS` are counted as one kind."""
    found = crowds.get(alike)
    if found is None and len(crowds) >= MOST_KINDS:
        for kind in [kind for kind, crowd in crowds.items() if crowd.age(now) >= WITHIN]:
            del crowds[kind]
        if len(crowds) >= MOST_KINDS:
            alike = OTHER_KINDS
            found = crowds.get(alike)
    if found is None:
        found = crowds[alike] = Crowd()
    return alike, found


def _kind(error: BaseException, outcome: Outcome) -> tuple[int, str]:
    """The level of a failure, and its text."""
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
    """`12 ms`, `1.5 s`, `20 min`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


MANY = SINGLY
"""More failing objects than this are an outage; `RunLog` names up to this many one by one."""

LOOK_EVERY = 1.0
"""Seconds."""


class OutageLog:
    """Logs when a controller as a whole is in trouble, and when it works again. For one thread at a time."""

    def __init__(self, logger: GuardedLogger, clock: Clock, failing: Callable[[], tuple[int, int]],
                 rate: float | None) -> None:
        """`failing()` returns how many objects failed the last time they ran, and how many of their retries the rate
        limit holds back. `rate`: the retries a second that it allows; None without a limit."""
        self._logger = logger
        self._clock = clock
        self._failing = failing
        self._rate = rate
        self._since: float | None = None
        self._most = 0
        self._limited = False
        self._quiet_until = float("-inf")

    def check(self) -> float | None:
        """Log what has changed. Returns the seconds until the next check; None while all is well."""
        failing, held_back = self._failing()
        now = self._clock.monotonic()
        if self._since is None:
            if failing <= MANY:
                return None
            self._since, self._most, self._limited = now, 0, False
        self._most = max(self._most, failing)
        quiet = now < self._quiet_until
        if not failing:
            if not quiet:
                self._quiet_until = now + WITHIN
                self._say("no object fails any more; the outage lasted %s, with up to %d failing objects at once",
                          readable(now - self._since), self._most)
            self._since = None
            return None
        if held_back and not self._limited and not quiet:
            self._limited = True
            self._say("retries are held back: %d objects fail, and %d of them are due; %g retries a second begin, "
                      "more when they succeed", failing, held_back, self._rate)
        return LOOK_EVERY

    def _say(self, message: str, *args: object) -> None:
        if self._logger.isEnabledFor(logging.INFO):
            self._logger.info(message, *args)
