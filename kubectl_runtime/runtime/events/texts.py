"""Names and texts of Events, made such that the server takes them. Pure; lengths are bytes of UTF-8, as Go counts.

    reason, action, reportingInstance   1 to 128
    note                                at most 1024; what is cut ends with MARK
    reportingController                 a qualified name: an optional DNS subdomain and a slash, then 1 to 63 letters,
                                        digits, '-', '_' or '.', the first and last a letter or digit
    metadata.name                       a DNS subdomain of at most 253
"""
from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

SHORT, NOTE = 128, 1024
MARK = "…"
_NAME, _SUBDOMAIN = 63, 253
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NO_NAME = re.compile(r"[^-A-Za-z0-9_.]+")
_NO_SUBDOMAIN = re.compile(r"[^-a-z0-9.]+")


def cut(text: str, limit: int, mark: str = "") -> str:
    """`text` within `limit` bytes; a longer one ends on a whole character, with `mark`. Lone surrogates, which are no
    UTF-8, become question marks."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= limit:
        return raw.decode()
    return raw[:limit - len(mark.encode())].decode("utf-8", "ignore") + mark


def short(text: str, otherwise: str) -> str:
    """A reason, an action, an instance; `otherwise` when there is nothing of it."""
    return cut(text, SHORT) or otherwise


def qualified_name(text: str) -> str:
    """The qualified name nearest to `text`, empty if there is none; a text that is one stays as it is."""
    prefix, _, name = text.rpartition("/")
    name = _trimmed(_NO_NAME.sub("-", name), _NAME)
    domain = subdomain(prefix, _SUBDOMAIN)
    return f"{domain}/{name}" if domain and name else name


def subdomain(text: str, limit: int) -> str:
    """The DNS subdomain of at most `limit` characters nearest to `text`; empty if there is none."""
    labels = (label.strip("-") for label in _NO_SUBDOMAIN.sub("-", text.lower()).split("."))
    return _trimmed(".".join(label for label in labels if label), limit)


def event_name(regarding: str, moment: datetime, bits: int) -> str:
    """`NAME.TIME`, as Kubernetes' own Events: the time in nanoseconds, here with 32 random `bits` behind it, as hex.

    So no two processes make the same name, and one that exists already tells that an earlier attempt arrived.
    """
    microseconds = (moment - _EPOCH) // timedelta(microseconds=1)
    suffix = f"{microseconds * 1000:x}{bits:08x}"
    return f"{subdomain(regarding, _SUBDOMAIN - len(suffix) - 1) or 'event'}.{suffix}"


def _trimmed(text: str, limit: int) -> str:
    return text.strip("-_.")[:limit].rstrip("-_.")
