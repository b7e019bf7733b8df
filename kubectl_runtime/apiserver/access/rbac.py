"""RBAC: a user's rules, read from the stored Roles and bindings at each request.

As in the real server, ClusterRoleBindings come first and the namespace's RoleBindings second. The first rule that
allows a request decides, and `Decision.reason` names its binding. An aggregated ClusterRole has its own rules and the
rules of all ClusterRoles that it selects. The real server's controller copies the selected rules; here they are
collected at each request.

To write a Role, a user must have all permissions in the Role, or ``escalate`` on it. To write a binding, a user must
have all permissions of the bound role, or ``bind`` on that role. Without ``escalate``, writing an aggregated
ClusterRole needs all permissions (cluster-admin), because the roles that it will select are unknown.

Not thread-safe: callers hold the cluster's lock.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any, Protocol

from kubectl_runtime.apiserver.access.authn import MASTERS, User
from kubectl_runtime.apiserver.errors import StatusError, forbidden, go_value, not_found
from kubectl_runtime.apiserver.names import path_segment_errors
from kubectl_runtime.apiserver.query import FieldSelector, integer_param, parse_terms
from kubectl_runtime.apiserver.storage import Bucket, Storage, Version
from kubectl_runtime.apiserver.wire import HttpRequest, Object, RequestInfo


@dataclass(frozen=True, slots=True)
class Attributes:
    """A user and an action on a resource or a path. For a non-resource path only `user`, `verb` and `path` are used."""

    user: User
    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    is_resource: bool = True

    @property
    def combined_resource(self) -> str:
        """The resource as rules name it, for example ``pods`` or ``pods/log``."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether an action is allowed, and why. `error` describes roles that could not be read."""

    allowed: bool
    reason: str = ""
    error: str = ""


def of_request(user: User, info: RequestInfo, request: HttpRequest) -> Attributes:
    """The attributes of a request. If a list or watch selects one metadata.name, `name` is that name."""
    if not info.is_resource:
        return Attributes(user, info.verb, path=info.path, is_resource=False)
    name = info.name
    if not name and info.verb in ("list", "watch"):
        name = _selected_name(request)
    return Attributes(user, info.verb, info.group, info.resource, info.subresource, info.namespace, name, info.path)


def _selected_name(request: HttpRequest) -> str:
    """The metadata.name that the field selector requires; "" if none is required or the list options are malformed."""
    try:
        for option in ("limit", "timeoutSeconds"):
            integer_param(request, option)
        name = FieldSelector(parse_terms(request.param("fieldSelector"))).exact("metadata.name") or ""
    except StatusError:
        return ""
    return "" if path_segment_errors(name) else name


def refusal(attributes: Attributes, reason: str = "") -> StatusError:
    """The 403 for a refused request."""
    why = f"User {go_value(attributes.user.name)} cannot {attributes.verb} "
    if not attributes.is_resource:
        text = f"forbidden: {why}path {go_value(attributes.path)}"
        return StatusError(403, "Forbidden", f"{text}: {reason}" if reason else text, details={})
    why += f"resource {go_value(attributes.combined_resource)} in API group {go_value(attributes.group)} "
    why += f"in the namespace {go_value(attributes.namespace)}" if attributes.namespace else "at the cluster scope"
    return forbidden(attributes.group, attributes.resource, attributes.name, f"{why}: {reason}" if reason else why)


Rule = dict[str, Any]
ALL = "*"


def allows(rule: Rule, attributes: Attributes) -> bool:
    verbs = rule.get("verbs") or ()
    if ALL not in verbs and attributes.verb not in verbs:
        return False
    if not attributes.is_resource:
        return any(path_matches(pattern, attributes.path) for pattern in rule.get("nonResourceURLs") or ())
    groups = rule.get("apiGroups") or ()
    names = rule.get("resourceNames") or ()
    return ((ALL in groups or attributes.group in groups) and (not names or attributes.name in names)
            and any(resource_matches(entry, attributes) for entry in rule.get("resources") or ()))


def resource_matches(entry: str, attributes: Attributes) -> bool:
    """Whether ``*``, ``pods``, ``pods/log`` or ``*/log`` covers a resource; ``pods`` does not cover subresources."""
    if entry in (ALL, attributes.combined_resource):
        return True
    return bool(attributes.subresource) and entry == f"*/{attributes.subresource}"


