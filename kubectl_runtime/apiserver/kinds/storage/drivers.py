"""CSIDrivers, and CSINodes with the drivers of a node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds.base import (
    BuiltinStrategy,
    immutable_causes,
    non_negative,
    one_of,
    put_default,
)
from kubectl_runtime.apiserver.objectmeta.names import dns_subdomain_errors, qualified_name_errors
from kubectl_runtime.apiserver.strategy import Object, StrategyContext

MIN_TOKEN_SECONDS, MIN_PERIOD_SECONDS = 600, 10


class CSIDriverStrategy(BuiltinStrategy):
    """CSIDrivers."""

    delete_returns_object = True

    def default(self, obj: Object) -> None:
        """What a driver can do, unless it says otherwise."""
        spec = obj["spec"]
        defaults: dict[str, Any] = {"attachRequired": True, "podInfoOnMount": False, "storageCapacity": False,
                                    "fsGroupPolicy": "ReadWriteOnceWithFSType", "requiresRepublish": False,
                                    "seLinuxMount": False}
        for key, value in defaults.items():
            put_default(spec, key, value)
        if not spec.get("volumeLifecycleModes"):
            spec["volumeLifecycleModes"] = ["Persistent"]

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """Modes, policy, tokens."""
        spec, audiences = obj["spec"], set()
        causes = []
        for mode in spec.get("volumeLifecycleModes") or ():
            causes += one_of(mode, ("Persistent", "Ephemeral"), "spec.volumeLifecycleModes", required=True)
        causes += one_of(spec.get("fsGroupPolicy"), ("File", "None", "ReadWriteOnceWithFSType"), "spec.fsGroupPolicy")
        for index, token in enumerate(spec.get("tokenRequests") or ()):
            at, audience = f"spec.tokenRequests[{index}]", token.get("audience")
            seconds = token.get("expirationSeconds")
            if audience in audiences:
                causes.append(errors.duplicate(f"{at}.audience", audience))
            audiences.add(audience)
            if seconds is not None and seconds < MIN_TOKEN_SECONDS:
                causes.append(errors.invalid_value(f"{at}.expirationSeconds", seconds,
                                                   "may not specify a duration less than 10 minutes"))
        period = spec.get("nodeAllocatableUpdatePeriodSeconds")
        if period is not None and period < MIN_PERIOD_SECONDS:
            causes.append(errors.invalid_value("spec.nodeAllocatableUpdatePeriodSeconds", period,
                                               f"must be greater than or equal to {MIN_PERIOD_SECONDS} seconds"))
        return causes

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """Whether volumes are attached, and the modes, stay."""
        fixed = ("attachRequired", "volumeLifecycleModes")
        return self.validate_create(new, ctx) + immutable_causes(new["spec"], old["spec"], fixed)

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        """Tokens belong into secrets."""
        tokens = obj["spec"].get("tokenRequests")
        changed = old is None or old["spec"].get("tokenRequests") != tokens
        if changed and tokens and obj["spec"].get("serviceAccountTokenInSecrets") is None:
            return ["spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to "
                    "prevent possible logging of tokens in volume attributes"]
        return []


class CSINodeStrategy(BuiltinStrategy):
    """CSINodes."""

    delete_returns_object = True

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """Names of the drivers, and of the node as they know it."""
        seen: set[str] = set()
        return [cause for index, driver in enumerate((obj.get("spec") or {}).get("drivers") or ())
                for cause in _driver_causes(driver, f"spec.drivers[{index}]", seen)]

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """As at creation."""
        return self.validate_create(new, ctx)


def _driver_causes(driver: Object, path: str, seen: set[str]) -> Iterator[Cause]:
    name, node = driver.get("name") or "", driver.get("nodeID") or ""
    if not name:
        yield errors.required(f"{path}.name")
    else:
        yield from (errors.invalid_value(f"{path}.name", name, why) for why in dns_subdomain_errors(name.lower()))
    if not node:
        yield errors.required(f"{path}.nodeID")
    if name in seen:
        yield errors.duplicate(f"{path}.name", name)
    seen.add(name)
    keys = driver.get("topologyKeys") or []
    for index, key in enumerate(keys):
        if key in keys[:index]:
            yield errors.duplicate(path, key)
        yield from (errors.invalid_value(path, key, why) for why in qualified_name_errors(key))
    yield from non_negative(driver.get("allocatable") or {}, "count", f"{path}.allocatable")
