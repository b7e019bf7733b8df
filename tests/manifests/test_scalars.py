"""Scalars and keys of YAML become what Go makes of them, as recorded from kube-apiserver 1.36 and asked of kubectl."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import pytest

from kubectl_runtime.manifests.documents import read_text
from kubectl_runtime.manifests.yaml_text import YamlError, decode_yaml

SCALARS = [
    ("010", 8), ("0o10", 8), ("0x10", 16), ("0b11", 3), ("1_0", 10), ("-5", -5), ("0", 0), ("089", 89), ("1.0", 1),
    ("1.5", 1.5), ("1e2", 100), ("1e3", 1000), ("1E+2", 100), (".5", 0.5), ("-1e-1", -0.1), ("1:30", "1:30"),
    ("2024-01-01", "2024-01-01"), ("2001-12-14t21:59:43.10-05:00", "2001-12-14t21:59:43.10-05:00"), ("1.2.3", "1.2.3"),
    ("1e", "1e"), ("0x", "0x"), ("'5'", "5"), ("!foo bar", "bar"), ("!foo 5", "5"), ("1e999", "1e999"),
    ("!!float 5", 5), ("!!float 0x10", 16), ("!foo [a, 1]", ["a", 1]), ("!foo {a: 1}", {"a": 1}),
    ("yes", True), ("y", True), ("N", False), ("on", True), ("OFF", False), ("oN", "oN"), ("~", None), ("", None),
    ("=", "="), ("[=]", ["="]), ("<<", "<<"), ("!!str 12", "12"), ("!!str", ""), ("!!int '12'", 12),
    ("!!bool 'yes'", True), ("!!null ''", None), ("!!timestamp 2001-01-01", "2001-01-01"), ("!!foo 12", "12"),
    ("!!binary aGVsbG8=", "hello"), ("!!binary /+8=", "\ufffd\ufffd"), ("!!set {x, y}", {"x": None, "true": None}),
    ("!!omap [a: 1]", [{"a": 1}]), ("!!str {a: 1}", {"a": 1}), ("!!map [1]", [1]),
    ("0X1F", 31), ("0B11", 3), ("0O17", 15), ("-0x1f", -31), ("-0b11", -3), ("0x_1f", 31), ("_1", "_1"), ("1__0", 10),
    ("1_", 1), ("+0x10", 16), ("0_7", 7), ("-0o17", -15), ("08.5", 8.5), ("1_0.5", 10.5), (".5_0", 0.5), ("+_1", 1),
    ("1_.5", 1.5), ("1.e3", 1000), ("5.", 5), ("1234567890123456789.0", 1234567890123456800), ("9e18", 9 * 10**18),
    ("0x1ffffffffffffffff", "0x1ffffffffffffffff"),
    ("+0xffffffffffffffff", "+0xffffffffffffffff"), ("9223372036854775807", 2**63 - 1)]
MANY = [("9" * 5000, "9" * 5000), ("0o" + "0" * 5000 + "17", 15), ("-0x" + "f" * 5000, "-0x" + "f" * 5000)]
BEYOND = [("12345678901234567890", 12345678901234567890.0), ("-9223372036854775809", -(2.0**63)),
          ("0xffffffffffffffff", 2.0**64)]
KEYS = {"y": "true", "No": "false", "on": "true", "FALSE": "false", "1": "1", "0x10": "16", "010": "8", "1_000": "1000",
        "1.5": "1.5", "1000000.0": "1e+06", "1e-7": "1e-07", "16777217.0": "1.6777216e+07", "123456.0": "123456",
        "0.0001": "0.0001", "0.00001234": "1.234e-05", "1e40": ".inf", "-.inf": "-.inf", ".nan": ".nan", "-0.0": "-0",
        "12345678.9": "1.2345679e+07", "2020-01-01": "2020-01-01", "=": "=", "!!binary YQ==": "a", "!!str 1": "1",
        "!!int '3'": "3"}
MERGES = [("{a: 2, <<: {a: 1, b: 9}}", {"a": 1, "b": 9}), ("{<<: {a: 1}, a: 3}", {"a": 3}),
          ("{<<: [{a: 1}, {a: 7, z: 1}]}", {"a": 1, "z": 1}), ("{a: 1, <<: {b: 1}, <<: {b: 2}}", {"a": 1, "b": 2}),
          ("{<<: {y: 1}, yes: 2}", {"true": 2}), ("{'<<': {b: 1}}", {"<<": {"b": 1}})]
REFUSED = [
    ("!!int abc", "cannot decode !!str `abc` as a !!int"), ("!!bool 1", "cannot decode !!int `1` as a !!bool"),
    ("!!null x", "cannot decode !!str `x` as a !!null"), ("!!int 1.0", "cannot decode !!float `1.0` as a !!int"),
    ("!!binary '###'", "!!binary value contains invalid base64 data"), ("{~: 1}", "unsupported map key of type"),
    ("{9223372036854775808: 1}", "unsupported map key of type: uint64"), ("{[a]: 1}", "invalid map key"),
    ("{<<: 1}", "map merge requires map or sequence of maps as the value"), ("{<<: [1]}", "map merge requires"),
    ("{<<: ~}", "map merge requires"), ('"\\ud800"', "found invalid Unicode character escape code"),
    (".inf", "json: unsupported value: +Inf"), ("-.INF", "json: unsupported value: -Inf"),
    (".nan", "json: unsupported value: NaN"), ("&x [*x]", "value contains itself")]
GOOD = [*SCALARS, *MANY, *BEYOND, *MERGES, *((f"{{{key}: 1}}", {text: 1}) for key, text in KEYS.items())]


def same(found, value):
    return (json.dumps(found, sort_keys=True), type(found)) == (json.dumps(value, sort_keys=True), type(value))


@pytest.mark.parametrize(("text", "value"), MANY, ids=["more digits than Python reads", "zeros", "hexadecimal"])
def test_numbers_of_any_length(text, value):
    assert decode_yaml(f"a: {text}".encode())["a"] == value


@pytest.mark.parametrize(("text", "value"), [*SCALARS, *MERGES])
def test_scalars_and_merges(text, value):
    found = decode_yaml(f"a: {text}".encode())["a"]
    assert same(found, value)


@pytest.mark.parametrize(("text", "value"), BEYOND)
def test_numbers_beyond_64_bits_are_floats_in_manifests(text, value):
    assert same(read_text(f"a: {text}")[0].value["a"], value)


@pytest.mark.parametrize(("key", "text"), KEYS.items())
def test_keys_are_texts(key, text):
    assert decode_yaml(f"{key}: 1") == {text: 1}


@pytest.mark.parametrize(("text", "problem"), REFUSED)
def test_what_has_no_json_value_is_refused_where_it_stands(text, problem):
    with pytest.raises(YamlError, match=re.escape(problem)) as error:
        decode_yaml(f"\na: {text}".encode())
    assert error.value.line == 2


def test_of_repeated_keys_the_last_counts_and_each_is_told():
    duplicates: list[str] = []
    assert decode_yaml("k: 1\nk: 2\nl: {y: 1, on: 2}", duplicates=duplicates) == {"k": 2, "l": {"true": 2}}
    assert duplicates == ['line 2: key "k" already set in map', 'line 3: key "true" already set in map']


def test_an_alias_is_a_copy():
    value = decode_yaml("a: &x {b: []}\nc: *x")
    value["a"]["b"].append(1)
    assert value["c"] == {"b": []}


def test_aliases_that_multiply_are_refused():
    lines = ["a0: &a0 [" + "x, " * 20 + "]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 8)]
    with pytest.raises(YamlError, match="excessive aliasing"):
        decode_yaml("\n".join(lines))


def asked_of_kubectl(tmp_path, text):
    path = tmp_path / "manifest.yaml"
    path.write_text(f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a}}\ndata:\n{text}")
    return subprocess.run(["kubectl", "--kubeconfig", "/dev/null", "annotate", "--local", "-f", str(path), "-o", "json",
                           "a=b"], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.kubectl
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl")
class TestKubectlSays:
    def test_the_same_of_all_these_values(self, tmp_path):
        done = asked_of_kubectl(tmp_path, "\n".join(f"  k{number}: {text}" for number, (text, _) in enumerate(GOOD)))
        assert done.returncode == 0, done.stderr
        found = read_text(done.stdout)[0].value["data"]
        differing = {text: found[f"k{number}"] for number, (text, value) in enumerate(GOOD)
                     if not same(found[f"k{number}"], value)}
        assert differing == {}

    @pytest.mark.parametrize(("text", "problem"), REFUSED)
    def test_the_same_of_what_is_refused(self, tmp_path, text, problem):
        done = asked_of_kubectl(tmp_path, f"  k: {text}\n")
        assert done.returncode != 0
        assert problem in done.stderr
