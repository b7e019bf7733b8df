"""`Key`: namespace and name, which is all of an object's identity within one kind.

Stores, queues and whatever remembers something of each object of one kind use it: tuples hash far faster than refs. It
is also the one place that says how "no namespace" is written: None. On the wire it is absent or empty; whatever comes
from there or from a user goes through `namespace_or_none` or `key_of` first, so that keys can be compared.
"""
from __future__ import annotations

from typing import TypeAlias

Key: TypeAlias = tuple[str | None, str]
"""Namespace (None: the object is cluster-scoped) and name."""


def namespace_or_none(namespace: str | None) -> str | None:
    """`namespace`, or None for no namespace in whatever spelling."""
    return namespace or None


def key_of(namespace: str | None, name: str) -> Key:
    """The key of an object; `namespace` may be empty."""
    return namespace or None, name
