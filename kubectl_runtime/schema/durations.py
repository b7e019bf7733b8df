"""Durations as the API server's schemas know them: Go's notation (``1h30m``, ``-1.5s``) and one number with the name of
its unit (``3 days``), as go-openapi's `strfmt.ParseDuration` reads them.
"""

from __future__ import annotations

import re
from datetime import timedelta

from kubectl_runtime.core.meta.godurations import GoDuration, nanoseconds_of

_NAMED = re.compile(r"(\d+)\s*([A-Za-z]+)")
_NAMES = {name: amount for names, amount in (
    ("ns nano nanosecond nanos nanoseconds", 0.001), ("us micro micros microsecond microseconds", 1),
    ("ms milli millis millisecond milliseconds", 1e3), ("s sec secs second seconds", 6e7 / 60),
    ("m min mins minute minutes", 6e7), ("h hr hrs hour hours", 3.6e9), ("d day days", 8.64e10),
    ("w wk wks week weeks", 6.048e11)) for name in names.split()}


def parse_duration(text: str) -> timedelta:
    """The duration that a text names, to the microsecond. Raises ValueError for any other text."""
    try:
        return GoDuration(nanoseconds_of(text)).timedelta
    except ValueError:
        pass  # perhaps one with a name
    named = _NAMED.fullmatch(text)
    if named and named[2].lower() in _NAMES:
        return timedelta(microseconds=int(named[1]) * _NAMES[named[2].lower()])
    raise ValueError(f"{text!r} is not a duration such as 1h30m")
