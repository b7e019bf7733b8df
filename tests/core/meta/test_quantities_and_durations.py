"""Quantities, Go durations and the orders of versions."""
from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.meta.gvk import (
    ApiResource,
    GroupVersionKind,
    GroupVersionResource,
    version_generation,
    version_priority,
)
from kubectl_runtime.core.meta.metav1 import GoDuration
from kubectl_runtime.core.meta.quantities import Quantity
from kubectl_runtime.core.meta.selectors import Selector

Q = Quantity.parse
QUANTITIES = st.builds(lambda number, suffix: f"{number}{suffix}", st.integers(-10**6, 10**6),
                       st.sampled_from(["", "n", "u", "m", "k", "M", "Ki", "Mi", "Gi", "e3", "e-2"]))


@pytest.mark.parametrize(("found", "expected"), [
    (Q("0.5") + "1500m", "2"), (Q("1Gi") + "1Gi", "2Gi"), (Q("1Gi") - "512Mi", "512Mi"), (Q("100m") * 3, "300m"),
    (Q("0") + "1Gi", "1Gi"), (Q("1Gi") + "1k", "1073742824"), (sum(map(Q, ("1", "2m")), Q("0")), "1002m"),
    (-Q("1k"), "-1k"), (1 + Q("1"), "2"), (2 - Q("500m"), "1500m"), (Q("1e3") + "1e3", "2e3"), (Q(5), "5"),
    (Q("1") * Fraction(1, 3), "333333334n"), (Q("1.5Gi"), "1536Mi")])
def test_arithmetic_is_exact_and_keeps_the_family_of_the_first_part(found: Quantity, expected: str) -> None:
    assert str(found) == expected


def test_quantities_are_compared_by_value() -> None:
    assert Q("1Gi") == Q("1024Mi")
    assert Q("1000m") == Q("1")
    assert hash(Q("1000m")) == hash(Q("1"))
    assert Q("1Gi") > "1G"
    assert Q("1Gi") >= "1024Mi"
    assert max(Q("1"), Q("999m")) == Q("1")
    assert Q("1") != 1


def test_whole_numbers_are_rounded_away_from_zero() -> None:
    assert (int(Q("1500m")), int(Q("-1500m")), Q("1500u").to_milli(), float(Q("250m"))) == (2, -2, 2, 0.25)
    assert not Q("0")
    assert Q("1n")


@pytest.mark.parametrize("wrong", ["", "x", "1 Gi", "1mm", None, 1.5, True])
@pytest.mark.parametrize("make", [Q, Quantity])
def test_what_is_no_quantity_is_refused(make: Callable[[Any], Quantity], wrong: object) -> None:
    with pytest.raises(RequestError, match="is not a quantity"):
        make(wrong)


@pytest.mark.parametrize("amount", ["1Gi", "500m", "2e3", 5, Fraction(1, 2), Q("1Mi")])
def test_the_class_itself_takes_what_parse_takes(amount: Any) -> None:
    assert (Quantity(amount), str(Quantity(amount))) == (Q(amount), str(Q(amount)))
    assert str(Quantity(amount, "decimal")) == str(Quantity(Q(amount).value))


@given(QUANTITIES, QUANTITIES)
def test_sums_and_differences_are_those_of_the_values(first: str, second: str) -> None:
    assert (Q(first) + second).value == Q(first).value + Q(second).value
    assert Q(first) + second - second == Q(first)
    assert (Q(first) < Q(second)) == (Q(first).value < Q(second).value)


@given(QUANTITIES)
def test_the_text_of_a_quantity_is_the_same_quantity(text: str) -> None:
    assert Q(str(Q(text))) == Q(text)
    assert str(Q(str(Q(text)))) == str(Q(text))


# From Go's src/time/time_test.go, TestParseDuration and TestDurationString.
@pytest.mark.parametrize(("text", "nanoseconds"), [
    ("0", 0), ("5s", 5 * 10**9), ("30s", 30 * 10**9), ("1478s", 1478 * 10**9), ("-5s", -5 * 10**9), ("+5s", 5 * 10**9),
    ("-0", 0), ("+0", 0), ("5.0s", 5 * 10**9), ("5.6s", 5600 * 10**6), ("5.s", 5 * 10**9), (".5s", 500 * 10**6),
    ("1.0s", 10**9), ("1.00s", 10**9), ("1.004s", 1004 * 10**6), ("1.0040s", 1004 * 10**6),
    ("100.00100s", 100 * 10**9 + 10**6), ("10ns", 10), ("11us", 11000), ("12\u00b5s", 12000), ("12\u03bcs", 12000),
    ("13ms", 13 * 10**6), ("14s", 14 * 10**9), ("15m", 900 * 10**9), ("16h", 16 * 3600 * 10**9),
    ("3h30m", 12600 * 10**9), ("10.5s4m", 250500 * 10**6), ("-2m3.4s", -123400 * 10**6),
    ("1h2m3s4ms5us6ns", 3723004005006), ("39h9m14.425s", 140954425 * 10**6), ("52763797000ns", 52763797000),
    ("0.3333333333333333333h", 1200 * 10**9), ("9007199254740993ns", 9007199254740993),
    ("9223372036854775807ns", 2**63 - 1), ("9223372036854775.807us", 2**63 - 1), ("-9223372036854775808ns", -2**63),
    ("0.100000000000000000000h", 360 * 10**9)])
