"""The client's middleware: small functions from `Send` to `Send`. From outside to inside, the stack is

    base URL -> retry -> auth -> extra headers -> rate limit -> the user's layers -> observed -> one attempt
    (send.py) -> the wire (client/wire)

A layer may change the `Call` on its way in, look at the `Answer` or the exception on its way out, and send the call
more than once. Retry is outside auth, so that every attempt carries current credentials. The user's layers see each
attempt, unless they are put elsewhere in the stack (layers.py).

    def timing(send: Send) -> Send:
        def timed(call: Call) -> Answer:
            begin = clock.monotonic()
            try:
                return send(call)
            finally:
                observe(call.request.operation, clock.monotonic() - begin)
        return timed

Headers of the user's requests.Session outrank those of the Config, which outrank those of the library. Header values
are sent as UTF-8, because in latin-1, Python's default, the server would read a different user name. A header that HTTP
cannot carry raises RequestError. The most important case is a line break, which would start another header.
"""
from __future__ import annotations

import platform
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from math import inf
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote

import msgspec

from kubectl_runtime.client.config.auth import ClientCertificate, Credentials, FixedCredentials
from kubectl_runtime.client.config.checks import Impersonation
from kubectl_runtime.client.config.config import Config
from kubectl_runtime.client.config.secrets import as_sent, fault_of, secret, secret_headers
from kubectl_runtime.client.http.retry import ConnectionFailed, Failure, RetryPolicy, deleted_before, failure_of
from kubectl_runtime.core.base.errors import ConfigError, KubeError, RequestError
from kubectl_runtime.core.base.guard import guarded_logger
from kubectl_runtime.core.base.observer import NO_OBSERVER, Observer
from kubectl_runtime.core.base.threads import SYSTEM_CLOCK, Clock, ForkSafeLock
from kubectl_runtime.core.base.version import VERSION
from kubectl_runtime.core.requests.request import Request, Retry
from kubectl_runtime.core.scope import FirstOf, StopToken, calls_obey, scoped_cut

if TYPE_CHECKING:
    from requests.models import Response

log = guarded_logger(__name__)

T = TypeVar("T")

_WARN_AT = 4
"""The retry with this number, about two seconds after the call began, is logged as a warning, so that the
trouble is visible before the call gives up."""

_WARN_EVERY = 60.0
"""The minimum number of seconds between two warnings of a client, even if its server fails and recovers many times in
between."""


class Call(msgspec.Struct):
    """One request on its way to the server. `deadline` is a point on the client's clock, in seconds.

    `streaming`: the answer's body stays open (unless it is an error), and `read_timeout` limits each silence in it.
    `send_by`: a point on the client's clock after which no connection is opened for the call.
    `in_doubt`: the server may have carried out an attempt, though no whole answer came.
    `checks`: called with the call right before the first byte of each attempt; a check refuses the call by raising.
    `closing`: set when the client is closed; ends a write that has sent no byte yet. `stop` includes this token.
    A header with several values is sent as several lines.
    """

    request: Request
    deadline: float
    stop: StopToken
    streaming: bool = False
    read_timeout: float | None = None
    url: str = ""
    headers: dict[str, str | tuple[str, ...]] = msgspec.field(default_factory=dict)
    attempt: int = 0
    send_by: float = inf
    in_doubt: bool = False
    checks: tuple[Callable[[Call], None], ...] = ()
    closing: StopToken | None = None

    def __repr__(self) -> str:
        return f"<Call {self.request!r}, attempt {self.attempt}>"  # without its headers, which hold credentials


@dataclass(slots=True)
class Answer:
    """An answer with its whole body or, for a stream, with the open `response`."""

    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(default=b"", repr=False)
    response: Response | None = None


Send = Callable[[Call], Answer]
"""Sends one call. Blocks until the answer has arrived; raises TransportError (and AuthError, from the auth layer)."""
Layer = Callable[[Send], Send]


