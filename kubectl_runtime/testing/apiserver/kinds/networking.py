"""Ingress, IngressClass, NetworkPolicy, EndpointSlice."""

from __future__ import annotations

from kubectl_runtime.testing.apiserver import errors
from kubectl_runtime.testing.apiserver.errors import Cause
from kubectl_runtime.testing.apiserver.kinds.base import BuiltinStrategy, one_of, put_default, selector_causes
from kubectl_runtime.testing.apiserver.names import dns_subdomain_errors
from kubectl_runtime.testing.apiserver.strategy import Object, StrategyContext

CLASS_ANNOTATION = "kubernetes.io/ingress.class"
PATH_TYPES = ("Exact", "ImplementationSpecific", "Prefix")


class IngressStrategy(BuiltinStrategy):
    """Ingresses."""

    has_status = True
    has_generation = True

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """A backend or rules; paths and backends of the rules."""
        spec = obj["spec"]
        causes = []
        if not spec.get("rules") and spec.get("defaultBackend") is None:
            causes.append(errors.invalid_value("spec", [], "either `defaultBackend` or `rules` must be specified"))
        for index, rule in enumerate(spec.get("rules") or ()):
            causes += _rule_causes(rule, f"spec.rules[{index}]")
        if spec.get("defaultBackend") is not None:
            causes += _backend_causes(spec["defaultBackend"], "spec.defaultBackend")
        return causes

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """As at creation."""
        return [] if subresource == "status" else self.validate_create(new, ctx)

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        """The annotation that the class had before it became a field."""
        annotated = CLASS_ANNOTATION in (obj["metadata"].get("annotations") or {})
        if old is None and annotated and obj["spec"].get("ingressClassName") is None:
            return [f'annotation "{CLASS_ANNOTATION}" is deprecated, please use \'spec.ingressClassName\' instead']
        return []


def _rule_causes(rule: Object, path: str) -> list[Cause]:
    host = rule.get("host") or ""
    name = host.removeprefix("*.")
    causes = [errors.invalid_value(f"{path}.host", host, why) for why in dns_subdomain_errors(name)] if host else []
    if rule.get("http") is None:
        return causes
    paths = rule["http"].get("paths") or ()
    if not paths:
        causes.append(errors.required(f"{path}.http.paths"))
    for index, entry in enumerate(paths):
        at = f"{path}.http.paths[{index}]"
        kind = entry.get("pathType")
        if kind is None:
            causes.append(errors.required(f"{at}.pathType", "pathType must be specified"))
        else:
            causes += one_of(kind, PATH_TYPES, f"{at}.pathType")
        if kind in ("Exact", "Prefix") and not (entry.get("path") or "").startswith("/"):
            causes.append(errors.invalid_value(f"{at}.path", entry.get("path") or "", "must be an absolute path"))
        causes += _backend_causes(entry.get("backend") or {}, f"{at}.backend")
    return causes


def _backend_causes(backend: Object, path: str) -> list[Cause]:
    service, resource = backend.get("service"), backend.get("resource")
    if service is not None and resource is not None:
        return [errors.invalid_value(path, "", "cannot set both resource and service backends")]
    if service is None:
        return [] if resource is not None else [errors.required(path, "port name or number is required")]
    causes = [] if service.get("name") else [errors.required(f"{path}.service.name")]
    port = service.get("port") or {}
    if port.get("name") and port.get("number"):
        causes.append(errors.invalid_value(path, "", "cannot set both port name & port number"))
    elif not port.get("name") and not port.get("number"):
        causes.append(errors.required(path, "port name or number is required"))
    return causes


class IngressClassStrategy(BuiltinStrategy):
    """IngressClasses."""

    has_generation = True

    def default(self, obj: Object) -> None:
        """The scope of the parameters."""
        if (parameters := obj["spec"].get("parameters")) is not None:
            put_default(parameters, "scope", "Cluster")


class NetworkPolicyStrategy(BuiltinStrategy):
    """NetworkPolicies."""

    has_generation = True

    def default(self, obj: Object) -> None:
        """Protocols; Ingress always, Egress if there are rules for it."""
        spec = obj["spec"]
        for rule in [*(spec.get("ingress") or ()), *(spec.get("egress") or ())]:
            for port in rule.get("ports") or ():
                put_default(port, "protocol", "TCP")
        if not spec.get("policyTypes"):
            spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """The selector and the types."""
        spec = obj["spec"]
        causes = selector_causes(spec.get("podSelector") or {}, "spec.podSelector")
        for index, kind in enumerate(spec.get("policyTypes") or ()):
            causes += one_of(kind, ("Egress", "Ingress"), f"spec.policyTypes[{index}]", required=True)
        return causes

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """As at creation."""
        return self.validate_create(new, ctx)


class EndpointSliceStrategy(BuiltinStrategy):
    """EndpointSlices."""

    has_generation = True

    def default(self, obj: Object) -> None:
        """Names and protocols of the ports."""
        for port in obj.get("ports") or ():
            put_default(port, "name", "")
            put_default(port, "protocol", "TCP")

    def prepare_create(self, obj: Object, ctx: StrategyContext) -> None:
        """The topology of the beta versions is no more."""
        for endpoint in obj.get("endpoints") or ():
            endpoint.pop("deprecatedTopology", None)

    def prepare_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> None:
        """As at creation."""
        self.prepare_create(new, ctx)

    def generation_part(self, obj: Object) -> object:
        """Everything but the metadata; of that, the labels."""
        rest = {key: value for key, value in obj.items() if key not in ("metadata", "kind", "apiVersion")}
        return rest, obj["metadata"].get("labels") or {}

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """The address type; every endpoint has an address."""
        causes = one_of(obj.get("addressType"), ("FQDN", "IPv4", "IPv6"), "addressType", required=True)
        for index, endpoint in enumerate(obj.get("endpoints") or ()):
            if not endpoint.get("addresses"):
                causes.append(errors.required(f"endpoints[{index}].addresses", "must contain at least 1 address"))
        return causes

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """The address type is fixed."""
        causes = [] if new.get("addressType") == old.get("addressType") else [
            errors.immutable("addressType", new.get("addressType"))]
        return causes + self.validate_create(new, ctx)
