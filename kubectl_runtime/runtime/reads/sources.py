"""The kinds that are read, and the watches that show their changes.

    Target    a kind, and where it is watched
    Source    a watch, or the scope of a refused watch, with the nodes of its objects
    Watches   how a controller takes, starts and releases its watches
    Sources   finds or makes the source for a read

Which watch serves a read:

    a watch of the controller stores the whole objects   this watch; the contents are read from its store
    the controller reads all namespaces                  a watch of metadata only, of the whole cluster
    the controller has fixed namespaces                  a watch of metadata only, of the namespace that is read
    the controller has a changing set of namespaces      a watch of metadata only, of the whole set; for a namespace
                                                         that is not in the set now, a watch of that namespace
    the watch is refused (403) before its first list     a watch for each name that is read, at most `SINGLE_WATCHES`;
                                                         further names, and names that are refused, are read each time,
                                                         and their changes trigger nothing: a warning names the missing
                                                         RBAC rule
    a selection by fields                                a separate watch, at most `FIELD_WATCHES`; beyond this number,
                                                         a change of any object with the same labels triggers the reader
"""
from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kubectl_runtime.client.api.api import Api
from kubectl_runtime.client.api.selected import NamespaceSelection, SelectedNamespaces
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.guard import GuardedLogger
from kubectl_runtime.core.base.plain import Key, key_of
from kubectl_runtime.core.codec.views import Record
from kubectl_runtime.core.meta.gvk import ApiResource, ObjectRef, api_resource_of
from kubectl_runtime.core.meta.selectors import Selector
from kubectl_runtime.core.objects.partial import PartialView, dynamic
from kubectl_runtime.core.objects.resource import Resource
from kubectl_runtime.core.requests.params import ListParams
from kubectl_runtime.core.requests.request import Place
from kubectl_runtime.core.requests.rights import foresee, listeners
from kubectl_runtime.runtime.queue.runs import Run
from kubectl_runtime.runtime.reads.dependencies import Identity, Shelf, identity_of
from kubectl_runtime.runtime.store.store import StoreState
from kubectl_runtime.runtime.triggers.shared_watches import Share
from kubectl_runtime.runtime.triggers.triggers import OfHeads, Sink
from kubectl_runtime.runtime.watch.config import DEFAULT_CONFIG, WatcherConfig

if TYPE_CHECKING:
    from kubectl_runtime.client.api.client import Client


CHOSEN = "*"
"""In place of a namespace: all namespaces that the controller's own Api currently selects."""


class Watched(NamedTuple):
    """A watch that serves reads: the controller's `Share`, the watch's name, and whether it stores whole objects."""

    share: Share
    name: str
    whole: bool


class Watches(Protocol):
    """The watches of the controller."""

    def take(self, api: Any, config: WatcherConfig) -> Watched:
        """Take a suitable watch. Makes no request."""

    def connect(self, watched: Watched, subscription: OfHeads, sink: Sink, arrived: Callable[[], None]) -> None:
        """Pass the events of the watch to the subscription."""

    def start(self, watched: Watched) -> None:
        """Start the watch."""

    def drop(self, watched: Watched, reason: str) -> None:
        """Release the watch: the controller no longer needs it."""


class Target:
    """A kind that is read: its class and resource, its name in messages, and the sources that watch it."""

    __slots__ = ("kind", "namespaced", "resource", "sources", "word")

    def __init__(self, kind: type[Any], resource: ApiResource) -> None:
        self.kind = kind
        self.resource = resource
        self.namespaced = resource.namespaced
        self.word = resource.kind.lower()
        self.sources: dict[tuple[str | None, str, str], Source] = {}
        """The sources by namespace, name and fields."""

    def name_of(self, key: Key, reader: Key | None = None) -> str:
        """An object's name in messages: `secret/x`, or `secret/ns/x` if the reader is not in the object's namespace."""
        namespace = key[0]
        inside = namespace is None or (reader is not None and reader[0] == namespace)
        return f"{self.word}/{key[1]}" if inside else f"{self.word}/{namespace}/{key[1]}"


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
            raise RequestError(f"read: {resource.full_name} are namespaced, but {run.request.ref} has no namespace; "
                               f"use ctx.read({resource.kind}, ObjectRef.of({resource.kind}, {which!r}, namespace))")
        return namespace, which
    ref = which if isinstance(which, ObjectRef) else getattr(which, "ref", None)
    if not isinstance(ref, ObjectRef):
        raise RequestError(f"read takes a name, an ObjectRef or an object, not {type(which).__name__}")
    if ref.kind != resource.kind or ref.group != resource.group:
        raise RequestError(f"read: {ref} is not of the kind {resource.full_name}")
    if not ref.name:
        raise RequestError(f"read: the name of the {resource.kind} is empty")
    if resource.namespaced and not ref.namespace:
        raise RequestError(f"read: {ref} has no namespace, but {resource.full_name} are namespaced")
    return key_of(ref.namespace if resource.namespaced else None, ref.name)