def stacked(layers: Iterable[Layer], exchange: Send) -> Send:
    """The layers around `exchange`, the first outermost. Raises ConfigError for a layer that returns no function."""
    send = exchange
    for layer in reversed(list(layers)):
        send = layer(send)
        if not callable(send):
            raise ConfigError(f"a layer must take a Send and return a Send: {layer!r} returned a {type(send).__name__}")
    return send


def base_url(url: str) -> Layer:
    """Prefixes the path of every call with `url`."""

    def layer(send: Send) -> Send:
        def located(call: Call) -> Answer:
            call.url = url + call.request.target
            return send(call)

        return located

    return layer


class RetryLog:
    """Logs the retries of one client's calls to one host. Safe to use from any thread.

    Retries are logged at DEBUG. A call's retry number `_WARN_AT` and later ones are logged as a WARNING, unless a
    warning is open or was logged recently. The next answer to any call closes the warning with an INFO message, which
    contains the number of retries and the time since the warning.
    """

    def __init__(self, clock: Clock, host: str) -> None:
        self._clock = clock
        self._host = host
        self._lock = ForkSafeLock()
        self._since = -inf
        self._retries = 0
        self.told = False
        """Whether a warning was logged and no call has been answered since."""

    def retried(self, call: Call, failure: object) -> None:
        """Log that `call` is about to be sent again because of `failure`."""
        now = self._clock.monotonic()
        with self._lock:
            warn = call.attempt >= _WARN_AT and not self.told and now - self._since >= _WARN_EVERY
            if warn:
                self._since, self._retries, self.told = now, 0, True
            self._retries += 1
        if warn:
            log.warning("%s (retry %d); other failed calls to %s are retried without further warnings until the "
                        "server answers a call", failure, call.attempt, self._host or "the server")
        else:
            log.debug("%s (retry %d)", failure, call.attempt)

    def answered(self) -> None:
        """Record that the server has answered a call. If a warning is open, log that the server answers again."""
        with self._lock:
            told, self.told, retries = self.told, False, self._retries
        if told:
            log.info("%s answers again, %.0f s after the warning and after %d retries", self._host or "the server",
                     self._clock.monotonic() - self._since, retries)


def retrying(policy: RetryPolicy, clock: Clock, host: str = "", observer: Observer = NO_OBSERVER) -> Layer:
    """Retries as `policy` says, within the call's deadline. A wait ends when the call's stop token is set; the call is
    then given up. `observer` is notified before each wait.
    """
    retries = RetryLog(clock, host)

    def layer(send: Send) -> Send:
        def persistent(call: Call) -> Answer:
            if call.request.retry is Retry.NEVER:
                return send(call)
            while True:
                answer, error = None, None
                try:
                    answer = send(call)
                    if answer.status < HTTPStatus.TOO_MANY_REQUESTS:
                        if retries.told:
                            retries.answered()
                        return _concluded(call, answer) if call.in_doubt else answer
                    failure = failure_of(answer.status, answer.headers, answer.body, clock.now())
                except ConnectionFailed as lost:
                    error, failure = lost, lost.failure
                call.in_doubt = call.in_doubt or failure.is_open
                delay = policy.next(call.attempt, failure, repeatable=call.request.retry is Retry.SAFE)
                again = delay is not None and clock.monotonic() + delay < call.deadline
                if delay is not None and again:
                    request = call.request
                    observer.request_retried(host, request.verb, request.resource_name, failure.code or 0,
                                             call.attempt + 1, delay)
                    again = not call.stop.wait(delay)
                if not again:
                    if error is not None:
                        raise error
                    assert answer is not None
                    return answer
                call.attempt += 1
                retries.retried(call, error or f"{call.request.operation}: HTTP {failure.code}")

        return persistent

    return layer


def _concluded(call: Call, answer: Answer) -> Answer:
    """Interpret the answer to a repeated request whose earlier attempt may have been carried out."""
    status = deleted_before(call.request, answer.status, answer.body)
    return answer if status is None else Answer(HTTPStatus.OK, {"Content-Type": "application/json"}, status)


