"""Requests and limits of a Pod: what is derived from others, and the quality of service that follows from them."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from kubectl_runtime.apiserver.strategy import Object
from kubectl_runtime.core.meta.quantities import canonical, value_of

_COMPUTE = ("cpu", "memory")  # what the quality of service looks at
_HUGE_PAGES = "hugepages-"


def default_resources(spec: Object) -> None:
    """Requests from limits, for each container and for the whole Pod if it has resources of its own."""
    for key in ("containers", "initContainers"):
        for container in spec.get(key) or ():
            if limits := (container.get("resources") or {}).get("limits"):
                resources = container["resources"]
                resources["requests"] = {**limits, **(resources.get("requests") or {})}
    whole = spec.get("resources")
    if not whole:
        return
    limits = dict(whole.get("limits") or {})
    for name, amount in aggregated(spec, "limits").items():
        if name.startswith(_HUGE_PAGES) and name not in (whole.get("requests") or {}):
            limits.setdefault(name, amount)
    if limits:
        derived = {name: amount for name, amount in aggregated(spec, "requests").items() if name in _COMPUTE}
        supported = {name: amount for name, amount in limits.items() if name in _COMPUTE or _HUGE_PAGES in name}
        whole["limits"] = limits
        whole["requests"] = {**supported, **derived, **(whole.get("requests") or {})}


def aggregated(spec: Object, part: str) -> dict[str, str]:
    """What all containers need together: the sum of the main ones and sidecars, or the largest init container."""
    total: dict[str, Fraction] = {}
    largest: dict[str, Fraction] = {}
    texts: dict[str, str] = {}
    for container in spec.get("initContainers") or ():
        for name, amount in _amounts(container, part):
            sidecars = total.get(name, Fraction(0))
            if container.get("restartPolicy") == "Always":
                total[name] = sidecars + value_of(amount)
                largest[name] = max(largest.get(name, Fraction(0)), total[name])
            else:
                largest[name] = max(largest.get(name, Fraction(0)), value_of(amount) + sidecars)
            texts[name] = amount
    for container in spec.get("containers") or ():
        for name, amount in _amounts(container, part):
            total[name] = total.get(name, Fraction(0)) + value_of(amount)
            texts.setdefault(name, amount)
    needed = {name: max(total.get(name, Fraction(0)), largest.get(name, Fraction(0))) for name in texts}
    return {name: _text(needed[name], like=text) for name, text in texts.items()}


def _amounts(container: Object, part: str) -> Iterable[tuple[str, str]]:
    return ((container.get("resources") or {}).get(part) or {}).items()


def _text(value: Fraction, *, like: str) -> str:
    """A sum as the real server writes it: in the family (binary or decimal) of its parts."""
    if "i" in like and value.denominator == 1 and value % 1024 == 0:
        return canonical(f"{int(value) // 1024}Ki")
    return canonical(f"{int(value * 10**9)}n")


def quality_of_service(spec: Object) -> str:
    """Guaranteed, Burstable or BestEffort, from the requests and limits of the Pod or, without them, its containers."""
    whole = spec.get("resources") or {}
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    parts = [whole] if whole.get("limits") or whole.get("requests") else [
        container.get("resources") or {} for container in containers]
    computed = [(_compute(entry, "requests"), _compute(entry, "limits")) for entry in parts]
    if not any(requests or limits for requests, limits in computed):
        return "BestEffort"
    guaranteed = all(requests == limits and len(limits) == len(_COMPUTE) for requests, limits in computed)
    return "Guaranteed" if guaranteed else "Burstable"


def _compute(resources: Object, part: str) -> dict[str, Fraction]:
    """CPU and memory that are more than zero."""
    amounts = ((name, value_of(amount)) for name, amount in (resources.get(part) or {}).items() if name in _COMPUTE)
    return {name: amount for name, amount in amounts if amount > 0}
