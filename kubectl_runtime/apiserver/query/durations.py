"""Durations in Go's notation (``1h30m``, ``1.5s``): whether a text is one, in the words of Go's parser."""

from __future__ import annotations

from kubectl_runtime.core.meta.godurations import nanoseconds_of


def duration_error(text: str) -> str:
    """What is wrong with a duration; "" if nothing is."""
    try:
        nanoseconds_of(text)
    except ValueError as error:
        return str(error)
    return ""
