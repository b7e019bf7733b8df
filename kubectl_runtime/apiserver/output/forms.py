"""From stored versions to the bytes of an answer: objects, lists, tables, watch events, in the form that is accepted.

A `Form` belongs to one resource type and one form of it. No object is decoded for an answer in its own form: stored
bytes are put together. Metadata and table rows decode the part they need. Objects that are stored in another version
are converted first, all of an answer at once; StatusError if that fails.

Stored objects as a version of their type shows them: the one way from a `Version` to what a client sees.

Where a webhook converts, a call blocks until it has answered, and raises StatusError if it fails; a lock that the
thread holds is free meanwhile.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.encoding.body import MEDIA_TYPES
from kubectl_runtime.apiserver.output.negotiation import Media, check_transform, encode
from kubectl_runtime.apiserver.output.table import SCALE_COLUMNS, table_cells, table_definitions
from kubectl_runtime.apiserver.storage.registry import ServedResource
from kubectl_runtime.apiserver.storage.storage import Version, make_version
from kubectl_runtime.apiserver.wire import HttpRequest

Object = dict[str, Any]


def is_as_stored(resource_type: ServedResource, version: Version) -> bool:
    """Whether the stored bytes are those that are shown."""
    return not resource_type.strategy.converts and version.stored_as in ("", resource_type.version)


def shown_objects(resource_type: ServedResource, versions: Sequence[Version]) -> list[Object]:
    """The objects, decoded, without kind and apiVersion."""
    decoded = [version.decode() for version in versions]
    stale = [index for index, version in enumerate(versions) if not is_as_stored(resource_type, version)]
    if stale:
        found = resource_type.strategy.all_from_storage([(decoded[index], versions[index].stored_as)
                                                         for index in stale], resource_type.version)
        for index, obj in zip(stale, found, strict=True):
            decoded[index] = obj
    return decoded


def shown_object(resource_type: ServedResource, version: Version) -> Object:
    """One object with kind and apiVersion."""
    obj = version.decode() if is_as_stored(resource_type, version) else shown_objects(resource_type, [version])[0]
    return {"kind": resource_type.kind, "apiVersion": resource_type.api_version, **obj}


_INCLUDE = {"": "Metadata", "Metadata": "Metadata", "Object": "Object", "None": "None"}


class Form:
    """How one request sees objects of one type."""

    def __init__(self, resource_type: ServedResource, media: Media, request: HttpRequest, now: Callable[[], datetime],
                 *, is_list: bool, is_watch: bool = False) -> None:
        package, suffix = resource_type.group.partition(".")[0] or "core", "List" if is_list else ""
        go_type = f"*{package}.{resource_type.kind}{suffix}"
        if resource_type.is_custom:
            go_type = f"*unstructured.Unstructured{suffix}"
        if not is_watch:
            check_transform(media, go_type, is_list=is_list, custom=resource_type.is_custom)
        self.type = resource_type
        self.media = media
        self.is_table = media.transform == "Table"
        self.is_partial = media.transform.startswith("PartialObjectMetadata")
        self._is_plain = not resource_type.is_custom and not resource_type.strategy.converts
        self._now = now
        self._include = _include(request) if self.is_table else ""
        self._meta_version = f"meta.k8s.io/{media.transform_version}"
        self._definitions_sent = False

    def one(self, version: Version) -> bytes:
        """A single object as an answer."""
        if not self._is_plain:
            (version,) = self.own([version])
        if self.is_table:
            metadata = {"resourceVersion": str(version.rv)} if version.rv else {}
            return self._table([version], metadata, table_definitions(self.type))
        return self._partial(version) if self.is_partial else self._whole(version)

    def own(self, versions: list[Version]) -> list[Version]:
        """Stored versions in this version of the API; most are what they are. May call a conversion webhook."""
        if self._is_plain or all(is_as_stored(self.type, version) for version in versions):
            return versions
        return [make_version(obj, version.rv, version.fields, self.type.version)
                for obj, version in zip(shown_objects(self.type, versions), versions, strict=True)]

    def _whole(self, version: Version) -> bytes:
        """The object itself with kind and apiVersion."""
        return self.type.prefix + version.tail

    def many(self, versions: list[Version], metadata: Object) -> bytes:
        """A list as an answer."""
        versions = self.own(versions)
        if self.is_table:
            return self._table(versions, metadata, table_definitions(self.type))
        if self.is_partial:
            head = b'{"kind":"PartialObjectMetadataList","apiVersion":"%s","metadata":' % self._meta_version.encode()
            items = [self._partial(version) for version in versions]
            if not items:
                return b"%s%s,\"items\":null}" % (head, encode(metadata))  # surprising: no empty list
        elif self.type.is_custom:
            # Lists of custom resources differ: their items name their kind, and continue is there though empty.
            metadata = {"continue": "", **metadata}
            head = self._list_head()
            items = [self._whole(version) for version in versions]
        else:
            head = self._list_head()
            items = [b"{" + version.tail for version in versions]
        return b"".join((head, encode(metadata), b',"items":[', b",".join(items), b"]}"))

    def _list_head(self) -> bytes:
        kind, api_version = self.type.list_kind.encode(), self.type.api_version.encode()
        return b'{"kind":"%s","apiVersion":"%s","metadata":' % (kind, api_version)

    def event(self, kind: str, version: Version) -> bytes:
        """A line of a watch."""
        if not self._is_plain:
            (version,) = self.own([version])
        if self.is_table:
            body = self._table([version], {"resourceVersion": str(version.rv)}, self._new_definitions())
        else:
            body = self._partial(version) if self.is_partial else self._whole(version)
        return b'{"type":"%s","object":%s}\n' % (kind.encode(), body)

    def bookmark(self, rv: int, *, initial: bool) -> bytes:
        """A bookmark; `initial` marks the end of the initial events."""
        metadata: Object = {"resourceVersion": str(rv)}
        whole: Object = {"kind": self.type.kind, "apiVersion": self.type.api_version, "metadata": metadata,
                         **self._blank()}
        partial: Object = {"kind": "PartialObjectMetadata", "apiVersion": self._meta_version, "metadata": metadata}
        shown = partial if self.is_partial or (self.is_table and self._include != "Object") else whole
        if self.is_table:  # surprising: it has cells, and an object even if none is asked for
            shown = {"kind": "Table", "apiVersion": self._meta_version, "metadata": dict(metadata),
                     "columnDefinitions": self._new_definitions(),
                     "rows": [{"cells": table_cells(self.type, whole, self._now()), "object": shown}]}
        if initial:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        return b'{"type":"BOOKMARK","object":%s}\n' % encode(shown)

    def _new_definitions(self) -> list[Object] | None:
        """The columns, in the first table of a watch only."""
        definitions = None if self._definitions_sent else table_definitions(self.type)
        self._definitions_sent = True
        return definitions

    def _blank(self) -> Object:
        """What the real server's typed objects write though it is empty."""
        return {key: value for key, value in self.type.strategy.blank_shown().items()
                if key not in ("metadata", "kind", "apiVersion")}

    def _partial(self, version: Version) -> bytes:
        return b'{"kind":"PartialObjectMetadata","apiVersion":"%s","metadata":%s}' % (
            self._meta_version.encode(), version.metadata())

    def _table(self, versions: Iterable[Version], metadata: Object, definitions: list[Object] | None) -> bytes:
        now = self._now()
        rows = [b'{"cells":%s,"object":%s}' % (encode(table_cells(self.type, self._decoded(version), now)),
                                              self._row_object(version)) for version in versions]
        body = b"[%s]" % b",".join(rows)
        if not rows and not self.type.columns and not self.type.is_custom:
            body = b"null"  # surprising: so the generic tables of built-in kinds
        return b'{"kind":"Table","apiVersion":"%s","metadata":%s,"columnDefinitions":%s,"rows":%s}' % (
            self._meta_version.encode(), encode(metadata), encode(definitions), body)

    def _decoded(self, version: Version) -> Object:
        return {"kind": self.type.kind, "apiVersion": self.type.api_version, **version.decode()}

    def _row_object(self, version: Version) -> bytes:
        if self._include == "None":
            return b"null"
        return self._whole(version) if self._include == "Object" else self._partial(version)


