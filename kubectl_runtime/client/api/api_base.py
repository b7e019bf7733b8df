"""`ApiBase`: what an `Api` is made of, and what all of its verbs share.

    a request -> `_read`      -> the record of the answered object
              -> `_written`   -> the same for a write, of which the client's observers are told before it returns

It holds no state beyond what it was made with: use it from any thread.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from kubectl_runtime.client.api.client import Client
from kubectl_runtime.client.api.codecs import Form, MetadataForm, WholeForm
from kubectl_runtime.client.api.writes import Write
from kubectl_runtime.core.codec.record import Record
from kubectl_runtime.core.meta.gvk import ApiResource
from kubectl_runtime.core.meta.refs import ObjectRef
from kubectl_runtime.core.objects.invalid import InvalidObject
from kubectl_runtime.core.requests import body as bodies
from kubectl_runtime.core.requests import request as build
from kubectl_runtime.core.requests.params import DeleteParams, PatchParams, PostParams
from kubectl_runtime.core.requests.patch import Patch
from kubectl_runtime.core.requests.request import Place, Request

K = TypeVar("K")


class ApiBase(Generic[K]):
    """A kind at a place of one server, and how answers become objects."""

    __slots__ = ("_from_record", "client", "form", "kind", "place")

    def __init__(self, client: Client, kind: type[K], place: Place, form: Form | None = None) -> None:
        self.client = client
        self.kind = kind
        """The class of what comes back."""
        self.place = place
        self.form = form or (MetadataForm if place.metadata_only else WholeForm)(place.resource)
        # Kinds are resource classes, which a type variable cannot say of views and models alike.
        self._from_record: Callable[[Record], K] = kind.from_record  # type: ignore[attr-defined]

    @property
    def resource(self) -> ApiResource:
        return self.place.resource

    @property
    def namespace(self) -> str | None:
        """None: all of them, or the kind has none."""
        return self.place.namespace

    def _read(self, request: Request) -> Record:
        return self.form.decode_object(self.client.request(request))

    def _object(self, record: Record) -> K:
        if record.problem is not None:
            return InvalidObject(record)  # type: ignore[return-value] # its content raises what is wrong with it
        return self._from_record(record)

    def _apply(self, body: Any, field_manager: str, force: bool, dry_run: bool,
               subresource: str | None) -> tuple[Request, PatchParams]:
        content = bodies.plain_body(body)
        params = PatchParams(field_manager=field_manager, force=force, dry_run=dry_run)
        name = (content.get("metadata") or {}).get("name") or ""
        return build.patch(self.place, name, Patch.apply(content), params, subresource=subresource), params

    def _written(self, verb: str, request: Request, dry_run: bool, subresource: str | None = None) -> K:
        record = self._read(request)
        if not dry_run:
            self._tell(verb, record.name, record, record.uid, subresource, request.body)
        return self._object(record)

    def _tell(self, verb: str, name: str, record: Record | None, uid: str, subresource: str | None,
              sent: bytes | None = None) -> None:
        if not self.client.writes:
            return
        ref = record.ref if record is not None else ObjectRef(self.resource, name, self.namespace)
        self.client.writes.tell(Write(ref, verb, record.resource_version if record is not None else "",
                                      record.uid if record is not None else uid, record, subresource, sent))


def dry(params: PostParams | PatchParams | DeleteParams | None) -> bool:
    """Whether the write is only tried: nothing is stored, so nobody is told of it."""
    return params is not None and params.dry_run
