"""Clients of a webhook server, as an API server is one: connections that stay, a CA that it trusts, nothing else."""
from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from operator import ge
from typing import Any

from kubectl_runtime.webhooks.server import WebhookServer
from tests.webhooks.reviews import pod, review

LIMIT = 20
JSON = {"Content-Type": "application/json"}


def trusting(bundle: bytes) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=bundle.decode())


@contextlib.contextmanager
def connection(server: WebhookServer, bundle: bytes | None = None) -> Iterator[http.client.HTTPSConnection]:
    """One that trusts the server, or another bundle."""
    made = http.client.HTTPSConnection("127.0.0.1", server.port, timeout=LIMIT,
                                       context=trusting(server.ca_bundle if bundle is None else bundle))
    with contextlib.closing(made):
        yield made


def ask(made: http.client.HTTPConnection, path: str = "/quota/validate", body: Any = None,
        headers: Any = None) -> tuple[int, dict[str, str], Any]:
    """One request: the status, headers and decoded body of its answer."""
    made.request("POST", f"{path}?timeout=10s", review(pod()) if body is None else body,
                 JSON if headers is None else headers)
    answer = made.getresponse()
    return answer.status, dict(answer.headers), json.loads(answer.read())


def raw(server: WebhookServer) -> ssl.SSLSocket:
    """A connection after its handshake, without HTTP."""
    plain = socket.create_connection(("127.0.0.1", server.port), timeout=LIMIT)
    return trusting(server.ca_bundle).wrap_socket(plain, server_hostname="127.0.0.1")


class Load:
    """Threads that ask all the time, each on new connections and on one that stays; every failure is kept."""

    def __init__(self, server: WebhookServer, bundle: Callable[[], bytes], threads: int = 3) -> None:
        self.failures: list[str] = []
        self.answered = 0
        self._connections = [0] * threads
        self._server, self._bundle = server, bundle
        self._end = threading.Event()
        self._changed = threading.Condition()
        self._threads = [threading.Thread(target=self._ask, args=(number,), daemon=True)
                         for number in range(threads)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join(LIMIT)
        assert not any(thread.is_alive() for thread in self._threads)

    def until_more(self, number: int = 20) -> None:
        """Block until so many more answers have come, and each thread has made a connection with the bundle of now."""
        with self._changed:
            wanted = self.answered + number
            made = [count + 2 for count in self._connections]  # one may have been on its way

            def have_come() -> bool:
                return self.answered >= wanted and all(map(ge, self._connections, made))

            assert self._changed.wait_for(lambda: have_come() or self.failures, LIMIT)

    def _ask(self, number: int) -> None:
        stays = number % 2 == 0
        while not self._end.is_set():
            try:
                with connection(self._server, self._bundle()) as made:
                    for asked in range(20 if stays else 1):
                        status, _, body = ask(made)
                        assert (status, body["response"]["allowed"]) == (200, True)
                        with self._changed:
                            self.answered += 1
                            self._connections[number] += not asked
                            self._changed.notify_all()
                        if self._end.is_set():
                            return
            except Exception as error:
                with self._changed:
                    self.failures.append(repr(error))
                    self._changed.notify_all()


