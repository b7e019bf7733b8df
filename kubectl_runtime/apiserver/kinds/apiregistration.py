"""APIServices; the server stores them and proxies to none."""

from __future__ import annotations

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds.admission import service_causes
from kubectl_runtime.apiserver.kinds.base import BuiltinStrategy, put_default
from kubectl_runtime.apiserver.objectmeta.names import dns_1035_label_errors
from kubectl_runtime.apiserver.strategy import Object, StrategyContext


class APIServiceStrategy(BuiltinStrategy):
    """APIServices; the server stores them and proxies to none."""

    def default(self, obj: Object) -> None:
        """The port of the Service."""
        if (service := obj["spec"].get("service")) is not None:
            put_default(service, "port", 443)

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """The name, the priorities, the Service."""
        spec, name = obj["spec"], obj["metadata"].get("name") or ""
        wanted, service = f"{spec.get('version') or ''}.{spec.get('group') or ''}", spec.get("service")
        causes = [] if name == wanted else [errors.invalid_value(
            "metadata.name", name, f'must be `spec.version+"."+spec.group`: "{wanted}"')]
        causes += [errors.invalid_value("spec.version", spec.get("version") or "", why)
                   for why in dns_1035_label_errors(spec.get("version") or "")]
        for key, limit in (("groupPriorityMinimum", 20000), ("versionPriority", 1000)):
            if not 0 < spec.get(key, 0) <= limit:
                causes.append(errors.invalid_value(f"spec.{key}", spec.get(key, 0),
                                                   f"must be positive and less than {limit}"))
        if service is None:
            if spec.get("caBundle") or spec.get("insecureSkipTLSVerify"):
                causes.append(errors.invalid_value("spec.caBundle", "", "local APIServices may not have a caBundle"))
            return causes
        causes += service_causes({key: value for key, value in service.items() if key != "path"}, "spec.service")
        if spec.get("insecureSkipTLSVerify") and spec.get("caBundle"):
            causes.append(errors.invalid_value("spec.insecureSkipTLSVerify", True,
                                               "may not be true if caBundle is present"))
        return causes

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """As at creation."""
        return [] if subresource else self.validate_create(new, ctx)
