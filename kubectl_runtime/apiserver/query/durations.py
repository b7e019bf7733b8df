"""Durations in Go's notation (``1h30m``, ``1.5s``): whether a text is one, in the words of Go's parser."""

from __future__ import annotations

import re

from kubectl_runtime.apiserver.errors import go_value

_PART = re.compile(r"(\d+\.?\d*|\.\d+)([^\d.]*)")
_UNITS = ("ns", "us", "\u00b5s", "\u03bcs", "ms", "s", "m", "h")


def duration_error(text: str) -> str:
    """What is wrong with a duration; "" if nothing is. Its size is not looked at."""
    rest = text[1:] if text[:1] in ("-", "+") else text
    if rest == "0":
        return ""
    if not rest:
        return f"time: invalid duration {go_value(text)}"
    while rest:
        part = _PART.match(rest)
        if part is None:
            return f"time: invalid duration {go_value(text)}"
        unit = part[2]
        if not unit:
            return f"time: missing unit in duration {go_value(text)}"
        if unit not in _UNITS:
            return f"time: unknown unit {go_value(unit)} in duration {go_value(text)}"
        rest = rest[part.end():]
    return ""
