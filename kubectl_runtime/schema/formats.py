"""The formats of strings that the API server checks in custom resources, and the ranges of its number formats.

The list is that of apiextensions-apiserver (`supportedVersionedFormats`), the rules those of its copy of go-openapi's
strfmt. A format that is not in the list is not checked; the server warns of it when the CRD is written.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
import struct
from collections.abc import Callable
from datetime import datetime
from urllib.parse import urlsplit

from kubectl_runtime.schema.durations import parse_duration

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
    "bsonobjectid": _whole("[0-9a-fA-F]{24}"), "byte": _parses(lambda text: base64.b64decode(text, validate=True)),
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
_NUMBERS = frozenset({"int32", "int64", "float", "double"})
_INTEGER_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def is_known(name: str, kind: str) -> bool:
    """Whether the API server knows a format for a type ("string", "integer", ...)."""
    return name in (_NUMBERS if kind in ("integer", "number") else _CHECKS)


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
