"""`Interrupt`: how a stop token ends a request that waits for the server's answer.

    entered          the thread's requests belong to it; its connection calls `waits_on(socket)` before it reads
    the token is set the socket is shut down, which wakes the reading thread within milliseconds; `stopped` is True
    left             the token is forgotten

An answer that was opened as a stream is `ByteStream`'s to end; this one is for everything before that, where a server
that accepts a connection and says nothing would otherwise hold the thread until its time is up. Not for writes: whether
one that was interrupted has happened, nobody could know.
"""
from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar, Token
from typing import Any, Self

from kubectl_runtime.core.base.stop import StopToken


class Interrupt:
    """A context manager, for one request of one thread; the token may be set by any."""

    def __init__(self, stop: StopToken | None) -> None:
        """Without a token nothing ends it."""
        self._stop = stop
        self._socket: Any = None
        self.stopped = False
        self._forget: Callable[[], None] = lambda: None
        self._entered: Token[Interrupt | None] | None = None

    def __enter__(self) -> Self:
        if self._stop is not None:
            self._entered = _current.set(self)
            self._forget = self._stop.on_set(self._end)
        return self

    def __exit__(self, *_: object) -> None:
        self._forget()
        if self._entered is not None:
            _current.reset(self._entered)

    def attach(self, connection: Any) -> None:
        """The request now waits on this socket."""
        self._socket = connection
        if self.stopped:  # set before there was a socket; `_end` looks in the opposite order, so one of both sees it
            self._end()

    def _end(self) -> None:
        self.stopped = True
        if isinstance(self._socket, socket.socket):
            with suppress(OSError):  # it has ended by itself
                # The plain socket's: SSLSocket.shutdown takes the encryption away under the thread that reads.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


_current: ContextVar[Interrupt | None] = ContextVar("kubectl_runtime_interrupt", default=None)


def waits_on(connection: Any) -> None:
    """This thread's request is about to wait on this socket."""
    interrupt = _current.get()
    if interrupt is not None:
        interrupt.attach(connection)
