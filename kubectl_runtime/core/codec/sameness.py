"""Whether two records of one object at one version say the same: for when a version that is the same proves nothing.

    kept as   compared
    bytes     from `"metadata"` on; if these differ, or other keys come before, decoded without kind and apiVersion
    a view    as JSON

A list's items carry no kind and apiVersion where a watch's objects do, and a watch line has an envelope.
"""
from __future__ import annotations

import re
from typing import Any

import msgspec

from kubectl_runtime.core.base.texts import to_text
from kubectl_runtime.core.codec.jsonvalues import same_json
from kubectl_runtime.core.codec.record import Record
from kubectl_runtime.core.codec.views import plain_object
from kubectl_runtime.core.meta.problems import DecodeError

_S = rb"\s*"
_TYPE = rb'(?:"(?:kind|apiVersion)"%b:%b"[^"\\]*"%b,%b)*' % (_S, _S, _S, _S)
_BARE = re.compile(rb'%b\{%b%b(?="metadata")' % (_S, _S, _TYPE))
_ENVELOPED = re.compile(rb'%b\{%b"type"%b:%b"[A-Z]+"%b,%b"object"%b:%b\{%b%b(?="metadata")' % (*(_S,) * 9, _TYPE))


def same_content(old: Record, new: Record) -> bool:
    """Whether both have the same content. False when one of them cannot be read, unless their bytes are the same."""
    if old.view is not None or new.view is not None:
        return _view_json(old) == _view_json(new)
    before, after = _from_metadata(old), _from_metadata(new)
    if before is not None and before == after:
        return True
    try:
        return same_json(_plain(old), _plain(new))
    except DecodeError:
        return old.raw == new.raw


def _view_json(record: Record) -> bytes | None:
    return None if record.view is None else msgspec.json.encode(record.view, enc_hook=to_text)


def _from_metadata(record: Record) -> bytes | None:
    """The object's bytes from `"metadata"` on; None when it does not begin with that."""
    raw = record.raw
    found = (_ENVELOPED if record.enveloped else _BARE).match(raw)
    if found is None:
        return None
    rest = raw[found.end():].rstrip()
    return rest[:-1].rstrip() if record.enveloped else rest


def _plain(record: Record) -> dict[str, Any]:
    plain = plain_object(record.raw, record.enveloped, record.ref)
    return {key: value for key, value in plain.items() if key not in ("kind", "apiVersion")}
