"""Resource quantities (``500m``, ``1Gi``) in the canonical form in which the real server writes them.

A canonical quantity has no fraction and the largest suffix that allows this: ``0.5`` is ``500m``, ``1024Mi`` is
``1Gi``, ``1000m`` is ``1``. The family (binary, decimal, exponent) stays, except that a binary quantity under 1024, or
with a fraction, is written as a decimal one.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

FORMAT_ERROR = ("quantities must match the regular expression "
                "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")
SUFFIX_ERROR = "unable to parse quantity's suffix"

_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY_SUFFIX = {exponent: suffix for suffix, exponent in _BINARY.items()}
_NUMBER = re.compile(r"([+-]?)(\d*)(?:\.(\d*))?([a-zA-Z]*)([+-]?\d*)")
_MAX_EXPONENT = 100  # more is no resource, and would cost memory
_BINARY_MAX = 2**63 - 1  # the real server caps binary quantities here


@lru_cache(maxsize=4096)  # clusters repeat few quantities
def canonical(text: str) -> str:
    """The quantity in canonical form; raises ValueError with the real server's words."""
    value, family = _parse(text)
    sign, value = "-" if value < 0 else "", abs(value)
    if family == "binary" and value.denominator == 1 and value >= 1024:
        return sign + _binary(min(int(value), _BINARY_MAX))
    return sign + _decimal(value, exponent=family == "exponent")


@lru_cache(maxsize=4096)
def value_of(text: str) -> Fraction:
    """The exact number of a quantity; raises ValueError."""
    return _parse(text)[0]


def _parse(text: str) -> tuple[Fraction, str]:
    match = _NUMBER.fullmatch(text)
    if match is None or not (match[2] or match[3]):
        raise ValueError(FORMAT_ERROR)
    scale, family = _suffix(match[4], match[5])
    value = (Fraction(int(match[2] or "0")) + Fraction(int(match[3] or "0"), 10 ** len(match[3] or ""))) * scale
    value = Fraction(-(-value * 10**9 // 1), 10**9)  # rounds up to a nano: asked for little, something is given
    return -value if match[1] == "-" else value, family


def _suffix(letters: str, digits: str) -> tuple[Fraction, str]:
    if letters in ("e", "E") and digits.lstrip("+-"):
        return Fraction(10) ** max(-_MAX_EXPONENT, min(int(digits), _MAX_EXPONENT)), "exponent"
    if digits:
        raise ValueError(SUFFIX_ERROR)
    if letters in _DECIMAL:
        return Fraction(10) ** _DECIMAL[letters], "decimal"
    if letters in _BINARY:
        return Fraction(2 ** _BINARY[letters]), "binary"
    raise ValueError(SUFFIX_ERROR)


def _binary(value: int) -> str:
    exponent = 0
    while value % 1024 == 0 and exponent < 60:
        value, exponent = value // 1024, exponent + 10
    return f"{value}{_BINARY_SUFFIX.get(exponent, '')}"


def _decimal(value: Fraction, *, exponent: bool) -> str:
    if not value:
        return "0"
    number, power = value, 0
    while number.denominator != 1:
        number, power = number * 1000, power - 3
    whole = int(number)
    while whole % 1000 == 0 and power < 18:
        whole, power = whole // 1000, power + 3
    if exponent:
        return f"{whole}e{power}" if power else str(whole)
    return f"{whole}{_DECIMAL_SUFFIX[power]}"
