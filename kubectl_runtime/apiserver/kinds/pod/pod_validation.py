"""Validation of a pod spec, in the real server's order and words: the Pod as a whole, and its scheduling."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds import rules as r
from kubectl_runtime.apiserver.kinds.base import EXPRESSION, IP_MESSAGE, is_ip, labels_causes, selector_causes
from kubectl_runtime.apiserver.kinds.pod.containers import (
    POD_RESOURCES,
    PodContext,
    containers_causes,
    pod_security_causes,
)
from kubectl_runtime.apiserver.kinds.pod.pod_volumes import VOLUME
from kubectl_runtime.apiserver.names import label_value_errors, qualified_name_errors
from kubectl_runtime.apiserver.wire import Object
from kubectl_runtime.core.codec.jsonbytes import remembers_good

_REQUIRED, _PREFERRED = (f"{verb}DuringSchedulingIgnoredDuringExecution" for verb in ("required", "preferred"))
_UNKNOWN = "not a valid selector operator"
_ONE_VALUE = "must be specified single value when `operator` is 'Lt' or 'Gt'"
_ONE_FIELD = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"


def _is_one(values: list[str] | None) -> bool:
    return len(values or ()) == 1


_NODE_TERM = r.Rules(
    ("matchExpressions[*]", r.Rules(
        *EXPRESSION,
        r.when(r.equals("operator", "Gt", "Lt"), ("values", r.required(_ONE_VALUE, unless=_is_one))),
        ("operator", r.must(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt").__contains__, _UNKNOWN, zero="")),
        ("key", r.ANY_QUALIFIED))),
    ("matchFields[*]", r.Rules(
        ("operator", r.must(("In", "NotIn").__contains__, _UNKNOWN, zero="")),
        r.when(r.equals("operator", "In", "NotIn"), ("values", r.required(_ONE_FIELD, unless=_is_one))),
        ("key", r.must("metadata.name".__eq__, "not a valid field selector key", zero="")))),
)
NODE_SELECTOR = r.Rules(
    ("nodeSelectorTerms", r.required("must have at least one node selector term")),
    ("nodeSelectorTerms[*]", _NODE_TERM),
)
_WEIGHT = ("weight", r.between(1, 100, "must be in the range 1-100", zero=0))


def _namespaces(term: Object, path: str) -> Iterator[Cause]:
    for namespace in term.get("namespaces") or ():
        yield from r.ANY_LABEL(namespace, f"{path}.namespace")  # the real server names `namespace`, without an index


_POD_TERM = r.Rules(
    ("labelSelector", selector_causes),
    ("namespaceSelector", selector_causes),
    ("", _namespaces),
    ("topologyKey", r.required("can not be empty"), r.ANY_QUALIFIED),
)
_AFFINITY = r.Rules(
    (f"nodeAffinity.{_REQUIRED}", NODE_SELECTOR),
    (f"nodeAffinity.{_PREFERRED}[*]", r.Rules(_WEIGHT, ("preference", _NODE_TERM))),
    *((part, r.Rules((f"{_REQUIRED}[*]", _POD_TERM),
                   (f"{_PREFERRED}[*]", r.Rules(_WEIGHT, ("podAffinityTerm", _POD_TERM)))))
      for part in ("podAffinity", "podAntiAffinity")),
)


def _strict_domains(constraint: Object, path: str) -> Iterator[Cause]:
    least, when_not = constraint.get("minDomains"), constraint.get("whenUnsatisfiable", "")
    if least is not None and when_not != "DoNotSchedule":
        yield errors.invalid_value(f"{path}.minDomains", least, "can only use minDomains if "
                                   f"whenUnsatisfiable=DoNotSchedule, not {when_not}")


_POSITIVE = r.must(lambda number: number > 0, "must be greater than zero")
_SPREAD = r.Rules(
    ("maxSkew", r.must(lambda skew: skew > 0, "must be greater than zero", zero=0)),
    ("topologyKey", r.required("can not be empty"), r.QUALIFIED),
    ("whenUnsatisfiable", r.choice("DoNotSchedule", "ScheduleAnyway", zero="")),
)
_SPREAD_POLICIES = r.Rules(
    ("minDomains", _POSITIVE),
    ("", _strict_domains),
    ("nodeAffinityPolicy", r.choice("Honor", "Ignore")),
    ("nodeTaintsPolicy", r.choice("Honor", "Ignore")),
    ("labelSelector", selector_causes),
)


def _spread(constraints: list[Object] | None, path: str) -> Iterator[Cause]:
    seen = set()
    for index, constraint in enumerate(constraints or ()):
        yield from _SPREAD(constraint, f"{path}[{index}]")
        pair = (constraint.get("topologyKey", ""), constraint.get("whenUnsatisfiable", ""))
        if pair in seen:  # the real server's path names the earlier constraint
            yield errors.duplicate(f"{path}[{index - 1}].{{topologyKey, whenUnsatisfiable}}", f"{{{', '.join(pair)}}}")
        seen.add(pair)
        yield from _SPREAD_POLICIES(constraint, f"{path}[{index}]")


def _operator(toleration: Object, path: str) -> Iterator[Cause]:
    """Yield a cause for each error of a toleration's operator or value. Every cause has the path of the operator."""
    at, operator, value = f"{path}.operator", toleration.get("operator", ""), toleration.get("value", "")
    if operator in ("Equal", ""):
        yield from (errors.invalid_value(at, value, why) for why in label_value_errors(value))
    elif operator == "Exists":
        if value:
            yield errors.invalid_value(at, value, "value must be empty when `operator` is 'Exists'")
    else:  # the real server lists further operators although their feature is off
        yield errors.not_supported(at, operator, ("Equal", "Exists", "Lt", "Gt") if operator in ("Gt", "Lt")
                                   else ("Equal", "Exists"))


