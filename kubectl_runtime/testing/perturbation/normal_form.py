"""Objects as they are compared: without what differs between any two clusters.

    uid, resourceVersion, generation, managedFields, creationTimestamp, selfLink    left out
    deletionTimestamp                      whether it is there
    observedGeneration                     whether it is the object's own generation
    a uid anywhere                         whose it is: `<uid of configmaps default/a>`, `<… an earlier …>`, `<uid>`
    a time anywhere                        `<time>`
    a name that the server generated       `prefix*`, also where another object mentions it
    conditions, owner references, finalizers    sorted: their order means nothing
"""
from __future__ import annotations

import re
from typing import Any

from kubectl_runtime.apiserver.storage.storage import Version
from kubectl_runtime.testing.perturbation.journal import PASSING, Identity, Journal, identity_of

_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)")
_DROPPED = ("uid", "resourceVersion", "generation", "managedFields", "creationTimestamp", "selfLink", "generateName",
            "deletionGracePeriodSeconds", "name", "namespace")
_SORTED = {"conditions": "type", "ownerReferences": "uid", "finalizers": ""}

State = tuple[int, dict[str, dict[str, Version]]]
"""What the storage dumps."""


class Forms:
    """What the objects of one run are called and look like in a comparison; `end` is the state at its end."""

    def __init__(self, journal: Journal, end: State) -> None:
        self._present = {version.uid for bucket in end[1].values() for version in bucket.values()}
        self._known = journal.known
        names = {identity[2]: f"{generated}*" for identity, generated in self._known.values() if generated}
        longest = sorted(names, key=len, reverse=True)
        self._generated = re.compile("|".join(map(re.escape, longest))) if names else None
        self._names = names
        self._cache: dict[int, Any] = {}
        self.objects: dict[Identity, list[Any]] = {}
        """The end, by what the objects are called; those of one generated name together, in a stable order."""
        for key, bucket in end[1].items():
            for version in bucket.values():
                identity = identity_of(key, version)
                if identity[0] not in PASSING:
                    self.objects.setdefault(self.name(identity), []).append(self.form(version))
        for forms in self.objects.values():
            forms.sort(key=repr)

    def name(self, identity: Identity) -> Identity:
        """What it is called in every run."""
        resource, namespace, name = identity
        return resource, self._text(namespace), self._text(name)

    def form(self, version: Version) -> Any:
        """How it is compared."""
        found = self._cache.get(id(version))
        if found is None:
            found = self._cache[id(version)] = self._of(version.decode())
        return found

    def _of(self, obj: dict[str, Any]) -> Any:
        metadata = dict(obj.pop("metadata", {}))
        generation = metadata.get("generation")
        deleting = metadata.pop("deletionTimestamp", None) is not None
        for name in _DROPPED:
            metadata.pop(name, None)
        form = self._value({"metadata": metadata, **obj}, generation)
        if deleting:
            form["metadata"]["deletionTimestamp"] = "<time>"
        return form

    def _value(self, value: Any, generation: Any) -> Any:
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, list):
            return [self._value(item, generation) for item in value]
        if not isinstance(value, dict):
            return value
        form: dict[str, Any] = {}
        for key, part in value.items():
            if key.endswith("esourceVersion"):
                continue
            if key == "observedGeneration":
                form[key] = "<current>" if part == generation else "<behind>"
                continue
            made = self._value(part, generation)
            if key in _SORTED and isinstance(made, list):
                by = _SORTED[key]
                made.sort(key=lambda item, by=by: repr(item.get(by)) if isinstance(item, dict)  # type: ignore[misc]
                          else repr(item))
            form[self._text(key)] = made
        return form

    def _text(self, text: str) -> str:
        if len(text) >= 20:  # no shorter one holds a time or a uid
            text = _TIME.sub("<time>", text)
            text = _UID.sub(lambda found: self._owner_of(found[0]), text)
        if self._generated is not None:
            text = self._generated.sub(lambda found: self._names[found[0]], text)
        return text

    def _owner_of(self, uid: str) -> str:
        if uid not in self._known:
            return "<uid>"
        (resource, namespace, name), generated = self._known[uid]
        place = "/".join(part for part in (namespace, f"{generated}*" if generated else name) if part)
        return f"<uid of {'' if uid in self._present else 'an earlier '}{resource} {place}>"


def shown(identity: Identity) -> str:
    """An object in words: `configmaps default/a`."""
    resource, namespace, name = identity
    return f"{resource} {namespace}/{name}" if namespace else f"{resource} {name}"


Path = tuple[str, ...]


def differing(one: Any, other: Any, path: Path = ()) -> list[tuple[Path, Any, Any]]:
    """Where two forms differ: the path, and what either has there (`MISSING` for nothing)."""
    if isinstance(one, dict) and isinstance(other, dict):
        keys = [*one, *(key for key in other if key not in one)]
        return [found for key in keys
                for found in differing(one.get(key, MISSING), other.get(key, MISSING), (*path, key))]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return [found for index, (left, right) in enumerate(zip(one, other, strict=True))
                for found in differing(left, right, (*path, str(index)))]
    return [] if _same(one, other) else [(path, one, other)]


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)


class _Missing:
    def __repr__(self) -> str:
        return "nothing"


MISSING = _Missing()
