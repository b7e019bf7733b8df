"""YAML scalars as kubectl and the API server read them: the rules of Go's decoder (sigs.k8s.io/yaml, goyaml.v2).

The rules are those of YAML 1.1: ``y``, ``n``, ``on`` and ``off`` are booleans, ``017`` is octal, and underscores in
numbers are skipped. They differ from YAML 1.1 in three points: ``0o17`` is octal, too; ``1:30``, dates and ``=`` are
text; and a value with an explicit standard tag must fit the tag. An integer beyond 64 bits is a floating-point number.
A number that is too large for a float is text.

`YamlError` is an error in one document, `ManifestError` an error in a source of documents.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
import struct
from decimal import Decimal
from typing import Any

from kubectl_runtime.core.base.errors import KubeError

_PREFIX = "tag:yaml.org,2002:"
TEXT, BINARY = f"{_PREFIX}str", f"{_PREFIX}binary"
_NULL, _BOOL, _INT, _FLOAT = (f"{_PREFIX}{name}" for name in ("null", "bool", "int", "float"))
_TAGS: dict[type, str] = {type(None): _NULL, bool: _BOOL, int: _INT, float: _FLOAT, str: TEXT}

_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
}
_INTEGER = re.compile(r"(?P<sign>[-+]?)(?:0[xX](?P<x>[0-9a-fA-F]+)|0[oO](?P<o>[0-7]+)|0[bB](?P<b>[01]+)|"
                      r"(?P<old>0[0-7]+)|(?P<d>0|[1-9][0-9]*))")
_BASES = {"x": 16, "o": 8, "b": 2, "old": 8, "d": 10}
_NUMBER = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_POINT_FIRST = re.compile(r"\.[0-9](?:_?[0-9])*(?:[eE][-+]?[0-9](?:_?[0-9])*)?")
_LEAST, _MOST, _MOST_UNSIGNED = -(1 << 63), (1 << 63) - 1, (1 << 64) - 1
_EXACT, _FIRST_EXPONENT = 2.0**53, 1e21  # whole floats are exact below 2**53; from 1e21 on, Go prints "1e+21"
_UNDECODED = re.compile("[\udc80-\udcff]")
_KEY_DIGITS = 6  # keys from 1e+06 on are written with an exponent


def resolve(text: str) -> bool | int | float | str | None:
    """The value of a plain scalar without a tag. Infinities and NaN are floats."""
    if text in _WORDS:
        value: bool | float | None = _WORDS[text]
        return value
    first = text[0]
    if first == ".":
        return _float(text.replace("_", ""), text) if _POINT_FIRST.fullmatch(text) else text
    return _number(text) if first in "+-0123456789" else text


def tagged(tag: str, text: str) -> bool | int | float | str | None:
    """The value of a scalar with an explicit tag; the text itself for unknown tags. Raises ValueError, with Go's
    message, if the scalar does not fit the tag."""
    if tag == BINARY:
        return _binary(text)
    if tag not in (_NULL, _BOOL, _INT, _FLOAT):
        return text
    value = resolve(text)
    found = _TAGS[type(value)]
    if tag == _FLOAT and found == _INT:
        return float(value)  # type: ignore[arg-type]  # `found` says that it is an int
    if found != tag:
        raise ValueError(f"cannot decode {_short(found)} `{text}` as a {_short(tag)}")
    return value


def key_text(key: bool | int | float | str | None) -> str:
    """The key of a mapping as text, as in JSON. Raises ValueError for a value that cannot be a key."""
    if isinstance(key, str):
        return key
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, float):
        return _float_key(key)
    if key is None or not _LEAST <= key <= _MOST:
        kind = "%!s(<nil>)" if key is None else "uint64"
        raise ValueError(f"unsupported map key of type: {kind}, key: {'<nil>' if key is None else hex(key)}")
    return str(key)


def whole_numbers(value: Any, *, narrow: bool = False) -> Any:
    """Return `value` with integers in place of floats without a fraction, as when YAML is converted to JSON.

    `narrow` turns integers beyond 64 bits into floating-point numbers, as Go's decoder does without a declared type.
    """
    if isinstance(value, dict):
        return {key: whole_numbers(child, narrow=narrow) for key, child in value.items()}
    if isinstance(value, list):
        return [whole_numbers(child, narrow=narrow) for child in value]
    if isinstance(value, float):
        return _whole(value)
    if narrow and isinstance(value, int) and not _LEAST <= value <= _MOST:
        return float(value)
    return value


def _whole(value: float) -> int | float:
    if not value.is_integer() or abs(value) >= _FIRST_EXPONENT:
        return value
    number = int(value) if abs(value) < _EXACT else int(Decimal(repr(value)))  # the digits as printed
    return number if _LEAST <= number <= _MOST else value


def go_text(data: bytes) -> str:
    """Bytes as UTF-8 text, with U+FFFD for each invalid byte, as in Go."""
    return _UNDECODED.sub("\ufffd", data.decode("utf-8", "surrogateescape"))


def _number(text: str) -> int | float | str:
    plain = text.replace("_", "")
    if match := _INTEGER.fullmatch(plain):
        base = match.lastgroup or "d"
        digits = match[base].lstrip("0") or "0"
        value = int(digits, _BASES[base]) if len(digits) <= 64 else _MOST_UNSIGNED + 1  # int() refuses long texts
        value = -value if match["sign"] == "-" else value
        if _LEAST <= value <= (_MOST if match["sign"] else _MOST_UNSIGNED):
            return value
    return _float(plain, text) if _NUMBER.fullmatch(plain) else text


def _float(plain: str, text: str) -> float | str:
    value = float(plain)
    return text if value in (float("inf"), float("-inf")) else value  # too large for a float: text


def _binary(text: str) -> str:
    try:
        return go_text(base64.b64decode(text.replace("\n", "").replace("\r", ""), validate=True))
    except (binascii.Error, ValueError):
        raise ValueError("!!binary value contains invalid base64 data") from None


def _float_key(key: float) -> str:
    """The text of a float as a key. Go rounds such keys to 32 bits."""
    try:
        narrow = struct.unpack("f", struct.pack("f", key))[0]
    except OverflowError:
        narrow = float("inf") if key > 0 else float("-inf")
    if math.isnan(narrow):
        return ".nan"
    if narrow in (float("inf"), float("-inf")):
        return ".inf" if narrow > 0 else "-.inf"
    digits = next(count for count in range(9) if _same_narrow(f"{narrow:.{count}e}", narrow) or count == 8)
    mantissa, _, exponent = f"{narrow:.{digits}e}".partition("e")
    power = int(exponent)
    if -4 <= power < _KEY_DIGITS:
        return f"{narrow:.{max(digits - power, 0)}f}"
    return f"{mantissa}e{power:+03d}"


def _same_narrow(text: str, narrow: float) -> bool:
    try:
        return bool(struct.unpack("f", struct.pack("f", float(text)))[0] == narrow)
    except OverflowError:
        return False


def _short(tag: str) -> str:
    return "!!" + tag.removeprefix(_PREFIX)


class YamlError(ValueError):
    """A YAML document that cannot be read. The error's text, such as ``yaml: line 3: ...``, is the text that kubectl
    and the API server show. Its line number is the number that Go's decoder counts, which may be wrong. The text may
    quote the document.

    `problem` is the text without the line number. `line` and `column` are the true place, counted from 1; each is 0 if
    unknown.
    """

    def __init__(self, problem: str, line: int = 0, column: int = 0, *, named_line: int = 0) -> None:
        super().__init__(f"yaml: line {named_line}: {problem}" if named_line else f"yaml: {problem}")
        self.problem = problem
        self.line = line
        self.column = column


class ManifestError(KubeError, ValueError):
    """A source of manifests that cannot be read; the text names source, document and line, and the reason.

    `problem` is the reason alone, which may quote the document. `document` and `line` count from 1 in the source,
    `column` in the line; 0 if unknown.

    >>> apply_manifests(client, "kind: [", field_manager="me")
    Traceback (most recent call last):
        ...
    ManifestError: text: line 2: ...
    """

    def __init__(self, source: str, problem: str, *, document: int = 0, line: int = 0, column: int = 0) -> None:
        parts = [f"document {document}"] if document else []
        parts += [f"line {line}"] if line else []
        super().__init__(f"{source}{', ' if parts else ''}{', '.join(parts)}: {problem}")
        self.source = source
        self.problem = problem
        self.document = document
        self.line = line
        self.column = column
