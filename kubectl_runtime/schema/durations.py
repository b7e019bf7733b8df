"""Durations as the API server's schemas know them: Go's notation (``1h30m``, ``-1.5s``) and a number with the name of
its unit (``3 days``), as go-openapi's `strfmt.ParseDuration` reads them.
"""

from __future__ import annotations

import re
from datetime import timedelta

from kubectl_runtime.core.meta.godurations import GoDuration, nanoseconds_of

_NAMED = re.compile("(?<!\\d)(\\d+)\\s*([A-Za-z\u00b5]+)")
_UNITS = (("ns nano", 0.001), ("us \u00b5s micro", 1), ("ms milli", 1e3), ("s sec", 1e6), ("m min", 6e7),
          ("h hr hour", 3.6e9), ("d day", 8.64e10), ("w wk week", 6.048e11))
"""Names, and microseconds; whatever begins with the last of the names is one, too."""


def parse_duration(text: str, *, anywhere: bool = False) -> timedelta:
    """The duration that a text names, to the microsecond. Raises ValueError for any other text.

    The server adds up whatever it finds `anywhere` in a text (``PT1H`` is an hour); without it the text is one number.
    """
    try:
        return GoDuration(nanoseconds_of(text)).timedelta
    except ValueError:
        pass  # perhaps one with a name
    try:
        found = [int(number) * amount for number, name in _NAMED.findall(text) if (amount := _amount(name.lower()))]
        if found and (anywhere or _NAMED.fullmatch(text)):
            return timedelta(microseconds=sum(found))
    except OverflowError:
        pass  # longer than anything that is a duration
    raise ValueError(f"{text!r} is not a duration such as 1h30m")


def _amount(name: str) -> float:
    return next((amount for names, amount in _UNITS
                 if name in names.split() or name.startswith(names.rpartition(" ")[2])), 0)
