"""Compares two runs of a story: finds the differences between their end states, and the first write that caused them.

The first diverging write is searched among the disturbed run's writes to objects whose end states differ. The search
follows the sequence of states that each of these objects had in the undisturbed run. A write diverges if the object's
new state does not occur in the rest of the sequence, or if the run has now created more objects of this name than the
undisturbed run. If no write diverges, the result is a missing write: the first write to one of these objects that only
the undisturbed run made.

Objects are compared without values that differ between any two clusters:

- uid, resourceVersion, generation, managedFields, creationTimestamp and selfLink are left out
- for deletionTimestamp only its presence is compared, for observedGeneration only whether it equals the generation
- a uid in any text becomes `<uid of configmaps default/a>`. For an object deleted before the end of the run it becomes
  `<uid of an earlier configmaps default/a>`, and for an unknown object `<uid>`
- a time anywhere becomes `<time>`, the ID of a container `<container>`
- a name that the server generated becomes `prefix*`, also where another object contains the name
- conditions, owner references and finalizers are sorted
- numbers and addresses that depend on the number of earlier rollouts are left out (`ROLLOUTS`), and so are the objects
  that store earlier rollouts (`HISTORY`), since a level-triggered controller may skip an intermediate state
"""
from __future__ import annotations

import re
from collections import Counter
from typing import Any

from kubectl_runtime.apiserver.storage import Version
from kubectl_runtime.core.codec.jsonbytes import MISSING, Path, differences
from kubectl_runtime.testing.lab.recordings import PASSING, Entry, Identity, Journal, identity_of

_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?")
_CONTAINER = re.compile(r"containerd://[0-9a-f]{64}")
_DROPPED = ("uid", "resourceVersion", "generation", "managedFields", "creationTimestamp", "selfLink", "generateName",
            "deletionGracePeriodSeconds", "name", "namespace")
_SORTED = {"conditions": "type", "ownerReferences": "uid", "finalizers": ""}

State = tuple[int, dict[str, dict[str, Version]]]
"""A dump of the server's storage."""


Ignored = tuple[tuple[str, ...], ...]
"""Paths of fields that are not compared, in objects of every kind."""

_REVISION = ("metadata", "annotations", "deployment.kubernetes.io/revision")
ROLLOUTS: dict[str, Ignored] = {
    "deployments.apps": (_REVISION,),
    "replicasets.apps": (_REVISION, ("metadata", "annotations", "deployment.kubernetes.io/revision-history")),
    "daemonsets.apps": (("metadata", "annotations", "deprecated.daemonset.template.generation"),),
    "pods": (("metadata", "labels", "pod-template-generation"), ("status", "podIP"), ("status", "podIPs")),
    "endpoints": (("subsets", "addresses", "ip"), ("subsets", "notReadyAddresses", "ip")),
    "endpointslices.discovery.k8s.io": (("endpoints", "addresses"),),
}
"""By kind, the fields whose values depend on the number of earlier rollouts."""

HISTORY = {"replicasets.apps": ("Deployment",), "controllerrevisions.apps": ("StatefulSet", "DaemonSet")}
"""Kinds whose objects store earlier rollouts of their owners, each with the kinds of these owners. A ReplicaSet with
replicas is in use, so it is compared."""


def _remove(value: Any, path: tuple[str, ...]) -> None:
    """Remove the value at `path`. If a value on the path is a list, the rest of the path applies to every item."""
    if isinstance(value, list):
        for item in value:
            _remove(item, path)
    elif isinstance(value, dict) and path:
        if len(path) == 1:
            value.pop(path[0], None)
        else:
            _remove(value.get(path[0]), path[1:])


def _is_history(resource: str, version: Version) -> bool:
    """Whether the object only stores an earlier rollout of its owner."""
    if not any(owner.get("kind") in HISTORY.get(resource, ()) for owner in version.owners):
        return False
    return not (version.decode().get("spec") or {}).get("replicas")


class Forms:
    """One run's objects, in a form that can be compared with other runs. `end` is the state at the end of the run."""

    def __init__(self, journal: Journal, end: State, ignored: Ignored = ()) -> None:
        self._ignored = ignored
        self._present = {version.uid for bucket in end[1].values() for version in bucket.values()}
        self._known = journal.known
        names = {identity[2]: f"{generated}*" for identity, generated in self._known.values() if generated}
        longest = sorted(names, key=len, reverse=True)
        self._generated = re.compile("|".join(map(re.escape, longest))) if names else None
        self._names = names
        self._cache: dict[int, Any] = {}
        self.objects: dict[Identity, list[Any]] = {}
        """The end state by comparable name. All objects with one generated name are in one list, in a stable order."""
        for key, bucket in end[1].items():
            for version in bucket.values():
                identity = identity_of(key, version)
                if identity[0] not in PASSING and not _is_history(identity[0], version):
                    self.objects.setdefault(self.name(identity), []).append(self.form(identity[0], version))
        for forms in self.objects.values():
            forms.sort(key=repr)

    def name(self, identity: Identity) -> Identity:
        """The object's identity in a form that is the same in every run."""
        resource, namespace, name = identity
        return resource, self._text(namespace), self._text(name)

    def form(self, resource: str, version: Version) -> Any:
        """The comparable form of an object of the kind `resource`."""
        found = self._cache.get(id(version))
        if found is None:
            found = self._cache[id(version)] = self._of(version.decode(), (*self._ignored, *ROLLOUTS.get(resource, ())))
        return found

    def _of(self, obj: dict[str, Any], ignored: Ignored) -> Any:
        metadata = dict(obj.pop("metadata", {}))
        generation = metadata.get("generation")
        deleting = metadata.pop("deletionTimestamp", None) is not None
        for name in _DROPPED:
            metadata.pop(name, None)
        for path in ignored:
            _remove(obj if path[0] != "metadata" else metadata, path if path[0] != "metadata" else path[1:])
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
        if len(text) >= 19:  # a shorter text cannot contain a time or a uid
            text = _TIME.sub("<time>", text)
            text = _UID.sub(lambda found: self._owner_of(found[0]), text)
            text = _CONTAINER.sub("<container>", text)
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
    """The object as text: `configmaps default/a`."""
    resource, namespace, name = identity
    return f"{resource} {namespace}/{name}" if namespace else f"{resource} {name}"


