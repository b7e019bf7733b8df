"""What a manager serves, and where: the protocol of its servers, its address, and the one place that joins the two.

    ":8080"              every address of this host          "127.0.0.1:8080", "[::1]:8080"   that one
    ":0"                 a free port                         None                             nothing is served

Servers start before everything else and stop after it, so that probes are answered while stores fill, while the process
stands by, and while it drains.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.runtime.usercode import described, guarded_logger

log = guarded_logger(__name__)

LEAST = 1.0
"""Seconds that each server gets to stop, when everything before it has used up the time."""


class Server(Protocol):
    """Something that listens while a manager runs."""

    @property
    def name(self) -> str:
        """For logs."""

    def start(self) -> None:
        """Listen, in threads of its own. Returns when it does; what it raises (the port is taken, say) ends the
        manager's start."""

    def stop(self, timeout: float) -> None:
        """Listen no more; blocks until its threads have ended, at most `timeout` seconds. What it raises is logged."""


class Health(Protocol):
    """What a server may ask of the manager that it belongs to, at any time and from any thread."""

    @property
    def is_ready(self) -> bool: ...

    @property
    def why_not_ready(self) -> str:
        """For people; empty when it is ready."""

    def failing_checks(self) -> dict[str, str]:
        """Each check that was added, by name: why it fails; empty when it does not. Blocks as the checks do."""


@dataclass(frozen=True, slots=True)
class ServeAddress:
    """Where to listen. `host` is empty for all addresses; `port` 0 is a free one."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> ServeAddress:
        """`HOST:PORT`, `:PORT` or `[IPV6]:PORT`. Raises RequestError for anything else."""
        host, colon, port = text.rpartition(":") if isinstance(text, str) else ("", "", "")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            colon = ""
        if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
            raise RequestError(f'serve={text!r} is no address: ":8080" is all of this host, "127.0.0.1:8080" one, '
                               "None serves nothing")
        return cls(host, int(port))


class ServerGroup:
    """Starts servers in their order, and stops them in the reverse one. For one thread at a time."""

    def __init__(self) -> None:
        self._started: list[Server] = []

    def start(self, servers: Iterable[Server]) -> None:
        """Raises what one of them raises, when those before it have stopped again."""
        for server in servers:
            try:
                server.start()
            except BaseException:
                self.stop(lambda: 0.0)
                raise
            self._started.append(server)
            log.info("manager: %s listens", server.name)

    def stop(self, time_left: Callable[[], float]) -> None:
        """Stop each in the time that is left then, `LEAST` seconds at least."""
        while self._started:
            server = self._started.pop()
            try:
                server.stop(max(LEAST, time_left()))
            except Exception as error:
                log.error("manager: %s did not stop well: %s", server.name, described(error), exc_info=error)


def servers_for(address: ServeAddress, health: Health) -> Sequence[Server]:  # noqa: ARG001 - for what comes here
    """The servers that `Manager(serve=...)` stands for: called once, at the manager's start, before it starts them.

    The only place that joins a manager with what answers for it: the server of `/healthz`, `/readyz` and `/metrics` is
    made here. As long as there is none this says so, once a start.
    """
    log.warning("nothing listens at %s:%d: there is no health and metrics server yet; serve=None says so as well",
                address.host or "*", address.port)
    return ()
