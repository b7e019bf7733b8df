"""Durations in queries, in the words of Go's parser."""

from __future__ import annotations

import pytest

from kubectl_runtime.apiserver.query import duration_error


@pytest.mark.parametrize(("text", "error"), [
    ("0", ""), ("1s", ""), ("-1s", ""), ("+1.5s", ""), (".5s", ""), ("1h2m", ""), ("3ms", ""),
    ("x", 'time: invalid duration "x"'), ("s", 'time: invalid duration "s"'), ("-", 'time: invalid duration "-"'),
    ("1", 'time: missing unit in duration "1"'), ("1d", 'time: unknown unit "d" in duration "1d"'),
    ("5 s", 'time: unknown unit " s" in duration "5 s"'),
])
def test_what_is_wrong_with_a_duration(text: str, error: str) -> None:
    assert duration_error(text) == error
