"""Credentials: what goes into the Authorization header, and what to do when the server does not take it any more.

    header()            current value; may block on a file or a plugin, one thread at a time, the others use what it
    brings
    refresh(rejected)   after a 401: obtain new ones, once; True when there is now something else to try

Both give up at `deadline`, a point on the clock (seconds, monotonic), with an AuthError.

Every implementation keeps its current value as one immutable snapshot that is swapped whole, so that readers take no
lock. Safe to use from any thread. No credential appears in a repr, a log line or an error.
"""
from __future__ import annotations

import base64
import os
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec

from kubectl_runtime.client.config.secrets import Secret, SecretBytes, reading_problem, secret, secret_file
from kubectl_runtime.core.base.clock import SYSTEM_CLOCK, Clock
from kubectl_runtime.core.base.errors import AuthError
from kubectl_runtime.core.base.guarded_log import guarded_logger
from kubectl_runtime.core.interpreter.forks import ForkSafeLock

log = guarded_logger(__name__)

TOKEN_FILE_PERIOD = 60.0
"""Seconds after which a token file is read again; kubelets renew bound tokens well before they expire."""


@dataclass(frozen=True)
class ClientCertificate:
    """A client certificate (the whole chain) and its private key, both PEM."""

    certificate: bytes
    key: bytes = field(repr=False)  # a `SecretBytes` once it is made
    source: str = field(default="the client certificate", compare=False)
    """What to call it in messages."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", SecretBytes(self.key))


class Credentials(Protocol):
    """What proves to the server who the client is. Implementations are safe to use from any thread."""

    def header(self, deadline: float | None = None) -> str | None:
        """The value of the Authorization header; None when there is no such header. Blocks until `deadline` at most.
        Raises AuthError when it cannot be obtained."""

    def refresh(self, rejected: str | None, deadline: float | None = None) -> bool:
        """The server answered 401 to `rejected`: obtain new credentials; whether a second attempt makes sense."""

    def certificate(self) -> ClientCertificate | None:
        """The client certificate that comes with the header, as of the last `header()` call; None without one."""


class FixedCredentials:
    """A token, or a user name and password, that never changes."""

    def __init__(self, header: str, kind: str) -> None:
        self._kind = kind
        self._header = checked_header(Secret(header), f"the {kind}")

    @classmethod
    def token(cls, token: str) -> FixedCredentials:
        """Credentials with a bearer token; surrounding white space is not part of it. Raises AuthError for an empty
        token, and for one that no header can carry."""
        if not token.strip():
            raise AuthError("the token is empty")
        return cls(bearer(token), "token")

    @classmethod
    def basic(cls, username: str, password: str) -> FixedCredentials:
        """HTTP basic authentication. Raises AuthError for a user name with a colon, which would be read as another
        name, and for anything but text."""
        if ":" in username:
            raise AuthError("the user name has a colon in it, where the password would begin")
        try:
            pair = SecretBytes(f"{username}:{password}".encode())
        except UnicodeEncodeError:
            pair = None
        if pair is None:  # not within the block: the error there holds the text
            raise AuthError("the user name or password cannot be encoded as UTF-8")
        return cls(Secret("Basic " + base64.b64encode(pair).decode()), "user name and password")

    def header(self, deadline: float | None = None) -> str | None:  # noqa: ARG002 - it never blocks
        """The fixed value. Does not block."""
        return self._header

    def refresh(self, rejected: str | None, deadline: float | None = None) -> bool:  # noqa: ARG002 - nothing newer
        """False: there is nothing else to try."""
        return False

    def certificate(self) -> ClientCertificate | None:
        """None: there is only the header."""
        return None

    def __repr__(self) -> str:
        return f"<{self._kind}>"


class _Token(msgspec.Struct, frozen=True):
    header: Secret
    read_at: float

    def __repr__(self) -> str:
        return f"<token read at {self.read_at}>"


class TokenFile:
    """A bearer token in a file that somebody else renews, as in a Pod.

    Read on first use, again when `TOKEN_FILE_PERIOD` has passed, and at once after a 401. While the file cannot be
    read, the last token stays in use and a warning is logged once.
    """

    def __init__(self, path: str | os.PathLike[str], *, fallback: str | None = None,
                 clock: Clock = SYSTEM_CLOCK) -> None:
        """`fallback`: the token to use while the file has never been readable."""
        self._path = Path(path)
        self._fallback = secret(fallback)
        self._clock = clock
        self._lock = ForkSafeLock()
        self._snapshot = None if fallback is None else _Token(bearer(fallback), float("-inf"))
        self._problem: str | None = None
        self._warned: str | None = None

    def header(self, deadline: float | None = None) -> str | None:
        """`Bearer` and the token in the file, which is read again when it is old. Raises AuthError for a file that
        cannot be read, if it never could."""
        now, snapshot = self._clock.monotonic(), self._snapshot
        if snapshot is not None and now - snapshot.read_at < TOKEN_FILE_PERIOD:
            return snapshot.header
        # With a token in hand only one thread goes for a new one; without, all must wait for the first.
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
        """Read the file again; whether it has another token than the `rejected` one."""
        with self._lock:
            header = self._read().header
        self._warn()
        return header != rejected

    def certificate(self) -> ClientCertificate | None:
        """None: there is only the header."""
        return None

    def _read(self) -> _Token:
        """A new snapshot from the file, or the old one with a new date. The caller holds the lock."""
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
        """Once for each problem, and not under the lock: log handlers are the user's code."""
        problem = self._problem
        if problem is not None and problem != self._warned:
            self._warned = problem
            log.warning("cannot read the token file %s (%s): the last token stays in use", self._path, problem)

    def __reduce__(self) -> tuple[Any, ...]:
        """For pickles: as when it was made; another process reads the file itself."""
        return partial(type(self), self._path, fallback=self._fallback, clock=self._clock), ()

    def __repr__(self) -> str:
        return f"<token file {self._path}>"


def bearer(token: str) -> Secret:
    """The header's value for a token; surrounding white space is not part of it."""
    return Secret(f"Bearer {token.strip()}")


def checked_header(value: Secret, source: str) -> Secret:
    """`value`, which a header can carry. Raises AuthError, without quoting it, when it has line breaks or is not
    ASCII.
    """
    if not value.isascii() or not value.isprintable():
        raise AuthError(f"{source} cannot be sent in a header: it has line breaks or other characters "
                        "that are not printable ASCII")
    return value
