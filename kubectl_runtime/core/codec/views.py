"""Typed views, records, and smaller stored objects.

`ViewCodec` decodes a top-level key of an object to the type that a resource class declares for it. If the key is absent
or null, the value is the class's default. Without a default, the value is None if the type allows None, otherwise an
empty map, list or record. If the type allows none of these, DecodeError is raised. An empty value may be filled: the
next `replace` sends its new content. Nulls deeper down, where the type does not allow None, count as absent. If a
quantity is declared as text, a number is converted to text.

`Record` is an object as a store holds it: the bytes as received plus a decoded head. Records and heads are immutable,
shared by all readers, and safe to use from any thread. The garbage collector does not track them (`gc=False`): with
tens of thousands of objects its passes would cost more than the decoding. Records and heads cannot be part of a
reference cycle.

`pruned` makes stored objects smaller with a `modify` function. `strip_managed_fields` keeps the bytes without
managedFields; such a record may still replace the whole object, because the server keeps its managedFields when
a write has none. With any other function the result is a partial record of the remaining fields.
"""
from __future__ import annotations

import copy
import typing
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

import msgspec
import msgspec.structs

from kubectl_runtime.core.base.plain import Key, namespace_or_none
from kubectl_runtime.core.base.wire import (
    alternatives,
    converter_of,
    decoder_of,
    hashable,
    is_model,
    is_record_type,
    needs_renaming,
    numbers_as_text,
    with_field_names,
)
from kubectl_runtime.core.codec.lineage import RecordLists
from kubectl_runtime.core.meta.gvk import ApiResource, ObjectRef
from kubectl_runtime.core.meta.metav1 import OwnerReference, ReadOnlyDict
from kubectl_runtime.core.meta.problems import (
    DECODE_FAILURES,
    NOT_ALLOWED,
    DecodeError,
    Problem,
    allowed_at,
    problem_of,
)
from kubectl_runtime.core.meta.selectors import ShardSelector


class Head(msgspec.Struct, frozen=True, gc=False, eq=False, kw_only=True, rename="camel"):
    """The metadata that the library itself uses, decoded once, in the same pass as the event. Other metadata is
    decoded when it is read (`salvage.py`).

    Times stay text as received, because most of them are never read. All readers of an object share its head, so the
    head is read-only.
    """

    name: str = ""
    namespace: str | None = None
    uid: str = ""
    resource_version: str = ""
    generation: int | None = None
    deletion_timestamp: str | None = None
    _labels: dict[str, str] | None = msgspec.field(name="labels", default=None)
    owner_references: tuple[OwnerReference, ...] | None = None
    finalizers: tuple[str, ...] | None = None

    @property
    def labels(self) -> dict[str, str] | None:
        """The object's labels, read-only. They are wrapped on each access, and stored as a plain dict, which the
        garbage collector does not track."""
        return None if self._labels is None else ReadOnlyDict(self._labels)


class Record(msgspec.Struct, frozen=True, gc=False, eq=False):
    """One object of `resource`: its head, and `raw`, its JSON or (`enveloped`) the watch line that carried it.

    `partial`: parts were removed or never requested, so the record must not replace the whole object. `view`: the
    declared fields, if only these are kept; `raw` is then empty. `problem`: why the head could not be decoded; `head`
    then has only the readable fields.
    """

    head: Head
    resource: ApiResource
    raw: bytes
    enveloped: bool = False
    partial: bool = False
    view: Any = None
    problem: Problem | None = None

    @property
    def name(self) -> str:
        """The object's name; empty for an object that has none yet."""
        return self.head.name

    @property
    def namespace(self) -> str | None:
        """The object's namespace; None for a cluster-scoped object."""
        return namespace_or_none(self.head.namespace)

    @property
    def key(self) -> Key:
        """The identity of the object in its kind: namespace and name."""
        head = self.head
        return head.namespace or None, head.name  # `key_of` without the call: this runs several times for each event

    @property
    def uid(self) -> str:
        """The object's uid, which a later object of the same name does not have; empty when it is not known."""
        return self.head.uid

    @property
    def resource_version(self) -> str:
        """The resourceVersion; empty when it is not known."""
        return self.head.resource_version

    @property
    def valid(self) -> bool:
        """Whether the head could be decoded."""
        return self.problem is None

    @property
    def ref(self) -> ObjectRef:
        """The identity of the object: kind, namespace and name."""
        head = self.head
        return ObjectRef(self.resource, head.name, namespace_or_none(head.namespace))

    @property
    def error(self) -> DecodeError | None:
        """A new DecodeError when the head could not be decoded; else None."""
        if self.problem is None:
            return None
        return DecodeError(self.ref, self.problem.path, self.problem.text)

    def __repr__(self) -> str:
        return f"<Record {self.ref} at {self.head.resource_version or 'no version'}>"


