"""Bundles of authorities, as PEM: what a client trusts, kept by several servers, each with an authority of its own."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime

from kubectl_runtime.certificates.authority import Described, described

MOST = 64
"""Certificates of one name in a bundle. Replicas that were killed leave theirs until it expires; those of a program
that crashes for days must not fill the object."""

_BLOCK = re.compile(rb"-----BEGIN CERTIFICATE-----(?:(?!-----BEGIN ).)+?-----END CERTIFICATE-----", re.DOTALL)
_NEVER = datetime.max.replace(tzinfo=UTC)
_UNKNOWN = Described("", _NEVER, _NEVER)


def certificates_in(bundle: bytes) -> list[bytes]:
    """Each certificate of a bundle, ending with a line break."""
    return [block + b"\n" for block in _BLOCK.findall(bundle)]


def joined(bundle: bytes, ours: Iterable[bytes]) -> bytes:
    """`bundle` with those of `ours` that it lacks. Looks into none of them, so it needs no cryptography."""
    there = certificates_in(bundle)
    lacking = [one for one in ours if one not in there]
    return b"".join([*there, *lacking]) if lacking else bundle


def merged(bundle: bytes, ours: Iterable[bytes], gone: Iterable[bytes], *, name: str, now: datetime) -> bytes:
    """`bundle` with `ours`, and without `gone`, what has expired, and the oldest beyond `MOST` of those called `name`.

    What somebody else put there stays. The same bytes if nothing is to be done. Raises `MissingExtra`.
    """
    wanted, leaving = list(ours), set(gone)
    there = certificates_in(bundle)
    others = [(block, _described(block)) for block in there if block not in leaving and block not in wanted]
    youngest = sorted((about.begin for _, about in others if about.name == name), reverse=True)
    since = dict(enumerate(youngest)).get(MOST - len(wanted) - 1, datetime.min.replace(tzinfo=UTC))
    kept = [block for block, about in others
            if about.end > now and (about.name != name or about.begin >= since)]
    return bundle if sorted(there) == sorted([*kept, *wanted]) else b"".join([*kept, *wanted])


def _described(block: bytes) -> Described:
    try:
        return described(block)
    except ValueError:  # not for us to judge
        return _UNKNOWN
