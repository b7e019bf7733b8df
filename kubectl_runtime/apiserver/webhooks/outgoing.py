"""The port through which the core reaches webhooks: what is called, what comes back, and how a call fails.

The rim implements `WebhookCaller` (`rim/webhooks`); the core says what the answer means. A call blocks, so no lock is
held meanwhile.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit, urlunsplit

Object = dict[str, Any]

HTTPS = 443
DEADLINE = "context deadline exceeded"  # what Go says of a call that took too long
REVIEW_VERSIONS = ("v1", "v1beta1")  # those that the server knows to send


@dataclass(frozen=True, slots=True)
class Target:
    """Where a webhook is: an address, or a Service that `service` names (``namespace/name``)."""

    url: str
    """``https://host[:port]/path``; of a Service, ``https://name.namespace.svc:port/path``."""
    service: str = ""
    ca: bytes = b""
    """The bundle of authorities that its certificate is checked against; empty: those of the system."""


@dataclass(frozen=True, slots=True)
class WebhookAnswer:
    """What came back, whatever it says."""

    status: int
    content_type: str
    body: bytes


class CallFailed(Exception):
    """Nothing came back. The text is what Go's HTTP client says after ``Post "URL": ``."""


class WebhookCaller(Protocol):
    """Carries requests to webhooks; safe to use from any thread."""

    def is_remote(self, url: str) -> bool:
        """Whether a call waits for somebody outside of this thread, so that several can be under way at a time."""

    def post(self, target: Target, url: str, body: bytes, timeout: float) -> WebhookAnswer:
        """POST a review to `url`, which is the target's with a query, as JSON. Blocks for at most `timeout` seconds, or
        until the server stops. Raises CallFailed."""


class NoCaller:
    """Of a core that nobody gave a way out."""

    def is_remote(self, url: str) -> bool:
        """Nobody is called."""
        return False

    def post(self, target: Target, url: str, body: bytes, timeout: float) -> WebhookAnswer:
        """Raises CallFailed."""
        raise CallFailed("this server core was made without a way to webhooks: it is ApiServer that has one")


def target_of(config: Object) -> Target:
    """The target of a clientConfig."""
    try:
        ca = base64.b64decode(config.get("caBundle") or "").strip()
    except binascii.Error:
        ca = b"?"  # no certificate either
    service = config.get("service")
    if service is None:
        parts = urlsplit(config.get("url") or "")
        return Target(urlunsplit((parts.scheme, parts.netloc, parts.path or "/", "", "")), ca=ca)
    name, namespace, path = (service.get(key) or "" for key in ("name", "namespace", "path"))
    url = f"https://{name}.{namespace}.svc:{service.get('port') or HTTPS}/{path.lstrip('/')}"
    return Target(url, f"{namespace}/{name}", ca)
