"""From readers and new objects to what is sent: plain JSON values, then bytes."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.wire import to_plain
from kubectl_runtime.core.codec.record import Record
from kubectl_runtime.core.codec.views import ViewCodec, plain_object
from kubectl_runtime.core.codec.writeback import ABSENT, merge
from kubectl_runtime.core.meta.gvk import ApiResource


def encode_plain(content: Any) -> bytes:
    """`content` as JSON. Raises RequestError for values that JSON cannot carry."""
    try:
        return msgspec.json.encode(content)
    except (TypeError, ValueError, RecursionError) as error:
        raise RequestError(f"not a JSON value: {error}") from None


def identified(content: dict[str, Any], resource: ApiResource) -> dict[str, Any]:
    """`content` beginning with apiVersion and kind: list items come without, metadata answers under another kind."""
    kind = content.get("kind")
    if kind and content.get("apiVersion") and kind != "PartialObjectMetadata":
        return content
    return {**content, "apiVersion": resource.api_version, "kind": resource.kind}


def new_object(resource: ApiResource, views: Mapping[str, Any]) -> dict[str, Any]:
    """A new object of these views; what they leave None, or (with `omit_defaults`) at its default, is not sent."""
    content = {key: to_plain(view, sparse=True) for key, view in views.items() if view is not None}
    return {"apiVersion": resource.api_version, "kind": resource.kind, **content}


def written_back(record: Record, codecs: Mapping[str, ViewCodec], views: Mapping[str, Any],
                 plain: dict[str, Any] | None) -> dict[str, Any]:
    """The received object plus what changed in a reader's typed views and in his plain form. Raises WriteBackError."""
    received = identified(plain_object(record.raw, record.enveloped, record.ref), record.resource)
    content = dict(received)
    for key, view in views.items():
        merged = _merged_view(received.get(key, ABSENT), view, codecs[key], record)
        if merged is ABSENT:
            content.pop(key, None)
        else:
            content[key] = merged
    if plain is None:
        return content
    merged_plain: dict[str, Any] = merge(content, received, plain)
    return merged_plain


def _merged_view(received: Any, view: Any, codec: ViewCodec, record: Record) -> Any:
    if view is None:
        return ABSENT if received is not None else None
    base = codec.view_of(record)
    shown = ABSENT if base is None else to_plain(base)
    return merge(received, shown, to_plain(view), f"$.{codec.key}", codec.hint)
