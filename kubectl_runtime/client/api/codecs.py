"""In which form objects are kept: what turns the bytes of an answer into records.

`WholeForm` keeps them whole, `MetadataForm` marks what came by a metadata-only request as partial, and
`core.objects.partial.FieldsForm` keeps declared fields only. They hold no state and are safe to use from any thread.
"""
from __future__ import annotations

from typing import Protocol

import msgspec

from kubectl_runtime.core.codec.decode import Carried, decode_event, decode_list, decode_object
from kubectl_runtime.core.codec.record import Record
from kubectl_runtime.core.meta.gvk import ApiResource
from kubectl_runtime.core.meta.metav1 import ListMeta


class Form(Protocol):
    """How objects of one kind are decoded: as a whole, or only their metadata. Safe to use from any thread."""

    def decode_object(self, raw: bytes) -> Record:
        """The record of one object's JSON. Raises DecodeError when it does not say which object it is."""

    def decode_event(self, line: bytes) -> tuple[str, Carried]:
        """The type of a line of a watch, and what it carries. Raises DecodeError for anything but an event."""

    def decode_list(self, page: bytes) -> tuple[ListMeta, list[Record]]:
        """The metadata of a page of a list, and a record for each item. Raises DecodeError for anything else."""


class WholeForm:
    """Decodes objects as they are, with all of their content."""

    __slots__ = ("resource",)

    def __init__(self, resource: ApiResource) -> None:
        self.resource = resource

    def decode_object(self, raw: bytes) -> Record:
        """The record of one object's JSON. Raises DecodeError when it does not say which object it is."""
        return decode_object(raw, self.resource)

    def decode_event(self, line: bytes) -> tuple[str, Carried]:
        """The type of a line of a watch, and what it carries. Raises DecodeError for anything but an event."""
        return decode_event(line, self.resource)

    def decode_list(self, page: bytes) -> tuple[ListMeta, list[Record]]:
        """The metadata of a page of a list, and a record for each item. Raises DecodeError for anything else."""
        return decode_list(page, self.resource)


class MetadataForm(WholeForm):
    """Decodes objects of which the server sent only the metadata."""

    __slots__ = ()

    def decode_object(self, raw: bytes) -> Record:
        """The record of one object's metadata. Raises DecodeError when it does not say which object it is."""
        return _partial(super().decode_object(raw))

    def decode_event(self, line: bytes) -> tuple[str, Carried]:
        """The type of a line of a watch, and what it carries. Raises DecodeError for anything but an event."""
        kind, carried = super().decode_event(line)
        return kind, _partial(carried) if isinstance(carried, Record) else carried

    def decode_list(self, page: bytes) -> tuple[ListMeta, list[Record]]:
        """The metadata of a page of a list, and a record for each item. Raises DecodeError for anything else."""
        meta, records = super().decode_list(page)
        return meta, [_partial(record) for record in records]


def _partial(record: Record) -> Record:
    return msgspec.structs.replace(record, partial=True)
