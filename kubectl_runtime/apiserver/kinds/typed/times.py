"""Times as the real server reads and writes them: ``Time`` in seconds, ``MicroTime`` with six digits, both in UTC.

A text that does not parse is refused in the words of Go's time package, which clients print.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime

TIME_LAYOUT = "2006-01-02T15:04:05Z07:00"
MICRO_LAYOUT = "2006-01-02T15:04:05.000000Z07:00"

_plain = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_plain_micro = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
# The parts of the layouts in order: the text before it, its name in errors, its pattern, limits and name of its range.
_PARTS = (
    ("", "2006", r"\d{4}", 0, 9999, "year"),
    ("-", "01", r"\d\d", 1, 12, "month"),
    ("-", "02", r"\d\d", 0, 99, "day"),  # the range of a day depends on the month: it is checked at the end
    ("T", "15", r"\d{1,2}", 0, 23, "hour"),
    (":", "04", r"\d\d", 0, 59, "minute"),
    (":", "05", r"\d\d", 0, 59, "second"),
)
_zone = re.compile(r"Z|([+-])(\d\d):(\d\d)")
_fraction = re.compile(r"[.,]\d+")
_micros = re.compile(r"\.\d{6}")


def canonical_time(text: str) -> str:
    """A Time in UTC and whole seconds (fractions are cut off); raises ValueError."""
    return text if _is_canonical(text, _plain) else _parse(text, TIME_LAYOUT).isoformat(timespec="seconds") + "Z"


def canonical_micro_time(text: str) -> str:
    """A MicroTime in UTC with six digits; raises ValueError."""
    if _is_canonical(text, _plain_micro):
        return text
    return _parse(text, MICRO_LAYOUT).isoformat(timespec="microseconds") + "Z"


def _is_canonical(text: str, pattern: re.Pattern[str]) -> bool:
    """Whether it is written as it should be already, and a date that exists."""
    if not pattern.fullmatch(text):
        return False
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _parse(text: str, layout: str) -> datetime:
    """The moment in UTC, without its time zone."""
    rest, numbers = text, []
    for before, element, pattern, least, most, name in _PARTS:
        if not rest.startswith(before):
            raise _refusal(text, layout, rest, before)
        rest = rest.removeprefix(before)
        match = re.match(pattern, rest)
        if match is None:
            raise _refusal(text, layout, rest, element)
        if not least <= int(match[0]) <= most:
            raise ValueError(f"parsing time {json.dumps(text)}: {name} out of range")
        numbers.append(int(match[0]))
        rest = rest[match.end():]
    micro = 0
    if layout == MICRO_LAYOUT:
        digits = _micros.match(rest)
        if digits is None:
            raise _refusal(text, layout, rest, ".000000")
        micro, rest = int(digits[0][1:]), rest[7:]
        if rest[:1].isdecimal():
            raise _refusal(text, layout, rest, "Z07:00")
    elif digits := _fraction.match(rest):  # Go accepts a fraction that the layout does not have
        rest = rest[digits.end():]
    zone = _zone.match(rest)
    if zone is None:
        raise _refusal(text, layout, rest, "Z07:00")
    if rest[zone.end():]:
        raise ValueError(f"parsing time {json.dumps(text)}: extra text: {json.dumps(rest[zone.end():])}")
    try:
        offset = "+00:00" if zone[0] == "Z" else zone[0]
        year, month, day, hour, minute, second = numbers
        moment = datetime.fromisoformat(
            f"{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micro:06}{offset}")
        return moment.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        raise ValueError(f"parsing time {json.dumps(text)}: day out of range") from None


def _refusal(text: str, layout: str, rest: str, element: str) -> ValueError:
    return ValueError(f'parsing time {json.dumps(text)} as "{layout}": '
                      f"cannot parse {json.dumps(rest)} as {json.dumps(element)}")
