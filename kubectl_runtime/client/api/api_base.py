"""`ApiBase`, which all verbs of an `Api` share: it sends requests, decodes answers and reads lists.

Every verb sends its request through `_answered`, the only place that reports writes. A write is reported before it is
sent and after it was answered. The request itself knows whether it is a write (`is_read`), so no verb can forget to
report one.

A form turns the bytes of an answer into records: `WholeForm` keeps whole objects, `MetadataForm` marks objects from a
metadata-only request as partial, and `core.objects.partial.FieldsForm` keeps only declared fields.

A list is read page by page until a page has no continue token (`remainingItemCount` is ignored). When the server
answers 410 to a token, the list starts again: the first time in pages; after a further 410, one request reads the whole
list. Objects that were already returned are skipped. A token that the server repeats raises DecodeError, because the
list would never end.

Nothing in this module holds state beyond its arguments, so all of it is safe to use from any thread.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, Protocol, TypeVar, overload

import msgspec
from msgspec.structs import replace

from kubectl_runtime.client.api.client import Client, Write
from kubectl_runtime.client.http.retry import decode_status, is_web_page, unexpected_answer
from kubectl_runtime.client.server import explained
from kubectl_runtime.core.base.errors import ApiError, RequestError, Status
from kubectl_runtime.core.base.guard import guarded_logger
from kubectl_runtime.core.base.threads import Duration, period_of
from kubectl_runtime.core.base.wire import decoded
from kubectl_runtime.core.codec.jsonbytes import Carried, decode_event, decode_list, decode_object
from kubectl_runtime.core.codec.views import Record, is_in_shard
from kubectl_runtime.core.meta.gvk import ApiResource, ObjectRef
from kubectl_runtime.core.meta.metav1 import ListMeta
from kubectl_runtime.core.meta.problems import DECODE_FAILURES, DecodeError
from kubectl_runtime.core.meta.selectors import FieldSelection, LabelSelection
from kubectl_runtime.core.objects.partial import InvalidObject
from kubectl_runtime.core.objects.resource import Resource
from kubectl_runtime.core.requests import request as build
from kubectl_runtime.core.requests.params import ListParams, P, VersionMatch, chosen
from kubectl_runtime.core.requests.request import NAMELESS_GROUPS, Place, Request, Retry
from kubectl_runtime.core.scope import StopToken, current_scope


class Form(Protocol):
    """How objects of one kind are decoded: whole, or only their metadata. Safe to use from any thread."""

    def decode_object(self, raw: bytes, /) -> Record:
        """The record of one object's JSON. Raises DecodeError when the JSON does not identify an object."""

    def decode_event(self, line: bytes, /) -> tuple[str, Carried]:
        """The event type and the content of a watch line. Raises DecodeError for anything but an event."""

    def decode_list(self, page: bytes, /) -> tuple[ListMeta, list[Record]]:
        """The metadata of one page of a list, and a record of each item. Raises DecodeError for anything but a list."""


class WholeForm:
    """Decodes whole objects, by the functions of `core.codec.jsonbytes`."""

    __slots__ = ("decode_event", "decode_list", "decode_object")

    def __init__(self, resource: ApiResource) -> None:
        self.decode_object = partial(decode_object, resource=resource)
        self.decode_event = partial(decode_event, resource=resource)
        self.decode_list = partial(decode_list, resource=resource)


class MetadataForm:
    """Decodes objects when the server sent only their metadata."""

    __slots__ = ("_whole",)

    def __init__(self, resource: ApiResource) -> None:
        self._whole = WholeForm(resource)

    def decode_object(self, raw: bytes) -> Record:
        """The record of one object's metadata. Raises DecodeError when the JSON does not identify an object."""
        return _partial(self._whole.decode_object(raw))

    def decode_event(self, line: bytes) -> tuple[str, Carried]:
        """The event type and the content of a watch line. Raises DecodeError for anything but an event."""
        kind, carried = self._whole.decode_event(line)
        return kind, _partial(carried) if isinstance(carried, Record) else carried

    def decode_list(self, page: bytes) -> tuple[ListMeta, list[Record]]:
        """The metadata of one page of a list, and a record of each item. Raises DecodeError for anything but a list."""
        meta, records = self._whole.decode_list(page)
        return meta, [_partial(record) for record in records]


