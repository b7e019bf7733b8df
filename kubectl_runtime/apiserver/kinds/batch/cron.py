"""Schedules of CronJobs: what is wrong with one, in the words of the parser that the real server uses."""

from __future__ import annotations

import re
import zoneinfo
from dataclasses import dataclass, field

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_DESCRIPTORS = frozenset({"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"})
_EVERY = "@every "
_DURATION = re.compile(r"[-+]?(?:(?:\d+\.?\d*|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+|0")


@dataclass(frozen=True)
class _Field:
    least: int
    most: int
    names: dict[str, int] = field(default_factory=dict)


_FIELDS = (
    _Field(0, 59),
    _Field(0, 23),
    _Field(1, 31),
    _Field(1, 12, {name: number for number, name in enumerate(_MONTHS, 1)}),
    _Field(0, 6, {name: number for number, name in enumerate(_DAYS)}),
)


def schedule_errors(schedule: str) -> list[str]:
    """The first thing that is wrong with a schedule of five fields, or with a descriptor such as ``@daily``."""
    text = schedule
    if text.startswith(("TZ=", "CRON_TZ=")):
        zone, _, text = text.partition(" ")
        name = zone.partition("=")[2]
        if (found := time_zone_errors(name)) and name not in ("", "Local"):
            return [f"provided bad location {name}: {found[0]}"]
        text = text.strip()
    try:
        _check(text)
    except ValueError as error:
        return [str(error)]
    return []


def time_zone_errors(zone: str) -> list[str]:
    """What is wrong with the name of a time zone."""
    if not zone:
        return ["timeZone must be nil or non-empty string"]
    if zone.lower() == "local":
        return ["timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"]
    try:
        zoneinfo.ZoneInfo(zone)
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        return [] if zone == "UTC" else [f"unknown time zone {zone}"]
    return []


def _check(text: str) -> None:
    if text.startswith("@"):
        _check_descriptor(text)
        return
    parts = text.split()
    if len(parts) != len(_FIELDS):
        raise ValueError(f"expected exactly 5 fields, found {len(parts)}: [{' '.join(parts)}]")
    for bounds, part in zip(_FIELDS, parts, strict=True):
        for expression in filter(None, part.split(",")):
            _check_range(expression, bounds)


def _check_descriptor(text: str) -> None:
    if text.startswith(_EVERY):
        duration = text.removeprefix(_EVERY)
        if not _DURATION.fullmatch(duration):
            raise ValueError(f'failed to parse duration {text}: time: invalid duration "{duration}"')
    elif text not in _DESCRIPTORS:
        raise ValueError(f"unrecognized descriptor: {text}")


def _check_range(expression: str, bounds: _Field) -> None:
    span, *steps = expression.split("/")
    ends = span.split("-")
    if ends[0] in ("*", "?"):
        start, end = bounds.least, bounds.most
    elif len(ends) > 2:
        raise ValueError(f"too many hyphens: {expression}")
    else:
        start, end = _number(ends[0], bounds.names), _number(ends[-1], bounds.names)
    if len(steps) > 1:
        raise ValueError(f"too many slashes: {expression}")
    if steps and len(ends) == 1:
        end = bounds.most  # N/step goes on to the end
    step = _number(steps[0], {}) if steps else 1
    if start < bounds.least:
        raise ValueError(f"beginning of range ({start}) below minimum ({bounds.least}): {expression}")
    if end > bounds.most:
        raise ValueError(f"end of range ({end}) above maximum ({bounds.most}): {expression}")
    if start > end:
        raise ValueError(f"beginning of range ({start}) beyond end of range ({end}): {expression}")
    if step == 0:
        raise ValueError(f"step of range should be a positive number: {expression}")


def _number(text: str, names: dict[str, int]) -> int:
    if text.lower() in names:
        return names[text.lower()]
    if not re.fullmatch(r"[-+]?[0-9]+", text):
        raise ValueError(f'failed to parse int from {text}: strconv.Atoi: parsing "{text}": invalid syntax')
    number = int(text)
    if number < 0:
        raise ValueError(f"negative number ({number}) not allowed: {text}")
    return number
