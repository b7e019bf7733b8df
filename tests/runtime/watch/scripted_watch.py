"""A scripted server behind a real client, so that the watching half is tested without sockets and without time passing;
and records and events to build scripts of."""
from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import requests
import urllib3
from requests.adapters import BaseAdapter

from kubectl_runtime.client.api.api import Api
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.client.api.watch import RecordEvent
from kubectl_runtime.client.config.config import Config
from kubectl_runtime.core.base.errors import (
    ApiError,
    RequestTimeout,
    Status,
    StatusCause,
    StatusDetails,
    TransportError,
)
from kubectl_runtime.core.base.threads import SYSTEM_CLOCK, Clock
from kubectl_runtime.core.codec.jsonbytes import decode_object
from kubectl_runtime.core.codec.views import Head, Record
from kubectl_runtime.core.meta.gvk import ApiResource, Scope
from kubectl_runtime.core.meta.metav1 import ListMeta
from kubectl_runtime.core.meta.problems import Problem
from kubectl_runtime.core.objects.resource import Resource
from kubectl_runtime.core.scope import StopToken
from tests.runtime.scripted_transport import Body, response


class Thing(Resource, group="test.example", version="v1", kind="Thing"):
    """A kind for tests."""

    spec: dict[str, Any]


class Foo(Resource, group="test.example", version="v1", kind="Foo", scope=Scope.CLUSTER):
    """A cluster-scoped kind for tests."""


THING: ApiResource = Thing.api_resource


def thing(name: str = "a", rv: int | str = 1, *, uid: str | None = None, namespace: str | None = "default",
          resource: ApiResource = THING, spec: dict[str, Any] | None = None, **metadata: Any) -> Record:
    """The record of an object; `metadata` has the wire's keys."""
    content = {"apiVersion": resource.api_version, "kind": resource.kind, "spec": spec or {},
               "metadata": {"name": name, "namespace": namespace, "uid": uid or f"uid-{name}",
                            "resourceVersion": str(rv), **metadata}}
    return decode_object(json.dumps(content).encode(), resource)


def broken(name: str, rv: int | str = "") -> Record:
    """The record of an object whose head did not decode."""
    content = {"metadata": {"name": name, "namespace": "default", "resourceVersion": str(rv), "labels": "none"}}
    head = Head(name=name, namespace="default", resource_version=str(rv))
    return Record(head, THING, json.dumps(content).encode(), problem=Problem("$.metadata.labels", "expected object"))


def added(record: Record) -> RecordEvent:
    return RecordEvent("ADDED", record, record.resource_version)


def modified(record: Record) -> RecordEvent:
    return RecordEvent("MODIFIED", record, record.resource_version)


def deleted(record: Record) -> RecordEvent:
    return RecordEvent("DELETED", record, record.resource_version)


def bookmark(rv: int | str) -> RecordEvent:
    return RecordEvent("BOOKMARK", resource_version=str(rv))


def list_end(rv: int | str) -> RecordEvent:
    """The bookmark that ends a streaming list."""
    return RecordEvent("BOOKMARK", resource_version=str(rv), initial_events_end=True)


def status(
    code: int, reason: str = "", *, message: str = "", cause: str = "", retry_after: int | None = None
) -> Status:
    details = StatusDetails(causes=[StatusCause(reason=cause)] if cause else None, retry_after_seconds=retry_after)
    return Status(status="Failure", code=code, reason=reason, message=message, details=details)


def error_event(code: int, reason: str = "", **more: Any) -> RecordEvent:
    return RecordEvent("ERROR", status=status(code, reason, **more))


def api_error(code: int, reason: str = "", *, retry_after: float | None = None, **more: Any) -> ApiError:
    return ApiError(status(code, reason, **more), "list things", retry_after=retry_after)


TOO_LARGE = {"code": 504, "reason": "Timeout", "cause": "ResourceVersionTooLarge"}
EXPIRED = {"code": 410, "reason": "Expired"}

Page = tuple[ListMeta, list[Record]]


def page(rv: int | str | None, *records: Record, token: str | None = None) -> Page:
    return ListMeta(resource_version=None if rv is None else str(rv), continue_token=token), list(records)