TOLERATION = r.Rules(
    ("key", r.QUALIFIED),
    r.when(r.lacks("key"), ("operator", r.must(
        "Exists".__eq__, 'operator must be Exists when `key` is empty, which means "match all values and all keys"',
        zero=""))),
    r.when(r.has("tolerationSeconds"), ("effect", r.must(
        "NoExecute".__eq__, "effect must be 'NoExecute' when `tolerationSeconds` is set", zero=""))),
    ("", _operator),
    ("effect", r.choice("NoSchedule", "PreferNoSchedule", "NoExecute")),
)


MAX_NAMESERVERS, MAX_SEARCHES = 3, 32
_SEARCH_PATTERN = r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*"
_SEARCH = re.compile(_SEARCH_PATTERN)
_SEARCH_MESSAGE = ("a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or "
                   "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for "
                   f"validation is '{_SEARCH_PATTERN}')")


@remembers_good
def pod_spec_causes(spec: Object, path: str, *, is_pod: bool = True) -> list[Cause]:
    """Return a cause for each error of a pod spec. `path` is ``spec`` or ``spec.template.spec``."""
    return list(_causes(spec, path, is_pod))


def template_causes(template: Object, path: str) -> list[Cause]:
    """Return a cause for each error of a pod template's labels, annotations and spec."""
    metadata = template.get("metadata") or {}
    causes = labels_causes(metadata.get("labels") or {}, f"{path}.labels")  # no `.metadata`, as on a real server
    causes += [errors.invalid_value(f"{path}.annotations", key, why)
               for key in metadata.get("annotations") or () for why in qualified_name_errors(key.lower())]
    causes += pod_spec_causes(template.get("spec") or {}, f"{path}.spec", is_pod=False)
    if (template.get("spec") or {}).get("ephemeralContainers"):
        causes.append(errors.forbidden_field(f"{path}.spec.ephemeralContainers",
                                             "ephemeral containers not allowed in pod template"))
    return causes


def _host_ports(spec: Object, path: str, *, is_pod: bool) -> Iterator[Cause]:
    for index, container in enumerate(spec.get("containers") or () if spec.get("hostNetwork") else ()):
        for number, port in enumerate(container.get("ports") or ()):
            host = port.get("hostPort") or 0
            if (is_pod or host) and host != port.get("containerPort"):
                yield errors.invalid_value(f"{path}.containers[{index}].ports[{number}].hostPort", host,
                                           "must match `containerPort` when `hostNetwork` is true")


def _search(text: str, path: str) -> Iterator[Cause]:
    if text != "." and not _SEARCH.fullmatch(text.removesuffix(".")):
        yield errors.invalid_value(path, text, _SEARCH_MESSAGE)


_NEEDS_CONFIG = r.when(r.equals("dnsPolicy", "None"),
                       ("dnsConfig", r.present("must provide `dnsConfig` when `dnsPolicy` is None")),
                       r.when(r.has("dnsConfig"), ("dnsConfig.nameservers", r.required(
                           "must provide at least one DNS nameserver when `dnsPolicy` is None"))))
_CLAIM_SOURCES = ("resourceClaimName", "resourceClaimTemplateName")


