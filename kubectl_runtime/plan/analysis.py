"""Turns the observed run of a program into a `Plan`: the program's changes and their consequences.

A change is an object that is created, changed or deleted by a run of a reconciler, by the program's definitions (its
CRDs and webhook configurations), or by the given manifests. Changes are listed in the order in which the program first
wrote the objects. If the cluster's own controllers then create or delete objects, this is shown as text under the
change of their owner. Actions of the cluster that the program did not cause are left out.

Two states of an object are equal if they differ only in fields that only the server writes (see
`kubectl_runtime.kubectl.apply`), in times in the status, and in observedGeneration. The status of built-in kinds is
written by the cluster and is not compared.
"""
from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kubectl_runtime.apiserver.storage import Version
from kubectl_runtime.core.codec.jsonbytes import equal_json
from kubectl_runtime.core.meta.gvk import ApiResource, ObjectRef
from kubectl_runtime.kubectl.apply import comparable, difference
from kubectl_runtime.plan.report import STARS, Change, FieldChange, Hidden, Plan, Problem
from kubectl_runtime.plan.stored import Object, StoredSnapshot
from kubectl_runtime.runtime.logs import said
from kubectl_runtime.testing.lab.recordings import Identity

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)")
_NO_CONTROLLER = {"horizontalpodautoscalers.autoscaling": "HorizontalPodAutoscaler",
                  "ingresses.networking.k8s.io": "Ingress"}
"""Built-in kinds whose controllers the simulated server does not have."""
_TEMPLATES = {"deployments.apps", "statefulsets.apps", "daemonsets.apps"}
_KEYS = ("name", "type", "key", "uid", "containerPort", "port", "mountPath", "ip", "topologyKey")
"""The fields that may identify the items of a list, in the order in which they are tried."""


@dataclass(frozen=True)
class Run:
    """One run of a reconciler: the controller's name and the object."""

    controller: str
    ref: ObjectRef | None

    def __str__(self) -> str:
        return f"{self.controller}, for {said(self.ref)}" if self.ref is not None else self.controller


@dataclass
class Step:
    """One change of the simulated cluster. `by`: the author, which is a run, `definitions`, `change`, or None for the
    cluster."""

    identity: Identity
    by: Run | str | None
    before: Version | None
    after: Version | None
    at: float
    text: str = ""


