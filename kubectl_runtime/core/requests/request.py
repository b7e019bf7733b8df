"""The request of each verb, as a value: pure functions from arguments to a `Request`, no I/O.

Path segments are checked and percent-encoded here, once: a segment that is `.` or `..`, or contains `/` or `%`, would
form another path for the server or for a proxy in front of it (the API server allows none of these in a name). The
functions raise RequestError for requests that the server would always refuse: an empty name, a namespace for a
cluster-scoped kind, a write without a namespace for a namespaced kind, a body of another kind or name. `name` may be
the object itself, or its ObjectRef.

    segment("a:b", "name")     "a:b"            segment("..", "namespace")    RequestError
    object_name(place, pod)    the pod's name, if kind and namespace are those of `place`; else RequestError
    checked_label, checked_subdomain    check names by the API server's own rules, for manifests
"""
from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import Enum
from functools import lru_cache
from typing import Any, Protocol
from urllib.parse import quote, urlencode

import msgspec
from msgspec.structs import force_setattr

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.wire import decoder_of
from kubectl_runtime.core.codec.jsonbytes import encode_plain
from kubectl_runtime.core.meta.gvk import ApiResource, ObjectRef
from kubectl_runtime.core.meta.problems import DECODE_FAILURES
from kubectl_runtime.core.requests import params as bodies
from kubectl_runtime.core.requests.params import (
    APPLY,
    JSON,
    DeleteParams,
    GetParams,
    ListParams,
    Patch,
    PatchParams,
    PostParams,
    WatchParams,
    check_flag,
    params_or_default,
)

LONGEST_LABEL, LONGEST_SUBDOMAIN = 63, 253
"""The maximum length of a namespace's name, and of the names of most objects."""

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_SAFE = ":@!$&'()*+,;=~"
_AS_IT_IS = re.compile(r"[A-Za-z0-9_.:@!$&'()*+,;=~-]+").fullmatch


class Placed(Protocol):
    """The scope in which an object is looked up: a kind and, if there is one, a namespace."""

    @property
    def resource(self) -> ApiResource:
        """The kind."""

    @property
    def namespace(self) -> str | None:
        """The namespace; None for all namespaces, or for a cluster-scoped kind."""


class HasRef(Protocol):
    """An object with an ObjectRef."""

    @property
    def ref(self) -> ObjectRef:
        """Kind, namespace and name of the object."""


Named = str | HasRef | ObjectRef
"""The type of a verb's `name` argument: a name, an object, or an ObjectRef."""


def checked_label(text: object, what: str) -> str:
    """Return `text` if the API server accepts it as the name of a namespace. Raises RequestError, whose message begins
    with `what`."""
    if not isinstance(text, str) or len(text) > LONGEST_LABEL or not re.fullmatch(_LABEL, text):
        raise RequestError(_needs(text, what, LONGEST_LABEL, ""))
    return text


def checked_subdomain(text: object, what: str) -> str:
    """Return `text` if the API server accepts it as the name of an object of most kinds. Raises RequestError, whose
    message begins with `what`."""
    if not isinstance(text, str) or len(text) > LONGEST_SUBDOMAIN or not re.fullmatch(_SUBDOMAIN, text):
        raise RequestError(_needs(text, what, LONGEST_SUBDOMAIN, ", ."))
    return text


def _needs(text: object, what: str, longest: int, more: str) -> str:
    return (f"{what} is {text!r}: it must have 1 to {longest} characters (lower-case letters, digits, -{more}), and "
            "must begin and end with a letter or digit")


def segment(text: str, what: str) -> str:
    """`text` as one segment of a path. Raises RequestError, naming `what`, for a text that would change the path, such
    as one with a slash."""
    if not isinstance(text, str):
        raise RequestError(f"the {what} is of type {type(text).__name__}, where text is expected")
    if text in (".", "..") or "/" in text or "%" in text:
        raise RequestError(f"{text!r} cannot be a {what}: it would change the path")
    if _AS_IT_IS(text):
        return text
    if not text:
        raise RequestError(f"the {what} is empty")
    try:
        return quote(text, safe=_SAFE)
    except UnicodeEncodeError:
        raise RequestError(f"{text!r} cannot be a {what}: it cannot be encoded as UTF-8") from None


