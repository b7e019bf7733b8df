"""Scalars of YAML become what Go makes of them, as recorded from kube-apiserver 1.36."""

from __future__ import annotations

import re

import pytest

from kubectl_runtime.testing.apiserver.encoding.yaml_body import parse_yaml


@pytest.mark.parametrize(("text", "value"), [
    ("010", 8), ("0o10", 8), ("0x10", 16), ("0b11", 3), ("1_0", 10), ("-5", -5), ("0", 0), ("089", 89), ("1.0", 1),
    ("1.5", 1.5), ("1e2", 100), ("1E+2", 100), (".5", 0.5), ("-1e-1", -0.1), ("1:30", "1:30"),
    ("2024-01-01", "2024-01-01"), ("1.2.3", "1.2.3"), ("1e", "1e"), ("0x", "0x"), ("'5'", "5"), ("!foo bar", "bar"),
    ("!foo 5", "5"), ("1e999", "1e999"), ("!!float 5", 5),
    ("!foo [a, 1]", ["a", 1]), ("!foo {a: 1}", {"a": 1}), ("yes", True), ("~", None)])
def test_scalars(text, value):
    found = parse_yaml(f"a: {text}".encode())[0]["a"]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(("text", "name"), [(".inf", "+Inf"), ("-.INF", "-Inf"), (".nan", "NaN")])
def test_what_json_has_no_number_for_is_refused(text, name):
    with pytest.raises(ValueError, match=rf"json: unsupported value: {re.escape(name)}$"):
        parse_yaml(f"a: {text}".encode())
