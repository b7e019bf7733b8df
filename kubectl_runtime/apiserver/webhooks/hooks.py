"""The webhooks that are configured, in the order in which they are asked: by the name of the configuration, then as it
lists them. They are read from the stored configurations, and again after one of them changes.

Thread safety: the cluster's lock is held.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kubectl_runtime.apiserver.kinds.base import label_selector
from kubectl_runtime.apiserver.policies.configured import Policies
from kubectl_runtime.apiserver.query.selectors import LabelSelector
from kubectl_runtime.apiserver.storage.storage import Storage, Version
from kubectl_runtime.apiserver.webhooks.outgoing import Target, WebhookCaller, target_of

Object = dict[str, Any]

MUTATING = "admissionregistration.k8s.io/mutatingwebhookconfigurations"
VALIDATING = "admissionregistration.k8s.io/validatingwebhookconfigurations"
_DRY_RUN_EFFECTS = ("None", "NoneOnDryRun")


@dataclass(frozen=True, slots=True, eq=False)
class Hook:
    """One webhook of a configuration; compared by identity."""

    name: str
    target: Target
    rules: tuple[Object, ...]
    fails_closed: bool
    matches_equivalents: bool
    namespace_selector: LabelSelector
    object_selector: LabelSelector
    conditions: tuple[tuple[str, str], ...]
    """(name, expression)"""
    may_run_dry: bool
    timeout: float
    """Seconds."""
    review_versions: tuple[str, ...]
    reinvoked: bool


class Hooks:
    """The webhooks and policies of one storage, and the way to webhooks."""

    def __init__(self, storage: Storage, caller: WebhookCaller) -> None:
        self._storage = storage
        self.caller = caller
        self.policies = Policies(storage)
        self._read: dict[str, tuple[list[Version], tuple[Hook, ...]]] = {}

    def mutating(self) -> tuple[Hook, ...]:
        """Those that may change an object."""
        return self._of(MUTATING)

    def validating(self) -> tuple[Hook, ...]:
        """Those that only judge."""
        return self._of(VALIDATING)

    def __bool__(self) -> bool:
        """Whether there is any configuration: what every write asks, so no more than that."""
        get = self._storage.buckets.get
        mutating, validating = get(MUTATING), get(VALIDATING)
        return ((mutating is not None and bool(mutating.objects))
                or (validating is not None and bool(validating.objects)) or bool(self.policies))

    def _of(self, key: str) -> tuple[Hook, ...]:
        bucket = self._storage.buckets.get(key)
        if bucket is None or not bucket.objects:
            return ()
        versions = list(bucket.scan(""))
        before, hooks = self._read.get(key, ([], ()))
        if before != versions:  # they are compared by identity
            hooks = tuple(hook_of(entry) for version in versions for entry in version.decode().get("webhooks") or ())
            self._read[key] = (versions, hooks)
        return hooks


def hook_of(entry: Object) -> Hook:
    """A webhook as a configuration has it."""
    return Hook(
        name=entry["name"], target=target_of(entry.get("clientConfig") or {}), rules=tuple(entry.get("rules") or ()),
        fails_closed=entry.get("failurePolicy") != "Ignore",
        matches_equivalents=entry.get("matchPolicy") != "Exact",
        namespace_selector=_selector(entry.get("namespaceSelector")),
        object_selector=_selector(entry.get("objectSelector")),
        conditions=tuple((condition["name"], condition["expression"])
                         for condition in entry.get("matchConditions") or ()),
        may_run_dry=entry.get("sideEffects") in _DRY_RUN_EFFECTS, timeout=float(entry.get("timeoutSeconds") or 10),
        review_versions=tuple(entry.get("admissionReviewVersions") or ()),
        reinvoked=entry.get("reinvocationPolicy") == "IfNeeded")


def _selector(selector: Object | None) -> LabelSelector:
    return label_selector(selector) or LabelSelector()
