"""Whatever a write is given (dict, resource object, official model) as the bytes that are sent.

A body always says its apiVersion and kind; what it says must be what the request is about.

The four kinds of patch, each with its content type.
"""
from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

import msgspec

from kubectl_runtime.core.base.errors import PartialObjectError, RequestError
from kubectl_runtime.core.codec.jsonbytes import identified
from kubectl_runtime.core.meta.gvk import ApiResource
from kubectl_runtime.core.meta.models import from_model, is_model
from kubectl_runtime.core.objects.partial import DynamicObject, is_partial
from kubectl_runtime.core.objects.resource import Resource

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
JSON = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


class Patch(msgspec.Struct, frozen=True):
    """A patch and how the server is to read it: made by `Patch.apply`, `Patch.merge`, `Patch.json` and
    `Patch.strategic`.

    >>> maps = Api.namespaced(client, ConfigMap, "default")
    >>> maps.patch("settings", Patch.merge({"data": {"color": "red"}})).data["color"]
    'red'
    >>> maps.patch("settings", Patch.json([{"op": "remove", "path": pointer("data", "color")}])).data
    {}
    """

    content_type: str
    body: Any

    @classmethod
    def apply(cls, body: Any) -> Patch:
        """A server-side apply: the fields that the manager wants, as a dict, a resource object or an official model."""
        return cls(APPLY, body)

    @classmethod
    def merge(cls, body: Any) -> Patch:
        """A JSON merge patch (RFC 7386): maps merge, null removes, lists are replaced whole. Raises RequestError for a
        body that is text or a list, which would take the place of the whole object."""
        return cls(MERGE, _map_like(body, "merge"))

    @classmethod
    def json(cls, operations: Sequence[Mapping[str, Any]]) -> Patch:
        """A JSON patch (RFC 6902): a list of operations, done all or none; `test` guards. Raises RequestError for
        anything else."""
        if isinstance(operations, str | bytes | Mapping) or not isinstance(operations, Sequence):
            raise RequestError("a JSON patch is a list of operations such as {'op': 'add', 'path': '/a', 'value': 1}")
        return cls(JSON, list(operations))

    @classmethod
    def strategic(cls, body: Any) -> Patch:
        """A strategic merge patch: lists merge by the keys of the built-in schemas; not for custom resources. Raises
        RequestError as `merge`."""
        return cls(STRATEGIC, _map_like(body, "strategic merge"))

    @property
    def is_apply(self) -> bool:
        """Whether it is a server-side apply."""
        return self.content_type == APPLY

    def __repr__(self) -> str:
        return f"<Patch {self.content_type}>"


def _map_like(body: Any, kind: str) -> Any:
    if body is None or isinstance(body, str | bytes | int | float | list | tuple):
        raise RequestError(f"a {kind} patch is a map such as {{'metadata': {{'labels': {{...}}}}}}, or an object, not "
                           f"{type(body).__name__}")
    return body


def pointer(*segments: str | int) -> str:
    """A JSON pointer (RFC 6901), escaped: `pointer("metadata", "labels", "a/b")` is `/metadata/labels/a~1b`.

    >>> pointer("metadata", "labels", "a/b")
    '/metadata/labels/a~1b'
    """
    return "".join("/" + str(segment).replace("~", "~0").replace("/", "~1") for segment in segments)


K = TypeVar("K")


class Model(Protocol):
    """A model of the official client, by what it says of itself."""

    openapi_types: Any
    attribute_map: Any

    def to_dict(self) -> Any:
        """The model as a dict under Python's names."""


Body: TypeAlias = K | DynamicObject | Mapping[str, Any] | Model
"""What writes of a kind `K` take: an object of it, typed or dynamic, a dict, or an official model."""

_MODEL = r"V\d+(?:(?:alpha|beta)\d+)?([A-Z]\w*)"


