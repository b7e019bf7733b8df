"""Lists of type set and map (``x-kubernetes-list-type``): no item, or no key, is there twice.

The real server looks at this apart from the other keywords, and names the keys of maps in brackets here:
``spec.ports[web][1]``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from kubectl_runtime.schema import causes
from kubectl_runtime.schema.causes import Cause

Node = Mapping[str, Any]


def list_type_causes(value: Any, node: Node, path: str = "") -> Iterator[Cause]:
    """What is there twice in the lists of a value, each once."""
    if isinstance(value, dict):
        properties, extra = node.get("properties") or {}, node.get("additionalProperties")
        for name, child in value.items():
            if isinstance(extra, Mapping):
                yield from list_type_causes(child, extra, f"{path}[{name}]")
            if name in properties:
                yield from list_type_causes(child, properties[name], f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        if node.get("x-kubernetes-list-type") in ("set", "map"):
            yield from _repeated(value, node, path)
        if isinstance(items := node.get("items"), Mapping):
            for index, item in enumerate(value):
                yield from list_type_causes(item, items, f"{path}[{index}]")


def breaks_list_type(items: list[Any], node: Node) -> bool:
    """Whether something is there twice in a list itself, not in what is below it."""
    return next(_repeated(items, node, ""), None) is not None


def _repeated(items: list[Any], node: Node, path: str) -> Iterator[Cause]:
    is_map = node["x-kubernetes-list-type"] == "map"
    keys = node.get("x-kubernetes-list-map-keys") or ()
    if is_map:
        wrong = next((index for index, item in enumerate(items) if not isinstance(item, dict | None)), None)
        if wrong is not None:
            yield causes.invalid_value(f"{path}[{wrong}]", items[wrong],
                                       "must be an object for an array of list-type map")
            return
    seen: dict[str, int] = {}
    for index, item in enumerate(items):
        shown = {key: item[key] for key in keys if key in (item or ())} if is_map else item
        identity = json.dumps(shown, sort_keys=True)
        seen[identity] = seen.get(identity, 0) + 1
        if seen[identity] == 2:  # a third one is not told again
            yield causes.duplicate(f"{path}[{index}]", shown)
