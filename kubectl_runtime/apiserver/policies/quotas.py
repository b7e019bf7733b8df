"""ResourceQuotas: what a namespace uses, and whether a write would exceed its quotas. Callers hold the cluster's lock.

Usage is counted from the stored objects, so a quota applies at once, even if its status has not been written yet.
Resource names in a quota:

- ``pods``, ``cpu``, ``requests.…``, ``limits.…`` count Pods that have not ended and are within the quota's scopes.
- ``count/PLURAL.GROUP`` counts objects of any kind, also custom resources. A core kind has no group: ``count/pods``.
- ``services``, ``secrets``, … count objects of some core kinds, like ``count/services``.
- ``services.nodeports`` and ``services.loadbalancers`` count node ports and load balancers.
- ``requests.storage``, … count PersistentVolumeClaims; with the prefix CLASS.storageclass.storage.k8s.io/ only the
  claims of that class.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.kinds.base import class_of, dig
from kubectl_runtime.apiserver.kinds.limits import aggregated, quality_of_service
from kubectl_runtime.apiserver.storage import ServedResource, Storage, Version
from kubectl_runtime.apiserver.wire import Object
from kubectl_runtime.core.meta.quantities import canonical, value_of

Amounts = dict[str, Fraction]

QUOTAS, PODS, CLAIMS, SERVICES = "/resourcequotas", "/pods", "/persistentvolumeclaims", "/services"
_PLAIN = ("services", "replicationcontrollers", "resourcequotas", "secrets", "configmaps", "persistentvolumeclaims")
_SHORT = ("cpu", "memory", "ephemeral-storage")
_OF_CLASS = ".storageclass.storage.k8s.io/"
_ENDED = ("Succeeded", "Failed")




def charge(storage: Storage, resource: ServedResource, new: Object, old: Object | None) -> None:
    """Check an object against its namespace's quotas. Raises a 403 for the first quota that refuses the object."""
    bucket = storage.buckets.get(QUOTAS)
    if bucket is None or not bucket.objects:
        return
    meta = new["metadata"]
    key = resource.storage
    for version in list(bucket.scan(meta.get("namespace") or "?")):
        quota = version.decode()
        hard: dict[str, str] = dig(quota, "spec.hard") or {}
        asked, before = (_usage_of(key, obj, quota) if obj is not None else {} for obj in (new, old))
        delta = {name: amount - before.get(name, Fraction(0)) for name, amount in asked.items() if name in hard}
        if key == PODS and old is None and _in_scope(new, quota):
            _require(resource, new, version.name, hard)
        delta = {name: amount for name, amount in delta.items() if amount > 0}
        if not delta:
            continue
        used = usage(storage, quota, only=delta)
        over = sorted(name for name in delta if used[name] + delta[name] > value_of(hard[name]))
        if over:
            shown = [",".join(f"{name}={text}" for name, text in zip(over, texts, strict=True)) for texts in (
                [text_of(delta[name], hard[name]) for name in over], [text_of(used[name], hard[name]) for name in over],
                [hard[name] for name in over])]
            raise errors.forbidden(resource.group, resource.plural, meta.get("name") or "", (
                f"exceeded quota: {version.name}, requested: {shown[0]}, used: {shown[1]}, limited: {shown[2]}"))


def usage(storage: Storage, quota: Object, *, only: Iterable[str] | None = None) -> Amounts:
    """The usage of a quota's resources in the quota's namespace."""
    wanted = set(only) if only is not None else set(dig(quota, "spec.hard") or ())
    total = dict.fromkeys(wanted, Fraction(0))
    namespace = quota["metadata"]["namespace"]
    for key in _buckets_for(wanted):
        bucket = storage.buckets.get(key)
        for version in bucket.scan(namespace) if bucket is not None else ():
            for name, amount in _usage_of(key, _content(key, version, wanted), quota).items():
                if name in total:
                    total[name] += amount
    return total


def _content(key: str, version: Version, wanted: set[str]) -> Object:
    """An object's content. It is decoded only if one of the wanted resources depends on the content."""
    if key in (PODS, CLAIMS, SERVICES) and any(not name.startswith("count/") for name in wanted):
        return version.decode()
    return {"metadata": {"name": version.name}, "spec": {}}


def _buckets_for(wanted: set[str]) -> list[str]:
    found: dict[str, None] = {}
    for name in sorted(wanted):
        if name.startswith("count/"):
            plural, _, group = name.removeprefix("count/").partition(".")
            found[f"{group}/{plural}"] = None
        elif name in _PLAIN:
            found[f"/{name}"] = None
        elif name.startswith("services."):
            found[SERVICES] = None
        elif name == "requests.storage" or _OF_CLASS in name:
            found[CLAIMS] = None
        else:
            found[PODS] = None
    return list(found)