@dataclass
class Observed:
    """Everything that was observed while the program ran, for the report."""

    before: dict[Identity, Version] = field(default_factory=dict)
    after: dict[Identity, Version] = field(default_factory=dict)
    converted: dict[Identity, Object] = field(default_factory=dict)
    """For objects whose stored version has changed: the state in `before`, converted to the version stored at the
    end."""
    steps: list[Step] = field(default_factory=list)
    kinds: dict[str, ApiResource] = field(default_factory=dict)
    """The kinds by `plural.group`."""
    custom: set[str] = field(default_factory=set)
    """The kinds that have a CustomResourceDefinition."""
    run: set[str] = field(default_factory=set)
    """The kinds that the program reconciles."""
    managers: set[str] = field(default_factory=set)
    """The field managers under which the program writes."""
    failed: list[Problem] = field(default_factory=list)
    unknown: list[Problem] = field(default_factory=list)
    loops: list[Problem] = field(default_factory=list)
    definitions: list[Problem] = field(default_factory=list)
    not_simulated: list[str] = field(default_factory=list)
    took: float = 0.0
    runs: int = 0
    turned_away: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Objects that the cluster's controllers could not create, by the owner's uid: the kind of the object, and the
    reason."""
    secrets: set[str] = field(default_factory=set)
    """Secret values, which must not appear in any text."""
    asked: set[tuple[str, str, str, str]] = field(default_factory=set)
    """The kinds that the program requested: group, version, plural and namespace ("" for all namespaces)."""


_FROM_DIGESTS = "computed from redacted values, so that it is unknown whether it changes"


class _Absent:
    def __repr__(self) -> str:
        return "nothing"


ABSENT = _Absent()


def moved(before: Version | None, after: Version | None) -> bool:
    """Whether two stored states of an object differ in a field that is compared."""
    if before is None or after is None:
        return before is not after
    return before.tail != after.tail and bool(differences(before.decode(), after.decode(), status=True))


def form(obj: Object, *, status: bool) -> Object:
    """The object without the fields that are not compared. `status`: whether the status is compared."""
    found = comparable(obj, status=not status)
    found.pop("apiVersion", None)
    found.pop("kind", None)
    metadata = found.get("metadata")
    if isinstance(metadata, dict):
        for key in ("deletionGracePeriodSeconds", "deletionTimestamp"):
            if key in metadata:
                metadata[key] = "set"
    if isinstance(state := found.get("status"), Mapping):
        found["status"] = _timeless(state)
    return found


def _timeless(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _timeless(part) for key, part in value.items() if key != "observedGeneration"}
    if isinstance(value, list):
        return [_timeless(part) for part in value]
    return _TIME.sub("<time>", value) if isinstance(value, str) and len(value) >= 20 else value


def differences(before: Object, after: Object, *, status: bool) -> list[tuple[str, Any, Any]]:
    """The differences between two states: for each, the path and both values (ABSENT for a missing value)."""
    return list(_differing(form(before, status=status), form(after, status=status), ""))


def _differing(one: Any, other: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if equal_json(one, other) or (_is_empty(one) and _is_empty(other)):
        return
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in [*one, *(key for key in other if key not in one)]:
            yield from _differing(one.get(key, ABSENT), other.get(key, ABSENT), _joined(path, key))
        return
    if isinstance(one, list) and isinstance(other, list):
        if (key := _item_key(one, other)) is not None:
            left, right = ({str(item[key]): item for item in items} for items in (one, other))
            for name in [*left, *(name for name in right if name not in left)]:
                yield from _differing(left.get(name, ABSENT), right.get(name, ABSENT), f"{path}[{name}]")
            return
        if len(one) == len(other) and all(isinstance(item, Mapping) for item in (*one, *other)):
            for index, (before, after) in enumerate(zip(one, other, strict=True)):
                yield from _differing(before, after, f"{path}[{index}]")
            return
    yield path, one, other


def _is_empty(value: Any) -> bool:
    """Whether a value is missing, null, or an empty map or list; all of these are compared as equal."""
    return value is ABSENT or value is None or (isinstance(value, dict | list) and not value)


def _joined(path: str, key: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_-]+", key):
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else key


def _item_key(one: list[Any], other: list[Any]) -> str | None:
    """The field that identifies the items of both lists; None if there is no such field."""
    items = [*one, *other]
    if not items or not all(isinstance(item, Mapping) for item in items):
        return None
    for key in _KEYS:
        if all(key in item and isinstance(item[key], str | int) for item in items) and all(
                len({str(item[key]) for item in part}) == len(part) for part in (one, other)):
            return key
    return None


_COMPUTED = re.compile(r"(?=.*\d)(?:[a-z0-9]+[:-])?[A-Za-z0-9+=_/-]{6,}")
"""Matches a hash, or a name that ends with a hash."""


def may_be_computed_from_digests(plan: Plan, snapshot: StoredSnapshot) -> bool:
    """Whether a value in a change looks like a hash, so that it may be computed from redacted values."""
    if not any(obj["kind"] == "Secret" and obj.get("data") for obj in snapshot.objects) and not snapshot.redacted:
        return False
    return any(_has_computed(change.ref.name) for change in plan.created) or any(
        _has_computed(one.after) for change in plan.changed for one in change.fields)


def _has_computed(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(map(_has_computed, value.values() if isinstance(value, dict) else value))
    return isinstance(value, str) and _COMPUTED.fullmatch(value) is not None


def _identity(change: Change) -> Identity:
    return change.ref.resource.full_name, change.ref.namespace or "", change.ref.name


def _stem(identity: Identity) -> Identity:
    """The object's identity without the last part of its name, which may be a hash."""
    return identity[0], identity[1], identity[2].rpartition("-")[0]


