"""The rules of a schema (`x-kubernetes-validations`): checks of the rules, and validation of values by the rules.

A rule belongs to a schema and sees the value as `self` and, on updates, the old value as `oldSelf`. A rule that names
`oldSelf` is a transition rule: it is skipped without an old value, unless it has `optionalOldSelf`. A rule that is not
a transition rule is skipped on an update if its value did not change (ratcheting). Items have an old value only in
lists of type map. Texts and reasons follow apiextensions-apiserver.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kubectl_runtime.core.base.errors import MissingExtra
from kubectl_runtime.core.codec.jsonbytes import same_json
from kubectl_runtime.schema import cel, celcost, validation
from kubectl_runtime.schema.cel import CelError
from kubectl_runtime.schema.celtypes import Converter
from kubectl_runtime.schema.structural import RULES, branches, children, leads_somewhere
from kubectl_runtime.schema.validation import NOTHING, Cause

Node = Mapping[str, Any]

REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
_BLOCKING = frozenset({"FieldValueNotSupported", "FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany",
                       "FieldValueTypeInvalid"})
_NOT_CHECKED = ("some validation rules were not checked because the object was invalid; correct the existing errors to "
                "complete validation")
_LONGEST_MESSAGE = 5120


class Costs:
    """The estimated costs of one schema's rules. An API server limits the cost of each rule and the total of all rules.

    With `each=False` only the total is limited, as for a schema that an update does not change.
    """

    def __init__(self, *, each: bool = True) -> None:
        self._each, self._total = each, 0
        self._highest: list[tuple[int, str]] = []
        self.exceeded: list[Cause] = []

    def add(self, field: str, what: str, cost: int) -> list[Cause]:
        """Add an expression's cost to the total. Returns an error if this expression alone costs too much."""
        self._total += cost
        if cost >= celcost.TOTAL_LIMIT // 100:
            self._highest = sorted([*self._highest, (cost, field)], key=lambda known: -known[0])[:4]
        if not self._each or cost <= celcost.LIMIT:
            return []
        found = validation.forbidden_field(field, celcost.excess(f"estimated {what} cost", cost, celcost.LIMIT))
        self.exceeded.append(found)
        return [found]

    def total_causes(self, path: str) -> list[Cause]:
        """The errors if all rules of the schema at `path` together cost too much; else none."""
        if self._total <= celcost.TOTAL_LIMIT:
            return []
        part = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
        found = [*(validation.forbidden_field(field, part) for _, field in self._highest), validation.forbidden_field(
            path, celcost.excess("x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema",
                                 self._total, celcost.TOTAL_LIMIT))]
        self.exceeded += found
        return found


def rule_definition_causes(schema: Node, path: str = "", costs: Costs | None = None) -> list[Cause]:
    """The errors of the rules in a structural schema; `path` is the schema's place.

    Every rule is compiled against the schema's types. Without the extra `cel` each rule is an error. With `costs`, the
    rules' costs are added to it, and rules that cost too much are errors, too.
    """
    found = list(_definitions(schema, path, costs or Costs(each=False), 1, comparable=True, root=True))
    return found if costs is None else found + costs.total_causes(path)


def _definitions(node: Node, path: str, costs: Costs, count: int | None, *, comparable: bool,
                 root: bool = False) -> Iterator[Cause]:
    """The errors of a schema's rules, after the errors of its subschemas. `count`: the maximum number of the schema's
    values in one object; None means no limit."""
    below = celcost.elements_below(node)
    many = None if count is None or below is None else celcost.times(count, below)
    for child, level, place in children(node, path):
        kept = node.get("x-kubernetes-list-type") == "map" if level == "item" else (
            node.get("x-kubernetes-map-type") != "atomic")
        yield from _definitions(child, place, costs, many, comparable=comparable and kept)
    for branch, place in branches(node, path):
        if branch.get(RULES):
            yield validation.forbidden_field(f"{place}.{RULES}", "must be empty to be structural")
    if rules := node.get(RULES):
        yield from _rule_list_causes(rules, node, f"{path}.{RULES}", costs, count, comparable=comparable, root=root)