def authenticating(credentials: Credentials, use_certificate: Callable[[ClientCertificate], None]) -> Layer:
    """Adds the Authorization header. After a 401 the credentials are renewed and the call is sent once more.

    Waiting for credentials ends when the call's stop token is set or the client is closed."""
    may_wait = not isinstance(credentials, FixedCredentials)

    def layer(send: Send) -> Send:
        def sent(call: Call) -> tuple[Answer, str | None]:
            header = secret(obtained(call, credentials.header) if may_wait else credentials.header())
            if header is not None:
                call.headers["Authorization"] = header
            certificate = credentials.certificate()
            if certificate is not None:
                use_certificate(certificate)
            return send(call), header

        def obtained(call: Call, obtain: Callable[[float], T]) -> T:
            # Obtaining credentials may send calls through another client; within the block, `stop` ends these calls.
            stop = _end_of_waiting(call)
            with calls_obey(stop):
                try:
                    return obtain(call.deadline)
                except KubeError:
                    if not stop.is_set():
                        raise
            raise ConnectionFailed(f"{call.request.operation}: given up, because "
                                   f"{stop.reason or 'its stop token was set'}", Failure(sent=False, permanent=True))

        def authenticated(call: Call) -> Answer:
            answer, header = sent(call)
            if answer.status == HTTPStatus.UNAUTHORIZED and obtained(call, partial(credentials.refresh, header)):
                log.debug("%s: HTTP 401; sending it once more with renewed credentials", call.request.operation)
                answer, _ = sent(call)
            return answer

        return authenticated

    return layer


def _end_of_waiting(call: Call) -> StopToken:
    """The token that ends the call before it is sent. For a write within a run, this token is set when the run must end
    or the client is closed, but not while the run drains."""
    cut = scoped_cut()
    if cut is None or call.request.method == "GET":
        return call.stop
    return cut if call.closing is None else FirstOf(cut, call.closing, clock=SYSTEM_CLOCK)


def extra_headers(headers: Mapping[str, str | tuple[str, ...]]) -> Layer:
    """Adds `headers` to every call; headers that the call already has stay unchanged."""

    def layer(send: Send) -> Send:
        def with_headers(call: Call) -> Answer:
            call.headers = {**headers, **call.headers}
            return send(call)

        return with_headers

    return layer


Headers = dict[str, str | tuple[str, ...]]

_IS_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+").fullmatch


def fixed_headers(config: Config, session: Iterable[tuple[str, str]]) -> Headers:
    """The headers of every request of a client; `session`: the headers of the user's requests.Session."""
    headers: Headers = {
        "User-Agent": f"kubectl_runtime/{VERSION} (python {platform.python_version()})",
        "Accept-Encoding": "gzip" if config.compression else "identity",
    }
    if config.impersonate is not None:
        headers.update(_impersonation(config.impersonate))
    for source, given in ((f"{config.origin}: headers", config.headers.items()), ("the session's headers", session)):
        for name, value in given:
            if not isinstance(name, str) or not _IS_NAME(name):
                raise RequestError(f"{source}: {name!r} is not a header name")
            if problem := fault_of(value):
                raise RequestError(f"{source}: {name} {problem}")
            headers["-".join(word.capitalize() for word in name.split("-"))] = as_sent(value)
    return secret_headers(headers)


def _impersonation(who: Impersonation) -> Headers:
    headers: Headers = {"Impersonate-User": as_sent(who.user)}
    if who.groups:
        headers["Impersonate-Group"] = tuple(map(as_sent, who.groups))
    if who.uid:
        headers["Impersonate-Uid"] = as_sent(who.uid)
    for key, values in who.extra.items():
        headers[f"Impersonate-Extra-{_encoded(key)}"] = tuple(map(as_sent, values))
    return headers


def _encoded(key: str) -> str:
    """A key of `extra` as part of a header name; characters that a header name may not have are percent-encoded."""
    return quote(key.lower(), safe="!#$&'*+-.^_`|~")
