"""Nobody grants rights that he does not have: what is checked when Roles and bindings are written under RBAC.

A Role or ClusterRole may be written by who has all its rights or ``escalate`` on it; a binding by who has all rights
of its role or ``bind`` on that role; an aggregated ClusterRole by who may do everything, since what it will select is
not known.
"""

from __future__ import annotations

import json
from typing import Any

from kubectl_runtime.apiserver.access import rules
from kubectl_runtime.apiserver.access.attributes import Attributes
from kubectl_runtime.apiserver.access.authn import MASTERS
from kubectl_runtime.apiserver.access.rbac import GROUP, Rbac
from kubectl_runtime.apiserver.access.user import User
from kubectl_runtime.apiserver.errors import forbidden, not_found

Object = dict[str, Any]

ROLES = ("roles", "clusterroles")
BINDINGS = ("rolebindings", "clusterrolebindings")
EVERYTHING: list[rules.Rule] = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
                                {"verbs": ["*"], "nonResourceURLs": ["*"]}]


def check_write(rbac: Rbac, user: User, plural: str, new: Object, old: Object | None) -> None:
    """Raise the 403 of a role or binding that would grant what its writer does not have.

    `old` is the object before an update. Owners and finalizers may always be changed, for the garbage collector.
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
    if rules.missing(rbac.rules_for(user, namespace)[0], wanted):
        raise forbidden(GROUP, plural, name, _refusal(rbac, user, namespace, wanted))
    if any(map(_aggregates, (new, old or {}))) and rules.missing(rbac.rules_for(user, "")[0], EVERYTHING):
        raise forbidden(GROUP, plural, name, "must have cluster-admin privileges to use the aggregationRule")


def _comparable(obj: Object) -> Object:
    """The object without what the garbage collector changes, and without what the server writes."""
    ignored = ("ownerReferences", "finalizers", "managedFields", "resourceVersion")
    metadata = {key: value for key, value in obj["metadata"].items() if key not in ignored}
    content = ("rules", "aggregationRule", "subjects", "roleRef")
    return {"metadata": metadata, **{part: obj.get(part) for part in content}}


def _aggregates(role: Object) -> bool:
    return bool((role.get("aggregationRule") or {}).get("clusterRoleSelectors"))


def _bound_rules(rbac: Rbac, user: User, bindings: str, role: Object, namespace: str) -> list[rules.Rule]:
    """The rules that a binding would grant; none if the user may bind the role without having them."""
    plural = "clusterroles" if role.get("kind") == "ClusterRole" else "roles"
    name = role.get("name", "")
    if rbac.authorize(Attributes(user, "bind", GROUP, plural, namespace=namespace, name=name)).allowed:
        return []
    found = rbac.role_rules(role, namespace)
    if isinstance(found, str):
        raise not_found(GROUP, bindings, name)  # surprising: the binding's type and the role's name
    return found


def _refusal(rbac: Rbac, user: User, namespace: str, wanted: list[rules.Rule]) -> str:
    held, error = rbac.rules_for(user, namespace)
    lines = sorted({rules.shown(rule) for rule in rules.compact(rules.missing(held, wanted))})
    groups = " ".join(map(json.dumps, user.groups))
    text = (f"user {json.dumps(user.name)} (groups=[{groups}]) is attempting to grant RBAC permissions not currently "
            "held:\n" + "\n".join(lines))
    return f"{text}; resolution errors: [{error}]" if error else text
