"""From bytes to records, and from values to bytes.

    decode_object(raw, resource)   -> Record
    decode_event(line, resource)   -> ("ADDED" | "MODIFIED" | "DELETED", Record)  the record keeps the line
                                      ("BOOKMARK", Bookmark)  ("ERROR", Status)
                                      (any other type, Record), or (any other type, None) if the line has no object
                                      with a name
    decode_list(page, resource)    -> (ListMeta, list[Record])                    items are copied out of the page

msgspec decodes only the head of an object, in one pass; the bytes are kept. If the head cannot be decoded, the record
has a `problem` and the readable names (`core.codec.salvage`), so that a bad object does not end a list or watch.
DecodeError is raised only when not even the object's name can be read, or the bytes are not a list at all. Nulls where
a value is expected count as absent.

`head_of` cuts off the rest of the object, since msgspec needs as much time to skip it as to decode the head. In an
object of a built-in kind the API server writes managedFields as the last key of the metadata, then spec and status. The
cut begins at managedFields if their list ends the metadata and another key follows. To find this out without decoding,
`head_of` looks at the first `]` of the list: no `[` may stand before it, and `},"` and a letter must follow it. Such a
bracket ends the list for certain: inside a string, the quote after the bracket would end the string, and no letter
could follow. The decoder checks the closing braces that are appended, and fails if they are wrong. The part after the
cut is not checked until it is read: broken JSON in a spec is an error for the spec's reader. Custom resources have
sorted metadata, with more keys behind managedFields, so all of their bytes are decoded.

`share` makes heads share equal parts: the Pods of a ReplicaSet have the same owner and labels. `share` takes about a µs
and saves about 0.7 KB per Pod. It remembers only recent parts (`REMEMBERED`), which is enough because a list is sorted
by name, so that objects of one owner are neighbours.

Encoding raises RequestError with the path for values that JSON cannot carry or would silently change: NaN and the
infinities (null), bytes (base64), times without a time zone, spans of time (`PT5S`). If a field's type is declared, the
type decides the JSON form.

`same_content` compares two records of one object with equal resourceVersions, for cases where equal versions do not
prove equal content. It first compares the bytes from `"metadata"` on, since a list's items lack kind and apiVersion and
a watch line has an envelope. If these bytes differ, or other keys come before the metadata, it compares the decoded
objects, without kind and apiVersion. Views are compared as JSON.

Python's ``==`` is wrong for JSON (1 == True). Copies and equality use the encoded text: encoding and decoding by
msgspec is several times faster than a walk in Python.
"""
from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, time
from functools import lru_cache, wraps
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar

import msgspec
from msgspec.structs import force_setattr

from kubectl_runtime.core.base.errors import RequestError, Status
from kubectl_runtime.core.base.plain import Omit, finite, to_plain
from kubectl_runtime.core.base.wire import TextValue, check_undeclared, converted, decoder_of, to_text
from kubectl_runtime.core.codec import salvage
from kubectl_runtime.core.codec.lineage import Kept, Lineage, View
from kubectl_runtime.core.codec.salvage import initial_events_end
from kubectl_runtime.core.codec.views import Head, Record, ViewCodec, plain_object
from kubectl_runtime.core.codec.writeback import ABSENT, SAME, changes, merge
from kubectl_runtime.core.meta.gvk import ApiResource
from kubectl_runtime.core.meta.metav1 import ListMeta, ReadOnlyDict
from kubectl_runtime.core.meta.problems import DECODE_FAILURES, DecodeError, Problem, is_no_utf8, problem_of

LONG = 2048
"""The size in bytes at which cutting begins to pay off."""

_KEY = b',"managedFields":['
_END = b']},"'

MOST_REMEMBERED = 1000
"""The number of values that `remembers_good` remembers for each check."""

_encode = msgspec.json.Encoder().encode
_encode_sorted = msgspec.json.Encoder(order="sorted").encode
_decode = msgspec.json.Decoder().decode

P = ParamSpec("P")
T = TypeVar("T")


def head_of(raw: bytes, resource: ApiResource, braces: bytes = b"}}") -> bytes:
    """The head of an object, as JSON. `braces` closes the metadata and what contains it: two braces, or three for a
    watch line."""
    if len(raw) < LONG or "." in resource.group:
        return raw
    begin = raw.find(_KEY)
    while begin >= 0:
        end = raw.find(b"]", begin)
        if end < 0:
            return raw
        if raw.startswith(_END, end) and raw[end + len(_END):end + len(_END) + 1].isalpha():
            return raw if raw.find(b"[", begin + len(_KEY), end) >= 0 else raw[:begin] + braces
        begin = raw.find(_KEY, end)  # a key before this bracket is inside the list that the bracket ends
    return raw