def plan_of(observed: Observed, snapshot: StoredSnapshot, twin: Observed | None = None) -> Plan:
    """The plan made from what was observed. `twin`: what was observed in a second run of the program, with other
    digests."""
    return _Report(observed, snapshot, twin).plan()


class _Report:
    def __init__(self, observed: Observed, snapshot: StoredSnapshot, twin: Observed | None) -> None:
        self._observed, self._snapshot, self._twin = observed, snapshot, twin
        self._computed: list[Problem] = []
        self._steps: dict[Identity, list[Step]] = {}
        self._own: dict[Identity, Step] = {}
        """The program's first step for each object."""
        for step in observed.steps:
            self._steps.setdefault(step.identity, []).append(step)
            if step.by is not None and moved(step.before, step.after):
                self._own.setdefault(step.identity, step)
        self._unread = {kind.resource.full_name: kind for kind in snapshot.kinds if kind.refused}
        self._unasked = {name for group, version, plural, _ in observed.asked
                         if (name := f"{plural}.{group}" if group else plural) not in snapshot.by_name}
        self._untold = 0
        """The number of written values for which it is unknown whether they equal the redacted value."""
        self._hidden = Hidden(observed.secrets)
        self._redacted = {text.partition(":")[0].lower(): text for text in snapshot.redacted}

    def plan(self) -> Plan:
        observed = self._observed
        changes: list[Change] = []
        unknown, failed = list(observed.unknown), list(observed.failed)
        renamed: set[Identity] = set()
        for identity, step in self._own.items():  # in the order of the first writes
            change = self._change(identity, step)
            if change is None:
                continue
            failed += self._refusals(identity, change)
            if change.action == "create" and self._twin is not None and identity not in self._twin.after:
                unknown.append(Problem(str(change), f"its name is {_FROM_DIGESTS}", by=change.by))
                renamed.add(_stem(identity))
                continue
            if (gap := self._unread.get(identity[0])) and not (gap.namespaces and gap.covers(identity[1])):
                unknown.append(Problem(str(change), f"the right to {gap.refused} is missing, so that it may be there "
                                       "already"))
            elif identity[0] in self._unasked and not self._comes_with_definition(identity[0]):
                unknown.append(Problem(str(change), f"{identity[0]} were not read, so that it may be there already"))
            elif (read := self._snapshot.by_name.get(identity[0])) and not read.covers(identity[1]):
                unknown.append(Problem(str(change), f"namespace {identity[1]} was not read, so that it may be there "
                                       "already"))
            else:
                changes.append(change)
        replaced = [change for change in changes if change.action == "delete" and _stem(_identity(change)) in renamed]
        unknown += [Problem(str(change), f"the name of the object in its place is {_FROM_DIGESTS}", by=change.by)
                    for change in replaced]
        changes = [change for change in changes if change not in replaced]
        unknown += self._computed
        by = {action: tuple(change for change in changes if change.action == action)
              for action in ("create", "change", "delete")}
        return Plan(by["create"], by["change"], by["delete"], self._problems(failed), self._problems(unknown),
                    self._problems(observed.loops), self._problems(observed.definitions),
                    tuple(dict.fromkeys([*observed.not_simulated, *self._not_simulated(changes)])), tuple(changes),
                    str(self._snapshot), round(observed.took, 3), observed.runs)

    def _refusals(self, identity: Identity, change: Change) -> Iterator[Problem]:
        """Yield a Problem, with the reason, for each kind of object that the cluster's controllers cannot create after
        a change."""
        def uids(keys: Iterable[Identity]) -> set[str]:
            return {version.uid for key in keys for state in (self._observed.before, self._observed.after)
                    if (version := state.get(key)) is not None}

        below = uids([identity, *self._below(uids([identity]))]) if self._observed.turned_away else set()
        for kind, message in dict.fromkeys(why for uid, why in self._observed.turned_away.items() if uid in below):
            yield Problem(said(change.ref), f"its {kind}s are refused: {message}", by=change.by)

    def _comes_with_definition(self, name: str) -> bool:
        """Whether the kind is new to the cluster, which has no CRD for it."""
        definition = ("customresourcedefinitions.apiextensions.k8s.io", "", name)
        return name == definition[0] or (name in self._observed.custom and self._snapshot.all_definitions
                                         and definition not in self._observed.before)

    # --- one object -------------------------------------------------------------------------------------------------

    def _change(self, identity: Identity, step: Step) -> Change | None:
        before, after = self._observed.before.get(identity), self._observed.after.get(identity)
        if before is None and after is None:
            return None
        resource = self._observed.kinds.get(identity[0]) or ApiResource("", "v1", identity[0], identity[0])
        ref = ObjectRef(resource, identity[2], identity[1] or None)
        old, new = (None if version is None else version.decode() for version in (before, after))
        old = self._observed.converted.get(identity, old)
        status = identity[0] in self._observed.custom
        fields: tuple[FieldChange, ...] = ()
        if old is not None and new is not None:
            found = differences(old, new, status=status)
            if before is not None and after is not None and before.uid != after.uid:
                found.insert(0, ("metadata.uid", "of the old object", "of a new one: it is deleted and made again"))
            theirs = self._of_the_cluster(identity, status)
            found = [one for one in found if one[0] not in theirs and not self._is_digest_of(identity, *one)]
            computed = self._computed_from_digests(identity, old, found, status)
            if computed:
                self._computed.append(Problem(said(ref), f"{', '.join(sorted(computed))}: {_FROM_DIGESTS}",
                                              by=str(step.by)))
                found = [one for one in found if one[0] not in computed]
            if not found:
                return None
            if computed and identity[0] in _TEMPLATES and not any(one[0].startswith("spec.template") for one in found):
                # No certain change is inside the template, so it counts as unchanged, and no rollout is reported.
                new = {**new, "spec": {**new["spec"], "template": old["spec"]["template"]}}
            fields = tuple(self._field(identity, old, path, one, other) for path, one, other in found)
        action = "create" if old is None else "delete" if new is None else "change"
        shown = "" if self._is_redacted(resource) else self._difference(ref, old, new, status)
        return Change(action, ref, str(step.by) if step.by is not None else "", round(step.at, 3), fields,
                      tuple(self._follows(identity, old, new)), shown)

    def _computed_from_digests(self, identity: Identity, old: Object, found: list[tuple[str, Any, Any]],
                               status: bool) -> set[str]:
        """The changed fields whose values differ when the digests differ."""
        other = self._twin.after.get(identity) if self._twin is not None else None
        if other is None:
            return set()
        theirs = {path: value for path, _, value in differences(old, other.decode(), status=status)}
        return {path for path, _, value in found if path != "metadata.uid" and not self._is_secret(identity, path)
                and _has_computed(value) and not equal_json(theirs.get(path), value)}

    def _of_the_cluster(self, identity: Identity, status: bool) -> set[str]:
        """The fields that only the cluster's own controllers, and not the program, have changed."""
        paths: dict[bool, set[str]] = {True: set(), False: set()}
        for step in self._steps[identity]:
            if step.before is not None and step.after is not None:
                found = differences(step.before.decode(), step.after.decode(), status=status)
                paths[step.by is None] |= {path for path, _, _ in found}
        return paths[True] - paths[False]

    def _difference(self, ref: ObjectRef, old: Object | None, new: Object | None, status: bool) -> str:
        kind = {"apiVersion": ref.resource.api_version, "kind": ref.resource.kind}
        left, right = (None if obj is None else {**kind, **form(obj, status=status)} for obj in (old, new))
        return "" if right is None else self._hidden.text(difference(said(ref), left, right))

    def _is_redacted(self, resource: ApiResource) -> bool:
        return resource.kind.lower() in self._redacted or f"{resource.kind}.{resource.group}".lower() in self._redacted

    def _field(self, identity: Identity, old: Object, path: str, before: Any, after: Any) -> FieldChange:
        before, after = (None if value is ABSENT else value for value in (before, after))
        if self._is_secret(identity, path):
            before, after = (None if value is None else STARS for value in (before, after))
        owner = _other_owner(old, path, self._observed.managers)
        return FieldChange(self._hidden.key(path), self._hidden.value(before), self._hidden.value(after), owner)

    def _is_digest_of(self, identity: Identity, path: str, before: Any, after: Any) -> bool:
        """Whether a field's old value is the digest of the written value, or may be its digest because the lengths are
        equal."""
        if before is ABSENT or after is ABSENT or isinstance(after, dict | list) or not self._is_secret(identity, path):
            return False
        same = self._snapshot.is_same(before, after)
        self._untold += same is None
        return same is not False

    def _is_secret(self, identity: Identity, path: str) -> bool:
        if identity[0] == "secrets" and (path.startswith(("data", "stringData")) or "last-applied" in path
                                         or path == "metadata.annotations"):
            return True
        resource = self._observed.kinds.get(identity[0])
        if resource is None:
            return False
        names = (resource.kind.lower(), f"{resource.kind}.{resource.group}".lower())
        hidden = [text.partition(":")[2] for text in self._snapshot.redacted
                  if text.partition(":")[0].lower() in names]
        plain = re.sub(r"\[[^\]]*\]", "", path)
        return any(plain.startswith(one) or one.startswith(plain) for one in hidden)

    def _problems(self, problems: Iterable[Problem]) -> tuple[Problem, ...]:
        """The problems without duplicates and without secret values."""
        return tuple(dict.fromkeys(replace(one, reason=self._hidden.text(one.reason)) for one in problems))

    # --- what follows -----------------------------------------------------------------------------------------------

    def _follows(self, identity: Identity, old: Object | None, new: Object | None) -> Iterator[str]:
        before, after = self._observed.before, self._observed.after
        uids = {version.uid for state in (before, after) if (version := state.get(identity)) is not None}
        made: Counter[str] = Counter()
        gone: Counter[str] = Counter()
        orphans: Counter[str] = Counter()
        for key in self._below(uids):
            if key in self._own:
                continue
            kind = self._observed.kinds.get(key[0])
            word = kind.kind if kind else key[0]
            if key in before and key not in after:
                gone[word] += 1
            elif key in after and key not in before:
                made[word] += 1
            elif new is None and len(after[key].owners) < len(before[key].owners):
                orphans[word] += 1
        if identity[0] in _TEMPLATES and old is not None and new is not None:
            yield from _rollout(identity, old, new, made.pop("Pod", 0), gone.pop("Pod", 0))
        if identity[0] == "namespaces" and new is None:
            inside = Counter((self._observed.kinds[key[0]].kind if key[0] in self._observed.kinds else key[0])
                             for key in before if key[1] == identity[2] and key not in after)
            yield from (f"deletes {count} {word}{_s(count)} in it" for word, count in inside.items())
        yield from (f"makes {count} {word}{_s(count)}" for word, count in made.items())
        yield from (f"deletes {count} {word}{_s(count)} that it owns" for word, count in gone.items())
        yield from (f"leaves {count} {word}{_s(count)} without this owner" for word, count in orphans.items())
        if new is not None and new["metadata"].get("deletionTimestamp") and (
                old is None or not old["metadata"].get("deletionTimestamp")):
            kept = ", ".join(new["metadata"].get("finalizers") or ())
            yield f"is being deleted, and is kept by {kept or 'its dependents'}"

    def _below(self, uids: set[str]) -> set[Identity]:
        """The objects that the objects with `uids` own, directly or indirectly. If the program itself changes an owned
        object, the objects that this object owns are left out, since they belong to its own change."""
        if not hasattr(self, "_children"):
            children: dict[str, set[tuple[Identity, str]]] = {}
            for state in (self._observed.before, self._observed.after):
                for key, version in state.items():
                    for owner in version.owners:
                        children.setdefault(owner.get("uid", ""), set()).add((key, version.uid))
            self._children = children
        found: set[Identity] = set()
        waiting, seen = list(uids), set(uids)
        while waiting:
            for key, uid in self._children.get(waiting.pop(), ()):
                found.add(key)
                if uid not in seen and not self._is_own(key):
                    seen.add(uid)
                    waiting.append(uid)
        return found

    def _is_own(self, key: Identity) -> bool:
        return key in self._own and moved(self._observed.before.get(key), self._observed.after.get(key))

    def _not_simulated(self, changes: Iterable[Change]) -> Iterator[str]:
        if self._untold:
            yield f"whether {self._untold} values of Secrets change (digests of the same length replace the old values)"
        touched = {change.ref.resource.full_name: change.ref.kind for change in changes}
        for name, kind in touched.items():
            if name in _NO_CONTROLLER:
                yield f"what the controller of {kind} objects does afterwards"
        foreign = sorted({kind for name, kind in touched.items() if name in self._observed.custom - self._observed.run})
        if foreign:
            yield f"what controllers of {', '.join(foreign)} objects do afterwards"


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def _rollout(identity: Identity, old: Object, new: Object, made: int, gone: int) -> Iterator[str]:
    """The effect of a change on the Pods of a workload."""
    one, other = (obj.get("spec") or {} for obj in (old, new))
    replicas = int(other.get("replicas", 1) or 0)
    changed = not equal_json(one.get("template"), other.get("template"))
    if identity[0] != "deployments.apps":
        if changed:
            yield "replaces all its Pods" if identity[0] == "daemonsets.apps" else f"replaces its {replicas} Pods"
        return
    if changed and gone:
        strategy = other.get("strategy") or {}
        if strategy.get("type") == "Recreate":
            yield f"replaces {gone} Pod{_s(gone)}: all stop before the new ones start"
            return
        rolling = strategy.get("rollingUpdate") or {}
        at_once = max(1, _part(rolling.get("maxSurge", "25%"), replicas, up=True)
                      + _part(rolling.get("maxUnavailable", "25%"), replicas, up=False))
        how = "one after the other" if at_once == 1 or gone == 1 else f"up to {at_once} at a time"
        yield f"replaces {gone} Pod{_s(gone)}, {how}"
    elif changed and not made and replicas:
        yield "its Pods are replaced later, by its controller"
    elif made > gone:
        yield f"adds {made - gone} Pod{_s(made - gone)}"
    elif gone > made:
        yield f"removes {gone - made} Pod{_s(gone - made)}"


def _part(value: Any, whole: int, *, up: bool) -> int:
    if isinstance(value, str) and value.endswith("%") and value[:-1].isdigit():
        share = int(value[:-1]) * whole
        return -(-share // 100) if up else share // 100
    return value if isinstance(value, int) else 0


def _other_owner(obj: Object, path: str, own: set[str]) -> str:
    """The field managers, except for the program's `own`, that owned a field of the object when the object was read."""
    names = [entry.get("manager", "") for entry in obj["metadata"].get("managedFields") or ()
             if entry.get("manager") not in own and _owns(entry.get("fieldsV1") or {}, path)]
    return ", ".join(dict.fromkeys(names))


def _owns(fields: Mapping[str, Any], path: str) -> bool:
    node: Any = fields
    for part in re.findall(r"[^.\[\]]+|\[[^\]]*\]", path):
        if not isinstance(node, Mapping):
            return False
        if part.startswith("["):
            inner = part[1:-1]
            found = next((value for key, value in node.items() if key == f"f:{inner}" or (
                key.startswith("k:") and f'"{inner}"' in key)), None)
        else:
            found = node.get(f"f:{part}")
        if found is None:
            return False
        node = found
    return True
