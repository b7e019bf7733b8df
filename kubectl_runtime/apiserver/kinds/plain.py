"""Kinds whose strategy consists of little more than rows of rules and defaults.

Leases, FlowSchemas, PriorityLevelConfigurations, APIServices and the kinds of resource.k8s.io are stored without
effect. Names of Roles and bindings only have to be valid URL path segments. The module `access.rbac` checks escalation.
"""
from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds import rules as r
from kubectl_runtime.apiserver.kinds.admission import SERVICE_ADDRESS
from kubectl_runtime.apiserver.kinds.base import AMOUNT_OR_PERCENT, BuiltinStrategy, labels_causes, selector_causes
from kubectl_runtime.apiserver.kinds.pod.containers import resource_causes
from kubectl_runtime.apiserver.kinds.pod.pod_validation import TOLERATION
from kubectl_runtime.apiserver.managedfields.entries import ResetFields
from kubectl_runtime.apiserver.names import (
    dns_1035_label_errors,
    dns_label_errors,
    dns_subdomain_errors,
    path_segment_errors,
)
from kubectl_runtime.apiserver.strategy import StrategyContext
from kubectl_runtime.apiserver.wire import Object
from kubectl_runtime.core.meta.metav1 import format_time


class LeaseStrategy(BuiltinStrategy):
    dropped = ("spec.strategy", "spec.preferredHolder")  # coordinated leader election, a feature that is off
    rules = r.Rules(
        ("spec.leaseDurationSeconds", r.at_least(1, "must be greater than 0")),
        ("spec.leaseTransitions", r.NATURAL),
    )


class FlowSchemaStrategy(BuiltinStrategy):
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
    has_generation = True
    delete_returns_object = True
    rules = r.Rules(("spec", r.Rules(_SELECTORS, _CONFIGURATIONS)))


class ResourceSliceStrategy(BuiltinStrategy):
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
    delete_returns_object = True
    defaults = _request_defaults("spec.devices")
    rules = r.Rules(("spec.devices", _DEVICES))
    update_rules = r.Rules(("spec", r.FIXED))


class ResourceClaimTemplateStrategy(ResourceClaimStrategy):
    """ResourceClaimTemplates. Their spec contains a claim's spec."""

    defaults = _request_defaults("spec.spec.devices")
    rules = r.Rules(("spec.spec.devices", _DEVICES))


SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


def _priority(obj: Object, path: str) -> list[Cause]:
    """Refuse user-defined priorities above 1,000,000,000 and names that are reserved for the system."""
    name = obj["metadata"].get("name", "")
    if name in SYSTEM_PRIORITIES:
        return []
    if name.startswith("system-"):
        return [errors.forbidden_field(f"{path}metadata.name", "priority class names with 'system-' prefix are "
                                       "reserved for system use only. error: "
                                       f"{name} is not a known system priority class")]
    return [errors.forbidden_field(f"{path}value", "maximum allowed value of a user defined priority is 1000000000")
            ] if obj.get("value", 0) > 1_000_000_000 else []


class PriorityClassStrategy(BuiltinStrategy):
    """PriorityClasses. Their value and preemptionPolicy cannot change."""

    has_generation = True
    immortal = frozenset(SYSTEM_PRIORITIES)
    immortal_text = "this is a system priority class and cannot be deleted"
    generation_path = "spec"  # a PriorityClass has no spec, so its generation never changes
    defaults = r.Defaults({"preemptionPolicy": "PreemptLowerPriority"})
    rules = r.Rules(("preemptionPolicy", r.choice("PreemptLowerPriority", "Never")), ("", _priority))
    update_rules = r.Rules(("value", r.fixed("may not be changed in an update.")), ("preemptionPolicy", r.FIXED))


_TOLERATION = (("Key", ""), ("Operator", ""), ("Value", ""), ("Effect", ""), ("TolerationSeconds", None))


def _internal(toleration: Object) -> Object:
    """A toleration as the real server prints its internal type."""
    return {key: toleration.get(key[:1].lower() + key[1:], empty) for key, empty in _TOLERATION}


class RuntimeClassStrategy(BuiltinStrategy):
    rules = r.Rules(
        ("handler", r.FIXED, r.REQUIRED, r.DNS_LABEL),
        ("overhead", lambda overhead, path: resource_causes({"limits": (overhead or {}).get("podFixed")}, path)),
        ("scheduling.nodeSelector", labels_causes),
        ("scheduling.tolerations[*]", TOLERATION),
        ("scheduling.tolerations[*]", r.Unique(lambda toleration: tuple(_internal(toleration).values()), _internal)),
    )


