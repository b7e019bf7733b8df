"""Which of the names that a CustomResourceDefinition asks for it gets: those that no other one of its group has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Object = dict[str, Any]

_RESOURCES, _KINDS = ("plural", "singular"), ("kind", "listKind")
_REASONS = {"plural": "PluralConflict", "singular": "SingularConflict", "kind": "KindConflict",
            "listKind": "ListKindConflict"}
ACCEPTED = ("True", "NoConflicts", "no conflicts found")


def accept(crd: Object, group: Iterable[Object]) -> tuple[Object, tuple[str, str, str]]:
    """(the names accepted now, status, reason and message of the condition NamesAccepted).

    `group` are the CRDs of the same group, this one among them. A name that is taken stays as it was accepted before;
    of several conflicts the last one is told.
    """
    wanted, before = crd["spec"]["names"], (crd.get("status") or {}).get("acceptedNames") or {}
    taken = [(other.get("status") or {}).get("acceptedNames") or {} for other in group]
    resources = {name for names in taken for name in (*(names.get(key) for key in _RESOURCES),
                                                      *(names.get("shortNames") or ()))}
    kinds = {names.get(key) for names in taken for key in _KINDS}
    names, told = dict(before), ACCEPTED
    for key in _RESOURCES:
        told = _take(names, wanted, key, resources) or told
    told = _take_short_names(names, wanted, resources) or told
    for key in _KINDS:
        told = _take(names, wanted, key, kinds) or told
    _put(names, "categories", wanted.get("categories"))
    return names, told


def _take(names: Object, wanted: Object, key: str, used: set[Any]) -> tuple[str, str, str] | None:
    name = wanted.get(key) or ""
    if name != (names.get(key) or "") and name in used:
        return "False", _REASONS[key], f'"{name}" is already in use'
    _put(names, key, name)
    return None


def _take_short_names(names: Object, wanted: Object, used: set[Any]) -> tuple[str, str, str] | None:
    own, asked = names.get("shortNames") or [], wanted.get("shortNames") or []
    clashes = list(dict.fromkeys(f'"{name}" is already in use' for name in asked if name not in own and name in used))
    if clashes:
        return "False", "ShortNamesConflict", clashes[0] if len(clashes) == 1 else f"[{', '.join(clashes)}]"
    _put(names, "shortNames", asked)
    return None


def _put(names: Object, key: str, value: Any) -> None:
    if value:
        names[key] = value
    else:
        names.pop(key, None)
