"""What all stages of a stream share: a stage closes its source, in the thread that pulls, whatever ends it."""
from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def closing_source(source: Iterable[Any]) -> Iterator[None]:
    """Close `source` at the end if it can be closed (generators can, lists cannot)."""
    try:
        yield
    finally:
        close = getattr(source, "close", None)
        if close is not None:
            close()
