"""`losses(old, new)`: what a new CustomResourceDefinition removes from the old definition of the same kind.

Losses are removed versions, removed subresources, narrower schemas, and downgrades. A schema is narrower when it
refuses a value that the old schema accepted, or prunes a field that the old schema kept. Whether a changed rule,
pattern or similar constraint is narrower cannot be decided in general, so each new or changed constraint counts as a
loss.
"""
from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from kubectl_runtime.crd.models import plain

Node = Mapping[str, Any]

_STAGES = {"alpha": 0, "beta": 1, "": 2}
_UPPER = {"maximum": "exclusiveMaximum", "maxLength": "", "maxItems": "", "maxProperties": ""}
_LOWER = {"minimum": "exclusiveMinimum", "minLength": "", "minItems": "", "minProperties": ""}
_PRESERVE, _INT_OR_STRING = "x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string"
_LIST_TYPE, _MAP_KEYS = "x-kubernetes-list-type", "x-kubernetes-list-map-keys"
_RULES, _EMBEDDED = "x-kubernetes-validations", "x-kubernetes-embedded-resource"
_RESOURCE_FIELDS = frozenset({"apiVersion", "kind", "metadata"})


@dataclass(frozen=True, slots=True)
class Loss:
    """One thing that the new definition removes.

    `kind`: "downgrade" (the old definition is newer), "stored version" (objects are stored in a removed version),
    "version" (no longer served), "subresource" or "schema". `path` names the place of the loss, such as
    `spec.versions[v1].spec.color`.
    """

    kind: Literal["downgrade", "stored version", "version", "subresource", "schema"]
    path: str
    problem: str

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


def losses(old: Node, new: Node) -> list[Loss]:
    """Return what `new` removes from `old`. Both are whole CustomResourceDefinitions of one kind; `old` must be the
    server's copy, including its status. A pure function."""
    before, after = _versions(old), _versions(new)
    stored = (old.get("status") or {}).get("storedVersions") or [name for name in before if before[name].get("storage")]
    found = list(_downgrades(before, after))
    for name, version in before.items():
        at = f"spec.versions[{name}]"
        if name not in after:
            if name in stored:
                found.append(Loss("stored version", at, "is gone, but objects are stored in it: keep it, write every "
                                  "object again, and take it out of status.storedVersions first"))
            elif version.get("served"):
                found.append(Loss("version", at, "is gone, and was served"))
            continue
        if version.get("served") and not after[name].get("served"):
            found.append(Loss("version", at, "is no longer served"))
        kept = after[name].get("subresources") or {}
        found += [Loss("subresource", f"{at}.subresources.{subresource}", "is gone")
                  for subresource in version.get("subresources") or {} if subresource not in kept]
        found += [Loss("schema", f"{at}{path}", problem)
                  for path, problem in _narrowed(_schema(version), _schema(after[name]), "")]
    return found


def _versions(crd: Node) -> dict[str, Node]:
    return {version["name"]: version for version in crd["spec"].get("versions") or ()}


def _schema(version: Node) -> Node:
    found: Node = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    return found


def _age(version: str) -> tuple[int, int, int] | None:
    """The sort key of a version name: v1alpha1 < v1beta1 < v1 < v2alpha1. None for other names."""
    parts = re.fullmatch(r"v(\d+)(?:(alpha|beta)(\d+))?", version)
    return (int(parts[1]), _STAGES[parts[2] or ""], int(parts[3] or 0)) if parts else None


def _downgrades(before: Mapping[str, Node], after: Mapping[str, Node]) -> Iterator[Loss]:
    newest, ours = _newest(before), _newest(after)
    if newest and ours and newest[0] > ours[0]:
        yield Loss("downgrade", "spec.versions",
                   f"{newest[1]} exists, but the newest version of the new definition is {ours[1]}")
    stored, wanted = (_newest({name: version for name, version in versions.items() if version.get("storage")})
                      for versions in (before, after))
    if stored and wanted and stored[0] > wanted[0]:
        yield Loss("downgrade", "spec.versions", f"objects are stored as {stored[1]}, and would be as {wanted[1]}")


def _newest(versions: Mapping[str, Node]) -> tuple[tuple[int, int, int], str] | None:
    return max(((age, name) for name in versions if (age := _age(name)) is not None), default=None)


# --- schemas ----------------------------------------------------------------------------------------------------------


