"""Whether two records at one version say the same, however they came."""
from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubectl_runtime.core.codec.jsonbytes import (
    MISSING,
    decode_event,
    decode_object,
    differences,
    same_content,
    same_json,
)
from kubectl_runtime.core.codec.views import Record
from kubectl_runtime.core.objects.partial import FieldsForm, PartialView
from kubectl_runtime.resources import ConfigMap

RESOURCE = ConfigMap.api_resource
METADATA = {"name": "a", "namespace": "default", "resourceVersion": "10"}


def plain(data: dict[str, str] | None = None, *, first: tuple[str, ...] = (), types: bool = False) -> dict[str, Any]:
    """An object; the keys in `first` stand before its metadata, as in custom resources, which have sorted keys."""
    content: dict[str, Any] = {"kind": "ConfigMap", "apiVersion": "v1"} if types else {}
    rest = {"metadata": METADATA, "data": data or {}}
    content.update({key: rest.pop(key) for key in first if key in rest})
    return {**content, **rest}


def item(content: dict[str, Any]) -> Record:
    return decode_object(json.dumps(content, separators=(",", ":")).encode(), RESOURCE)


def seen(content: dict[str, Any], end: str = "") -> Record:
    line = json.dumps({"type": "MODIFIED", "object": content}, separators=(",", ":")) + end
    record = decode_event(line.encode(), RESOURCE)[1]
    assert isinstance(record, Record)
    return record


DATA = st.dictionaries(st.sampled_from(["x", "metadata", "kind"]), st.sampled_from(["1", "2", '"metadata":{}']),
                       max_size=2)
FIRST = st.sampled_from([(), ("data",)])


@given(DATA, DATA, FIRST, FIRST, st.booleans(), st.booleans(), st.sampled_from(["", " ", "\r"]))
def test_records_are_the_same_exactly_if_their_contents_are(
        one: dict[str, str], other: dict[str, str], first: tuple[str, ...], second: tuple[str, ...], types: bool,
        enveloped: bool, end: str) -> None:
    old = item(plain(one, first=first, types=types))
    content = plain(other, first=second, types=True)
    new = seen(content, end) if enveloped else item(content)
    assert same_content(old, new) is (one == other)
    assert same_content(new, old) is (one == other)


def test_equal_bytes_are_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubectl_runtime.core.codec.jsonbytes.plain_object", None)
    assert same_content(item(plain({"x": "1"})), seen(plain({"x": "1"}, types=True)))


def test_what_cannot_be_read_is_the_same_only_byte_by_byte() -> None:
    broken = Record(item(plain()).head, RESOURCE, b'{"metadata":{"name":"a"},"data":')
    assert same_content(broken, broken)
    assert not same_content(broken, item(plain()))


def test_views_are_compared_by_what_they_hold() -> None:
    class View(PartialView, frozen=True):
        data: dict[str, str] | None = None

    form = FieldsForm(RESOURCE, View)
    one, other, third = (form.decode_object(json.dumps(plain({"x": value})).encode()) for value in "112")
    assert same_content(one, other)
    assert not same_content(one, third)


@pytest.mark.parametrize(("one", "other"), [(True, 1), (0, False), (1, 1.0)])
def test_values_that_only_python_takes_for_equal_are_not_the_same(one: object, other: object) -> None:
    records = [item({**plain(), "more": {"x": value}}) for value in (one, other)]
    assert not same_content(*records)
    assert same_content(records[0], seen({"more": {"x": one}, **plain()}))


@pytest.mark.parametrize(("one", "other", "found"), [
    ({"a": 1, "b": {"c": [1, 2]}}, {"a": 1, "b": {"c": [1, 2]}}, []),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}, []),
    ({"a": {"x/y": 1}}, {"a": {"x/y": True}}, [(("a", "x/y"), 1, True)]),
    ({"a": 1}, {"a": 1.0}, [(("a",), 1, 1.0)]),
    ({"a": None}, {}, [(("a",), None, MISSING)]),
    ({"b": 1}, {"a": 2, "b": 3}, [(("b",), 1, 3), (("a",), MISSING, 2)]),
    ([1, {"k": 2}], [1, {"k": 3}], [((1, "k"), 2, 3)]),
    ({"a": [1]}, {"a": [1, 2]}, [(("a",), [1], [1, 2])]),
    ({"a": {}}, {"a": []}, [(("a",), {}, [])]),
    ("x", "x", []), ("x", None, [((), "x", None)])])
def test_each_place_at_which_two_values_differ_is_found_in_order(one: Any, other: Any, found: Any) -> None:
    assert [*differences(one, other)] == found


@given(JSON := st.recursive(st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "a"]),
                            lambda below: st.lists(below, max_size=3) | st.dictionaries(st.sampled_from("abc"), below)),
       JSON)
def test_values_without_a_difference_are_the_same_json(one: Any, other: Any) -> None:
    assert (not [*differences(one, other)]) == same_json(one, other)
    assert [*differences(one, one)] == []
