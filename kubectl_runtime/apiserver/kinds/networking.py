"""Ingresses and IngressClasses.

NetworkPolicies, IPAddresses, ServiceCIDRs.
"""
from __future__ import annotations

import re
from collections.abc import Iterator

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds.base import (
    CIDR_MESSAGE,
    IP_MESSAGE,
    PORT_RANGE,
    BuiltinStrategy,
    Network,
    domain_path_causes,
    immutable_causes,
    label_causes,
    one_of,
    parse_cidr,
    parse_ip,
    put_default,
    selector_causes,
)
from kubectl_runtime.apiserver.kinds.services import load_balancer_causes
from kubectl_runtime.apiserver.objectmeta.names import dns_subdomain_errors, path_segment_errors, port_name_errors
from kubectl_runtime.apiserver.strategy import Object, StrategyContext

CLASS_ANNOTATION = "kubernetes.io/ingress.class"
DEFAULT_CLASS = "ingressclass.kubernetes.io/is-default-class"
PATH_TYPES = ("Exact", "ImplementationSpecific", "Prefix")
MAX_CONTROLLER = 250  # bytes
_INVALID_PATH_PARTS = ("//", "/./", "/../", "%2f", "%2F")
_INVALID_PATH_ENDS = ("/..", "/.")
_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_WILDCARD = re.compile(rf"\*\.{_LABEL}(\.{_LABEL})*")
_WILDCARD_MESSAGE = ("a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which "
                     "must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric "
                     f"character (e.g. '*.example.com', regex used for validation is '\\*\\.{_LABEL}(\\.{_LABEL})*')")