Modify: TypeAlias = Callable[[Any], object]
"""A function that changes an object in place; the remaining parts are stored."""


class Prunable(Protocol):
    """An object that can be pruned, such as an instance of any resource class."""

    @property
    def record(self) -> Record | None:
        """The received record; None for an object that this program created."""

    def to_record(self, *, partial: bool = False) -> Record:
        """A record of the current object; `partial` marks that parts were removed."""


def pruned(obj: Prunable, modify: Modify) -> Record:
    """The record of the fields that `modify` leaves in this object. `modify` is not called for an object whose metadata
    did not decode.

    Raises what `modify` raises; the object may then be half changed.
    """
    record = obj.record
    if record is not None and record.problem is not None:
        return record
    if modify is strip_managed_fields:
        return _stripped(obj.to_record())
    modify(obj)
    return obj.to_record(partial=True)


class _Metadata(msgspec.Struct, rename="camel"):
    managed_fields: msgspec.Raw = msgspec.Raw()


class _Prunable(msgspec.Struct):
    metadata: _Metadata


class _Event(msgspec.Struct):
    object: _Prunable


_prunable = decoder_of(_Prunable)
_event = decoder_of(_Event)
_KEY = b'"managedFields":'


def strip_managed_fields(obj: Any) -> Any:
    """Drop the managedFields of stored objects, often half of their metadata; pass this function as `modify=`.

    Your own `modify` function may call this function with the object. Called with a `Record`, it returns a record
    without the bytes of its managedFields (the same record if it has none) and decodes nothing else.

    >>> maps = Api.namespaced(client, ConfigMap, "default")
    >>> with watch_store(maps, modify=strip_managed_fields) as lean:
    ...     lean.wait_until_ready(10)
    ...     lean.get("settings", "default").metadata.managed_fields
    """
    if isinstance(obj, Record):
        return _stripped(obj)
    if obj.metadata.managed_fields is not None:
        obj.metadata.managed_fields = None
    return obj


def _stripped(record: Record) -> Record:
    if record.problem is not None or not record.raw:
        return record
    try:
        found: Any = _event(record.raw).object if record.enveloped else _prunable(record.raw)
    except DECODE_FAILURES:
        return record
    raw = _cut(record.raw, bytes(found.metadata.managed_fields))
    return record if raw is None else msgspec.structs.replace(record, raw=raw)


def _cut(raw: bytes, value: bytes) -> bytes | None:
    """`raw` without `"managedFields":value` and one adjacent comma; None when `raw` does not have exactly this text."""
    member = _KEY + value
    at = raw.find(member)
    if not value or at < 0 or raw.count(b'"managedFields"') > 1:  # with several, it is unclear which one to cut
        return None
    end = at + len(member)
    if raw[at - 1:at] == b",":
        return raw[:at - 1] + raw[end:]
    return raw[:at] + (raw[end + 1:] if raw[end:end + 1] == b"," else raw[end:])


MISSING: Any = msgspec.UNSET
"""Stands for an absent default or value."""


