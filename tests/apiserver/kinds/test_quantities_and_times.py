"""Canonical quantities and times."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubectl_runtime.apiserver.kinds.typed.decode import canonical_micro_time, canonical_time
from kubectl_runtime.core.meta.quantities import canonical, value_of


@pytest.mark.parametrize(("given_text", "expected"), [
    ("0.5", "500m"), ("1024Mi", "1Gi"), ("1000m", "1"), ("1.5Gi", "1536Mi"), ("100Mi", "100Mi"), ("-1", "-1"),
    ("0", "0"), ("1e3", "1e3"), ("12e6", "12e6"), ("0.1Ki", "102400m"), ("+5", "5"), ("1E", "1E"), (".5", "500m"),
    ("1023", "1023"), ("0.1n", "1n"), ("99999Ei", "9223372036854775807"), ("1000", "1k"), ("5.", "5"),
])
def test_quantities_are_written_with_the_largest_suffix_and_no_fraction(given_text: str, expected: str) -> None:
    assert canonical(given_text) == expected


@pytest.mark.parametrize("text", ["", "x", "1x", "1mm", "--1", "1 Gi", "1.2.3", "Ki", "1Ki2"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"quantities must match|quantity's suffix"):
        canonical(text)


@given(st.integers(-10**6, 10**6), st.sampled_from(["", "m", "k", "M", "G", "Ki", "Mi", "Gi", "e3"]))
def test_the_canonical_form_has_the_same_value_and_is_its_own(number: int, suffix: str) -> None:
    text = f"{number}{suffix}"
    assert value_of(canonical(text)) == value_of(text)
    assert canonical(canonical(text)) == canonical(text)


def test_values_are_exact() -> None:
    assert value_of("100m") == Fraction(1, 10)
    assert value_of("1Gi") == 2**30


@pytest.mark.parametrize(("given_text", "expected"), [
    ("2024-01-01T00:00:00Z", "2024-01-01T00:00:00Z"), ("2024-01-01T00:00:00.9Z", "2024-01-01T00:00:00Z"),
    ("2024-01-01T00:00:00+01:00", "2023-12-31T23:00:00Z"),
])
def test_times_are_in_utc_and_whole_seconds(given_text: str, expected: str) -> None:
    assert canonical_time(given_text) == expected


def test_micro_times_have_six_digits() -> None:
    assert canonical_micro_time("2024-01-01T02:00:00.000001+02:00") == "2024-01-01T00:00:00.000001Z"


@pytest.mark.parametrize(("text", "message"), [
    ("yesterday", 'cannot parse "yesterday" as "2006"'), ("2024-01-01", 'cannot parse "" as "T"'),
    ("2024-13-01T00:00:00Z", "month out of range"), ("2024-02-30T00:00:00Z", "day out of range"),
    ("2024-01-01T25:00:00Z", "hour out of range"), ("2024-01-01T00:00:00", 'cannot parse "" as "Z07:00"'),
    ("2024-01-01T00:00:00Zx", 'extra text: "x"'),
])
def test_what_is_no_time_is_refused_in_the_words_of_go(text: str, message: str) -> None:
    with pytest.raises(ValueError, match="parsing time") as raised:
        canonical_time(text)
    assert str(raised.value).endswith(message)


def test_a_micro_time_without_fraction_is_refused() -> None:
    with pytest.raises(ValueError, match="000000") as raised:
        canonical_micro_time("2024-01-01T00:00:00Z")
    assert str(raised.value).endswith('cannot parse "Z" as ".000000"')
