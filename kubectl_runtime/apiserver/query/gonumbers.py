"""Whole numbers in queries and labels as the real server reads them: 64 bits, decimal, no spaces."""

from __future__ import annotations

import re

from kubectl_runtime.apiserver.errors import go_value

_LONGEST = 20  # digits that a number of 64 bits can have, so that no endless text is converted


def parse_int(text: str) -> int:
    """A signed number; ValueError with the real server's words if it is none."""
    return _parse("ParseInt", r"[+-]?[0-9]+", text, -(1 << 63), (1 << 63) - 1)


def parse_uint(text: str) -> int:
    """A number without sign, such as a resourceVersion; ValueError with the real server's words if it is none."""
    return _parse("ParseUint", r"[0-9]+", text, 0, (1 << 64) - 1)


def _parse(function: str, pattern: str, text: str, lowest: int, highest: int) -> int:
    why = "invalid syntax"
    if re.fullmatch(pattern, text):
        sign, digits = ("-" if text.startswith("-") else ""), text.lstrip("+-").lstrip("0") or "0"
        if len(digits) <= _LONGEST and lowest <= (number := int(sign + digits)) <= highest:
            return number
        why = "value out of range"
    raise ValueError(f"strconv.{function}: parsing {go_value(text)}: {why}")
