"""Sockets that know when their request has to be over, and TLS within TLS.

    ApiSocket      a plain socket        } `deadline`: a point on `time.monotonic`, after which every read and write
    ApiTlsSocket   TLS over it           } raises TimeoutError, however the peer trickles; None: the socket's timeout
    TlsInTls       TLS over the TLS of a proxy: as much of a socket as http.client, urllib3 and websockets use

A socket's own timeout begins anew with each piece that arrives, so a peer that sends one byte a second holds a reader
as long as it likes.
"""
from __future__ import annotations

import io
import socket
import ssl
import time
from contextlib import suppress
from typing import Any

_PIECE = 1 << 16
_RECORD = 1 << 14
"""Bytes of a TLS record."""


def remaining(deadline: float) -> float:
    """Seconds until `deadline` on `time.monotonic`. Raises TimeoutError when it has passed."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    return left


class ApiSocket(socket.socket):
    """A socket without TLS."""

    deadline: float | None = None

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        """Blocks until the deadline at most; otherwise the same as of the base class."""
        if self.deadline is not None:
            self.settimeout(remaining(self.deadline))
        return super().recv_into(buffer, nbytes, flags)

    def sendall(self, data: Any, flags: int = 0) -> None:
        """Blocks until the deadline at most, for all of the data."""
        if self.deadline is not None:
            self.settimeout(remaining(self.deadline))
        super().sendall(data, flags)


class ApiTlsSocket(ssl.SSLSocket):
    """A socket with TLS."""

    deadline: float | None = None

    def recv_into(self, *arguments: Any, **options: Any) -> int:
        """Blocks until the deadline at most; otherwise the same as of the base class."""
        if self.deadline is not None:
            self.settimeout(remaining(self.deadline))
        return super().recv_into(*arguments, **options)

    def recv(self, *arguments: Any, **options: Any) -> bytes:
        """Blocks until the deadline at most; otherwise the same as of the base class."""
        if self.deadline is not None:
            self.settimeout(remaining(self.deadline))
        return super().recv(*arguments, **options)

    def send(self, *arguments: Any, **options: Any) -> int:
        """Blocks until the deadline at most; `sendall` sends by it."""
        if self.deadline is not None:
            self.settimeout(remaining(self.deadline))
        return super().send(*arguments, **options)


class TlsInTls:
    """TLS with a server, through the TLS socket of a proxy. Blocks, and raises, as an SSLSocket does."""

    def __init__(self, outer: ApiTlsSocket, context: ssl.SSLContext, server_hostname: str) -> None:
        """Makes the handshake, and closes `outer` when that fails."""
        self.outer = outer
        self._arrived, self._leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._arrived, self._leaving, server_hostname=server_hostname)
        self._unsent = b""
        self._taken = 0  # bytes of `send` that are encrypted and not all sent
        self._io_refs = 0
        self._closed = False
        try:
            self._done(self._tls.do_handshake)
        except BaseException:
            outer.close()
            raise

    @property
    def deadline(self) -> float | None:
        """The deadline of the connection below."""
        return self.outer.deadline

    @deadline.setter
    def deadline(self, deadline: float | None) -> None:
        self.outer.deadline = deadline

    def recv_into(self, buffer: Any, nbytes: int | None = None, flags: int = 0) -> int:  # noqa: ARG002 - a socket's
        """Read what has arrived; 0 at the end."""
        try:
            return int(self._done(self._tls.read, nbytes or len(buffer), buffer))
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):  # as SSLSocket's default
            return 0

    def recv(self, size: int = _PIECE, flags: int = 0) -> bytes:  # noqa: ARG002 - a socket's
        """What has arrived, at most `size` bytes; empty at the end."""
        buffer = bytearray(size)
        return bytes(buffer[:self.recv_into(buffer)])

    def send(self, data: Any, flags: int = 0) -> int:  # noqa: ARG002 - a socket's
        """Send a part of `data`; how much. Where it would block it raises SSLWantWriteError, and has to be called
        again with the same data, as OpenSSL wants it."""
        if not self._taken:
            self._taken = self._tls.write(memoryview(data)[:_RECORD])
        self._flush()
        sent, self._taken = self._taken, 0
        return sent

    def sendall(self, data: Any, flags: int = 0) -> None:  # noqa: ARG002 - a socket's
        """Send all of `data`."""
        view = memoryview(data).cast("B")
        while view:
            view = view[self.send(view):]

    def _done(self, act: Any, *arguments: Any) -> Any:
        """`act(*arguments)` on the inner TLS, with whatever has to be read or written for it."""
        while True:
            try:
                result = act(*arguments)
            except ssl.SSLWantReadError:
                with suppress(ssl.SSLWantWriteError):  # of a `send`, which will be called again
                    self._flush()
                if data := self.outer.recv(_PIECE):
                    self._arrived.write(data)
                else:
                    self._arrived.write_eof()
            else:
                self._flush()
                return result

    def _flush(self) -> None:
        self._unsent += self._leaving.read()
        while self._unsent:
            self._unsent = self._unsent[self.outer.send(self._unsent):]

    def pending(self) -> int:
        """Bytes that can be read although nothing comes from the network."""
        return self._tls.pending() + self._arrived.pending + self.outer.pending()

    def makefile(self, mode: str = "rb", buffering: int | None = None, **_: Any) -> io.BufferedReader:  # noqa: ARG002
        """A file to read from it, as a socket makes one."""
        self._io_refs += 1
        raw: Any = socket.SocketIO(self, "r")  # type: ignore[arg-type] # what it uses of a socket is here
        return io.BufferedReader(raw)

    def _decref_socketios(self) -> None:  # which SocketIO calls when it is closed
        self._io_refs -= 1
        if self._closed:
            self.close()

    def close(self) -> None:
        """Close it, once its files are closed."""
        self._closed = True
        if self._io_refs <= 0:
            self.outer.close()

    def shutdown(self, how: int) -> None:
        """End the connection below, which wakes a thread that reads or writes."""
        socket.socket.shutdown(self.outer, how)

    def fileno(self) -> int:
        """The descriptor of the connection."""
        return self.outer.fileno()

    def settimeout(self, value: float | None) -> None:
        """Of the connection below."""
        self.outer.settimeout(value)

    def gettimeout(self) -> float | None:
        """Of the connection below."""
        return self.outer.gettimeout()

    def setblocking(self, flag: bool) -> None:
        """Of the connection below."""
        self.outer.setblocking(flag)

    def getpeercert(self, binary_form: bool = False) -> Any:
        """The server's certificate."""
        return self._tls.getpeercert(binary_form)


def bottom(connection: Any) -> Any:
    """The socket whose shutdown ends `connection`."""
    return connection.outer if isinstance(connection, TlsInTls) else connection