@lru_cache(maxsize=1024)
def kind_root(group: str, version: str, plural: str) -> tuple[str, str]:
    """The path prefix of a kind's group and version, and the plural as a path segment. Raises RequestError."""
    version = segment(version, "version")
    root = f"/apis/{segment(group, 'group')}/{version}" if group else f"/api/{version}"
    return root, segment(plural, "plural")


@lru_cache(maxsize=64)
def encoded_query(query: tuple[tuple[str, str], ...]) -> str:
    """The query string after the `?`. Cached, because a program sends few different queries; queries with continue
    tokens or with a watch's version soon leave the cache."""
    return urlencode(query, quote_via=quote)


def object_name(place: Placed, named: Any) -> str:
    """The name for a path: `named` itself if it is text, otherwise the name of the object or ObjectRef `named`. Raises
    RequestError."""
    if isinstance(named, str):
        return named
    ref = named if isinstance(named, ObjectRef) else getattr(named, "ref", None)
    wanted = place.resource
    if not isinstance(ref, ObjectRef):
        raise RequestError(f"{named!r} is not the name of an object of {wanted.full_name}: give a name as text, or an "
                           "object of that kind")
    if (ref.kind, ref.group) != (wanted.kind, wanted.group):
        raise RequestError(f"the name of a {wanted.kind} is expected, but {ref} is of another kind")
    if ref.namespace is not None and place.namespace is not None and ref.namespace != place.namespace:
        raise RequestError(f"{ref} is in namespace {ref.namespace!r}, but the request is for namespace "
                           f"{place.namespace!r}")
    return ref.name


JSON_TYPE = "application/json"
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
NAMELESS_GROUPS = frozenset(("authentication.k8s.io", "authorization.k8s.io"))
"""Groups whose kinds are reviews: TokenReview, SelfSubjectAccessReview, …"""
_REVIEWS = tuple(f"/apis/{group}/" for group in sorted(NAMELESS_GROUPS))
_READING = frozenset(("GET", "HEAD", "OPTIONS"))


class Retry(Enum):
    """Whether a request may be sent again if it may have reached the server and no complete answer was received."""

    SAFE = "safe"
    """Retry: a repetition has the same effect, whatever became of the first attempt."""
    UNSENT_ONLY = "unsent only"
    """Retry only if the request was not sent at all, or if the server refused it without reading it."""
    NEVER = "never"
    """Do not retry: the caller has its own backoff, and must see every failure."""


