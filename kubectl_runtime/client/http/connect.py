"""`dial`: a TCP connection that a stop token can end while it is being made.

urllib3's own function does not show the socket before it is connected; otherwise this one does the same: each address
that the name has, in order, with the options set first.
"""
from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any

from urllib3.exceptions import LocationParseError

from kubectl_runtime.client.http.interrupt import connects

Options = Sequence[tuple[int, int, int | bytes]]


def dial(host: str, port: int, timeout: float | None, source: tuple[str, int] | None,
         options: Options | None) -> socket.socket:
    """A connected socket. Blocks for `timeout` seconds at most for each address (None: as long as the system tries).

    Raises what the last address raised: TimeoutError, OSError; socket.gaierror for a name that has no address. The
    look-up of the name cannot be interrupted.
    """
    host = host.strip("[]")
    try:
        host.encode("idna")
    except UnicodeError:
        raise LocationParseError(f"'{host}', label empty or too long") from None
    failure: OSError = OSError("the name has no address")
    for family, kind, protocol, _, address in socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM):
        connection: Any = None
        try:
            connection = socket.socket(family, kind, protocol)
            for option in options or ():
                connection.setsockopt(*option)
            connection.settimeout(timeout)
            if source:
                connection.bind(source)
            if not connects(connection):
                raise ConnectionAbortedError("given up before it was made")
            connection.connect(address)
            return connection  # type: ignore[no-any-return]
        except OSError as error:
            failure = error
            if connection is not None:
                connection.close()
    raise failure
