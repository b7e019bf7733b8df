"""Validation of resource requests and limits: which names there are, and how amounts relate."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds.base import NOT_NEGATIVE
from kubectl_runtime.apiserver.objectmeta.names import qualified_name_errors
from kubectl_runtime.apiserver.strategy import Object
from kubectl_runtime.core.meta.quantities import value_of

_FOR_CONTAINERS = {"cpu", "memory", "ephemeral-storage"}
STANDARD = _FOR_CONTAINERS | {
    "pods", "services", "replicationcontrollers", "resourcequotas", "secrets", "configmaps", "persistentvolumeclaims",
    "storage", "services.nodeports", "services.loadbalancers", "requests.cpu", "requests.memory", "requests.storage",
    "requests.ephemeral-storage", "limits.cpu", "limits.memory", "limits.ephemeral-storage"}
_HUGE_PAGES = "hugepages-"


def resource_causes(resources: Object, path: str, *, claims: Collection[str] = (),
                    pod: bool = False) -> Iterator[Cause]:
    """What is wrong with the resources of a container or, if `pod`, of a whole Pod."""
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for part, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            at = f"{path}.{part}[{name}]"
            yield from _pod_name_causes(name, at) if pod else name_causes(name, at)
            yield from amount_causes(name, amount, at)
    for name, amount in requests.items():
        limit = limits.get(name)
        if limit is None:
            if not _overcommits(name):
                yield errors.required(f"{path}.limits", "Limit must be set for non overcommitable resources")
        elif not _overcommits(name) and value_of(amount) != value_of(limit):
            yield errors.invalid_value(f"{path}.requests", amount, f"must be equal to {name} limit of {limit}")
        elif value_of(amount) > value_of(limit):
            yield errors.invalid_value(f"{path}.requests", amount,
                                       f"must be less than or equal to {name} limit of {limit}")
    named = {*limits, *requests}
    if any(name.startswith(_HUGE_PAGES) for name in named) and not named & {"cpu", "memory"}:
        yield errors.forbidden_field(path, "HugePages require cpu or memory")
    for index, claim in enumerate(resources.get("claims") or ()):
        if claim.get("name", "") not in claims:
            known = "which is empty" if not claims else "which are: " + ", ".join(claims)
            cause = errors.not_found_value(f"{path}.claims[{index}]", claim.get("name", ""))
            yield Cause(cause.reason, f"{cause.message}: must be one of the names in pod.spec.resourceClaims {known}",
                        cause.field)


def name_causes(name: str, path: str) -> Iterator[Cause]:
    """A resource that containers may ask for."""
    found = qualified_name_errors(name)
    yield from (errors.invalid_value(path, name, why) for why in found)
    if "/" in name or found:
        return
    huge = name.startswith(_HUGE_PAGES)
    if name not in STANDARD and not huge:
        yield errors.invalid_value(path, name, "must be a standard resource type or fully qualified")
    if name not in _FOR_CONTAINERS and not huge:
        yield errors.invalid_value(path, name, "must be a standard resource for containers")


def _pod_name_causes(name: str, path: str) -> Iterator[Cause]:
    if "/" not in name and name not in STANDARD and not name.startswith(_HUGE_PAGES):
        yield errors.invalid_value(path, name, "must be a standard resource type or fully qualified")
    elif name not in ("cpu", "memory") and not name.startswith(_HUGE_PAGES):
        yield errors.not_supported(path, name, ("cpu", "hugepages-", "memory"))


def amount_causes(name: str, amount: str, path: str) -> Iterator[Cause]:
    """Amounts are not negative; what can only be had as a whole is counted in integers."""
    if value_of(amount) < 0:
        yield errors.invalid_value(path, amount, NOT_NEGATIVE)
    if is_extended(name) and value_of(amount).denominator != 1:
        yield errors.invalid_value(path, amount, "must be an integer")


def is_extended(name: str) -> bool:
    """A resource of somebody's own, such as ``example.com/gpu``."""
    domain = name.partition("/")[0]
    return "/" in name and not (domain == "kubernetes.io" or domain.endswith(".kubernetes.io")
                                or name.startswith("requests."))


def _overcommits(name: str) -> bool:
    return not is_extended(name) and not name.startswith(_HUGE_PAGES)
