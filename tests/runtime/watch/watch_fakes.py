"""Scripted stand-ins for an `Api`, so that the watching half is tested without sockets and without time passing."""
from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from kubectl_runtime.core.base.errors import ApiError, Status, StatusCause, StatusDetails, TransportError
from kubectl_runtime.core.base.stop import StopToken
from kubectl_runtime.core.codec.jsonbytes import decode_object
from kubectl_runtime.core.codec.views import Head, Record
from kubectl_runtime.core.meta.gvk import ApiResource, Scope
from kubectl_runtime.core.meta.metav1 import ListMeta
from kubectl_runtime.core.meta.problems import Problem
from kubectl_runtime.core.objects.resource import Resource
from kubectl_runtime.core.requests.params import ListParams, WatchParams


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
    head = Head(name=name, namespace="default", resource_version=str(rv))
    return Record(head, THING, b"{}", problem=Problem("$.metadata.labels", "expected object"))


@dataclass(frozen=True)
class Item:
    """One event of a watch."""

    type: str
    record: Record | None = None
    resource_version: str | None = None
    status: Status | None = None
    initial_events_end: bool = False


def added(record: Record) -> Item:
    return Item("ADDED", record, record.resource_version)


def modified(record: Record) -> Item:
    return Item("MODIFIED", record, record.resource_version)


def deleted(record: Record) -> Item:
    return Item("DELETED", record, record.resource_version)


def bookmark(rv: int | str) -> Item:
    return Item("BOOKMARK", resource_version=str(rv))


def list_end(rv: int | str) -> Item:
    """The bookmark that ends a streaming list."""
    return Item("BOOKMARK", resource_version=str(rv), initial_events_end=True)


def status(
    code: int, reason: str = "", *, message: str = "", cause: str = "", retry_after: int | None = None
) -> Status:
    details = StatusDetails(causes=[StatusCause(reason=cause)] if cause else None, retry_after_seconds=retry_after)
    return Status(status="Failure", code=code, reason=reason, message=message, details=details)


def error_event(code: int, reason: str = "", **more: Any) -> Item:
    return Item("ERROR", status=status(code, reason, **more))


def api_error(code: int, reason: str = "", *, retry_after: float | None = None, **more: Any) -> ApiError:
    return ApiError(status(code, reason, **more), "list things", retry_after=retry_after)


TOO_LARGE = {"code": 504, "reason": "Timeout", "cause": "ResourceVersionTooLarge"}
EXPIRED = {"code": 410, "reason": "Expired"}

Page = tuple[int | str | None, Sequence[Record]]


def page(rv: int | str | None, *records: Record, token: str | None = None) -> tuple[ListMeta, list[Record]]:
    return ListMeta(resource_version=None if rv is None else str(rv), continue_token=token), list(records)


class Late:
    """In a watch's script: let this many seconds pass."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


@dataclass
class ScriptedApi:
    """Answers from a script, in order; when the script is over it sets the stop token and answers with errors.

    `versions`: what each list of one object gets that follows a watch, to learn the server's version: a version or an
    exception; the last one goes on. `lists`: what each other list request gets, a page or an exception. `watches`: for
    each watch request an exception, or the script of the stream: batches (lists of items), exceptions, `Late`,
    functions to call. `requests` records all.
    """

    stop: StopToken
    lists: Sequence[tuple[ListMeta, list[Record]] | Exception] = ()
    watches: Sequence[Exception | Sequence[Sequence[Item] | Exception | Late | Callable[[], None]]] = ()
    kind: Any = Thing
    namespace: str | None = "default"
    versions: Sequence[str | Exception] = ("999999",)
    pass_time: Callable[[float], None] = lambda _: None
    requests: list[tuple[str, Any]] = field(default_factory=list)
    open_streams: int = 0

    def __post_init__(self) -> None:
        self._lists, self._watches, self._versions = deque(self.lists), deque(self.watches), deque(self.versions)

    @property
    def resource(self) -> ApiResource:
        found: ApiResource = self.kind.api_resource
        return found

    def list_page(self, params: ListParams, stop: StopToken | None = None, **_: Any) -> tuple[ListMeta, list[Record]]:
        if self.requests and self.requests[-1][0] in ("watch", "stream") and params.limit == 1:
            self.requests.append(("version", params))
            found = self._versions.popleft() if len(self._versions) > 1 else self._versions[0]
            if isinstance(found, Exception):
                raise found
            return page(found)
        self.requests.append(("list", params))
        answer = self._lists.popleft() if self._lists else self._over()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def open_watch(self, params: WatchParams, resource_version: str, stop: StopToken) -> Iterator[Sequence[Item]]:
        self.requests.append(("stream" if params.send_initial_events else "watch", resource_version))
        answer = self._watches.popleft() if self._watches else self._over()
        if isinstance(answer, Exception):
            raise answer
        return self._stream(answer)

    def verbs(self) -> list[str]:
        """What was asked for: `list`, `version`, `stream VERSION` (a list as a stream), and `watch VERSION`."""
        return [verb if verb in ("list", "version") else f"{verb} {detail}".rstrip() for verb, detail in self.requests]

    def _stream(self, script: Sequence[Any]) -> Iterator[Sequence[Item]]:
        self.open_streams += 1
        try:
            for entry in script:
                if isinstance(entry, Exception):
                    raise entry
                if isinstance(entry, Late):
                    self.pass_time(entry.seconds)
                elif callable(entry):
                    entry()
                else:
                    yield entry
        finally:
            self.open_streams -= 1

    def _over(self) -> TransportError:
        self.stop.set("the script is over")
        return TransportError("the script is over")
