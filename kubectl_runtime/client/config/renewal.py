"""`Renewal`: one value that somebody outside brings, renewed by one attempt at a time.

    value       due for renewal     what `current` does
    none        -                   starts an attempt or joins the one under way, and waits for it
    valid       no                  gives it
    valid       yes                 starts an attempt and waits for it; while one is under way gives the value
    expired     yes                 as none

An attempt runs in a thread of its own, so that every caller waits only until its own deadline or the stop token of its
`call_scope`, whatever the attempt calls. An attempt whose callers all left at their deadlines still brings its value.
It is abandoned when no caller waits and the token of one that did is set: a stopped watch, a closed client. After an
attempt that failed there is none for `QUIET_PERIOD`: a valid value stays in use meanwhile, else callers get the same
error. Readers take no lock. In the child of a fork an attempt of the parent is forgotten.
"""
from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

from kubectl_runtime.core.base.clock import SYSTEM_CLOCK, Clock
from kubectl_runtime.core.base.errors import AuthError
from kubectl_runtime.core.base.guarded_log import guarded_logger
from kubectl_runtime.core.base.scope import FirstOf, call_scope
from kubectl_runtime.core.base.stop import StopToken
from kubectl_runtime.core.interpreter.contexts import Thread
from kubectl_runtime.core.interpreter.forks import ForkSafeLock

log = guarded_logger(__name__)

QUIET_PERIOD = 10.0
"""Seconds between two attempts that did not help."""
PATIENCE = 60.0
"""Seconds that a caller without a deadline waits."""

Value = TypeVar("Value")


class _Attempt(Generic[Value]):
    def __init__(self) -> None:
        self.process = os.getpid()
        self.ended = StopToken()
        self.abandoned = StopToken()
        self.waiting = 0
        self.forget: list[Callable[[], None]] = []
        self.value: Value | None = None
        self.problem = ""

    @property
    def is_running(self) -> bool:
        """Whether this process may still wait for its value."""
        return self.process == os.getpid() and not self.ended.is_set() and not self.abandoned.is_set()


