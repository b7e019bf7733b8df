"""Rules in CEL: what does not compile is refused with its schema, what a value breaks is told at its field."""

from __future__ import annotations

import sys
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from kubectl_runtime.core.base.errors import MissingExtra
from kubectl_runtime.schema import cel
from kubectl_runtime.schema.cel import Scope, Values, convert, program, uses_old_self
from kubectl_runtime.schema.celtypes import fields_named
from kubectl_runtime.schema.rules import Rules, checked_after, rule_definition_causes, rules_of
from kubectl_runtime.schema.validation import NOTHING, schema_causes

TEXT, INTEGER = {"type": "string"}, {"type": "integer"}
SAMPLE = {"type": "object", "properties": {
    "count": INTEGER, "share": {"type": "number"}, "names": {"type": "array", "items": TEXT},
    "numbers": {"type": "array", "items": INTEGER}, "labels": {"type": "object", "additionalProperties": INTEGER},
    "when": {"type": "string", "format": "date-time"}, "pause": {"type": "string", "format": "duration"},
    "blob": {"type": "string", "format": "byte"}, "a-b": TEXT, "if": TEXT, "port": {"x-kubernetes-int-or-string": True},
    "items": {"type": "array", "items": {"type": "object", "properties": {"key": TEXT}}},
    "matrix": {"type": "array", "items": {"type": "array", "items": INTEGER}}, "size": TEXT}}
VALUE = {"count": 1, "share": 2, "names": ["a", "b"], "numbers": [3, 1], "labels": {"x": 1}, "pause": "1h",
         "when": "2024-01-01T00:00:00Z", "blob": "eHg=", "a-b": "z", "if": "i", "port": "50%", "items": [{"key": "k"}],
         "matrix": [[1]], "size": "1Gi"}


def schema(*rules: dict[str, Any], **properties: Any) -> dict[str, Any]:
    spec = {"type": "object", "properties": properties, "x-kubernetes-validations": list(rules)}
    return {"type": "object", "properties": {"spec": spec}}


def broken(node: dict[str, Any], spec: Any, old: Any = cel.NOTHING) -> list[tuple[str, str, str]]:
    assert rule_definition_causes(node) == []
    rules = rules_of(node)
    assert rules is not None
    before = old if old is cel.NOTHING else {"spec": old}
    return [(cause.field, cause.reason, cause.message) for cause in rules.causes({"spec": spec}, before)]


@pytest.mark.parametrize("expression", [
    "self.count == 1", "self.share == 2.0", "self.share > self.count", "self.labels.all(k, self.labels[k] > 0)",
    "self.when < timestamp('2025-01-01T00:00:00Z')", "self.pause == duration('60m')", "self.blob.size() == 2",
    "self.a__dash__b == 'z' && self.__if__ == 'i'", "type(self.port) == string", "self.matrix[0][0] == 1",
    "self.items.exists(i, i.key == 'k')", "self.?count.orValue(2) == 1", "self.names.join(',') == 'a,b'",
    "self.size.lowerAscii() == '1gi'", "has(self.count) && !has(self.names) == false",
    # Kubernetes' libraries
    "self.names.isSorted() && !self.numbers.isSorted()", "self.numbers.sum() == 4 && self.numbers.max() == 3",
    "self.names.indexOf('b') == 1 && 'abc'.indexOf('b') == 1", "'a1b2'.findAll('[0-9]') == ['1', '2']",
    "'abc123'.find('[0-9]+') == '123'", "quantity(self.size).isGreaterThan(quantity('1G'))",
    "quantity('1') == quantity('1000m')", "quantity('1').add(quantity('500m')).compareTo(quantity('1.5')) == 0",
    "isQuantity('1Ki') && !isQuantity('x')", "!isQuantity('\u0661') && !isQuantity('1e') && isQuantity('.5')",
    "quantity('0.1n') == quantity('1n') && quantity('-0.1n') == quantity('-1n')",
    "quantity('3.5Ki').asInteger() == 3584",
    "quantity('1e3') == quantity('1k') && quantity('5E').isInteger() && !quantity('1500m').isInteger()",
    "quantity('9007199254740993').sub(1).asInteger() == 9007199254740992",
    "quantity('1.5').asApproximateFloat() == 1.5",
    "url('https://u@a.b:80/x?y=1').getHostname() == 'a.b'",
    "url('https://a/?y=1').getQuery()['y'] == ['1']", "isURL('/x') && !isURL('x')", "ip('::1').isLoopback()",
    "ip('10.0.0.1').family() == 4 && ip.isCanonical('10.0.0.1')", "cidr('10.0.0.0/8').containsIP('10.1.1.1')",
    "cidr('10.1.0.0/16').ip() == ip('10.1.0.0')", "!cidr('10.0.0.0/8').containsCIDR('10.0.0.0/7')",
    "sets.equivalent(self.names, ['b', 'a'])"])
