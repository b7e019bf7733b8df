"""`WebSocket`: messages over one websocket. A thread of its own owns the socket, which no other thread touches.

    open       the thread reads while the inbox has room, writes what is queued, answers pings, and pings each 60 s
    closing    `close` was called: what is queued is written, then a close frame; the peer's is waited for, 1 s at most
    ended      cleanly (a close frame came, or `close`), or with the error that broke it off; the socket is closed

A slow reader slows the server down: with 1 MiB unread nothing more is read from the socket, unless somebody waits for
something that has not come. So a program that waits for one channel while another fills up does not wait for ever; it
holds what came meanwhile. Writers wait while 1 MiB of theirs is unsent.
"""
from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Self

from kubectl_runtime.client.streaming.frames import BINARY, frame
from kubectl_runtime.client.streaming.websocket_thread import CLOSING_TIME, ROOM, WebSocketThread
from kubectl_runtime.core.base.errors import RequestTimeout, TransportError


class WebSocket(WebSocketThread):
    """One websocket. A context manager: leaving it closes it. Safe to use from any thread."""

    def send(self, message: bytes, timeout: float | None = None) -> None:
        """Queue one binary message. Blocks while 1 MiB is unsent, `timeout` seconds at most.

        Raises TransportError when the websocket has ended, RequestTimeout when the time is up: nothing was queued.
        """
        framed = frame(BINARY, message)
        with self.condition:
            room = self.wait(lambda: self._unsent < ROOM or self._closing or self._deaf, timeout)
            if self._ended or self._closing or self._deaf:
                raise self._error or TransportError(f"{self.operation}: the connection was closed")
            if not room:
                raise RequestTimeout(f"{self.operation}: the other side has not read for {timeout or 0:.3g} s")
            self._queue(framed)
            self._wake()

    def receive(self, timeout: float | None = None) -> bytes | None:
        """The next message; None after a clean end. Only for a websocket without an inbox of another's.

        Blocks until there is one. Raises TransportError for a connection that broke off, RequestTimeout after `timeout`
        seconds.
        """
        with self.condition:
            self.wait(lambda: len(self._messages) > 0, timeout)
            message = self._messages.take()
            if message is not None:
                self.read_on()
                return message
            if self._error is not None:
                raise self._error
            if self._ended:
                return None
            raise RequestTimeout(f"{self.operation}: nothing came within {timeout or 0:.3g} s")

    def wait(self, ready: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait, with the condition held, until `ready()`, the end, or `timeout` seconds; what `ready` said last.

        `ready` is also called by the websocket's thread, with the condition held, and changes nothing.
        """
        if ready():
            return True
        deadline = None if timeout is None else self.clock.monotonic() + timeout
        self._waiters.append(ready)
        try:
            while not (found := ready()) and not self._ended:
                self._wake()  # it reads whatever is held for who waits; anew where another one took what had come
                left = None if deadline is None else deadline - self.clock.monotonic()
                if left is not None and left <= 0:
                    break
                self.clock.wait(self.condition, left)
            return found
        finally:
            self._waiters.remove(ready)

    def read_on(self) -> None:
        """Say, with the condition held, that the inbox has more room than before."""
        if self._inbox.held() < ROOM:
            self._wake()

    def close(self) -> None:
        """Write what is queued, say goodbye and end. Blocks until the thread has gone, about a second at most. Safe to
        repeat, and from the thread itself."""
        with self.condition:
            if not self._closing:
                self._closing = True
                self._deadline = time.monotonic() + CLOSING_TIME
            self._wake()
            self.condition.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