def _partial(record: Record) -> Record:
    return msgspec.structs.replace(record, partial=True)


K = TypeVar("K")
T = TypeVar("T")


class ApiBase(Generic[K]):
    """The base class of `Api`: one kind in one scope of one server, and the `Form` that decodes answers."""

    __slots__ = ("_from_record", "client", "form", "kind", "place")

    @overload
    def __init__(self, client: Client, kind: type[K], place: Place) -> None: ...

    @overload
    def __init__(self, client: Client, kind: type[K], place: Place, form: Form | None) -> None: ...

    def __init__(self, client: Client, kind: type[K] | None = None, place: Place | None = None,
                 form: Form | None = None) -> None:
        if kind is None or not isinstance(place, Place):
            raise RequestError("an Api is made by Api.all(client, Kind), Api.namespaced(client, Kind, namespace) or "
                               "Api.default_namespaced(client, Kind)")
        self.client = client
        self.kind = kind
        """The class of the returned objects."""
        self.place = place
        self.form = form or (MetadataForm if place.metadata_only else WholeForm)(place.resource)
        # `kind` may be a resource class, a view or a model, and no single type describes all three.
        self._from_record: Callable[[Record], K] = kind.from_record  # type: ignore[attr-defined]

    @property
    def resource(self) -> ApiResource:
        """The kind: its group, version, plural and scope."""
        return self.place.resource

    @property
    def namespace(self) -> str | None:
        """The namespace of this Api; None for all namespaces, and for a cluster-scoped kind."""
        return self.place.namespace

    def _write_params(self, given: P | None, kind: type[P], **keywords: Any) -> P:
        """The options of a write: the caller's options (see `chosen`), completed by the options of the client and of
        the controller's run."""
        scope = current_scope()
        return self.client.write_defaults.completed(chosen(given, kind, **keywords),
                                                    None if scope is None else scope.field_manager)

    def _ask(self, request: Request, timeout: Duration | None = None) -> K:
        """The object in the answer to `request`."""
        if request.name is None and self.resource.group in NAMELESS_GROUPS:  # a review, which has no name
            decode: Callable[[bytes], K] = self.kind.from_bytes  # type: ignore[attr-defined] # as in __init__
            return self._answered(request, decode, timeout)
        return self._object(self._answered(request, self.form.decode_object, timeout))

    def _write(self, request: Request) -> tuple[int, Record]:
        """Send a write of one object; returns the HTTP status (201 if it was created) and the object in the answer.
        Blocks and raises like the verbs. For internal use."""
        statuses: list[int] = []
        record = self._answered(request, self.form.decode_object, seen=statuses.append)
        return statuses[0], record

    def _answered(self, request: Request, decode: Callable[[bytes], T], timeout: Duration | None = None,
                  stop: StopToken | None = None, seen: Callable[[int], object] | None = None) -> T:
        """Send `request` and return what `decode` makes of the answer. A write is reported to the client's write
        observers before it is sent and after it was answered, and to the client's `Observer`. `seen` is called with the
        HTTP status."""
        if request.is_read:
            return self._decoded(request, decode, timeout, stop, seen)
        if self.client.writes.begun:
            self.client.writes.begun.tell(self._ref(request.name) if request.name else None)
        answer = self._decoded(request, decode, timeout, stop, seen)
        if self.client.writes or self.client.observer.observers:
            for write in _writes(request, answer, self._ref(request.name or "")):
                self.client.writes.tell(write)
                self.client.observer.object_written(write.ref.resource.full_name, write.ref.key, write.verb,
                                                    write.resource_version)
        return answer

    def _ref(self, name: str) -> ObjectRef:
        return ObjectRef(self.resource, name, self.namespace)

    def _decoded(self, request: Request, decode: Callable[[bytes], T], timeout: Duration | None,
                 stop: StopToken | None, seen: Callable[[int], object] | None = None) -> T:
        client = self.client
        deadline = None if timeout is None else client.clock.monotonic() + period_of("timeout", timeout)
        try:
            answer = client.answer(request, deadline=deadline, stop=stop)
        except ApiError as error:
            raise self._explained(request, error) from None
        if seen is not None:
            seen(answer.status)
        try:
            if decode is bytes and is_web_page(answer.headers):
                raise DecodeError(None, "$", "a web page")
            return decode(answer.body)
        except DecodeError as error:
            unexpected = unexpected_answer(request, answer.status, answer.headers, answer.body)
            if unexpected is not None:
                raise unexpected from None
            if error.ref is None:  # the error does not name the object of the request
                raise DecodeError(None, error.path, f"{request.operation}: {error.problem}") from None
            raise

    def _explained(self, request: Request, error: ApiError) -> ApiError:
        """`error` itself, or a clearer error if the kind lacks the subresource or the verb."""
        # Few programs need discovery, so it is imported only when an error has to be explained.
        return explained(lambda: self.client.discovery.kinds(), request, error)  # noqa: PLW0108

    def _object(self, record: Record) -> K:
        if record.problem is not None:
            return InvalidObject(record)  # type: ignore[return-value] # reading its content raises an error
        return self._from_record(record)

    def _deleted(self, body: bytes) -> Status | Record:
        return gone(body) or self.form.decode_object(body)