def test_a_rule_sees_values_with_the_types_of_the_schema(expression: str) -> None:
    prepare = convert(SAMPLE, [expression])
    assert prepare is not None
    assert Scope(SAMPLE).most_cost(expression, "bool") is not None
    assert program(expression).run(Values(prepare(VALUE))) is True


@pytest.mark.parametrize(("expression", "why"), [
    ("self.none", "undefined field 'none'"), ("has(self.none)", "undefined field 'none'"),
    ("self.count == 'x'", "no matching overload for '_==_' applied to '(int, string)'"),
    ("self.items.all(i, i.none == 1)", "undefined field 'none'"), ("self.count >", "Syntax error"),
    ("self.in == 'x'", "Syntax error"), ("format.none().validate('x').hasValue()", "undeclared reference"),
    ("[1].all(i, i, v > 0)", "undeclared reference"), ("authorizer.path('/')", "undeclared reference"),
    ("self.count", "must evaluate to a bool"), ("(" * 40 + "true" + ")" * 40, "recursion limit exceeded")])
def test_what_does_not_compile_or_is_not_provided_is_refused(expression: str, why: str) -> None:
    [cause] = rule_definition_causes({**SAMPLE, "x-kubernetes-validations": [{"rule": expression}]}, "s")
    assert cause.field == "s.x-kubernetes-validations[0].rule"
    assert why in cause.message


def test_without_the_extra_a_rule_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    cel.engine.cache_clear()
    monkeypatch.setitem(sys.modules, "cel_expr_python", None)
    try:
        [cause] = rule_definition_causes(schema({"rule": "true"}), "s")
        assert str(MissingExtra("rules in CEL need", "cel")) in cause.message
    finally:
        cel.engine.cache_clear()


def test_an_evaluation_is_bounded() -> None:
    node = schema({"rule": "self.n.all(x, self.n.all(y, x + y >= 0))"}, n={"type": "array", "items": INTEGER})
    [(field, _, message)] = broken(node, {"n": list(range(1000))})
    assert (field, "Iteration budget exceeded" in message) == ("spec", True)


def test_reason_field_path_and_message_expression() -> None:
    rules = ({"rule": "self.a < 5", "message": "m", "messageExpression": "'a is ' + string(self.a)",
              "fieldPath": ".a", "reason": "FieldValueForbidden"},
             {"rule": "self.a < 6", "reason": "FieldValueRequired"}, {"rule": "self.a < 7", "message": "seven"},
             {"rule": "self.a < 8", "reason": "FieldValueDuplicate"},
             {"rule": "self.a < 9", "message": "m", "messageExpression": "string(1 / (self.a - self.a))"})
    assert broken(schema(*rules, a=INTEGER), {"a": 9}) == [
        ("spec.a", "FieldValueForbidden", "Forbidden: a is 9"),
        ("spec", "FieldValueRequired", "Required value: failed rule: self.a < 6"),
        ("spec", "FieldValueInvalid", "Invalid value: seven"), ("spec", "FieldValueDuplicate", "Duplicate value"),
        ("spec", "FieldValueInvalid", "Invalid value: m")]


