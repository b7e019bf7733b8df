"""Ingresses and IngressClasses, NetworkPolicies, IPAddresses and ServiceCIDRs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds import rules as r
from kubectl_runtime.apiserver.kinds.base import (
    BuiltinStrategy,
    Network,
    block_causes,
    canonical_ip_errors,
    default_class,
    domain_path_causes,
    is_ip,
    parse_cidr,
    selector_causes,
)
from kubectl_runtime.apiserver.kinds.services import LOAD_BALANCER_POINT
from kubectl_runtime.apiserver.strategy import StrategyContext
from kubectl_runtime.apiserver.wire import Object

CLASS_ANNOTATION = "kubernetes.io/ingress.class"
DEFAULT_CLASS = "ingressclass.kubernetes.io/is-default-class"
MAX_CONTROLLER = 250  # bytes
_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_WILDCARD = re.compile(rf"\*\.{_LABEL}(\.{_LABEL})*")
_WILDCARD_MESSAGE = ("a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which "
                     "must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric "
                     f"character (e.g. '*.example.com', regex used for validation is '\\*\\.{_LABEL}(\\.{_LABEL})*')")


def _class_name(obj: Object, path: str) -> Iterator[Cause]:
    """Yield a cause if the class annotation differs from ingressClassName, which replaced the annotation."""
    given = (obj["metadata"].get("annotations") or {}).get(CLASS_ANNOTATION)
    if None not in (given, name := obj["spec"].get("ingressClassName")) and given != name:
        yield errors.invalid_value(f"{path}annotations.{CLASS_ANNOTATION}", given,
                                   "must match `ingressClassName` when both are specified")


def _host(host: str, path: str) -> Iterator[Cause]:
    if "*" not in host:
        yield from r.ANY_SUBDOMAIN(host, path)
    elif not _WILDCARD.fullmatch(host):
        yield errors.invalid_value(path, host, _WILDCARD_MESSAGE)


def _path(text: str | None, path: str) -> Iterator[Cause]:
    yield from (errors.invalid_value(path, text, f"must not contain '{part}'")
                for part in ("//", "/./", "/../", "%2f", "%2F") if part in (text or ""))
    yield from (errors.invalid_value(path, text, f"cannot end with '{end}'")
                for end in ("/..", "/.") if (text or "").endswith(end))


def _is_absolute(entry: Object) -> bool:
    return bool((entry.get("path") or "").startswith("/"))


_NOT_ABSOLUTE = ("path", r.must(lambda text: text.startswith("/"), "must be an absolute path", zero=""))
_OBJECT = r.Rules(
    ("apiGroup", r.DNS_SUBDOMAIN),
    ("kind", r.REQUIRED, r.PATH_SEGMENT),
    ("name", r.REQUIRED, r.PATH_SEGMENT),
)
_BACKEND = r.Rules(
    r.when(r.has("service", "resource"), ("", r.invalid("cannot set both resource and service backends", shown=""))),
    r.when(r.absent("service", "resource"), ("", r.invalid("resource or service backend is required", shown=""))),
    r.when(r.absent("service"), ("resource", _OBJECT)),
    r.when(r.absent("resource"), r.has("service"),
           ("service.name", r.REQUIRED, r.DNS_LABEL),
           r.when(r.filled("service.port.name", "service.port.number"),
                  ("", r.invalid("cannot set both port name & port number", shown=""))),
           r.when(r.lacks("service.port.number"), ("service.port.name", r.PORT_NAME)),
           r.when(r.lacks("service.port.name", "service.port.number"),
                  ("", r.missing("port name or number is required"))),
           r.when(r.lacks("service.port.name"), r.filled("service.port.number"),
                  ("service.port.number", r.PORT_NUMBER))),
)
_PATH = r.Rules(
    ("pathType", r.present("pathType must be specified")),
    r.when(r.has("pathType"), ("pathType", r.choice("Exact", "ImplementationSpecific", "Prefix", zero=""))),
    r.when(r.equals("pathType", "Exact", "Prefix"), _NOT_ABSOLUTE, r.when(_is_absolute, ("path", _path))),
    r.when(r.equals("pathType", "ImplementationSpecific"), r.filled("path"), _NOT_ABSOLUTE),
    ("backend", _BACKEND),
)
_INGRESS = (
    r.when(r.lacks("spec.rules"), r.absent("spec.defaultBackend"), ("spec", lambda spec, path: (errors.invalid_value(
        path, spec.get("rules"), "either `defaultBackend` or `rules` must be specified"),))),
    ("spec.defaultBackend", _BACKEND),
    ("spec.rules[*]", r.Rules(
        r.when(r.filled("host"), ("host", r.must(lambda host: not is_ip(host), "must be a DNS name, not an IP address"),
                              _host)),
        r.when(r.has("http"), ("http.paths", r.REQUIRED)),
        ("http.paths[*]", _PATH),
    )),
    ("spec.tls[*]", r.Rules(("hosts[*]", _host), ("secretName", r.DNS_SUBDOMAIN))),
    ("spec.ingressClassName", r.DNS_SUBDOMAIN),
)


class IngressStrategy(BuiltinStrategy):
    has_generation = True
    rules = r.Rules(*_INGRESS, ("", _class_name))
    update_rules = r.Rules(*_INGRESS)
    status_rules = r.Rules(("status.loadBalancer.ingress[*]", LOAD_BALANCER_POINT))

    def prepare_create(self, obj: Object, ctx: StrategyContext) -> None:
        super().prepare_create(obj, ctx)
        self.admit(obj, ctx)

    def admit(self, obj: Object, ctx: StrategyContext) -> None:
        """Set the default IngressClass, if there is one and the Ingress names no class."""
        annotated = CLASS_ANNOTATION in (obj["metadata"].get("annotations") or {})
        if obj["spec"].get("ingressClassName") is None and not annotated and (
                name := default_class(ctx.objects("networking.k8s.io", "ingressclasses"), DEFAULT_CLASS)):
            obj["spec"]["ingressClassName"] = name

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        """Warn about the deprecated class annotation."""
        annotated = CLASS_ANNOTATION in (obj["metadata"].get("annotations") or {})
        if old is None and annotated and obj["spec"].get("ingressClassName") is None:
            return [f'annotation "{CLASS_ANNOTATION}" is deprecated, please use \'spec.ingressClassName\' instead']
        return []


def _length(text: str | None, path: str) -> list[Cause]:
    return [errors.too_long(path, MAX_CONTROLLER)] if len((text or "").encode()) > MAX_CONTROLLER else []


class IngressClassStrategy(BuiltinStrategy):
    has_generation = True
    defaults = r.Defaults({"spec.parameters.scope": "Cluster"})
    rules = r.Rules(
        ("spec.controller", r.FIXED, r.REQUIRED, _length),
        r.when(r.filled("spec.controller"), ("spec.controller", domain_path_causes)),
        ("spec.parameters", _OBJECT, r.Rules(
            ("scope", r.choice("Cluster", "Namespace")),
            r.when(r.equals("scope", "Namespace"),
                   ("namespace", r.required("`parameters.scope` is set to 'Namespace'"), r.DNS_LABEL)),
            r.when(r.equals("scope", "Cluster"),
                   ("namespace", r.forbidden("`parameters.scope` is set to 'Cluster'", empty=True))),
        )),
    )


def _any_port(port: Any, path: str) -> Iterator[Cause]:
    yield from r.ANY_PORT_NAME(port, path) if isinstance(port, str) else r.PORT_NUMBER(port, path)


def _end_port(port: Object, path: str) -> Iterator[Cause]:
    number, end, at = port.get("port"), port.get("endPort"), f"{path}.endPort"
    if end is None:
        return
    if number is None:
        yield errors.invalid_value(at, end, "may not be specified when `port` is not specified")
    elif isinstance(number, str):
        yield errors.invalid_value(at, end, "may not be specified when `port` is non-numeric")
    else:
        if end < number:  # as on the real server, the error shows the value of `port`
            yield errors.invalid_value(at, number, "must be greater than or equal to `port`")
        yield from r.PORT_NUMBER(end, at)


def _exceptions(block: Object, path: str) -> Iterator[Cause]:
    network = parse_cidr(block["cidr"])
    for index, exception in enumerate(block.get("except") or ()):
        at = f"{path}.except[{index}]"
        yield from block_causes(exception, at)
        part = parse_cidr(exception)
        if network is not None and part is not None and not _is_within(part, network):
            yield errors.invalid_value(at, exception, "must be a strict subset of `cidr`")


def _is_within(part: Network, whole: Network) -> bool:
    return (part.version == whole.version and part.prefixlen > whole.prefixlen and part.network_address in whole)


_PORT = r.Rules(("protocol", r.choice("TCP", "UDP", "SCTP")), ("port", _any_port), ("", _end_port))
_PEER = r.Rules(
    ("podSelector", selector_causes),
    ("namespaceSelector", selector_causes),
    ("ipBlock", r.Rules(("cidr", r.REQUIRED), r.when(r.filled("cidr"), ("cidr", block_causes), ("", _exceptions)))),
    r.when(r.absent("podSelector", "namespaceSelector", "ipBlock"), ("", r.missing("must specify a peer"))),
    r.when(r.has("ipBlock"), r.negated(r.absent("podSelector", "namespaceSelector")),
           ("", r.prohibited("may not specify both ipBlock and another peer"))),
)


class NetworkPolicyStrategy(BuiltinStrategy):
    has_generation = True
    defaults = r.Defaults(
        {"spec.ingress[*].ports[*].protocol": "TCP", "spec.egress[*].ports[*].protocol": "TCP"},
        zero={"spec.policyTypes": lambda spec: ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]})
    rules = r.Rules(
        ("spec.podSelector", selector_causes),
        ("spec.ingress[*]", r.Rules(("ports[*]", _PORT), ("from[*]", _PEER))),
        ("spec.egress[*]", r.Rules(("ports[*]", _PORT), ("to[*]", _PEER))),
        ("spec.policyTypes", r.must(lambda types: len(types) <= 2, "may not specify more than two policyTypes")),
        r.when(lambda obj: len(obj["spec"].get("policyTypes") or ()) <= 2,
               ("spec.policyTypes[*]", r.REQUIRED, r.choice("Ingress", "Egress"))),
    )


class IPAddressStrategy(BuiltinStrategy):
    """IPAddresses, whose name is the address."""

    name_errors = staticmethod(canonical_ip_errors)
    rules = r.Rules(
        ("spec.parentRef", r.present(), r.Rules(("resource", r.REQUIRED), ("name", r.REQUIRED))),
        ("spec.parentRef", r.FIXED),
    )


def _of_different_families(blocks: list[str]) -> bool:
    return len(blocks) < 2 or len({block.version for block in map(parse_cidr, blocks) if block}) == len(blocks)


class ServiceCIDRStrategy(BuiltinStrategy):
    """ServiceCIDRs. They have no effect: Services get addresses from the server's own range."""

    rules = r.Rules(
        ("spec.cidrs", r.required("at least one CIDR required")),
        ("spec.cidrs[*]", block_causes),
        ("spec.cidrs", r.must(_of_different_families, "may specify no more than one IP for each IP family, i.e "
                            "192.168.0.0/24 and 2001:db8::/64")),
    )
    update_rules = r.Rules(("spec.cidrs", r.FIXED))
