"""What a 404 for a subresource means: no such object, or a kind that does not have the subresource.

The server's answer does not tell them apart (it names the object in both), discovery does. It is asked only then, and
what it said is kept as long as discovery keeps anything.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable

from kubectl_runtime.client.http.failures import KindNotServedError, subresource_not_served
from kubectl_runtime.client.server.served_kinds import ServedKind
from kubectl_runtime.core.base.errors import ApiError, KubeError
from kubectl_runtime.core.base.guarded_log import guarded_logger
from kubectl_runtime.core.requests.request import Request

log = guarded_logger(__name__)


def explained(discover: Callable[[], Iterable[ServedKind]], request: Request, error: ApiError) -> ApiError:
    """`error`, which answered `request` with 404; a KindNotServedError when the kind does not have the subresource.

    `discover` says what is served (`Discovery.kinds`). Blocks while it asks. When that fails, `error` stays what it is.
    """
    resource = request.resource
    if resource is None or request.subresource is None or isinstance(error, KindNotServedError):
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