def _writes(request: Request, answer: object, ref: ObjectRef) -> Iterator[Write]:
    """The objects that `request` wrote, according to the decoded answer: the object (`ref`), or each object of a
    collection."""
    deletes = request.method == "DELETE"
    sent = None if deletes else request.body
    manager = next((value for key, value in request.query if key == "fieldManager"), "")
    match answer:
        case Record():
            yield Write(answer.ref, request.verb, answer.resource_version, answer.uid, answer, request.subresource,
                        sent, manager)
        # deletecollection answers with the objects as they were before the deletion; some may still exist
        case (ListMeta(), list() as records):
            for record in records:
                yield Write(record.ref, request.verb, uid=record.uid)
        case Status():
            deleted = answer.details.uid if deletes and answer.details is not None else None
            yield Write(ref, request.verb, uid=deleted or request.deleted_uid)
        case _:
            uid, version = _identity(answer)
            yield Write(ref, request.verb, version, uid, None, request.subresource, sent, manager)


def _identity(answer: object) -> tuple[str, str]:
    """The uid and resourceVersion in an answer that is not the object itself. A Scale has the uid and resourceVersion
    of the object that it scales."""
    plain = answer.to_dict() if isinstance(answer, Resource) else answer
    metadata = plain.get("metadata") if isinstance(plain, dict) else None
    found = metadata if isinstance(metadata, dict) else {}
    return str(found.get("uid") or ""), str(found.get("resourceVersion") or "")


def accepted(body: bytes) -> None:
    """Check an answer whose content is not used. Raises DecodeError if the answer is not a JSON object."""
    try:
        decoded(body or b"{}", dict)
    except DECODE_FAILURES as error:
        raise DecodeError(None, "$", str(error)) from None


def gone(body: bytes) -> Status | None:
    """The Status in the answer to a delete, if the object is gone; None if the answer is the object."""
    return decode_status(body) if body else Status(status="Success")


log = guarded_logger(__name__)

PAGE_SIZE = 500
"""Objects per page when the caller sets no limit."""


Page = tuple[ListMeta, list[Record]]


class TokenTrail(msgspec.Struct, frozen=True):
    """Detects continue tokens that repeat (Brent's algorithm). It remembers one token, and replaces this token whenever
    the number of received tokens has doubled. A cycle of n tokens is noticed within 3n tokens."""

    mark: str = ""
    steps: int = 0
    span: int = 1

    def after(self, token: str) -> TokenTrail | None:
        """The trail with `token` appended; None when the tokens repeat."""
        if token == self.mark:
            return None
        steps = self.steps + 1
        return TokenTrail(token, 0, 2 * self.span) if steps == self.span else TokenTrail(self.mark, steps, self.span)