def test_durations_are_read_as_go_reads_them(text: str, nanoseconds: int) -> None:
    assert GoDuration.parse(text) == GoDuration(nanoseconds)


@pytest.mark.parametrize(("text", "told"), [
    ("", 'invalid duration ""'), ("3", 'missing unit in duration "3"'), ("-", 'invalid duration "-"'),
    ("s", 'invalid duration "s"'), (".", 'invalid duration "."'), ("-.", 'invalid duration "-."'),
    (".s", 'invalid duration ".s"'), ("+.s", r'invalid duration "\+.s"'), ("1d", 'unknown unit "d" in duration "1d"'),
    ("3000000h", "invalid duration"), ("9223372036854775808ns", "invalid duration"),
    ("-9223372036854775809ns", "invalid duration"), ("\x85\x85", "invalid duration"), ("1 s", 'unknown unit " s"')])
def test_what_is_no_duration_is_refused_in_the_words_of_go(text: str, told: str) -> None:
    with pytest.raises(RequestError, match=told):
        GoDuration.parse(text)


@pytest.mark.parametrize("wrong", [1.5, True, None, timedelta(1)])
def test_a_duration_is_made_of_a_text_or_of_nanoseconds(wrong: Any) -> None:
    assert (GoDuration("1h30m"), GoDuration(5)) == (GoDuration.parse("1h30m"), GoDuration.parse("5ns"))
    for make in (GoDuration, GoDuration.parse):
        with pytest.raises(RequestError, match="is not a duration"):
            make(wrong)


@pytest.mark.parametrize(("nanoseconds", "text"), [
    (0, "0s"), (1, "1ns"), (1100, "1.1\u00b5s"), (2_200_000, "2.2ms"), (3_300_000_000, "3.3s"),
    (245 * 10**9, "4m5s"), (245_001_000_000, "4m5.001s"), (18367_001_000_000, "5h6m7.001s"),
    (480_000_000_001, "8m0.000000001s"),
    (2**63 - 1, "2562047h47m16.854775807s"), (-2**63, "-2562047h47m16.854775808s")])
def test_durations_are_written_as_go_writes_them(nanoseconds: int, text: str) -> None:
    assert str(GoDuration(nanoseconds)) == text


@given(st.integers(-2**63, 2**63 - 1))
def test_the_text_of_a_duration_is_the_same_duration(nanoseconds: int) -> None:
    duration = GoDuration(nanoseconds)
    if abs(nanoseconds) < 2**52:  # Go reckons fractions with floats
        assert GoDuration.parse(str(duration)) == duration
    assert abs(duration.timedelta - timedelta(microseconds=nanoseconds // 1000)) <= timedelta(microseconds=1)


def test_durations_and_timedeltas() -> None:
    assert GoDuration.of(timedelta(minutes=90)) == GoDuration.parse("1h30m")
    assert GoDuration.parse("-1.5s").timedelta == timedelta(seconds=-1.5)
    assert GoDuration.parse("250ms").seconds == 0.25
    assert GoDuration.parse("1s") < GoDuration.parse("1m")


def test_versions_have_two_orders() -> None:
    priority = ["v10", "v2", "v1", "v11beta2", "v10beta3", "v3beta1", "v12alpha1", "v11alpha2", "foo1", "foo10"]
    generation = ["v12alpha1", "v11beta2", "v11alpha2", "v10", "v10beta3", "v3beta1", "v2", "v1", "foo1", "foo10"]
    for _ in range(5):
        mixed = random.sample(priority, len(priority))
        assert sorted(mixed, key=version_priority) == priority
        assert sorted(mixed, key=version_generation) == generation


def test_names_of_types_are_read_from_objects_and_api_versions() -> None:
    assert GroupVersionKind.of({"apiVersion": "apps/v1", "kind": "Deployment"}) == GroupVersionKind(
        "apps", "v1", "Deployment")
    assert GroupVersionResource.parse("v1", "pods") == ApiResource("", "v1", "Pod", "pods").gvr
    assert GroupVersionResource.parse("apps/v1", "deployments").api_version == "apps/v1"
    for wrong in ({"kind": "Pod"}, {"apiVersion": "v1"}, {"apiVersion": "a/b/c", "kind": "Pod"}):
        with pytest.raises(RequestError, match="apiVersion"):
            GroupVersionKind.of(wrong)


@pytest.mark.parametrize("text", ["app=web", "a=b,c!=d,e in (f,g),h notin (i),j,!k", "a=b,a=c", ""])
def test_selectors_become_label_selectors_and_back(text: str) -> None:
    selector = Selector.parse(text)
    back = Selector.from_label_selector(selector.to_label_selector())
    for labels in ({}, {"app": "web"}, {"a": "b"}, {"a": "b", "c": "x", "e": "f", "j": ""}, {"a": "c", "k": "v"}):
        assert back.matches(labels) == selector.matches(labels)


def test_a_label_selector_cannot_compare_numbers() -> None:
    assert Selector.parse("a!=b").to_label_selector().match_expressions[0].operator == "NotIn"  # type: ignore[index]
    with pytest.raises(RequestError, match="a>5"):
        Selector.parse("a>5").to_label_selector()
