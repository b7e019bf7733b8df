"""RBAC: which rules a user has, read from the Roles and bindings that are in the server at this moment.

Bindings are visited as the real server does it, ClusterRoleBindings first, then the RoleBindings of the namespace;
the first rule that allows a request gives the reason. An aggregated ClusterRole (one with an ``aggregationRule``) has
its own rules and those of all ClusterRoles that it selects: the real server leaves this to a controller, here it is
read live, so that ``admin``, ``edit`` and ``view`` mean something without one.

Thread safety: none of its own, the cluster's lock is held around every call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from kubectl_runtime.apiserver.access import rules
from kubectl_runtime.apiserver.access.attributes import Attributes, Decision
from kubectl_runtime.apiserver.access.authn import MASTERS
from kubectl_runtime.apiserver.access.user import User
from kubectl_runtime.apiserver.errors import go_value
from kubectl_runtime.apiserver.storage.storage import Bucket, Storage, Version

Object = dict[str, Any]
GROUP = "rbac.authorization.k8s.io"
SERVICE_ACCOUNT = "system:serviceaccount:"


class RoleSource(Protocol):
    """Where Roles and bindings are read: objects by plural, in order of their names."""

    def get(self, plural: str, namespace: str, name: str) -> Object | None: ...

    def scan(self, plural: str, namespace: str) -> Iterable[Object]: ...


class StoredRoles:
    """The `RoleSource` of a server's storage; each version of an object is decoded once and must not be changed."""

    def __init__(self, storage: Callable[[], Storage]) -> None:
        """`storage` gives the storage as it is now: restoring a snapshot may replace it."""
        self._storage = storage
        self._decoded: dict[tuple[str, str], tuple[Version, Object]] = {}

    def get(self, plural: str, namespace: str, name: str) -> Object | None:
        version = self._storage().get(f"{GROUP}/{plural}", namespace, name)
        return self._decode(plural, version) if version else None

    def scan(self, plural: str, namespace: str) -> Iterator[Object]:
        bucket = self._storage().buckets.get(f"{GROUP}/{plural}")
        if bucket is None:
            return
        if len(self._decoded) > 4 * _stored(self._storage()) + 64:  # what is gone need not be remembered
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
    """One rule that a user has with the binding it comes from, or an error met on the way (then `rule` is None)."""

    rule: rules.Rule | None
    source: str


class Rbac:
    """The RBAC authoriser."""

    def __init__(self, source: RoleSource) -> None:
        self._source = source

    def authorize(self, attributes: Attributes) -> Decision:
        """Whether the user's rules allow it. ``system:masters`` may do everything, whatever the bindings say."""
        if MASTERS in attributes.user.groups:
            return Decision(True)
        errors = []
        for grant in self.grants(attributes.user, attributes.namespace):
            if grant.rule is None:
                errors.append(grant.source)
            elif rules.allows(grant.rule, attributes):
                return Decision(True, f"RBAC: allowed by {grant.source}")
        return Decision(False, f"RBAC: {_aggregate(errors)}" if errors else "")

    def rules_for(self, user: User, namespace: str) -> tuple[list[rules.Rule], str]:
        """All rules of a user in a namespace, and what could not be resolved ("" if nothing)."""
        found = list(self.grants(user, namespace))
        return ([grant.rule for grant in found if grant.rule is not None],
                _aggregate([grant.source for grant in found if grant.rule is None]))

    def grants(self, user: User, namespace: str) -> Iterator[Grant]:
        """The rules that the user has in a namespace ("" is cluster-wide) with their sources."""
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

    def role_rules(self, role_ref: Object, namespace: str) -> list[rules.Rule] | str:
        """The rules of the role that a binding in the namespace names; a text if there is no such role."""
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

    def _with_aggregated(self, role: Object, seen: set[str]) -> list[rules.Rule]:
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
    """Whether a subject of a binding in the namespace is the user."""
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
    """A LabelSelector object against labels."""
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
