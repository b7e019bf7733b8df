"""The kinds that are read, and the watches that show their changes.

    Target    a kind, and where it is watched
    Source    a watch, or a place that must not be watched, and the nodes that the watch keeps up to date
    Watches   how a controller takes, starts and gives back its watches

A value is the part of an object that matters to a reader: a path, such as `data.tls.crt`, or a function of the object.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.guard import check_callback
from kubectl_runtime.core.base.plain import Key, key_of
from kubectl_runtime.core.codec.views import Record
from kubectl_runtime.core.meta.gvk import ApiResource, ObjectRef, api_resource_of
from kubectl_runtime.core.objects.partial import PartialView, dynamic
from kubectl_runtime.core.objects.resource import Resource
from kubectl_runtime.runtime.queue.runs import Run
from kubectl_runtime.runtime.reads.dependencies import Identity, Shelf, identity_of
from kubectl_runtime.runtime.store.store import StoreState
from kubectl_runtime.runtime.triggers.shared_watches import Share
from kubectl_runtime.runtime.triggers.triggers import OfHeads, Sink
from kubectl_runtime.runtime.watch.config import WatcherConfig

Value = str | Callable[[Any], object]


CHOSEN = "*"
"""Stands for the namespaces that the controller's own Api chooses at each moment, in place of a namespace."""


class Absent:
    """The value of an object that does not exist, and of a path that does not exist in the object."""

    def __repr__(self) -> str:
        return "absent"


ABSENT = Absent()


def value_at(obj: Any, path: str) -> Any:
    """The value at a path such as `data.tls.crt` or `spec.ports.0.name` of plain JSON; `ABSENT` if there is none.

    Keys may contain dots: the longest existing key is taken.
    """
    parts = path.removeprefix(".").split(".")
    return _value_at(obj, parts)


def _value_at(obj: Any, parts: list[str]) -> Any:
    if not parts:
        return obj
    if isinstance(obj, list):
        index = parts[0]
        return _value_at(obj[int(index)], parts[1:]) if index.isdecimal() and int(index) < len(obj) else ABSENT
    if isinstance(obj, dict):
        for length in range(len(parts), 0, -1):
            key = ".".join(parts[:length])
            if key in obj and (found := _value_at(obj[key], parts[length:])) is not ABSENT:
                return found
    return ABSENT


class Watched(NamedTuple):
    """A watch that serves reads: the share of it, its name, and whether it stores whole objects."""

    share: Share
    name: str
    whole: bool


class Watches(Protocol):
    """The watches of the controller."""

    def take(self, api: Any, config: WatcherConfig) -> Watched:
        """Take a suitable watch; no request is made."""

    def connect(self, watched: Watched, subscription: OfHeads, sink: Sink, arrived: Callable[[], None]) -> None:
        """Pass the events of the watch to the subscription."""

    def start(self, watched: Watched) -> None:
        """Make the watch run."""

    def drop(self, watched: Watched, reason: str) -> None:
        """Release the watch: the controller no longer needs it."""


class Target:
    """A kind that is read: its class and resource, its name in texts, and where it is watched."""

    __slots__ = ("kind", "namespaced", "resource", "sources", "word")

    def __init__(self, kind: type[Any], resource: ApiResource) -> None:
        self.kind = kind
        self.resource = resource
        self.namespaced = resource.namespaced
        self.word = resource.kind.lower()
        self.sources: dict[tuple[str | None, str, str], Source] = {}
        """By namespace, name and fields."""


def target_of(kind: Any) -> Target:
    """The target for a kind. Raises RequestError for a kind that cannot be read as a whole."""
    if isinstance(kind, type) and issubclass(kind, PartialView):
        raise RequestError(f"read: only whole objects can be read, and {kind.__name__} is a view")
    resource = api_resource_of(kind)
    found: Any = dynamic(resource) if isinstance(kind, ApiResource) else kind
    if not issubclass(found, Resource):
        raise RequestError(f"read: {found.__name__} is not a resource class")
    return Target(found, resource)


def key_of_read(run: Run, target: Target, which: Any) -> Key:
    """The key of the object that `which` names: a name, a ref or an object. Raises RequestError for anything else."""
    resource = target.resource
    if isinstance(which, str):
        if not which:
            raise RequestError(f"read: the name of the {resource.kind} is empty")
        if not resource.namespaced:
            return None, which
        namespace = run.key[0]
        if namespace is None:
            raise RequestError(f"read: {resource.full_name} live in namespaces, and {run.request.ref} is in none: "
                               f"ctx.read({resource.kind}, ObjectRef.of({resource.kind}, {which!r}, namespace))")
        return namespace, which
    ref = which if isinstance(which, ObjectRef) else getattr(which, "ref", None)
    if not isinstance(ref, ObjectRef):
        raise RequestError(f"read: a name, an ObjectRef or an object, not {type(which).__name__}")
    if ref.kind != resource.kind or ref.group != resource.group:
        raise RequestError(f"read: {ref} is no {resource.full_name}")
    if not ref.name:
        raise RequestError(f"read: the name of the {resource.kind} is empty")
    if resource.namespaced and not ref.namespace:
        raise RequestError(f"read: {ref} has no namespace, but {resource.full_name} live in namespaces")
    return key_of(ref.namespace if resource.namespaced else None, ref.name)


class Source:
    """A watch, and the nodes that it keeps up to date."""

    def __init__(self, target: Target, namespace: str | None, name: str = "", fields: str = "") -> None:
        """`name`: the name of the only watched object, if any. `fields`: the field selector."""
        self.target = target
        self.namespace = namespace
        self.name = name
        self.fields = fields
        self.shelf = Shelf()
        self.watched: Watched | None = None
        self.refused = False
        """It must not be watched."""
        self.ended = False
        """Its watch was given back."""
        self.connected = False
        self.arrived: Callable[[], None] = _nothing

    @property
    def state(self) -> StoreState:
        """The state that its watch stores."""
        assert self.watched is not None
        return self.watched.share.watch.stored

    def covers(self, namespace: str | None) -> bool:
        """Whether its watch shows the objects of this namespace, or will with its first list."""
        if self.namespace != CHOSEN or self.watched is None:
            return True
        return self.watched.share.watch.covers(namespace) or not self.state.ready

    @property
    def progress(self) -> str:
        """The version up to which its watch has shown everything; empty while that is unknown."""
        state = self.state
        with state.lock:
            return state.overlay.shown if state.ready else ""

    def shown(self, key: Key) -> Identity | None:
        """The identity that the watch has stored for the key."""
        state = self.state
        with state.lock:
            return identity_of(state.records.get(key)) if state.ready else None

    def stored(self, key: Key) -> Record | None:
        """The record that the watch has stored for the key."""
        state = self.state
        with state.lock:
            return state.records.get(key)


def check_value(value: object) -> None:
    """Raise RequestError for an invalid `value=` of a read."""
    if isinstance(value, str):
        if not value.strip("."):
            raise RequestError("read: the value is a path such as 'data.tls.crt', or a function of the object")
        return
    check_callback("read: the value is a path such as 'data.tls.crt', or a function, which", value, "obj")


def _nothing() -> None:
    return None