def path_matches(pattern: str, path: str) -> bool:
    """Whether ``*``, ``/healthz`` or ``/healthz/*`` covers a path."""
    if pattern in (ALL, path):
        return True
    return pattern.endswith("*") and path.startswith(pattern.rstrip("*"))


def break_down(rule: Rule) -> Iterator[Rule]:
    """Split a rule into single rules: one verb, group, resource and name each, or one verb and path each."""
    verbs = rule.get("verbs") or ()
    for verb, group, resource in product(verbs, rule.get("apiGroups") or (), rule.get("resources") or ()):
        single = {"verbs": [verb], "apiGroups": [group], "resources": [resource]}
        names = rule.get("resourceNames") or ()
        if not names:
            yield single
        for name in names:
            yield {**single, "resourceNames": [name]}
    for verb, path in product(verbs, rule.get("nonResourceURLs") or ()):
        yield {"verbs": [verb], "nonResourceURLs": [path]}


def missing(owned: Iterable[Rule], wanted: Iterable[Rule]) -> list[Rule]:
    """The parts of `wanted` that the rules in `owned` do not grant, split into single rules."""
    held = list(owned)
    return [single for rule in wanted for single in break_down(rule) if not any(_covers(mine, single) for mine in held)]


def _covers(rule: Rule, single: Rule) -> bool:
    """Whether a rule grants everything that a single rule grants (see `break_down`)."""
    verbs = rule.get("verbs") or ()
    if ALL not in verbs and single["verbs"][0] not in verbs:
        return False
    if "nonResourceURLs" in single:
        wanted = single["nonResourceURLs"][0]
        return any(path_matches(pattern, wanted) for pattern in rule.get("nonResourceURLs") or ())
    groups, resources = rule.get("apiGroups") or (), rule.get("resources") or ()
    if ALL not in groups and single["apiGroups"][0] not in groups:
        return False
    resource = single["resources"][0]
    if ALL not in resources and resource not in resources and "*/" + resource.partition("/")[2] not in resources:
        return False
    names = rule.get("resourceNames") or ()
    return not names or (single.get("resourceNames") or [None])[0] in names


def compact(rules: Iterable[Rule]) -> list[Rule]:
    """Join single rules that differ only in the verb."""
    merged: dict[str, Rule] = {}
    for rule in rules:
        key = json.dumps({part: value for part, value in rule.items() if part != "verbs"}, sort_keys=True)
        if key in merged:
            merged[key]["verbs"] += [verb for verb in rule["verbs"] if verb not in merged[key]["verbs"]]
        else:
            merged[key] = {**rule, "verbs": list(rule["verbs"])}
    return list(merged.values())


def shown(rule: Rule) -> str:
    """Format a rule for the message that refuses an escalation."""
    parts = (("APIGroups", "apiGroups"), ("Resources", "resources"), ("NonResourceURLs", "nonResourceURLs"),
             ("ResourceNames", "resourceNames"), ("Verbs", "verbs"))
    texts = [f"{title}:[{' '.join(map(json.dumps, rule[key]))}]" for title, key in parts if rule.get(key)]
    return "{" + ", ".join(texts) + "}"


GROUP = "rbac.authorization.k8s.io"
SERVICE_ACCOUNT = "system:serviceaccount:"


class RoleSource(Protocol):
    """Provides Roles and bindings, ordered by name. `plural` is the resource, such as ``rolebindings``."""

    def get(self, plural: str, namespace: str, name: str) -> Object | None: ...

    def scan(self, plural: str, namespace: str) -> Iterable[Object]: ...


class StoredRoles:
    """A `RoleSource` that reads a server's storage. Each stored object is decoded once; callers must not change it."""

    def __init__(self, storage: Callable[[], Storage]) -> None:
        """`storage` returns the current storage, which restoring a snapshot may replace."""
        self._storage = storage
        self._decoded: dict[tuple[str, str], tuple[Version, Object]] = {}

    def get(self, plural: str, namespace: str, name: str) -> Object | None:
        version = self._storage().get(f"{GROUP}/{plural}", namespace, name)
        return self._decode(plural, version) if version else None

    def scan(self, plural: str, namespace: str) -> Iterator[Object]:
        bucket = self._storage().buckets.get(f"{GROUP}/{plural}")
        if bucket is None:
            return
        if len(self._decoded) > 4 * _stored(self._storage()) + 64:  # drop the entries of deleted objects
            self._decoded.clear()
        for version in bucket.scan(namespace):
            yield self._decode(plural, version)

    def _decode(self, plural: str, version: Version) -> Object:
        key = (plural, version.key)
        known = self._decoded.get(key)
        if known is None or known[0] is not version:
            known = self._decoded[key] = (version, version.decode())
        return known[1]


