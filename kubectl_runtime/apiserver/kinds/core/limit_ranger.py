"""What the admission plugin LimitRanger does with the LimitRanges of a namespace: it fills in, and refuses.

Containers without requests or limits get the defaults, and the Pod an annotation that says so; a Pod or claim that asks
for more or less than is allowed is refused with 403. Only the creation of a Pod is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.kinds.pod.resources import aggregated
from kubectl_runtime.apiserver.strategy import Object, StrategyContext
from kubectl_runtime.core.meta.quantities import value_of

ANNOTATION = "kubernetes.io/limit-ranger"
Amounts = Mapping[str, str]


def _limits(namespace: str, kind: str, ctx: StrategyContext) -> Iterator[Object]:
    ranges = [entry for entry in ctx.objects("", "limitranges") if entry["metadata"].get("namespace") == namespace]
    for entry in sorted(ranges, key=lambda found: str(found["metadata"]["name"])):
        for limit in (entry.get("spec") or {}).get("limits") or ():
            if limit.get("type") == kind:
                yield limit


def fill_in(pod: Object, ctx: StrategyContext) -> None:
    """Give the containers of a Pod the default requests and limits."""
    for limit in _limits(pod["metadata"].get("namespace", ""), "Container", ctx):
        told = []
        for key, title in (("containers", "container"), ("initContainers", "init container")):
            for container in pod["spec"].get(key) or ():
                for part, source in (("request", "defaultRequest"), ("limit", "default")):
                    if names := _fill(container, f"{part}s", limit.get(source) or {}):
                        told.append(f"{', '.join(names)} {part} for {title} {container.get('name', '')}")
        if told:
            annotations = pod["metadata"].get("annotations") or {}
            pod["metadata"]["annotations"] = {**annotations, ANNOTATION: f"LimitRanger plugin set: {'; '.join(told)}"}


def _fill(container: Object, part: str, defaults: Amounts) -> list[str]:
    given = (container.get("resources") or {}).get(part) or {}
    missing = sorted(name for name in defaults if name not in given)
    if missing:
        container["resources"] = {**(container.get("resources") or {}),
                                  part: {**given, **{name: defaults[name] for name in missing}}}
    return missing


def check_pod(pod: Object, ctx: StrategyContext) -> None:
    """Refuse a Pod that is not within the limits; raises the 403."""
    namespace, spec = pod["metadata"].get("namespace", ""), pod["spec"]
    why: list[str] = []
    for limit in _limits(namespace, "Container", ctx):
        for key in ("containers", "initContainers"):
            for container in spec.get(key) or ():
                resources = container.get("resources") or {}
                why += _violations(limit, resources.get("requests") or {}, resources.get("limits") or {})
    for limit in _limits(namespace, "Pod", ctx):
        why += _violations(limit, aggregated(spec, "requests"), aggregated(spec, "limits"))
    _refuse("pods", pod, why)


def check_claim(claim: Object, ctx: StrategyContext) -> None:
    """Refuse a claim that is not within the limits; raises the 403."""
    requests = (claim["spec"].get("resources") or {}).get("requests") or {}
    why: list[str] = []
    for limit in _limits(claim["metadata"].get("namespace", ""), "PersistentVolumeClaim", ctx):
        why += [text for text in _violations(limit, requests, requests) if "limit is" not in text]
    _refuse("persistentvolumeclaims", claim, why)


def _refuse(plural: str, obj: Object, why: list[str]) -> None:
    if why:
        text = why[0] if len(why) == 1 else f"[{', '.join(why)}]"
        raise errors.forbidden("", plural, obj["metadata"].get("name", ""), text)


def _violations(limit: Object, requests: Amounts, limits: Amounts) -> Iterator[str]:
    kind = limit["type"]
    for name, least in sorted((limit.get("min") or {}).items()):
        rule = f"minimum {name} usage per {kind} is {least}"
        if name not in requests:
            yield f"{rule}.  No request is specified"
        elif value_of(requests[name]) < value_of(least):
            yield f"{rule}, but request is {requests[name]}"
        elif name in limits and value_of(limits[name]) < value_of(least):
            yield f"{rule}, but limit is {limits[name]}"
    for name, most in sorted((limit.get("max") or {}).items()):
        rule = f"maximum {name} usage per {kind} is {most}"
        if name not in limits:
            yield f"{rule}.  No limit is specified"
        elif kind != "PersistentVolumeClaim" and value_of(limits[name]) > value_of(most):
            yield f"{rule}, but limit is {limits[name]}"
        elif name in requests and value_of(requests[name]) > value_of(most):
            yield f"{rule}, but request is {requests[name]}"
    for name, ratio in sorted((limit.get("maxLimitRequestRatio") or {}).items()):
        rule = f"{name} max limit to request ratio per {kind} is {ratio}"
        if name not in requests or not value_of(requests[name]):
            yield f"{rule}, but no request is specified or request is 0"
        elif name not in limits or not value_of(limits[name]):
            yield f"{rule}, but no limit is specified or limit is 0"
        elif (observed := value_of(limits[name]) / value_of(requests[name])) > value_of(ratio):
            yield f"{rule}, but provided ratio is {float(observed):f}"
