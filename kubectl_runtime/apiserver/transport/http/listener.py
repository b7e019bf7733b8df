"""`Listener`: the listening socket, a thread for each connection, and their orderly end."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable

from kubectl_runtime.apiserver.transport.faults import Faults, Recording
from kubectl_runtime.apiserver.transport.http.connection import Connection, Reaper, ServingInfo, Tls
from kubectl_runtime.apiserver.wire import HttpRequest, HttpResponse
from kubectl_runtime.core.base.clock import Clock
from kubectl_runtime.core.base.guard import guarded_logger
from kubectl_runtime.core.base.interpreter import Thread

log = guarded_logger(__name__)

BACKLOG = 1024
GRACE = 5.0  # seconds that answers under way get at the end
RETRY_ACCEPT = 0.1  # seconds until the next try where a connection could not be accepted


class Listener:
    """Serves HTTP on one address from `start` to `stop`."""

    def __init__(self, handle: Callable[[HttpRequest], HttpResponse], *, clock: Clock, host: str = "127.0.0.1",
                 port: int = 0, faults: Faults | None = None, recording: Recording | None = None,
                 tls: Tls | None = None) -> None:
        """Bind (port 0 takes a free one); raises OSError, with the address in its text, if it is taken or none of this
        host's. The default is loopback on purpose."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((host, port))
            self._socket.listen(BACKLOG)
        except OSError as error:
            self._socket.close()
            where = f"[{host}]:{port}" if family == socket.AF_INET6 else f"{host}:{port}"
            raise OSError(error.errno, f"cannot listen at {where}: {error.strerror or error}") from error
        self.host = host
        self.port: int = self._socket.getsockname()[1]
        self._lock = threading.Lock()
        self._connections: dict[Connection, threading.Thread] = {}
        self._stopping = threading.Event()
        self._reaper = Reaper(f"apiserver-{self.port}-reaper")
        self._serving = ServingInfo(handle, clock, faults or Faults(), recording, self._reaper, tls)
        self._thread = Thread(target=self._accept, name=f"apiserver-{self.port}-accept", daemon=True)

    def start(self) -> None:
        """Begin to accept connections."""
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._socket.accept()
                with contextlib.suppress(OSError):
                    accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._serve(accepted)
            except (OSError, RuntimeError):  # no descriptor or no thread is left, which passes
                if self._stopping.is_set():
                    return
                log.exception("a connection could not be accepted")
                self._stopping.wait(RETRY_ACCEPT)

    def _serve(self, accepted: socket.socket) -> None:
        connection = Connection(accepted, self._serving)
        thread = Thread(target=self._run, args=(connection,), name=f"apiserver-{self.port}-connection", daemon=True)
        with self._lock:
            if self._stopping.is_set():
                accepted.close()
                return
            self._connections[connection] = thread
        try:
            thread.start()
        except RuntimeError:
            accepted.close()
            with self._lock:
                del self._connections[connection]
            raise

    def _run(self, connection: Connection) -> None:
        try:
            connection.run()
        finally:
            with self._lock:
                self._connections.pop(connection, None)

    def stop(self) -> list[str]:
        """Accept no more, end all connections, join all threads; those whose answer is not taken within `GRACE` seconds
        are broken off. Returns the names of threads that did not end."""
        with self._lock:
            self._stopping.set()
            open_now = dict(self._connections)
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes accept
        self._socket.close()
        if self._thread.ident is not None:
            self._thread.join(GRACE)
        for connection in open_now:
            connection.stop()
        late = _alive_after(open_now, GRACE)
        for connection in late:
            connection.abort()
        stuck = _alive_after(late, GRACE)
        self._reaper.stop()
        return [thread.name for thread in stuck.values()]

    def drop_connections(self) -> None:
        """End all connections at once, as when a network breaks; new ones are accepted."""
        with self._lock:
            open_now = list(self._connections)
        for connection in open_now:
            connection.abort()


def _alive_after(threads: dict[Connection, threading.Thread], patience: float) -> dict[Connection, threading.Thread]:
    """Join threads for so many seconds, which they share; those that still run."""
    deadline = time.monotonic() + patience
    for thread in threads.values():
        thread.join(max(0.0, deadline - time.monotonic()))
    return {connection: thread for connection, thread in threads.items() if thread.is_alive()}
