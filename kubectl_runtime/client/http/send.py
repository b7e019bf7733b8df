"""One attempt of a call, as far as time goes: its deadline and its stop token end its wait. The wire carries it.

    call     the attempt ends when                                        while
    a read   the call's token is set                                      it waits for anything
    a write  the client is closed                                         nothing of it was sent
    a write  the `cut` of the controller's run is set, which makes it     it waits for anything

The checks of a call (`Call.checks`, its fences) are made right before its first byte is sent.
"""
from __future__ import annotations

from collections.abc import Callable
from functools import partial
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

    def carry(self, call: Call, connect: float, left: float) -> Answer:
        """Send `call` once, unless `connect` seconds have passed before there is a connection for it. Blocks `left`
        seconds at most, for a stream until the head of its answer is there. Raises TransportError."""


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
                    call, max(_LEAST, min(reachability.connect_limit(connect_timeout), left, call.send_by - now)), left)
        except TransportError as error:
            if interrupt.stopped:
                raise _given_up(call, interrupt, sent=error.sent) from None
            raise
        if interrupt.stopped:  # what looks like an answer may be the beginning of one
            if answer.response is not None:
                answer.response.close()
            raise _given_up(call, interrupt, sent=True)
        return answer

    return send


def _interrupt(call: Call) -> Interrupt:
    if call.request.method == "GET":
        return Interrupt(call.stop)
    scope = call_scope()
    return Interrupt(None if scope is None else scope.cut, unsent=call.closing,
                     check=partial(_check, call) if call.checks else None)


def _check(call: Call) -> None:
    for check in call.checks:
        check(call)


def _given_up(call: Call, interrupt: Interrupt, *, sent: bool) -> ConnectionFailed:
    return ConnectionFailed(f"{call.request.operation}: given up, as {interrupt.reason or 'its stop token was set'}",
                            Failure(sent=sent, permanent=True))
