"""Where two views of one object differ: so that write-back makes plain values of little more than what was changed.

Values are the same when msgpack says so, which unlike JSON tells NaN from null and bytes from text. It looks at a whole
Pod's spec in the time in which Python looks at one of its containers.
"""
from __future__ import annotations

from typing import Any

import msgspec
import msgspec.msgpack
from msgspec.structs import astuple

from kubectl_runtime.core.base.plain import Only
from kubectl_runtime.core.base.texts import to_text

SAME: Only = {}
"""Nothing differs."""


def changes(base: Any, now: Any, *, in_place: bool) -> Only:
    """The fields in which two views differ, and what of these; None for all that there is of them, which also stands
    for what cannot be compared.

    `in_place`: lists of one length have the same items in the same order, each as it is now.
    """
    try:
        return SAME if _packed(base) == _packed(now) else _below(base, now, in_place)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None


def _below(base: Any, now: Any, in_place: bool) -> Only:
    """The same for values that differ."""
    if type(base) is not type(now):
        return None
    if isinstance(base, msgspec.Struct):
        return {name: _below(one, other, in_place)
                for name, one, other in zip(base.__struct_fields__, astuple(base), astuple(now), strict=True)
                if one is not other and _packed(one) != _packed(other)}
    if in_place and type(base) is list and len(base) == len(now) and all(
            isinstance(item, msgspec.Struct) for item in (*base, *now)):
        return [SAME if _packed(one) == _packed(other) else _below(one, other, in_place)
                for one, other in zip(base, now, strict=True)]
    return None


_packed = msgspec.msgpack.Encoder(enc_hook=to_text).encode