def _claim_shown(claim: Object) -> Object:
    return {"Name": claim.get("name", ""), "ResourceClaimName": claim.get("resourceClaimName"),
            "ResourceClaimTemplateName": claim.get("resourceClaimTemplateName")}


_CLAIM = r.Rules(
    ("name", r.UNIQUE),
    r.when(r.absent(*_CLAIM_SOURCES), ("", lambda claim, path: (errors.invalid_value(
        path, _claim_shown(claim), "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"),))),
    r.when(r.has(*_CLAIM_SOURCES), ("", lambda claim, path: (errors.invalid_value(
        path, _claim_shown(claim),
        "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"),))),
)
_VOLUMES_AND_CLAIMS = r.Rules(
    ("volumes[*]", VOLUME),
    ("resourceClaims[*]", _CLAIM),
    ("containers", r.REQUIRED),
)
_POLICIES = r.Rules(
    r.when(r.filled("resources"), ("resources", POD_RESOURCES)),
    ("restartPolicy", r.REQUIRED, r.choice("Always", "OnFailure", "Never")),
    ("dnsPolicy", r.REQUIRED, r.choice("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")),
    ("nodeSelector", labels_causes),
)
_HOST = r.Rules(
    r.when(r.filled("shareProcessNamespace", "hostPID"), ("securityContext.shareProcessNamespace", r.invalid(
        "ShareProcessNamespace and HostPID cannot both be enabled", shown=True))),
    r.when(lambda spec: spec.get("hostUsers") is False, *(
        (key, r.forbidden("when `hostUsers` is false")) for key in ("hostNetwork", "hostPID", "hostIPC"))),
    ("hostAliases[*]", r.Rules(("ip", r.must(is_ip, IP_MESSAGE, zero="")), ("hostnames[*]", r.ANY_SUBDOMAIN))),
)
_PLACEMENT = r.Rules(
    ("affinity", _AFFINITY),
    _NEEDS_CONFIG,
    ("dnsConfig", r.Rules(
        ("nameservers", r.must(lambda servers: len(servers) <= MAX_NAMESERVERS,
                             f"must not have more than {MAX_NAMESERVERS} nameservers")),
        ("nameservers[*]", r.must(is_ip, IP_MESSAGE, zero="")),
        ("searches", r.must(lambda searches: len(searches) <= MAX_SEARCHES,
                          f"must not have more than {MAX_SEARCHES} search paths")),
        ("searches[*]", _search),
        ("options[*]", r.required("must not be empty", unless=lambda option: bool(option.get("name")))),
    )),
    ("readinessGates[*].conditionType", r.ANY_QUALIFIED),
    ("schedulingGates[*]", lambda gate, path: r.ANY_QUALIFIED(gate.get("name"), path),
     r.Unique(lambda gate: gate.get("name", ""))),
    ("topologySpreadConstraints", _spread),
    ("serviceAccountName", r.DNS_SUBDOMAIN),
    ("nodeName", r.DNS_SUBDOMAIN),
    ("priorityClassName", r.DNS_SUBDOMAIN),
    ("activeDeadlineSeconds", r.between(1, 2**31 - 1)),
    ("hostname", r.DNS_LABEL),
    ("subdomain", r.DNS_LABEL),
    ("tolerations[*]", TOLERATION),
    ("preemptionPolicy", r.choice("Never", "PreemptLowerPriority")),
    ("os", r.Rules(("name", r.REQUIRED))),
    ("os", lambda os, path: r.choice("linux", "windows")((os or {}).get("name"), path)),
)


def _causes(spec: Object, path: str, is_pod: bool) -> Iterator[Cause]:
    grace = spec.get("terminationGracePeriodSeconds")
    pod = PodContext(
        volumes={volume.get("name", ""): volume for volume in spec.get("volumes") or ()},
        claims=frozenset(claim.get("name", "") for claim in spec.get("resourceClaims") or ()),
        restart_policy=spec.get("restartPolicy", ""), grace=30 if grace is None else grace,
        host_users=spec.get("hostUsers") is not False, os=(spec.get("os") or {}).get("name", ""))
    yield from _VOLUMES_AND_CLAIMS(spec, path)
    yield from containers_causes(spec, path, pod)
    yield from _POLICIES(spec, path)
    yield from _host_ports(spec, path, is_pod=is_pod)
    yield from _HOST(spec, path)
    if context := spec.get("securityContext"):
        yield from pod_security_causes(context, f"{path}.securityContext", pod.os)
    yield from _PLACEMENT(spec, path)