def test_a_transition_rule_waits_for_an_old_value() -> None:
    node = schema(a={**TEXT, "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "immutable"}]})
    assert broken(node, {"a": "x"}) == []
    assert broken(node, {"a": "x"}, {}) == []
    assert broken(node, {"a": "x"}, {"a": "x"}) == []
    assert broken(node, {"a": "y"}, {"a": "x"}) == [("spec.a", "FieldValueInvalid", 'Invalid value: "y": immutable')]


def test_an_optional_old_self_is_asked_at_creation_too() -> None:
    rule = {"rule": "oldSelf.hasValue() ? self.a >= oldSelf.value().a : self.a == 0", "optionalOldSelf": True}
    node = schema(rule, a=INTEGER)
    assert broken(node, {"a": 0}) == []
    assert len(broken(node, {"a": 1})) == 1
    assert broken(node, {"a": 2}, {"a": 1}) == []
    assert len(broken(node, {"a": 0}, {"a": 1})) == 1


def test_what_an_update_leaves_alone_is_not_held_to_a_rule() -> None:
    node = schema({"rule": "self.a < 5"}, a=INTEGER, b=INTEGER)
    assert broken(node, {"a": 9}, {"a": 9}) == []
    assert len(broken(node, {"a": 9, "b": 1}, {"a": 9})) == 1


def test_items_have_an_old_value_only_in_lists_with_keys() -> None:
    item = {"type": "object", "required": ["k"], "properties": {"k": TEXT, "v": INTEGER},
            "x-kubernetes-validations": [{"rule": "self.v >= oldSelf.v"}]}
    keyed = schema(l={"type": "array", "items": item, "x-kubernetes-list-type": "map",
                      "x-kubernetes-list-map-keys": ["k"]})
    old = {"l": [{"k": "a", "v": 1}, {"k": "b", "v": 5}]}
    new = {"l": [{"k": "b", "v": 4}, {"k": "a", "v": 2}]}
    assert [field for field, _, _ in broken(keyed, new, old)] == ["spec.l[0]"]
    [cause] = rule_definition_causes(schema(l={"type": "array", "items": item}))
    assert "oldSelf cannot be used on the uncorrelatable portion" in cause.message


def test_a_value_of_the_wrong_shape_is_not_asked_its_rules() -> None:
    node = schema({"rule": "self.a < 5"}, a=INTEGER)
    value = {"spec": {"a": "x"}}
    found = checked_after(schema_causes(value, node), rules_of(node), value)
    assert [cause.field for cause in found] == ["spec.a", "<nil>"]
    assert "some validation rules were not checked" in found[1].message


@pytest.mark.parametrize(("expression", "uses"), [
    ("oldSelf == self", True), ("self == 'oldSelf'", False), ("self.oldSelf == 1", False), ("true // oldSelf", False),
    ("'it\\'s' == 'x' || oldSelf > 1", True), ("my_oldSelf", False)])
def test_whether_a_rule_uses_the_old_value(expression: str, uses: bool) -> None:
    assert uses_old_self(expression) is uses


@pytest.mark.parametrize(("rule", "field"), [
    ({"rule": "true", "fieldPath": "a"}, "fieldPath"), ({"rule": "true", "fieldPath": ".a.b"}, "fieldPath"),
    ({"rule": "true", "fieldPath": ".l[0]"}, "fieldPath"), ({"rule": "true", "reason": "Odd"}, "reason"),
    ({"rule": "true", "message": "a\nb"}, "message"), ({"rule": "true\n"}, None),
    ({"rule": "true ||\nfalse"}, "message"),
    ({"rule": "true", "optionalOldSelf": True}, "optionalOldSelf"), ({"rule": " "}, "rule"),
    ({"rule": "true", "messageExpression": "1"}, "messageExpression"),
    ({"rule": "true", "fieldPath": ".m['x-y']"}, None),
    ({"rule": "true", "messageExpression": "self.none"}, "messageExpression")])
def test_the_options_of_a_rule_are_checked(rule: dict[str, Any], field: str | None) -> None:
    node = schema(rule, a=TEXT, l={"type": "array", "items": TEXT}, m={"type": "object", "additionalProperties": TEXT})
    found = [cause.field.rpartition(".")[2] for cause in rule_definition_causes(node, "s")]
    assert found == ([] if field is None else [field])


@pytest.mark.parametrize(("expressions", "seen"), [
    (["self.a > 1", "has(self.b)"], {"a", "b"}), (["self.?a.orValue(1) == oldSelf.b"], {"a", "b"}),
    (["self.x__dash__y > 1"], {"x-y"}), (["true"], set()), (["self.value == 1"], {"value"}),
    (["self == oldSelf"], None), (["self.a > 1", "size(self) > 1"], None), (["self.value().a == 1"], None),
    (["oldSelf.hasValue() ? self.a > 1 : true"], None), (["[1].all(self, self > 0)"], None), (["self.none"], None),
    (["self['a'] == 1"], None), (["self . a == 1"], {"a"}), (["myself.a && self.b"], {"b"})])
def test_rules_are_shown_only_the_properties_that_they_name(expressions: list[str], seen: set[str] | None) -> None:
    node = {"type": "object", "properties": {name: {"type": "integer"} for name in ("a", "b", "x-y", "value", "0")}}
    assert fields_named(expressions, node) == seen
    assert fields_named(expressions, {"type": "object", "additionalProperties": {"type": "integer"}}) is None


def test_rules_of_one_place_are_told_one_by_one_though_they_are_asked_together() -> None:
    texts = ["self.a < 10", "self.none2 == 1", "self.b > self.a // the comment ends here", "self.a / self.b == 0"]
    node = {"type": "object", "properties": {name: {"type": "integer"} for name in ("a", "b", "none2")},
            "x-kubernetes-validations": [{"rule": text} for text in texts]}
    rules = rules_of(node, root=False)
    assert rules is not None
    assert rules.causes({"a": 1, "b": 2, "none2": 1}) == []
    assert [cause.message.partition(": ")[2] for cause in rules.causes({"a": 11, "b": 0})] == [
        "failed rule: self.a < 10", '"object": no such key: none2 evaluating rule: self.none2 == 1',
        "failed rule: self.b > self.a // the comment ends here",
        '"object": divide by zero evaluating rule: self.a / self.b == 0']


def test_rules_that_are_too_deep_together_are_asked_one_by_one() -> None:
    text = "(" * 20 + "self > 0" + ")" * 20
    rules = rules_of({"type": "integer", "x-kubernetes-validations": [{"rule": text}] * 40}, root=False)
    assert rules is not None
    assert (rules.causes(1), len(rules.causes(0))) == ([], 40)


def test_a_rule_of_an_update_is_asked_beside_those_that_are_asked_together() -> None:
    node = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "x-kubernetes-validations": [
                {"rule": "self.a > 0"}, {"rule": "self.b >= oldSelf.b"},
                {"rule": "!oldSelf.hasValue() || self.a != 5", "optionalOldSelf": True}]}
    rules = rules_of(node, root=False)
    assert rules is not None
    old = {"a": 1, "b": 2}
    assert [len(rules.causes(new, before)) for new, before in (
        ({"a": 0, "b": 1}, old), ({"a": 5, "b": 2}, old), ({"a": 0, "b": 1}, NOTHING), ({"a": 5, "b": 1}, NOTHING),
        ({"a": 0, "b": 0}, {"a": 0, "b": 0}), (old, old))] == [2, 1, 1, 0, 0, 0]


def one_by_one(rules: Rules) -> Rules:
    """The same rules, never asked together."""
    return replace(rules, all_hold=None, optional=True, extra=rules.extra and one_by_one(rules.extra),
                   items=rules.items and one_by_one(rules.items),
                   properties={name: one_by_one(below) for name, below in rules.properties.items()})


PLACES = {"type": "object", "x-kubernetes-validations": [
    {"rule": "self.a < self.b"}, {"rule": "self.a / self.b < 3", "message": "ratio"},
    {"rule": "self.m.all(k, self.m[k] > 0)"}, {"rule": "!has(oldSelf.a) || self.a >= oldSelf.a"}], "properties": {
        "a": {"type": "integer", "x-kubernetes-validations": [{"rule": "self != 2"}, {"rule": "self >= 0"}]},
        "b": {"type": "integer"},
        "m": {"type": "object", "additionalProperties": {"type": "integer", "x-kubernetes-validations": [
            {"rule": "self < 3"}, {"rule": "self >= oldSelf"}]}},
        "l": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
              "x-kubernetes-validations": [{"rule": "self.size() < 3"}, {"rule": "self.all(i, i.k != 'c')"}],
              "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer"}},
                        "x-kubernetes-validations": [{"rule": "self.v > 0"}, {"rule": "self.v >= oldSelf.v"}]}}}}


