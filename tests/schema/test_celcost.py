"""What rules may cost: the estimate of an expression, and the sentences for what is above a limit."""
from __future__ import annotations

from typing import Any

import pytest

from kubectl_runtime.schema import celcost
from kubectl_runtime.schema.cel import Scope
from kubectl_runtime.schema.rules import Costs, rule_definition_causes

pytest.importorskip("cel_expr_python", reason="the extra 'cel' is not installed")

TEXT, INTEGER = {"type": "string"}, {"type": "integer"}
ADVICE = (" (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and "
          "strings are declared)")


def many(items: dict[str, Any], **limits: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, **limits}


def mapped(values: dict[str, Any], **limits: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": values, **limits}


def parts(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def ruled(node: dict[str, Any], *rules: str) -> dict[str, Any]:
    return {**node, "x-kubernetes-validations": [{"rule": rule} for rule in rules]}



@pytest.mark.parametrize(("node", "rule", "unlimited", "limit", "limited"), [
    (many({"type": "number"}), "self.all(x, true)", 4718591, 10, 32),
    (many(TEXT), "self.all(x, true)", 3145727, 20, 62),
    (many({"type": "boolean"}), "self.all(x, true)", 1887437, 5, 17),
    (many(many(INTEGER)), "self.all(x, true)", 3145727, 100, 302),
    (many({**parts(required=TEXT, optional=TEXT), "required": ["required"]}), "self.all(x, true)", 555128, 50, 152),
    (mapped({"type": "number"}), "self.all(x, true)", 1348169, 10, 32),
    (mapped(TEXT), "self.all(x, true)", 1179647, 3, 11), (mapped(INTEGER), "has(self.x)", 1, 100, 1),
    (TEXT, "self.contains('test')", 314574, 10, 5), (TEXT, "self.startsWith('test')", 2, 15, 2),
    (TEXT, 'size(self + "hello") > size("hello")', 314578, 4, 7),
    (many(TEXT), "self[1] == self[1]", 314577, 8, 314577), (many({"type": "number"}), "self[1] == 0.0", 2, 5000, 2),
    (many({"type": "number"}), "self.all(x, self.all(y, true))", 7421701914624, 10, 352),
    (TEXT, 'self.matches("x")', 314574, 50, 22), (TEXT, '"".matches("(((((((((())))))))))[0-9]")', 7, 10, 7),
    ({**TEXT, "format": "byte"}, 'self == b"x"', 2, 0, 1), ({"x-kubernetes-int-or-string": True}, "isQuantity(self)",
                                                           314574, 20, 9),
    (many({**TEXT, "format": "duration"}), "self.all(x, true)", 2359295, 5, 17),
    (many({**TEXT, "format": "date"}), "self.all(x, true)", 725936, 15, 47),
    (mapped({**TEXT, "format": "date-time"}), "self.all(x, true)", 349526, 25, 77),
    (mapped({**TEXT, "format": "date-time"}), 'self["a"] == self["b"]', 8, 7, 8),
    (TEXT, "self.find('[0-9]+') == ''", 629147, 10, 11), (TEXT, "self.lowerAscii() == 'lower!'", 314575, 10, 6),
    (mapped(INTEGER), "oldSelf.size() == self.size()", 5, 10, 5),
    ({**TEXT, "enum": ["A", "LongValue"]}, "self.contains('A')", 2, 1000, 401)])
def test_the_estimate_is_that_of_kubernetes(node: dict[str, Any], rule: str, unlimited: int, limit: int,
                                            limited: int) -> None:
    key = {"array": "maxItems", "object": "maxProperties"}.get(str(node.get("type")), "maxLength")
    assert Scope(node).most_cost(rule, "bool") == unlimited
    assert Scope({**node, key: limit}).most_cost(rule, "bool") == limited


@pytest.mark.parametrize(("rule", "cost"), [
    ("url('https://kubernetes.io/') == url('https://kubernetes.io/')", 9),
    ("'abc 123 def 123'.replace('123', '456') == 'x'", 4),
    ("quantity('50k').add(20).sub(quantity('100k')).asInteger() > 0", 6),
    ("format.named('dns1123Label').value() == format.named('dns1123Label').value()", 11),
    ("format.named('dns1123Label').value().validate('my-name').hasValue()", 35),
    ("sets.contains([[1], [2, 3]], [[2, 3]])", 53), ("!sets.equivalent([1, 2], [1, 2, 3])", 34),
    ("semver('1.0.0').isLessThan(semver('1.1.0'))", 3), ("{'a': 1, 'b': 2}.all(k, v, v > 0)", 41),
    ("{'a': 1, 'b': 2}.existsOne(k, v, v > 0)", 40), ("{'a': 1, 'b': 2}.transformMap(k, v, v + 1) == {}", 101),
    ("{'a': 1, 'b': 2}.transformMapEntry(k, v, v < 5, {k: v + 1}) == {}", 165),
    ("[1, 2].transformList(i, v, v < 5, v + 1) == []", 63)])
def test_the_estimate_of_functions_and_macros(rule: str, cost: int) -> None:
    assert Scope(INTEGER).most_cost(rule, "bool") == cost


@pytest.mark.parametrize(("macro", "like"), [
    ("self.all(i, v, v > 1)", "self.all(v, v > 1)"), ("self.exists(i, v, v == 1)", "self.exists(v, v == 1)"),
    ("self.transformList(i, v, v + 1) == []", "self.map(v, v + 1) == []"),
    ("self.transformList(i, v, v > 2, v + 1) == []", "self.map(v, v > 2, v + 1) == []")])
def test_a_macro_of_two_variables_costs_what_that_of_one_does(macro: str, like: str) -> None:
    scope = Scope(many(INTEGER, maxItems=7))
    assert scope.most_cost(macro, "bool") == scope.most_cost(like, "bool")


@pytest.mark.parametrize(("node", "field"), [
    (ruled(many(TEXT), "self.all(x, self.all(y, x != y))"), ""),
    (many(ruled(TEXT, "self.matches('a+b+c+')")), ".items"),
    (ruled(many(many(many(INTEGER))), "self.all(x, x.all(y, y.all(z, z > 0)))"), ""),
    (mapped(ruled(many(INTEGER, maxItems=1000), "self.all(x, x > 0)")), ".additionalProperties"),
    (ruled(TEXT, f"self.matches('{'[a-z]' * 32}')"), "")])
def test_a_rule_that_costs_too_much_is_refused(node: dict[str, Any], field: str) -> None:
    place = f"s.properties[spec]{field}.x-kubernetes-validations[0].rule"
    costs = Costs()
    found = rule_definition_causes(parts(spec=node), "s", costs)
    assert found[0].field == place
    assert found == costs.exceeded
    assert found[0].message.startswith("Forbidden: estimated rule cost exceeds budget by factor of ")
    assert found[0].message.endswith(ADVICE)
    assert rule_definition_causes(parts(spec=node), "s") == []


@pytest.mark.parametrize("node", [
    ruled(many({**TEXT, "maxLength": 63}, maxItems=50), "self.all(x, self.exists_one(y, x == y))"),
    many(ruled({**TEXT, "maxLength": 63}, "self.matches('a+b+c+')"), maxItems=100),
    ruled(many(many(many(INTEGER, maxItems=9), maxItems=9), maxItems=9), "self.all(x, x.all(y, y.all(z, z > 0)))"),
    mapped(ruled(many(INTEGER, maxItems=1000), "self.all(x, x > 0)"), maxProperties=64)])
def test_limits_make_it_cheap_enough(node: dict[str, Any]) -> None:
    assert rule_definition_causes(parts(spec=node), "s", Costs()) == []


def test_the_rules_of_a_schema_cost_too_much_together_although_none_does_alone() -> None:
    rules = ["self.all(x, x > 1)"] * 20
    node = ruled(many(INTEGER), *rules)
    assert (Scope(node).most_cost(rules[0], "bool") or 0) < celcost.LIMIT
    *parts_of_it, whole = rule_definition_causes(parts(spec=node), "s", Costs())
    assert [cause.field for cause in parts_of_it] == [
        f"s.properties[spec].x-kubernetes-validations[{index}].rule" for index in range(4)]
    assert whole.field == "s"
    assert "estimated rule cost total for entire OpenAPIv3 schema exceeds" in whole.message


@pytest.mark.parametrize(("cost", "shown"), [(10_000_010, "1.000001x"), (15_000_000, "1.5x"), (1_000_000_000, "100.0x"),
                                             (1_000_000_001, "more than 100x")])
def test_how_far_a_cost_is_above_its_limit(cost: int, shown: str) -> None:
    assert celcost.excess("cost", cost, celcost.LIMIT) == f"cost exceeds budget by factor of {shown}{ADVICE}"
