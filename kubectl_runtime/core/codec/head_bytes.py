"""The bytes of an object that its head needs: to step over the others takes msgspec as long as the head itself.

    head_of_object(raw, resource), head_of_event(line, resource)      JSON with the same head

The API server writes a large object of a built-in kind with managedFields as the last of its metadata, then spec and
status. So what is left out begins with managedFields, where their list is found to be the end of the metadata and
another key to follow. For JSON that is certain: the first bracket behind the one that begins the list is a `]`, so it
ends that list or is part of a text. But then the quote that follows it would end the text, and no letter could come
next. Whether the braces that are put at the end are those that are missing says the decoder, which fails if not.

Nobody looks at what was left out until it is read: broken JSON in a spec is an error of who reads it.

Custom resources have their metadata sorted by name, with more behind managedFields: all of their bytes are used.
"""
from __future__ import annotations

from kubectl_runtime.core.meta.gvk import ApiResource

LONG = 2048
"""Bytes from which on it pays to look."""

_KEY = b',"managedFields":['
_END = b']},"'


def head_of_object(raw: bytes, resource: ApiResource) -> bytes:
    """Of an object's JSON."""
    return raw if len(raw) < LONG or "." in resource.group else _shortened(raw, b"}}")


def head_of_event(line: bytes, resource: ApiResource) -> bytes:
    """Of a watch line."""
    return line if len(line) < LONG or "." in resource.group else _shortened(line, b"}}}")


def _shortened(raw: bytes, braces: bytes) -> bytes:
    begin = raw.find(_KEY)
    while begin >= 0:
        end = raw.find(b"]", begin)
        if end < 0:
            return raw
        if raw.startswith(_END, end) and raw[end + len(_END):end + len(_END) + 1].isalpha():
            return raw if raw.find(b"[", begin + len(_KEY), end) >= 0 else raw[:begin] + braces
        begin = raw.find(_KEY, end)  # whatever begins before this bracket ends with it
    return raw