def _stored(storage: Storage) -> int:
    plurals = ("roles", "rolebindings", "clusterroles", "clusterrolebindings")
    buckets: list[Bucket | None] = [storage.buckets.get(f"{GROUP}/{plural}") for plural in plurals]
    return sum(len(bucket.objects) for bucket in buckets if bucket)


@dataclass(frozen=True, slots=True)
class Grant:
    """One rule of a user, granted by the binding `source`. For a missing role, `source` is an error and `rule` None."""

    rule: Rule | None
    source: str


class Rbac:
    def __init__(self, source: RoleSource) -> None:
        self._source = source

    def authorize(self, attributes: Attributes) -> Decision:
        """Whether the user's rules allow the action. The group ``system:masters`` may do everything."""
        if MASTERS in attributes.user.groups:
            return Decision(True)
        errors = []
        for grant in self.grants(attributes.user, attributes.namespace):
            if grant.rule is None:
                errors.append(grant.source)
            elif allows(grant.rule, attributes):
                return Decision(True, f"RBAC: allowed by {grant.source}")
        return Decision(False, f"RBAC: {_aggregate(errors)}" if errors else "")

    def rules_for(self, user: User, namespace: str) -> tuple[list[Rule], str]:
        """All rules of a user in a namespace, and an error text for bindings that could not be resolved (else "")."""
        found = list(self.grants(user, namespace))
        return ([grant.rule for grant in found if grant.rule is not None],
                _aggregate([grant.source for grant in found if grant.rule is None]))

    def grants(self, user: User, namespace: str) -> Iterator[Grant]:
        """A user's rules in a namespace, each with the binding that grants it. If `namespace` is "", only the
        cluster-wide rules."""
        for binding in self._source.scan("clusterrolebindings", ""):
            yield from self._of_binding(user, binding, "")
        if namespace:
            for binding in self._source.scan("rolebindings", namespace):
                yield from self._of_binding(user, binding, namespace)

    def _of_binding(self, user: User, binding: Object, namespace: str) -> Iterator[Grant]:
        subject = next((s for s in binding.get("subjects") or () if applies(s, user, namespace)), None)
        if subject is None:
            return
        role = binding.get("roleRef") or {}
        found = self.role_rules(role, namespace)
        if isinstance(found, str):
            yield Grant(None, found)
            return
        kind, name = ("RoleBinding", f"{binding['metadata']['name']}/{namespace}") if namespace else (
            "ClusterRoleBinding", binding["metadata"]["name"])
        source = (f"{kind} {go_value(name)} of {role.get('kind')} {go_value(role.get('name'))} to "
                  f"{_describe(subject, namespace)}")
        for rule in found:
            yield Grant(rule, source)

    def role_rules(self, role_ref: Object, namespace: str) -> list[Rule] | str:
        """The rules of the role that a binding in the namespace refers to, or an error text if the role is missing."""
        kind, name = role_ref.get("kind", ""), role_ref.get("name", "")
        if kind == "Role":
            role, plural = self._source.get("roles", namespace, name), "role"
        elif kind == "ClusterRole":
            role, plural = self._source.get("clusterroles", "", name), "clusterrole"
        else:
            return f"unsupported role reference kind: {go_value(kind)}"
        if role is None:
            return f'{plural}.{GROUP} "{name}" not found'
        return self._with_aggregated(role, {name}) if "aggregationRule" in role else role.get("rules") or []

    def _with_aggregated(self, role: Object, seen: set[str]) -> list[Rule]:
        found = list(role.get("rules") or ())
        selectors = role["aggregationRule"].get("clusterRoleSelectors") or ()
        for other in self._source.scan("clusterroles", ""):
            metadata = other["metadata"]
            if metadata["name"] in seen or not any(_selects(s, metadata.get("labels") or {}) for s in selectors):
                continue
            seen.add(metadata["name"])
            found += self._with_aggregated(other, seen) if "aggregationRule" in other else other.get("rules") or []
        return found


def applies(subject: Object, user: User, namespace: str) -> bool:
    """Whether a subject of a binding in the namespace refers to the user."""
    kind, name = subject.get("kind"), subject.get("name")
    if kind == "User":
        return user.name == name
    if kind == "Group":
        return name in user.groups
    own = subject.get("namespace") or namespace
    return kind == "ServiceAccount" and bool(own) and user.name == f"{SERVICE_ACCOUNT}{own}:{name}"


