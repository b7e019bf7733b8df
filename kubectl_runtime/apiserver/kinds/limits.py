"""LimitRanges and ResourceQuotas, and the requests and limits of Pods.

As with the admission plugin LimitRanger, new Pods get their namespace's default requests and limits, and an annotation
that lists them. A new Pod or claim that exceeds the limits is refused with a 403. `policies.quotas` enforces
ResourceQuotas.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds import rules as r
from kubectl_runtime.apiserver.kinds.base import BuiltinStrategy
from kubectl_runtime.apiserver.kinds.pod.containers import STANDARD, amount_causes, is_extended, name_causes
from kubectl_runtime.apiserver.strategy import StrategyContext
from kubectl_runtime.apiserver.wire import Object
from kubectl_runtime.core.meta.quantities import canonical, value_of

LIMIT_TYPES = ("Pod", "Container", "PersistentVolumeClaim")
SCOPES = ("Terminating", "NotTerminating", "BestEffort", "NotBestEffort", "PriorityClass",
          "CrossNamespacePodAffinity", "VolumeAttributesClass")
_CONFLICTS = ({"BestEffort", "NotBestEffort"}, {"Terminating", "NotTerminating"})
_COMPUTE = {"cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"}
_COUNTED = {"pods", "services", "replicationcontrollers", "resourcequotas", "secrets", "configmaps",
            "persistentvolumeclaims", "services.nodeports", "services.loadbalancers"}
_PARTS = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")
# (lower part, its name, upper part, its name): the lower amount must not exceed the upper amount
_ORDERS = (("min", "min", "max", "max"), ("defaultRequest", "default request", "max", "max"),
           ("default", "default", "max", "max"), ("defaultRequest", "default request", "default", "default limit"),
           ("min", "min", "defaultRequest", "default request"), ("min", "min", "default", "default"))


def _limit_type(given: str | None, path: str) -> Iterator[Cause]:
    kind = given or ""
    found = [*r.ANY_QUALIFIED(kind, path)]
    yield from found
    if not found and "/" not in kind and kind not in LIMIT_TYPES:
        yield errors.invalid_value(path, kind, "must be a standard limit type or fully qualified")


def _amounts(limit: Object, path: str) -> Iterator[Cause]:
    for part in _PARTS:
        for name, amount in (limit.get(part) or {}).items():
            if limit.get("type") == "Container":
                yield from name_causes(name, f"{path}.{part}[{name}]")
            elif "/" not in name and name not in STANDARD and not name.startswith("hugepages-"):
                yield errors.invalid_value(f"{path}.{part}[{name}]", name,
                                           "must be a standard resource type or fully qualified")
            # `amount_causes` is not used, because the real server accepts negative amounts here.
            if is_extended(name) and value_of(amount).denominator != 1:
                yield errors.invalid_value(f"{path}.{part}[{name}]", amount, "must be an integer")


def _orders(limit: Object, path: str) -> Iterator[Cause]:
    for lower, lower_name, upper, upper_name in _ORDERS:
        for name, amount in (limit.get(lower) or {}).items():
            most = (limit.get(upper) or {}).get(name)
            if most is None or value_of(amount) <= value_of(most):
                continue
            # The real server blames this field and prints this value.
            blamed = upper if lower == "min" and upper != "max" else lower
            shown = most if (lower, upper) in (("default", "max"), ("min", "defaultRequest")) else amount
            yield errors.invalid_value(f"{path}.{blamed}[{name}]", shown, f"{lower_name} value {amount} is greater "
                                       f"than {upper_name} value {most}")


def _ratios(limit: Object, at: str) -> Iterator[Cause]:
    path = f"{at}.maxLimitRequestRatio"
    for name, ratio in (limit.get("maxLimitRequestRatio") or {}).items():
        if value_of(ratio) < 1:
            yield errors.invalid_value(f"{path}[{name}]", ratio, f"ratio {ratio} is less than 1")
        most, least = ((limit.get(part) or {}).get(name) for part in ("max", "min"))
        if most is not None and least is not None and value_of(least) > 0 and (
                value_of(ratio) > (quotient := value_of(most) / value_of(least))):
            yield errors.invalid_value(f"{path}[{name}]", ratio,
                                       f"ratio {ratio} is greater than max/min = {float(quotient):f}")


def _no_storage(limit: Object, path: str) -> Iterator[Cause]:
    if not any("storage" in (limit.get(key) or {}) for key in ("max", "min")):
        yield errors.required(f"{path}.limits",
                              "either minimum or maximum storage value is required, but neither was provided")


_NOT_ON_PODS = r.forbidden("may not be specified when `type` is 'Pod'")
_LIMIT = r.Rules(
    ("type", _limit_type, r.UNIQUE),
    r.when(r.equals("type", "Pod"), ("default", _NOT_ON_PODS), ("defaultRequest", _NOT_ON_PODS)),
    r.when(r.equals("type", "PersistentVolumeClaim"), ("", _no_storage)),
    ("", _amounts, _orders, _ratios),
)


def _hard(amounts: Object | None, path: str) -> Iterator[Cause]:
    for name, amount in (amounts or {}).items():
        yield from _quota_name_causes(name, f"{path}[{name}]")
        yield from amount_causes(name, amount, f"{path}[{name}]")
        if value_of(amount).denominator != 1 and (name in _COUNTED or name.startswith("count/")):
            yield errors.invalid_value(f"{path}[{name}]", amount, "must be an integer")


def _scopes(spec: Object, path: str) -> Iterator[Cause]:
    scopes, at = spec.get("scopes") or [], f"{path}.scopes"
    for scope in scopes:
        if scope not in SCOPES:
            yield errors.invalid_value(at, scopes, "unsupported scope")
        elif any(_is_beside(scope, name) for name in spec.get("hard") or ()):
            yield errors.invalid_value(at, scopes, "unsupported scope applied to resource")
    yield from (errors.invalid_value(at, scopes, "conflicting scopes") for pair in _CONFLICTS if pair <= set(scopes))


_SCOPE_EXPRESSION = r.Rules(
    ("scopeName", r.must(SCOPES.__contains__, "unsupported scope", zero="")),
    r.when(r.equals("operator", "In", "NotIn"), ("values", r.required(
        "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"))),
    r.when(r.equals("operator", "Exists", "DoesNotExist"), ("values", r.must(lambda values: not values, (
        "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector")))),
    ("operator", r.must(("In", "NotIn", "Exists", "DoesNotExist").__contains__, "not a valid selector operator",
                      zero="")),
)


def _quota_name_causes(name: str, path: str) -> Iterator[Cause]:
    found = [*r.ANY_QUALIFIED(name, path)]
    yield from found
    if not found and "/" not in name and name not in STANDARD and "hugepages-" not in name:
        yield errors.invalid_value(path, name, "must be a standard resource type or fully qualified")
        yield errors.invalid_value(path, name, "must be a standard resource for quota")


def _is_beside(scope: str, name: str) -> bool:
    """Whether a scope excludes a resource. BestEffort allows only Pods; other scopes also allow compute resources."""
    if name not in STANDARD:
        return False
    return name != "pods" if scope == "BestEffort" else name not in {"pods", *_COMPUTE}


class LimitRangeStrategy(BuiltinStrategy):
    """LimitRanges. As in the real server, missing limits are derived from other limits."""

    rules = r.Rules(("spec.limits[*]", _LIMIT))

    def default(self, obj: Object) -> None:
        """Fill in default limits of containers from max, and default requests from default limits, else from min."""
        for item in (obj.get("spec") or {}).get("limits") or ():
            if item.get("type") != "Container":
                continue
            default: Object = {**(item.get("max") or {}), **(item.get("default") or {})}
            request: Object = {**(item.get("min") or {}), **default, **(item.get("defaultRequest") or {})}
            _set_if_any(item, "default", default)
            _set_if_any(item, "defaultRequest", request)


def _set_if_any(item: Object, key: str, value: Any) -> None:
    if value:
        item[key] = value


class ResourceQuotaStrategy(BuiltinStrategy):
    """ResourceQuotas. `policies.quotas` enforces them."""

    delete_returns_object = True
    rules = r.Rules(
        ("spec.hard", _hard),
        ("spec", _scopes),
        # the real server's paths have no index here
        ("spec.scopeSelector.matchExpressions", r.each(_SCOPE_EXPRESSION)),
        ("spec.scopes", r.FIXED),
    )


_POD_COMPUTE = ("cpu", "memory")  # the resources that decide the Pod's QoS class
_HUGE_PAGES = "hugepages-"


def default_resources(spec: Object) -> None:
    """Fill in missing requests from limits, for each container and for Pod-level resources."""
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
        derived = {name: amount for name, amount in aggregated(spec, "requests").items() if name in _POD_COMPUTE}
        supported = {name: amount for name, amount in limits.items() if name in _POD_COMPUTE or _HUGE_PAGES in name}
        whole["limits"] = limits
        whole["requests"] = {**supported, **derived, **(whole.get("requests") or {})}


def aggregated(spec: Object, part: str) -> dict[str, str]:
    """What a Pod's containers need together, for each resource (`part` is ``requests`` or ``limits``).

    The result is the sum over main containers and sidecars, or what an init container needs together with the sidecars
    that start before it, whichever is larger.
    """
    total: dict[str, Fraction] = {}
    largest: dict[str, Fraction] = {}
    texts: dict[str, str] = {}
    for container in spec.get("initContainers") or ():
        for name, amount in _pod_amounts(container, part):
            sidecars = total.get(name, Fraction(0))
            if container.get("restartPolicy") == "Always":
                total[name] = sidecars + value_of(amount)
                largest[name] = max(largest.get(name, Fraction(0)), total[name])
            else:
                largest[name] = max(largest.get(name, Fraction(0)), value_of(amount) + sidecars)
            texts[name] = amount
    for container in spec.get("containers") or ():
        for name, amount in _pod_amounts(container, part):
            total[name] = total.get(name, Fraction(0)) + value_of(amount)
            texts.setdefault(name, amount)
    needed = {name: max(total.get(name, Fraction(0)), largest.get(name, Fraction(0))) for name in texts}
    return {name: _text(needed[name], like=text) for name, text in texts.items()}


def _pod_amounts(container: Object, part: str) -> Iterable[tuple[str, str]]:
    return ((container.get("resources") or {}).get(part) or {}).items()


def _text(value: Fraction, *, like: str) -> str:
    """A sum as the real server prints it, with a suffix of the same family (binary or decimal) as in `like`."""
    if "i" in like and value.denominator == 1 and value % 1024 == 0:
        return canonical(f"{int(value) // 1024}Ki")
    return canonical(f"{int(value * 10**9)}n")


def quality_of_service(spec: Object) -> str:
    """The QoS class: Guaranteed, Burstable or BestEffort.

    It depends on the Pod-level resources if they are set, and otherwise on the resources of the containers.
    """
    whole = spec.get("resources") or {}
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    parts = [whole] if whole.get("limits") or whole.get("requests") else [
        container.get("resources") or {} for container in containers]
    computed = [(_compute(entry, "requests"), _compute(entry, "limits")) for entry in parts]
    if not any(requests or limits for requests, limits in computed):
        return "BestEffort"
    guaranteed = all(requests == limits and len(limits) == len(_POD_COMPUTE) for requests, limits in computed)
    return "Guaranteed" if guaranteed else "Burstable"


def _compute(resources: Object, part: str) -> dict[str, Fraction]:
    """The amounts of CPU and memory that are above zero."""
    amounts = ((name, value_of(amount)) for name, amount in (resources.get(part) or {}).items() if name in _POD_COMPUTE)
    return {name: amount for name, amount in amounts if amount > 0}


ANNOTATION = "kubernetes.io/limit-ranger"
Amounts = Mapping[str, str]


def _limits(namespace: str, kind: str, ctx: StrategyContext) -> Iterator[Object]:
    for entry in ctx.objects("", "limitranges", namespace or "?"):
        for limit in (entry.get("spec") or {}).get("limits") or ():
            if limit.get("type") == kind:
                yield limit


def fill_in(pod: Object, ctx: StrategyContext) -> None:
    """Give a Pod's containers the default requests and limits of the namespace's LimitRanges."""
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
    """Check a Pod against the namespace's LimitRanges. Raises a 403 if the Pod exceeds a limit."""
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
    """Check a claim against the namespace's LimitRanges. Raises a 403 if the claim exceeds a limit."""
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