class Request(msgspec.Struct, frozen=True):
    """One HTTP request below the server's base URL.

    For a request about no kind (discovery, the server's version) `resource` is None and `said` describes the request.
    The default of `retry` is SAFE for requests that may be repeated: a read, a review or a dry run (see `is_read`), an
    apply without a resourceVersion, and a delete with a uid but without a resourceVersion. For any other request it is
    UNSENT_ONLY.
    """

    method: str
    path: str
    verb: str
    resource: ApiResource | None
    said: str = ""
    namespace: str | None = None
    name: str | None = None
    query: tuple[tuple[str, str], ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    retry: Retry | None = None
    subresource: str | None = None

    def __post_init__(self) -> None:
        if self.retry is None:
            force_setattr(self, "retry", Retry.SAFE if self._is_repeatable else Retry.UNSENT_ONLY)

    def __repr__(self) -> str:
        return f"<Request {self.method} {self.target}: {self.operation}>"  # without its body, which may be a Secret

    @property
    def operation(self) -> str:
        """The request in words, for errors: `get pods default/a`. Computed on access, when a request fails."""
        if self.said or self.resource is None:
            return self.said or f"{self.method} {self.path}"
        return _words(self.resource, self.namespace, self.verb, self.name, self.subresource)

    def words(self, verb: str, name: str | None = None) -> str:
        """A request with `verb` for this kind and namespace, in words: `list pods default`; empty without a kind."""
        return "" if self.resource is None else _words(self.resource, self.namespace, verb, name, None)

    @property
    def resource_name(self) -> str:
        """`deployments.apps`; empty for a request about no kind."""
        return self.resource.full_name if self.resource is not None else ""

    @property
    def target(self) -> str:
        """Path and query, encoded."""
        return f"{self.path}?{encoded_query(self.query)}" if self.query else self.path

    # For retries

    @property
    def is_read(self) -> bool:
        """Whether the request changes nothing: a read, a review, a dry run."""
        if self.method in _READING:
            return self.retry is not Retry.UNSENT_ONLY  # exec is a GET that is not a read
        return self._is_review or self._is_dry_run

    @property
    def deleted_uid(self) -> str:
        """The uid precondition of this delete of one object; empty for any other request, and for a delete that also
        depends on a resourceVersion."""
        if self.method != "DELETE" or self.verb == "deletecollection":
            return ""
        wanted = self._content.preconditions or _Preconditions()
        return "" if wanted.resource_version else wanted.uid or ""

    @property
    def _is_repeatable(self) -> bool:
        """Whether a repetition has the same effect, whatever became of the first attempt: a read, an apply without a
        resourceVersion, a delete with only a uid as precondition."""
        return self.is_read or self._is_free_apply or bool(self.deleted_uid)

    @property
    def _is_review(self) -> bool:
        """Whether this is a review of authentication.k8s.io or authorization.k8s.io: answered but not stored."""
        return self.method == "POST" and self.path.startswith(_REVIEWS)

    @property
    def _is_dry_run(self) -> bool:
        for key, value in self.query:
            if key == "dryRun" and value:
                return True
        if self.method == "DELETE":
            return bool(self._content.dry_run)
        return self.subresource == "eviction" and bool((self._content.delete_options or _Content()).dry_run)

    @property
    def _is_free_apply(self) -> bool:
        if self.method != "PATCH" or not (self.verb == "apply" or any(
                value == APPLY for name, value in self.headers if name.lower() == "content-type")):
            return False
        content = self._content
        return content is not _UNREADABLE and not (content.metadata or _Metadata()).resource_version

    @property
    def _content(self) -> _Content:
        try:
            return _content_of(self.body) if self.body else _Content()
        except DECODE_FAILURES:
            return _UNREADABLE


class _Metadata(msgspec.Struct, rename="camel"):
    resource_version: str | None = None


class _Preconditions(msgspec.Struct, rename="camel"):
    uid: str | None = None
    resource_version: str | None = None


class _Content(msgspec.Struct, rename="camel"):
    """The parts of a body (an object, DeleteOptions, or an Eviction) that decide whether the request may be sent
    again."""

    metadata: _Metadata | None = None
    preconditions: _Preconditions | None = None
    dry_run: list[str] | None = None
    delete_options: _Content | None = None


_UNREADABLE = _Content()
_content_of = decoder_of(_Content)


class Place(msgspec.Struct, frozen=True):
    """The scope of requests for a resource: the whole cluster, or one namespace. `metadata_only` requests only
    metadata.

    Raises RequestError for a namespace on a cluster-scoped kind, and for a namespace that cannot be part of a path.
    """

    resource: ApiResource
    namespace: str | None = None
    metadata_only: bool = False
    _collection: str = ""

    def __post_init__(self) -> None:
        resource, namespace = self.resource, self.namespace
        if namespace is not None and not resource.namespaced:
            raise RequestError(f"{resource.kind} is cluster-scoped: it has no namespace; use Api.all")
        if namespace == "":
            raise RequestError(f"{resource.kind}: no namespace was given (None or an empty string): name one, or use "
                               "Api.all for all namespaces")
        root, plural = kind_root(resource.group, resource.version, resource.plural)
        within = "" if namespace is None else f"/namespaces/{segment(namespace, 'namespace')}"
        force_setattr(self, "_collection", f"{root}{within}/{plural}")

    def path(self, name: str | None = None, subresource: str | None = None) -> str:
        """The path of an object or a subresource: `/apis/apps/v1/namespaces/default/deployments/a/scale`. Raises
        RequestError for an invalid name."""
        path = self._collection
        if name is not None:
            path = f"{path}/{segment(name, 'name')}"
        return path if subresource is None else f"{path}/{segment(subresource, 'subresource')}"

    def words(self, verb: str, name: object = None, subresource: str | None = None) -> str:
        """A request in words, for messages: `get deployments.apps/scale default/a`."""
        return _words(self.resource, self.namespace, verb, name, subresource)


def _words(resource: ApiResource, namespace: str | None, verb: str, name: object, subresource: str | None) -> str:
    """The request in words. `name` is as the caller gave it; an object in place of a name is left out."""
    what = resource.full_name + (f"/{subresource}" if subresource else "")
    where = "/".join(part for part in (namespace, name) if part and isinstance(part, str))
    if where:
        return f"{verb} {what} {where}"
    return f"{verb} {what} in all namespaces" if resource.namespaced else f"{verb} {what}"


def get(place: Place, name: Named, params: GetParams | None = None, *, subresource: str | None = None) -> Request:
    """The request that reads one object, or a subresource of it."""
    return _on_object(place, "GET", "get", name, subresource, query=params_or_default(params, GetParams).query())


def list_(place: Place, params: ListParams | None = None, *, retry: Retry | None = None) -> Request:
    """The request for one page of a list."""
    return _on_kind(place, "GET", "list", query=params_or_default(params, ListParams).query(), many=True, retry=retry)


def watch(place: Place, params: WatchParams | None = None, resource_version: str | None = None, *,
          retry: Retry | None = None) -> Request:
    """The request for a watch that begins at `resource_version`; with None or "0" it begins with events for the
    existing objects."""
    chosen = params_or_default(params, WatchParams)
    version = (("resourceVersion", resource_version),) if resource_version else ()
    request = _on_kind(place, "GET", "watch", query=(("watch", "true"), *chosen.query(), *version), many=True,
                       retry=retry)
    return msgspec.structs.replace(request, headers=(*request.headers, ("Accept-Encoding", "identity")))


def create(place: Place, body: Any, params: PostParams | None = None, *, name: Named | None = None,
           subresource: str | None = None) -> Request:
    """Create an object; with `name` and `subresource`, POST to a subresource (`eviction`, `token`, `binding`).

    A review (authentication.k8s.io, authorization.k8s.io) is answered and not stored: it needs no name.
    """
    query = params_or_default(params, PostParams).query()
    if subresource is not None:
        return _on_object(place, "POST", "create", name or "", subresource, query=query,
                          body=encode_plain(bodies.plain_body(body)))
    content = _placed(place, bodies.object_body(body, place.resource), "create")
    metadata = content["metadata"]
    if not (metadata.get("name") or metadata.get("generateName")) and place.resource.group not in NAMELESS_GROUPS:
        raise RequestError(f"{place.words('create')}: the object has neither a name nor a generateName")
    return _on_kind(place, "POST", "create", query=query, name=metadata.get("name"),
                    body=encode_plain(content, checked=bodies.is_checked(body)))


def replace(place: Place, body: Any, params: PostParams | None = None, *, subresource: str | None = None,
            name: Named | None = None) -> Request:
    """Replace an object with `body`. The resourceVersion in `body` guards against lost updates."""
    content = bodies.plain_body(body) if subresource not in (None, "status") else \
        _placed(place, bodies.whole_body(body, place.resource), "replace")
    own_name = (content.get("metadata") or {}).get("name")
    named = object_name(place, own_name or "" if name is None else name)
    if own_name not in (None, named):
        raise RequestError(f"{place.words('replace', named)}: the body is named {own_name!r}")
    return _on_object(place, "PUT", "replace", named, subresource,
                      query=params_or_default(params, PostParams).query(),
                      body=encode_plain(content, checked=bodies.is_checked(body)))


def patch(place: Place, name: Named, patch: Patch, params: PatchParams | None = None, *,
          subresource: str | None = None) -> Request:
    """Patch an object or a subresource. `force` needs server-side apply, which needs a field manager."""
    if not isinstance(patch, Patch):
        raise RequestError(f"{place.words('patch', name, subresource)}: a Patch is expected, not "
                           f"{type(patch).__name__}: use Patch.merge({{...}}), Patch.json, Patch.strategic or "
                           "Patch.apply")
    chosen = params_or_default(params, PatchParams)
    if patch.is_apply:
        return apply(place, patch.body, chosen, subresource=subresource, name=name)
    if chosen.force:
        raise RequestError(f"{place.words('patch', name, subresource)}: force exists only for server-side apply")
    content = bodies.patch_body(patch, place.resource) if subresource in (None, "status") or \
        patch.content_type == JSON else bodies.plain_body(patch.body)
    return _on_object(place, "PATCH", "patch", name, subresource, query=chosen.query(), body=encode_plain(content),
                      content_type=patch.content_type)


def apply(place: Place, body: Any, params: PatchParams, *, subresource: str | None = None, name: Named | None = None,
          defaults: bool = False, kind: ApiResource | None = None, only: Mapping[str, str] | None = None) -> Request:
    """Server-side apply of `body`; `name` is by default the name in the body. Without `defaults` a typed object that
    this program created leaves out fields that equal their class's default. `kind` is the body's kind, if the body is
    not of the kind in `place` (a Scale). `only` is the `uid` or `resourceVersion` that the object must have; if the
    object has another, the server answers 409 or 422."""
    check_flag("defaults", defaults)
    if not params.field_manager:
        raise RequestError(f"{place.words('apply', name, subresource)}: server-side apply needs a field_manager, the "
                           "name under which the applied fields are owned: field_manager='my-program', here or for all "
                           "writes of the Client; a controller's runs use the controller's name")
    named = None if name is None else object_name(place, name)
    if subresource in (None, "status") or kind is not None:
        content = bodies.apply_body(body, kind or place.resource, named, place.namespace, defaults=defaults)
    else:
        content = bodies.plain_body(body, defaults=defaults)  # the body is not an object of the place's kind
    if only is not None:
        content["metadata"] = {**content["metadata"], **only}
    if named is None:
        named = (content.get("metadata") or {}).get("name") or ""
    return _on_object(place, "PATCH", "apply", named, subresource, query=params.query(), content_type=APPLY,
                      body=encode_plain(content, checked=bodies.is_checked(body)))


def delete(place: Place, name: Named, params: DeleteParams | None = None) -> Request:
    """The request that deletes one object."""
    return _on_object(place, "DELETE", "delete", name, None, body=_delete_options(params))


def delete_collection(place: Place, params: DeleteParams | None = None, selection: ListParams | None = None) -> Request:
    """Delete the objects in `place` that `selection` selects; by default all objects."""
    return _on_kind(place, "DELETE", "deletecollection", query=params_or_default(selection, ListParams).query(),
                    body=_delete_options(params), many=True)


def _delete_options(params: DeleteParams | None) -> bytes | None:
    options = params_or_default(params, DeleteParams).body()
    return encode_plain({"kind": "DeleteOptions", "apiVersion": "v1", **options}) if options else None


def _placed(place: Place, content: dict[str, Any], verb: str) -> dict[str, Any]:
    """`content` in the place's namespace. Raises RequestError when it names another namespace, or lacks one."""
    metadata = dict(content.get("metadata") or {})
    named = metadata.get("namespace") or None
    if place.resource.namespaced:
        if named is not None and named == place.namespace:
            return content
        if named is None and place.namespace is not None:
            metadata["namespace"] = place.namespace
            return {**content, "metadata": metadata}
    elif named is None:
        return content if "metadata" in content else {**content, "metadata": metadata}
    operation = place.words(verb, metadata.get("name"))
    if not place.resource.namespaced:
        raise RequestError(f"{operation}: {place.resource.kind} is cluster-scoped, "
                           f"but the body names namespace {named!r}")
    if place.namespace is None:
        raise RequestError(f"{operation}: a namespace is required: use Api.namespaced(client, kind, namespace)")
    raise RequestError(f"{operation}: the body is in namespace {named!r}, but the request is for namespace "
                       f"{place.namespace!r}")


def _on_object(place: Place, method: str, verb: str, name: Named, subresource: str | None, *,
               query: Iterable[tuple[str, str]] = (), body: bytes | None = None,
               content_type: str = JSON_TYPE) -> Request:
    try:
        named = object_name(place, name)
        path = place.path(named, subresource)
    except RequestError as error:
        raise RequestError(f"{place.words(verb, name, subresource)}: {error}") from None
    if place.namespace is None and place.resource.namespaced:
        raise RequestError(f"{place.words(verb, named, subresource)}: a namespace is required: "
                           "use Api.namespaced(client, kind, namespace)")
    return Request(method, path, verb, place.resource, "", place.namespace, named, tuple(query),
                   _headers(place, body, content_type, many=False), body, None, subresource)


def _on_kind(place: Place, method: str, verb: str, *, query: Iterable[tuple[str, str]], body: bytes | None = None,
             name: str | None = None, many: bool = False, retry: Retry | None = None) -> Request:
    return Request(method, place.path(), verb, place.resource, "", place.namespace, name, tuple(query),
                   _headers(place, body, JSON_TYPE, many=many and verb == "list"), body, retry)


def _headers(place: Place, body: bytes | None, content_type: str, *, many: bool) -> tuple[tuple[str, str], ...]:
    accept = (METADATA_LIST if many else METADATA) if place.metadata_only else JSON_TYPE
    return (("Accept", accept), ("Content-Type", content_type)) if body is not None else (("Accept", accept),)
