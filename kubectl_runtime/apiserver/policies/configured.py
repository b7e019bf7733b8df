"""The configured admission policies with their bindings, ordered by policy name and binding name.

Policies are read from the stored objects, and read again when such an object changes. A policy without a binding has no
effect. Callers hold the cluster's lock.
"""
from __future__ import annotations

from dataclasses import dataclass, field

from kubectl_runtime.apiserver.kinds.base import label_selector
from kubectl_runtime.apiserver.query import LabelSelector
from kubectl_runtime.apiserver.storage import Bucket, Storage, Version
from kubectl_runtime.apiserver.wire import Object
from kubectl_runtime.schema.policycel import Expressions

_GROUP = "admissionregistration.k8s.io"
VALIDATING, MUTATING = "validatingadmissionpolicies", "mutatingadmissionpolicies"
_BINDINGS = {VALIDATING: "validatingadmissionpolicybindings", MUTATING: "mutatingadmissionpolicybindings"}


@dataclass(frozen=True, slots=True)
class Match:
    """The requests to which a policy or a binding applies."""

    rules: tuple[Object, ...] | None
    """None stands for all rules of the policy."""
    excluded: tuple[Object, ...]
    matches_equivalents: bool
    namespace_selector: LabelSelector
    object_selector: LabelSelector


@dataclass(frozen=True, slots=True, eq=False)
class Binding:
    """One binding of a policy; compared by identity."""

    name: str
    match: Match | None
    param_ref: Object | None
    actions: tuple[str, ...]


@dataclass(slots=True, eq=False)
class Policy:
    """A policy with its bindings; compared by identity."""

    name: str
    spec: Object
    match: Match
    bindings: tuple[Binding, ...]
    _expressions: Expressions | None = field(default=None, repr=False)

    @property
    def fails_closed(self) -> bool:
        """Whether an evaluation error refuses the request."""
        return bool(self.spec.get("failurePolicy") != "Ignore")

    @property
    def reinvoked(self) -> bool:
        """Whether the policy may run again if a later policy or webhook changes the object."""
        return bool(self.spec.get("reinvocationPolicy") == "IfNeeded")

    @property
    def expressions(self) -> Expressions:
        """The environment of the policy's expressions, created on first use."""
        if self._expressions is None:
            self._expressions = expressions_of(self.spec)
        return self._expressions


def expressions_of(spec: Object) -> Expressions:
    """The environment for the expressions in a policy's spec. The spec's variables must have been validated."""
    variables = tuple((entry["name"], entry["expression"]) for entry in spec.get("variables") or ())
    return Expressions(variables, has_params=bool(spec.get("paramKind")))


class Policies:
    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._read: dict[str, tuple[list[Version], tuple[Policy, ...]]] = {}

    def __bool__(self) -> bool:
        """Whether any binding exists. Every write checks this, so the check only looks at two dicts."""
        return any(bucket is not None and bool(bucket.objects) for bucket in map(self._bucket, _BINDINGS.values()))

    def validating(self) -> tuple[Policy, ...]:
        """The policies that only validate."""
        return self._of(VALIDATING)

    def mutating(self) -> tuple[Policy, ...]:
        """The policies that change objects."""
        return self._of(MUTATING)

    def _bucket(self, plural: str) -> Bucket | None:
        return self._storage.buckets.get(f"{_GROUP}/{plural}")

    def _of(self, plural: str) -> tuple[Policy, ...]:
        bound = self._bucket(_BINDINGS[plural])
        defined = self._bucket(plural)
        if bound is None or defined is None or not bound.objects or not defined.objects:
            return ()
        versions = [*defined.scan(""), *bound.scan("")]
        before, policies = self._read.get(plural, ([], ()))
        if before != versions:  # compared by identity
            policies = _policies(list(defined.scan("")), list(bound.scan("")))
            self._read[plural] = (versions, policies)
        return policies


def _policies(defined: list[Version], bound: list[Version]) -> tuple[Policy, ...]:
    bindings: dict[str, list[Binding]] = {}
    for version in bound:
        spec = version.decode()["spec"]
        resources = spec.get("matchResources")
        bindings.setdefault(spec["policyName"], []).append(Binding(
            version.name, match_of(resources) if resources else None, spec.get("paramRef"),
            tuple(spec.get("validationActions") or ())))
    policies = ((version.name, version.decode()["spec"]) for version in defined if version.name in bindings)
    return tuple(Policy(name, spec, match_of(spec.get("matchConstraints") or {}), tuple(bindings[name]))
                 for name, spec in policies)


def match_of(match: Object) -> Match:
    rules = match.get("resourceRules")
    return Match(tuple(rules) if rules else None, tuple(match.get("excludeResourceRules") or ()),
                 match.get("matchPolicy") != "Exact",
                 label_selector(match.get("namespaceSelector")) or LabelSelector(),
                 label_selector(match.get("objectSelector")) or LabelSelector())
