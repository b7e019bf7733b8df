"""`Reaper`: one thread that notices when the client of an idle watch has gone.

A thread that serves an idle watch waits for events and reads nothing, so it would keep a dead connection until the next
write. The reaper polls all such sockets at once and calls back when one ends.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Callable

from kubectl_runtime.core.interpreter.contexts import Thread

# Linux tells the end of the peer's half apart from data; elsewhere any input on a watch's connection counts as its end.
_GONE: int = getattr(select, "POLLRDHUP", select.POLLIN)


class Reaper:
    """See the module. `watch` and `forget` may be called from any thread."""

    def __init__(self, name: str) -> None:
        self._lock = threading.Lock()
        self._sockets: dict[int, Callable[[], None]] = {}
        self._wake_out, self._wake_in = socket.socketpair()
        self._wake_out.setblocking(False)
        self._stopped = False
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def watch(self, connection: socket.socket, gone: Callable[[], None]) -> None:
        """Call `gone` once when the peer closes the connection."""
        with self._lock:
            self._sockets[connection.fileno()] = gone
        self._wake()

    def forget(self, connection: socket.socket) -> None:
        """Watch a connection no longer; before it is closed."""
        with self._lock:
            self._sockets.pop(connection.fileno(), None)
        self._wake()  # as long as the poll holds the connection, closing it sends neither FIN nor RST

    def stop(self) -> None:
        """End the thread; blocks for the moment in which it calls back, at most 5 s."""
        self._stopped = True
        self._wake()
        self._thread.join(5)
        self._wake_in.close()
        self._wake_out.close()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._wake_in.send(b"x")

    def _run(self) -> None:
        while not self._stopped:
            poller = select.poll()
            poller.register(self._wake_out, select.POLLIN)
            with self._lock:
                for descriptor in self._sockets:
                    poller.register(descriptor, _GONE)
            for descriptor, _ in poller.poll():
                if descriptor == self._wake_out.fileno():
                    with contextlib.suppress(OSError):
                        self._wake_out.recv(4096)
                    continue
                with self._lock:
                    gone = self._sockets.pop(descriptor, None)
                if gone is not None:
                    gone()
