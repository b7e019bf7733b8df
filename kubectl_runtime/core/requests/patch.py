"""The four kinds of patch, each with its content type."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from kubectl_runtime.core.base.errors import RequestError

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
