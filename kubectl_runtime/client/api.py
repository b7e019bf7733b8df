"""`Api[K]`: the verbs of one kind, in one namespace or in all.

    Api.all(client, Pod)                        every namespace, or a cluster-scoped kind; reads, lists, watches
    Api.namespaced(client, Pod, "default")      one namespace
    Api.default_namespaced(client, Pod)         the namespace of the client's configuration

`kind` is a resource class, which types what comes back, or an `ApiResource`, which gives `DynamicObject`s. Writes take
a dict, a resource object or an official model.

Every verb blocks until the answer is there (60 s at most by default, retries included) and raises RequestError for
arguments that cannot work, ApiError for an error of the server, TransportError for no answer, AuthError for no
credentials. An object whose metadata does not decode comes as an `InvalidObject`. An Api holds no state: use it from
any thread.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Generic, TypeVar, overload

from kubectl_runtime.client.client import Client
from kubectl_runtime.client.failures import KindNotServedError, decode_status
from kubectl_runtime.client.forms import Form, MetadataForm, WholeForm
from kubectl_runtime.client.listing import ObjectList, Page, walk
from kubectl_runtime.client.watch import ObjectEvent, WatchStream, open_watch
from kubectl_runtime.client.writes import Write
from kubectl_runtime.core import body as bodies
from kubectl_runtime.core import request as requests
from kubectl_runtime.core.clock import seconds
from kubectl_runtime.core.dynamic import DynamicObject, dynamic
from kubectl_runtime.core.errors import ApiError, TransportError
from kubectl_runtime.core.gvk import ApiResource, api_resource_of
from kubectl_runtime.core.invalid import InvalidObject
from kubectl_runtime.core.objects import Resource
from kubectl_runtime.core.params import (
    IDLE_MARGIN,
    DeleteParams,
    GetParams,
    ListParams,
    PatchParams,
    PostParams,
    WatchParams,
)
from kubectl_runtime.core.partial import FieldsForm, PartialObjectMeta, PartialView
from kubectl_runtime.core.patch import Patch
from kubectl_runtime.core.record import Record
from kubectl_runtime.core.refs import ObjectRef
from kubectl_runtime.core.request import Place, Request, Retry
from kubectl_runtime.core.status import Status
from kubectl_runtime.core.stop import StopToken
from kubectl_runtime.core.views import plain_object

K = TypeVar("K")
R = TypeVar("R", bound=Resource)
V = TypeVar("V", bound=PartialView)

WATCH_TIMEOUT = 290.0
"""Seconds that the server keeps a watch open when the caller says nothing."""
_SCALE = ApiResource("autoscaling", "v1", "Scale", "scales")


class Api(Generic[K]):
    """The verbs of one kind. Made by `all`, `namespaced` or `default_namespaced`."""

    __slots__ = ("_from_record", "client", "form", "kind", "place")

    def __init__(self, client: Client, kind: type[K], place: Place, form: Form | None = None) -> None:
        self.client = client
        self.kind = kind
        """The class of what comes back."""
        self.place = place
        self.form = form or (MetadataForm if place.metadata_only else WholeForm)(place.resource)
        # Kinds are resource classes, which a type variable cannot say of views and models alike.
        self._from_record: Callable[[Record], K] = kind.from_record  # type: ignore[attr-defined]

    @overload
    @classmethod
    def all(cls, client: Client, kind: type[R]) -> Api[R]: ...
    @overload
    @classmethod
    def all(cls, client: Client, kind: ApiResource) -> Api[DynamicObject]: ...
    @classmethod
    def all(cls, client: Client, kind: type[Any] | ApiResource) -> Api[Any]:
        """All namespaces, or a cluster-scoped kind."""
        return _api(client, kind, None)

    @overload
    @classmethod
    def namespaced(cls, client: Client, kind: type[R], namespace: str | None) -> Api[R]: ...
    @overload
    @classmethod
    def namespaced(cls, client: Client, kind: ApiResource, namespace: str | None) -> Api[DynamicObject]: ...
    @classmethod
    def namespaced(cls, client: Client, kind: type[Any] | ApiResource, namespace: str | None) -> Api[Any]:
        """One namespace. Raises RequestError for a cluster-scoped kind and for no namespace."""
        return _api(client, kind, namespace or "")

    @overload
    @classmethod
    def default_namespaced(cls, client: Client, kind: type[R]) -> Api[R]: ...
    @overload
    @classmethod
    def default_namespaced(cls, client: Client, kind: ApiResource) -> Api[DynamicObject]: ...
    @classmethod
    def default_namespaced(cls, client: Client, kind: type[Any] | ApiResource) -> Api[Any]:
        """The namespace that the client's configuration names."""
        return _api(client, kind, client.default_namespace)

    def with_metadata_only(self) -> Api[PartialObjectMeta]:
        """The same place, where every verb asks the server for metadata alone."""
        return Api(self.client, PartialObjectMeta.of(self.resource), replace(self.place, metadata_only=True))

    def with_fields(self, view: type[V]) -> Api[V]:
        """The same place, where only the fields that the frozen `view` declares are kept of each object, read-only."""
        return Api(self.client, view, self.place, FieldsForm(self.resource, view))

    @property
    def resource(self) -> ApiResource:
        return self.place.resource

    @property
    def namespace(self) -> str | None:
        """None: all of them, or the kind has none."""
        return self.place.namespace

    # Reading

    def get(self, name: str, params: GetParams | None = None) -> K:
        """One object. Raises ApiError (`is_not_found`) when there is none."""
        return self._object(self._read(requests.get(self.place, name, params)))

    def get_opt(self, name: str, params: GetParams | None = None) -> K | None:
        """One object, or None when there is none of this name. A kind that the server does not serve is an error."""
        try:
            return self.get(name, params)
        except KindNotServedError:
            raise
        except ApiError as error:
            if error.is_not_found:
                return None
            raise

    def list(self, params: ListParams | None = None) -> ObjectList[K]:
        """One page: everything, unless `params` has a limit. `pages` and `list_all` follow the pages."""
        meta, records = self.list_page(params)
        return ObjectList([self._object(record) for record in records], meta)

    def pages(self, params: ListParams | None = None) -> Iterator[ObjectList[K]]:
        """All pages, each requested when it is needed; 500 objects each unless `params` has a limit."""
        chosen = requests.params_or_default(params, ListParams)
        for meta, records in walk(self.list_page, chosen, self.place.words("list")):
            yield ObjectList([self._object(record) for record in records], meta)

    def list_all(self, params: ListParams | None = None) -> Iterator[K]:
        """All objects, page by page."""
        for page in self.pages(params):
            yield from page.items

    def list_page(self, params: ListParams | None = None, *, stop: StopToken | None = None,
                  retry: Retry = Retry.SAFE) -> Page:
        """As `list`, but records: what stores hold. `stop` ends the waiting between attempts."""
        request = replace(requests.list_(self.place, params), retry=retry)
        return self.form.decode_list(self.client.request(request, stop=stop))

    def watch(self, params: WatchParams | None = None, resource_version: str | None = None,
              stop: StopToken | None = None) -> Iterator[ObjectEvent[K]]:
        """The events of one watch request, which opens when the first is asked for. `runtime.watcher` is the one that
        recovers.

        `resource_version`: where to begin, usually that of a list; None begins with an ADDED for each present object.
        Ends when the connection does (after 290 s by default), or `stop` is set. Raises RequestTimeout for a dead
        connection.
        """
        try:
            opened = self.open_watch(params, resource_version, stop)
        except TransportError:
            if stop is not None and stop.is_set():
                return
            raise
        with opened as batches:
            for batch in batches:
                for event in batch:
                    found = None if event.record is None else self._object(event.record)
                    yield ObjectEvent(event.type, found, event.resource_version, event.status)

    def open_watch(self, params: WatchParams | None = None, resource_version: str | None = None,
                   stop: StopToken | None = None) -> WatchStream:
        """As `watch`, but open on return, and batches of records: what watchers read. See client/watch.py.

        A failure is not retried: watchers wait as their own backoff says, and show what they wait for.
        """
        chosen = requests.params_or_default(params, WatchParams)
        timeout = WATCH_TIMEOUT if chosen.timeout is None else seconds(chosen.timeout)
        request = requests.watch(self.place, replace(chosen, timeout=timeout), resource_version)
        request = replace(request, retry=Retry.NEVER)
        return open_watch(self.client, request, self.form, stop, read_timeout=timeout + IDLE_MARGIN)

    # Writing

    def create(self, body: Any, params: PostParams | None = None) -> K:
        """Create an object; it comes back with what the server added. Raises ApiError (`is_already_exists`)."""
        return self._written("create", requests.create(self.place, body, params), _dry(params))

    def replace(self, body: Any, params: PostParams | None = None) -> K:
        """Replace an object, which must not have changed since it was read (`is_conflict`), if it has a
        resourceVersion.
        """
        return self._written("replace", requests.replace(self.place, body, params), _dry(params))

    def patch(self, name: str, patch: Patch, params: PatchParams | None = None) -> K:
        """Patch an object: `Patch.merge({...})`, `Patch.json([...])`, `Patch.strategic({...})`, `Patch.apply(...)`."""
        return self._written("patch", requests.patch(self.place, name, patch, params), _dry(params))

    def apply(self, body: Any, *, field_manager: str, force: bool = False, dry_run: bool = False) -> K:
        """Server-side apply of the fields in `body`, creating the object if need be. Raises ApiError (`is_conflict`)
        when another manager owns one of them, unless `force` takes them over."""
        request, params = self._apply(body, field_manager, force, dry_run, None)
        return self._written("apply", request, _dry(params))

    def delete(self, name: str, params: DeleteParams | None = None) -> K | Status:
        """Delete an object. The object comes back while it waits for finalizers or its grace period, a Status when it
        is gone (some kinds answer with the object even then)."""
        body = self.client.request(requests.delete(self.place, name, params))
        status = decode_status(body) if body else Status(status="Success")
        record = None if status is not None else self.form.decode_object(body)
        if not _dry(params):
            uid = (status.details.uid if status is not None and status.details is not None else None) or ""
            self._tell("delete", name, record, uid, None)
        if record is not None:
            return self._object(record)
        assert status is not None
        return status

    def delete_collection(self, params: DeleteParams | None = None,
                          selection: ListParams | None = None) -> ObjectList[K] | Status:
        """Delete every object that `selection` selects, by default all of this place; what was deleted, or a Status."""
        body = self.client.request(requests.delete_collection(self.place, params, selection))
        status = decode_status(body) if body else Status(status="Success")
        if status is not None:
            return status
        meta, records = self.form.decode_list(body)
        return ObjectList([self._object(record) for record in records], meta)

    # Subresources

    def get_status(self, name: str) -> K:
        """The object, read through its status subresource."""
        return self._object(self._read(requests.get(self.place, name, subresource="status")))

    def replace_status(self, body: Any, params: PostParams | None = None) -> K:
        """Replace the status; everything else in `body` is ignored by the server."""
        request = requests.replace(self.place, body, params, subresource="status")
        return self._written("replace", request, _dry(params), "status")

    def patch_status(self, name: str, patch: Patch, params: PatchParams | None = None) -> K:
        """Patch the status."""
        request = requests.patch(self.place, name, patch, params, subresource="status")
        return self._written("patch", request, _dry(params), "status")

    def apply_status(self, body: Any, *, field_manager: str, force: bool = False, dry_run: bool = False) -> K:
        """Server-side apply of the status in `body`."""
        request, params = self._apply(body, field_manager, force, dry_run, "status")
        return self._written("apply", request, _dry(params), "status")

    def get_scale(self, name: str) -> DynamicObject:
        """The `Scale` of an object: `.spec["replicas"]`."""
        return self._scale(requests.get(self.place, name, subresource="scale"), None, dry_run=True)

    def replace_scale(self, name: str, body: Any, params: PostParams | None = None) -> DynamicObject:
        """Replace the `Scale` of an object."""
        request = requests.replace(self.place, body, params, subresource="scale", name=name)
        return self._scale(request, "replace", dry_run=_dry(params))

    def patch_scale(self, name: str, patch: Patch, params: PatchParams | None = None) -> DynamicObject:
        """Patch the `Scale` of an object: `Patch.merge({"spec": {"replicas": 3}})`."""
        request = requests.patch(self.place, name, patch, params, subresource="scale")
        return self._scale(request, "patch", dry_run=_dry(params))

    def create_subresource(self, name: str, subresource: str, body: Any,
                           params: PostParams | None = None) -> dict[str, Any]:
        """POST to a subresource (`eviction`, `token`, `binding`); the answer as plain JSON values.

        Raises DecodeError when it is no JSON object.
        """
        request = requests.create(self.place, body, params, name=name, subresource=subresource)
        answer = self.client.request(request)
        if not _dry(params):
            self._tell("create", name, None, "", subresource)
        return plain_object(answer, False, ObjectRef(self.resource, name, self.namespace)) if answer else {}

    # Helpers

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
        return requests.patch(self.place, name, Patch.apply(content), params, subresource=subresource), params

    def _written(self, verb: str, request: Request, dry_run: bool, subresource: str | None = None) -> K:
        record = self._read(request)
        if not dry_run:
            self._tell(verb, record.name, record, record.uid, subresource)
        return self._object(record)

    def _tell(self, verb: str, name: str, record: Record | None, uid: str, subresource: str | None) -> None:
        if not self.client.writes:
            return
        ref = record.ref if record is not None else ObjectRef(self.resource, name, self.namespace)
        self.client.writes.tell(Write(ref, verb, record.resource_version if record is not None else "",
                                      record.uid if record is not None else uid, record, subresource))

    def _scale(self, request: Request, verb: str | None, *, dry_run: bool) -> DynamicObject:
        scale = dynamic(_SCALE).from_bytes(self.client.request(request))
        if verb is not None and not dry_run:
            ref = ObjectRef(self.resource, scale.name, self.namespace)
            self.client.writes.tell(Write(ref, verb, scale.resource_version, scale.uid, None, "scale"))
        return scale

    def __repr__(self) -> str:
        everywhere = "all namespaces" if self.resource.namespaced else "the cluster"
        where = f"namespace {self.namespace}" if self.namespace else everywhere
        return f"<Api of {self.resource.full_name} in {self.resource.api_version}, {where}>"


def _api(client: Client, kind: type[Any] | ApiResource, namespace: str | None) -> Api[Any]:
    if isinstance(kind, ApiResource):
        return Api(client, dynamic(kind), Place(kind, namespace))
    return Api(client, kind, Place(api_resource_of(kind), namespace))  # type: ignore[arg-type] # checked there


def _dry(params: PostParams | PatchParams | DeleteParams | None) -> bool:
    return params is not None and params.dry_run

