"""Sockets with a deadline for the whole request, TLS within TLS, and the client's `ssl.SSLContext`.

- `ApiSocket` and `ApiTlsSocket` have a `deadline` on `time.monotonic`, after which every read and write raises
  TimeoutError. Without a deadline (None) the socket's own timeout applies. A timeout alone is not enough: it starts
  again with each piece that arrives, so a peer that sends one byte a second could hold a reader indefinitely.
- `TlsInTls` is TLS over the TLS of a proxy. It implements the part of the socket interface that http.client, urllib3
  and websockets use.
- If the cluster's CA is given, only that CA is trusted, otherwise the system's CAs. `TlsSource` gives each new
  connection the current context: a CA file that was replaced is read again. While the new file cannot be used, the last
  context stays in use and one warning is logged.
- `LineSplitter` cuts a stream of bytes into lines.
"""
from __future__ import annotations

import io
import re
import socket
import ssl
import time
from contextlib import suppress
from typing import Any

from kubectl_runtime.client.config.auth import ClientCertificate
from kubectl_runtime.client.config.checks import FollowedFile, check_identity, use_identity
from kubectl_runtime.core.base.errors import ConfigError
from kubectl_runtime.core.base.guard import guarded_logger
from kubectl_runtime.core.base.threads import ForkSafeLock

_PIECE = 1 << 16
_RECORD = 1 << 14
"""The size in bytes of a TLS record."""


