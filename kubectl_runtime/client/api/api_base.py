"""`ApiBase`: what an `Api` is made of, and what all of its verbs share.

    a request -> `_answered`   -> whatever a function makes of the answer's body
              -> `_ask`        -> the object of the answer

Every verb sends its request through `_answered`, the one place that reports a write: before it is sent, and when it was
answered. What a write is the request itself says (`is_read`), so no verb can forget it.

It holds no state beyond what it was made with: use it from any thread.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar, overload

from kubectl_runtime.client.api.client import Client
from kubectl_runtime.client.api.codecs import Form, MetadataForm, WholeForm
from kubectl_runtime.client.api.writes import Write
from kubectl_runtime.client.http.failures import decode_status, is_web_page, unexpected_answer
from kubectl_runtime.client.server.missing_subresource import explained
from kubectl_runtime.core.base.building import decoded
from kubectl_runtime.core.base.clock import Duration, period_of
from kubectl_runtime.core.base.errors import ApiError, RequestError
from kubectl_runtime.core.base.observer import NO_OBSERVER
from kubectl_runtime.core.base.status import Status
from kubectl_runtime.core.base.stop import StopToken
from kubectl_runtime.core.codec.record import Record
from kubectl_runtime.core.meta.gvk import ApiResource
from kubectl_runtime.core.meta.metav1 import ListMeta
from kubectl_runtime.core.meta.problems import DECODE_FAILURES, DecodeError
from kubectl_runtime.core.meta.refs import ObjectRef
from kubectl_runtime.core.objects.invalid import InvalidObject
from kubectl_runtime.core.objects.resource import Resource
from kubectl_runtime.core.requests.request import NAMELESS_GROUPS, Place, Request

K = TypeVar("K")
T = TypeVar("T")


class ApiBase(Generic[K]):
    """A kind at a place of one server, and how answers become objects."""

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
        """The class of what comes back."""
        self.place = place
        self.form = form or (MetadataForm if place.metadata_only else WholeForm)(place.resource)
        # Kinds are resource classes, which a type variable cannot say of views and models alike.
        self._from_record: Callable[[Record], K] = kind.from_record  # type: ignore[attr-defined]

    @property
    def resource(self) -> ApiResource:
        """The kind: its group, version, plural and scope."""
        return self.place.resource

    @property
    def namespace(self) -> str | None:
        """The namespace of this Api; None for all of them, and for a cluster-scoped kind."""
        return self.place.namespace

    def _ask(self, request: Request, timeout: Duration | None = None) -> K:
        """The object in the answer to `request`."""
        if request.name is None and self.resource.group in NAMELESS_GROUPS:  # a review, which has no name
            decode: Callable[[bytes], K] = self.kind.from_bytes  # type: ignore[attr-defined] # as in __init__
            return self._answered(request, decode, timeout)
        return self._object(self._answered(request, self.form.decode_object, timeout))

    def _answered(self, request: Request, decode: Callable[[bytes], T], timeout: Duration | None = None,
                  stop: StopToken | None = None) -> T:
        """What `decode` makes of the answer to `request`. A write is reported to the client's observers of writes
        before it is sent and after it was answered, and to its observer."""
        if request.is_read:
            return self._decoded(request, decode, timeout, stop)
        if self.client.writes.begun:
            self.client.writes.begun.tell(self._ref(request.name) if request.name else None)
        answer = self._decoded(request, decode, timeout, stop)
        if self.client.writes or self.client.observer is not NO_OBSERVER:
            for write in _writes(request, answer, self._ref(request.name or "")):
                self.client.writes.tell(write)
                self.client.observer.object_written(write.ref.resource.full_name, write.ref.key, write.verb,
                                                    write.resource_version)
        return answer

    def _ref(self, name: str) -> ObjectRef:
        return ObjectRef(self.resource, name, self.namespace)

    def _decoded(self, request: Request, decode: Callable[[bytes], T], timeout: Duration | None,
                 stop: StopToken | None) -> T:
        client = self.client
        deadline = None if timeout is None else client.clock.monotonic() + period_of("timeout", timeout)
        try:
            answer = client.answer(request, deadline=deadline, stop=stop)
        except ApiError as error:
            raise self._explained(request, error) from None
        try:
            if decode is bytes and is_web_page(answer.headers):
                raise DecodeError(None, "$", "a web page")
            return decode(answer.body)
        except DecodeError as error:
            unexpected = unexpected_answer(request, answer.status, answer.headers, answer.body)
            if unexpected is not None:
                raise unexpected from None
            if error.ref is None:  # it does not say what was asked for
                raise DecodeError(None, error.path, f"{request.operation}: {error.problem}") from None
            raise

    def _explained(self, request: Request, error: ApiError) -> ApiError:
        """`error`, unless the kind lacks the subresource: then an error that says so."""
        # Few programs need discovery, so it is imported when it is asked, and not for each error.
        return explained(lambda: self.client.discovery.kinds(), request, error)  # noqa: PLW0108

    def _object(self, record: Record) -> K:
        if record.problem is not None:
            return InvalidObject(record)  # type: ignore[return-value] # its content raises what is wrong with it
        return self._from_record(record)

    def _deleted(self, body: bytes) -> Status | Record:
        return gone(body) or self.form.decode_object(body)


def _writes(request: Request, answer: object, ref: ObjectRef) -> Iterator[Write]:
    """What `request` has written, by the decoded answer: the object (`ref`), or each object of a collection."""
    deletes = request.method == "DELETE"
    sent = None if deletes else request.body
    match answer:
        case Record():
            yield Write(answer.ref, request.verb, answer.resource_version, answer.uid, answer, request.subresource,
                        sent)
        case (ListMeta(), list() as records):  # they are as they were before; whether they are gone is not told
            for record in records:
                yield Write(record.ref, request.verb, uid=record.uid)
        case Status():
            deleted = answer.details.uid if deletes and answer.details is not None else None
            yield Write(ref, request.verb, uid=deleted or request.deleted_uid)
        case _:
            uid, version = _identity(answer)
            yield Write(ref, request.verb, version, uid, None, request.subresource, sent)


def _identity(answer: object) -> tuple[str, str]:
    """The uid and resourceVersion in an answer that is not the object itself: those of a Scale are its object's."""
    plain = answer.to_dict() if isinstance(answer, Resource) else answer
    metadata = plain.get("metadata") if isinstance(plain, dict) else None
    found = metadata if isinstance(metadata, dict) else {}
    return str(found.get("uid") or ""), str(found.get("resourceVersion") or "")


def accepted(body: bytes) -> None:
    """What becomes of an answer of which nothing is used. Raises DecodeError for one that is no object in JSON."""
    try:
        decoded(body or b"{}", dict)
    except DECODE_FAILURES as error:
        raise DecodeError(None, "$", str(error)) from None


def gone(body: bytes) -> Status | None:
    """What a delete says when nothing is left of what was deleted."""
    return decode_status(body) if body else Status(status="Success")
