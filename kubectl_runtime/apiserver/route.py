"""From a path to what is asked for: resource or not, group, version, namespace, resource, name, subresource, verb."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote

from kubectl_runtime.apiserver.wire import HttpRequest

_VERBS = {"POST": "create", "GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass(slots=True)
class RequestInfo:
    """What a request asks for; `verb` is RBAC's word for it, for a path outside of resources the method in lower case.
    """

    is_resource: bool
    verb: str
    path: str
    group: str = ""
    version: str = ""
    namespace: str = ""
    resource: str = ""
    name: str = ""
    subresource: str = ""
    rest: tuple[str, ...] = ()  # further path segments, as of proxy

    @property
    def api_version(self) -> str:
        """``v1`` or ``apps/v1``."""
        return f"{self.group}/{self.version}" if self.group else self.version


def parse(request: HttpRequest) -> RequestInfo:
    """The request info of a request, as the real server's filters see it; unknown groups are not its business."""
    plain = RequestInfo(False, request.method.lower(), request.path)
    parts = unquote(request.path).removeprefix("/").rstrip("/").split("/")
    if parts[0] == "api" and len(parts) >= 3:
        group, version, parts = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) >= 4:
        group, version, parts = parts[1], parts[2], parts[3:]
    else:
        return plain
    verb = _VERBS.get(request.method, "")
    if parts[0] == "watch" and len(parts) > 1:
        verb, parts = "watch", parts[1:]  # the old way to say watch=true
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 1:
        namespace = parts[1]
        # /namespaces/x/status and /finalize are subresources of the Namespace, everything else lies within it
        if len(parts) > 2 and parts[2] not in ("status", "finalize"):
            parts = parts[2:]
    name = parts[1] if len(parts) > 1 else ""
    info = RequestInfo(True, verb, request.path, group, version, namespace, parts[0], name,
                       parts[2] if len(parts) > 2 else "", tuple(parts[3:]))
    info.verb = _verb(request, info)
    return info


def _verb(request: HttpRequest, info: RequestInfo) -> str:
    if info.name:
        return info.verb
    if info.verb == "get":
        return "watch" if is_true(request, "watch") else "list"
    return "deletecollection" if info.verb == "delete" else info.verb


def is_true(request: HttpRequest, name: str) -> bool:
    """A boolean query parameter, by the real server's rule: everything but "", "false" and "0" is true."""
    if not request.has_param(name):
        return False
    return request.param(name).lower() not in ("false", "0")