def _rule_list_causes(rules: list[Node], node: Node, path: str, costs: Costs, count: int | None, *, comparable: bool,
                      root: bool) -> Iterator[Cause]:
    scope: cel.Scope | None = None
    problem = ""
    try:
        scope = cel.Scope(node, root=root)
    except (MissingExtra, CelError) as error:
        problem = str(error)
    for index, rule in enumerate(rules):
        at, text = f"{path}[{index}]", (rule.get("rule") or "").strip()
        yield from _option_causes(rule, node, at)
        if not text:
            yield validation.required(f"{at}.rule", "rule is not specified")
        elif scope is None:
            yield _wrong(f"{at}.rule", rule, problem)
        else:
            yield from _expression_causes(rule, scope, at, costs, scope.most_times if count is None else count)
            if cel.uses_old_self(text) and not comparable:
                yield validation.invalid_value(f"{at}.rule", rule["rule"], "oldSelf cannot be used on the "
                                               "uncorrelatable portion of the schema within "
                                               f"{path.removesuffix('.' + RULES)}")


def _option_causes(rule: Node, node: Node, at: str) -> Iterator[Cause]:
    message = rule.get("message") or ""
    if message and not message.strip():
        yield validation.invalid_value(f"{at}.message", message, "message must be non-empty if specified")
    elif "\n" in message.strip() or "\r" in message.strip():
        yield validation.invalid_value(f"{at}.message", message, "must not contain line breaks")
    if not message and "\n" in (rule.get("rule") or "").strip():
        yield validation.required(f"{at}.message", "message must be specified if rule contains line breaks")
    if (expression := rule.get("messageExpression")) and not expression.strip():
        yield validation.required(f"{at}.messageExpression", "must be non-empty if specified")
    if (reason := rule.get("reason")) is not None and reason not in REASONS:
        yield validation.not_supported(f"{at}.reason", reason, REASONS)
    if path := rule.get("fieldPath"):
        if not path.strip() or "\n" in path:
            yield validation.invalid_value(f"{at}.fieldPath", path, "must not be empty" if not path.strip() else
                                       "must not contain line breaks")
        elif not leads_somewhere(path, node):
            yield validation.invalid_value(f"{at}.fieldPath", path, "must be a valid path")


def _expression_causes(rule: Node, scope: cel.Scope, at: str, costs: Costs, count: int) -> Iterator[Cause]:
    optional = bool(rule.get("optionalOldSelf"))
    if rule.get("optionalOldSelf") is not None and not cel.uses_old_self(rule["rule"]):
        yield validation.invalid_value(f"{at}.optionalOldSelf", rule["optionalOldSelf"],
                                       "may not be set if oldSelf is not used in rule")
    try:
        cost = scope.most_cost(rule["rule"], "bool", optional_old=optional)
        if cost is None:
            yield _wrong(f"{at}.rule", rule, "cel expression must evaluate to a bool")
        else:
            yield from costs.add(f"{at}.rule", "rule", celcost.times(cost, count))
    except CelError as error:
        cost = None
        yield _wrong(f"{at}.rule", rule, f"compilation failed: {error}")
    if cost is None or not (rule.get("messageExpression") or "").strip():
        return
    try:
        cost = scope.most_cost(rule["messageExpression"], "string", optional_old=optional)
        if cost is None:
            yield _wrong(f"{at}.messageExpression", rule, "messageExpression must evaluate to a string")
        else:
            yield from costs.add(f"{at}.messageExpression", "messageExpression", cost)
    except CelError as error:
        yield _wrong(f"{at}.messageExpression", rule, f"messageExpression compilation failed: {error}")


