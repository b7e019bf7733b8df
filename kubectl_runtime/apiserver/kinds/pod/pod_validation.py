"""Validation of a pod's spec, in the real server's order and words.

Its parts are in modules of their own: container_validation, volume_validation, scheduling_validation, pod_security.

Validation of what tells where a Pod may run: node selectors, affinity, spreading, tolerations.
"""
from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds.base import IP_MESSAGE, labels_causes, one_of, parse_ip, selector_causes
from kubectl_runtime.apiserver.kinds.pod.containers import (
    PodContext,
    containers_causes,
    pod_security_causes,
    resource_causes,
)
from kubectl_runtime.apiserver.kinds.pod.pod_volumes import volumes_causes
from kubectl_runtime.apiserver.objectmeta.names import (
    dns_label_errors,
    dns_subdomain_errors,
    label_value_errors,
    qualified_name_errors,
)
from kubectl_runtime.apiserver.strategy import Object
from kubectl_runtime.core.codec.sameness import remembers_good

_REQUIRED, _PREFERRED = (f"{verb}DuringSchedulingIgnoredDuringExecution" for verb in ("required", "preferred"))
_WITH_VALUES, _WITHOUT_VALUES, _WITH_ONE = ("In", "NotIn"), ("Exists", "DoesNotExist"), ("Gt", "Lt")
_UNKNOWN = "not a valid selector operator"


def affinity_causes(affinity: Object, path: str) -> Iterator[Cause]:
    """What is wrong with an affinity."""
    node = affinity.get("nodeAffinity") or {}
    if (required := node.get(_REQUIRED)) is not None:
        yield from node_selector_causes(required, f"{path}.nodeAffinity.{_REQUIRED}")
    for index, term in enumerate(node.get(_PREFERRED) or ()):
        at = f"{path}.nodeAffinity.{_PREFERRED}[{index}]"
        yield from _weight_causes(term, at)
        yield from _node_term_causes(term.get("preference") or {}, f"{at}.preference")
    for kind in ("podAffinity", "podAntiAffinity"):
        part = affinity.get(kind) or {}
        for index, term in enumerate(part.get(_REQUIRED) or ()):
            yield from _pod_term_causes(term, f"{path}.{kind}.{_REQUIRED}[{index}]")
        for index, weighted in enumerate(part.get(_PREFERRED) or ()):
            at = f"{path}.{kind}.{_PREFERRED}[{index}]"
            yield from _weight_causes(weighted, at)
            yield from _pod_term_causes(weighted.get("podAffinityTerm") or {}, f"{at}.podAffinityTerm")


def node_selector_causes(selector: Object, path: str) -> Iterator[Cause]:
    """What is wrong with a node selector."""
    if not selector.get("nodeSelectorTerms"):
        yield errors.required(f"{path}.nodeSelectorTerms", "must have at least one node selector term")
    for index, term in enumerate(selector.get("nodeSelectorTerms") or ()):
        yield from _node_term_causes(term, f"{path}.nodeSelectorTerms[{index}]")


def _weight_causes(term: Object, path: str) -> Iterator[Cause]:
    weight = term.get("weight", 0)
    if not 1 <= weight <= 100:
        yield errors.invalid_value(f"{path}.weight", weight, "must be in the range 1-100")