@dataclass(frozen=True)
class ObjectList(Generic[K]):
    """One page of a list; iterates over its objects. `metadata` has the resourceVersion of the list and the continue
    token of the next page.

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
    """The verbs of `Api` that read many objects. Pass options either as keywords or as one prepared `ListParams`."""

    __slots__ = ()

    def list(self, params: ListParams | None = None, *, label_selector: LabelSelection | None = None,
             field_selector: FieldSelection | None = None, limit: int | None = None,
             continue_token: str | None = None, resource_version: str | None = None,
             resource_version_match: VersionMatch | None = None, timeout: Duration | None = None) -> ObjectList[K]:
        """Read all objects in one answer, or one page if `limit` is set; `pages` and `list_all` read all pages.

        A selector is text, a mapping, or a `Selector`: `label_selector={"app": "web"}`.
        """
        params = chosen(params, ListParams, label_selector=label_selector, field_selector=field_selector, limit=limit,
                        continue_token=continue_token, resource_version=resource_version,
                        resource_version_match=resource_version_match)
        meta, records = self._answered(build.list_(self.place, params), self.form.decode_list, timeout)
        return ObjectList([self._object(record) for record in records if is_in_shard(params.shard, record)], meta)

    def pages(self, params: ListParams | None = None, *, label_selector: LabelSelection | None = None,
              field_selector: FieldSelection | None = None, limit: int | None = None,
              resource_version: str | None = None, resource_version_match: VersionMatch | None = None,
              timeout: Duration | None = None) -> Iterator[ObjectList[K]]:
        """Iterate over all pages. Each page is requested when it is needed and has 500 objects unless `limit` says
        otherwise. `timeout` applies to each page."""

        def fetch(page: ListParams) -> Page:
            return self.list_page(page, timeout=timeout)

        params = chosen(params, ListParams, label_selector=label_selector, field_selector=field_selector, limit=limit,
                        resource_version=resource_version, resource_version_match=resource_version_match)
        for meta, records in walk(fetch, params, self.place.words("list")):
            yield ObjectList([self._object(record) for record in records if is_in_shard(params.shard, record)], meta)

    def list_all(self, params: ListParams | None = None, *, label_selector: LabelSelection | None = None,
                 field_selector: FieldSelection | None = None, limit: int | None = None,
                 resource_version: str | None = None, resource_version_match: VersionMatch | None = None,
                 timeout: Duration | None = None) -> Iterator[K]:
        """Iterate over all objects, page by page. `timeout` applies to each page."""
        for page in self.pages(params, label_selector=label_selector, field_selector=field_selector, limit=limit,
                               resource_version=resource_version, resource_version_match=resource_version_match,
                               timeout=timeout):
            yield from page.items

    def list_page(self, params: ListParams | None = None, *, label_selector: LabelSelection | None = None,
                  field_selector: FieldSelection | None = None, limit: int | None = None,
                  continue_token: str | None = None, resource_version: str | None = None,
                  resource_version_match: VersionMatch | None = None, stop: StopToken | None = None,
                  retry: Retry | None = None, timeout: Duration | None = None) -> Page:
        """Read one page like `list`, but return whole `Record`s, as stores hold them. `stop` ends the wait between
        attempts."""
        params = chosen(params, ListParams, label_selector=label_selector, field_selector=field_selector, limit=limit,
                        continue_token=continue_token, resource_version=resource_version,
                        resource_version_match=resource_version_match)
        return self._answered(build.list_(self.place, params, retry=retry), self.form.decode_list, timeout, stop)


def walk(fetch: Callable[[ListParams], Page], params: ListParams, operation: str) -> Iterator[Page]:
    """Iterate over all pages, with one request per page, sent when the page is needed. Every object is returned once;
    an empty page is returned only if the server sent it. Raises whatever `fetch` raises.
    """
    begin = params if params.limit is not None else replace(params, limit=PAGE_SIZE)
    seen: set[str] | None = None  # None before the first restart of the list; then the uids returned so far
    handed_out: set[str] = set()
    current, trail = begin, TokenTrail()
    while True:
        try:
            meta, records = fetch(current)
        except ApiError as error:
            if not (error.is_expired and current.continue_token) or begin.limit is None:
                raise
            log.debug("%s: the continue token has expired; starting again", operation)
            begin = replace(begin, limit=begin.limit if seen is None else None, continue_token=None)
            seen, current, trail = handed_out, begin, TokenTrail()
            continue
        if seen is not None:
            records = [record for record in records if record.uid not in seen]
        handed_out.update(record.uid for record in records)
        if records or seen is None:  # skip a page whose objects all came before the restart
            yield meta, records
        token = meta.continue_token
        if not token:
            return
        further = trail.after(token)
        if further is None:
            raise DecodeError(None, "$.metadata.continue",
                              f"{operation}: the server repeats the same continue tokens endlessly")
        current, trail = begin.page(token), further
