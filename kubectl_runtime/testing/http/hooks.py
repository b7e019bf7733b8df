"""Where faults get into the rim: `Hooks` is asked at each point where a real network or server could do something else.

The default does nothing. A fault script implements the same protocol; it may block (a stall) only by way of the clock and the
server's stop token, and raise `Drop` to end the connection there and then.
"""

from __future__ import annotations

from typing import Protocol

from kubectl_runtime.testing.apiserver.wire import HttpRequest, HttpResponse


class Drop(Exception):
    """End the connection now; with `reset` by an RST instead of a FIN."""

    def __init__(self, *, reset: bool = False) -> None:
        super().__init__("the connection is dropped on purpose")
        self.reset = reset


class Sink(Protocol):
    """Where the bytes of an answer go."""

    def send(self, data: bytes) -> None:
        """Send all of it; raises OSError when the client has gone."""


class Hooks(Protocol):
    """The points at which a fault script may interfere; all are called in the connection's thread."""

    def accepted(self) -> None:
        """A connection was accepted, nothing was read yet."""

    def before(self, request: HttpRequest) -> HttpResponse | None:
        """A request was read; an answer here is sent instead of the core's."""

    def answered(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        """The core has answered (a write is committed); what is returned is sent."""

    def sink(self, request: HttpRequest, sink: Sink) -> Sink:
        """Where the bytes of this answer go."""

    def chunk(self, request: HttpRequest, chunk: bytes) -> bytes:
        """A chunk of a watch is about to be sent; b"" leaves it out."""


class NoFaults:
    """A network that works."""

    def accepted(self) -> None:
        """Nothing happens."""

    def before(self, request: HttpRequest) -> HttpResponse | None:  # noqa: ARG002
        """The core answers."""
        return None

    def answered(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:  # noqa: ARG002
        """Its answer is sent."""
        return response

    def sink(self, request: HttpRequest, sink: Sink) -> Sink:  # noqa: ARG002
        """To the socket."""
        return sink

    def chunk(self, request: HttpRequest, chunk: bytes) -> bytes:  # noqa: ARG002
        """As it is."""
        return chunk
