"""One attempt of a call, as far as time goes: its deadline and its stop token end its wait. The wire carries it.

The stop token ends a read that waits, not a write.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Protocol
from urllib.parse import urlsplit

from kubectl_runtime.client.config.config import UNLIMITED, Config
from kubectl_runtime.client.http.failures import ConnectionFailed
from kubectl_runtime.client.http.interrupt import Interrupt
from kubectl_runtime.client.http.middleware import Answer, Call, Send
from kubectl_runtime.client.http.reachability import Reachability
from kubectl_runtime.client.http.retry import Failure
from kubectl_runtime.core.base.clock import Clock, seconds
from kubectl_runtime.core.base.errors import RequestTimeout, TransportError
from kubectl_runtime.core.base.scope import call_scope

_LEAST = 0.001
"""Seconds; a timeout of zero is an error of its own."""


class Carrier(Protocol):
    """What a wire (client/wire) is to this side of it."""

    def carry(self, call: Call, connect: float, read: float | None) -> Answer:
        """Send `call` once. Blocks at most `connect` seconds for a connection, `read` for each silence in the answer,
        and, unless it is a stream, to the call's deadline for its body. Raises TransportError."""


def exchange(carrier: Callable[[str], Carrier], config: Config, clock: Clock, reachability: Reachability) -> Send:
    """Sends a call as it is, once. `carrier` gives the wire to use for an operation at this moment; `reachability` says
    how long connecting may take."""
    server = urlsplit(config.cluster_url).netloc
    connect_timeout = seconds(config.connect_timeout)

    def send(call: Call) -> Answer:
        now = clock.monotonic()
        left = min(call.deadline - now, UNLIMITED)
        if left <= 0:
            raise RequestTimeout(f"{call.request.operation}: the deadline passed before it could be sent to {server}",
                                 sent=False)
        current = carrier(call.request.operation)
        interrupt = _interrupt(call)
        try:
            with interrupt:
                if interrupt.has_ended:
                    raise _given_up(call, interrupt, sent=False)
                answer = current.carry(
                    call, max(_LEAST, min(reachability.connect_limit(connect_timeout), left, call.send_by - now)),
                    call.read_timeout if call.streaming else left)
        except TransportError as error:
            if interrupt.stopped:
                raise _given_up(call, interrupt, sent=error.sent) from None
            raise
        if interrupt.stopped:  # what looks like an answer may be the beginning of one
            if answer.response is not None:
                answer.response.close()
            raise _given_up(call, interrupt)
        return answer

    return send


def _interrupt(call: Call) -> Interrupt:
    if call.request.method == "GET":
        return Interrupt(call.stop)
    scope = call_scope()
    return Interrupt(None if scope is None else scope.cut)


def _given_up(call: Call, interrupt: Interrupt, *, sent: bool = True) -> ConnectionFailed:
    return ConnectionFailed(f"{call.request.operation}: given up, as {interrupt.reason or 'its stop token was set'}",
                            Failure(sent=sent, permanent=True))