def plain_body(body: Any, *, defaults: bool = True) -> dict[str, Any]:
    """`body` as plain JSON values under the wire's keys, at the top a dict of its own. Raises RequestError for anything
    but a dict, a resource object or a model. Without `defaults` a resource object that was made here leaves out what
    equals its class's default."""
    if isinstance(body, Resource):
        return body.to_dict(defaults=defaults)
    if isinstance(body, Mapping):
        return dict(body)
    if is_model(body):
        found: dict[str, Any] = from_model(body)
        return found
    converted = body.to_dict() if hasattr(body, "to_dict") and not isinstance(body, type) else None
    if isinstance(converted, Mapping):
        return dict(converted)
    raise RequestError(f"{type(body).__name__} is not an object: "
                       "pass a resource object, a dict, or a model of the official client")


def object_body(body: Any, resource: ApiResource, *, defaults: bool = True) -> dict[str, Any]:
    """`body` as an object of `resource`. Raises RequestError when it says that it is of another kind."""
    _check_model(body, resource)
    content = identified_as(plain_body(body, defaults=defaults), resource)
    metadata = content.get("metadata")
    if metadata is not None and not isinstance(metadata, Mapping):
        raise RequestError(f"the body is a {resource.kind} whose metadata is not a map such as {{'name': 'a'}}")
    return content


def whole_body(body: Any, resource: ApiResource) -> dict[str, Any]:
    """As `object_body`, for `replace`: raises PartialObjectError for an object of which only a part is held."""
    if is_partial(body):
        raise PartialObjectError(f"replace {resource.kind} {body.name}: only a part of the object is held, which "
                                 "cannot replace the whole: use patch or apply, or get the whole object first")
    return object_body(body, resource)


def identified_as(content: dict[str, Any], resource: ApiResource) -> dict[str, Any]:
    """`content` with apiVersion and kind, which are filled in when absent and must otherwise agree."""
    kind, api_version = content.get("kind"), content.get("apiVersion")
    if kind == "PartialObjectMetadata":
        return identified(content, resource)
    if kind and kind != resource.kind:
        raise RequestError(f"the body is a {kind}, but the request is for a {resource.kind}")
    if api_version and api_version != resource.api_version:
        raise RequestError(f"the body's apiVersion is {api_version}, but the request is for {resource.kind} "
                           f"in {resource.api_version}")
    return identified(content, resource)


def patch_body(patch: Patch, resource: ApiResource) -> Any:
    """What a merge, strategic or JSON patch carries, as plain JSON values."""
    if patch.content_type == JSON:
        return patch.body
    content = plain_body(patch.body)
    if isinstance(patch.body, Resource):
        identified_as(content, resource)
    return content


def apply_body(body: Any, resource: ApiResource, name: str | None, namespace: str | None, *,
               defaults: bool = False) -> dict[str, Any]:
    """An object as server-side apply takes it: identified, and without what belongs to the server. `name` None: its
    own.

    managedFields must not be sent; a received object's uid and resourceVersion would only guard against its having
    changed, and an apply means the fields, whatever the version.
    """
    content = object_body(body, resource, defaults=defaults)
    held = content.get("metadata") or {}
    metadata = {key: value for key, value in held.items() if key not in _SERVERS_OWN}
    if name is None:
        name = held.get("name") or ""
    for key, wanted in (("name", name), ("namespace", namespace)):
        said = metadata.get(key)
        if said and said != wanted:
            raise RequestError(f"apply {resource.full_name} {name}: the body's {key} is {said!r}, not {wanted!r}")
        if wanted is not None:
            metadata[key] = wanted
    content["metadata"] = metadata
    return content


def _check_model(body: Any, resource: ApiResource) -> None:
    """Models of the official client do not say their kind unless told to; their class does."""
    cls = type(body)
    found = re.fullmatch(_MODEL, cls.__name__) if cls.__module__.startswith("kubernetes.") else None
    if found is not None and found[1] != resource.kind:
        raise RequestError(f"the body is a {cls.__name__}, but the request is for a {resource.kind}")


_SERVERS_OWN = frozenset((
    "managedFields", "resourceVersion", "uid", "generation", "creationTimestamp", "deletionTimestamp",
    "deletionGracePeriodSeconds", "selfLink", "generateName"))
