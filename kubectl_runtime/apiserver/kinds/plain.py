"""Kinds that the server stores and does not act on; their rules are rows alone.

Leases; FlowSchemas and PriorityLevelConfigurations (all requests are treated alike); APIServices (none is proxied to);
the classes, slices and claims of devices in resource.k8s.io.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds import rules as r
from kubectl_runtime.apiserver.kinds.admission import SERVICE_ADDRESS
from kubectl_runtime.apiserver.kinds.base import BuiltinStrategy
from kubectl_runtime.apiserver.objectmeta.names import dns_1035_label_errors, dns_label_errors
from kubectl_runtime.apiserver.strategy import Object


class LeaseStrategy(BuiltinStrategy):
    """Leases."""

    dropped = ("spec.strategy", "spec.preferredHolder")  # of coordinated leader election
    rules = r.Rules(
        ("spec.leaseDurationSeconds", r.at_least(1, "must be greater than 0")),
        ("spec.leaseTransitions", r.NATURAL),
    )


class FlowSchemaStrategy(BuiltinStrategy):
    """FlowSchemas."""

    has_generation = True
    defaults = r.Defaults(zero={"spec.matchingPrecedence": 1000})
    rules = r.Rules(
        ("spec.matchingPrecedence", r.at_least(1, "must be a positive value"),
         r.must(lambda value: value <= 10000, "must not be greater than 10000")),
        r.when(r.has("spec.distinguisherMethod"),
               ("spec.distinguisherMethod.type", r.choice(
                   "ByNamespace", "ByUser", zero="", shown=lambda value: {"Type": value}))),
        ("spec.priorityLevelConfiguration.name", r.required("must reference a priority level")),
        ("spec.rules[*]", r.Rules(
            ("subjects", r.required("subjects must contain at least one value")),
            ("subjects[*].kind", r.REQUIRED, r.choice("Group", "ServiceAccount", "User")),
            r.when(r.lacks("resourceRules", "nonResourceRules"), ("", r.missing(
                "at least one of resourceRules and nonResourceRules has to be non-empty"))),
        )),
    )


def _hand_size(queuing: Object | None, path: str) -> list[Cause]:
    if not queuing or queuing["handSize"] <= queuing["queues"]:
        return []
    why = f"should not be greater than queues ({queuing['queues']})"
    return [errors.invalid_value(f"{path}.handSize", queuing["handSize"], why)]


class PriorityLevelStrategy(BuiltinStrategy):
    """PriorityLevelConfigurations."""

    has_generation = True
    defaults = r.Defaults({
        "spec.limited.nominalConcurrencyShares": 30, "spec.limited.lendablePercent": 0,
        "spec.exempt.nominalConcurrencyShares": 0, "spec.exempt.lendablePercent": 0,
    }, zero={
        "spec.limited.limitResponse.queuing.queues": 64, "spec.limited.limitResponse.queuing.handSize": 8,
        "spec.limited.limitResponse.queuing.queueLengthLimit": 50,
    })
    rules = r.Rules(
        ("spec.type", r.choice("Exempt", "Limited", zero="")),
        r.when(lambda obj: r.equals("spec.type", "Exempt")(obj) != r.equals("metadata.name", "exempt")(obj),
               r.equals("spec.type", "Exempt", "Limited"),
                  ("spec.type", r.invalid("must be 'Exempt' if and only if `name` is 'exempt'"))),
        r.when(r.equals("spec.type", "Limited"),
               ("spec.limited", r.present("must not be empty when type is Limited"), r.Rules(
                   ("nominalConcurrencyShares", r.at_least(0, "must be a non-negative integer")),
                   ("lendablePercent", r.between(0, 100)),
                   ("limitResponse.type", r.choice("Queue", "Reject", zero="")),
                   r.when(r.equals("limitResponse.type", "Reject"), ("limitResponse.queuing", r.forbidden(
                       "must be nil if limited.limitResponse.type is not Limited", empty=True))),
                   r.when(r.equals("limitResponse.type", "Queue"), ("limitResponse.queuing", r.present(
                       "must not be empty if limited.limitResponse.type is Limited"), _hand_size)),
               ))),
    )


def _named_after_version(obj: Object, path: str) -> list[Cause]:
    given, spec = obj["metadata"].get("name") or "", obj["spec"]
    wanted = f"{spec.get('version') or ''}.{spec.get('group') or ''}"
    why = f'must be `spec.version+"."+spec.group`: "{wanted}"'
    return [] if given == wanted else [errors.invalid_value(f"{path}metadata.name", given, why)]


class APIServiceStrategy(BuiltinStrategy):
    """APIServices."""

    defaults = r.Defaults({"spec.service.port": 443})
    rules = r.Rules(
        ("", _named_after_version),
        ("spec.version", r.name(dns_1035_label_errors, empty=True)),
        ("spec.groupPriorityMinimum", r.between(1, 20000, "must be positive and less than 20000", zero=0)),
        ("spec.versionPriority", r.between(1, 1000, "must be positive and less than 1000", zero=0)),
        ("spec.service", SERVICE_ADDRESS),
        r.when(r.absent("spec.service"), r.some("spec.caBundle", "spec.insecureSkipTLSVerify"),
               ("spec.caBundle", r.invalid("local APIServices may not have a caBundle", shown=""))),
        r.when(r.has("spec.service"), r.filled("spec.caBundle", "spec.insecureSkipTLSVerify"),
               ("spec.insecureSkipTLSVerify", r.invalid("may not be true if caBundle is present"))),
    )


def _exactly_one(text: str, *keys: str, shown: Callable[[list[str]], Any] = lambda _: None) -> r.Check:
    def check(obj: Object, path: str) -> list[Cause]:
        given = [key for key in keys if obj.get(key)]
        if not given:
            return [errors.required(path, text)]
        return [errors.invalid_value(path, shown(given), f"{text}, but multiple fields are set")] if given[1:] else []

    return check


_PLACES = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
_ONE_PLACE = f"exactly one of {', '.join(f'`{place}`' for place in _PLACES)} is required"
_CONFIGURATIONS = ("config[*].opaque", r.present())
_SELECTORS = ("selectors[*].cel", r.present())

_EXACT_REQUEST = r.Rules(
    ("deviceClassName", r.REQUIRED),
    _SELECTORS,
    ("allocationMode", r.choice("All", "ExactCount")),
    r.when(r.equals("allocationMode", "ExactCount"), ("count", r.at_least(1, "must be greater than zero", zero=0))),
    r.when(r.equals("allocationMode", "All"), ("count", r.must(
        lambda count: not count, "must not be specified when allocationMode is 'All'"))),
)
_DEVICES = r.Rules(
    ("requests[*]", r.Unique(lambda request: request.get("name") or ""), r.Rules(
        ("name", r.name(dns_label_errors, empty=True)),
        ("", _exactly_one("exactly one of `exactly` or `firstAvailable` is required", "exactly", "firstAvailable")),
        ("exactly", _EXACT_REQUEST),
        ("firstAvailable[*]", _EXACT_REQUEST),
    )),
    _CONFIGURATIONS,
)


class DeviceClassStrategy(BuiltinStrategy):
    """DeviceClasses."""

    has_generation = True
    delete_returns_object = True
    rules = r.Rules(("spec", r.Rules(_SELECTORS, _CONFIGURATIONS)))


class ResourceSliceStrategy(BuiltinStrategy):
    """ResourceSlices."""

    has_generation = True
    delete_returns_object = True
    fields: ClassVar[dict[str, str | Callable[[Object], str]]] = {
        "spec.nodeName": "spec.nodeName", "spec.driver": "spec.driver"}
    unsupported_field = "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: {}"
    rules = r.Rules(
        ("spec.driver", r.REQUIRED),
        ("spec.pool.name", r.REQUIRED),
        ("spec.pool.resourceSliceCount", r.at_least(1, "must be greater than zero", zero=0)),
        ("spec", _exactly_one(_ONE_PLACE, *_PLACES, shown=lambda given: "{" + ", ".join(f"`{key}`" for key in given)
                              + "}")),
        ("spec.driver", r.FIXED),
        ("spec.nodeName", r.FIXED),
    )


def _request_defaults(path: str) -> r.Defaults:
    parts = [f"{path}.requests[*].{part}" for part in ("exactly", "firstAvailable[*]")]
    return r.Defaults(zero={
        **{f"{part}.allocationMode": "ExactCount" for part in parts},
        **{f"{part}.count": lambda request: 1 if request["allocationMode"] == "ExactCount" else None
           for part in parts}})


class ResourceClaimStrategy(BuiltinStrategy):
    """ResourceClaims."""

    delete_returns_object = True
    defaults = _request_defaults("spec.devices")
    rules = r.Rules(("spec.devices", _DEVICES))
    update_rules = r.Rules(("spec", r.FIXED))


class ResourceClaimTemplateStrategy(ResourceClaimStrategy):
    """ResourceClaimTemplates: claims one level lower."""

    defaults = _request_defaults("spec.spec.devices")
    rules = r.Rules(("spec.spec.devices", _DEVICES))
