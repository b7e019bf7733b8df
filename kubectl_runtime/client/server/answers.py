"""What a 404 for a subresource means: there is no such object, or the kind does not have the subresource.

The server's answer names the object in both cases. Discovery can tell them apart, so it is asked, but only then.

`Refusals`: what a server was found not to do, remembered for an hour so that it is not asked each time.

`ServerWarnings`: what the API server says in `Warning` headers, each text once in a client's life.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable
from http import HTTPStatus

from kubectl_runtime.client.http.retry import KindNotServedError, subresource_not_served
from kubectl_runtime.client.server.discovery_documents import ServedKind
from kubectl_runtime.core.base.errors import ApiError, KubeError
from kubectl_runtime.core.base.guard import guarded_logger
from kubectl_runtime.core.base.interpreter import ForkSafeLock
from kubectl_runtime.core.requests.request import Request

log = guarded_logger(__name__)


def explained(discover: Callable[[], Iterable[ServedKind]], request: Request, error: ApiError) -> ApiError:
    """The error to raise for `error`, which answered `request`: a KindNotServedError for a 404 that means that the kind
    does not have the subresource, or else `error` itself.

    `discover` says what is served (`Discovery.kinds`). Blocks while it asks. When asking fails, `error` is returned.
    """
    resource = request.resource
    if (error.code != HTTPStatus.NOT_FOUND or resource is None or request.subresource is None
            or isinstance(error, KindNotServedError)):
        return error
    try:
        kinds = discover()
    except KubeError as failure:
        log.debug("%s: whether the subresource is served is not known: %s", request.operation, failure)
        return error
    for kind in kinds:
        if kind.resource.gvr == resource.gvr and request.subresource not in kind.subresources:
            return subresource_not_served(request, resource, error)
    return error


REMEMBERED_SECONDS = 3600.0
"""Long enough to cost nothing, short enough to notice that the server was upgraded."""


class Refusals:
    """What the server has refused lately, so that it is not asked again for an hour. One for each client. Safe to use
    from any thread; times are of one clock."""

    def __init__(self) -> None:
        self._until: dict[Hashable, float] = {}

    def note(self, what: Hashable, now: float) -> None:
        """`what` was refused."""
        self._until[what] = now + REMEMBERED_SECONDS

    def holds(self, what: Hashable, now: float) -> bool:
        """Whether `what` was refused within the last hour."""
        return now < self._until.get(what, float("-inf"))


_WARNING = r'299 \S+ "((?:[^"\\]|\\.)*)"'
_REMEMBERED = 1000


class ServerWarnings:
    """Logs the warnings that the server sends with its answers, each text once. Safe to use from any thread, and after
    a fork."""

    def __init__(self) -> None:
        self._lock = ForkSafeLock()
        self._told: set[str] = set()

    def tell(self, header: str, operation: str) -> None:
        """Log the warnings in `header`, which came with the answer to `operation`, that were not logged before. After a
        thousand texts, which memory bears, one more line says that further ones are not shown."""
        for text in re.findall(_WARNING, header):
            with self._lock:
                number = len(self._told)
                known = text in self._told or number > _REMEMBERED
                if not known:
                    self._told.add(text)
            if not known and number < _REMEMBERED:
                log.warning("%s: the API server warns: %s", operation, text.replace('\\"', '"'))
            elif not known:
                log.warning("%s: the API server has given %d different warnings; further ones are not shown",
                            operation, number)
