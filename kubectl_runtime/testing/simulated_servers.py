"""`SimulatedServers`: the embedded servers of a simulation, and clients of them without sockets and threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kubectl_runtime.core.base.clock import Clock, Duration

if TYPE_CHECKING:
    from kubectl_runtime.apiserver.server import ApiServer
    from kubectl_runtime.client.api.client import Client


class SimulatedServers:
    """The servers and clients of a simulation. For the thread of the simulation."""

    def __init__(self, clock: Clock, seed: int) -> None:
        self._clock, self._seed = clock, seed
        self._servers: list[ApiServer] = []
        self._clients: list[Client] = []

    def serve(self, arguments: dict[str, Any]) -> ApiServer:
        """A new server on the simulation's clock, with its seed unless another is given."""
        from kubectl_runtime.apiserver.server import ApiServer  # a simulation can do without

        server = ApiServer(clock=self._clock, **{"seed": self._seed, **arguments})
        self._servers.append(server)
        return server

    def client(self, server: ApiServer, user: str | None, timeout: Duration) -> Client:
        """A client on the simulation's clock, which `close` closes."""
        import requests

        from kubectl_runtime.client.api.client import Client
        from kubectl_runtime.client.config.config import Config

        session = requests.Session()
        session.mount("http://", server.transport())
        config = Config(cluster_url="http://127.0.0.1", token=server.credentials(user).token or None, timeout=timeout)
        client = Client(config, session=session, clock=self._clock)
        self._clients.append(client)
        return client

    def close(self) -> None:
        """Close the clients."""
        while self._clients:
            self._clients.pop().close()

    def work(self, server: ApiServer) -> bool:
        """Do what is due; always True."""
        server.core.tick()
        return True

    def with_work(self) -> list[ApiServer]:
        """The servers whose controllers have something to do now."""
        now = self._clock.monotonic()
        return [server for server in self._servers if (due := server.core.next_wakeup()) is not None and due <= now]

    def times(self) -> list[float]:
        """When they have something to do, on the monotonic clock."""
        return [due for server in self._servers if (due := server.core.next_wakeup()) is not None]
