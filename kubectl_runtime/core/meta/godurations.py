"""Durations in Go's notation, which the API has as text (`metav1.Duration`, flags, leases): `1h30m`, `-1.5s`, `250ms`.

    GoDuration("1h30m").seconds                 5400.0
    str(GoDuration("90m"))                      "1h30m0s", Go's canonical form

The grammar is that of Go's `time.ParseDuration`: a sign, then numbers with a fraction and a unit (`ns`, `us`, `µs`,
`ms`, `s`, `m`, `h`), or a bare `0`. Exact to the nanosecond; what is finer is cut off, what is beyond 64 bits refused.
"""
from __future__ import annotations

import re
from datetime import timedelta
from functools import total_ordering

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.wire import TextValue

UNITS = {"ns": 1, "us": 10**3, "\u00b5s": 10**3, "\u03bcs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9,
         "h": 3600 * 10**9}
"""Nanoseconds of each unit. Both the sign for micro and the Greek letter are taken."""
LONGEST = 2**63
"""Nanoseconds of the shortest duration that is too long; the same below zero is still one."""

_MOST_DIGITS = 19
"""Of a whole number that fits into 63 bits."""
_PART = re.compile(r"([0-9]*)(?:\.([0-9]*))?([^0-9.]*)")


@total_ordering
class GoDuration(TextValue):
    """A span of time. Immutable; equal and ordered by its length.

    >>> GoDuration("1h30m").seconds
    5400.0
    >>> str(GoDuration("90m"))
    '1h30m0s'
    """

    __slots__ = ("_nanoseconds",)

    def __init__(self, span: int | str) -> None:
        """A text in Go's notation, or nanoseconds. Raises RequestError for anything else."""
        if type(span) is not int:
            span = GoDuration.parse(span).nanoseconds  # type: ignore[arg-type] # it refuses what is no text
        self._nanoseconds = span

    @property
    def nanoseconds(self) -> int:
        """The length in nanoseconds, exactly."""
        return self._nanoseconds

    @classmethod
    def parse(cls, text: str) -> GoDuration:
        """The span that a text in Go's notation names, such as `1h30m`. Raises RequestError, with what is wrong in the
        words of Go's parser."""
        if not isinstance(text, str):
            raise RequestError(f"{text!r} is not a duration: give text such as '1h30m', '1.5s' or '250ms'")
        try:
            return cls(nanoseconds_of(text))
        except ValueError as error:
            raise RequestError(f"{error}: a duration is such as '1h30m', '1.5s' or '250ms'") from None

    @classmethod
    def of(cls, span: timedelta) -> GoDuration:
        """The span of a timedelta."""
        return cls((span // timedelta(microseconds=1)) * 1000)

    @property
    def seconds(self) -> float:
        """The length in seconds, to the precision of a float."""
        return self.nanoseconds / 10**9

    @property
    def timedelta(self) -> timedelta:
        """The length as a timedelta, to the microsecond; what is finer is cut off."""
        micro = abs(self.nanoseconds) // 1000
        return timedelta(microseconds=-micro if self.nanoseconds < 0 else micro)

    def __eq__(self, other: object) -> bool:
        return self._nanoseconds == other.nanoseconds if isinstance(other, GoDuration) else NotImplemented

    def __lt__(self, other: GoDuration) -> bool:
        return self._nanoseconds < other.nanoseconds if isinstance(other, GoDuration) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._nanoseconds)

    def __str__(self) -> str:
        """As Go writes it: hours, minutes and seconds; below a second one number in the largest unit that fits."""
        nanos = abs(self.nanoseconds)
        sign = "-" if self.nanoseconds < 0 else ""
        if nanos == 0:
            return "0s"
        if nanos < UNITS["s"]:
            unit = "ms" if nanos >= UNITS["ms"] else "\u00b5s" if nanos >= UNITS["us"] else "ns"
            return f"{sign}{_decimal(nanos, UNITS[unit])}{unit}"
        minutes, rest = divmod(nanos, UNITS["m"])
        hours, minutes = divmod(minutes, 60)
        head = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
        return f"{sign}{head}{_decimal(rest, UNITS['s'])}s"


def nanoseconds_of(text: str) -> int:
    """The length of the duration that a text names. Raises ValueError in the words of Go's parser."""
    sign, rest = (-1, text[1:]) if text[:1] == "-" else (1, text.removeprefix("+"))
    if rest == "0":
        return 0
    if not rest:
        raise ValueError(f"time: invalid duration {_quoted(text)}")
    total, at = 0, 0
    while at < len(rest):
        part = _PART.match(rest, at)
        whole, fraction, unit = part.groups() if part else ("", "", "")
        if part is None or not (whole or fraction):
            raise ValueError(f"time: invalid duration {_quoted(text)}")
        if not unit:
            raise ValueError(f"time: missing unit in duration {_quoted(text)}")
        if unit not in UNITS:
            raise ValueError(f"time: unknown unit {_quoted(unit)} in duration {_quoted(text)}")
        if len(whole.lstrip("0")) > _MOST_DIGITS:
            raise ValueError(f"time: invalid duration {_quoted(text)}")
        total += int(whole[-_MOST_DIGITS:] or "0") * UNITS[unit]
        total += _fraction(fraction or "", UNITS[unit])
        at = part.end()
    if total >= LONGEST + (sign < 0):
        raise ValueError(f"time: invalid duration {_quoted(text)}")
    return sign * total


def _fraction(digits: str, unit: int) -> int:
    """The nanoseconds of a fraction, as Go reckons: as many digits as fit into 63 bits, then with floats."""
    value, scale = 0, 1.0
    for digit in digits:
        if value > (LONGEST - 1) // 10 or value * 10 + int(digit) > LONGEST:
            break
        value, scale = value * 10 + int(digit), scale * 10
    return int(float(value) * (float(unit) / scale))


def _decimal(nanos: int, unit: int) -> str:
    whole, rest = divmod(nanos, unit)
    if not rest:
        return str(whole)
    digits = str(rest).rjust(len(str(unit)) - 1, "0").rstrip("0")
    return f"{whole}.{digits}"


def _quoted(text: str) -> str:
    """As Go's package `time` quotes: bytes beyond ASCII by their number."""
    return '"' + "".join(_escaped(letter) for letter in text) + '"'


def _escaped(letter: str) -> str:
    if letter in '"\\':
        return f"\\{letter}"
    if " " <= letter < "\x80":
        return letter
    return "".join(f"\\x{byte:02x}" for byte in letter.encode(errors="surrogatepass"))