def _both_bounds(spec: Object, path: str) -> list[Cause]:
    shown = {"MinAvailable": spec["minAvailable"], "Selector": spec.get("selector"),
             "MaxUnavailable": spec["maxUnavailable"],
             "UnhealthyPodEvictionPolicy": spec.get("unhealthyPodEvictionPolicy")}
    return [errors.invalid_value(path, shown, "minAvailable and maxUnavailable cannot be both set")]


class DisruptionBudgetStrategy(BuiltinStrategy):
    has_generation = True
    rules = r.Rules(
        r.when(r.has("spec.minAvailable", "spec.maxUnavailable"), ("spec", _both_bounds)),
        ("spec.minAvailable", AMOUNT_OR_PERCENT),
        ("spec.maxUnavailable", AMOUNT_OR_PERCENT),
        ("spec.unhealthyPodEvictionPolicy", r.choice("AlwaysAllow", "IfHealthyBudget")),
        ("spec.selector", selector_causes),
    )
    status_rules = r.Rules(*((f"status.{key}", r.NATURAL) for key in (
        "disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")))


USAGES = ("any", "cert sign", "client auth", "code signing", "content commitment", "crl sign", "data encipherment",
          "decipher only", "digital signature", "email protection", "encipher only", "ipsec end system", "ipsec tunnel",
          "ipsec user", "key agreement", "key encipherment", "microsoft sgc", "netscape sgc", "ocsp signing", "s/mime",
          "server auth", "signing", "timestamping")
_BEGIN, _END = b"-----BEGIN CERTIFICATE REQUEST-----", b"-----END CERTIFICATE REQUEST-----"


def _is_request(text: str) -> bool:
    """Whether a text is a PEM block CERTIFICATE REQUEST with content."""
    try:
        data = base64.b64decode(text)
    except binascii.Error:
        return False
    head, begin, rest = data.partition(_BEGIN)
    return bool(begin) and _END in rest and b"-----BEGIN" not in head


def _signer(given: str | None, path: str) -> Iterator[Cause]:
    signer = given or ""
    domain, slash, name = signer.partition("/")
    if signer == "kubernetes.io/legacy-unknown":
        yield errors.invalid_value(path, signer, "the legacy signerName is not allowed via this API version")
    elif not signer:
        yield errors.required(path)
    elif not slash or "/" in name:
        yield errors.invalid_value(path, signer, "must be a fully qualified domain and path of the form "
                                                 "'example.com/signer-name'")
    else:
        if "." not in domain:
            yield errors.invalid_value(path, domain,
                                       "should be a domain with at least two segments separated by dots")
        yield from (errors.invalid_value(path, part, f'validating label "{part}": {why}')
                    for part in (domain, name) for why in dns_subdomain_errors(part))


class SigningRequestStrategy(BuiltinStrategy):
    """CertificateSigningRequests. The server records the requesting user in the spec."""

    name_errors = staticmethod(path_segment_errors)
    rules = r.Rules(
        ("spec.request", r.must(_is_request, "PEM block type must be CERTIFICATE REQUEST", zero="")),
        ("spec.usages", r.REQUIRED),
        ("spec.usages[*]", r.REQUIRED, r.choice(*USAGES), r.UNIQUE),
        ("spec.signerName", _signer),
        ("spec.expirationSeconds", r.at_least(600, "may not specify a duration less than 600 seconds (10 minutes)")),
    )
    update_rules = r.Rules()
    fields: ClassVar[dict[str, str | Callable[[Object], str]]] = {"spec.signerName": "spec.signerName"}

    def prepare_create(self, obj: Object, ctx: StrategyContext) -> None:
        """Set the requesting user, whatever the body contains."""
        super().prepare_create(obj, ctx)
        for key in ("uid", "groups", "extra"):
            obj["spec"].pop(key, None)
        obj["spec"].update(ctx.identity)

    def prepare_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> None:
        """Restore the spec. On /approval only the status conditions may change."""
        super().prepare_update(new, old, "status" if subresource == "approval" else subresource, ctx)
        self.keep("spec", new, old)
        for condition in (new.get("status") or {}).get("conditions") or ():
            known: Object = next((entry for entry in (old.get("status") or {}).get("conditions") or ()
                          if entry.get("type") == condition.get("type")), {})
            now = known.get("lastTransitionTime") if known.get("status") == condition.get("status") else None
            condition["lastTransitionTime"] = condition.get("lastTransitionTime") or now or format_time(ctx.now)
            condition["lastUpdateTime"] = condition.get("lastUpdateTime") or format_time(ctx.now)

    def reset(self, subresource: str) -> ResetFields:
        """The fields that a client never owns. As in the real server, they include the spec, although a create sets it.
        """
        return super().reset(subresource) if subresource else ResetFields(drop=(("spec",), ("status",)))