class Bookmark(msgspec.Struct, frozen=True, gc=False):
    """A version that the watch has reached, without an object."""

    resource_version: str
    initial_events_end: bool = False


Carried: TypeAlias = Record | Bookmark | Status | None
"""The content of a watch event; its class depends on the event's type."""

_CHANGES = frozenset(("ADDED", "MODIFIED", "DELETED"))


class _Object(msgspec.Struct, gc=False):
    metadata: Head | None = None


class _Named(msgspec.Struct, gc=False):
    metadata: Head = Head()


class _Event(msgspec.Struct, gc=False):
    type: str
    object: _Named


class _ErrorEvent(msgspec.Struct, gc=False):
    object: Status


class _Page(msgspec.Struct, gc=False):
    kind: str | None = None
    metadata: ListMeta | None = None
    items: list[msgspec.Raw] | msgspec.UnsetType | None = msgspec.UNSET


_object = decoder_of(_Object)
_event = decoder_of(_Event)
_error_event = decoder_of(_ErrorEvent, strict=False)  # servers may send a Status's `code` as text
_page = decoder_of(_Page)


def decode_object(raw: bytes, resource: ApiResource, *, named: bool = True) -> Record:
    """The record of one object's JSON; the record keeps `raw`. Raises DecodeError when the object cannot be identified.

    If `named`, the object must have a name, as every stored object has. Reviews have no name, and neither does a new
    object with a generateName.
    """
    try:
        # If `head_of` cut off the real metadata, the head has no name, and `_invalid` decodes all bytes.
        head = _object(head_of(raw, resource) if named else raw).metadata or _NO_HEAD
        if head.name or not named:
            return Record(head, resource, raw)
        failure: Exception = _NAMELESS
    except DECODE_FAILURES as error:
        failure = error
    return _invalid(raw, resource, failure, enveloped=False, named=named)


def decode_event(line: bytes, resource: ApiResource) -> tuple[str, Carried]:
    """The type of a watch event and its content: a Bookmark for `BOOKMARK`, a Status for `ERROR`; for any other
    type, a record that keeps `line`.

    The content is None if Kubernetes does not define the type (yet) and the metadata of the object cannot be decoded.
    Raises DecodeError when the line is not a watch event, when the object in an event of a known type cannot be
    identified, and when the Status of an `ERROR` cannot be decoded.
    """
    try:
        event = _event(head_of(line, resource, b"}}}"))
        head = event.object.metadata
        if event.type == "BOOKMARK":
            return event.type, _bookmark(head, line)
        if head.name and event.type != "ERROR":
            return event.type, Record(head, resource, line, True)
        failure: Exception = _NAMELESS
    except DECODE_FAILURES as error:
        failure = error
    return _unusual_event(line, resource, failure)


def decode_list(page: bytes, resource: ApiResource) -> tuple[ListMeta, list[Record]]:
    """One page of a list: its metadata and a record for each item. Raises DecodeError when `page` is not a list."""
    metadata, items = split_page(page, resource)
    return metadata, [decode_object(bytes(item), resource) for item in items]


def split_page(page: bytes, resource: ApiResource) -> tuple[ListMeta, Sequence[bytes | msgspec.Raw]]:
    """The metadata of a list page and its items. Copy an item before you keep it: a `msgspec.Raw` keeps the whole page.
    """
    try:
        found = _page(page)
    except DECODE_FAILURES as error:
        return _broken_page(page, resource, error)
    if found.items is msgspec.UNSET:
        # The API server always sends items; other servers may omit an empty list. JSON that is not a list also lacks
        # items. It must not count as an empty list, which would mean that all objects are gone.
        if not (found.kind or "").endswith("List"):
            raise DecodeError(None, "$.items", f"not a list of {resource.full_name}: the answer has no items")
        return found.metadata or ListMeta(), []
    return found.metadata or ListMeta(), found.items or ()


_NO_HEAD = Head()
_NAMELESS = msgspec.ValidationError("Object missing required field `name` - at `$.metadata`")


def _bookmark(head: Head, line: bytes) -> Bookmark:
    return Bookmark(head.resource_version, initial_events_end(line))


def _unusual_event(line: bytes, resource: ApiResource, failure: Exception) -> tuple[str, Carried]:
    kind = salvage.event_type(line)
    if kind is None:
        raise DecodeError(None, "$", f"a watch of {resource.full_name} sent a line that is not an event: {failure}")
    if kind == "ERROR":
        return kind, _error_status(line, resource)
    if kind == "BOOKMARK":
        return kind, _bookmark(_head_without_nulls(line, enveloped=True) or salvage.head(line, enveloped=True), line)
    return kind, _invalid(line, resource, failure, enveloped=True) if kind in _CHANGES else None