def _include(request: HttpRequest) -> str:
    wanted = request.param("includeObject")
    if wanted not in _INCLUDE:
        raise errors.bad_request(f'Unable to convert to Table as requested: includeObject: Invalid value: "{wanted}": '
                                 "must be 'Metadata', 'Object', 'None', or empty")
    return _INCLUDE[wanted]


def as_transformed(media: Media, request: HttpRequest, obj: Object, now: datetime) -> Object:
    """An object that is not stored in the form that is accepted. Only a Scale has a table; other kinds are a 406."""
    group, _, _ = obj["apiVersion"].rpartition("/")
    check_transform(media, f"*{group.partition('.')[0]}.{obj['kind']}", is_list=False)
    api_version = f"meta.k8s.io/{media.transform_version}"
    partial = {"kind": "PartialObjectMetadata", "apiVersion": api_version, "metadata": obj["metadata"]}
    if media.transform != "Table":
        return partial
    if obj["kind"] != "Scale":
        raise errors.not_acceptable(MEDIA_TYPES)
    shown = {"None": None, "Object": obj, "Metadata": partial}[_include(request)]
    row = {"cells": [column.cell(obj, now) for column in SCALE_COLUMNS], "object": shown}
    return {"kind": "Table", "apiVersion": api_version,
            "metadata": {"resourceVersion": obj["metadata"].get("resourceVersion", "")},
            "columnDefinitions": [column.definition() for column in SCALE_COLUMNS], "rows": [row]}
