"""`Journal`: who wrote what in one run, and what it made of the objects.

A write is a request that changes what is stored: not a read, a dry run, a review, an Event or a Lease, which are no
part of what a controller brings about. `Asked` tells them apart.
"""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import requests

from kubectl_runtime.apiserver.storage.storage import Bucket, Change, Version
from kubectl_runtime.apiserver.wire import HttpRequest, RequestInfo, parse, parse_query

PASSING = frozenset({"events", "events.events.k8s.io", "leases.coordination.k8s.io"})
"""Kinds that say what happened, or who is there, and are left out: `plural.group`."""

_REVIEWS = ("authorization.k8s.io", "authentication.k8s.io")
_WRITES = ("POST", "PUT", "PATCH", "DELETE")

Identity = tuple[str, str, str]
"""An object: `plural.group`, namespace, name."""


def resource_of(group: str, plural: str) -> str:
    """A resource as requests name it: `deployments.apps`, or `pods` in the core group."""
    return f"{plural}.{group}" if group else plural


@dataclass(frozen=True)
class Asked:
    """What a request asks for."""

    info: RequestInfo
    is_write: bool
    is_cached: bool
    """Whether an older state will do: `resourceVersion=0`."""

    @classmethod
    def of(cls, request: requests.PreparedRequest) -> Asked:
        """What the prepared request asks for."""
        parts = urlsplit(request.url or "")
        wanted = HttpRequest(request.method or "GET", parts.path or "/", parse_query(parts.query))
        info = parse(wanted)
        lasting = (info.is_resource and resource_of(info.group, info.resource) not in PASSING
                   and info.group not in _REVIEWS and info.subresource not in ("token", "eviction"))
        return cls(info, wanted.method in _WRITES and lasting and not wanted.param("dryRun"),
                   info.verb in ("list", "get") and wanted.param("resourceVersion") == "0")

    @property
    def is_watch(self) -> bool:
        """Whether it opens a watch."""
        return self.info.verb == "watch"

    def __str__(self) -> str:
        info = self.info
        kind = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
        place = "/".join(part for part in (info.namespace, info.name) if part)
        return f"{info.verb} {resource_of(info.group, kind)} {place}".rstrip()


CLUSTER = "the cluster"
"""Whose writes those of the server's own controllers are."""


@dataclass
class Entry:
    """One write: `by` whom, `text` as in `create configmaps default/a`; `made` is what it made of objects, None for
    gone. `number` counts the writes of the same author."""

    by: str
    number: int
    text: str
    status: int = 0
    made: list[tuple[Identity, Version | None]] = field(default_factory=list)

    def __str__(self) -> str:
        if self.by == CLUSTER:
            return f"{self.by}: {self.text}"
        answer = "never answered" if not self.status else str(self.status)
        return f"{self.by}, write {self.number}: {self.text} ({answer})"


class Journal:
    """The writes of one run, in order. `see` is told of each change of what is stored."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.known: dict[str, tuple[Identity, str]] = {}
        """By uid: every object there was, and its generateName."""
        self._current: Entry | None = None

    @contextmanager
    def writing(self, by: str, number: int, asked: Asked) -> Iterator[Entry]:
        """What changes inside is this write's."""
        entry = self._current = Entry(by, number, str(asked))
        self.entries.append(entry)
        try:
            yield entry
        finally:
            self._current = None

    def see(self, bucket: Bucket, change: Change) -> None:
        """An observer of the server's storage."""
        version = change.new
        identity = identity_of(bucket.key, version)
        if version.uid not in self.known:
            generated = version.decode()["metadata"].get("generateName", "")
            self.known[version.uid] = identity, generated if version.name.startswith(generated) else ""
        entry = self._current
        if entry is None:  # a controller of the cluster: a garbage collection, say
            verb = "delete" if change.deleted else "create" if change.old is None else "update"
            place = f"{version.namespace}/{version.name}" if version.namespace else version.name
            entry = Entry(CLUSTER, len(self.entries) + 1, f"{verb} {identity[0]} {place}")
            self.entries.append(entry)
        entry.made.append((identity, None if change.deleted else version))


def identity_of(key: str, version: Version) -> Identity:
    """`key` is the storage's word for a kind: `group/plural`, or the plural."""
    group, _, plural = key.rpartition("/")
    return resource_of(group, plural), version.namespace, version.name