def _error_status(line: bytes, resource: ApiResource) -> Status:
    try:
        return _error_event(line).object
    except DECODE_FAILURES as error:
        text = f"a watch of {resource.full_name} sent an unreadable error: {problem_of(error)[1]}"
        raise DecodeError(None, "$.object", text) from None


def _invalid(raw: bytes, resource: ApiResource, failure: Exception, *, enveloped: bool, named: bool = True) -> Record:
    """Decode again without the nulls; if that fails, return a record with a problem."""
    if not is_no_utf8(failure):
        head = _head_without_nulls(raw, enveloped=enveloped)
        if not named and isinstance(plain := salvage.whole(raw), dict) and plain.get("metadata") is None:
            head = Head()
        if head is not None and (head.name or not named):
            return Record(head, resource, raw, enveloped)
    known = salvage.head(raw, enveloped=enveloped)
    path, text = problem_of(failure, enveloped=enveloped)
    if not known.name:
        raise DecodeError(None, path, f"an object of {resource.full_name} without a readable name: {text}")
    return Record(known, resource, raw, enveloped, problem=Problem(path, text))


def _head_without_nulls(raw: bytes, *, enveloped: bool) -> Head | None:
    metadata = salvage.metadata(raw, enveloped=enveloped)
    if not isinstance(metadata, dict):
        return None
    try:
        return converted(_without_nulls(metadata), Head)
    except DECODE_FAILURES:
        return None


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value if item is not None]
    return value


def _broken_page(page: bytes, resource: ApiResource, failure: Exception) -> tuple[ListMeta, list[bytes]]:
    split = salvage.split_page(page)
    if split is None:
        path, text = problem_of(failure)
        raise DecodeError(None, path, f"not a list of {resource.full_name}: {text}")
    envelope, items = split
    try:
        return _page(envelope).metadata or ListMeta(), items
    except DECODE_FAILURES as error:
        raise DecodeError(None, "$.metadata", f"not a list of {resource.full_name}: {error}") from None


REMEMBERED = 1024
"""How many different labels, and how many lists of owners or finalizers, are remembered. Each is small."""


def share(head: Head) -> None:
    """Replace parts of `head` by equal parts of other heads. Only the code that decoded `head` may call this, before it
    shares `head`. Safe from any thread."""
    if head.namespace:
        force_setattr(head, "namespace", sys.intern(head.namespace))
    if head._labels is not None:
        force_setattr(head, "_labels", _map(tuple(head._labels.items())))
    if head.owner_references:
        force_setattr(head, "owner_references", _same(head.owner_references))
    if head.finalizers:
        force_setattr(head, "finalizers", _same(head.finalizers))


@lru_cache(REMEMBERED)
def _map(items: tuple[tuple[str, str], ...]) -> dict[str, str]:
    return ReadOnlyDict(items)  # read-only, because all heads with equal labels share it


@lru_cache(REMEMBERED)
def _same(parts: T) -> T:
    return parts


def encode_plain(content: Any, *, checked: bool = False) -> bytes:
    """`content` as JSON. Raises RequestError for values that JSON cannot carry. With `checked`, these values are not
    searched for: `to_plain` made `content` and has refused them already."""
    try:
        if not checked:
            _check(content, "$")
        return msgspec.json.encode(content, enc_hook=_known_here)
    except RequestError as error:
        raise RequestError(f"not a JSON value: {error}") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise RequestError(f"not a JSON value: {_fault(content, '$')}{error}") from None


