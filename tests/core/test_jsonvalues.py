"""Copies and equality of JSON values."""

from __future__ import annotations

from typing import Any

import pytest

from kubectl_runtime.core.codec.jsonbytes import MOST_REMEMBERED, equal_json, json_copy, remembers_good, same_json


@pytest.mark.parametrize(("first", "second", "same", "equal"), [
    ({"a": 1, "b": [{}]}, {"b": [{}], "a": 1}, True, True),
    ({"a": [1]}, {"a": [1.0]}, False, True),
    ({"a": [1]}, {"a": [True]}, False, False),
    ([0, {"x": False}], [False, {"x": 0}], False, False),
    ({"a": 1}, {"a": 2}, False, False),
    ({"a": None}, {}, False, False),
    ("a", "a", True, True),
    (None, None, True, True)])
def test_equality_tells_numbers_from_booleans(first: Any, second: Any, same: bool, equal: bool) -> None:
    assert same_json(first, second) is same
    assert equal_json(first, second) is equal


def test_a_copy_shares_nothing_that_can_change() -> None:
    value = {"a": [{"b": 1.0}], "c": 2**70, "d": None}
    copied = json_copy(value)
    copied["a"][0]["b"] = 2  # type: ignore[index]
    assert value == {"a": [{"b": 1.0}], "c": 2**70, "d": None}
    assert json_copy(value) == value
    assert json_copy("text") == "text"


def test_a_check_looks_once_at_what_is_good_and_every_time_at_what_is_not() -> None:
    asked: list[str] = []

    @remembers_good
    def check(value: Any, path: str, *, strict: bool = True) -> list[str]:
        asked.append(f"{path}: {value} {strict}")
        return asked[-1:] if value == "bad" else []

    assert check({"a": 1}, "spec") == check({"a": 1}, "spec") == []
    assert asked == ["spec: {'a': 1} True"]
    assert check("bad", "spec") == check("bad", "spec") == ["spec: bad True"]
    assert len(asked) == 3
    for value, path, strict in (({"a": True}, "spec", True), ({"a": 1}, "other", True), ({"a": 1}, "spec", False)):
        assert check(value, path, strict=strict) == []
    assert len(asked) == 6
    for number in range(MOST_REMEMBERED):
        check(number, "spec")
    check({"a": 1}, "spec")
    assert asked.count("spec: {'a': 1} True") == 2
