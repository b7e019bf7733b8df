"""`ApiBase`: what an `Api` is made of, and what all of its verbs share.

    a request -> `_read`      -> the record of the answered object
               -> `_written`   -> the same for a write, of which the client's observer and those of its writes are told
                                  before it returns
               -> `_decoded`   -> whatever a function makes of the answer's body

It holds no state beyond what it was made with: use it from any thread.
"""
from __future__ import annotations

from collections.abc import Callable
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
from kubectl_runtime.core.meta.problems import DECODE_FAILURES, DecodeError
from kubectl_runtime.core.meta.refs import ObjectRef
from kubectl_runtime.core.objects.invalid import InvalidObject
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

    def _read(self, request: Request, timeout: Duration | None = None) -> Record:
        return self._decoded(request, self.form.decode_object, timeout)

    def _decoded(self, request: Request, decode: Callable[[bytes], T], timeout: Duration | None = None,
                 stop: StopToken | None = None) -> T:
        """What `decode` makes of the answer to `request`."""
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

    def _written(self, verb: str, request: Request, dry_run: bool, timeout: Duration | None) -> K:
        if request.name is None and self.resource.group in NAMELESS_GROUPS:  # a review, which nobody stores
            decode: Callable[[bytes], K] = self.kind.from_bytes  # type: ignore[attr-defined] # as in __init__
            return self._decoded(request, decode, timeout)
        if not dry_run:
            self._begin(request)
        record = self._decoded(request, self.form.decode_object, timeout)
        if not dry_run:
            self._tell(verb, record.name, record, record.uid, request.subresource, request.body)
        return self._object(record)

    def _deleted(self, body: bytes) -> Status | Record:
        return gone(body) or self.form.decode_object(body)

    def _begin(self, request: Request) -> None:
        """`request`, a write that is not a dry run, is going to be sent."""
        if self.client.writes.begun:
            named = request.name is not None
            self.client.writes.begun.tell(ObjectRef(self.resource, request.name or "", request.namespace) if named
                                          else None)

    def _tell(self, verb: str, name: str, record: Record | None, uid: str, subresource: str | None,
              sent: bytes | None = None) -> None:
        client = self.client
        if not client.writes and client.observer is NO_OBSERVER:
            return
        ref = record.ref if record is not None else ObjectRef(self.resource, name, self.namespace)
        version = record.resource_version if record is not None else ""
        client.writes.tell(Write(ref, verb, version, record.uid if record is not None else uid, record, subresource,
                                 sent))
        client.observer.object_written(ref.resource.full_name, ref.key, verb, version)


def accepted(body: bytes) -> None:
    """What becomes of an answer of which nothing is used. Raises DecodeError for one that is no object in JSON."""
    try:
        decoded(body or b"{}", dict)
    except DECODE_FAILURES as error:
        raise DecodeError(None, "$", str(error)) from None


def gone(body: bytes) -> Status | None:
    """What a delete says when nothing is left of what was deleted."""
    return decode_status(body) if body else Status(status="Success")