class Source:
    """A watch, or the scope of a refused watch, with the nodes of its objects."""

    def __init__(self, target: Target, namespace: str | None, name: str = "", fields: str = "") -> None:
        """`name`: the name of the only watched object, if any. `fields`: the field selector."""
        self.target = target
        self.namespace = namespace
        self.name = name
        self.fields = fields
        self.shelf = Shelf()
        self.watched: Watched | None = None
        self.refused = False
        """Whether the server refuses the watch."""
        self.ended = False
        """Whether the watch was released."""
        self.connected = False
        self.arrived: Callable[[], None] = _nothing

    @property
    def state(self) -> StoreState:
        """The state of the watch's store."""
        assert self.watched is not None
        return self.watched.share.watch.stored

    def covers(self, namespace: str | None) -> bool:
        """Whether this source's watch covers the namespace, now or once its first list is complete."""
        if self.namespace != CHOSEN or self.watched is None:
            return True
        return self.watched.share.watch.covers(namespace) or not self.state.ready

    @property
    def progress(self) -> str:
        """The version up to which the watch has shown everything; empty while unknown."""
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


SINGLE_WATCHES = 50
"""The most watches of single names that a controller makes."""
FIELD_WATCHES = 50


class Sources:
    """The sources of one controller's reads: watches, and requests if no watch has the answer. Safe to use from any
    thread."""

    def __init__(self, client: Client, watches: Watches, namespaces: frozenset[str], chosen: NamespaceSelection | None,
                 logger: GuardedLogger, connect: Callable[[Source], None]) -> None:
        """The controller's objects are in `namespaces`, in the namespaces that `chosen` currently selects, or in all
        namespaces. `connect` gets each new source before its watch is started."""
        self._client = client
        self._watches = watches
        self._namespaces = namespaces
        self._chosen = chosen
        self._logger = logger
        self._connect = connect
        self._targets: dict[Any, Target] = {}
        self._singles = 0
        self._by_fields = 0
        self._warned: set[str] = set()
        self._making = threading.RLock()
        """Held while a watch is made."""

    def renew(self) -> None:
        """Make a new lock. Only for a forked child process, since a thread of the parent may have held the old lock."""
        self._making = threading.RLock()

    def declared(self, target: Target) -> list[Source]:
        """The sources of a whole kind, one for each scope. Takes their watches, but makes no request."""
        found = []
        for namespace in self.places(target):
            with self._making:
                source = target.sources.get((namespace, "", ""))
                if source is None:
                    source = Source(target, namespace)
                    self.take(source)
                    target.sources[(namespace, "", "")] = source
            found.append(source)
        return found

    def target(self, kind: Any) -> Target:
        """The target of a kind. Raises like `target_of`."""
        try:
            known = self._targets.get(kind)
        except TypeError:  # `kind` is not hashable, so it cannot be a kind
            known = None
        if known is None:
            made = target_of(kind)
            with self._making:  # targets of one resource share their sources, whatever class is read
                made.sources = next((one.sources for one in self._targets.values() if one.resource == made.resource),
                                    made.sources)
                known = self._targets.setdefault(kind, made)
        return known

    def places(self, target: Target) -> Sequence[str | None]:
        """The namespaces in which a kind is watched and listed; None stands for all, or for a cluster-scoped kind."""
        if target.namespaced and self._chosen is not None:
            return (CHOSEN,)
        return sorted(self._namespaces) if target.namespaced and self._namespaces else (None,)

    def foresee(self, target: Target) -> None:
        """Report the permissions that the watch of this kind needs, since the watch's requests belong to no run."""
        if listeners:
            for place in self.places(target):
                foresee(Place(target.resource, None if place == CHOSEN else place), "get", "list", "watch")

    def of_object(self, target: Target, key: Key) -> Source | None:
        """The source that keeps a single object up to date; None if no watch is possible."""
        place = self._place_of(target, key[0])
        source = target.sources.get((place, "", "")) or self._made(Source(target, place))
        if not source.refused:
            return source
        single = target.sources.get((key[0], key[1], ""))
        if single is None:
            with self._making:
                if self._singles >= SINGLE_WATCHES:
                    self.warn(f"{target.resource.full_name} {place or ''}", "%s: more than %d are read by name, and "
                               "%s. Further objects are read each time, and their changes trigger nothing; grant "
                               "list and watch of %s%s", target.resource.full_name, SINGLE_WATCHES,
                               "the controller may not watch all of them", target.resource.full_name,
                               f" in the namespace {place}" if place else "")
                    return None
                self._singles += 1
                single = self._made(Source(target, key[0], key[1]))
        return None if single.refused else single

    def for_all(self, target: Target, namespace: str | None, fields: str) -> tuple[Source | None, bool]:
        """The source that keeps a selection up to date, and whether the source selects by these fields."""
        place = self._place_of(target, namespace)
        source = target.sources.get((place, "", "")) or self._made(Source(target, place))
        if source.refused:
            return None, True
        if not fields:
            return source, True
        by_fields = target.sources.get((place, "", fields))
        if by_fields is None:
            with self._making:
                if self._by_fields >= FIELD_WATCHES:
                    self.warn(f"fields of {target.resource.full_name}", "%s: more than %d selections by fields are "
                               "read. Readers of further selections run at each change of an object with the same "
                               "labels", target.resource.full_name, FIELD_WATCHES)
                    return source, False
                self._by_fields += 1
                by_fields = self._made(Source(target, place, fields=fields))
        if by_fields.refused or (namespace is not None and not by_fields.covers(namespace)):
            return source, False
        return by_fields, True

    def take(self, source: Source) -> None:
        """Take the watch of a new source. Nothing is requested yet."""
        target = source.target
        is_chosen = source.namespace == CHOSEN
        api: Any = Api(self._client, target.kind, Place(target.resource, None if is_chosen else source.namespace))
        if is_chosen and self._chosen is not None:
            api = SelectedNamespaces(api, self._chosen)
        fields = f"metadata.name={source.name}" if source.name else source.fields
        config = WatcherConfig(field_selector=fields) if fields else DEFAULT_CONFIG
        source.watched = self._watches.take(api, config)
        source.shelf.whole = source.watched.whole

    def get(self, target: Target, key: Key) -> Record | None:
        """The object, requested from the server; None if it does not exist."""
        found: Any = Api(self._client, target.kind, Place(target.resource, key[0])).get_opt(key[1])
        return None if found is None else found.record

    def listed(self, target: Target, namespace: str | None, selector: Selector, fields: str,
                source: Source | None) -> tuple[list[Record], str]:
        """The objects of a selection, requested from the server, and the version of the list (of the first list if
        several are needed).
        """
        records: list[Record] = []
        version = ""
        is_chosen = namespace is None and source is not None and source.namespace == CHOSEN
        for place in self._chosen_now(source) if is_chosen and source is not None else (namespace,):
            api: Any = Api(self._client, target.kind, Place(target.resource, place))
            for page in api.pages(ListParams(label_selector=selector or None, field_selector=fields or None)):
                version = version or page.metadata.resource_version or ""
                records += [one.record for one in page.items if not is_chosen or self._fits(one.record)]
        return records, version

    def unused(self) -> list[Source]:
        """Remove and return the sources that no object reads any more, among the sources for single names, for field
        selectors, and for namespaces outside the selection. The lock of the dependencies must be held."""
        unused: list[Source] = []
        if not (self._singles or self._by_fields or self._chosen is not None):
            return unused
        for source in self.all():
            is_beside = self._chosen is not None and source.namespace not in (None, CHOSEN)
            if source.ended or not (source.name or source.fields or is_beside) or len(source.shelf):
                continue
            source.target.sources.pop((source.namespace, source.name, source.fields), None)
            source.ended = True
            self._singles -= 1 if source.name else 0
            self._by_fields -= 1 if source.fields else 0
            unused.append(source)
        return unused

    def all(self) -> list[Source]:
        """All sources."""
        return [*{id(one): one for target in [*self._targets.values()] for one in [*target.sources.values()]}.values()]

    def warn(self, what: str, text: str, *args: object) -> None:
        """Log a warning about `what`, once."""
        if what not in self._warned:
            self._warned.add(what)
            self._logger.warning(text, *args)

    def _chosen_now(self, source: Source) -> Sequence[str | None]:
        """The selected namespaces; (None,) if a pattern or selector decides, so that any namespace may be selected."""
        assert source.watched is not None
        names = source.watched.share.watch.namespaces
        return (None,) if names is None else sorted(name for name in names if source.covers(name))

    def _fits(self, record: Record) -> bool:
        return self._chosen is None or self._chosen.fits(record.head.namespace)

    def _place_of(self, target: Target, namespace: str | None) -> str | None:
        """The scope of the watch for a read: all namespaces (None), the selected namespaces, or this namespace."""
        if self._chosen is not None and target.namespaced:
            source = target.sources.get((CHOSEN, "", "")) or self._made(Source(target, CHOSEN))
            return CHOSEN if namespace is None or source.covers(namespace) else namespace
        return namespace if self._namespaces and target.namespaced else None

    def _made(self, source: Source) -> Source:
        """The source, with its watch started. Returns another thread's equal source if there is one."""
        key, sources = (source.namespace, source.name, source.fields), source.target.sources
        with self._making:
            if (known := sources.get(key)) is not None:
                return known
            self.take(source)
            self._connect(source)
            assert source.watched is not None
            sources[key] = source
            self._watches.start(source.watched)
            return source


def _nothing() -> None:
    return None
