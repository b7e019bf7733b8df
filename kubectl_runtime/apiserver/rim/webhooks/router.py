"""`WebhookRouter`: from what a webhook configuration names to what answers there; the server's way to webhooks.

===============================================  ======================================================================
a URL below a mounted prefix                     the WSGI application that is mounted there, in process
a Service that `webhook_services` has            HTTPS to the address given for it, with the Service's name
another Service                                  refused, as by a server that finds no Service, or no endpoints of it
any other URL                                    HTTPS
===============================================  ======================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import urlsplit

from kubectl_runtime.apiserver.rim.webhooks.https_calls import HttpsCalls
from kubectl_runtime.apiserver.rim.webhooks.mounted import Application, Mounted
from kubectl_runtime.apiserver.webhooks.outgoing import CallFailed, Target, WebhookAnswer
from kubectl_runtime.core.base.clock import Clock


class WebhookRouter:
    """Implements `outgoing.WebhookCaller`. Safe to use from any thread."""

    def __init__(self, clock: Clock, services: Mapping[str, str], knows_service: Callable[[str], bool]) -> None:
        """`services` has ``https://host:port`` by ``namespace/name``; `knows_service` tells whether there is such a
        Service in the cluster. Raises ValueError for addresses of another form."""
        for name, address in services.items():
            parts = urlsplit(address)
            if name.count("/") != 1 or parts.scheme != "https" or not parts.hostname or parts.path.strip("/"):
                raise ValueError('webhook_services={"namespace/name": "https://host:port"} tells where a Service is, '
                                 f"not {name!r}: {address!r}")
        self._clock = clock
        self._services, self._knows_service = dict(services), knows_service
        self._mounted: list[Mounted] = []
        self._calls = HttpsCalls()

    def mount(self, prefix: str, application: Application) -> None:
        """Let an application answer a URL and what lies below; raises ValueError for a prefix that is none."""
        self._mounted = [*self._mounted, Mounted(prefix, application)]

    def is_remote(self, url: str) -> bool:
        """Whether no mounted application answers it."""
        return self._application(url) is None

    def _application(self, url: str) -> Mounted | None:
        inside = [mounted for mounted in self._mounted if mounted.matches(url)]
        # Of equally close ones, the last one that was mounted.
        return max(reversed(inside), key=lambda mounted: mounted.weight) if inside else None

    def post(self, target: Target, url: str, body: bytes, timeout: float) -> WebhookAnswer:
        """See `outgoing.WebhookCaller`."""
        mounted = self._application(url)
        if mounted is not None:
            return mounted.post(url, body, timeout, self._clock)
        if not target.service:
            return self._calls.post(target, url, url, body, timeout)
        address = self._services.get(target.service)
        if address is None:
            name = target.service.partition("/")[2]
            why = (f'no endpoints available for service "{name}"' if self._knows_service(target.service)
                   else f'service "{name}" not found')
            raise CallFailed(f"{why} (no Pod runs behind a Service of the embedded API server: say where it is, with "
                             f'ApiServer(webhook_services={{"{target.service}": "https://HOST:PORT"}}) or '
                             f"--webhook-service {target.service}=https://HOST:PORT, or mount an application)")
        return self._calls.post(target, url, address, body, timeout)

    @contextmanager
    def closed(self) -> Iterator[None]:
        """End the calls over HTTPS that are under way, and refuse new ones inside of the block: the server stops."""
        self._calls.close()
        try:
            yield
        finally:
            self._calls.reopen()