LONGEST = 120
"""The maximum number of characters that are shown of a value."""

Mask = frozenset[tuple[Identity, Path]]
"""The fields whose values are random, so that they differ between any two runs."""


class Outcome:
    """A finished run, in comparable form."""

    def __init__(self, journal: Journal, end: State, ignored: Ignored = ()) -> None:
        self.journal = journal
        self.forms = Forms(journal, end, ignored)

    @property
    def objects(self) -> dict[Identity, list[Any]]:
        """The objects of the run, in comparable form, by identity."""
        return self.forms.objects

    def states(self, entry: Entry) -> list[tuple[Identity, Any]]:
        """The objects that a write changed: for each, its comparable name and form; the form is None for a deleted
        object."""
        return [(self.forms.name(identity), None if version is None else self.forms.form(identity[0], version))
                for identity, version in entry.made]


def random_places(one: Outcome, other: Outcome) -> Mask:
    """The fields in which two undisturbed runs differ. Raises ValueError if the runs end with different objects."""
    counts = {name: (len(one.objects.get(name, [])), len(other.objects.get(name, [])))
              for name in {*one.objects, *other.objects}}
    different = sorted(shown(name) for name, (left, right) in counts.items() if left != right)
    if different:
        raise ValueError("two undisturbed runs of the story end with different objects, so there is nothing to compare "
                         f"with: {', '.join(different[:10])}")
    return frozenset((name, path) for name in one.objects
                     for left, right in zip(one.objects[name], other.objects[name], strict=True)
                     for path, _, _ in differences(left, right))


def difference(plain: Outcome, disturbed: Outcome, mask: Mask) -> dict[Identity, list[str]]:
    """By object, the lines that describe how the two end states differ; empty if the states are equal."""
    found: dict[Identity, list[str]] = {}
    for name in [*plain.objects, *(name for name in disturbed.objects if name not in plain.objects)]:
        before, after = plain.objects.get(name, []), disturbed.objects.get(name, [])
        lines = _of_one(name, before, after, mask)
        if lines:
            found[name] = lines
    return found


def _of_one(name: Identity, before: list[Any], after: list[Any], mask: Mask) -> list[str]:
    if len(before) != len(after):
        if not after:
            return [f"{shown(name)} is missing"]
        if not before:
            return [f"{shown(name)} is there and should not be"]
        return [f"{shown(name)}: there are {len(after)}, not {len(before)}"]
    return [f"{shown(name)}: {'.'.join(map(str, path))} {_is_not(name, path, there, wanted)}"
            for one, other in zip(before, after, strict=True) for path, wanted, there in differences(one, other)
            if (name, path) not in mask]


def _is_not(name: Identity, path: Path, there: Any, wanted: Any) -> str:
    """Describe the difference of two values. The values of a Secret are not shown."""
    if name[0] == "secrets" and path[:1] in (("data",), ("stringData",)):
        return "is missing" if there is MISSING else "should be missing" if wanted is MISSING else "has another value"
    return f"is {_short(there)}, not {_short(wanted)}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def first_diverging(plain: Outcome, disturbed: Outcome, differ: set[Identity], mask: Mask) -> str:
    """The first diverging write as text; see the module's docstring."""
    way = {name: _way(plain, name, mask) for name in differ}
    births = Counter(plain.forms.name(identity) for identity, _ in plain.journal.known.values())
    born: dict[Identity, set[str]] = {}
    reached = dict.fromkeys(differ, 0)
    for entry in disturbed.journal.entries:
        for (_, version), (name, form) in zip(entry.made, disturbed.states(entry), strict=True):
            if name not in differ:
                continue
            uids = born.setdefault(name, set())
            if version is not None:
                uids.add(version.uid)
            on = next((place for place in range(max(0, reached[name] - 1), len(way[name]))
                       if _alike(form, way[name][place][0], name, mask)), None)
            if on is None or len(uids) > births[name]:
                return str(entry)
            reached[name] = on + 1
    missing = [way[name][reached[name]][1] for name in differ if reached[name] < len(way[name])]
    if missing:
        return f"never made: {min(missing, key=plain.journal.entries.index)}"
    return "none: no write made the difference"


def _way(run: Outcome, name: Identity, mask: Mask) -> list[tuple[Any, Entry]]:
    """An object's states in order, each with the write that produced it."""
    found: list[tuple[Any, Entry]] = []
    for entry in run.journal.entries:
        for there, form in run.states(entry):
            if there == name and not (found and _alike(found[-1][0], form, name, mask)):
                found.append((form, entry))
    return found


def _alike(one: Any, other: Any, name: Identity, mask: Mask) -> bool:
    if one is None or other is None:
        return one is other
    return all((name, path) in mask for path, _, _ in differences(one, other))