class Late:
    """In a watch's script: let this many seconds pass."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


@dataclass(frozen=True)
class Asked:
    """The query of a request, as the parameters that made it."""

    limit: int | None = None
    continue_token: str | None = None
    resource_version: str | None = None
    label_selector: str | None = None
    field_selector: str | None = None
    timeout: int | None = None
    metadata_only: bool = False
    watches: bool = False
    initial_events: bool = False

    @classmethod
    def of(cls, request: requests.PreparedRequest) -> Asked:
        query = {name: values[0] for name, values in parse_qs(urlsplit(request.url or "").query).items()}
        return cls(int(query["limit"]) if "limit" in query else None, query.get("continue"),
                   query.get("resourceVersion"), query.get("labelSelector"), query.get("fieldSelector"),
                   int(query["timeoutSeconds"]) if "timeoutSeconds" in query else None,
                   "PartialObjectMetadata" in str(request.headers.get("Accept")),
                   "watch" in query, "sendInitialEvents" in query)


class AnsweringServer(BaseAdapter, ABC):
    """The transport of a real client, whose lists and watches a subclass answers.

    An ApiError that they raise is answered with its Status; other exceptions are raised by the transport.
    """

    def __init__(self, *, kind: Any = Thing, namespace: str | None = "default", clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__()
        session = requests.Session()
        session.mount("http://", self)
        self.client = Client(Config(cluster_url="http://script.test"), session=session, clock=clock)
        self.api: Api[Any] = Api.namespaced(self.client, kind, namespace) if namespace else Api.all(self.client, kind)

    @abstractmethod
    def on_list(self, asked: Asked) -> Page | bytes:
        """A page of a list."""

    def on_watch(self, asked: Asked) -> Iterator[Any]:
        """What a watch yields: batches (lists of items) and bytes. Raises to refuse it."""
        raise api_error(405, "MethodNotAllowed")

    def send(self, request: requests.PreparedRequest, *_: Any, **__: Any) -> requests.Response:
        """Answer a request, as a `requests` adapter."""
        if self.api.resource.plural not in urlsplit(request.url or "").path:
            return response(request, 404, msgspec.json.encode(status(404, "NotFound")))  # discovery
        asked = Asked.of(request)
        try:
            if asked.watches:
                return response(request, 200, Body(self._pieces(self.on_watch(asked))))
            found = self.on_list(asked)
            if not isinstance(found, bytes):
                found = _page_bytes(*found, metadata_only=asked.metadata_only)
            return response(request, 200, found)
        except ApiError as error:
            after = {} if error.retry_after is None else {"Retry-After": str(round(error.retry_after))}
            return response(request, error.status.code or 500, msgspec.json.encode(error.status), after)
        except TransportError as error:
            raise _as_sent(error) from None

    def close(self) -> None:
        """Nothing is kept open."""

    @staticmethod
    def _pieces(batches: Iterator[Any]) -> Iterator[bytes]:
        try:
            for batch in batches:
                yield batch if isinstance(batch, bytes) else b"".join(map(_line, batch))
        except TransportError as error:
            raise _as_sent(error) from None
        finally:
            batches.close()  # type: ignore[attr-defined]


class ScriptedServer(AnsweringServer):
    """Answers from a script, in order; when the script is over it sets the stop token and refuses connections.

    `versions`: what each list of one object gets that follows a watch, to learn the server's version: a version or an
    exception; the last one goes on. `lists`: what each other list request gets: a page or an exception. `watches`: for
    each watch request an exception, or the script of the stream: batches (lists of items), bytes, exceptions, `Late`,
    functions to call. `requests` records all.
    """

    def __init__(self, stop: StopToken, lists: Sequence[Any] = (), watches: Sequence[Any] = (), *,
                 versions: Sequence[str | Exception] = ("999999",), pass_time: Callable[[float], Any] = lambda _: None,
                 **more: Any) -> None:
        super().__init__(**more)
        self.pass_time = pass_time
        self.requests: list[tuple[str, Asked]] = []
        self.open_streams = 0
        self._stop = stop
        self._lists, self._watches, self._versions = deque(lists), deque(watches), deque(versions)

    def verbs(self) -> list[str]:
        """What was asked for: `list`, `version`, `stream VERSION` (a list as a stream), and `watch VERSION`."""
        return [verb if verb in ("list", "version") else f"{verb} {asked.resource_version or ''}".rstrip()
                for verb, asked in self.requests]

    def on_list(self, asked: Asked) -> Page:
        if self.requests and self.requests[-1][0] in ("watch", "stream") and asked.limit == 1:
            self.requests.append(("version", asked))
            version = self._versions.popleft() if len(self._versions) > 1 else self._versions[0]
            return page(_unless_error(version))
        self.requests.append(("list", asked))
        answer: Page = _unless_error(self._lists.popleft() if self._lists else self._over())
        return answer

    def on_watch(self, asked: Asked) -> Iterator[Any]:
        self.requests.append(("stream" if asked.initial_events else "watch", asked))
        return self._stream(_unless_error(self._watches.popleft() if self._watches else self._over()))

    def _stream(self, script: Sequence[Any]) -> Iterator[Any]:
        self.open_streams += 1
        try:
            for entry in script:
                _unless_error(entry)
                if isinstance(entry, Late):
                    self.pass_time(entry.seconds)
                elif callable(entry):
                    entry()
                else:
                    yield entry
        finally:
            self.open_streams -= 1

    def _over(self) -> TransportError:
        self._stop.set("the script is over")
        return TransportError("the script is over")


def _unless_error(answer: Any) -> Any:
    if isinstance(answer, Exception):
        raise answer
    return answer


def _as_sent(error: TransportError) -> Exception:
    """The error as a transport raises it."""
    if isinstance(error, RequestTimeout):
        return urllib3.exceptions.ReadTimeoutError(None, "", str(error))  # type: ignore[arg-type]
    return requests.ConnectionError(str(error))


def _line(item: RecordEvent) -> bytes:
    if item.status is not None:
        content = msgspec.json.encode(item.status)
    elif item.record is not None:
        content = item.record.raw
    else:
        end = {"k8s.io/initial-events-end": "true"} if item.initial_events_end else {}
        content = json.dumps({"apiVersion": THING.api_version, "kind": THING.kind, "metadata": {
            "resourceVersion": item.resource_version, "annotations": end}}).encode()
    return b'{"type":"%b","object":%b}\n' % (item.type.encode(), content)


def _page_bytes(meta: ListMeta, records: Sequence[Record], *, metadata_only: bool) -> bytes:
    head = {"apiVersion": THING.api_version, "kind": f"{THING.kind}List", "metadata": {
        name: value for name, value in (("resourceVersion", meta.resource_version), ("continue", meta.continue_token))
        if value is not None}}
    if metadata_only:
        head |= {"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList"}
    return json.dumps(head).encode()[:-1] + b',"items":[' + b",".join(record.raw for record in records) + b"]}"
