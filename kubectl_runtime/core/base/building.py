"""The one way in which types meet msgspec: `decoder_of` and `converter_of` look at a type, one thread at a time;
`decoded` and `converted` keep what they made of each.

    decoder_of(kind)        at the top of a module, or kept by an object
    decoded(body, kind)     where it is seldom needed
    converter_of(kind), converted(value, kind)     the same for plain values

msgspec looks at the annotations of a Struct when a decoder first meets it, and keeps what it finds on the class while
it is still looking. The annotations are evaluated in Python, which may import a module, so other threads run meanwhile;
one that makes a decoder of the same class then finds it half done, and the process ends with a segmentation fault
(msgspec 0.20 to 0.22). Workers that read `spec` of a kind for the first time do just that, all at once.

The lock is held while annotations are evaluated, which are the user's. So it is reentrant, and nobody waits for it
longer than `LONGEST`: an annotation that waits for another thread delays that one, no more.
"""
from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias, TypeVar

import msgspec

from kubectl_runtime.core.base.texts import from_text
from kubectl_runtime.core.interpreter.forks import renewed_in_children

T = TypeVar("T")
Encoded: TypeAlias = bytes | bytearray | memoryview | str | msgspec.Raw
"""JSON."""

LONGEST = 10.0
"""Seconds; all the types of a Pod take 0.1."""


class _Building:
    """Who builds."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        renewed_in_children(self)

    def renew(self) -> None:
        """Be free of whoever builds. For the child of a fork alone."""
        self._lock = threading.RLock()

    @contextmanager
    def alone(self) -> Iterator[None]:
        lock = self._lock
        held = lock.acquire(timeout=LONGEST)
        try:
            yield
        finally:
            if held:
                lock.release()


_building = _Building()


def decoder_of(kind: type[T], *, strict: bool = True) -> Callable[[Encoded], T]:
    """The `decode` of a new decoder of JSON for this type. Safe from any thread; blocks while another one builds.

    Raises TypeError for a type that msgspec does not know, and what its annotations raise.
    """
    with _building.alone():
        return msgspec.json.Decoder(kind, dec_hook=from_text, strict=strict).decode


def converter_of(kind: type[T]) -> Callable[[Any], T]:
    """As `decoder_of`, for plain values."""
    decoder_of(kind)
    return partial(msgspec.convert, type=kind, dec_hook=from_text)


_decoders: dict[type, Callable[[Encoded], Any]] = {}
_converters: dict[type, Callable[[Any], Any]] = {}


def decoded(body: Encoded, kind: type[T]) -> T:
    """As `msgspec.json.decode(body, type=kind)`, for types of this library. Safe from any thread."""
    decode = _decoders.get(kind) or _decoders.setdefault(kind, decoder_of(kind))
    found: T = decode(body)
    return found


def converted(value: Any, kind: type[T]) -> T:
    """As `msgspec.convert(value, kind)`, for types of this library. Safe from any thread."""
    convert = _converters.get(kind) or _converters.setdefault(kind, converter_of(kind))
    found: T = convert(value)
    return found