def _node_term_causes(term: Object, path: str) -> Iterator[Cause]:
    for index, entry in enumerate(term.get("matchExpressions") or ()):
        at = f"{path}.matchExpressions[{index}]"
        operator, values, key = entry.get("operator", ""), entry.get("values") or (), entry.get("key", "")
        if operator in _WITH_VALUES and not values:
            yield errors.required(f"{at}.values", "must be specified when `operator` is 'In' or 'NotIn'")
        elif operator in _WITHOUT_VALUES and values:
            yield errors.forbidden_field(f"{at}.values",
                                         "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
        elif operator in _WITH_ONE and len(values) != 1:
            yield errors.required(f"{at}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'")
        elif operator not in (*_WITH_VALUES, *_WITHOUT_VALUES, *_WITH_ONE):
            yield errors.invalid_value(f"{at}.operator", operator, _UNKNOWN)
        yield from (errors.invalid_value(f"{at}.key", key, why) for why in qualified_name_errors(key))
    for index, entry in enumerate(term.get("matchFields") or ()):
        at = f"{path}.matchFields[{index}]"
        operator, values, key = entry.get("operator", ""), entry.get("values") or (), entry.get("key", "")
        if operator not in _WITH_VALUES:
            yield errors.invalid_value(f"{at}.operator", operator, _UNKNOWN)
        elif len(values) != 1:
            yield errors.required(f"{at}.values",
                                  "must be only one value when `operator` is 'In' or 'NotIn' for node field selector")
        if key != "metadata.name":
            yield errors.invalid_value(f"{at}.key", key, "not a valid field selector key")


def _pod_term_causes(term: Object, path: str) -> Iterator[Cause]:
    for key in ("labelSelector", "namespaceSelector"):
        yield from selector_causes(term.get(key) or {}, f"{path}.{key}")
    for name in term.get("namespaces") or ():
        yield from (errors.invalid_value(f"{path}.namespace", name, why) for why in dns_label_errors(name))
    key = term.get("topologyKey", "")
    if not key:
        yield errors.required(f"{path}.topologyKey", "can not be empty")
    yield from (errors.invalid_value(f"{path}.topologyKey", key, why) for why in qualified_name_errors(key))


def spread_causes(constraints: Iterable[Object], path: str) -> Iterator[Cause]:
    """What is wrong with topology spread constraints."""
    seen = set()
    for index, constraint in enumerate(constraints):
        at, skew, key = f"{path}[{index}]", constraint.get("maxSkew", 0), constraint.get("topologyKey", "")
        when = constraint.get("whenUnsatisfiable", "")
        if skew <= 0:
            yield errors.invalid_value(f"{at}.maxSkew", skew, "must be greater than zero")
        if not key:
            yield errors.required(f"{at}.topologyKey", "can not be empty")
        else:
            yield from (errors.invalid_value(f"{at}.topologyKey", key, why) for why in qualified_name_errors(key))
        if when not in ("DoNotSchedule", "ScheduleAnyway"):
            yield errors.not_supported(f"{at}.whenUnsatisfiable", when, ("DoNotSchedule", "ScheduleAnyway"))
        if (key, when) in seen:
            yield errors.duplicate(f"{path}[{index - 1}].{{topologyKey, whenUnsatisfiable}}", f"{{{key}, {when}}}")
        seen.add((key, when))
        if (least := constraint.get("minDomains")) is not None:
            if least <= 0:
                yield errors.invalid_value(f"{at}.minDomains", least, "must be greater than zero")
            if when != "DoNotSchedule":
                yield errors.invalid_value(f"{at}.minDomains", least, "can only use minDomains if "
                                           f"whenUnsatisfiable=DoNotSchedule, not {when}")
        for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            yield from one_of(constraint.get(policy), ("Honor", "Ignore"), f"{at}.{policy}")
        yield from selector_causes(constraint.get("labelSelector") or {}, f"{at}.labelSelector")


def toleration_causes(tolerations: Iterable[Object], path: str) -> Iterator[Cause]:
    """What is wrong with tolerations."""
    for index, toleration in enumerate(tolerations):
        at, key, value = f"{path}[{index}]", toleration.get("key", ""), toleration.get("value", "")
        operator, effect = toleration.get("operator", ""), toleration.get("effect", "")
        if key:
            yield from (errors.invalid_value(f"{at}.key", key, why) for why in qualified_name_errors(key))
        elif operator != "Exists":
            yield errors.invalid_value(f"{at}.operator", operator, "operator must be Exists when `key` is empty, which "
                                                                   "means \"match all values and all keys\"")
        if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
            yield errors.invalid_value(f"{at}.effect", effect,
                                       "effect must be 'NoExecute' when `tolerationSeconds` is set")
        if operator in ("Equal", ""):
            yield from (errors.invalid_value(f"{at}.operator", value, why) for why in label_value_errors(value))
        elif operator == "Exists" and value:
            yield errors.invalid_value(f"{at}.operator", value, "value must be empty when `operator` is 'Exists'")
        elif operator in _WITH_ONE:  # operators of a feature that is off: the real server names them all the same
            yield errors.not_supported(f"{at}.operator", operator, ("Equal", "Exists", "Lt", "Gt"))
        elif operator != "Exists":
            yield errors.not_supported(f"{at}.operator", operator, ("Equal", "Exists"))
        yield from one_of(effect, ("NoSchedule", "PreferNoSchedule", "NoExecute"), f"{at}.effect")


RESTART_POLICIES = ("Always", "OnFailure", "Never")
DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
MAX_NAMESERVERS, MAX_SEARCHES = 3, 32
_SEARCH_PATTERN = r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*"
_SEARCH = re.compile(_SEARCH_PATTERN)
_SEARCH_MESSAGE = ("a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or "
                   "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for "
                   f"validation is '{_SEARCH_PATTERN}')")


@remembers_good
def pod_spec_causes(spec: Object, path: str, *, is_pod: bool = True) -> list[Cause]:
    """What is wrong with a pod spec; `path` is ``spec`` or ``spec.template.spec``."""
    return list(_causes(spec, path, is_pod))


def template_causes(template: Object, path: str) -> list[Cause]:
    """What is wrong with a pod template: its labels and spec."""
    metadata = template.get("metadata") or {}
    causes = labels_causes(metadata.get("labels") or {}, f"{path}.labels")  # the real server's path, indeed
    causes += [errors.invalid_value(f"{path}.annotations", key, why)
               for key in metadata.get("annotations") or () for why in qualified_name_errors(key.lower())]
    causes += pod_spec_causes(template.get("spec") or {}, f"{path}.spec", is_pod=False)
    if (template.get("spec") or {}).get("ephemeralContainers"):
        causes.append(errors.forbidden_field(f"{path}.spec.ephemeralContainers",
                                             "ephemeral containers not allowed in pod template"))
    return causes


def _causes(spec: Object, path: str, is_pod: bool) -> Iterator[Cause]:
    yield from volumes_causes(spec.get("volumes") or (), f"{path}.volumes")
    yield from _claim_causes(spec, f"{path}.resourceClaims")
    if not spec.get("containers"):
        yield errors.required(f"{path}.containers")
    grace = spec.get("terminationGracePeriodSeconds")
    pod = PodContext(
        volumes={volume.get("name", ""): volume for volume in spec.get("volumes") or ()},
        claims=frozenset(claim.get("name", "") for claim in spec.get("resourceClaims") or ()),
        restart_policy=spec.get("restartPolicy", ""), grace=30 if grace is None else grace,
        host_users=spec.get("hostUsers") is not False, os=(spec.get("os") or {}).get("name", ""))
    yield from containers_causes(spec, path, pod)
    if resources := spec.get("resources"):
        yield from resource_causes(resources, f"{path}.resources", pod=True)
    yield from one_of(spec.get("restartPolicy"), RESTART_POLICIES, f"{path}.restartPolicy", required=True)
    yield from one_of(spec.get("dnsPolicy"), DNS_POLICIES, f"{path}.dnsPolicy", required=True)
    yield from labels_causes(spec.get("nodeSelector") or {}, f"{path}.nodeSelector")
    yield from _host_causes(spec, path, is_pod)
    if context := spec.get("securityContext"):
        yield from pod_security_causes(context, f"{path}.securityContext", pod.os)
    if affinity := spec.get("affinity"):
        yield from affinity_causes(affinity, f"{path}.affinity")
    yield from _dns_causes(spec, path)
    yield from _gate_causes(spec, path)
    yield from spread_causes(spec.get("topologySpreadConstraints") or (), f"{path}.topologySpreadConstraints")
    for key in ("serviceAccountName", "nodeName", "priorityClassName"):
        if name := spec.get(key):
            yield from (errors.invalid_value(f"{path}.{key}", name, why) for why in dns_subdomain_errors(name))
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= 2**31 - 1:
        yield errors.invalid_value(f"{path}.activeDeadlineSeconds", deadline,
                                   "must be between 1 and 2147483647, inclusive")
    for key in ("hostname", "subdomain"):
        if name := spec.get(key):
            yield from (errors.invalid_value(f"{path}.{key}", name, why) for why in dns_label_errors(name))
    yield from toleration_causes(spec.get("tolerations") or (), f"{path}.tolerations")
    yield from one_of(spec.get("preemptionPolicy"), ("Never", "PreemptLowerPriority"), f"{path}.preemptionPolicy")
    if spec.get("os") is not None:
        if not pod.os:
            yield errors.required(f"{path}.os.name")
        yield from one_of(pod.os, ("linux", "windows"), f"{path}.os")


def _host_causes(spec: Object, path: str, is_pod: bool) -> Iterator[Cause]:
    """The host's network and namespaces."""
    for index, container in enumerate(spec.get("containers") or () if spec.get("hostNetwork") else ()):
        for number, port in enumerate(container.get("ports") or ()):
            host = port.get("hostPort") or 0
            if (is_pod or host) and host != port.get("containerPort"):
                yield errors.invalid_value(f"{path}.containers[{index}].ports[{number}].hostPort", host,
                                           "must match `containerPort` when `hostNetwork` is true")
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        yield errors.invalid_value(f"{path}.securityContext.shareProcessNamespace", True,
                                   "ShareProcessNamespace and HostPID cannot both be enabled")
    if spec.get("hostUsers") is False:
        yield from (errors.forbidden_field(f"{path}.{key}", "when `hostUsers` is false")
                    for key in ("hostNetwork", "hostPID", "hostIPC") if spec.get(key))
    for index, alias in enumerate(spec.get("hostAliases") or ()):
        at = f"{path}.hostAliases[{index}]"
        if parse_ip(alias.get("ip") or "") is None:
            yield errors.invalid_value(f"{at}.ip", alias.get("ip") or "", IP_MESSAGE)
        for number, name in enumerate(alias.get("hostnames") or ()):
            yield from (errors.invalid_value(f"{at}.hostnames[{number}]", name, why)
                        for why in dns_subdomain_errors(name))


def _dns_causes(spec: Object, path: str) -> Iterator[Cause]:
    config = spec.get("dnsConfig")
    at = f"{path}.dnsConfig"
    if spec.get("dnsPolicy") == "None":
        if config is None:
            yield errors.required(at, "must provide `dnsConfig` when `dnsPolicy` is None")
            return
        if not config.get("nameservers"):
            yield errors.required(f"{at}.nameservers",
                                  "must provide at least one DNS nameserver when `dnsPolicy` is None")
    config = config or {}
    servers, searches = config.get("nameservers") or [], config.get("searches") or []
    if len(servers) > MAX_NAMESERVERS:
        yield errors.invalid_value(f"{at}.nameservers", servers,
                                   f"must not have more than {MAX_NAMESERVERS} nameservers")
    for index, server in enumerate(servers):
        if parse_ip(server) is None:
            yield errors.invalid_value(f"{at}.nameservers[{index}]", server, IP_MESSAGE)
    if len(searches) > MAX_SEARCHES:
        yield errors.invalid_value(f"{at}.searches", searches,
                                   f"must not have more than {MAX_SEARCHES} search paths")
    for index, search in enumerate(searches):
        if search != "." and not _SEARCH.fullmatch(search.removesuffix(".")):
            yield errors.invalid_value(f"{at}.searches[{index}]", search, _SEARCH_MESSAGE)
    for index, option in enumerate(config.get("options") or ()):
        if not option.get("name"):
            yield errors.required(f"{at}.options[{index}]", "must not be empty")


def _gate_causes(spec: Object, path: str) -> Iterator[Cause]:
    for index, gate in enumerate(spec.get("readinessGates") or ()):
        kind = gate.get("conditionType", "")
        yield from (errors.invalid_value(f"{path}.readinessGates[{index}].conditionType", kind, why)
                    for why in qualified_name_errors(kind))
    seen = set()
    for index, gate in enumerate(spec.get("schedulingGates") or ()):
        name = gate.get("name", "")
        yield from (errors.invalid_value(f"{path}.schedulingGates[{index}]", name, why)
                    for why in qualified_name_errors(name))
        if name in seen:
            yield errors.duplicate(f"{path}.schedulingGates[{index}]", name)
        seen.add(name)


def _claim_causes(spec: Object, path: str) -> Iterator[Cause]:
    """References to ResourceClaims, or to templates for them."""
    seen = set()
    for index, claim in enumerate(spec.get("resourceClaims") or ()):
        at, name = f"{path}[{index}]", claim.get("name", "")
        given = [key for key in ("resourceClaimName", "resourceClaimTemplateName") if claim.get(key) is not None]
        shown = {"Name": name, "ResourceClaimName": claim.get("resourceClaimName"),
                 "ResourceClaimTemplateName": claim.get("resourceClaimTemplateName")}
        if name in seen:
            yield errors.duplicate(f"{at}.name", name)
        seen.add(name)
        if not given:
            yield errors.invalid_value(at, shown,
                                       "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`")
        elif len(given) > 1:
            yield errors.invalid_value(at, shown, "at most one of `resourceClaimName` or `resourceClaimTemplateName` "
                                                  "may be specified")
