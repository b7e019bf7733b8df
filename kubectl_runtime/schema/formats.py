"""The types and formats that the API server checks in custom resources, and the ranges of its number formats.

The list is that of apiextensions-apiserver (`supportedVersionedFormats`), the rules those of its copy of go-openapi's
strfmt. A format that is not in the list is not checked; the server warns of it when the CRD is written.

What surprises in its copy of go-openapi: where a schema has a format, a value of the wrong type is told by the formats
instead of the types, unless it is a text or a list; and a list is taken in the place of a text with a format.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
import struct
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from kubectl_runtime.schema.durations import parse_duration

Node = Mapping[str, Any]

_NAMES = {int: "integer", str: "string", list: "array", dict: "object"}
_FORMATS = {"integer": "int64", "number": "float64"}
_LARGEST_EXACT = (1 << 53) - 1
_UUID = "^[0-9a-f]{8}-?[0-9a-f]{4}-?%s[0-9a-f]{3}-?%s[0-9a-f]{3}-?[0-9a-f]{12}$"
_HOST_LABEL = "[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_HOSTNAME = re.compile(rf"{_HOST_LABEL}(\.{_HOST_LABEL})*\.?")
_EMAIL = re.compile(r"[^@\s<>()\[\],;:\\\"]+@[^@\s<>()\[\],;:\\\"]+")
_DATE_TIME = re.compile(r"\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:\d{2})")
_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_LONG_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_LONGEST_HOSTNAME, _LONGEST_NAME, _LONGEST_LABEL = 255, 253, 63


def _whole(pattern: str, flags: int = 0) -> Callable[[str], bool]:
    found = re.compile(pattern, flags)
    return lambda text: found.fullmatch(text) is not None


def _parses(parse: Callable[[str], object]) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            parse(text)
        except (ValueError, binascii.Error):
            return False
        return True
    return check


def _base64(text: str) -> object:
    if not text:
        raise ValueError("the server takes no empty one")
    return base64.b64decode(text, validate=True)


def _date(text: str) -> object:
    if len(text) != 10:
        raise ValueError(text)
    return datetime.strptime(text, "%Y-%m-%d").date()


def _date_time(text: str) -> object:
    if not _DATE_TIME.fullmatch(text):
        raise ValueError(text)
    return datetime.fromisoformat(re.sub(r"\.(\d{6})\d+", r".\1", text.upper()))


def _cidr(text: str) -> object:
    if "/" not in text:
        raise ValueError(text)
    return ipaddress.ip_interface(text)


def _uri(text: str) -> object:
    """As Go's url.ParseRequestURI: an absolute URI, or an absolute path."""
    parts = urlsplit(text)
    if not (text.startswith("/") or re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*:", text)) or re.search(r"[\x00-\x20\x7f]", text):
        raise ValueError(text)
    return parts.port


def _luhn(text: str) -> bool:
    digits = re.sub(r"[^0-9]", "", text)
    if not re.fullmatch(r"(?:4\d{12}(?:\d{3})?|5[1-5]\d{14}|6(?:011|5\d\d)\d{12}|3[47]\d{13}|3(?:0[0-5]|[68]\d)\d{11}|"
                        r"(?:2131|1800|35\d{3})\d{11})", digits):
        return False
    doubled = [int(digit) * (1 + index % 2) for index, digit in enumerate(reversed(digits))]
    return sum(number // 10 + number % 10 for number in doubled) % 10 == 0


def _isbn10(text: str) -> bool:
    digits = re.sub(r"[\s-]", "", text)
    if not re.fullmatch(r"\d{9}[\dX]", digits):
        return False
    return sum((index + 1) * (10 if digit == "X" else int(digit)) for index, digit in enumerate(digits)) % 11 == 0


def _isbn13(text: str) -> bool:
    digits = re.sub(r"[\s-]", "", text)
    return bool(re.fullmatch(r"\d{13}", digits)) and sum(
        int(digit) * (3 if index % 2 else 1) for index, digit in enumerate(digits)) % 10 == 0


def _hostname(text: str) -> bool:
    return len(text) <= _LONGEST_HOSTNAME and _HOSTNAME.fullmatch(text) is not None


_CHECKS: dict[str, Callable[[str], bool]] = {
    "bsonobjectid": _whole("[0-9a-fA-F]{24}"), "byte": _parses(_base64),
    "cidr": _parses(_cidr), "creditcard": _luhn, "date": _parses(_date), "date-time": _parses(_date_time),
    "datetime": _parses(_date_time), "duration": _parses(parse_duration),
    "email": lambda text: _EMAIL.fullmatch(text) is not None,
    "hexcolor": _whole("#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})"), "hostname": _hostname,
    "ipv4": _parses(ipaddress.IPv4Address), "ipv6": _parses(ipaddress.IPv6Address),
    "isbn": lambda text: _isbn10(text) or _isbn13(text), "isbn10": _isbn10, "isbn13": _isbn13,
    "k8s-long-name": lambda text: len(text) <= _LONGEST_NAME and _LONG_NAME.fullmatch(text) is not None,
    "k8s-short-name": lambda text: len(text) <= _LONGEST_LABEL and re.fullmatch(_LABEL, text) is not None,
    "mac": _whole("([0-9a-fA-F]{2}([:-]))([0-9a-fA-F]{2}\\2){4}[0-9a-fA-F]{2}"), "password": lambda _: True,
    "rgbcolor": _whole(r"rgb\(\s*(25[0-5]|2[0-4]\d|1?\d?\d)\s*(,\s*(25[0-5]|2[0-4]\d|1?\d?\d)\s*){2}\)"),
    "ssn": _whole(r"\d{3}[- ]?\d{2}[- ]?\d{4}"), "uri": _parses(_uri),
    "uuid": _whole(_UUID % ("[0-9a-f]", "[0-9a-f]"), re.IGNORECASE),
    "uuid3": _whole(_UUID % ("3", "[0-9a-f]"), re.IGNORECASE),
    "uuid4": _whole(_UUID % ("4", "[89ab]"), re.IGNORECASE), "uuid5": _whole(_UUID % ("5", "[89ab]"), re.IGNORECASE)}
_NUMBERS = {"integer": ("int32", "int64"), "number": ("float", "double")}
_TEXTUAL = ("", "string", "integer,string")
_INTEGER_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def is_known(name: str, kind: str) -> bool:
    """Whether the API server knows a format for a type ("string", "integer", ...)."""
    return name in _CHECKS if kind in _TEXTUAL else name in _NUMBERS.get(kind, ())


def text_fits(text: str, name: str) -> bool:
    """Whether a text has a format; true of formats that are not checked."""
    check = _CHECKS.get(name)
    return check is None or check(text)


def number_fits(value: float, kind: str, name: str) -> bool:
    """Whether a number lies in the range of a type and a format: int64 unless the format of an integer says less."""
    if kind != "integer":
        return name not in ("float", "float32") or _is_float32(value)
    if isinstance(value, float) and not value.is_integer():
        return False
    if name in ("uint32", "uint64"):
        return 0 <= value < 1 << int(name[4:])
    half = 1 << (_INTEGER_BITS.get(name, 64) - 1)
    return -half <= value < half


def _is_float32(value: float) -> bool:
    try:
        struct.pack("<f", value)
    except OverflowError:
        return False
    return True


# --- types ------------------------------------------------------------------------------------------------------------


def json_type(value: Any) -> str:
    """``string``, ``integer``, ...; a fraction is a ``number``, and so is what does not fit 64 bits."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, float) or (isinstance(value, int) and not -(1 << 63) <= value < 1 << 63):
        return "number"
    return _NAMES.get(type(value), "null")


def wanted_type(node: Node) -> str:
    """The type of a schema, ``integer,string`` for an int-or-string, empty if it has none."""
    return "integer,string" if node.get("x-kubernetes-int-or-string") else node.get("type") or ""


def known_format(node: Node) -> str:
    """The format of a schema; empty if the server does not know it for the type."""
    form = node.get("format") or ""
    return form if form and is_known(form, wanted_type(node)) else ""


def type_fault(value: Any, node: Node) -> tuple[str, str] | None:
    """(wanted, found) of a value of the wrong type, None of one that has the type of a schema."""
    wanted, form = wanted_type(node), known_format(node)
    found = json_type(value)
    if value is None:
        return (wanted, found) if wanted and not node.get("nullable") else None
    if not wanted and not form:
        return None
    types = wanted.split(",")
    fits = found in types or (found == "integer" and "number" in types) or (
        found == "number" and "integer" in types and _is_whole(value))
    textual = isinstance(value, str | list)
    if form and textual and not {"number", "integer"} & set(types):
        return None
    if fits:
        return None
    return (form, _FORMATS.get(found, "")) if form and not textual else (wanted, found)


def _is_whole(value: float) -> bool:
    return float(value).is_integer() and abs(value) <= _LARGEST_EXACT
