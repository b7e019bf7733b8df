"""Credentials: the value of the Authorization header, and its renewal when the server rejects it.

`header()` returns the current value. The call may block while it reads a file or runs a plugin. Only one thread does so
at a time; the other threads use its result. `refresh(rejected)` is called after a 401: it obtains new credentials once,
and returns True if there are other credentials to try. Both raise AuthError when `deadline`, a point on the monotonic
clock in seconds, has passed.

Every implementation keeps its current value as one immutable snapshot that is replaced as a whole, so that readers take
no lock. Safe to use from any thread. No credential appears in a repr, a log line or an error.

`Renewal` keeps one value that an outside program or service provides, with at most one attempt to renew it at a time:

    value       due for renewal     what `current` does
    none        -                   starts or joins an attempt, and waits for it
    valid       no                  returns the value
    valid       yes                 starts an attempt and waits for it; if an attempt is already running, returns the
                                    value
    expired     yes                 as for none

An attempt runs in its own thread, so that every caller waits only until its own deadline, or until its `scoped_stop`
token is set. If all callers give up at their deadlines, the attempt continues, and later callers use its value. An
attempt is abandoned after `LONGEST_ATTEMPT`, because the program or service that it calls may never return; the next
caller starts another attempt. An attempt is also abandoned when a caller's stop token is set (its watch was stopped or
its client closed) and no other caller waits. After a failed attempt there is no further attempt for `QUIET_PERIOD`: a
valid value stays in use, and without a valid value callers get the same error. A forked child process ignores the
parent's attempt.
"""
from __future__ import annotations

import base64
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from kubectl_runtime.client.config.secrets import Secret, SecretBytes, reading_problem, secret, secret_file
from kubectl_runtime.core.base.errors import AuthError
from kubectl_runtime.core.base.guard import guarded_logger
from kubectl_runtime.core.base.threads import SYSTEM_CLOCK, Clock, ForkSafeLock, Thread
from kubectl_runtime.core.scope import FirstOf, StopToken, scoped_stop

log = guarded_logger(__name__)

TOKEN_FILE_PERIOD = 60.0
"""Seconds after which a token file is read again; kubelets renew bound tokens well before they expire."""