def _wrong(field: str, rule: Node, detail: str) -> Cause:
    """An error that quotes the whole rule, as the real server does."""
    shown = {"Rule": rule.get("rule") or "", "Message": rule.get("message") or "",
             "MessageExpression": rule.get("messageExpression") or "", "Reason": rule.get("reason"),
             "FieldPath": rule.get("fieldPath") or "", "OptionalOldSelf": rule.get("optionalOldSelf")}
    text = json.dumps(shown, separators=(",", ":"), ensure_ascii=False)
    for mark in "<>&":
        text = text.replace(mark, f"\\u{ord(mark):04x}")
    return Cause("FieldValueInvalid", f"Invalid value: {text}: {detail}", field)


# --- values -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Rule:
    rule: Node
    program: cel.Program
    message: cel.Program | None
    transition: bool
    optional: bool
    convert: Converter | None
    """Converts a value to the form that this rule sees; None if no conversion is needed."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The compiled rules of a schema and its subschemas; made once by `rules_of`, safe for concurrent use."""

    own: tuple[_Rule, ...]
    all_hold: cel.Program | None
    """All rules except transition rules, combined into one program. If its result is true, as is usual, these rules
    need not be run one by one. None if there are no such rules, or if they cannot be combined. In the second case
    `optional` is set, and the rules are run one by one."""
    optional: bool
    """Whether `all_hold` is not enough to check a value without an old value. Either a transition rule has
    `optionalOldSelf`, or the other rules cannot be combined."""
    convert: Callable[[Any], Any] | None
    kind: str
    properties: Mapping[str, Rules]
    extra: Rules | None
    items: Rules | None
    keys: tuple[str, ...]

    def causes(self, value: Any, old: Any = NOTHING, path: str = "") -> list[Cause]:
        """The errors of the rules that a value breaks; `old` is the value before an update."""
        found: list[Cause] = []
        self._collect(found, value, old, path, unchanged=False)
        return found

    def _collect(self, found: list[Cause], value: Any, old: Any, path: str, *, unchanged: bool) -> None:
        if value is None:
            return
        if old is not NOTHING:
            unchanged = unchanged or same_json(value, old)
            found.extend(self._own_causes(value, old, path, unchanged))
        elif self.own and not self._hold_at_once(value):
            found.extend(self._own_causes(value, old, path, unchanged))
        if isinstance(value, dict):
            before = old if isinstance(old, dict) else {}
            if self.extra:
                for name, child in value.items():
                    self.extra._collect(found, child, before.get(name, NOTHING), f"{path}[{name}]",
                                        unchanged=unchanged)
                return
            for name, below in self.properties.items():
                if name in value:
                    below._collect(found, value[name], before.get(name, NOTHING), f"{path}.{name}" if path else name,
                                   unchanged=unchanged)
        elif isinstance(value, list) and self.items:
            known = {self._identity(item): item for item in old} if self.keys and isinstance(old, list) else {}
            for index, item in enumerate(value):
                before = known.get(self._identity(item), NOTHING) if known else NOTHING
                self.items._collect(found, item, before, f"{path}[{index}]", unchanged=unchanged)

    def _identity(self, item: Any) -> str:
        return json.dumps([item.get(key) for key in self.keys] if isinstance(item, dict) else None)

    def _hold_at_once(self, value: Any) -> bool:
        """Whether no rule of this schema can fail for `value`, which has no old value."""
        if self.optional:
            return False
        try:
            return self.all_hold is None or self.all_hold.holds(self.convert(value) if self.convert else value)
        except ValueError:
            return False  # `_own_causes` reports the error

    def _own_causes(self, value: Any, old: Any, path: str, unchanged: bool) -> Iterator[Cause]:
        if not self.own:
            return
        values: cel.Values | None = None
        plain_hold = unchanged
        try:
            shown = self.convert(value) if self.convert else value
            values = _values(shown, old, self.convert)
            plain_hold = unchanged or (self.all_hold is not None and self.all_hold.holds(shown))
        except ValueError:
            pass  # a part of the value cannot be converted: run each rule with only the parts that it names
        for rule in self.own:
            if plain_hold if not rule.transition else old is NOTHING and not rule.optional:
                continue
            try:
                seen = values or _values(rule.convert(value) if rule.convert else value, old, rule.convert)
                if rule.program.run(seen) is not True:
                    yield _broken(rule, seen, path, NOTHING if self.kind in ("array", "object") else value)
            except (CelError, ValueError) as error:
                yield _failed(rule, self.kind, error, path)


