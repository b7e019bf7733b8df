"""The types and formats that the API server checks in custom resources, and the ranges of its number formats.

The list is apiextensions-apiserver's (`supportedVersionedFormats`), and the rules are those of its copy of go-openapi's
strfmt. Other formats are not checked; the server warns about them when the CRD is written. Two rules are surprising. If
a schema has a format, a value of the wrong type gets the format's error instead of the type's error, unless the value
is text or a list. A list is accepted where the schema expects text with a format.

Durations are in Go's notation (``1h30m``, ``-1.5s``), or a number with the name of its unit (``3 days``), as in
go-openapi's `strfmt.ParseDuration`.

Each check of a name or label value returns a list of errors in the API server's words; an empty list means valid.
"""
from __future__ import annotations

import base64
import binascii
import functools
import ipaddress
import re
import struct
import unicodedata
from collections.abc import Callable, Mapping
from datetime import date, timedelta
from typing import Any
from urllib.parse import urlsplit

from kubectl_runtime.core.meta.metav1 import GoDuration, nanoseconds_of

_NAMED = re.compile("(?<!\\d)(\\d+)\\s*([A-Za-z\u00b5]+)")
_UNITS = (("ns nano", 0.001), ("us \u00b5s micro", 1), ("ms milli", 1e3), ("s sec", 1e6), ("m min", 6e7),
          ("h hr hour", 3.6e9), ("d day", 8.64e10), ("w wk week", 6.048e11))
"""The names of each unit, and its microseconds. Any name that begins with the last name of a unit is valid, too."""


def parse_duration(text: str, *, anywhere: bool = False) -> timedelta:
    """The duration in a text, to the microsecond. Raises ValueError if the text is no duration.

    With `anywhere`, all numbers with units in the text are added up, as the server does (``PT1H`` is an hour). Without
    it, the whole text must be a duration in Go's notation, or one number with a unit.
    """
    try:
        return GoDuration(nanoseconds_of(text)).timedelta
    except ValueError:
        pass  # not in Go's notation: look for numbers with units
    try:
        found = [int(number) * amount for number, name in _NAMED.findall(text) if (amount := _amount(name.lower()))]
        if found and (anywhere or _NAMED.fullmatch(text)):
            return timedelta(microseconds=sum(found))
    except OverflowError:
        pass  # too long for a timedelta
    raise ValueError(f"{text!r} is not a duration such as 1h30m")


def _amount(name: str) -> float:
    return next((amount for names, amount in _UNITS
                 if name in names.split() or name.startswith(names.rpartition(" ")[2])), 0)


Node = Mapping[str, Any]

_NAMES = {int: "integer", str: "string", list: "array", dict: "object"}
_FORMATS = {"integer": "int64", "number": "float64"}
_LARGEST_EXACT = (1 << 53) - 1
_UUID = "^[0-9a-f]{8}-?[0-9a-f]{4}-?%s[0-9a-f]{3}-?%s[0-9a-f]{3}-?[0-9a-f]{12}$"
_ATOMS = r"[^\s()<>\[\]:;@\\,.\x00-\x1f\"]+(?:\.[^\s()<>\[\]:;@\\,.\x00-\x1f\"]+)*"
_QUOTED = r'"(?:[^"\\]|\\.)*"'
_ADDRESS = rf"(?:{_ATOMS}|{_QUOTED})@(?:{_ATOMS}|\[[0-9A-Fa-f.:]+\])"
_EMAIL = re.compile(rf"(?:{_ADDRESS}|(?:[^<>@\",;:\\()\[\]]|{_QUOTED})*<{_ADDRESS}>)")
_TIME = re.compile(r"([01]\d|2[0-3]):[0-5]\d:[0-5]\d(.\d+)?([Zz]|[+-]\d{2}:\d{2})", re.ASCII)
_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_LONG_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_DIGITS, _LEAP_YEAR = "0123456789", 2000
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
        raise ValueError("the server refuses an empty text")
    return base64.b64decode(text, validate=True)


def _date(text: str) -> object:
    if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", text, re.ASCII):
        raise ValueError(text)
    return date(int(text[:4]) or _LEAP_YEAR, int(text[5:7]), int(text[8:]))  # year 0 is valid, and is a leap year


def _date_time(text: str) -> object:
    day, time = text[:10], text[11:]
    if text[10:11] not in ("T", "t") or not _TIME.fullmatch(time):
        raise ValueError(text)
    return _date(day)


def _ipv4(text: str) -> object:
    """Leading zeros are ignored. An IPv6 address is accepted if it is an IPv4-mapped address."""
    if ":" in text:
        return _ipv6(text).ipv4_mapped or ipaddress.IPv4Address(text)
    return ipaddress.IPv4Address(re.sub(r"\b0+(?=\d)", "", text))


def _ipv6(text: str) -> ipaddress.IPv6Address:
    if "%" in text:
        raise ValueError("an IPv6 address with a zone is not allowed")
    return ipaddress.IPv6Address(text)


