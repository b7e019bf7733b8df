"""`Renewal`: one value that somebody outside brings, renewed by one attempt at a time.

    value       due for renewal     what `current` does
    none        -                   starts an attempt or joins the one under way, and waits for it
    valid       no                  gives it
    valid       yes                 starts an attempt and waits for it; while one is under way gives the value
    expired     yes                 as none

An attempt runs in a thread of its own, so that every caller waits only until its own deadline, whatever the attempt
calls; one that nobody waits for any more still brings its value. After one that failed there is none for
`QUIET_PERIOD`: a valid value stays in use meanwhile, else callers get the same error. Readers take no lock. In the
child of a fork an attempt of the parent is forgotten.
"""
from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from kubectl_runtime.core.base.clock import SYSTEM_CLOCK, Clock
from kubectl_runtime.core.base.errors import AuthError
from kubectl_runtime.core.base.guarded_log import guarded_logger
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
        self.done = threading.Event()
        self.value: Value | None = None
        self.error: AuthError | None = None


class Renewal(Generic[Value]):
    """A value that expires and is renewed by one thread while the others wait for it. Safe to use from any thread."""

    def __init__(self, name: str, obtain: Callable[[], Value], *, is_due: Callable[[Value], bool],
                 is_valid: Callable[[Value], bool], clock: Clock = SYSTEM_CLOCK) -> None:
        """`name`: who brings the value, for messages. `obtain` brings it: it may block and raise AuthError; whatever
        else it raises is reported by its type only, as its text may quote a credential.
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
            if self._running() is None:
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
            return value
        return self._outcome(attempt, deadline)

    def _running(self) -> _Attempt[Value] | None:
        attempt = self._attempt
        alive = attempt is not None and attempt.process == os.getpid() and not attempt.done.is_set()
        return attempt if alive else None

    def _joined(self, seen: Value | None) -> tuple[_Attempt[Value], bool]:
        """The attempt under way, the one that has replaced `seen` meanwhile, or a new one: then True."""
        with self._lock:
            attempt = self._attempt if self.value is not seen else self._running()
            if attempt is not None:
                return attempt, False
            self._attempt = attempt = _Attempt()
        try:
            Thread(target=self._run, args=(attempt,), daemon=True, name=f"credentials from {self._name}").start()
        except RuntimeError as error:  # no more threads, or the interpreter ends
            self._end(attempt, error=AuthError(f"{self._name}: {error}"))
        return attempt, True

    def _run(self, attempt: _Attempt[Value]) -> None:
        try:
            self._end(attempt, value=self._obtain())
        except AuthError as error:
            self._end(attempt, error=error)
        except BaseException as error:  # noqa: BLE001 - nothing may leave the callers waiting
            self._end(attempt, error=AuthError(f"{self._name}: {type(error).__name__}"))

    def _end(self, attempt: _Attempt[Value], *, value: Value | None = None, error: AuthError | None = None) -> None:
        if error is None:
            self.value, self._failed = value, None
        else:
            self._failed = (self._clock.monotonic(), str(error))
        attempt.value, attempt.error = value, error
        attempt.done.set()
        if error is not None:
            log.warning("%s", error)

    def _outcome(self, attempt: _Attempt[Value], deadline: float | None) -> Value:
        left = PATIENCE if deadline is None else deadline - self._clock.monotonic()
        if not attempt.done.wait(min(max(left, 0.0), threading.TIMEOUT_MAX)):
            raise AuthError(f"{self._name} gave no credentials within the call's deadline")
        if attempt.error is not None:
            raise AuthError(str(attempt.error))
        assert attempt.value is not None
        return attempt.value
