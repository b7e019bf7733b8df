"""From readers and new objects to what is sent: plain JSON values, then bytes.

What JSON cannot carry, or would carry as something else without a word, raises RequestError with its path: NaN and the
infinities (null), bytes (base64 without a word), times without a time zone, spans of time (`PT5S`). A class that
declares the type of a field says what is meant.
"""
from __future__ import annotations

from collections.abc import Mapping
from datetime import date, time
from typing import Any

import msgspec

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.plain import Omit, finite, to_plain
from kubectl_runtime.core.base.wire import TextValue, check_undeclared
from kubectl_runtime.core.codec.lineage import Kept, Lineage, View
from kubectl_runtime.core.codec.record import Record
from kubectl_runtime.core.codec.views import ViewCodec, plain_object
from kubectl_runtime.core.codec.writeback import ABSENT, SAME, changes, merge
from kubectl_runtime.core.meta.gvk import ApiResource


def encode_plain(content: Any) -> bytes:
    """`content` as JSON. Raises RequestError for values that JSON cannot carry."""
    try:
        _check(content, "$")
        return msgspec.json.encode(content, enc_hook=_known_here)
    except RequestError as error:
        raise RequestError(f"not a JSON value: {error}") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise RequestError(f"not a JSON value: {_fault(content, '$')}{error}") from None


def _known_here(value: Any) -> dict[Any, Any] | str:
    """The `enc_hook` of msgspec: maps that are no dict, such as the labels of an object that was read, as one;
    quantities as their text. Raises TypeError for anything else that msgspec does not know, as a value or as a key."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, TextValue):
        return str(value)
    raise TypeError(f"a {type(value).__name__} is neither a JSON value nor the key of one")


def _fault(content: Any, path: str) -> str:
    """The innermost place that cannot be encoded, for the front of a message; the error itself does not say."""
    parts = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, part in parts:
        try:
            msgspec.json.encode(part, enc_hook=_known_here)
        except RecursionError:
            return ""
        except (TypeError, ValueError):
            return _fault(part, f"{path}.{key}" if isinstance(content, dict) else f"{path}[{key}]")
    return f"{path}: "


def identified(content: dict[str, Any], resource: ApiResource) -> dict[str, Any]:
    """`content` beginning with apiVersion and kind: list items come without, metadata answers under another kind."""
    kind = content.get("kind")
    if kind and content.get("apiVersion") and kind != "PartialObjectMetadata":
        return content
    return {**content, "apiVersion": resource.api_version, "kind": resource.kind}


def _check(value: Any, path: str) -> None:
    """Raises RequestError for what has no plain JSON form below `path`."""
    kind = type(value)
    if kind is dict:
        for key, item in value.items():
            if type(item) not in _ATOMS:
                _check(item, f"{path}.{key}")
    elif kind is list:
        for index, item in enumerate(value):
            if type(item) not in _ATOMS:
                _check(item, f"{path}[{index}]")
    elif kind is float:
        finite(value, path)
    elif kind not in _ATOMS:
        _check_other(value, path)


_ATOMS = frozenset((str, int, bool, type(None)))


def _check_other(value: Any, path: str) -> None:
    """Check a value of another type than JSON's own. Aware times, enums, records and other maps have a form."""
    if isinstance(value, float):
        finite(float(value), path)
    elif isinstance(value, Mapping):
        _check(dict(value), path)
    elif isinstance(value, tuple | set | frozenset):
        _check(list(value), path)
    else:
        check_undeclared(value, path)
        if not isinstance(value, str | int | date | time):
            _check(to_plain(value, path=path), path)


def new_object(resource: ApiResource, views: Mapping[str, Any], codecs: Mapping[str, ViewCodec], *,
               defaults: bool = True) -> dict[str, Any]:
    """A new object of these views; what they leave None, or (with `omit_defaults`) at its default, is not sent.

    Without `defaults` nothing is that equals its class's default, at any depth, whatever the class says.
    """
    omit = Omit.DECLARED if defaults else Omit.DEFAULTS
    content: dict[str, Any] = {"apiVersion": resource.api_version, "kind": resource.kind}
    for key, view in views.items():
        codec = codecs.get(key)
        if view is None or (not defaults and codec is not None and codec.is_default(view)):
            continue
        content[key] = to_plain(view, Any if codec is None else codec.plain_hint, omit=omit, path=f"$.{key}")
    return content


def written_back(record: Record, codecs: Mapping[str, ViewCodec], views: Mapping[str, Any],
                 plain: dict[str, Any] | None, kept: Mapping[str, Kept]) -> dict[str, Any]:
    """The received object plus what changed in a reader's typed views and in his plain form. Raises WriteBackError.

    `kept`: for a view that was decoded, the items of its lists as they were then.
    """
    received = identified(plain_object(record.raw, record.enveloped, record.ref), record.resource)
    if not views and plain is None:
        return received
    content = dict(received)
    rearranged: list[list[Any]] = []
    for key, view in views.items():
        merged = _merged_view(received.get(key, ABSENT), view, codecs[key], record, kept.get(key), rearranged)
        if merged is ABSENT:
            content.pop(key, None)
        else:
            content[key] = merged
    if plain is None:
        return content
    lineage = Lineage(rearranged=rearranged, of_plain=True)
    merged_plain: dict[str, Any] = merge(content, received, plain, lineage=lineage)
    return merged_plain


def _merged_view(received: Any, view: Any, codec: ViewCodec, record: Record, kept: Kept | None,
                 rearranged: list[list[Any]]) -> Any:
    if view is None:
        return ABSENT if received is not None else None
    base = codec.view_of(record)
    path = f"$.{codec.key}"
    in_place = codec.lists is None or kept is None or codec.lists.are_in_place(kept, view)
    only = changes(base, view, in_place=kept is not None) if in_place and not codec.renames else None
    if only == SAME:
        return received
    shown = ABSENT if base is None else to_plain(base, codec.plain_hint, only=only)
    now = to_plain(view, codec.plain_hint, path=path, only=only)
    lineage = Lineage() if kept is None or codec.lists is None else codec.lists.lineage(
        None if in_place else kept, View(base, shown), View(view, now))
    merged = merge(received, shown, now, path, codec.hint, lineage)
    rearranged += lineage.rearranged
    return merged