class Renewal(Generic[Value]):
    """A value that expires and is renewed by one thread while the others wait for it. Safe to use from any thread."""

    def __init__(self, name: str, obtain: Callable[[StopToken], Value], *, is_due: Callable[[Value], bool],
                 is_valid: Callable[[Value], bool], clock: Clock = SYSTEM_CLOCK) -> None:
        """`name`: who brings the value, for messages. `obtain` brings it, unless its token is set: it may block and
        raise AuthError; whatever else it raises is reported by its type only, as its text may quote a credential.
        """
        self._name = name
        self._obtain = obtain
        self._is_due = is_due
        self._is_valid = is_valid
        self._clock = clock
        self._lock = ForkSafeLock()
        self._attempt: _Attempt[Value] | None = None
        self._failed: tuple[float, str] | None = None
        self._forced_at = float("-inf")
        self.value: Value | None = None
        """The last one that came, valid or not; swapped whole."""

    def current(self, deadline: float | None = None) -> Value:
        """A valid value. Blocks until `deadline` on the clock at most (None: `PATIENCE`); raises AuthError."""
        value = self.value
        if value is not None and not self._is_due(value):
            return value
        try:
            return self._renewed(value, deadline)
        except AuthError:
            if value is not None and self._is_valid(value):
                return value
            raise

    def replaced(self, is_rejected: Callable[[Value], bool], deadline: float | None = None) -> bool:
        """The server does not accept the value: whether there is another one now, from this attempt or an earlier one.

        Blocks and raises as `current`. An attempt is made at most once in `QUIET_PERIOD`.
        """
        value = self.value
        if value is None or not is_rejected(value):
            return True  # another thread has been here
        now = self._clock.monotonic()
        with self._lock:
            if self._attempt is None or not self._attempt.is_running:
                if now - self._forced_at < QUIET_PERIOD:
                    return False
                self._forced_at = now
        return self._outcome(self._joined(value)[0], deadline) != value

    def _renewed(self, value: Value | None, deadline: float | None) -> Value:
        failed = self._failed
        if failed is not None and self._clock.monotonic() - failed[0] < QUIET_PERIOD:
            raise AuthError(failed[1])
        attempt, is_ours = self._joined(value)
        if not is_ours and value is not None and self._is_valid(value):
            self._leave(attempt, None)
            return value
        return self._outcome(attempt, deadline)

    def _joined(self, seen: Value | None) -> tuple[_Attempt[Value], bool]:
        """The attempt under way, the one that has replaced `seen` meanwhile, or a new one: then True. The caller counts
        as waiting until it leaves."""
        with self._lock:
            attempt = self._attempt
            if attempt is not None and (attempt.is_running or (self.value is not seen and attempt.value is not None)):
                attempt.waiting += 1
                return attempt, False
            self._attempt = attempt = _Attempt()
            attempt.waiting = 1
        try:
            Thread(target=self._run, args=(attempt,), daemon=True, name=f"credentials from {self._name}").start()
        except RuntimeError as error:  # no more threads, or the interpreter ends
            self._end(attempt, problem=f"{self._name}: {error}")
        return attempt, True

    def _run(self, attempt: _Attempt[Value]) -> None:
        try:
            self._end(attempt, value=self._obtain(attempt.abandoned))
        except AuthError as error:
            self._end(attempt, problem=str(error))  # the text alone: the frames of an error hold what was obtained
        except BaseException as error:  # noqa: BLE001 - nothing may leave the callers waiting
            self._end(attempt, problem=f"{self._name}: {type(error).__name__}")

    def _end(self, attempt: _Attempt[Value], *, value: Value | None = None, problem: str = "") -> None:
        if not problem:
            self.value, self._failed = value, None
        elif not attempt.abandoned.is_set():
            self._failed = (self._clock.monotonic(), problem)
        attempt.value, attempt.problem = value, problem
        attempt.ended.set()
        with self._lock:
            forget, attempt.forget = attempt.forget, []
        for take_back in forget:
            take_back()
        if problem and not attempt.abandoned.is_set():
            log.warning("%s", problem)

    def _outcome(self, attempt: _Attempt[Value], deadline: float | None) -> Value:
        """What the attempt brings. The caller, which waits for it, leaves."""
        left = PATIENCE if deadline is None else deadline - self._clock.monotonic()
        scope = call_scope()
        stop = None if scope is None else scope.stop
        try:
            woken: StopToken = attempt.ended
            if stop is not None:
                self._abandon_after(attempt, stop)
                woken = FirstOf(attempt.ended, stop, clock=SYSTEM_CLOCK)
            woken.wait(min(max(left, 0.0), threading.TIMEOUT_MAX))
        finally:
            self._leave(attempt, stop)
        if attempt.problem:
            raise AuthError(attempt.problem)
        if attempt.value is not None:
            return attempt.value
        if stop is not None and stop.is_set():
            raise AuthError(f"{self._name} is not waited for, as {stop.reason or 'the stop token was set'}")
        raise AuthError(f"{self._name} gave no credentials within the call's deadline")

    def _abandon_after(self, attempt: _Attempt[Value], stop: StopToken) -> None:
        """Have `stop` end the attempt, once no caller waits for it; also after the caller has left."""
        forget = stop.on_set(partial(self._abandon_unless_awaited, attempt))
        with self._lock:
            kept = attempt.is_running
            if kept:
                attempt.forget.append(forget)
        if not kept:
            forget()

    def _leave(self, attempt: _Attempt[Value], stop: StopToken | None) -> None:
        with self._lock:
            attempt.waiting -= 1
        if stop is not None and stop.is_set():
            self._abandon_unless_awaited(attempt)

    def _abandon_unless_awaited(self, attempt: _Attempt[Value]) -> None:
        if not attempt.is_running:  # in the child of a fork, too: the attempt is the parent's
            return
        with self._lock:  # under which callers join it
            if attempt.waiting == 0:
                attempt.abandoned.set("no caller waits for the credentials any more")
