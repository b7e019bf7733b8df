"""What all stages of a stream share: a stage closes its source, in the thread that pulls, whatever ends it."""
from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


class TellingStream(Generator[T]):
    """A stream that also tells any thread what keeps it from going on. Else as the generator that it wraps."""

    def __init__(self, stream: Generator[T]) -> None:
        self._stream = stream
        self.trouble = ""
        """The last failure, as text; empty while all is well. Written by the thread that pulls."""

    def __next__(self) -> T:
        return next(self._stream)

    def send(self, value: None) -> T:
        return self._stream.send(value)

    def throw(self, *error: Any) -> T:
        return self._stream.throw(*error)

    def close(self) -> None:
        """Close it; for the thread that pulls."""
        self._stream.close()


@contextmanager
def closing_source(source: Iterable[Any]) -> Iterator[None]:
    """Close `source` at the end if it can be closed (generators can, lists cannot)."""
    try:
        yield
    finally:
        close = getattr(source, "close", None)
        if close is not None:
            close()