def _known_here(value: Any) -> dict[Any, Any] | str:
    """The `enc_hook` of msgspec: mappings other than dict, such as labels of a received object, become dicts;
    quantities become text. Raises TypeError for anything else that msgspec does not support, as a value or as a key."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, TextValue):
        return str(value)
    raise TypeError(f"a {type(value).__name__} is neither a JSON value nor a JSON key")


def _fault(content: Any, path: str) -> str:
    """The path of the innermost value that cannot be encoded, as the beginning of a message; msgspec's error does not
    name the path."""
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
    """`content` with apiVersion and kind: list items lack them, and metadata-only answers have another kind."""
    kind = content.get("kind")
    if kind and content.get("apiVersion") and kind != "PartialObjectMetadata":
        return content
    return {**content, "apiVersion": resource.api_version, "kind": resource.kind}


def _check(value: Any, path: str) -> None:
    """Raise RequestError for a value below `path` that has no plain JSON form."""
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
    """Check a value that is not of a JSON type. Aware times, enums, records and other mappings have a JSON form."""
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
    """The content of a new object with these views. Fields that are None, or (with `omit_defaults`) equal their
    default, are not sent.

    Without `defaults`, no field that equals its class's default is sent, at any depth, whatever the class says.
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
    """The received object with the changes that were made in `views` and `plain`. Raises WriteBackError.

    `kept` holds, for each decoded view, the items that its lists had when the view was decoded.
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


def json_copy(value: T) -> T:
    """A copy that shares no dict and no list with the value."""
    if not isinstance(value, dict | list):
        return value
    copied: T = _decode(_encode(value))
    return copied


def same_json(first: Any, second: Any) -> bool:
    """Whether two values are the same JSON, ignoring the order of keys. 1 differs from true and from 1.0."""
    if first != second:
        return False
    return _encode(first) == _encode(second) or _encode_sorted(first) == _encode_sorted(second)


def equal_json(first: Any, second: Any) -> bool:
    """Whether two values are equal by the rules of field ownership: 1 is not true, but it is 1.0."""
    if first != second:
        return False
    return _encode(first) == _encode(second) or _same_booleans(first, second)


class _Missing:
    def __repr__(self) -> str:
        return "nothing"


MISSING = _Missing()
"""Stands for the absent value when only one of two values has a key or item."""

Path: TypeAlias = tuple[str | int, ...]
"""Keys and indexes, outermost first."""


def differences(one: Any, other: Any, path: Path = ()) -> Iterator[tuple[Path, Any, Any]]:
    """The differences of two JSON values: for each, the path and both values (`MISSING` if there is no value). 1 is
    neither true nor 1.0. Lists of equal length are compared item by item; other lists differ as a whole. The keys of
    `one` come first, in its order, then the keys that only `other` has."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in {**one, **other}:
            yield from differences(one.get(key, MISSING), other.get(key, MISSING), (*path, key))
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from differences(left, right, (*path, index))
    elif type(one) is not type(other) or one != other:
        yield path, one, other


def remembers_good(check: Callable[Concatenate[Any, P], list[T]]) -> Callable[Concatenate[Any, P], list[T]]:
    """Decorator: the check skips JSON values in which it recently found no problem. Some checks are slow, and often
    check equal values.

    The first argument of the check is the JSON value; all other arguments must be hashable. The result must depend on
    the arguments alone, and the check must change none of them.
    """
    from hashlib import blake2b  # only the embedded server needs it

    good: set[Any] = set()

    @wraps(check)
    def answer(value: Any, /, *args: P.args, **kwargs: P.kwargs) -> list[T]:
        key = (blake2b(_encode(value), digest_size=16).digest(), args, *kwargs.items())
        if key in good:
            return []
        found = check(value, *args, **kwargs)
        if not found:
            if len(good) >= MOST_REMEMBERED:
                good.clear()
            good.add(key)
        return found

    return answer


def _same_booleans(first: Any, second: Any) -> bool:
    """Whether two values that are equal in Python have their booleans in the same places."""
    if isinstance(first, dict):
        return all(_same_booleans(child, second[key]) for key, child in first.items())
    if isinstance(first, list):
        return all(map(_same_booleans, first, second))
    return isinstance(first, bool) == isinstance(second, bool)


_S = rb"\s*"
_TYPE = rb'(?:"(?:kind|apiVersion)"%b:%b"[^"\\]*"%b,%b)*' % (_S, _S, _S, _S)
_BARE = re.compile(rb'%b\{%b%b(?="metadata")' % (_S, _S, _TYPE))
_ENVELOPED = re.compile(rb'%b\{%b"type"%b:%b"[A-Z]+"%b,%b"object"%b:%b\{%b%b(?="metadata")' % (*(_S,) * 9, _TYPE))


def same_content(old: Record, new: Record) -> bool:
    """Whether both records have the same content. If one of the records cannot be read, only equal bytes count as the
    same."""
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
    """The object's bytes from `"metadata"` on; None when keys other than kind and apiVersion come first."""
    raw = record.raw
    found = (_ENVELOPED if record.enveloped else _BARE).match(raw)
    if found is None:
        return None
    rest = raw[found.end():].rstrip()
    return rest[:-1].rstrip() if record.enveloped else rest


def _plain(record: Record) -> dict[str, Any]:
    plain = plain_object(record.raw, record.enveloped, record.ref)
    return {key: value for key, value in plain.items() if key not in ("kind", "apiVersion")}