def _describe(subject: Object, namespace: str) -> str:
    name = subject.get("name", "")
    if subject.get("kind") == "ServiceAccount":
        name = f"{name}/{subject.get('namespace') or namespace}"
    return f"{subject.get('kind')} {go_value(name)}"


def _aggregate(errors: list[str]) -> str:
    unique = list(dict.fromkeys(errors))
    return unique[0] if len(unique) == 1 else f"[{', '.join(unique)}]" if unique else ""


def _selects(selector: Object, labels: dict[str, str]) -> bool:
    """Whether a LabelSelector object matches labels."""
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_expression(term, labels) for term in selector.get("matchExpressions") or ())


def _expression(term: Object, labels: dict[str, str]) -> bool:
    value, values = labels.get(term.get("key", "")), term.get("values") or ()
    operator = term.get("operator")
    if operator == "In":
        return value is not None and value in values
    if operator == "NotIn":
        return value is None or value not in values
    return (value is not None) is (operator == "Exists")


ROLES = ("roles", "clusterroles")
BINDINGS = ("rolebindings", "clusterrolebindings")
EVERYTHING: list[Rule] = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
                                {"verbs": ["*"], "nonResourceURLs": ["*"]}]


def check_write(rbac: Rbac, user: User, plural: str, new: Object, old: Object | None) -> None:
    """Raise a 403 if a role or binding would grant permissions that its writer lacks.

    `old` is the object before an update. Changes of ownerReferences and finalizers alone are always allowed, so that
    the garbage collector can make them.
    """
    if MASTERS in user.groups or plural not in (*ROLES, *BINDINGS):
        return
    if old is not None and _comparable(new) == _comparable(old):
        return
    metadata = new["metadata"]
    name, namespace = metadata.get("name", ""), metadata.get("namespace", "")
    if plural in ROLES:
        wanted = new.get("rules") or []
        if rbac.authorize(Attributes(user, "escalate", GROUP, plural, namespace=namespace, name=name)).allowed:
            return
    else:
        wanted = _bound_rules(rbac, user, plural, new.get("roleRef") or {}, namespace)
    if missing(rbac.rules_for(user, namespace)[0], wanted):
        raise forbidden(GROUP, plural, name, _refusal(rbac, user, namespace, wanted))
    if any(map(_aggregates, (new, old or {}))) and missing(rbac.rules_for(user, "")[0], EVERYTHING):
        raise forbidden(GROUP, plural, name, "must have cluster-admin privileges to use the aggregationRule")


def _comparable(obj: Object) -> Object:
    """The object without the fields that the garbage collector or the server writes."""
    ignored = ("ownerReferences", "finalizers", "managedFields", "resourceVersion")
    metadata = {key: value for key, value in obj["metadata"].items() if key not in ignored}
    content = ("rules", "aggregationRule", "subjects", "roleRef")
    return {"metadata": metadata, **{part: obj.get(part) for part in content}}


def _aggregates(role: Object) -> bool:
    return bool((role.get("aggregationRule") or {}).get("clusterRoleSelectors"))


def _bound_rules(rbac: Rbac, user: User, bindings: str, role: Object, namespace: str) -> list[Rule]:
    """The rules that a binding would grant; empty if the user has ``bind`` on the role."""
    plural = "clusterroles" if role.get("kind") == "ClusterRole" else "roles"
    name = role.get("name", "")
    if rbac.authorize(Attributes(user, "bind", GROUP, plural, namespace=namespace, name=name)).allowed:
        return []
    found = rbac.role_rules(role, namespace)
    if isinstance(found, str):
        # Like the real server's error, this error combines the type of the binding with the name of the role.
        raise not_found(GROUP, bindings, name)
    return found


def _refusal(rbac: Rbac, user: User, namespace: str, wanted: list[Rule]) -> str:
    held, error = rbac.rules_for(user, namespace)
    lines = sorted({shown(rule) for rule in compact(missing(held, wanted))})
    groups = " ".join(map(json.dumps, user.groups))
    text = (f"user {json.dumps(user.name)} (groups=[{groups}]) is attempting to grant RBAC permissions not currently "
            "held:\n" + "\n".join(lines))
    return f"{text}; resolution errors: [{error}]" if error else text