def _cidr(text: str) -> object:
    address, slash, bits = text.partition("/")
    if not slash or not bits.isascii() or not bits.isdecimal() or "%" in text:
        raise ValueError(text)
    return ipaddress.ip_interface(text if ":" in text else re.sub(r"\b0+(?=\d)", "", address) + slash + bits)


def _uri(text: str) -> object:
    """As Go's url.ParseRequestURI: an absolute URI, or an absolute path."""
    parts = urlsplit(text)
    absolute = text.startswith("/") or text == "*" or re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*:", text)
    host, _, port = parts.netloc.rpartition("@")[2].rpartition("]")[2].partition(":")
    # Go checks the escapes in the host and the path, but not those in an opaque part, such as `a%` in `mailto:a%`.
    escaped = host + (parts.path if parts.path.startswith("/") else "")
    broken = re.search(r"%(?![0-9a-fA-F]{2})", escaped)
    if not absolute or broken or re.search(r"[\x00-\x20\x7f]", text) or not re.fullmatch("[0-9]*", port):
        raise ValueError(text)
    return parts


def _mac(text: str) -> bool:
    """6, 8 or 20 bytes in hex: without separators, in pairs of digits separated by ``:`` or ``-``, or in groups of four
    digits separated by dots."""
    digits = re.sub("[:.-]", "", text)
    if not re.fullmatch(r"[0-9a-fA-F]{12}|[0-9a-fA-F]{16}|[0-9a-fA-F]{40}", digits):
        return False
    return text in (digits, *(between.join(re.findall("." * size, digits)) for between, size in ((":", 2), ("-", 2),
                                                                                                 (".", 4))))


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
    """Either a single label with at most one hyphen, which must be its second character; or several labels, of which
    the last has only letters. This is the server's rule. Letters and symbols of all scripts are valid."""
    *labels, last = text.split(".")
    if len(text.encode()) > _LONGEST_HOSTNAME or any(len(label.encode()) > _LONGEST_LABEL for label in (*labels, last)):
        return False
    if not labels:
        return all(map(_is_host_character, last[:1] + last[1:].removeprefix("-"))) and last != ""
    ends = "".join(label[:1] + label[-1:] for label in labels)
    return all(labels) and len(last) > 1 and all(unicodedata.category(character)[0] == "L" for character in last) and (
        all(map(_is_host_character, ends))) and all(map(_is_host_character, "".join(labels).replace("-", "")))


def _is_host_character(character: str) -> bool:
    return character in _DIGITS or unicodedata.category(character)[0] in "LS"


