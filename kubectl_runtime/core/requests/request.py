"""What goes over the wire for each verb, as values: pure functions from arguments to a `Request`, no I/O.

Path segments are percent-encoded here, once. Raises RequestError for what the server could only refuse: an empty name,
a namespace for a cluster-scoped kind, a write without one for a namespaced kind, a body of another kind or name.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.codec.encode import encode_plain
from kubectl_runtime.core.meta.gvk import ApiResource
from kubectl_runtime.core.requests import body as bodies
from kubectl_runtime.core.requests.params import (
    DeleteParams,
    GetParams,
    ListParams,
    PatchParams,
    PostParams,
    WatchParams,
)
from kubectl_runtime.core.requests.patch import APPLY, JSON, Patch

P = TypeVar("P")

JSON_TYPE = "application/json"
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


class Retry(Enum):
    """What a lost connection leaves open."""

    SAFE = "safe"
    """Doing it twice is as good as once, or the second is refused: retry when no answer came."""
    UNSENT_ONLY = "unsent only"
    """Doing it twice does it twice: retry only when no byte was sent."""
    NEVER = "never"
    """The caller has a backoff of its own, and wants to know of every failure."""


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request below the server's base URL. `operation` says it in words, for errors: `get pods default/a`.

    `resource` is None for what is about no kind: discovery, the server's version.
    """

    method: str
    path: str
    verb: str
    resource: ApiResource | None
    operation: str
    namespace: str | None = None
    name: str | None = None
    query: tuple[tuple[str, str], ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = field(default=None, repr=False)
    retry: Retry = Retry.SAFE

    @property
    def resource_name(self) -> str:
        """`deployments.apps`; empty for what is about no kind."""
        return self.resource.full_name if self.resource is not None else ""

    @property
    def target(self) -> str:
        """Path and query, encoded."""
        return f"{self.path}?{urlencode(self.query, quote_via=quote)}" if self.query else self.path


@dataclass(frozen=True, slots=True)
class Place:
    """Where requests for a resource go: the whole cluster, or one namespace. `metadata_only` asks for metadata alone.

    Raises RequestError for a namespace on a cluster-scoped kind.
    """

    resource: ApiResource
    namespace: str | None = None
    metadata_only: bool = False

    def __post_init__(self) -> None:
        if self.namespace is not None and not self.resource.namespaced:
            raise RequestError(f"{self.resource.kind} is cluster-scoped: it has no namespace; use Api.all")
        if self.namespace == "":
            raise RequestError(f"{self.resource.kind}: the namespace is empty; None (Api.all) means all of them")

    def path(self, name: str | None = None, subresource: str | None = None) -> str:
        """`/apis/apps/v1/namespaces/default/deployments/a/scale`."""
        resource = self.resource
        segments = ["apis", resource.group, resource.version] if resource.group else ["api", resource.version]
        if self.namespace is not None:
            segments += ["namespaces", self.namespace]
        segments += [part for part in (resource.plural, name, subresource) if part is not None]
        return "/" + "/".join(quote(segment, safe=":@!$&'()*+,;=~") for segment in segments)

    def words(self, verb: str, name: str | None = None, subresource: str | None = None) -> str:
        """`get deployments.apps/scale default/a`."""
        what = self.resource.full_name + (f"/{subresource}" if subresource else "")
        where = "/".join(part for part in (self.namespace, name) if part)
        if where:
            return f"{verb} {what} {where}"
        return f"{verb} {what} in all namespaces" if self.resource.namespaced else f"{verb} {what}"


def get(place: Place, name: str, params: GetParams | None = None, *, subresource: str | None = None) -> Request:
    """Read one object, or a subresource of it."""
    return _on_object(place, "GET", "get", name, subresource, query=params_or_default(params, GetParams).query())


def list_(place: Place, params: ListParams | None = None) -> Request:
    """List a page."""
    return _on_kind(place, "GET", "list", query=params_or_default(params, ListParams).query(), many=True)


def watch(place: Place, params: WatchParams | None = None, resource_version: str | None = None) -> Request:
    """Watch from a version on; None or "0" begins with events for the present objects."""
    chosen = params_or_default(params, WatchParams)
    version = (("resourceVersion", resource_version),) if resource_version else ()
    request = _on_kind(place, "GET", "watch", query=(("watch", "true"), *chosen.query(), *version), many=True)
    return _with_headers(request, ("Accept-Encoding", "identity"))


def create(place: Place, body: Any, params: PostParams | None = None, *, name: str | None = None,
           subresource: str | None = None) -> Request:
    """Create an object; with `name` and `subresource`, POST to a subresource (`eviction`, `token`, `binding`)."""
    query = params_or_default(params, PostParams).query()
    if subresource is not None:
        return _on_object(place, "POST", "create", name or "", subresource, query=query,
                          body=encode_plain(bodies.plain_body(body)), retry=Retry.UNSENT_ONLY)
    content = _placed(place, bodies.object_body(body, place.resource), "create")
    metadata = content["metadata"]
    if not metadata.get("name") and not metadata.get("generateName"):
        raise RequestError(f"{place.words('create')}: the object has neither a name nor a generateName")
    return _on_kind(place, "POST", "create", query=query, body=encode_plain(content), name=metadata.get("name"),
                    retry=Retry.UNSENT_ONLY)


def replace(place: Place, body: Any, params: PostParams | None = None, *, subresource: str | None = None,
            name: str | None = None) -> Request:
    """Replace an object by the one given; its resourceVersion guards against lost updates."""
    content = bodies.plain_body(body) if subresource not in (None, "status") else \
        _placed(place, bodies.whole_body(body, place.resource), "replace")
    own_name = (content.get("metadata") or {}).get("name")
    if name is not None and own_name not in (None, name):
        raise RequestError(f"{place.words('replace', name)}: the body is named {own_name!r}")
    return _on_object(place, "PUT", "replace", name or own_name or "", subresource,
                      query=params_or_default(params, PostParams).query(), body=encode_plain(content))


def patch(place: Place, name: str, patch: Patch, params: PatchParams | None = None, *,
          subresource: str | None = None) -> Request:
    """Patch an object or a subresource. `force` needs server-side apply, and that a field manager."""
    if not isinstance(patch, Patch):
        raise RequestError(f"{place.words('patch', name, subresource)}: what kind of patch is it? Use "
                           "Patch.merge({...}), Patch.json, Patch.strategic or Patch.apply, not "
                           f"{type(patch).__name__}")
    chosen = params_or_default(params, PatchParams)
    operation = place.words("apply" if patch.is_apply else "patch", name, subresource)
    if patch.is_apply and not chosen.field_manager:
        raise RequestError(f"{operation}: server-side apply needs field_manager: PatchParams.apply('my-controller')")
    if chosen.force and not patch.is_apply:
        raise RequestError(f"{operation}: force exists only for server-side apply")
    own_body = subresource not in (None, "status")
    if own_body and patch.is_apply:
        content: Any = bodies.plain_body(patch.body)  # a Scale, say: not an object of the place's kind
    else:
        content = bodies.patch_body(patch, place.resource, name, place.namespace)
    return _on_object(place, "PATCH", "apply" if patch.is_apply else "patch", name, subresource, query=chosen.query(),
                      body=encode_plain(content), content_type=patch.content_type, retry=_patch_retry(patch, content))


def delete(place: Place, name: str, params: DeleteParams | None = None) -> Request:
    """Delete one object."""
    return _on_object(place, "DELETE", "delete", name, None, body=_delete_options(params))


def delete_collection(place: Place, params: DeleteParams | None = None, selection: ListParams | None = None) -> Request:
    """Delete all objects of the place that `selection` selects: everything, by default."""
    return _on_kind(place, "DELETE", "deletecollection", query=params_or_default(selection, ListParams).query(),
                    body=_delete_options(params), many=True)


def _delete_options(params: DeleteParams | None) -> bytes | None:
    options = params_or_default(params, DeleteParams).body()
    return encode_plain(options) if options else None


def _patch_retry(patch: Patch, content: Any) -> Retry:
    """Applying twice is applying once; other patches are safe when they check what they found."""
    if patch.content_type == APPLY:
        return Retry.SAFE
    if patch.content_type == JSON:
        guarded = any(isinstance(step, Mapping) and step.get("op") == "test" for step in content)
    else:
        guarded = bool((content.get("metadata") or {}).get("resourceVersion"))
    return Retry.SAFE if guarded else Retry.UNSENT_ONLY


def _placed(place: Place, content: dict[str, Any], verb: str) -> dict[str, Any]:
    """`content` in the place's namespace. Raises RequestError when it says another one, or needs one and has none."""
    metadata = dict(content.get("metadata") or {})
    named = metadata.get("namespace") or None
    operation = place.words(verb, metadata.get("name"))
    if not place.resource.namespaced:
        if named is not None:
            raise RequestError(f"{operation}: {place.resource.kind} is cluster-scoped, "
                               f"but the body names namespace {named!r}")
    elif place.namespace is None:
        raise RequestError(f"{operation}: which namespace? Use Api.namespaced(client, kind, namespace) to write")
    elif named not in (None, place.namespace):
        raise RequestError(f"{operation}: the body is in namespace {named!r}")
    else:
        metadata["namespace"] = place.namespace
    return {**content, "metadata": metadata}


def _on_object(place: Place, method: str, verb: str, name: str, subresource: str | None, *,
               query: Any = (), body: bytes | None = None, content_type: str = JSON_TYPE,
               retry: Retry = Retry.SAFE) -> Request:
    operation = place.words(verb, name, subresource)
    if not name:
        raise RequestError(f"{operation}: the name is empty")
    if name in (".", "..") or "/" in name:
        raise RequestError(f"{operation}: {name!r} cannot be a name")
    if place.resource.namespaced and place.namespace is None:
        raise RequestError(f"{operation}: which namespace? Use Api.namespaced(client, kind, namespace)")
    return Request(method, place.path(name, subresource), verb, place.resource, operation, place.namespace, name,
                   tuple(query), _headers(place, body, content_type, many=False), body, retry)


def params_or_default(given: P | None, kind: type[P]) -> P:
    """The parameters, or the defaults. Raises RequestError for anything else, such as a namespace or a selector."""
    if given is None:
        return kind()
    if not isinstance(given, kind):
        raise RequestError(f"{given!r} stands where {kind.__name__}(…) is expected")
    return given


def _on_kind(place: Place, method: str, verb: str, *, query: Any, body: bytes | None = None, name: str | None = None,
             many: bool = False, retry: Retry = Retry.SAFE) -> Request:
    return Request(method, place.path(), verb, place.resource, place.words(verb, name), place.namespace, name,
                   tuple(query), _headers(place, body, JSON_TYPE, many=many and verb == "list"), body, retry)


def _headers(place: Place, body: bytes | None, content_type: str, *, many: bool) -> tuple[tuple[str, str], ...]:
    accept = (METADATA_LIST if many else METADATA) if place.metadata_only else JSON_TYPE
    return (("Accept", accept), ("Content-Type", content_type)) if body is not None else (("Accept", accept),)


def _with_headers(request: Request, *headers: tuple[str, str]) -> Request:
    return dataclasses.replace(request, headers=request.headers + headers)