def remaining(deadline: float) -> float:
    """Seconds until `deadline` on `time.monotonic`. Raises TimeoutError when it has passed."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    return left


class ApiSocket(socket.socket):
    """A socket without TLS."""

    deadline: float | None = None
    suppress_ragged_eofs = True
    """Not used in this class; see `TlsInTls`."""

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        """As in the base class, but blocks only until the deadline."""
        if self.deadline is not None:
            self.settimeout(remaining(self.deadline))
        return super().recv_into(buffer, nbytes, flags)

    def recv(self, bufsize: int, flags: int = 0) -> bytes:
        """As in the base class, but blocks only until the deadline."""
        if self.deadline is not None:
            self.settimeout(remaining(self.deadline))
        return super().recv(bufsize, flags)

    def sendall(self, data: Any, flags: int = 0) -> None:
        """As in the base class, but blocks only until the deadline, for all of the data."""
        if self.deadline is not None:
            self.settimeout(remaining(self.deadline))
        super().sendall(data, flags)


class ApiTlsSocket(ssl.SSLSocket):
    """A socket with TLS."""

    deadline: float | None = None

    def recv_into(self, *arguments: Any, **options: Any) -> int:
        """As in the base class, but blocks only until the deadline."""
        if self.deadline is not None:
            self.settimeout(remaining(self.deadline))
        return super().recv_into(*arguments, **options)

    def recv(self, *arguments: Any, **options: Any) -> bytes:
        """As in the base class, but blocks only until the deadline."""
        if self.deadline is not None:
            self.settimeout(remaining(self.deadline))
        return super().recv(*arguments, **options)

    def send(self, *arguments: Any, **options: Any) -> int:
        """As in the base class, but blocks only until the deadline; `sendall` uses it."""
        if self.deadline is not None:
            self.settimeout(remaining(self.deadline))
        return super().send(*arguments, **options)


class TlsInTls:
    """TLS with a server, through the TLS socket of a proxy. Blocks, and raises, as an SSLSocket does."""

    suppress_ragged_eofs = True
    """As for an SSLSocket, the end of a connection counts as normal even without close_notify."""

    def __init__(self, outer: ApiTlsSocket, context: ssl.SSLContext, server_hostname: str) -> None:
        """Does the handshake, and closes `outer` if it fails."""
        self.outer = outer
        self._arrived, self._leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._arrived, self._leaving, server_hostname=server_hostname)
        self._unsent = b""
        self._taken = 0  # length of the `send` data that is encrypted but not yet completely sent
        self._io_refs = 0
        self._closed = False
        try:
            self._done(self._tls.do_handshake)
        except BaseException:
            outer.close()
            raise

    @property
    def deadline(self) -> float | None:
        """The deadline of the underlying connection."""
        return self.outer.deadline

    @deadline.setter
    def deadline(self, deadline: float | None) -> None:
        self.outer.deadline = deadline

    def recv_into(self, buffer: Any, nbytes: int | None = None, flags: int = 0) -> int:  # noqa: ARG002 - a socket's
        """Read what has arrived into `buffer`; returns the number of bytes, 0 at the end."""
        try:
            return int(self._done(self._tls.read, nbytes or len(buffer), buffer))
        except ssl.SSLZeroReturnError:
            return 0
        except ssl.SSLEOFError:
            if not self.suppress_ragged_eofs:
                raise
            return 0

    def recv(self, size: int = _PIECE, flags: int = 0) -> bytes:  # noqa: ARG002 - a socket's
        """Read what has arrived, at most `size` bytes; empty at the end."""
        buffer = bytearray(size)
        return bytes(buffer[:self.recv_into(buffer)])

    def send(self, data: Any, flags: int = 0) -> int:  # noqa: ARG002 - a socket's
        """Send a part of `data`; returns the length of that part. Raises SSLWantWriteError if it would block; the
        caller must then call `send` again with the same data, as OpenSSL requires."""
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
        """Call `act(*arguments)` of the inner TLS, and do the reads and writes that it requires."""
        while True:
            try:
                result = act(*arguments)
            except ssl.SSLWantReadError:
                # Bytes that cannot be written now are the rest of an unfinished `send`; its caller calls `send` again.
                with suppress(ssl.SSLWantWriteError):
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
        """The number of bytes that can be read without waiting for the network."""
        return self._tls.pending() + self._arrived.pending + self.outer.pending()

    def makefile(self, mode: str = "rb", buffering: int | None = None, **_: Any) -> Any:  # noqa: ARG002
        """A file that reads from this socket, as `socket.makefile` returns."""
        self._io_refs += 1
        raw: Any = socket.SocketIO(self, "r")  # type: ignore[arg-type] # this class has all that SocketIO uses
        return raw if buffering == 0 else io.BufferedReader(raw)

    def _decref_socketios(self) -> None:  # SocketIO calls this when it is closed
        self._io_refs -= 1
        if self._closed:
            self.close()

    def close(self) -> None:
        """Close the socket once its files are closed."""
        self._closed = True
        if self._io_refs <= 0:
            self.outer.close()

    def shutdown(self, how: int) -> None:
        """End the underlying connection, which wakes a thread that reads or writes."""
        socket.socket.shutdown(self.outer, how)

    def fileno(self) -> int:
        """The descriptor of the underlying connection."""
        return self.outer.fileno()

    def settimeout(self, value: float | None) -> None:
        """Set the timeout of the underlying connection."""
        self.outer.settimeout(value)

    def gettimeout(self) -> float | None:
        """The timeout of the underlying connection."""
        return self.outer.gettimeout()

    def setblocking(self, flag: bool) -> None:
        """Set the mode of the underlying connection."""
        self.outer.setblocking(flag)

    def getpeercert(self, binary_form: bool = False) -> Any:
        """The server's certificate."""
        return self._tls.getpeercert(binary_form)


def bottom(connection: Any) -> Any:
    """The socket whose shutdown ends `connection`."""
    return connection.outer if isinstance(connection, TlsInTls) else connection


log = guarded_logger(__name__)

_CERTIFICATES = re.compile(rb"-----BEGIN (?P<kind>(?:TRUSTED |X509 )?CERTIFICATE)-----"
                           rb"(?:(?!-----BEGIN ).)+?-----END (?P=kind)-----", re.DOTALL)


