"""Resource quantities (`500m`, `1Gi`): exact arithmetic, and the server's canonical form.

    str(Quantity("0.5") + "1500m")              "2"
    class Spec(Struct): memory: Quantity        a field of a view; in a custom resource its schema is an int-or-string
    Quantity("1Gi") > "900Mi"                   True

A canonical quantity has no fraction and the largest suffix that allows this: `0.5` is `500m`, `1024Mi` is `1Gi`,
`1000m` is `1`. The family (binary, decimal, exponent) is kept, except that a binary quantity below 1024, or with a
fraction, is written in decimal form. Fractions below a billionth are rounded up, as in Go.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from functools import lru_cache, total_ordering
from typing import Annotated, TypeAlias

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.wire import NumberAsText, TextValue

FORMAT_ERROR = ("quantities must match the regular expression "
                "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")
SUFFIX_ERROR = "unable to parse quantity's suffix"

_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY_SUFFIX = {exponent: suffix for suffix, exponent in _BINARY.items()}
_NUMBER = re.compile(r"([+-]?)(\d*)(?:\.(\d*))?([a-zA-Z]*)([+-]?\d*)", re.ASCII)
_MAX_EXPONENT = 100  # a larger exponent is no real amount, and would cost memory
_BINARY_MAX = 2**63 - 1  # the real server caps binary quantities here


@total_ordering
class Quantity(TextValue):
    """An amount of a resource, such as `500m` CPUs or `1Gi` of memory. Immutable; equal, ordered and hashed by its
    value, whatever its family.

    In arithmetic and comparisons the other operand may be a Quantity, a text, an integer or a Fraction; text that is
    not a quantity raises RequestError. A sum has the family of its first operand, or of the second if the first is 0.

    >>> str(Quantity("0.5") + "1500m")
    '2'
    >>> Quantity("1Gi") > "900Mi"
    True
    >>> int(Quantity("1Ki"))
    1024
    """

    __slots__ = ("_family", "_value")

    def __init__(self, value: Amount, family: str | None = None) -> None:
        """`value` is a number, or anything else that `parse` takes; for other values RequestError is raised. `family`,
        the suffixes in the quantity's text, is `decimal`, `binary` or `exponent`; by default it is the family of the
        given text, or `decimal` for a number."""
        if not isinstance(value, Fraction):
            parsed = Quantity.parse(value)
            value, family = parsed.value, family or parsed.family
        self._value = value
        self._family = family or "decimal"

    @property
    def value(self) -> Fraction:
        """The exact number, as a Fraction."""
        return self._value

    @property
    def family(self) -> str:
        """The kind of suffix in the quantity's text: decimal (`k`, `M`), binary (`Ki`, `Mi`) or exponent (`e3`)."""
        return self._family

    @classmethod
    def parse(cls, text: Amount) -> Quantity:
        """Make a Quantity from text as the API accepts it, an integer or a Fraction. Raises RequestError for anything
        else, and for a float, which is not exact."""
        if isinstance(text, Quantity):
            return text
        if isinstance(text, int | Fraction) and not isinstance(text, bool):
            return cls(_rounded(Fraction(text)))
        if not isinstance(text, str):
            raise RequestError(f"{text!r} is not a quantity: give text such as '500m' or '1Gi', or an integer")
        try:
            return cls(*_parse(text))
        except ValueError as error:
            raise RequestError(f"{text!r} is not a quantity: {error}") from None

    def __int__(self) -> int:
        """The amount rounded away from zero, like Go's `Value`, so that a request is never rounded down."""
        return self._scaled(1)

    def to_milli(self) -> int:
        """Thousandths, rounded away from zero: the unit of CPU requests."""
        return self._scaled(1000)

    def _scaled(self, factor: int) -> int:
        whole = math.ceil(abs(self.value) * factor)
        return -whole if self.value < 0 else whole

    def __float__(self) -> float:
        """The nearest float."""
        return float(self.value)

    def __bool__(self) -> bool:
        """Whether the amount is not 0."""
        return bool(self.value)

    def __add__(self, other: Amount) -> Quantity:
        more = Quantity.parse(other)
        return Quantity(self.value + more.value, self.family if self.value else more.family)

    __radd__ = __add__

    def __sub__(self, other: Amount) -> Quantity:
        return self + -Quantity.parse(other)

    def __rsub__(self, other: Amount) -> Quantity:
        return Quantity.parse(other) - self

    def __mul__(self, times: int | Fraction) -> Quantity:
        return Quantity(_rounded(self.value * times), self.family)

    __rmul__ = __mul__

    def __neg__(self) -> Quantity:
        return Quantity(-self.value, self.family)

    def __eq__(self, other: object) -> bool:
        return self.value == other.value if isinstance(other, Quantity) else NotImplemented

    def __lt__(self, other: Amount) -> bool:
        return self.value < Quantity.parse(other).value

    def __hash__(self) -> int:
        return hash(self.value)

    def __str__(self) -> str:
        """The canonical form."""
        return _text(self.value, self.family)


QuantityText: TypeAlias = Annotated[str, NumberAsText()]
"""A quantity in the built-in kinds: text. A number from the server becomes text."""

Amount: TypeAlias = "Quantity | str | int | Fraction"
"""Anything that can be used as a quantity."""


@lru_cache(maxsize=4096)  # clusters repeat few quantities
def canonical(text: str) -> str:
    """The quantity in canonical form; raises ValueError with the real server's message."""
    return _text(*_parse(text))


def _text(value: Fraction, family: str) -> str:
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
    value = _rounded(value)
    return -value if match[1] == "-" else value, family


def _rounded(value: Fraction) -> Fraction:
    """Rounded to a billionth, away from zero, so that a small request does not become 0."""
    nanos = math.ceil(abs(value) * 10**9)
    return Fraction(-nanos if value < 0 else nanos, 10**9)


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