_CHECKS: dict[str, Callable[[str], bool]] = {
    "bsonobjectid": _whole("[0-9a-fA-F]{24}"), "byte": _parses(_base64),
    "cidr": _parses(_cidr), "creditcard": _luhn, "date": _parses(_date), "date-time": _parses(_date_time),
    "datetime": _parses(_date_time), "duration": _parses(functools.partial(parse_duration, anywhere=True)),
    "email": lambda text: _EMAIL.fullmatch(text.strip()) is not None,
    "hexcolor": _whole("#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})"), "hostname": _hostname,
    "ipv4": _parses(_ipv4), "ipv6": _parses(_ipv6),
    "isbn": lambda text: _isbn10(text) or _isbn13(text), "isbn10": _isbn10, "isbn13": _isbn13,
    "k8s-long-name": lambda text: len(text) <= _LONGEST_NAME and _LONG_NAME.fullmatch(text) is not None,
    "k8s-short-name": lambda text: len(text) <= _LONGEST_LABEL and re.fullmatch(_LABEL, text) is not None,
    "mac": _mac, "password": lambda _: True,
    "rgbcolor": _whole(r"rgb\(\s*(25[0-5]|2[0-4]\d|1?\d?\d)\s*(,\s*(25[0-5]|2[0-4]\d|1?\d?\d)\s*){2}\)"),
    "ssn": _whole(r"\d{3}[- ]\d{2}[- ]\d{4}"), "uri": _parses(_uri),
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
    """Whether a text matches a format; True for formats that are not checked."""
    check = _CHECKS.get(name)
    return check is None or check(text)


def number_fits(value: float, kind: str, name: str) -> bool:
    """Whether a number is in the range of its type and format. The range of an integer without a known format is that
    of int64."""
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
    """``string``, ``integer``, ...; a fraction is a ``number``, and so is a value beyond 64 bits."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, float) or (isinstance(value, int) and not -(1 << 63) <= value < 1 << 63):
        return "number"
    return _NAMES.get(type(value), "null")


def wanted_type(node: Node) -> str:
    """The type of a schema: ``integer,string`` for an int-or-string, empty if the schema has no type."""
    return "integer,string" if node.get("x-kubernetes-int-or-string") else node.get("type") or ""


def known_format(node: Node) -> str:
    """The format of a schema; empty if the server does not know it for the type."""
    form = node.get("format") or ""
    return form if form and is_known(form, wanted_type(node)) else ""


def type_fault(value: Any, node: Node) -> tuple[str, str] | None:
    """(wanted, found) for a value of the wrong type; None for a value of the schema's type."""
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


# --- names, and the formats that CEL rules can name ------------------------------------------------------------------

_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE = f"({_QUALIFIED})?"
_LABEL_1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"

_label = re.compile(_LABEL)
_label_1035 = re.compile(_LABEL_1035)
_subdomain = re.compile(_SUBDOMAIN)
_qualified = re.compile(_QUALIFIED)
_label_value = re.compile(_LABEL_VALUE)

LABEL_MESSAGE = ("a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start "
                 "and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
                 f"'{_LABEL}')")
LABEL_1035_MESSAGE = ("a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
                      "alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', "
                      f"regex used for validation is '{_LABEL_1035}')")
SUBDOMAIN_MESSAGE = ("a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
                     "and must start and end with an alphanumeric character (e.g. 'example.com', regex used for "
                     f"validation is '{_SUBDOMAIN}')")
_QUALIFIED_MESSAGE = ("must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
                      "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation "
                      f"is '{_QUALIFIED}')")
LABEL_VALUE_MESSAGE = ("a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
                       "and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or "
                       f"'12345', regex used for validation is '{_LABEL_VALUE}')")



def _masked(name: str, prefix: bool) -> str:
    """The text that is checked in place of `name`. A prefix (generateName) may end with a dash, because characters
    follow the prefix. Like the real server, this replaces the dash and the character before the dash by an "a"."""
    return name[:-2] + "a" if prefix and len(name) > 1 and name.endswith("-") else name


def dns_label_errors(name: str, *, prefix: bool = False) -> list[str]:
    """Check an RFC 1123 label: at most 63 characters, no dots."""
    name = _masked(name, prefix)
    errors = [] if len(name) <= 63 else ["must be no more than 63 characters"]
    if not _label.fullmatch(name):
        errors.append("must not contain dots" if _subdomain.fullmatch(name) else LABEL_MESSAGE)
    return errors


def dns_1035_label_errors(name: str, *, prefix: bool = False) -> list[str]:
    """Check an RFC 1035 label: an RFC 1123 label that begins with a letter."""
    name = _masked(name, prefix)
    errors = [] if len(name) <= 63 else ["must be no more than 63 characters"]
    return errors if _label_1035.fullmatch(name) else [*errors, LABEL_1035_MESSAGE]


def dns_subdomain_errors(name: str, *, prefix: bool = False) -> list[str]:
    """Check an RFC 1123 subdomain: labels separated by dots, at most 253 characters."""
    name = _masked(name, prefix)
    errors = [] if len(name) <= 253 else ["must be no more than 253 characters"]
    return errors if _subdomain.fullmatch(name) else [*errors, SUBDOMAIN_MESSAGE]


def label_value_errors(value: str) -> list[str]:
    """Check the value of a label."""
    errors = [] if len(value) <= 63 else ["must be no more than 63 bytes"]
    return errors if _label_value.fullmatch(value) else [*errors, LABEL_VALUE_MESSAGE]


def qualified_name_errors(key: str) -> list[str]:
    """Check a label key, annotation key or finalizer: a name, optionally after a DNS subdomain and a slash."""
    parts = key.split("/")
    if len(parts) > 2:
        return [f"a valid label key {_QUALIFIED_MESSAGE} with an optional DNS subdomain prefix and '/' (e.g. "
                "'example.com/MyName')"]
    errors = []
    if len(parts) == 2:
        if not parts[0]:
            errors.append("prefix part must be non-empty")
        else:
            errors += [f"prefix part {error.replace('253 characters', '253 bytes')}"
                       for error in dns_subdomain_errors(parts[0])]
    if not parts[-1]:
        errors.append("name part must be non-empty")
    elif len(parts[-1]) > 63:
        errors.append("name part must be no more than 63 bytes")
    if not _qualified.fullmatch(parts[-1]):
        errors.append(f"name part {_QUALIFIED_MESSAGE}")
    return errors


def _prefix(check: Callable[..., list[str]]) -> Callable[[str], list[str]]:
    return functools.partial(check, prefix=True)


def _uri_errors(text: str) -> list[str]:
    return [] if text_fits(text, "uri") else [f'parse "{text}": invalid URI for request']


def _errors(name: str, message: str) -> Callable[[str], list[str]]:
    return lambda text: [] if text_fits(text, name) else [message]


NAMED_CHECKS: dict[str, Callable[[str], list[str]]] = {
    "dns1123Label": dns_label_errors, "dns1123Subdomain": dns_subdomain_errors, "dns1035Label": dns_1035_label_errors,
    "qualifiedName": qualified_name_errors, "dns1123LabelPrefix": _prefix(dns_label_errors),
    "dns1123SubdomainPrefix": _prefix(dns_subdomain_errors), "dns1035LabelPrefix": _prefix(dns_1035_label_errors),
    "labelValue": label_value_errors, "uri": _uri_errors, "uuid": _errors("uuid", "does not match the UUID format"),
    "byte": _errors("byte", "invalid base64"), "date": _errors("date", "invalid date"),
    "datetime": _errors("datetime", "invalid datetime")}
"""The formats that CEL rules can name (`format.dns1123Label()`), each with a check that returns a list of errors."""