def some_value(draw: Random) -> dict[str, Any]:
    value: dict[str, Any] = {
        "a": draw.randint(-1, 3), "b": draw.randint(0, 3),
        "m": {key: draw.randint(0, 3) for key in draw.sample("xyz", draw.randint(0, 2))},
        "l": [{"k": key, "v": draw.randint(0, 2)} for key in draw.sample("abc", draw.randint(0, 3))]}
    return {key: item for key, item in value.items() if draw.random() < 0.8}


@pytest.mark.parametrize("seed", range(10))
def test_rules_that_are_asked_together_find_what_they_find_one_by_one(seed: int) -> None:
    draw, rules = Random(seed), rules_of(PLACES, root=False)
    assert rules is not None
    slow, found = one_by_one(rules), 0
    for _ in range(40):
        new, old = some_value(draw), draw.choice([NOTHING, some_value(draw)])
        told = rules.causes(new, old, "spec")
        assert told == slow.causes(new, old, "spec")
        found += bool(told)
    assert found > 0


def test_the_cause_shows_the_value_of_a_scalar_and_of_nothing_else() -> None:
    rules = [{"rule": "self == 1", "message": "no"}, {"rule": "self == 1", "reason": "FieldValueDuplicate"}]
    node = schema({"rule": "self.a == 1", "message": "not so"}, a={**INTEGER, "x-kubernetes-validations": rules})
    assert broken(node, {"a": 2}) == [
        ("spec", "FieldValueInvalid", "Invalid value: not so"), ("spec.a", "FieldValueInvalid", "Invalid value: 2: no"),
        ("spec.a", "FieldValueDuplicate", "Duplicate value: 2")]