def _usage_of(key: str, obj: Object, quota: Object) -> Amounts:
    """The usage of one object, by resource name."""
    group, _, plural = key.partition("/")
    one = Fraction(1)
    found: Amounts = {f"count/{plural}.{group}" if group else f"count/{plural}": one}
    if not group and plural in _PLAIN:
        found[plural] = one
    if key == PODS:
        return {**found, **_pod_usage(obj)} if _in_scope(obj, quota) else found
    if key == SERVICES:
        kind = dig(obj, "spec.type")
        ports = dig(obj, "spec.ports") or ()
        balanced = kind == "LoadBalancer"
        allocated = kind == "NodePort" or (balanced and dig(obj, "spec.allocateLoadBalancerNodePorts") is not False)
        found["services.loadbalancers"] = Fraction(balanced)
        found["services.nodeports"] = Fraction(len(ports) if allocated else 0)
    if key == CLAIMS:
        size = value_of(dig(obj, "spec.resources.requests.storage") or "0")
        found["requests.storage"] = size
        if name := class_of(obj):
            found[f"{name}{_OF_CLASS}requests.storage"] = size
            found[f"{name}{_OF_CLASS}persistentvolumeclaims"] = one
    return found


def _pod_usage(pod: Object) -> Amounts:
    """The usage of a Pod; empty if the Pod has ended."""
    if dig(pod, "status.phase") in _ENDED:
        return {}
    found: Amounts = {"pods": Fraction(1)}
    for part in ("requests", "limits"):
        whole = dig(pod, f"spec.resources.{part}") or {}
        for name, amount in {**aggregated(pod["spec"], part), **whole}.items():
            found[f"{part}.{name}"] = value_of(amount)
            if part == "requests" and (name in _SHORT or name.startswith("hugepages-")):
                found[name] = value_of(amount)
    return found


def _in_scope(pod: Object, quota: Object) -> bool:
    entries = [{"scopeName": scope, "operator": "Exists"} for scope in dig(quota, "spec.scopes") or ()]
    entries += dig(quota, "spec.scopeSelector.matchExpressions") or []
    return all(_matches(entry, pod) for entry in entries)


def _matches(entry: Object, pod: Object) -> bool:
    scope, operator, values = entry["scopeName"], entry.get("operator"), entry.get("values") or ()
    spec = pod["spec"]
    if scope == "PriorityClass":
        name = spec.get("priorityClassName") or ""
        return {"In": name in values, "NotIn": bool(name) and name not in values, "Exists": bool(name),
                "DoesNotExist": not name}[str(operator)]
    if scope in ("Terminating", "NotTerminating"):
        return ((spec.get("activeDeadlineSeconds") or 0) > 0) is (scope == "Terminating")
    if scope in ("BestEffort", "NotBestEffort"):
        return (quality_of_service(spec) == "BestEffort") is (scope == "BestEffort")
    if scope == "CrossNamespacePodAffinity":
        return any(term.get("namespaces") or term.get("namespaceSelector") is not None for term in _terms(spec))
    return False  # a scope that applies to claims only


def _terms(spec: Object) -> Iterator[Object]:
    for kind in ("podAffinity", "podAntiAffinity"):
        found = dig(spec, f"affinity.{kind}") or {}
        yield from found.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        yield from (each["podAffinityTerm"] for each in
                    found.get("preferredDuringSchedulingIgnoredDuringExecution") or ())


def _require(resource: ServedResource, pod: Object, quota: str, hard: dict[str, str]) -> None:
    """Require each container to set the compute resources that a quota limits."""
    missing: dict[str, list[str]] = {}
    for name in hard:
        part, _, plain = name.rpartition(".")
        if plain not in ("cpu", "memory") or part not in ("", "requests", "limits"):
            continue
        for key in ("containers", "initContainers"):
            for container in pod["spec"].get(key) or ():
                given = ((container.get("resources") or {}).get(part or "requests")) or {}
                whole = dig(pod, f"spec.resources.{part or 'requests'}") or {}
                if plain not in given and plain not in whole:
                    missing.setdefault(name, []).append(container["name"])
    if missing:
        told = "; ".join(f"{name} for: {','.join(sorted(set(names)))}" for name, names in sorted(missing.items()))
        raise errors.forbidden(resource.group, resource.plural, pod["metadata"].get("name") or "",
                               f"failed quota: {quota}: must specify {told}")


def text_of(amount: Fraction, like: str) -> str:
    """An amount as text, with a binary or decimal suffix, whichever the quantity `like` has."""
    if "i" in like and amount.denominator == 1:
        return canonical(f"{int(amount) // 1024}Ki") if amount and amount % 1024 == 0 else str(int(amount))
    return canonical(f"{int(amount * 10**9)}n")
