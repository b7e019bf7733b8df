"""`Api[K]`: the verbs of one kind, in one namespace or in all.

    Api.all(client, Pod)                        every namespace, or a cluster-scoped kind; reads, lists, watches
    Api.namespaced(client, Pod, "default")      one namespace
    Api.default_namespaced(client, Pod)         the namespace of the client's configuration
    Api.namespaces(client, Pod, ["a", "b"])     several, for controllers (see client/api/namespaces.py)

`kind` is a resource class, which types what comes back, or an `ApiResource`, which gives `DynamicObject`s. Writes take
a dict, a resource object or an official model.

Every verb blocks until the answer is there (60 s at most by default, retries included) and raises RequestError for
arguments that cannot work, ApiError for an error of the server, TransportError for no answer, AuthError for no
credentials. An object whose metadata does not decode comes as an `InvalidObject`. An Api holds no state: use it from
any thread.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, TypeVar, overload

from kubectl_runtime.client.api.api_base import dry
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.client.api.namespaces import Namespaces
from kubectl_runtime.client.api.paging import ObjectList, Page, walk
from kubectl_runtime.client.api.subresources import Subresources
from kubectl_runtime.client.api.watch import WatchEvent, WatchStream, open_watch
from kubectl_runtime.client.http.failures import KindNotServedError, decode_status
from kubectl_runtime.core.base.clock import seconds
from kubectl_runtime.core.base.errors import ApiError, RequestError, TransportError
from kubectl_runtime.core.base.status import Status
from kubectl_runtime.core.base.stop import StopToken
from kubectl_runtime.core.meta.gvk import ApiResource, api_resource_of
from kubectl_runtime.core.objects.dynamic import DynamicObject, dynamic
from kubectl_runtime.core.objects.partial import FieldsForm, PartialObjectMeta, PartialView
from kubectl_runtime.core.objects.resource import Resource
from kubectl_runtime.core.requests import request as build
from kubectl_runtime.core.requests.params import (
    IDLE_MARGIN,
    DeleteParams,
    GetParams,
    ListParams,
    PatchParams,
    PostParams,
    WatchParams,
)
from kubectl_runtime.core.requests.patch import Patch
from kubectl_runtime.core.requests.request import Place, Retry

K = TypeVar("K")
R = TypeVar("R", bound=Resource)
V = TypeVar("V", bound=PartialView)

WATCH_TIMEOUT = 290.0
"""Seconds that the server keeps a watch open when the caller says nothing."""


class Api(Subresources[K]):
    """The verbs of one kind. Made by `all`, `namespaced` or `default_namespaced`."""

    __slots__ = ()

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

    @overload
    @classmethod
    def namespaces(cls, client: Client, kind: type[R], namespaces: Iterable[str]) -> Namespaces[R]: ...
    @overload
    @classmethod
    def namespaces(cls, client: Client, kind: ApiResource, namespaces: Iterable[str]) -> Namespaces[DynamicObject]: ...
    @classmethod
    def namespaces(cls, client: Client, kind: type[Any] | ApiResource, namespaces: Iterable[str]) -> Namespaces[Any]:
        """Several namespaces, for a controller: one watch of each, one store of all. Raises RequestError for a
        cluster-scoped kind, for none, and for text, which is no list."""
        names = () if isinstance(namespaces, str) else tuple(dict.fromkeys(namespaces))
        if not names:
            raise RequestError(f"the namespaces of an Api are a list of at least one name, not {namespaces!r}")
        return Namespaces(tuple(_api(client, kind, name or "") for name in names))

    def with_metadata_only(self) -> Api[PartialObjectMeta]:
        """The same place, where every verb asks the server for metadata alone."""
        return Api(self.client, PartialObjectMeta.of(self.resource), replace(self.place, metadata_only=True))

    def with_fields(self, view: type[V]) -> Api[V]:
        """The same place, where only the fields that the frozen `view` declares are kept of each object, read-only."""
        return Api(self.client, view, self.place, FieldsForm(self.resource, view))

    # Reading

    def get(self, name: str, params: GetParams | None = None) -> K:
        """One object. Raises ApiError (`is_not_found`) when there is none."""
        return self._object(self._read(build.get(self.place, name, params)))

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
        chosen = build.params_or_default(params, ListParams)
        for meta, records in walk(self.list_page, chosen, self.place.words("list")):
            yield ObjectList([self._object(record) for record in records], meta)

    def list_all(self, params: ListParams | None = None) -> Iterator[K]:
        """All objects, page by page."""
        for page in self.pages(params):
            yield from page.items

    def list_page(self, params: ListParams | None = None, *, stop: StopToken | None = None,
                  retry: Retry = Retry.SAFE) -> Page:
        """As `list`, but records: what stores hold. `stop` ends the waiting between attempts."""
        request = replace(build.list_(self.place, params), retry=retry)
        return self.form.decode_list(self.client.request(request, stop=stop))

    def watch(self, params: WatchParams | None = None, resource_version: str | None = None,
              stop: StopToken | None = None) -> Iterator[WatchEvent[K]]:
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
                    yield WatchEvent(event.type, found, event.resource_version, event.status)

    def open_watch(self, params: WatchParams | None = None, resource_version: str | None = None,
                   stop: StopToken | None = None) -> WatchStream:
        """As `watch`, but open on return, and batches of records: what watchers read. See client/watch.py.

        A failure is not retried: watchers wait as their own backoff says, and show what they wait for.
        """
        chosen = build.params_or_default(params, WatchParams)
        timeout = WATCH_TIMEOUT if chosen.timeout is None else seconds(chosen.timeout)
        request = build.watch(self.place, replace(chosen, timeout=timeout), resource_version)
        request = replace(request, retry=Retry.NEVER)
        return open_watch(self.client, request, self.form, stop, read_timeout=timeout + IDLE_MARGIN)

    # Writing

    def create(self, body: Any, params: PostParams | None = None) -> K:
        """Create an object; it comes back with what the server added. Raises ApiError (`is_already_exists`)."""
        return self._written("create", build.create(self.place, body, params), dry(params))

    def replace(self, body: Any, params: PostParams | None = None) -> K:
        """Replace an object, which must not have changed since it was read (`is_conflict`), if it has a
        resourceVersion.
        """
        return self._written("replace", build.replace(self.place, body, params), dry(params))

    def patch(self, name: str, patch: Patch, params: PatchParams | None = None) -> K:
        """Patch an object: `Patch.merge({...})`, `Patch.json([...])`, `Patch.strategic({...})`, `Patch.apply(...)`."""
        return self._written("patch", build.patch(self.place, name, patch, params), dry(params))

    def apply(self, body: Any, *, field_manager: str, force: bool = False, dry_run: bool = False) -> K:
        """Server-side apply of the fields in `body`, creating the object if need be. Raises ApiError (`is_conflict`)
        when another manager owns one of them, unless `force` takes them over."""
        request, params = self._apply(body, field_manager, force, dry_run, None)
        return self._written("apply", request, dry(params))

    def delete(self, name: str, params: DeleteParams | None = None) -> K | Status:
        """Delete an object. The object comes back while it waits for finalizers or its grace period, a Status when it
        is gone (some kinds answer with the object even then)."""
        body = self.client.request(build.delete(self.place, name, params))
        status = decode_status(body) if body else Status(status="Success")
        record = None if status is not None else self.form.decode_object(body)
        if not dry(params):
            uid = (status.details.uid if status is not None and status.details is not None else None) or ""
            self._tell("delete", name, record, uid, None)
        if record is not None:
            return self._object(record)
        assert status is not None
        return status

    def delete_collection(self, params: DeleteParams | None = None,
                          selection: ListParams | None = None) -> ObjectList[K] | Status:
        """Delete every object that `selection` selects, by default all of this place; what was deleted, or a Status."""
        body = self.client.request(build.delete_collection(self.place, params, selection))
        status = decode_status(body) if body else Status(status="Success")
        if status is not None:
            return status
        meta, records = self.form.decode_list(body)
        return ObjectList([self._object(record) for record in records], meta)

    def __repr__(self) -> str:
        everywhere = "all namespaces" if self.resource.namespaced else "the cluster"
        where = f"namespace {self.namespace}" if self.namespace else everywhere
        return f"<Api of {self.resource.full_name} in {self.resource.api_version}, {where}>"


def _api(client: Client, kind: type[Any] | ApiResource, namespace: str | None) -> Api[Any]:
    if isinstance(kind, ApiResource):
        return Api(client, dynamic(kind), Place(kind, namespace))
    return Api(client, kind, Place(api_resource_of(kind), namespace))  # type: ignore[arg-type] # checked there