class IngressStrategy(BuiltinStrategy):
    """Ingresses."""

    has_status = True
    has_generation = True

    def prepare_create(self, obj: Object, ctx: StrategyContext) -> None:
        """What admission adds."""
        super().prepare_create(obj, ctx)
        self.admit(obj, ctx)

    def admit(self, obj: Object, ctx: StrategyContext) -> None:
        """The default class, if there is one."""
        annotated = CLASS_ANNOTATION in (obj["metadata"].get("annotations") or {})
        if obj["spec"].get("ingressClassName") is None and not annotated and (name := _default_class(ctx)):
            obj["spec"]["ingressClassName"] = name

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """The spec; the annotation agrees with the field that replaced it."""
        given = (obj["metadata"].get("annotations") or {}).get(CLASS_ANNOTATION)
        name = obj["spec"].get("ingressClassName")
        causes = [] if None in (given, name) or given == name else [
            errors.invalid_value(f"annotations.{CLASS_ANNOTATION}", given,
                                 "must match `ingressClassName` when both are specified")]
        return list(_spec_causes(obj["spec"])) + causes

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """As at creation, but for the annotation."""
        if subresource != "status":
            return list(_spec_causes(new["spec"]))
        points = ((new.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
        return list(load_balancer_causes(points, "status.loadBalancer.ingress"))

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        """The annotation that the class had before it became a field."""
        annotated = CLASS_ANNOTATION in (obj["metadata"].get("annotations") or {})
        if old is None and annotated and obj["spec"].get("ingressClassName") is None:
            return [f'annotation "{CLASS_ANNOTATION}" is deprecated, please use \'spec.ingressClassName\' instead']
        return []


def _default_class(ctx: StrategyContext) -> str:
    defaults = [entry["metadata"] for entry in ctx.objects("networking.k8s.io", "ingressclasses")
                if (entry["metadata"].get("annotations") or {}).get(DEFAULT_CLASS) == "true"]
    newest = max(defaults, key=lambda metadata: metadata.get("creationTimestamp", ""), default=None)
    return str(newest["name"]) if newest else ""


def _spec_causes(spec: Object) -> Iterator[Cause]:
    if not spec.get("rules") and spec.get("defaultBackend") is None:
        yield errors.invalid_value("spec", spec.get("rules"), "either `defaultBackend` or `rules` must be specified")
    if spec.get("defaultBackend") is not None:
        yield from _backend_causes(spec["defaultBackend"], "spec.defaultBackend")
    for index, rule in enumerate(spec.get("rules") or ()):
        yield from _rule_causes(rule, f"spec.rules[{index}]")
    for index, entry in enumerate(spec.get("tls") or ()):
        for number, host in enumerate(entry.get("hosts") or ()):
            yield from _host_causes(host, f"spec.tls[{index}].hosts[{number}]")
        if name := entry.get("secretName"):
            yield from (errors.invalid_value(f"spec.tls[{index}].secretName", name, why)
                        for why in dns_subdomain_errors(name))
    if name := spec.get("ingressClassName"):
        yield from (errors.invalid_value("spec.ingressClassName", name, why) for why in dns_subdomain_errors(name))


def _host_causes(host: str, path: str) -> Iterator[Cause]:
    if "*" in host:
        if not _WILDCARD.fullmatch(host):
            yield errors.invalid_value(path, host, _WILDCARD_MESSAGE)
    else:
        yield from (errors.invalid_value(path, host, why) for why in dns_subdomain_errors(host))


def _rule_causes(rule: Object, path: str) -> Iterator[Cause]:
    if host := rule.get("host") or "":
        if parse_ip(host) is not None:
            yield errors.invalid_value(f"{path}.host", host, "must be a DNS name, not an IP address")
        yield from _host_causes(host, f"{path}.host")
    if rule.get("http") is None:
        return
    paths = rule["http"].get("paths") or ()
    if not paths:
        yield errors.required(f"{path}.http.paths")
    for index, entry in enumerate(paths):
        yield from _path_causes(entry, f"{path}.http.paths[{index}]")


def _path_causes(entry: Object, path: str) -> Iterator[Cause]:
    kind, text = entry.get("pathType"), entry.get("path") or ""
    if kind is None:
        yield errors.required(f"{path}.pathType", "pathType must be specified")
    elif kind not in PATH_TYPES:
        yield errors.not_supported(f"{path}.pathType", kind, PATH_TYPES)
    elif kind in ("Exact", "Prefix"):
        if not text.startswith("/"):
            yield errors.invalid_value(f"{path}.path", text, "must be an absolute path")
        else:
            yield from (errors.invalid_value(f"{path}.path", text, f"must not contain '{part}'")
                        for part in _INVALID_PATH_PARTS if part in text)
            yield from (errors.invalid_value(f"{path}.path", text, f"cannot end with '{end}'")
                        for end in _INVALID_PATH_ENDS if text.endswith(end))
    elif text and not text.startswith("/"):
        yield errors.invalid_value(f"{path}.path", text, "must be an absolute path")
    yield from _backend_causes(entry.get("backend") or {}, f"{path}.backend")


def _backend_causes(backend: Object, path: str) -> Iterator[Cause]:
    service, resource = backend.get("service"), backend.get("resource")
    if service is not None and resource is not None:
        yield errors.invalid_value(path, "", "cannot set both resource and service backends")
    elif resource is not None:
        yield from _reference_causes(resource, f"{path}.resource")
    elif service is None:
        yield errors.invalid_value(path, "", "resource or service backend is required")
    else:
        yield from _service_causes(service, path)


def _service_causes(service: Object, path: str) -> Iterator[Cause]:
    name, port = service.get("name") or "", service.get("port") or {}
    if not name:
        yield errors.required(f"{path}.service.name")
    else:
        yield from label_causes(name, f"{path}.service.name")
    if port.get("name") and port.get("number"):
        yield errors.invalid_value(path, "", "cannot set both port name & port number")
    elif port.get("name"):
        yield from (errors.invalid_value(f"{path}.service.port.name", port["name"], why)
                    for why in port_name_errors(port["name"]))
    elif not port.get("number"):
        yield errors.required(path, "port name or number is required")
    elif not 1 <= port["number"] <= 65535:
        yield errors.invalid_value(f"{path}.service.port.number", port["number"], PORT_RANGE)


def _reference_causes(reference: Object, path: str) -> Iterator[Cause]:
    """A reference to an object of any kind in the same namespace."""
    if group := reference.get("apiGroup"):
        yield from (errors.invalid_value(f"{path}.apiGroup", group, why) for why in dns_subdomain_errors(group))
    for key in ("kind", "name"):
        value = reference.get(key) or ""
        if not value:
            yield errors.required(f"{path}.{key}")
        yield from (errors.invalid_value(f"{path}.{key}", value, why) for why in path_segment_errors(value))


class IngressClassStrategy(BuiltinStrategy):
    """IngressClasses."""

    has_generation = True

    def default(self, obj: Object) -> None:
        """The scope of the parameters."""
        if (parameters := obj["spec"].get("parameters")) is not None:
            put_default(parameters, "scope", "Cluster")

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """The controller's name, and the parameters."""
        controller, parameters = obj["spec"].get("controller") or "", obj["spec"].get("parameters")
        causes = []
        if not controller:
            causes.append(errors.required("spec.controller"))
        else:
            if len(controller.encode()) > MAX_CONTROLLER:
                causes.append(errors.too_long("spec.controller", MAX_CONTROLLER))
            causes += domain_path_causes(controller, "spec.controller")
        return causes if parameters is None else [*causes, *_parameter_causes(parameters, "spec.parameters")]

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """The controller stays."""
        return immutable_causes(new["spec"], old["spec"], ("controller",)) + self.validate_create(new, ctx)


def _parameter_causes(parameters: Object, path: str) -> Iterator[Cause]:
    yield from _reference_causes(parameters, path)
    scope, namespace = parameters.get("scope"), parameters.get("namespace")
    yield from one_of(scope, ("Cluster", "Namespace"), f"{path}.scope")
    if scope == "Namespace":
        if not namespace:
            yield errors.required(f"{path}.namespace", "`parameters.scope` is set to 'Namespace'")
        else:
            yield from label_causes(namespace, f"{path}.namespace")
    elif scope == "Cluster" and namespace is not None:
        yield errors.forbidden_field(f"{path}.namespace", "`parameters.scope` is set to 'Cluster'")


_DIRECTIONS = {"ingress": "from", "egress": "to"}


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
        """The selector, the rules and the types."""
        spec = obj["spec"]
        causes = selector_causes(spec.get("podSelector") or {}, "spec.podSelector")
        for direction, key in _DIRECTIONS.items():
            for index, rule in enumerate(spec.get(direction) or ()):
                at = f"spec.{direction}[{index}]"
                for number, port in enumerate(rule.get("ports") or ()):
                    causes += _port_causes(port, f"{at}.ports[{number}]")
                for number, peer in enumerate(rule.get(key) or ()):
                    causes += _peer_causes(peer, f"{at}.{key}[{number}]")
        types = spec.get("policyTypes") or ()
        if len(types) > 2:
            return [*causes, errors.invalid_value("spec.policyTypes", types,
                                                  "may not specify more than two policyTypes")]
        for index, kind in enumerate(types):
            causes += one_of(kind, ("Ingress", "Egress"), f"spec.policyTypes[{index}]", required=True)
        return causes

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """As at creation."""
        return self.validate_create(new, ctx)


def _port_causes(port: Object, path: str) -> Iterator[Cause]:
    number, end = port.get("port"), port.get("endPort")
    yield from one_of(port.get("protocol"), ("TCP", "UDP", "SCTP"), f"{path}.protocol")
    if isinstance(number, str):
        yield from (errors.invalid_value(f"{path}.port", number, why) for why in port_name_errors(number))
    elif number is not None and not 1 <= number <= 65535:
        yield errors.invalid_value(f"{path}.port", number, PORT_RANGE)
    if end is None:
        return
    if number is None:
        yield errors.invalid_value(f"{path}.endPort", end, "may not be specified when `port` is not specified")
    elif isinstance(number, str):
        yield errors.invalid_value(f"{path}.endPort", end, "may not be specified when `port` is non-numeric")
    else:
        if end < number:  # the real server shows the port, indeed
            yield errors.invalid_value(f"{path}.endPort", number, "must be greater than or equal to `port`")
        if not 1 <= end <= 65535:
            yield errors.invalid_value(f"{path}.endPort", end, PORT_RANGE)


def _peer_causes(peer: Object, path: str) -> Iterator[Cause]:
    given = [key for key in ("podSelector", "namespaceSelector", "ipBlock") if peer.get(key) is not None]
    for key in given:
        if key == "ipBlock":
            yield from _block_causes(peer[key], f"{path}.ipBlock")
        else:
            yield from selector_causes(peer[key], f"{path}.{key}")
    if not given:
        yield errors.required(path, "must specify a peer")
    elif len(given) > 1 and "ipBlock" in given:
        yield errors.forbidden_field(path, "may not specify both ipBlock and another peer")


def _block_causes(block: Object, path: str) -> Iterator[Cause]:
    text = block.get("cidr") or ""
    if not text:
        yield errors.required(f"{path}.cidr")
        return
    yield from _cidr_causes(text, f"{path}.cidr")
    network = parse_cidr(text)
    for index, exception in enumerate(block.get("except") or ()):
        at = f"{path}.except[{index}]"
        yield from _cidr_causes(exception, at)
        part = parse_cidr(exception)
        if network is not None and part is not None and not _is_within(part, network):
            yield errors.invalid_value(at, exception, "must be a strict subset of `cidr`")


def _cidr_causes(text: str, path: str) -> Iterator[Cause]:
    network = parse_cidr(text)
    if network is None:
        yield errors.invalid_value(path, text, CIDR_MESSAGE)
    elif parse_ip(text.partition("/")[0]) != network.network_address:
        yield errors.invalid_value(path, text, "must not have bits set beyond the prefix length")


def _is_within(part: Network, whole: Network) -> bool:
    return (part.version == whole.version and part.prefixlen > whole.prefixlen
            and part.network_address in whole)


class IPAddressStrategy(BuiltinStrategy):
    """IPAddresses: their name is the address."""

    def validate_name(self, name: str, *, prefix: bool = False) -> list[str]:
        """An address in its usual form."""
        parsed = parse_ip(name)
        return [] if parsed is not None and str(parsed) == name else [IP_MESSAGE]

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """Whose it is."""
        parent = obj["spec"].get("parentRef")
        if parent is None:
            return [errors.required("spec.parentRef")]
        return [errors.required(f"spec.parentRef.{key}") for key in ("resource", "name") if not parent.get(key)]

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """The owner stays."""
        return self.validate_create(new, ctx) + immutable_causes(new["spec"], old["spec"], ("parentRef",))


class ServiceCIDRStrategy(BuiltinStrategy):
    """ServiceCIDRs; the addresses of Services come from the server's own range."""

    has_status = True

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """One block for each family."""
        blocks = obj["spec"].get("cidrs") or []
        if not blocks:
            return [errors.required("spec.cidrs", "at least one CIDR required")]
        causes = [cause for index, block in enumerate(blocks) for cause in _cidr_causes(block, f"spec.cidrs[{index}]")]
        versions = [network.version for block in blocks if (network := parse_cidr(block)) is not None]
        if len(blocks) > 1 and len(set(versions)) < len(blocks):
            causes.append(errors.invalid_value("spec.cidrs", blocks, "may specify no more than one IP for each IP "
                                               "family, i.e 192.168.0.0/24 and 2001:db8::/64"))
        return causes

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """The blocks stay."""
        return [] if subresource else immutable_causes(new["spec"], old["spec"], ("cidrs",))
