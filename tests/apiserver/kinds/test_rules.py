"""The interpreter of the rows in which the rules of built-in kinds are written."""

from __future__ import annotations

from typing import Any

import pytest

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.kinds.rules import (
    DNS_LABEL,
    FIXED,
    NATURAL,
    REQUIRED,
    UNIQUE,
    UNIQUE_IF_SET,
    Defaults,
    Fixed,
    Rules,
    Unique,
    absent,
    at_least,
    between,
    choice,
    each,
    equals,
    filled,
    fixed,
    forbidden,
    has,
    lacks,
    must,
    negated,
    once_set,
    present,
    some,
    when,
)


def found(rules: Rules, obj: Any, old: Any = None) -> list[str]:
    return [cause.text() for cause in rules(obj, old=old)]


def test_causes_come_in_the_order_of_the_rows_and_items_one_after_the_other() -> None:
    port = Rules(("name", REQUIRED, UNIQUE_IF_SET), ("port", between(1, 9, zero=0)))
    rules = Rules(("spec.ports[*]", port), ("spec.size", NATURAL))
    assert found(rules, {"spec": {"size": -1, "ports": [{"port": 3}, {"name": "a", "port": 10}, {"name": "a"}]}}) == [
        "spec.ports[0].name: Required value",
        "spec.ports[1].port: Invalid value: 10: must be between 1 and 9, inclusive",
        'spec.ports[2].name: Duplicate value: "a"',
        "spec.ports[2].port: Invalid value: 0: must be between 1 and 9, inclusive",
        "spec.size: Invalid value: -1: must be greater than or equal to 0"]


@pytest.mark.parametrize("obj", [{}, {"spec": None}, {"spec": {}}, {"spec": {"a": None}}, {"spec": {"a": []}}])
def test_what_is_not_there_is_refused_by_nothing_but_what_requires_it(obj: Any) -> None:
    assert found(Rules(("spec.a[*].b", DNS_LABEL), ("spec.c", choice("x"), NATURAL)), obj) == []
    assert found(Rules(("spec.c.d", REQUIRED)), obj) == ["spec.c.d: Required value"]


def test_a_table_of_a_part_is_skipped_with_the_part_but_not_for_an_empty_one() -> None:
    rules = Rules(("spec.part", Rules(("name", REQUIRED))))
    assert found(rules, {"spec": {}}) == []
    assert found(rules, {"spec": {"part": {}}}) == ["spec.part.name: Required value"]


def test_fixed_values_are_compared_on_updates_alone() -> None:
    rules = Rules(("spec.a", FIXED), ("spec.b", fixed("no.")), ("spec.c", Fixed(changed=once_set)),
                  ("spec.d", Fixed(lambda path, _: errors.required(path), of=lambda value: (value or {}).get("x"))))
    old = {"spec": {"a": 1, "b": 1, "d": {"x": 1, "y": 1}}}
    new = {"spec": {"a": 2, "c": 2, "d": {"x": 1, "y": 2}}}
    assert found(rules, new) == []
    assert found(rules, new, old) == ["spec.a: Invalid value: 2: field is immutable", "spec.b: Forbidden: no."]
    assert found(rules, {"spec": {"a": 1, "b": 1, "d": {"x": 2}}}, {"spec": {**old["spec"], "c": 1}}) == [
        "spec.c: Invalid value: null: field is immutable", "spec.d: Required value"]


def test_unique_values_are_those_of_one_list() -> None:
    assert found(Rules(("a[*].b[*]", UNIQUE)), {"a": [{"b": ["x", "x"]}, {"b": ["x"]}]}) == [
        'a[0].b[1]: Duplicate value: "x"']
    assert found(Rules(("a[*].b", UNIQUE)), {"a": [{}, {}]}) == ['a[1].b: Duplicate value: ""']
    assert found(Rules(("a[*].b", UNIQUE_IF_SET)), {"a": [{}, {}]}) == []
    pairs = Unique(lambda item: (item["b"], item["c"]), lambda item: item)
    assert found(Rules(("a[*]", pairs)), {"a": [{"b": 1, "c": 1}, {"b": 1, "c": 2}, {"b": 1, "c": 2}]}) == [
        'a[2]: Duplicate value: {"b":1,"c":2}']


@pytest.mark.parametrize(("condition", "met"), [
    (has("a", "z"), True), (has("a", "x"), False), (absent("x", "y.z"), True), (absent("x", "a"), False),
    (filled("a"), True), (filled("a", "z"), False), (some("z", "a"), True), (some("z"), False), (lacks("z", "x"), True),
    (equals("a", 1, 2), True), (equals("b.c", "d"), True), (equals("b.c", "e"), False), (negated(has("a")), False)])
def test_rows_under_a_condition(condition: Any, met: bool) -> None:
    obj = {"a": 1, "b": {"c": "d"}, "z": 0}
    assert found(Rules(when(condition, ("q", REQUIRED))), obj) == (["q: Required value"] if met else [])


def test_checks_of_absent_empty_and_wrong_values() -> None:
    assert found(Rules(("a", present())), {"a": ""}) == []
    assert found(Rules(("a", choice("x", zero=""))), {}) == ['a: Unsupported value: "": supported values: "x"']
    assert found(Rules(("a", forbidden("no"))), {"a": {}}) == []
    assert found(Rules(("a", forbidden("no", empty=True))), {"a": {}}) == ["a: Forbidden: no"]
    assert found(Rules(("a", at_least(1, zero=0))), {}) == ["a: Invalid value: 0: must be greater than or equal to 1"]
    assert found(Rules(("a", each(must(str.isupper, "shout")))), {"a": ["A", "b"]}) == ['a: Invalid value: "b": shout']


def test_defaults_fill_in_what_is_missing_where_the_parent_is_there() -> None:
    defaults = Defaults({"a": {}, "a.b": 1, "c.d": 2, "e[*].f": "g", "h": lambda obj: obj["a"]["b"] + 1,
                         "i": lambda _: None, "j": 5}, zero={"k": 7})
    obj: dict[str, Any] = {"e": [{}, {"f": ""}], "j": 0, "k": 0}
    defaults(obj)
    assert obj == {"a": {"b": 1}, "e": [{"f": "g"}, {"f": ""}], "h": 2, "j": 0, "k": 7}
    other: dict[str, Any] = {}
    (defaults | Defaults({"l": 1}))(other)
    assert other["l"] == 1
    assert other["a"] is not obj["a"]
