"""Documents to Kubernetes objects: a List gives its items one by one, in order, and a list in a list likewise.

Items of a typed list (``PodList``) may leave out apiVersion and kind. ``items: null`` is an empty list. kubectl takes
every object with ``items`` for a list; here its kind has to end with List, so that a custom resource may have such a
field.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubectl_runtime.manifests.problems import ManifestError

Object = dict[str, Any]


def objects_of(value: Any, place: str) -> Iterator[tuple[Object, str]]:
    """The objects in a document, each with where it stands; `place` is the document's. Raises `ManifestError` for what
    is not an object."""
    if not isinstance(value, dict):
        raise ManifestError(place, f"there is {_article(value)} where a Kubernetes object is expected")
    kind = value.get("kind")
    if not (isinstance(kind, str) and kind.endswith("List") and "items" in value):
        yield value, place
        return
    items = value["items"]
    if not isinstance(items, list | None):
        raise ManifestError(place, f"items of {kind} is {_article(items)} and no list")
    item_kind = kind.removesuffix("List")
    typed = {"apiVersion": value.get("apiVersion"), "kind": item_kind} if item_kind else {}
    for number, item in enumerate(items or (), 1):
        yield from objects_of({**typed, **item} if isinstance(item, dict) else item, f"{place}, item {number}")


def _article(value: Any) -> str:
    if value is None:
        return "null"
    names = {str: "a text", bool: "a boolean", int: "a number", float: "a number", list: "a list", dict: "a mapping"}
    return names.get(type(value), f"a {type(value).__name__}")
