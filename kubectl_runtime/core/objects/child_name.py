"""`child_name`: what to call an object that belongs to another."""
from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from kubectl_runtime.core.base.errors import RequestError

if TYPE_CHECKING:
    from kubectl_runtime.core.objects.resource import Resource

LONGEST = 63
"""Characters of a DNS label (RFC 1123), the strictest limit on names: those of Services, and values of labels."""
_DIGITS = 8


def child_name(owner: Resource, suffix: str) -> str:
    """A name for a child of `owner`: `OWNER-SUFFIX`; where that has more than 63 characters, as much of it as fits and
    a hash of the whole.

    The same arguments always give the same name, and long ones that begin alike different names: 32 bits of SHA-256
    tell them apart. Raises RequestError for an owner without a name and for an empty suffix. Pure.

    >>> child_name(ConfigMap(name="settings"), "copy")
    'settings-copy'
    >>> len(child_name(ConfigMap(name="a" * 60), "copy"))
    63
    """
    if not owner.name:
        raise RequestError(f"{owner.ref} has no name yet that its children's names could begin with")
    if not suffix:
        raise RequestError(f"the name of a child of {owner.ref} needs a suffix: its kind, or what it is for")
    whole = f"{owner.name}-{suffix}"
    if len(whole) <= LONGEST:
        return whole
    digest = hashlib.sha256(f"{owner.name}/{suffix}".encode()).hexdigest()[:_DIGITS]
    return f"{whole[:LONGEST - _DIGITS - 1].rstrip('-.')}-{digest}"