class ViewCodec:
    """Decodes one top-level key of an object, such as `spec`, into its declared type. Immutable once built and safe to
    use from any thread; building takes some µs."""

    def __init__(self, key: str, hint: Any, default: Any = MISSING) -> None:
        """`hint` is the declared type, resolved; `default` the class's default for it."""
        self.key = key
        self.hint = hint
        self.plain_hint = hashable(hint)
        """The hint to pass to `to_plain`, which needs a hashable hint."""
        self.lists = RecordLists.of(hint)
        """The view's lists of records, whose items write-back has to recognize; None when there are none."""
        self._default = default
        self.renames = needs_renaming(hint)
        """Whether msgspec's keys for the type differ from the wire's."""
        decoded = Any if self.renames else hint
        field = ("value", decoded | msgspec.UnsetType | None, msgspec.field(default=msgspec.UNSET, name=key))
        body: Any = msgspec.defstruct("_Body", [field])
        event: Any = msgspec.defstruct("_Event", [("object", body)])
        self._decode_body = decoder_of(body)
        self._decode_event = decoder_of(event)
        self._converted = converter_of(hint)

    def view_of(self, record: Record) -> Any:
        """The view of a received object, new each time. Raises DecodeError."""
        try:
            body = self._decode_event(record.raw).object if record.enveloped else self._decode_body(record.raw)
        except msgspec.ValidationError:
            plain = plain_object(record.raw, record.enveloped, record.ref)
            return self.from_plain(plain.get(self.key, MISSING), record.ref)
        except DECODE_FAILURES as error:
            raise DecodeError(record.ref, *problem_of(error, enveloped=record.enveloped)) from None
        value = body.value
        if value is None or value is MISSING:
            return self.absent(record.ref)
        return self.from_plain(value, record.ref) if self.renames else value

    def is_default(self, view: Any) -> bool:
        """Whether `view` equals the class's default."""
        return type(view) is type(self._default) and bool(view == self._default)

    def from_plain(self, value: Any, ref: ObjectRef | None) -> Any:
        """The view of a plain JSON value. Raises DecodeError."""
        if value is None or value is MISSING:
            return self.absent(ref)
        try:
            return self._convert(value)
        except DECODE_FAILURES:
            return self._convert_without_nulls(value, ref)

    def absent(self, ref: ObjectRef | None) -> Any:
        """The value for a key that is absent or null: a default, None or an empty value. Raises DecodeError when the
        key is required."""
        if self._default is not MISSING:
            return copy.deepcopy(self._default)
        options = alternatives(self.hint)
        if type(None) in options or Any in options or object in options:
            return None
        empty = _empty_value(options[0])
        if empty is MISSING:
            raise DecodeError(ref, f"$.{self.key}", f"$.{self.key} is missing")
        return self._convert_without_nulls(empty, ref)

    def _convert(self, value: Any) -> Any:
        plain = with_field_names(value, self.hint) if self.renames else value
        return self._converted(plain)

    def _convert_without_nulls(self, value: Any, ref: ObjectRef | None) -> Any:
        try:
            return self._convert(numbers_as_text(without_nulls(value), self.hint))
        except DECODE_FAILURES as error:
            path, problem = problem_of(error, at=f"$.{self.key}")
            if problem.endswith(NOT_ALLOWED) and (ref is None or ref.kind != "Secret"):
                problem = f"{path}: {allowed_at(path.removeprefix(f'$.{self.key}'), self.hint, value)}"
            raise DecodeError(ref, path, problem) from None


class _AnyBody(msgspec.Struct):
    object: dict[str, Any]


_decode_any = decoder_of(dict[str, Any])
_decode_any_event = decoder_of(_AnyBody)


def plain_object(raw: bytes, enveloped: bool, ref: ObjectRef | None) -> dict[str, Any]:
    """The whole object as plain JSON values, new each time. Raises DecodeError."""
    try:
        return _decode_any_event(raw).object if enveloped else _decode_any(raw)
    except DECODE_FAILURES as error:
        raise DecodeError(ref, *problem_of(error, enveloped=enveloped)) from None


def without_nulls(value: Any, *, lists: bool = True) -> Any:
    """A copy without the null entries of its maps, at every depth; without `lists` not in the items of lists."""
    if isinstance(value, dict):
        return {key: without_nulls(item, lists=lists) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if lists and isinstance(value, list) else value


def _empty_value(hint: Any) -> Any:
    origin = typing.get_origin(hint) or hint
    if is_record_type(hint) or is_model(hint):
        return {}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {}
    if isinstance(origin, type) and issubclass(origin, list | tuple | set | frozenset):
        return []
    return MISSING


def is_in_shard(shard: ShardSelector | None, record: Record) -> bool:
    """Whether an object is in the ranges of `shard`; True if `shard` is None. Also True if `shard` selects by uid and
    the uid cannot be read: the server, which knows the uid, has sent the object."""
    return shard is None or (not record.uid and shard.by == "uid") or shard.matches(record.uid, record.head.namespace)