@dataclass(frozen=True)
class ClientCertificate:
    """A client certificate (the whole chain) and its private key, both PEM."""

    certificate: bytes
    key: bytes = field(repr=False)  # a `SecretBytes` after `__post_init__`
    source: str = field(default="the client certificate", compare=False)
    """The certificate's name in messages."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", SecretBytes(self.key))


class Credentials(Protocol):
    """The credentials that identify the client to the server. Implementations are safe to use from any thread."""

    def header(self, deadline: float | None = None) -> str | None:
        """The value of the Authorization header; None when there is no such header. Blocks until `deadline` at most.
        Raises AuthError when the value cannot be obtained."""

    def refresh(self, rejected: str | None, deadline: float | None = None) -> bool:
        """Obtain new credentials, because the server answered 401 to `rejected`. Returns whether the request should be
        sent again."""

    def certificate(self) -> ClientCertificate | None:
        """The client certificate that belongs to the value of the last `header()` call; None without one."""


class FixedCredentials:
    """A token, or a user name and password, that never changes."""

    def __init__(self, header: str, kind: str) -> None:
        self._kind = kind
        self._header = checked_header(Secret(header), f"the {kind}")

    @classmethod
    def token(cls, token: str) -> FixedCredentials:
        """Credentials with a bearer token; surrounding white space is removed. Raises AuthError for an empty token, and
        for a token that no header can carry."""
        if not token.strip():
            raise AuthError("the token is empty")
        return cls(bearer(token), "token")

    @classmethod
    def basic(cls, username: str, password: str) -> FixedCredentials:
        """HTTP basic authentication. Raises AuthError for a user name with a colon (the separator between user name and
        password), and for text that cannot be encoded."""
        if ":" in username:
            raise AuthError("the user name must not contain a colon, where the password would begin")
        try:
            pair = SecretBytes(f"{username}:{password}".encode())
        except UnicodeEncodeError:
            pair = None
        # Raised outside the except block, so that the AuthError does not hold the UnicodeEncodeError with the password.
        if pair is None:
            raise AuthError("the user name or password cannot be encoded as UTF-8")
        return cls(Secret("Basic " + base64.b64encode(pair).decode()), "user name and password")

    def header(self, deadline: float | None = None) -> str | None:  # noqa: ARG002 - it never blocks
        """The fixed value. Never blocks."""
        return self._header

    def refresh(self, rejected: str | None, deadline: float | None = None) -> bool:  # noqa: ARG002 - nothing newer
        """False: fixed credentials cannot be renewed."""
        return False

    def certificate(self) -> ClientCertificate | None:
        """None: these credentials have only a header."""
        return None

    def __repr__(self) -> str:
        return f"<{self._kind}>"


class _Token(msgspec.Struct, frozen=True):
    header: Secret
    read_at: float

    def __repr__(self) -> str:
        return f"<token read at {self.read_at}>"


class TokenFile:
    """A bearer token in a file that another program renews, as in a Pod.

    The file is read on first use, again when `TOKEN_FILE_PERIOD` has passed, and at once after a 401. While the file
    cannot be read, the last token stays in use and a warning is logged once.
    """

    def __init__(self, path: str | os.PathLike[str], *, fallback: str | None = None,
                 clock: Clock = SYSTEM_CLOCK) -> None:
        """`fallback`: the token to use until the file has been read for the first time."""
        self._path = Path(path)
        self._fallback = secret(fallback)
        self._clock = clock
        self._lock = ForkSafeLock()
        self._snapshot = None if fallback is None else _Token(bearer(fallback), float("-inf"))
        self._problem: str | None = None
        self._warned: str | None = None

    def header(self, deadline: float | None = None) -> str | None:
        """`Bearer` and the token in the file, which is read again when `TOKEN_FILE_PERIOD` has passed. Raises AuthError
        if the file could never be read and there is no fallback token."""
        now, snapshot = self._clock.monotonic(), self._snapshot
        if snapshot is not None and now - snapshot.read_at < TOKEN_FILE_PERIOD:
            return snapshot.header
        # If there is a token, one thread reads the file, and the others return the token. Without a token all threads
        # wait for the lock.
        if snapshot is not None:
            if not self._lock.acquire(blocking=False):
                return snapshot.header
        elif not self._lock.acquire(timeout=-1 if deadline is None else max(deadline - now, 0.0)):
            raise AuthError(f"the token file {self._path} could not be read within the call's deadline")
        try:
            header = self._read().header
        finally:
            self._lock.release()
        self._warn()
        return header

    def refresh(self, rejected: str | None, deadline: float | None = None) -> bool:  # noqa: ARG002 - a file is quick
        """Read the file again; returns whether its token differs from the `rejected` one."""
        with self._lock:
            header = self._read().header
        self._warn()
        return header != rejected

    def certificate(self) -> ClientCertificate | None:
        """None: these credentials have only a header."""
        return None

    def _read(self) -> _Token:
        """A new snapshot from the file, or the old snapshot with a new date. The caller holds the lock."""
        now = self._clock.monotonic()
        try:
            token = Secret(secret_file(self._path).decode().strip())
            if not token:
                raise ValueError("it is empty")
            self._snapshot = _Token(checked_header(bearer(token), f"the token file {self._path}"), now)
            self._problem = self._warned = None
            return self._snapshot
        except (OSError, ValueError, AuthError) as error:
            problem = str(error) if isinstance(error, AuthError) else reading_problem(error)
        if self._snapshot is None:
            raise AuthError(f"cannot read the token file {self._path}: {problem}")
        self._problem = problem
        self._snapshot = _Token(self._snapshot.header, now)
        return self._snapshot

    def _warn(self) -> None:
        """Log each problem once, and not under the lock, since log handlers are the user's code."""
        problem = self._problem
        if problem is not None and problem != self._warned:
            self._warned = problem
            log.warning("cannot read the token file %s (%s): the last token stays in use", self._path, problem)

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickle has only the arguments; another process reads the file itself."""
        return partial(type(self), self._path, fallback=self._fallback, clock=self._clock), ()

    def __repr__(self) -> str:
        return f"<token file {self._path}>"


def bearer(token: str) -> Secret:
    """The header value for a token; surrounding white space is removed."""
    return Secret(f"Bearer {token.strip()}")


def checked_header(value: Secret, source: str) -> Secret:
    """Check that a header can carry `value`, and return it. Raises AuthError, without quoting `value`, if `value` has
    line breaks or is not ASCII.
    """
    if not value.isascii() or not value.isprintable():
        raise AuthError(f"{source} cannot be sent in a header: it has line breaks or other characters "
                        "that are not printable ASCII")
    return value


QUIET_PERIOD = 10.0
"""The minimum number of seconds between two attempts when the first attempt did not help."""
PATIENCE = 60.0
"""Seconds for which a caller without a deadline waits."""
LONGEST_ATTEMPT = 120.0
"""The maximum number of seconds for an attempt: twice as long as an exec plugin may run."""

Value = TypeVar("Value")


class _Attempt(Generic[Value]):
    def __init__(self, begun: float) -> None:
        self.process = os.getpid()
        self.begun = begun
        self.ended = StopToken()
        self.abandoned = StopToken()
        self.waiting = 0
        self.forget: list[Callable[[], None]] = []
        self.value: Value | None = None
        self.problem = ""

    @property
    def is_running(self) -> bool:
        """Whether this process can still wait for the value."""
        return self.process == os.getpid() and not self.ended.is_set() and not self.abandoned.is_set()


class Renewal(Generic[Value]):
    """A value that expires and is renewed by one thread while the others wait for it. Safe to use from any thread."""

    def __init__(self, name: str, obtain: Callable[[StopToken], Value], *, is_due: Callable[[Value], bool],
                 is_valid: Callable[[Value], bool], clock: Clock = SYSTEM_CLOCK) -> None:
        """`name`: the provider of the value, for messages. `obtain` returns the value, or stops when its token is set.
        `obtain` may block and raise AuthError. Of any other exception only the type is reported, since the text may
        quote a credential.
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
        """The last value, which may have expired; always replaced as a whole."""

    def current(self, deadline: float | None = None) -> Value:
        """Return a valid value. Blocks until `deadline` on the clock at most (None: for `PATIENCE`). Raises AuthError
        if there is no valid value by then."""
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
        """Renew a value that the server rejects; returns whether there is another value, from this or an earlier
        attempt.

        Blocks and raises like `current`. An attempt is made at most once in `QUIET_PERIOD`.
        """
        value = self.value
        if value is None or not is_rejected(value):
            return True  # another thread has renewed it already
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
        """Return an attempt, and whether it is new. This is the running attempt, else the last attempt if its value has
        replaced `seen`, else a new attempt. The caller counts as waiting until it calls `_leave`."""
        now, late = self._clock.monotonic(), None
        with self._lock:
            attempt = self._attempt
            if attempt is not None and attempt.is_running and now - attempt.begun >= LONGEST_ATTEMPT:
                late, attempt = attempt, None
            if attempt is not None and (attempt.is_running or (self.value is not seen and attempt.value is not None)):
                attempt.waiting += 1
                return attempt, False
            self._attempt = attempt = _Attempt(now)
            attempt.waiting = 1
        if late is not None:
            late.abandoned.set(f"it took more than {LONGEST_ATTEMPT:g} s")
        try:
            Thread(target=self._run, args=(attempt,), daemon=True, name=f"credentials from {self._name}").start()
        except RuntimeError as error:  # no more threads, or the interpreter ends
            self._end(attempt, problem=f"{self._name}: {error}")
        return attempt, True

    def _run(self, attempt: _Attempt[Value]) -> None:
        try:
            self._end(attempt, value=self._obtain(attempt.abandoned))
        except AuthError as error:
            self._end(attempt, problem=str(error))  # only the text, since the error's frames hold the credentials
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
        """Wait for the attempt's value. Afterwards the caller no longer counts as waiting."""
        left = PATIENCE if deadline is None else deadline - self._clock.monotonic()
        stop = scoped_stop()
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
            raise AuthError(f"gave up waiting for {self._name}: {stop.reason or 'the stop token was set'}")
        raise AuthError(f"{self._name} gave no credentials within the call's deadline")

    def _abandon_after(self, attempt: _Attempt[Value], stop: StopToken) -> None:
        """Let `stop` end the attempt once no caller waits for it, even after the calling thread has left."""
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
        if not attempt.is_running:  # the attempt has ended, or it belongs to the parent of this forked process
            return
        with self._lock:  # callers join an attempt under this lock
            if attempt.waiting == 0:
                attempt.abandoned.set("no caller waits for the credentials any more")
