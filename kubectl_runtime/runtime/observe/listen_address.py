"""`ListenAddress`: where a server listens.

    ":8080"             all addresses of this host, IPv4 and IPv6
    "127.0.0.1:8080"    this one; a name stands for the first address that it has
    "[::1]:8080"        an IPv6 address
    ":0"                a free port
"""
from __future__ import annotations

import errno
import os
import socket
from dataclasses import dataclass
from typing import Any

from kubectl_runtime.core.base.errors import RequestError

BACKLOG = 32


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """A host and a port to listen at: `host` is empty for all addresses, `port` 0 for a free one."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> ListenAddress:
        """The address that a text names: `:8080`, `127.0.0.1:8080` or `[::1]:8080`. Raises RequestError for any other
        text."""
        host, colon, port = text.rpartition(":") if isinstance(text, str) else ("", "", "")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            colon = ""
        if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
            raise _unreadable(text)
        return cls(host, int(port))

    @classmethod
    def of(cls, address: str | tuple[str, int]) -> ListenAddress:
        """The address that a text names, as for `parse`, or of a host and a port. Raises RequestError for anything
        else."""
        if isinstance(address, str):
            return cls.parse(address)
        given: Any = address
        if not (isinstance(given, tuple | list) and len(given) == 2 and isinstance(given[0], str)
                and type(given[1]) is int and 0 <= given[1] <= 65535):
            raise _unreadable(address)
        return cls(*address)

    def listen(self, use: str = "") -> socket.socket:
        """A socket that listens. Raises OSError, with the address in its text, when it cannot, and `use`: what it is
        for, and where another address can be said."""
        try:
            if self.host:
                found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
                family, _, _, _, address = found[0]
                return socket.create_server(address[:2], family=family, backlog=BACKLOG)
            if socket.has_dualstack_ipv6():
                try:
                    return socket.create_server(("", self.port), family=socket.AF_INET6, backlog=BACKLOG,
                                                dualstack_ipv6=True)
                except OSError as error:
                    if error.errno == errno.EADDRINUSE:
                        raise
            return socket.create_server(("", self.port), backlog=BACKLOG)  # IPv6 is turned off
        except OSError as error:
            # Not its own text, which has the address, too; the system has none for a name that has no address.
            why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or error
            raise OSError(error.errno, f"cannot listen at {self}: {why}{use and f'; {use}'}") from error

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _unreadable(address: object) -> RequestError:
    return RequestError(f'{address!r} is not an address to listen at: ":8080" is all of this host, "127.0.0.1:8080" or '
                        '"[::1]:8080" one of it, port 0 a free one')
