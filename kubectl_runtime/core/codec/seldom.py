"""Metadata that is decoded when it is read, from the bytes of the object: few programs look at it, and in a store of
20,000 Pods it would take 9 MiB.

    seldom_of(record)                  -> Seldom
    initial_events_end(line)           whether a bookmark ends the initial events of a streaming list

Nulls where a value is expected count as absent.
"""
from __future__ import annotations

import msgspec

from kubectl_runtime.core.base.building import converted, decoder_of
from kubectl_runtime.core.codec import salvage
from kubectl_runtime.core.codec.record import Record
from kubectl_runtime.core.codec.views import without_nulls
from kubectl_runtime.core.meta.problems import DECODE_FAILURES, DecodeError, is_no_utf8, problem_of

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
"""The annotation of the bookmark that ends the initial events of a streaming list."""


class Seldom(msgspec.Struct, frozen=True, rename="camel"):
    """What is not in the head of a record. The time stays text as received."""

    creation_timestamp: str | None = None
    annotations: dict[str, str] | None = None
    generate_name: str | None = None


class _Object(msgspec.Struct):
    metadata: Seldom | None = None


class _Event(msgspec.Struct):
    object: _Object


_NOTHING = Seldom()
_object = decoder_of(_Object)
_event = decoder_of(_Event)


def seldom_of(record: Record) -> Seldom:
    """What the bytes of `record` say, decoded again each time, in about 2 µs. Raises DecodeError."""
    try:
        return _read(record.raw, record.enveloped)
    except DECODE_FAILURES as error:
        raise DecodeError(record.ref, *problem_of(error, enveloped=record.enveloped)) from None


def initial_events_end(line: bytes) -> bool:
    """Of the line of a bookmark. One that cannot be read says no."""
    try:
        found = _read(line, True)
    except DECODE_FAILURES:
        return False
    return (found.annotations or {}).get(INITIAL_EVENTS_END) == "true"


def _read(raw: bytes, enveloped: bool) -> Seldom:
    try:
        return (_event(raw).object.metadata if enveloped else _object(raw).metadata) or _NOTHING
    except DECODE_FAILURES as error:
        if is_no_utf8(error):
            raise  # a text in which something is replaced is another text
        try:
            return converted(without_nulls(salvage.metadata(raw, enveloped=enveloped)), Seldom)
        except DECODE_FAILURES:
            raise error from None