def _values(shown: Any, old: Any, convert: Converter | None) -> cel.Values:
    return cel.Values(shown, old if old is NOTHING or old is None or not convert else convert(old))


def _failed(rule: _Rule, kind: str, error: Exception, path: str) -> Cause:
    told = rule.rule.get("message") or rule.rule["rule"].strip()
    return validation.invalid_value(path, kind, f"{error} evaluating rule: {told}")


def _broken(rule: _Rule, values: cel.Values, path: str, value: Any) -> Cause:
    """The error for a rule that does not hold; it shows `value`, unless that is NOTHING."""
    reason = rule.rule.get("reason") or "FieldValueInvalid"
    text = (rule.rule.get("message") or "").strip() or f"failed rule: {rule.rule['rule'].strip()}"
    if rule.message is not None:
        try:
            found = rule.message.run(values).strip()
        except CelError:  # messageExpression fails: show `message` or the rule, as on the real server
            found = ""
        if found and "\n" not in found and len(found) <= _LONGEST_MESSAGE:
            text = found
    field = (path + (rule.rule.get("fieldPath") or "")).removeprefix(".")
    if reason == "FieldValueForbidden":
        return validation.forbidden_field(field, text)
    if reason == "FieldValueRequired":
        return validation.required(field, text)
    if reason == "FieldValueDuplicate":
        text = "Duplicate value" if value is NOTHING else f"Duplicate value: {validation.go_value(value)}"
        return Cause(reason, text, field)
    return Cause(reason, f"Invalid value: {text}", field) if value is NOTHING else (
        validation.invalid_value(field, value, text))


def rules_of(schema: Node | None, *, root: bool = True) -> Rules | None:
    """The rules of a schema, ready for use; None if it has none. Raises MissingExtra without the extra `cel`."""
    if not schema:
        return None
    own = tuple(_ready(rule, schema, root=root) for rule in schema.get(RULES) or ())
    properties = {name: found for name, child in (schema.get("properties") or {}).items()
                  if (found := rules_of(child, root=False))}
    below = [rules_of(child, root=False) if isinstance(child, Mapping) else None
             for child in (schema.get("additionalProperties"), schema.get("items"))]
    if not own and not properties and not any(below):
        return None
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    all_hold = _all_hold(own)
    optional = any(rule.optional if rule.transition else all_hold is None for rule in own)
    expressions = [text for rule in own for text in (rule.rule["rule"], rule.rule.get("messageExpression") or "")]
    return Rules(own, all_hold, optional, cel.convert(schema, expressions, root=root) if own else None,
                 schema.get("type") or "", properties, below[0], below[1], tuple(keys))


def _all_hold(rules: Iterable[_Rule]) -> cel.Program | None:
    plain = [rule.rule["rule"] for rule in rules if not rule.transition]
    if len(plain) < 2:
        return cel.program(plain[0]) if plain else None
    try:
        return cel.program(" && ".join(f"({text}\n)" for text in plain))
    except CelError:  # the combined rules nest too deep, or a rule compiles only alone
        return None


def _ready(rule: Node, schema: Node, *, root: bool) -> _Rule:
    optional, message = bool(rule.get("optionalOldSelf")), (rule.get("messageExpression") or "").strip()
    return _Rule(rule, cel.program(rule["rule"], optional_old=optional),
                 cel.program(message, optional_old=optional) if message else None,
                 cel.uses_old_self(rule["rule"]), optional, cel.convert(schema, [rule["rule"], message], root=root))


def checked_after(found: list[Cause], rules: Rules | None, value: Any, old: Any = NOTHING) -> list[Cause]:
    """The errors of the schema (`found`) and, if the value has the right shape, the errors of the rules."""
    if rules is None:
        return found
    if any(cause.reason in _BLOCKING for cause in found):
        return [*found, validation.invalid_value("<nil>", None, _NOT_CHECKED)]
    return found + rules.causes(value, old)
