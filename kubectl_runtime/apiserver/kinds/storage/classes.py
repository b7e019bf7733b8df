"""StorageClasses and VolumeAttributesClasses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds.base import (
    BuiltinStrategy,
    one_of,
    put_default,
)
from kubectl_runtime.apiserver.kinds.core.volumes import protect
from kubectl_runtime.apiserver.objectmeta.names import dns_subdomain_errors, qualified_name_errors
from kubectl_runtime.apiserver.strategy import Object, StrategyContext


class FixedStrategy(BuiltinStrategy):
    """Kinds of which some top-level fields cannot be changed."""

    immutable: ClassVar[Sequence[str]] = ()

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """As at creation; fixed fields stay."""
        causes = [self.refused(key, new.get(key)) for key in self.immutable if new.get(key) != old.get(key)]
        return causes + self.validate_create(new, ctx)

    def refused(self, key: str, value: Any) -> Cause:
        """What is said of a field that changed."""
        return errors.forbidden_field(key, f"updates to {key} are forbidden.")


class StorageClassStrategy(FixedStrategy):
    """StorageClasses."""

    immutable: ClassVar[Sequence[str]] = ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode")
    delete_returns_object = True

    def refused(self, key: str, value: Any) -> Cause:
        """This kind says it in other words."""
        return errors.immutable(key, value)

    def default(self, obj: Object) -> None:
        """Deleted with its claim, bound at once."""
        put_default(obj, "reclaimPolicy", "Delete")
        put_default(obj, "volumeBindingMode", "Immediate")

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """The provisioner and the modes."""
        provisioner = (obj.get("provisioner") or "").lower()
        causes = [errors.invalid_value("provisioner", provisioner, why) for why in qualified_name_errors(provisioner)
                  ] if provisioner else [errors.required("provisioner")]
        if "" in (obj.get("parameters") or {}):
            causes.append(errors.invalid_value("parameters", "", "field can not be empty."))
        causes += one_of(obj.get("reclaimPolicy"), ("Delete", "Retain"), "reclaimPolicy")
        causes += _topology_causes(obj.get("allowedTopologies") or ())
        return causes + one_of(obj.get("volumeBindingMode"), ("Immediate", "WaitForFirstConsumer"), "volumeBindingMode")


class AttributesClassStrategy(FixedStrategy):
    """VolumeAttributesClasses."""

    immutable: ClassVar[Sequence[str]] = ("driverName", "parameters")
    delete_returns_object = True

    def prepare_create(self, obj: Object, ctx: StrategyContext) -> None:
        """The protection."""
        protect(obj, "kubernetes.io/vac-protection")

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """A driver and parameters."""
        driver = obj.get("driverName") or ""
        causes = [errors.invalid_value("driverName", driver, why) for why in dns_subdomain_errors(driver.lower())
                  ] if driver else [errors.required("driverName")]
        if not obj.get("parameters"):
            causes.append(errors.required("parameters", "must contain at least one key/value pair"))
        return causes


def _topology_causes(terms: Sequence[Object]) -> Iterator[Cause]:
    for index, term in enumerate(terms):
        at = f"allowedTopologies[{index}].matchLabelExpressions"
        expressions = term.get("matchLabelExpressions") or ()
        if not expressions:  # an empty term selects what the one before selected
            yield errors.duplicate(at, "")
        for number, expression in enumerate(expressions):
            key, values = expression.get("key") or "", expression.get("values") or ()
            if not values:
                yield errors.required(f"{at}[{number}].values")
            yield from (errors.invalid_value(f"{at}[{number}].key", key, why) for why in qualified_name_errors(key))