GROUP = "rbac.authorization.k8s.io"

_VERBS = ("verbs", r.required("verbs must contain at least one value"))
_RULE = (
    r.when(r.filled("nonResourceURLs"), r.some("apiGroups", "resources", "resourceNames"),
           ("nonResourceURLs", r.invalid("rules cannot apply to both regular resources and non-resource URLs"))),
    r.when(r.lacks("nonResourceURLs"),
           ("apiGroups", r.required("resource rules must supply at least one api group")),
           ("resources", r.required("resource rules must supply at least one resource"))),
)


class RoleStrategy(BuiltinStrategy):
    """Roles. Each rule must have verbs and resources."""

    name_errors = staticmethod(path_segment_errors)
    rules = r.Rules(("rules[*]", r.Rules(
        _VERBS,
        r.when(r.filled("nonResourceURLs"),
               ("nonResourceURLs", r.invalid("namespaced rules cannot apply to non-resource URLs"))),
        *_RULE)))


def _aggregated(selector: Object, path: str) -> list[Cause]:
    wrong = selector_causes(selector, path)
    return [*wrong, errors.invalid_value(path, None, "invalid label selector.")] if wrong else []


class ClusterRoleStrategy(BuiltinStrategy):
    """ClusterRoles. Their rules may have nonResourceURLs, and they may aggregate other roles."""

    name_errors = staticmethod(path_segment_errors)
    rules = r.Rules(
        ("rules[*]", r.Rules(_VERBS, *_RULE)),
        r.when(r.has("aggregationRule"), ("aggregationRule.clusterRoleSelectors", r.required(
            "at least one clusterRoleSelector required if aggregationRule is non-nil"))),
        ("aggregationRule.clusterRoleSelectors[*]", _aggregated),
    )


def _internal_role(role: Object) -> Object:
    """A roleRef as the real server prints its internal type."""
    return {"APIGroup": role["apiGroup"], "Kind": role.get("kind", ""), "Name": role.get("name", "")}


_ROLE = (
    ("roleRef", r.Fixed(lambda path, role: errors.invalid_value(path, _internal_role(role), "cannot change roleRef"))),
    ("roleRef.apiGroup", r.choice(GROUP)),
)
_ROLE_NAME = ("roleRef.name", r.REQUIRED, r.PATH_SEGMENT)
_SUBJECT = (
    ("name", r.REQUIRED),
    ("kind", r.choice("ServiceAccount", "User", "Group", zero="")),
    r.when(r.equals("kind", "ServiceAccount"), ("name", r.DNS_SUBDOMAIN)),
)
_SUBJECT_GROUP = (
    r.when(r.equals("kind", "ServiceAccount"), ("apiGroup", r.choice(""))),
    r.when(r.equals("kind", "User", "Group"), ("apiGroup", r.choice(GROUP, zero=""))),
)


def _group_of(subject: Object) -> str | None:
    return GROUP if subject.get("kind") in ("User", "Group") else None


class BindingStrategy(BuiltinStrategy):
    """RoleBindings. The roleRef cannot change, but the subjects can."""

    name_errors = staticmethod(path_segment_errors)
    defaults = r.Defaults({"roleRef": {}}, zero={"roleRef.apiGroup": GROUP, "subjects[*].apiGroup": _group_of})
    rules = r.Rules(
        *_ROLE,
        ("roleRef.kind", r.choice("Role", "ClusterRole", zero="")),
        _ROLE_NAME,
        ("subjects[*]", r.Rules(*_SUBJECT, *_SUBJECT_GROUP)),
    )


class ClusterBindingStrategy(BindingStrategy):
    """ClusterRoleBindings. They must refer to ClusterRoles, and ServiceAccount subjects must have a namespace."""

    rules = r.Rules(
        *_ROLE,
        ("roleRef.kind", r.choice("ClusterRole", zero="")),
        _ROLE_NAME,
        ("subjects[*]", r.Rules(
            *_SUBJECT,
            r.when(r.equals("kind", "ServiceAccount"), ("namespace", r.REQUIRED)),
            *_SUBJECT_GROUP)),
    )
