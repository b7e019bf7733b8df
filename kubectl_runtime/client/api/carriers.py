"""`Carriers`: what carries a client's calls at this moment, in this process: the seam between a client and its wire.

    state     what happens                what is there after it
    made      -                           rules and TLS, checked; neither requests nor urllib3 imported by the library
    made      the first call              both imported, adapters made; whoever calls meanwhile waits for that
    in use    another client certificate  new adapters; connections of the old ones go on until their answer is read
    any       a fork                      in the child as `made`, with nothing of the parent's
    any       closed                      calls raise TransportError

Importing requests and urllib3 is most of what a process with a client would cost to start (0.15 of 0.25 s of CPU), and
a program that prints its help, or refuses its arguments, calls nobody. So all that needs them stands in client/wire,
which is imported here alone.
"""
from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from kubectl_runtime.client.config.auth import ClientCertificate
from kubectl_runtime.client.config.config import Config
from kubectl_runtime.client.http.failures import ConnectionFailed
from kubectl_runtime.client.http.retry import Failure
from kubectl_runtime.client.http.tls import TlsSource
from kubectl_runtime.client.http.wire_rules import WireRules
from kubectl_runtime.core.base.clock import Clock
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.stop import StopToken
from kubectl_runtime.core.interpreter.forks import ForkSafeLock, unforked

if TYPE_CHECKING:
    import requests
    from requests.models import Response

    from kubectl_runtime.client.wire.carrier import RequestsCarrier
    from kubectl_runtime.client.wire.streams import ByteStream


SPARE_CONNECTIONS = 4
"""Pooled connections beyond one for each worker: lists of watches, leases, health checks."""


def connections_for(workers: int) -> int:
    """How many connections a client keeps for so many threads that call at once. Raises RequestError for what is no
    number of threads."""
    given: Any = workers  # callers may not check their types
    if not isinstance(given, int) or isinstance(given, bool) or given < 1:
        raise RequestError(f"workers must be a whole number of at least 1, not {workers!r}")
    return workers + SPARE_CONNECTIONS


class _Present(msgspec.Struct, frozen=True):
    """Replaced whole."""

    process: int
    certificate: ClientCertificate | None
    tls: TlsSource | None
    carrier: RequestsCarrier | None


class Carriers:
    """The connections of one client and of those derived from it. Safe to use from any thread."""

    def __init__(self, config: Config, *, session: requests.Session | None, through_session: bool, connections: int,
                 clock: Clock) -> None:
        """As `Client` takes them. Opens no connection. Raises ConfigError and AuthError for what cannot work."""
        self._clock = clock
        self._change = ForkSafeLock()
        self.closing = StopToken(clock=clock)
        """Set when the client is closed; another one in the child of a fork."""
        given = session is not None or through_session
        if given:  # and with it requests, which had to be imported for that
            with unforked():
                from kubectl_runtime.client.wire.session import rules_with

            self.rules = rules_with(session, config, connections=connections, through_session=through_session)
        else:
            self.rules = WireRules.of(config, connections=connections)
        certificate = self.rules.config.certificate()
        tls = self.rules.tls(certificate)
        self._present = _Present(os.getpid(), certificate, tls, self._made(tls) if given else None)

    def current(self, operation: str) -> RequestsCarrier:
        """What carries a call now. Blocks while requests is imported, for the first one."""
        present = self._present
        if (present.carrier is None or present.process != os.getpid()) and not self.closing.is_set():
            present = self._first()
        if self.closing.is_set() or present.carrier is None:
            raise ConnectionFailed(f"{operation}: the client was closed", Failure(sent=False, permanent=True))
        return present.carrier

    def _first(self) -> _Present:
        with self._change:
            present = self._present
            if present.carrier is None or present.process != os.getpid():
                self._replace(present.certificate)
            return self._present

    def _replace(self, certificate: ClientCertificate | None) -> None:
        """Have `certificate` used, in this process. The caller holds the lock."""
        before, tls = self._present, None
        if before.process != os.getpid():
            # The child of a fork: a connection used by both processes would mix their bytes. The parent's are not
            # closed here, and its TLS contexts not used, since locks within may have been held by a thread that does
            # not exist in this process; nor do its streams end with this process's client.
            self.closing = StopToken(clock=self._clock)
        elif before.carrier is None and before.certificate == certificate:
            tls = before.tls
        tls = tls or self.rules.tls(certificate)
        carrier = self._made(tls)
        self._present = _Present(os.getpid(), certificate, tls, carrier)
        if before.carrier is not None and before.process == os.getpid():
            before.carrier.close()
        if self.closing.is_set():  # meanwhile, when this one was not there to be closed
            carrier.close()

    def _made(self, tls: TlsSource | None) -> RequestsCarrier:
        with unforked():
            from kubectl_runtime.client.wire.carrier import RequestsCarrier

        return RequestsCarrier(self.rules, tls, self._clock)

    def opened(self, response: Response, operation: str, stops: Iterable[StopToken]) -> ByteStream:
        """The body of an open answer, which may also be a layer's own."""
        with unforked():
            from kubectl_runtime.client.wire.streams import ByteStream

        return ByteStream(response, operation, stops=stops)

    def use_certificate(self, certificate: ClientCertificate) -> None:
        """Identify new connections by `certificate`; those in use go on until their answer has been read."""
        if self._present.certificate == certificate:
            return
        with self._change:
            if self._present.certificate != certificate:
                self._replace(certificate)

    def grow(self, connections: int) -> None:
        """Keep at least `connections` idle connections for calls."""
        with self._change:
            self.rules.connections = max(self.rules.connections, connections)
            carrier = self._present.carrier
            if carrier is not None:
                carrier.grow(self.rules.connections)

    def close(self) -> None:
        """Close all connections and set `closing`. Does not block. Safe to repeat. In the child of a fork only what the
        child opened."""
        present = self._present
        ours = present.process == os.getpid()
        if not ours:  # streams of the parent would end there too, as both processes hold their sockets
            self.closing = StopToken(clock=self._clock)
        self.closing.set("the client was closed")
        if ours and present.carrier is not None:
            present.carrier.close()