class TlsSource:
    """Makes the TLS context for connections to the API server, and a new context when the CA file was replaced. Safe to
    use from any thread; blocks only for file access."""

    def __init__(self, *, ca: FollowedFile | bytes | None, ca_source: str = "the CA", insecure: bool = False,
                 certificate: ClientCertificate | None = None) -> None:
        """`ca`: a file, PEM, or None for the system's CAs. Raises ConfigError for an unusable CA or certificate."""
        self._ca, self._insecure, self._certificate = ca, insecure, certificate
        self._ca_source = ca.name if isinstance(ca, FollowedFile) else ca_source
        self._lock = ForkSafeLock()
        self._context: ssl.SSLContext | None = None
        if ca is not None or insecure:
            self._context = self._built()
        elif certificate is not None:
            check_identity(certificate)

    def current(self) -> ssl.SSLContext:
        """The context for a connection that is made now."""
        if self._context is None:
            # The system's CAs are read only at the first connection, since reading all of these CAs takes long.
            self._context = self._built()
        if self._insecure or not isinstance(self._ca, FollowedFile) or not self._ca.has_changed():
            return self._context
        if not self._lock.acquire(blocking=False):  # another thread reads the files
            return self._context
        problem = None
        try:
            self._context = self._built()
        except ConfigError as error:
            problem = error
        finally:
            self._lock.release()
        if problem is not None:
            log.warning("%s: the last certificate authority stays in use", problem)
        return self._context

    def explain(self, error: ssl.SSLError) -> None:
        """Add to `error`, from a failed connection, the name of the file or data that caused it."""
        if isinstance(error, ssl.SSLCertVerificationError):
            about = f"trusted CAs: {self._ca_source}"
        elif "ALERT" in (error.reason or "").upper() and self._certificate is not None:
            about = f"the server was shown {self._certificate.source}"
        else:
            return
        if about not in str(error.strerror):
            error.strerror = f"{error.strerror or error}; {about}"

    def _built(self) -> ssl.SSLContext:
        ca = self._ca.read() if isinstance(self._ca, FollowedFile) and not self._insecure else self._ca
        return build_context(ca=ca if isinstance(ca, bytes) else None, ca_source=self._ca_source,
                             insecure=self._insecure, certificate=self._certificate)


def build_context(*, ca: bytes | None, ca_source: str = "the CA", insecure: bool = False,
                  certificate: ClientCertificate | None = None) -> ssl.SSLContext:
    """A context for connections to the API server.

    `ca`: PEM; text between the certificates is ignored. None trusts the system's CAs. `insecure` verifies nothing.
    Raises ConfigError, naming `ca_source` or the client certificate, when either is unusable.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif ca is None:
        context.load_default_certs()
    else:
        _trust(context, ca, ca_source)
    if certificate is not None:
        use_identity(certificate, context)
    return context


def _trust(context: ssl.SSLContext, ca: bytes, source: str) -> None:
    blocks = [found.group() for found in _CERTIFICATES.finditer(ca)]
    if not blocks:
        raise ConfigError(f"{source} holds no PEM certificate")
    try:
        context.load_verify_locations(cadata=b"\n".join(blocks).decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(f"{source} cannot be used as a certificate authority: {error}") from None


LARGEST_OBJECT = 16 << 20
"""The maximum size of one object in bytes, as in client-go. The limit applies to an answer that holds one object, to a
watch event, and to a line of text that is kept whole. (An API server itself accepts 3 MiB.)"""


class LineSplitter:
    """Cuts a stream of bytes into lines, in linear time, however the bytes arrive. A line may have any length; `held`
    is the number of bytes that are kept because their line is unfinished."""

    __slots__ = ("_begun", "held")

    def __init__(self) -> None:
        self._begun: list[bytes] = []
        self.held = 0
        """The number of bytes after the last newline."""

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that `chunk` completes, without their newlines."""
        batch: list[bytes] = []
        find, begin = chunk.find, 0
        while (newline := find(b"\n", begin)) >= 0:  # four times as fast as `split`, which compares byte by byte
            batch.append(chunk[begin:newline])
            begin = newline + 1
        if batch and self._begun:
            self._begun.append(batch[0])
            batch[0] = b"".join(self._begun)
            self._begun.clear()
        if batch:
            self.held = 0
        if begin < len(chunk):
            self._begun.append(chunk[begin:])
            self.held += len(chunk) - begin
        return batch

    def rest(self) -> bytes:
        """The bytes after the last newline."""
        return b"".join(self._begun)

    def take(self) -> bytes:
        """Return the bytes after the last newline and forget them; the next bytes continue the same line."""
        taken, self.held = self.rest(), 0
        self._begun.clear()
        return taken
