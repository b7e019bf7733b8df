"""The difference between what is on the server and what would be, as a unified diff of YAML: kubectl's `diff`.

Left out is what the server alone writes: managedFields, uid, resourceVersion, generation, creationTimestamp, selfLink,
and the status of kinds that have a subresource for it. Values of Secrets, and annotations in which kubectl keeps a copy
of them, are stars, as kubectl has it: `***`, or `*** (before)` and `*** (after)` where they differ.
"""
from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from kubectl_runtime.core.codec.jsonvalues import equal_json
from kubectl_runtime.manifests.writer import to_yaml

_SERVERS_OWN = frozenset(("managedFields", "uid", "resourceVersion", "generation", "creationTimestamp", "selfLink"))
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_STARS, _BEFORE, _AFTER = "***", "*** (before)", "*** (after)"


def comparable(content: Mapping[str, Any], *, status: bool) -> dict[str, Any]:
    """An object without what the server alone writes. `status`: whether the status is that."""
    kept = {key: value for key, value in content.items() if not (status and key == "status")}
    metadata = content.get("metadata")
    if isinstance(metadata, Mapping):
        kept["metadata"] = {key: value for key, value in metadata.items() if key not in _SERVERS_OWN}
    return kept


def difference(name: str, before: Mapping[str, Any] | None, after: Mapping[str, Any], *, checked: bool = True) -> str:
    """A unified diff of two comparable forms of the object called `name`; empty when they are alike. `before` is None
    when there is none; `after` says where the server has not `checked` it."""
    if equal_json(before, after):
        return ""
    if after.get("kind") == "Secret" and after.get("apiVersion") == "v1":
        before, after = _withheld(before, after), _withheld(after, before, mark=_AFTER)
    lines = difflib.unified_diff(_lines(before), _lines(after), f"live: {name}",
                                 f"applied: {name}" if checked else f"applied, unchecked: {name}")
    return "".join(lines)


def _lines(content: Mapping[str, Any] | None) -> list[str]:
    return [] if content is None else to_yaml(content).splitlines(keepends=True)


def _withheld(content: Any, other: Any, *, mark: str = _BEFORE) -> Any:
    """A Secret with stars for its values."""
    if content is None:
        return None
    hidden = dict(content)
    for part in ("data", "stringData"):
        if part in hidden:
            hidden[part] = _starred(hidden[part], _part(other, part), mark)
    metadata = hidden.get("metadata")
    if isinstance(metadata, Mapping) and isinstance(annotations := metadata.get("annotations"), Mapping):
        copies = {key: value for key, value in annotations.items() if key == _LAST_APPLIED}
        there = _part(_part(other, "metadata"), "annotations")
        starred = _starred(copies, there, mark) if copies else {}
        hidden["metadata"] = {**metadata, "annotations": {**annotations, **starred}}
    return hidden


def _starred(values: Any, other: Any, mark: str) -> Any:
    if not isinstance(values, Mapping):
        return mark
    there = other if isinstance(other, Mapping) else {}
    return {key: mark if key in there and there[key] != value else _STARS for key, value in values.items()}


def _part(content: Any, key: str) -> Any:
    return content.get(key) if isinstance(content, Mapping) else None
