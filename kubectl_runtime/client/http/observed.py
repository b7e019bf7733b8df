"""What a client tells its observer: each attempt, and each change of its credentials.

    observed(observer, ...)            the innermost layer: it sees what goes to the adapter, and what comes back
    ObservedCredentials(credentials)   stands before the credentials that a call asks

Both are left out where nobody observes, so that a call then costs what it did. (Retries are told of by the layer that
makes them, writes by the verbs.)
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kubectl_runtime.client.config.auth import ClientCertificate, Credentials
from kubectl_runtime.client.config.secrets import secret
from kubectl_runtime.client.http.middleware import Answer, Call, Layer, Send
from kubectl_runtime.core.base.clock import Clock
from kubectl_runtime.core.base.observer import Observer
from kubectl_runtime.core.interpreter.forks import ForkSafeLock

T = TypeVar("T")


def observed(observer: Observer, host: str, clock: Clock) -> Layer:
    """Tells `observer` how each attempt ended, also one that raised."""

    def layer(send: Send) -> Send:
        def told(call: Call) -> Answer:
            code, begun = 0, clock.monotonic()
            try:
                answer = send(call)
                code = answer.status
                return answer
            finally:
                request = call.request
                observer.request_attempted(host, request.method, request.verb, request.resource_name, code,
                                           clock.monotonic() - begun)

        return told

    return layer


class ObservedCredentials:
    """Credentials whose renewals are told of: when a call, also one that was answered 401, gets others than the one
    before it, and when it gets none. Safe to use from any thread."""

    def __init__(self, credentials: Credentials, observer: Observer, host: str, clock: Clock) -> None:
        self._credentials = credentials
        self._observer = observer
        self._host = host
        self._clock = clock
        self._lock = ForkSafeLock()
        self._last: tuple[str | None, ClientCertificate | None] | None = None

    def header(self, deadline: float | None = None) -> str | None:
        """As the credentials below it; a change of the value, and a failure, are told to the observer."""
        begun = self._clock.monotonic()
        header: str | None = secret(self._ask(begun, lambda: self._credentials.header(deadline)))
        self._tell_if_new(begun, header)
        return header

    def refresh(self, rejected: str | None, deadline: float | None = None) -> bool:
        """As the credentials below it; success and failure are told to the observer."""
        begun = self._clock.monotonic()
        helped = self._ask(begun, lambda: self._credentials.refresh(rejected, deadline))
        if helped:
            self._tell_if_new(begun, secret(self._ask(begun, lambda: self._credentials.header(deadline))))
        return helped

    def certificate(self) -> ClientCertificate | None:
        """As the credentials below it."""
        return self._credentials.certificate()

    def _ask(self, begun: float, ask: Callable[[], T]) -> T:
        try:
            return ask()
        except Exception as error:
            self._observer.credentials_refreshed(self._host, self._clock.monotonic() - begun, error)
            raise

    def _tell_if_new(self, begun: float, header: str | None) -> None:
        current = header, self._credentials.certificate()
        with self._lock:
            new, self._last = current != self._last, current
        if new:
            self._observer.credentials_refreshed(self._host, self._clock.monotonic() - begun, None)

    def __repr__(self) -> str:
        return repr(self._credentials)
