"""`Attributes`: what one authorisation decides on, and the 403 in which a refusal is told."""

from __future__ import annotations

from dataclasses import dataclass

from kubectl_runtime.apiserver.access.user import User
from kubectl_runtime.apiserver.errors import StatusError, forbidden, go_value
from kubectl_runtime.apiserver.objectmeta.names import path_segment_errors
from kubectl_runtime.apiserver.query.options import integer_param
from kubectl_runtime.apiserver.query.selectors import FieldSelector, parse_terms
from kubectl_runtime.apiserver.route import RequestInfo
from kubectl_runtime.apiserver.wire import HttpRequest


@dataclass(frozen=True, slots=True)
class Attributes:
    """Who wants to do what: to a resource, or to a path (then only `user`, `verb` and `path` count)."""

    user: User
    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    is_resource: bool = True

    @property
    def combined_resource(self) -> str:
        """``pods`` or ``pods/log``, as rules name it."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether it is allowed, and why; `error` says what kept the authoriser from seeing everything."""

    allowed: bool
    reason: str = ""
    error: str = ""


def of_request(user: User, info: RequestInfo, request: HttpRequest) -> Attributes:
    """The attributes of a request; a collection that is selected by metadata.name counts as that one object."""
    if not info.is_resource:
        return Attributes(user, info.verb, path=info.path, is_resource=False)
    name = info.name
    if not name and info.verb in ("list", "watch"):
        name = _selected_name(request)
    return Attributes(user, info.verb, info.group, info.resource, info.subresource, info.namespace, name, info.path)


def _selected_name(request: HttpRequest) -> str:
    """The name that the field selector asks for; "" if there is none, or if the options of the list are malformed."""
    try:
        for option in ("limit", "timeoutSeconds"):
            integer_param(request, option)
        name = FieldSelector(parse_terms(request.param("fieldSelector"))).exact("metadata.name") or ""
    except StatusError:
        return ""
    return "" if path_segment_errors(name) else name


def refusal(attributes: Attributes, reason: str = "") -> StatusError:
    """The 403 of a request that is not allowed."""
    why = f"User {go_value(attributes.user.name)} cannot {attributes.verb} "
    if not attributes.is_resource:
        text = f"forbidden: {why}path {go_value(attributes.path)}"
        return StatusError(403, "Forbidden", f"{text}: {reason}" if reason else text, details={})
    why += f"resource {go_value(attributes.combined_resource)} in API group {go_value(attributes.group)} "
    why += f"in the namespace {go_value(attributes.namespace)}" if attributes.namespace else "at the cluster scope"
    return forbidden(attributes.group, attributes.resource, attributes.name, f"{why}: {reason}" if reason else why)
