"""Reads parts of JSON that does not decode: the identity of the object, and the beginning and end of a page's items.

Salvaging is slow, and is only used after msgspec has failed. It raises nothing for bad input, and has no nesting limit.

`seldom_of` decodes rarely used metadata from the bytes when a program reads it: few programs do, and in a store of
20,000 Pods this metadata would take 9 MiB. `initial_events_end` says whether a bookmark ends the initial events of a
streaming list. Nulls where a value is expected count as absent.
"""
from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from kubectl_runtime.core.base.wire import converted, decoded, decoder_of
from kubectl_runtime.core.codec.views import Head, Record, without_nulls
from kubectl_runtime.core.meta.problems import DECODE_FAILURES, DecodeError, is_no_utf8, problem_of


class _Object(msgspec.Struct):
    metadata: Any = None


class _Event(msgspec.Struct):
    type: Any = None
    object: _Object | None = None


_S = rb'\s*'
_TEXT = rb'"(?:[^"\\]|\\.)*"'
_BEFORE_METADATA = rb'(?:"(?:kind|apiVersion)"%b:%b%b%b,%b)*"metadata"%b:%b' % (_S, _S, _TEXT, _S, _S, _S, _S)
_METADATA = rb'%b\{%b%b' % (_S, _S, _BEFORE_METADATA)
_EVENT_TYPE = rb'%b\{%b"type"%b:%b"([A-Z]+)"' % (_S, _S, _S, _S)
_EVENT_METADATA = _EVENT_TYPE + rb'%b,%b"object"%b:%b\{%b%b' % (_S, _S, _S, _S, _S, _BEFORE_METADATA)
_TOKEN = rb'"(?:[^"\\]|\\.)*"?|[\[\]{},]'  # an unterminated string is one token, its escaped quotes included
_ITEMS = rb'"items"%b:%b\[' % (_S, _S)
# `re` compiles and caches these patterns when they are first used, which happens only for broken data.


def event_type(line: bytes) -> str | None:
    """The type of a watch line; None when it has none."""
    try:
        found = decoded(line, _Event).type
    except DECODE_FAILURES:
        match = re.match(_EVENT_TYPE, line)
        found = match[1].decode() if match else None
    return found if isinstance(found, str) else None


def metadata(raw: bytes, *, enveloped: bool) -> Any:
    """The plain `metadata` of an object, or of the object in a watch line; None if there is no metadata. Invalid UTF-8
    becomes U+FFFD."""
    text = raw.decode("utf-8", "replace")
    try:
        if enveloped:
            found = decoded(text, _Event).object
            return found.metadata if found else None
        return decoded(text, _Object).metadata
    except DECODE_FAILURES:
        return _leading_metadata(raw, _EVENT_METADATA if enveloped else _METADATA)


def whole(raw: bytes) -> Any:
    """The plain form of an object; None if the bytes do not decode."""
    try:
        return decoded(raw, dict)
    except DECODE_FAILURES:
        return None


def _leading_metadata(raw: bytes, pattern: bytes) -> Any:
    """The metadata, read at the place where API servers write it, before the part that cannot be parsed."""
    found = re.match(pattern, raw)
    if not found:
        return None
    try:
        return json.JSONDecoder().raw_decode(raw[found.end():].decode("utf-8", "replace"))[0]
    except (ValueError, RecursionError):
        return None


def head(raw: bytes, *, enveloped: bool) -> Head:
    """The names and versions that can be read; other fields are empty."""
    found = metadata(raw, enveloped=enveloped)
    fields = found if isinstance(found, dict) else {}

    def text(key: str) -> str:
        value = fields.get(key)
        return value if isinstance(value, str) else ""

    return Head(name=text("name"), namespace=text("namespace") or None, uid=text("uid"),
                resource_version=text("resourceVersion"))


def split_page(page: bytes) -> tuple[bytes, list[bytes]] | None:
    """Split a list page, by counting brackets. Returns the page without its items, and the bytes of each item.

    None when there is no `items` list or the list does not end.
    """
    begin = _items_begin(page)
    if begin is None:
        return None
    items: list[bytes] = []
    depth, start = 0, begin
    for token in re.compile(_TOKEN).finditer(page, begin):
        mark = token[0]
        if depth == 0 and mark in (b",", b"]"):
            if piece := page[start:token.start()].strip():
                items.append(piece)
            start = token.end()
            if mark == b"]":
                return page[:begin] + page[token.start():], items
        elif mark in (b"[", b"{"):
            depth += 1
        elif mark in (b"]", b"}"):
            depth -= 1
    return None


def _items_begin(page: bytes) -> int | None:
    """The index after the bracket that begins the top-level list `items`."""
    depth = 0
    for token in re.compile(_TOKEN).finditer(page):
        mark = token[0]
        if mark in (b"[", b"{"):
            depth += 1
        elif mark in (b"]", b"}"):
            depth -= 1
        elif depth == 1 and mark == b'"items"' and (found := re.compile(_ITEMS).match(page, token.start())):
            return found.end()
    return None


INITIAL_EVENTS_END = "k8s.io/initial-events-end"
"""The annotation of the bookmark that ends the initial events of a streaming list."""


class Seldom(msgspec.Struct, frozen=True, rename="camel"):
    """The metadata fields that are not in a record's head. The timestamp stays text, as received."""

    creation_timestamp: str | None = None
    annotations: dict[str, str] | None = None
    generate_name: str | None = None


class _Rare(msgspec.Struct):
    metadata: Seldom | None = None


class _RareEvent(msgspec.Struct):
    object: _Rare


_NOTHING = Seldom()
_rare = decoder_of(_Rare)
_rare_event = decoder_of(_RareEvent)


def seldom_of(record: Record) -> Seldom:
    """The rare metadata of `record`, decoded again each time, in about 2 µs. Raises DecodeError."""
    try:
        return _read(record.raw, record.enveloped)
    except DECODE_FAILURES as error:
        raise DecodeError(record.ref, *problem_of(error, enveloped=record.enveloped)) from None


def initial_events_end(line: bytes) -> bool:
    """Whether the line is the bookmark that ends the initial events. False for a line that cannot be read."""
    try:
        found = _read(line, True)
    except DECODE_FAILURES:
        return False
    return (found.annotations or {}).get(INITIAL_EVENTS_END) == "true"


def _read(raw: bytes, enveloped: bool) -> Seldom:
    try:
        return (_rare_event(raw).object.metadata if enveloped else _rare(raw).metadata) or _NOTHING
    except DECODE_FAILURES as error:
        if is_no_utf8(error):
            raise  # replacing the undecodable characters would change the value
        try:
            return converted(without_nulls(metadata(raw, enveloped=enveloped)), Seldom)
        except DECODE_FAILURES:
            raise error from None
