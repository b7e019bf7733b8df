"""A WSGI application in the place of a webhook: called in the thread of the request, without a socket.

It sees a POST of JSON to a URL below the prefix that it is mounted at, and runs to its end: nothing can break it off.
If it took longer than the webhook's timeout on the server's clock, its answer counts as one that came too late. An
exception in it is logged and ends the call, as a server that hangs up.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from kubectl_runtime.apiserver.webhooks.outgoing import DEADLINE, HTTPS, CallFailed, WebhookAnswer
from kubectl_runtime.core.base.clock import Clock
from kubectl_runtime.core.base.guarded_log import guarded_logger

log = guarded_logger(__name__)

Application = Callable[[dict[str, Any], Any], Iterable[bytes]]


class Mounted:
    """An application and the prefix of the URLs that it answers."""

    def __init__(self, prefix: str, application: Application) -> None:
        """`prefix` is ``https://host[:port][/path]``; of a Service, ``https://name.namespace.svc``. Raises ValueError
        for anything else."""
        parts = urlsplit(prefix)
        if parts.scheme != "https" or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(f"a webhook is mounted at https://host[:port][/path], not {prefix!r}")
        self._place = _place(parts)
        self._path = parts.path.rstrip("/")
        self._application = application

    def matches(self, url: str) -> bool:
        """Whether a URL is the prefix or lies below it."""
        parts = urlsplit(url)
        path = parts.path
        return _place(parts) == self._place and (path.rstrip("/") == self._path or path.startswith(self._path + "/"))

    @property
    def weight(self) -> int:
        """The longer the path, the closer the match."""
        return len(self._path)

    def post(self, url: str, body: bytes, timeout: float, clock: Clock) -> WebhookAnswer:
        """Call the application. Raises CallFailed."""
        began = clock.monotonic()
        try:
            answer = self._run(urlsplit(url), body)
        except (Exception, SystemExit):
            log.exception("the application that is mounted at %s failed", url)
            raise CallFailed("EOF") from None
        if clock.monotonic() - began > timeout:
            raise CallFailed(DEADLINE)
        return answer

    def _run(self, parts: SplitResult, body: bytes) -> WebhookAnswer:
        begun: list[tuple[str, list[tuple[str, str]]]] = []
        written: list[bytes] = []

        def start_response(status: str, headers: list[tuple[str, str]], _exc_info: Any = None) -> Callable[..., Any]:
            begun[:] = [(status, headers)]
            return written.append

        below = unquote(parts.path[len(self._path):], "latin-1")
        content = self._application({
            "REQUEST_METHOD": "POST", "SCRIPT_NAME": self._path, "PATH_INFO": below, "QUERY_STRING": parts.query,
            "CONTENT_TYPE": "application/json", "CONTENT_LENGTH": str(len(body)),
            "HTTP_ACCEPT": "application/json, */*", "HTTP_HOST": parts.netloc,
            "SERVER_NAME": parts.hostname or "", "SERVER_PORT": str(parts.port or HTTPS), "SERVER_PROTOCOL": "HTTP/1.1",
            "REMOTE_ADDR": "127.0.0.1", "wsgi.version": (1, 0), "wsgi.url_scheme": "https",
            "wsgi.input": io.BytesIO(body), "wsgi.errors": sys.stderr,
            "wsgi.multithread": True, "wsgi.multiprocess": False, "wsgi.run_once": False}, start_response)
        try:
            written.extend(content)
        finally:
            close = getattr(content, "close", None)
            if close is not None:
                close()
        if not begun:
            raise RuntimeError("the application did not call start_response")
        status, headers = begun[0]
        types = [value for key, value in headers if key.lower() == "content-type"]
        return WebhookAnswer(int(status.partition(" ")[0]), types[0] if types else "", b"".join(written))


def _place(parts: SplitResult) -> tuple[str, int]:
    return (parts.hostname or "").lower(), parts.port or HTTPS