def test_rules_are_not_asked_of_a_value_outside_its_enum() -> None:
    rules = [{"rule": "self == 'a'"}]
    node = schema(a={**TEXT, "enum": ["a", "b"], "x-kubernetes-validations": rules})
    told = checked_after(schema_causes({"spec": {"a": "c"}}, node), rules_of(node), {"spec": {"a": "c"}})
    assert [cause.field for cause in told] == ["spec.a", "<nil>"]


@pytest.mark.parametrize(("form", "value"), [("date-time", ["x"]), ("date-time", "0000-01-01T00:00:00Z"),
                                             ("byte", []), ("duration", [1])])
def test_what_has_a_format_and_no_value_of_its_type_breaks_its_rules(form: str, value: Any) -> None:
    node = schema(a={**TEXT, "format": form, "x-kubernetes-validations": [{"rule": "self == self"}]})
    assert schema_causes({"spec": {"a": value}}, node) == []
    [(field, _, message)] = broken(node, {"a": value})
    assert field == "spec.a"
    assert message.endswith(" evaluating rule: self == self")
    if isinstance(value, list):
        assert message.startswith('Invalid value: "string": invalid data, expected string, got []interface {}')


RESERVED = ["as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop", "namespace",
            "package", "return", "var", "void", "while"]


@pytest.mark.parametrize("word", RESERVED)
def test_a_reserved_word_is_a_field_in_both_spellings(word: str) -> None:
    node = schema({"rule": f"self.{word} > 1 && self.__{word}__ > 1 && has(self.{word})"}, **{word: INTEGER})
    assert broken(node, {word: 2}) == []
    [(field, _, message)] = broken(node, {word: 1})
    assert field == "spec"
    assert message.startswith("Invalid value")


@pytest.mark.parametrize("word", ["in", "true", "false", "null"])
def test_a_keyword_is_a_field_in_its_escaped_spelling_only(word: str) -> None:
    assert broken(schema({"rule": f"self.__{word}__ == 2"}, **{word: INTEGER}), {word: 2}) == []
    [cause] = rule_definition_causes(schema({"rule": f"self.{word} == 2"}, **{word: INTEGER}))
    assert "Syntax error" in cause.message


@pytest.mark.parametrize(("rule", "good", "bad"), [
    ("isSemver(self.a)", "1.2.3-rc.1+b", "1.2"), ("isSemver(self.a, true)", "v01.2", "x"),
    ("semver(self.a).isGreaterThan(semver('1.0.0-rc.2'))", "1.0.0-rc.10", "1.0.0-rc.1"),
    ("semver(self.a).major() == 2 && semver(self.a).minor() == 1 && semver(self.a).patch() == 0", "2.1.0", "2.0.1"),
    ("semver(self.a).compareTo(semver('1.0.0')) == -1", "1.0.0-alpha", "1.0.0"),
    ("semver(self.a).isLessThan(semver('1.0.0-alpha.beta'))", "1.0.0-alpha.1", "1.0.0-beta")])
def test_semantic_versions(rule: str, good: str, bad: str) -> None:
    node = schema({"rule": rule}, a=TEXT)
    assert broken(node, {"a": good}) == []
    assert len(broken(node, {"a": bad})) == 1
