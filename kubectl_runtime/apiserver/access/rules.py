"""RBAC's rules as pure functions: does a rule allow it, do rules cover other rules, how is a rule shown.

Rules are the plain objects of ``rules`` in Roles and ClusterRoles.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any

from kubectl_runtime.apiserver.access.attributes import Attributes

Rule = dict[str, Any]
ALL = "*"


def allows(rule: Rule, attributes: Attributes) -> bool:
    """Whether one rule allows it."""
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
    """``*``, ``pods``, ``pods/log`` or ``*/log`` against a resource; ``pods`` does not include its subresources."""
    if entry in (ALL, attributes.combined_resource):
        return True
    return bool(attributes.subresource) and entry == f"*/{attributes.subresource}"


def path_matches(pattern: str, path: str) -> bool:
    """``*``, ``/healthz`` or ``/healthz/*`` against a path."""
    if pattern in (ALL, path):
        return True
    return pattern.endswith("*") and path.startswith(pattern.rstrip("*"))


def break_down(rule: Rule) -> Iterator[Rule]:
    """A rule as rules of one verb, group, resource and name, or one verb and path, each."""
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
    """What of `wanted` the rules in `owned` do not grant, broken down."""
    held = list(owned)
    return [single for rule in wanted for single in break_down(rule) if not any(_covers(mine, single) for mine in held)]


def _covers(rule: Rule, single: Rule) -> bool:
    """Whether a rule grants all that a broken-down one does."""
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
    """Broken-down rules put together again where they differ in nothing but the verb."""
    merged: dict[str, Rule] = {}
    for rule in rules:
        key = json.dumps({part: value for part, value in rule.items() if part != "verbs"}, sort_keys=True)
        if key in merged:
            merged[key]["verbs"] += [verb for verb in rule["verbs"] if verb not in merged[key]["verbs"]]
        else:
            merged[key] = {**rule, "verbs": list(rule["verbs"])}
    return list(merged.values())


def shown(rule: Rule) -> str:
    """A rule as the message of a refused escalation prints it."""
    parts = (("APIGroups", "apiGroups"), ("Resources", "resources"), ("NonResourceURLs", "nonResourceURLs"),
             ("ResourceNames", "resourceNames"), ("Verbs", "verbs"))
    texts = [f"{title}:[{' '.join(map(json.dumps, rule[key]))}]" for title, key in parts if rule.get(key)]
    return "{" + ", ".join(texts) + "}"
