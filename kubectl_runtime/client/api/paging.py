"""Lists: one page as it came, and the walk over all pages.

    page with a token          -> the next page            page without   -> the end
    410 on a token             -> from the beginning: once in pages, then in one piece; what was handed out is left out
    the same token, 3 times    -> DecodeError

Only `continue` says whether there is more; `remainingItemCount` is not looked at.
"""
from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from kubectl_runtime.core.base.errors import ApiError
from kubectl_runtime.core.codec.record import Record
from kubectl_runtime.core.meta.metav1 import ListMeta
from kubectl_runtime.core.meta.problems import DecodeError
from kubectl_runtime.core.requests.params import ListParams

log = logging.getLogger(__name__)

PAGE_SIZE = 500
"""Objects per page when the caller names no limit."""
IDENTICAL_TOKENS = 3
"""How often the same continue token may come in a row; a server that repeats it would be asked for ever."""

K = TypeVar("K")
Page = tuple[ListMeta, list[Record]]


@dataclass(frozen=True)
class ObjectList(Generic[K]):
    """One page of a list. `metadata` has the version it shows and the token of the next page."""

    items: list[K] = field(repr=False)
    metadata: ListMeta

    def __iter__(self) -> Iterator[K]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)


def walk(fetch: Callable[[ListParams], Page], params: ListParams, operation: str) -> Iterator[Page]:
    """All pages, one request each, when the next one is asked for. Every object comes once. Raises what `fetch`
    raises.
    """
    begin = params if params.limit is not None else replace(params, limit=PAGE_SIZE)
    seen: set[str] | None = None  # uids, from a restart on
    handed_out: set[str] = set()
    current, repeated = begin, 0
    while True:
        try:
            meta, records = fetch(current)
        except ApiError as error:
            if not (error.is_expired and current.continue_token) or begin.limit is None:
                raise
            log.debug("%s: the continue token has expired; from the beginning", operation)
            begin = replace(begin, limit=begin.limit if seen is None else None, continue_token=None)
            seen, current, repeated = handed_out, begin, 0
            continue
        if seen is not None:
            records = [record for record in records if record.uid not in seen]
        handed_out.update(record.uid for record in records)
        yield meta, records
        token = meta.continue_token
        if not token:
            return
        repeated = repeated + 1 if token == current.continue_token else 0
        if repeated >= IDENTICAL_TOKENS:
            raise DecodeError(None, "$.metadata.continue",
                              f"{operation}: the server gives the same continue token for ever")
        current = begin.page(token)