def _narrowed(old: Node, new: Node, path: str) -> Iterator[tuple[str, str]]:
    old, new = plain(old), plain(new)
    if not new or (new.get(_PRESERVE) and not new.get("type") and not new.get("properties")):
        return  # the new schema accepts everything
    if told := _other_type(old, new):
        yield path, told
        return
    if old.get("nullable") and not new.get("nullable"):
        yield path, "null is no longer accepted"
    if new.get(_EMBEDDED) and not old.get(_EMBEDDED):
        yield path, "it must now be a whole object, with apiVersion and kind"
    yield from ((path, told) for told in _limits(old, new))
    yield from _fields(old, new, path)
    if isinstance(items := old.get("items"), Mapping) and isinstance(new.get("items"), Mapping):
        yield from _narrowed(items, new["items"], f"{path}[]")


def _other_type(old: Node, new: Node) -> str:
    before, after = _type(old), _type(new)
    wider = after == "" or (before, after) == ("integer", "number") or (
        after == "int-or-string" and before in ("integer", "string"))
    if before == after or wider:
        return ""
    return f"the type is {after}, and was {before}" if before else f"the type is {after}, and was not given"


def _type(node: Node) -> str:
    return "int-or-string" if node.get(_INT_OR_STRING) else str(node.get("type") or "")


def _limits(old: Node, new: Node) -> Iterator[str]:
    if "enum" in new:
        taken = new["enum"]
        gone = [value for value in old["enum"] if value not in (*taken, None)] if "enum" in old else None
        if gone is None:
            yield f"only {_listed(taken)} are accepted now"
        elif gone:
            yield f"{_listed(gone)} {'is' if len(gone) == 1 else 'are'} no longer accepted"
    for limits, sign in ((_UPPER, 1), (_LOWER, -1)):
        for key, exclusive in limits.items():
            if (limit := new.get(key)) is None:
                continue
            known, strict, was_strict = old.get(key), bool(new.get(exclusive)), bool(old.get(exclusive))
            if known is None or (limit - known) * sign < 0 or (limit == known and strict and not was_strict):
                was = "none" if known is None else known
                yield f"{key} is {limit}{', exclusive' if strict else ''}, and was {was}"
    for key in ("pattern", "format", "multipleOf"):
        if new.get(key) and new[key] != old.get(key):
            yield f"{key} is {json.dumps(new[key])}, and was {json.dumps(old[key]) if old.get(key) else 'none'}"
    for key in ("allOf", "anyOf", "oneOf", "not"):
        if new.get(key) and new[key] != old.get(key) and not new.get(_INT_OR_STRING):
            yield f"{key} is {'different' if old.get(key) else 'new'}, and may refuse what was accepted"
    if new.get(_LIST_TYPE) in ("set", "map") and any(new.get(key) != old.get(key) for key in (_LIST_TYPE, _MAP_KEYS)):
        keys = f" by {', '.join(new[_MAP_KEYS])}" if new.get(_MAP_KEYS) else ""
        yield f"the list is a {new[_LIST_TYPE]} now, so its items must be unique{keys}"
    known_rules = {rule.get("rule") for rule in old.get(_RULES) or ()}
    yield from (f"the rule {json.dumps(rule['rule'])} is new" for rule in new.get(_RULES) or ()
                if rule.get("rule") not in known_rules)


def _listed(values: list[Any]) -> str:
    return ", ".join(json.dumps(value, ensure_ascii=False) for value in values)


def _fields(old: Node, new: Node, path: str) -> Iterator[tuple[str, str]]:
    known, declared = old.get("properties") or {}, new.get("properties") or {}
    extra, preserved = new.get("additionalProperties"), bool(new.get(_PRESERVE))
    yield from ((f"{path}.{name}", "is required now") for name in new.get("required") or ()
                if name not in (old.get("required") or ()) and "default" not in declared.get(name, {}))
    free = {} if old.get(_PRESERVE) else old.get("additionalProperties")
    if isinstance(free, Mapping):  # `old` allows undeclared keys: check those that `new` declares
        for name in declared.keys() - known.keys():
            yield from _narrowed(free, declared[name], f"{path}.{name}")
    for name, child in known.items():
        below = declared.get(name, extra)
        if isinstance(below, Mapping):
            yield from _narrowed(child, below, f"{path}.{name}")
        elif not (below or preserved or (not path and name in _RESOURCE_FIELDS)):
            yield f"{path}.{name}", "is gone: it is pruned from every object that is written"
    if old.get("additionalProperties") and not preserved and extra is not True:
        if isinstance(free, Mapping) and isinstance(extra, Mapping):
            yield from _narrowed(free, extra, f"{path}[*]")
        elif not isinstance(extra, Mapping):
            yield path, "undeclared keys are pruned now"
    if old.get(_PRESERVE) and not preserved and new.get("type") != "array":
        yield path, "unknown fields are pruned now"
