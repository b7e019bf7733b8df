"""What a webhook class says of its configuration: the class keywords, and the rules that follow from its kind."""
from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import msgspec

from kubectl_runtime.core.base.clock import Duration, seconds
from kubectl_runtime.core.base.nearest import did_you_mean
from kubectl_runtime.core.meta.gvk import ApiResource
from kubectl_runtime.core.meta.selectors import LabelSelection, Selector

OPERATIONS = ("CREATE", "UPDATE", "DELETE", "CONNECT")
WITH_CONTENT = ("CREATE", "UPDATE")
"""Operations whose object a webhook can change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Which requests come: a rule of the configuration. `*` stands for all; `resources` may name subresources
    (`pods/status`, `pods/*`). `operations` are those of the class if none are given."""

    groups: tuple[str, ...] = ("*",)
    versions: tuple[str, ...] = ("*",)
    resources: tuple[str, ...] = ("*",)
    operations: tuple[str, ...] | None = None
    scope: Literal["*", "Cluster", "Namespaced"] = "*"

    def __post_init__(self) -> None:
        for name in ("groups", "versions", "resources", "operations"):
            if isinstance(value := getattr(self, name), str):
                raise TypeError(f"Rule: {name}= takes several; write {name}=({value!r},)")


@dataclass(frozen=True, slots=True)
class WebhookOptions:
    """The class keywords; what is not given is left to the server's default.

    `name`: the webhook's own, with two dots at least; by default `class.plural.group`. `rules` take the place of the
    one that follows from the kind, which `operations` and `subresources` complete. `match_conditions`: CEL by name, all
    of which must be true. `timeout`: 1 to 30 whole seconds. `reinvocation` is for `mutate` alone: `IfNeeded` has it
    asked again when a webhook after it changed the object.
    """

    name: str | None = None
    operations: tuple[str, ...] = WITH_CONTENT
    subresources: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()
    match_conditions: Mapping[str, str] = field(default_factory=dict)
    match_policy: Literal["Equivalent", "Exact"] | None = None
    failure_policy: Literal["Fail", "Ignore"] | None = None
    side_effects: Literal["None", "NoneOnDryRun"] = "None"
    timeout: Duration | None = None
    namespace_selector: LabelSelection | None = None
    object_selector: LabelSelection | None = None
    reinvocation: Literal["Never", "IfNeeded"] | None = None

    def rules_for(self, resource: ApiResource | None, operations: Iterable[str]) -> list[dict[str, Any]]:
        """The rules as the configuration has them, limited to `operations`; none where nothing is left of them."""
        allowed = tuple(operations)
        rules = self.rules
        if not rules and resource is not None:
            plurals = (resource.plural, *(f"{resource.plural}/{name}" for name in self.subresources))
            rules = (Rule(groups=(resource.group,), versions=(resource.version,), resources=plurals),)
        found = []
        for rule in rules:
            mine = self.operations if rule.operations is None else rule.operations
            kept = [one for one in mine if one in allowed] if "*" not in mine else list(allowed)
            if kept:
                # With the server's default written out: rules are one value to server-side apply, and a second manager
                # that left a part of it to the server would conflict with the first.
                found.append({"apiGroups": list(rule.groups), "apiVersions": list(rule.versions), "operations": kept,
                              "resources": list(rule.resources), "scope": rule.scope})
        return found

    def to_dict(self, *, mutating: bool) -> dict[str, Any]:
        """What stands in the configuration beside name, client and rules."""
        said: dict[str, Any] = {
            "failurePolicy": self.failure_policy, "matchPolicy": self.match_policy,
            "namespaceSelector": _selector(self.namespace_selector), "objectSelector": _selector(self.object_selector),
            "sideEffects": self.side_effects,
            "timeoutSeconds": None if self.timeout is None else int(seconds(self.timeout)),
            "matchConditions": [{"name": name, "expression": text} for name, text in self.match_conditions.items()],
            "reinvocationPolicy": self.reinvocation if mutating else None}
        return {key: value for key, value in said.items() if value not in (None, [])}


OPTIONS = tuple(option.name for option in fields(WebhookOptions))
_CHOICES = {"match_policy": ("Equivalent", "Exact"), "failure_policy": ("Fail", "Ignore"),
            "side_effects": ("None", "NoneOnDryRun"), "reinvocation": ("Never", "IfNeeded")}
_LISTS = ("operations", "subresources", "rules")
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_CONDITION = re.compile(r"(?:[-A-Za-z0-9.]+/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


def options_of(cls: type, given: Mapping[str, Any], base: WebhookOptions) -> WebhookOptions:
    """The options of class keywords, on top of those of the base class. TypeError, which names the nearest right one,
    for what the server would refuse."""
    said = f"class {cls.__name__}"
    for name in given:
        if name not in OPTIONS:
            raise TypeError(f"{said}: a webhook has no keyword {name}={did_you_mean(name, OPTIONS)}; there are "
                            f"{', '.join(OPTIONS)}")
    values = {name: getattr(base, name) for name in OPTIONS} | dict(given)
    for name in _LISTS:
        if isinstance(values[name], str):
            raise TypeError(f"{said}: {name}= takes several; write {name}=({values[name]!r},)")
        values[name] = tuple(values[name])
    for name, known in _CHOICES.items():
        if values[name] is not None and values[name] not in known:
            raise TypeError(f"{said}: {name}={values[name]!r} is not one of {', '.join(known)}"
                            f"{did_you_mean(str(values[name]), known)}")
    found = WebhookOptions(**values)
    _check(said, found)
    return found


def _check(said: str, options: WebhookOptions) -> None:
    rules = [rule for rule in options.rules if isinstance(rule, Rule)]
    if len(rules) != len(options.rules):
        raise TypeError(f"{said}: rules= are Rule(groups=..., versions=..., resources=...)")
    for operation in (*options.operations, *(one for rule in rules for one in rule.operations or ())):
        if operation not in (*OPERATIONS, "*"):
            raise TypeError(f"{said}: {operation!r} is not an operation{did_you_mean(str(operation), OPERATIONS)}; "
                            f"there are {', '.join(OPERATIONS)}")
    if options.name is not None and not re.fullmatch(rf"{_LABEL}(\.{_LABEL}){{2,}}", options.name):
        raise TypeError(f"{said}: name={options.name!r} is not a webhook's name, which is a domain name of at least "
                        "three parts, such as 'quota.shop.example.com'")
    if options.timeout is not None and not (1 <= seconds(options.timeout) <= 30
                                            and seconds(options.timeout).is_integer()):
        raise TypeError(f"{said}: timeout={options.timeout!r} is not between 1 and 30 whole seconds")
    conditions: Any = options.match_conditions
    if not isinstance(conditions, Mapping):
        raise TypeError(f"{said}: match_conditions= are CEL expressions by their names: {{'no-system-users': "
                        "\"!request.userInfo.username.startsWith('system:')\"}")
    for name, text in conditions.items():
        if not isinstance(text, str) or not text.strip() or not isinstance(name, str) or not _CONDITION.fullmatch(name):
            raise TypeError(f"{said}: match_conditions= has {name!r}: {text!r}, which is not a name and CEL expression")
    for selection in (options.namespace_selector, options.object_selector):
        try:
            _selector(selection)
        except ValueError as error:
            raise TypeError(f"{said}: {error}") from None


def _selector(selection: LabelSelection | None) -> dict[str, Any] | None:
    if selection is None:
        return None
    plain: dict[str, Any] = msgspec.to_builtins(Selector.of(selection).to_label_selector())
    return plain
