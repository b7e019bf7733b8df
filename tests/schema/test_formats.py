"""Formats of strings and ranges of numbers are checked as the real server does."""

from __future__ import annotations

import pytest

from kubectl_runtime.schema.formats import is_known, text_fits
from kubectl_runtime.schema.validation import schema_causes


@pytest.mark.parametrize(("name", "fits", "misfits"), [
    ("date-time", "2024-02-29T00:00:00.123456789+01:00", "2024-02-29 00:00:00Z"), ("date", "2024-02-29", "20240229"),
    ("duration", "-1h30m0.5s", "90"), ("duration", "3 days", "three days"), ("duration", "0", ""),
    ("cidr", "fd00::/8", "10.0.0.0"), ("mac", "00:1b:44:11:3a:b7", "00:1b:44:11:3a"), ("byte", "eHg=", "eHg"),
    ("uri", "https://example.com:8443/a?b", "example.com/a"), ("uri", "/a", "a b"),
    ("hostname", "a-b.example.com", "-a"),
    ("email", "a@example.com", "a@b@c"), ("uuid", "11111111-1111-4111-8111-111111111111", "1111"),
    ("uuid4", "11111111-1111-4111-8111-111111111111", "11111111-1111-1111-8111-111111111111"),
    ("isbn", "978-0-306-40615-7", "978-0-306-40615-8"), ("isbn10", "0-306-40615-2", "0-306-40615-3"),
    ("creditcard", "4012888888881881", "4012888888881882"), ("hexcolor", "#fff", "#ggg"), ("ssn", "111-11-1111", "111"),
    ("rgbcolor", "rgb(0, 10,255)", "rgb(0,10,256)"), ("bsonobjectid", "0" * 24, "0" * 23),
    ("k8s-short-name", "a-b", "a.b"), ("k8s-long-name", "a.b", "A.b"), ("ipv4", "10.0.0.1", "10.0.0.256"),
    # what surprises in the real server
    ("ipv4", "10.0.0.01", "fd00::1"), ("ipv4", "::ffff:10.0.0.1", "10.0.0"), ("ipv6", "fe80::1", "fe80::1%eth0"),
    ("cidr", "010.0.0.0/08", "10.0.0.0/33"), ("duration", "PT1H", "P1"), ("duration", "1h30", "one hour"),
    ("hostname", "a-b", "ab-c"), ("hostname", "a-", "a.b"), ("hostname", "www.a-b.org", "1.2.3.4"),
    ("hostname", "\u00e9=", "a_b"), ("email", "A B <a@b.c>", "a.@b.c"), ("email", '"x y"@[1.2.3.4]', "a@"),
    ("date-time", "0000-02-29t23:59:59,5z", "2026-01-01T24:00:00Z"), ("date", "0000-02-29", "2026-02-29"),
    ("uri", "http://a:99999", "http://a/%zz"), ("uri", "*", "http://a:x"), ("uri", "a:%z", "/%z"),
    ("mac", "001b.4411.3ab7", "00:1b-44:11:3a:b7"),
    ("mac", "001b44113ab7", "001b44113a"), ("ssn", "111 11 1111", "111111111"), ("byte", "YQ==", "YQ="),
])
def test_a_text_fits_its_format_or_not(name: str, fits: str, misfits: str) -> None:
    assert is_known(name, "string")
    assert text_fits(fits, name)
    assert not text_fits(misfits, name)
    [cause] = schema_causes({"x": misfits}, {"properties": {"x": {"type": "string", "format": name}}})
    assert (cause.field, cause.reason) == ("x", "FieldValueTypeInvalid")


@pytest.mark.parametrize(("node", "value", "messages"), [
    ({"type": "integer", "format": "int32"}, 1 << 31,
     ["Checked value must be of type integer with format int32 in x"]),
    ({"type": "integer", "format": "int32", "maximum": 4294967295}, 1,
     ["Maximum boundary value must be of type integer with format int32 in x"]),
    ({"type": "integer", "format": "int64"}, 1 << 63,
     ['x in body must be of type int64: "float64"', "Checked value must be of type integer with format int64 in x"]),
    ({"type": "integer"}, 1.5,
     ['x in body must be of type integer: "number"', "Checked value must be of type integer (default format) in x"]),
    ({"type": "number", "format": "float"}, 1e39, ["Checked value must be of type number with format float in x"]),
    ({"type": "number"}, 1 << 70, []), ({"type": "integer", "format": "int64"}, (1 << 63) - 1, []),
    ({"type": "integer", "format": "int32"}, -(1 << 31), [])])
def test_a_number_out_of_its_formats_range_is_refused(node: dict, value: float, messages: list[str]) -> None:
    found = schema_causes({"x": value}, {"properties": {"x": node}})
    assert [cause.message.split(": ", 2)[-1] for cause in found] == messages
