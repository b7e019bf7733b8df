"""What a 404 for a subresource means: there is no such object, or the kind does not have the subresource.

The server's answer names the object in both cases. Discovery can tell them apart, so it is asked, but only then.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable
from http import HTTPStatus

from kubectl_runtime.client.http.failures import KindNotServedError, subresource_not_served
from kubectl_runtime.client.server.served_kinds import ServedKind
from kubectl_runtime.core.base.errors import ApiError, KubeError
from kubectl_runtime.core.base.guarded_log import guarded_logger
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
