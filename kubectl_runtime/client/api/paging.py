"""Lists: one page as it came, the walk over all pages, and the verbs of `Api` that make them.

    page with a token          -> the next page            page without   -> the end
    410 on a token             -> from the beginning: once in pages, then in one piece; what was handed out is left out
    a token that came before   -> DecodeError: the walk would go round for ever

Only `continue` says whether there is more; `remainingItemCount` is not looked at.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar, overload

from msgspec.structs import replace

from kubectl_runtime.client.api.api_base import ApiBase
from kubectl_runtime.core.base.clock import Duration
from kubectl_runtime.core.base.errors import ApiError
from kubectl_runtime.core.base.guarded_log import guarded_logger
from kubectl_runtime.core.base.stop import StopToken
from kubectl_runtime.core.codec.record import Record
from kubectl_runtime.core.meta.metav1 import ListMeta
from kubectl_runtime.core.meta.problems import DecodeError
from kubectl_runtime.core.meta.selectors import FieldSelection, LabelSelection
from kubectl_runtime.core.requests import request as build
from kubectl_runtime.core.requests.choice import chosen
from kubectl_runtime.core.requests.params import ListParams, VersionMatch
from kubectl_runtime.core.requests.request import Retry

log = guarded_logger(__name__)

PAGE_SIZE = 500
"""Objects per page when the caller names no limit."""

K = TypeVar("K")
Page = tuple[ListMeta, list[Record]]


@dataclass(frozen=True, slots=True)
class TokenTrail:
    """The continue tokens of one list, as far as it takes to notice that they go round (Brent's algorithm): one of them
    is remembered, a later one each time twice as many have come. A circle of n tokens is noticed within 3n."""

    mark: str = ""
    steps: int = 0
    span: int = 1

    def after(self, token: str) -> TokenTrail | None:
        """The trail with `token` at its end; None when it has gone round."""
        if token == self.mark:
            return None
        steps = self.steps + 1
        return TokenTrail(token, 0, 2 * self.span) if steps == self.span else TokenTrail(self.mark, steps, self.span)


@dataclass(frozen=True)
class ObjectList(Generic[K]):
    """One page of a list; iterates over its objects. `metadata` has the version it shows and the token of the next
    page.

    >>> page = Api.all(client, ConfigMap).list(ListParams(limit=1))
    >>> len(page.items), page.metadata.resource_version != ""
    (1, True)
    """

    items: list[K] = field(repr=False)
    metadata: ListMeta

    def __iter__(self) -> Iterator[K]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    @overload
    def __getitem__(self, index: int) -> K: ...
    @overload
    def __getitem__(self, index: slice) -> list[K]: ...
    def __getitem__(self, index: int | slice) -> K | list[K]:
        return self.items[index]


class ListVerbs(ApiBase[K]):
    """The verbs of `Api` that read many objects. Their options are keywords, or one prepared `ListParams`, not both."""

    __slots__ = ()

    def list(self, params: ListParams | None = None, *, label_selector: LabelSelection | None = None,
             field_selector: FieldSelection | None = None, limit: int | None = None,
             continue_token: str | None = None, resource_version: str | None = None,
             resource_version_match: VersionMatch | None = None, timeout: Duration | None = None) -> ObjectList[K]:
        """Read all objects in one answer. With a `limit` it reads one page: `pages` and `list_all` go on.

        Selectors are text, a mapping, or a `Selector`: `label_selector={"app": "web"}`.
        """
        params = chosen(params, ListParams, label_selector=label_selector, field_selector=field_selector, limit=limit,
                        continue_token=continue_token, resource_version=resource_version,
                        resource_version_match=resource_version_match)
        meta, records = self.list_page(params, timeout=timeout)
        return ObjectList([self._object(record) for record in records], meta)

    def pages(self, params: ListParams | None = None, *, label_selector: LabelSelection | None = None,
              field_selector: FieldSelection | None = None, limit: int | None = None,
              resource_version: str | None = None, resource_version_match: VersionMatch | None = None,
              timeout: Duration | None = None) -> Iterator[ObjectList[K]]:
        """Iterate over all pages, each requested when it is needed; 500 objects each unless there is a `limit`.
        `timeout`: for each page."""

        def fetch(page: ListParams) -> Page:
            return self.list_page(page, timeout=timeout)

        params = chosen(params, ListParams, label_selector=label_selector, field_selector=field_selector, limit=limit,
                        resource_version=resource_version, resource_version_match=resource_version_match)
        for meta, records in walk(fetch, params, self.place.words("list")):
            yield ObjectList([self._object(record) for record in records], meta)

    def list_all(self, params: ListParams | None = None, *, label_selector: LabelSelection | None = None,
                 field_selector: FieldSelection | None = None, limit: int | None = None,
                 resource_version: str | None = None, resource_version_match: VersionMatch | None = None,
                 timeout: Duration | None = None) -> Iterator[K]:
        """Iterate over all objects, page by page. `timeout`: for each page."""
        for page in self.pages(params, label_selector=label_selector, field_selector=field_selector, limit=limit,
                               resource_version=resource_version, resource_version_match=resource_version_match,
                               timeout=timeout):
            yield from page.items

    def list_page(self, params: ListParams | None = None, *, label_selector: LabelSelection | None = None,
                  field_selector: FieldSelection | None = None, limit: int | None = None,
                  continue_token: str | None = None, resource_version: str | None = None,
                  resource_version_match: VersionMatch | None = None, stop: StopToken | None = None,
                  retry: Retry | None = None, timeout: Duration | None = None) -> Page:
        """As `list`, but with the objects as `Record`s: what stores hold. `stop` ends the waiting between attempts."""
        params = chosen(params, ListParams, label_selector=label_selector, field_selector=field_selector, limit=limit,
                        continue_token=continue_token, resource_version=resource_version,
                        resource_version_match=resource_version_match)
        return self._answered(build.list_(self.place, params, retry=retry), self.form.decode_list, timeout, stop)


def walk(fetch: Callable[[ListParams], Page], params: ListParams, operation: str) -> Iterator[Page]:
    """All pages, one request each, when the next one is asked for. Every object comes once. Raises what `fetch`
    raises.
    """
    begin = params if params.limit is not None else replace(params, limit=PAGE_SIZE)
    seen: set[str] | None = None  # uids, from a restart on
    handed_out: set[str] = set()
    current, trail = begin, TokenTrail()
    while True:
        try:
            meta, records = fetch(current)
        except ApiError as error:
            if not (error.is_expired and current.continue_token) or begin.limit is None:
                raise
            log.debug("%s: the continue token has expired; from the beginning", operation)
            begin = replace(begin, limit=begin.limit if seen is None else None, continue_token=None)
            seen, current, trail = handed_out, begin, TokenTrail()
            continue
        if seen is not None:
            records = [record for record in records if record.uid not in seen]
        handed_out.update(record.uid for record in records)
        yield meta, records
        token = meta.continue_token
        if not token:
            return
        further = trail.after(token)
        if further is None:
            raise DecodeError(None, "$.metadata.continue",
                              f"{operation}: the server gives the same continue tokens for ever")
        current, trail = begin.page(token), further
