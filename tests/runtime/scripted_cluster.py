"""A cluster in memory for tests of controllers: objects, versions, lists and watches, and ways to break them.

It is the transport of a real `Client`, which tests use as they would use any client. In a simulation a watch with
nothing to say yields an empty chunk; with `blocking` it waits, as a socket would.
"""
from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlsplit

import requests
from requests.adapters import BaseAdapter

from kubectl_runtime.client.api.api import Api
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.client.config.config import Config
from kubectl_runtime.core.base.threads import SYSTEM_CLOCK, Clock
from kubectl_runtime.core.codec.jsonbytes import decode_object
from kubectl_runtime.core.codec.views import Record
from kubectl_runtime.core.meta.gvk import ApiResource
from kubectl_runtime.core.objects.resource import Resource
from kubectl_runtime.core.requests.params import Patch
from tests.runtime.scripted_transport import Body, response, status_body


class Parent(Resource, group="test.example", version="v1", kind="Parent"):
    """What the controllers under test reconcile."""

    spec: dict[str, int]


class Child(Resource, group="test.example", version="v1", kind="Child", plural="children"):
    """What they make."""

    spec: dict[str, int]


class Cluster(BaseAdapter):
    """Safe to use from any thread."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK, *, blocking: bool = False) -> None:
        super().__init__()
        session = requests.Session()
        session.mount("http://", self)
        self.client = Client(Config(cluster_url="http://cluster.test"), session=session, clock=clock)
        self.blocking = blocking
        self.changed = threading.Condition()
        self.version = 100
        self.objects: dict[ApiResource, dict[str, Record]] = {}
        self.history: dict[ApiResource, list[tuple[int, str, Record]]] = {}
        self.oldest: Counter[ApiResource] = Counter()
        """Versions of a kind before this one can no longer be watched from."""
        self.epoch: Counter[ApiResource] = Counter()
        """Watches opened in an earlier one are cut."""
        self.failing: set[ApiResource] = set()
        """Kinds that cannot be read: their requests find no server."""
        self.refused: set[ApiResource] = set()
        """Kinds whose reads the server answers with 500."""
        self.on_request: Callable[[ApiResource], object] = lambda _: None
        """Called with the kind of each request before it is answered; it may block and raise."""
        self._resources = {kind.api_resource.plural: kind.api_resource for kind in (Parent, Child)}
        self._answer = threading.local()

    def api(self, kind: type[Resource]) -> Api[Any]:
        """The Api of one kind, all namespaces."""
        self._resources[kind.api_resource.plural] = kind.api_resource
        return Api.all(self.client, kind)

    def put(self, kind: type[Resource], name: str, value: int = 0, *, owner: str | None = None,
            verb: str = "", metadata: dict[str, Any] | None = None, sent: bytes | None = None) -> Record:
        """Create or change an object; with `verb`, as a write of this process's client, which sends this (by default
        the value)."""
        change = partial(self._put, kind.api_resource, name, value, owner, metadata)
        if not verb:
            return change()
        return self.answer(kind, name, verb, change, sent or json.dumps({"spec": {"value": value}}).encode())

    def answer(self, kind: type[Resource], name: str, verb: str, change: Callable[[], Record | None],
               sent: bytes) -> Any:
        """Write through the client; the cluster answers with the result of `change`. Returns that."""
        api: Api[Any] = Api.namespaced(self.client, kind, "default")
        content = json.loads(sent)
        self._answer.change = change
        if verb == "patch":
            api.patch(name, Patch.merge(content))
        else:
            resource = kind.api_resource
            whole = {**content, "apiVersion": resource.api_version, "kind": resource.kind,
                     "metadata": {"name": name, "namespace": "default"}}
            if verb == "create":
                api.create(whole)
            else:
                api.apply(whole, field_manager="test")
        return self._answer.found

    def put_raw(self, kind: type[Resource], name: str, body: bytes) -> None:
        """Create or change an object to this JSON."""
        with self.changed:
            self.version += 1
            record = decode_object(body.replace(b"@VERSION", str(self.version).encode()), kind.api_resource)
            self.objects.setdefault(kind.api_resource, {})[name] = record
            self._append(kind.api_resource, "MODIFIED", record)

    def delete(self, kind: type[Resource], name: str, *, own: bool = False) -> None:
        """Delete an object, if there is one; `own`: by a call of this process's client."""
        if own:
            Api.namespaced(self.client, kind, "default").delete(name)
        else:
            self._delete(kind.api_resource, name)

    def names(self, kind: type[Resource]) -> set[str]:
        return set(self.objects.get(kind.api_resource, {}))

    def value(self, kind: type[Resource], name: str) -> int | None:
        record = self.objects.get(kind.api_resource, {}).get(name)
        return None if record is None else json.loads(record.raw)["spec"]["value"]

    def cut(self, *kinds: type[Resource]) -> None:
        """The open watches of these kinds end."""
        with self.changed:
            self.epoch.update(kind.api_resource for kind in kinds)
            self.changed.notify_all()

    def compact(self, *kinds: type[Resource]) -> None:
        """The open watches of these kinds end, and none can go on from where it was: only lists help."""
        with self.changed:
            self.oldest.update({kind.api_resource: self.version - self.oldest[kind.api_resource] for kind in kinds})
            self.epoch.update(kind.api_resource for kind in kinds)
            self.changed.notify_all()

    def send(self, request: requests.PreparedRequest, *_: Any, **__: Any) -> requests.Response:
        """Answer a request, as a `requests` adapter."""
        parts = urlsplit(request.url or "")
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        path = parts.path.split("/")[4:]  # after /apis/test.example/v1
        if path[0] == "namespaces":
            path = path[2:]
        resource, name = self._resources[path[0]], path[1] if len(path) > 1 else ""
        self.on_request(resource)
        if resource in self.failing and request.method == "GET":
            raise requests.ConnectionError(f"{resource.full_name} cannot be reached")
        if resource in self.refused and request.method == "GET":
            return response(request, 500, status_body(500, "InternalError"))
        if request.method == "DELETE":
            gone = self._delete(resource, name)
            if gone is not None:
                return response(request, 200, status_body(200, details={"name": name, "uid": gone.uid}))
            found = None
        elif request.method != "GET":
            self._answer.found = found = self._answer.change()
        elif name:
            found = self.objects.get(resource, {}).get(name)
        elif "watch" in query:
            return self._watch(request, resource, int(query["resourceVersion"]))
        else:
            return self._list(request, resource, int(query.get("limit", 1 << 60)), int(query.get("continue", 0)))
        if found is None:
            return response(request, 404, status_body(404, "NotFound"))
        return response(request, 200, found.raw)

    def close(self) -> None:
        """Nothing is kept open."""

    def _put(self, resource: ApiResource, name: str, value: int, owner: str | None,
             more: dict[str, Any] | None) -> Record:
        with self.changed:
            old = self.objects.setdefault(resource, {}).get(name)
            self.version += 1
            uid = old.uid if old else f"uid-{name}-{self.version}"
            metadata = {"uid": uid, **(more or {}), "name": name, "namespace": "default",
                        "resourceVersion": str(self.version)}
            if owner is not None:
                metadata["ownerReferences"] = [{"apiVersion": "test.example/v1", "kind": "Parent", "name": owner,
                                                "uid": "u"}]
            content = {"apiVersion": "test.example/v1", "kind": resource.kind, "metadata": metadata,
                       "spec": {"value": value}}
            record = decode_object(json.dumps(content).encode(), resource)
            self.objects[resource][name] = record
            self._append(resource, "MODIFIED" if old else "ADDED", record)
            return record

    def _delete(self, resource: ApiResource, name: str) -> Record | None:
        with self.changed:
            record = self.objects.get(resource, {}).pop(name, None)
            if record is not None:
                self.version += 1
                self._append(resource, "DELETED", record)
            return record

    def _append(self, resource: ApiResource, kind: str, record: Record) -> None:
        self.history.setdefault(resource, []).append((self.version, kind, record))
        self.changed.notify_all()

    def _list(self, request: requests.PreparedRequest, resource: ApiResource, limit: int,
              begin: int) -> requests.Response:
        partial_only = "PartialObjectMetadata" in str(request.headers.get("Accept"))
        with self.changed:
            records = [*self.objects.get(resource, {}).values()]
            end = min(begin + limit, len(records))
            more = {"continue": str(end)} if end < len(records) else {}
            items = b",".join(_shown(record, partial_only) for record in records[begin:end])
            head: dict[str, Any] = {"apiVersion": resource.api_version, "kind": f"{resource.kind}List",
                                    "metadata": {"resourceVersion": str(self.version), **more}}
        if partial_only:
            head |= {"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList"}
        return response(request, 200, json.dumps(head).encode()[:-1] + b',"items":[' + items + b"]}")

    def _watch(self, request: requests.PreparedRequest, resource: ApiResource, version: int) -> requests.Response:
        if version < self.oldest[resource]:
            return response(request, 410, status_body(410, "Expired"))
        partial_only = "PartialObjectMetadata" in str(request.headers.get("Accept"))
        body = Body(iter(()), self._wake)
        body.pieces = self._pieces(resource, version, self.epoch[resource], body, partial_only)
        return response(request, 200, body)

    def _pieces(self, resource: ApiResource, version: int, epoch: int, body: Body,
                partial_only: bool) -> Iterator[bytes]:
        while not body.ended and self.epoch[resource] == epoch:
            with self.changed:
                new = [entry for entry in self.history.get(resource, ()) if entry[0] > version]
                if not new and self.blocking:
                    self.changed.wait(5)
                    continue
            if new:
                version = new[-1][0]
            yield b"".join(b'{"type":"%b","object":%b}\n' % (kind.encode(), _shown(record, partial_only))
                           for _, kind, record in new)

    def _wake(self) -> None:
        with self.changed:
            self.changed.notify_all()


def _shown(record: Record, partial_only: bool) -> bytes:
    if not partial_only:
        return record.raw
    return json.dumps({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
                       "metadata": json.loads(record.raw)["metadata"]}).encode()
