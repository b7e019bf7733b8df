"""The kinds of resource.k8s.io: classes, slices and claims of devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds.base import BuiltinStrategy, fill, immutable_causes, one_of
from kubectl_runtime.apiserver.objectmeta.names import dns_label_errors
from kubectl_runtime.apiserver.strategy import Object, StrategyContext

_PLACES = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
_ONE_PLACE = "exactly one of " + ", ".join(f"`{place}`" for place in _PLACES) + " is required"


class DeviceClassStrategy(BuiltinStrategy):
    """DeviceClasses."""

    has_generation = True
    delete_returns_object = True

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """Selectors and configurations."""
        return list(_selector_causes(obj["spec"], "spec")) + list(_config_causes(obj["spec"], "spec"))

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """As at creation."""
        return self.validate_create(new, ctx)


class ResourceSliceStrategy(BuiltinStrategy):
    """ResourceSlices."""

    has_generation = True
    delete_returns_object = True
    fields: ClassVar[dict[str, str | Callable[[Object], str]]] = {
        "spec.nodeName": "spec.nodeName", "spec.driver": "spec.driver"}
    unsupported_field = "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: {}"

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """The driver, its pool, and one place."""
        spec = obj["spec"]
        pool = spec.get("pool") or {}
        causes = [] if spec.get("driver") else [errors.required("spec.driver")]
        if not pool.get("name"):
            causes.append(errors.required("spec.pool.name"))
        if (count := pool.get("resourceSliceCount") or 0) <= 0:
            causes.append(errors.invalid_value("spec.pool.resourceSliceCount", count, "must be greater than zero"))
        given = [place for place in _PLACES if spec.get(place)]
        if not given:
            causes.append(errors.required("spec", _ONE_PLACE))
        elif len(given) > 1:
            shown = "{" + ", ".join(f"`{place}`" for place in given) + "}"
            causes.append(errors.invalid_value("spec", shown, f"{_ONE_PLACE}, but multiple fields are set"))
        return causes

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """As at creation; driver and node stay."""
        return self.validate_create(new, ctx) + immutable_causes(new["spec"], old["spec"], ("driver", "nodeName"))


class ResourceClaimStrategy(BuiltinStrategy):
    """ResourceClaims and, with their spec one level lower, ResourceClaimTemplates."""

    delete_returns_object = True

    def default(self, obj: Object) -> None:
        """One device for each request."""
        for request in (self._claim(obj).get("devices") or {}).get("requests") or ():
            for part in [request.get("exactly"), *(request.get("firstAvailable") or ())]:
                if part is not None:
                    fill(part, allocationMode="ExactCount")
                    if part["allocationMode"] == "ExactCount":
                        fill(part, count=1)

    @staticmethod
    def _claim(obj: Object) -> Object:
        claim: Object = obj["spec"].get("spec") or obj["spec"]
        return claim

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """The requests and their configurations."""
        path = "spec.spec.devices" if "spec" in obj["spec"] else "spec.devices"
        devices = self._claim(obj).get("devices") or {}
        return list(_request_causes(devices, path)) + list(_config_causes(devices, path))

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """The spec is fixed."""
        return [] if subresource or new["spec"] == old["spec"] else [errors.immutable("spec", new["spec"])]


def _request_causes(devices: Object, path: str) -> Iterator[Cause]:
    seen = set()
    for index, request in enumerate(devices.get("requests") or ()):
        at, name = f"{path}.requests[{index}]", request.get("name") or ""
        if name in seen:
            yield errors.duplicate(at, name)
        seen.add(name)
        yield from (errors.invalid_value(f"{at}.name", name, why) for why in dns_label_errors(name))
        exactly, choices = request.get("exactly"), request.get("firstAvailable") or ()
        if exactly is None and not choices:
            yield errors.required(at, "exactly one of `exactly` or `firstAvailable` is required")
        elif exactly is not None and choices:
            yield errors.invalid_value(at, None, "exactly one of `exactly` or `firstAvailable` is required, but "
                                                 "multiple fields are set")
        if exactly is not None:
            yield from _exact_causes(exactly, f"{at}.exactly")
        for number, choice in enumerate(choices):
            yield from _exact_causes(choice, f"{at}.firstAvailable[{number}]")


def _exact_causes(request: Object, path: str) -> Iterator[Cause]:
    if not request.get("deviceClassName"):
        yield errors.required(f"{path}.deviceClassName")
    yield from _selector_causes(request, path)
    mode, count = request.get("allocationMode"), request.get("count") or 0
    yield from one_of(mode, ("All", "ExactCount"), f"{path}.allocationMode")
    if mode == "ExactCount" and count <= 0:
        yield errors.invalid_value(f"{path}.count", count, "must be greater than zero")
    elif mode == "All" and count:
        yield errors.invalid_value(f"{path}.count", count,
                                   "must not be specified when allocationMode is 'All'")


def _selector_causes(owner: Object, path: str) -> Iterator[Cause]:
    for index, selector in enumerate(owner.get("selectors") or ()):
        if selector.get("cel") is None:
            yield errors.required(f"{path}.selectors[{index}].cel")


def _config_causes(owner: Object, path: str) -> Iterator[Cause]:
    for index, config in enumerate(owner.get("config") or ()):
        if config.get("opaque") is None:
            yield errors.required(f"{path}.config[{index}].opaque")
