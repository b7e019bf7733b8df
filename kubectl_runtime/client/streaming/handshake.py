"""The websocket handshake (RFC 6455, section 4.1) as one call of the client.

It goes through the client's whole stack as any GET does, so that credentials, headers, proxies, TLS, retries and the
user's layers are the same; what refuses it is an ApiError with the server's Status. Of the answer, 101, the socket is
kept: whatever the server has sent after the head comes first.
"""
from __future__ import annotations

import base64
import binascii
import hashlib
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from msgspec.structs import replace
from requests.models import Response

from kubectl_runtime.client.http.sockets import TlsInTls
from kubectl_runtime.core.base.errors import TransportError
from kubectl_runtime.core.requests.request import Request

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, section 1.3


@dataclass
class Opened:
    """The socket of a websocket, not blocking, and the first bytes after the head. `close` closes it."""

    socket: socket.socket | TlsInTls
    first: bytes
    protocol: str
    response: Response

    def close(self) -> None:
        """Close the socket."""
        self.response.raw.close()


def upgrading(request: Request, protocols: Sequence[str]) -> tuple[Request, str]:
    """`request` with the handshake's headers, and its key. `protocols`: subprotocols, the preferred first."""
    key = base64.b64encode(os.urandom(16)).decode("ascii")
    headers = [("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13"),
               ("Sec-WebSocket-Key", key)]
    if protocols:
        headers.append(("Sec-WebSocket-Protocol", ", ".join(protocols)))
    return replace(request, headers=(*request.headers, *headers)), key


def opened(response: Response, request: Request, key: str, protocols: Sequence[str]) -> Opened:
    """The websocket that `response` opens. Raises TransportError for an answer that does not open one; then the
    connection is closed."""
    try:
        return _opened(response, request.operation, key, protocols)
    except BaseException:
        response.close()
        raise


def _opened(response: Response, operation: str, key: str, protocols: Sequence[str]) -> Opened:
    if response.status_code != HTTPStatus.SWITCHING_PROTOCOLS:
        raise TransportError(f"{operation}: the answer is HTTP {response.status_code} instead of a websocket: old "
                             "API servers and some proxies cannot open one")
    accepted = response.headers.get("Sec-WebSocket-Accept") or ""
    if response.headers.get("Upgrade", "").lower() != "websocket" or accepted.encode() != _accepted(key):
        raise TransportError(f"{operation}: the server switched to something that is not a websocket")
    protocol = response.headers.get("Sec-WebSocket-Protocol") or ""
    if protocols and protocol not in protocols:
        raise TransportError(f"{operation}: the server chose the subprotocol {protocol!r}; "
                             f"asked for was {' or '.join(protocols)}")
    raw: Any = response.raw
    found = getattr(getattr(raw, "connection", None), "sock", None)
    file = getattr(getattr(raw, "_original_response", None), "fp", None)
    if not isinstance(found, socket.socket | TlsInTls) or file is None:
        raise TransportError(f"{operation}: the adapter of this client cannot carry a websocket: there is no socket "
                             "below its answers (a mock)")
    found.setblocking(False)
    return Opened(found, _buffered(file), protocol, response)


def _accepted(key: str) -> bytes:
    digest = hashlib.sha1(key.encode("ascii") + _GUID, usedforsecurity=False).digest()
    return binascii.b2a_base64(digest, newline=False)


def _buffered(file: Any) -> bytes:
    """What was read from the socket together with the answer's head."""
    try:
        found: bytes = file.peek()
    except OSError:  # nothing has come yet; or the connection has broken off, as the next read will find
        return b""
    return found
