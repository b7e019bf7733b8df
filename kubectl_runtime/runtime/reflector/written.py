"""What a write of this process looks like in a store: the store's selection, form and `modify` are applied to it.

    write                                          entry
    of another kind, version or place              none
    deleted, or its last finalizer removed         gone
    labels or fields that do not match             hidden
    selection that cannot be judged here           unknown
    content that is not in the answer              unknown (a scale; metadata alone, for a store of whole objects)
    else                                           shown

`modify` is user code: it is called here, in the thread that wrote, without a lock. Field selectors are the server's to
judge, kind by kind: here only name, namespace, and texts that stand in the object are compared.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from kubectl_runtime.core.base.building import decoder_of
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.keys import namespace_or_none
from kubectl_runtime.core.codec.decode import decode_object
from kubectl_runtime.core.codec.record import Record
from kubectl_runtime.core.meta.problems import DECODE_FAILURES
from kubectl_runtime.core.meta.refs import ObjectRef
from kubectl_runtime.core.meta.selectors import Selector
from kubectl_runtime.core.objects.partial import FieldsForm
from kubectl_runtime.runtime.reflector.overlay import Own
from kubectl_runtime.runtime.watcher.event import Apply, obj_of
from kubectl_runtime.runtime.watcher.readers import Modifier
from kubectl_runtime.runtime.watcher.watch_api import WatchApi
from kubectl_runtime.runtime.watcher.watcher_config import WatcherConfig

if TYPE_CHECKING:
    from kubectl_runtime.client.api.writes import Write


class _Grace(msgspec.Struct, rename="camel"):
    deletion_grace_period_seconds: int | None = None


class _Graceful(msgspec.Struct):
    metadata: _Grace


class _Whole(msgspec.Struct):
    metadata: msgspec.Raw


_graceful = decoder_of(_Graceful)
_whole = decoder_of(_Whole)


class Written:
    """Decides what the writes of this process mean for one store. Safe to use from any thread."""

    def __init__(self, api: WatchApi[Any], config: WatcherConfig, modify: Modifier | None) -> None:
        self._resource = api.resource
        self._namespace = namespace_or_none(api.namespace)
        self._form: Any = getattr(api, "form", None)
        self.metadata_only = bool(getattr(getattr(api, "place", None), "metadata_only", False))
        self._labels = _selector(config.label_text)
        self._fields = config.field_text
        self._modify = modify

    def is_about(self, ref: ObjectRef) -> bool:
        """Whether the store could hold the object with this ref, as far as kind and place go."""
        own, resource = self._resource, ref.resource
        return (ref.kind == own.kind and ref.group == own.group and resource.version == own.version
                and (self._namespace is None or ref.namespace == self._namespace))

    def entry(self, write: Write) -> Own | None:
        """What the store has to know of `write`; None when it is none of its objects. Raises nothing."""
        if not self.is_about(write.ref):
            return None
        record = write.record
        if record is None:
            gone = write.verb == "delete" and write.subresource is None
            return Own(write.uid, write.resource_version, known=gone, gone=gone)
        if record.problem is not None:
            return Own(record.uid, record.resource_version, known=False)
        if _is_gone(write.verb, write.subresource, record):
            return Own(record.uid, record.resource_version, gone=True)
        return self.present(record)

    def present(self, record: Record) -> Own:
        """The entry of an object that exists so."""
        selected = self._selects(record)
        uid, version = record.uid, record.resource_version
        if selected is False:
            return Own(uid, version)
        kept = self._in_form(record) if selected else None
        if kept is None:
            return Own(uid, version, known=False, last=record if selected else None)
        if self._modify is not None:
            kept = obj_of(self._modify(Apply(kept)))
        return Own(uid, version, kept, last=kept)

    def _selects(self, record: Record) -> bool | None:
        """Whether the store's selectors match; None when that cannot be told."""
        labels = self._labels
        if labels is None:
            return None
        if not labels.matches(record.head.labels):
            return False
        return self._fields is None or _matches_fields(self._fields, record)

    def _in_form(self, record: Record) -> Record | None:
        """The object as the store keeps objects; None when it cannot be made from the answer."""
        form = self._form
        if isinstance(form, FieldsForm):
            if record.view is not None:
                return record if isinstance(record.view, form.view) else None
            if record.partial or record.enveloped:
                return None
            found = form.decode_object(record.raw)
            return found if found.problem is None else None
        if record.view is not None:
            return None
        if self.metadata_only:
            return record if record.partial else _metadata_alone(record)
        return None if record.partial else record


def _selector(text: str | None) -> Selector | None:
    """None for one that only the server understands."""
    try:
        return Selector.of(text)
    except RequestError:
        return None


def _is_gone(verb: str, subresource: str | None, record: Record) -> bool:
    """Whether the object is no more, though it was answered: it was deleted, and nothing holds it.

    A server that waits for finalizers alone writes a grace period of 0; a Namespace, which waits for its content, has
    none.
    """
    head = record.head
    if head.finalizers:
        return False
    if head.deletion_timestamp is None:
        return verb == "delete" and subresource is None
    try:
        return bool(_graceful(record.raw).metadata.deletion_grace_period_seconds == 0)
    except DECODE_FAILURES:
        return False


def _matches_fields(text: str, record: Record) -> bool | None:
    """Whether a field selector matches; None where only the server knows."""
    if "\\" in text or "!=" in text:
        return None
    verdict: bool | None = True
    for part in text.split(","):
        path, _, wanted = part.partition("=")
        found = _field(path.strip(), record)
        if found is None:
            verdict = None
        elif found != wanted.removeprefix("=").strip():
            return False
    return verdict


def _field(path: str, record: Record) -> str | None:
    if path == "metadata.name":
        return record.head.name
    if path == "metadata.namespace":
        return record.head.namespace or ""
    try:
        value: Any = msgspec.json.decode(record.raw) if record.raw and not record.partial else None
    except DECODE_FAILURES:
        return None
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, str) else None


def _metadata_alone(record: Record) -> Record | None:
    """The object as a server sends it when only its metadata is asked for."""
    try:
        metadata = _whole(record.raw).metadata
    except DECODE_FAILURES:
        return None
    raw = msgspec.json.encode({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
    kept = decode_object(raw, record.resource)
    return Record(kept.head, kept.resource, kept.raw, partial=True, problem=kept.problem)
