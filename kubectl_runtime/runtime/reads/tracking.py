"""`Reads`: reads by the runs of one controller, answered from memory, and the objects that run again after a change.

    ctx.read, ctx.read_all   answered from a watch's store and the contents kept beside it, else by a request; then a
                             dependency of the run's object
    a watch shows a change   the readers that it concerns are triggered
    a value was requested    `step` first reads the new content, and triggers only if the value differs
    a run ends               see `Dependencies`

Where a kind is watched:

    the controller watches whole objects there           that watch, which has their contents too
    else                                                 a watch of metadata only: of the whole cluster; in a controller
                                                         of some namespaces, of the namespace that is read; in one of
                                                         namespaces that come and go, of all of them together, and of
                                                         the namespace that is read if it is not chosen now
    it is refused (403), and never had a list            a watch for each name that is read, `SINGLE_WATCHES` at most;
                                                         further names, and refused ones, are read each time, and
                                                         their changes trigger nothing: a warning names the missing
                                                         RBAC rule
    a selection by fields                                a watch of its own, `FIELD_WATCHES` at most; beyond that, a
                                                         change of any object with these labels triggers

A read before the watch has its first list is a request, so no read waits for the list. The answer and the watch may
arrive in any order. Safe to use from any thread; a read blocks for one request at most. One lock guards the
dependencies; no request is made and no user code runs while it is held.
"""
from __future__ import annotations

import threading
from collections.abc import Callable, Container, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kubectl_runtime.client.api.api import Api
from kubectl_runtime.client.api.selected import NamespaceSelection, SelectedNamespaces
from kubectl_runtime.core.base.errors import ApiError, KubeError, RequestError
from kubectl_runtime.core.base.guard import GuardedLogger, guarded, name_of, not_awaitable
from kubectl_runtime.core.base.observer import Observer, RunResult
from kubectl_runtime.core.base.plain import Key
from kubectl_runtime.core.base.threads import Clock, renewed_in_children
from kubectl_runtime.core.codec.views import Record, plain_object
from kubectl_runtime.core.meta.gvk import ApiResource, ObjectRef
from kubectl_runtime.core.meta.selectors import FieldSelection, LabelSelection, Selector, field_selection
from kubectl_runtime.core.objects.partial import InvalidObject
from kubectl_runtime.core.requests.params import ListParams
from kubectl_runtime.core.requests.request import Place
from kubectl_runtime.core.requests.rights import foresee, hearers
from kubectl_runtime.core.scope import StopToken
from kubectl_runtime.runtime.queue.runs import Outcome, Repeated, Run
from kubectl_runtime.runtime.reads.dependencies import (
    Dependencies,
    Identity,
    Moved,
    Node,
    Seen,
    Wanted,
    identity_of,
)
from kubectl_runtime.runtime.reads.sources import (
    ABSENT,
    CHOSEN,
    Source,
    Target,
    Value,
    Watched,
    Watches,
    check_value,
    key_of_read,
    target_of,
    value_at,
)
from kubectl_runtime.runtime.triggers.predicates import same
from kubectl_runtime.runtime.triggers.triggers import OfHeads, ReconcileRequest, Sink
from kubectl_runtime.runtime.watch.config import DEFAULT_CONFIG, WatcherConfig
from kubectl_runtime.runtime.watch.event import INIT_DONE, Delete, Event, obj_of

if TYPE_CHECKING:
    from kubectl_runtime.client.api.client import Client

SINGLE_WATCHES = 50
"""Watches of single names that a controller makes."""
FIELD_WATCHES = 50
FEW = 3
"""Up to this many contents of a selection are read one by one; more by a list."""
MANY = 100
"""If one change triggers this many readers, their runs go to the background class."""
NAMED = 10
"""Readers that a log line names."""
RETRY, LONGEST_RETRY = 1.0, 60.0
"""Seconds between two attempts to read an object whose value has to be compared."""

class _Wait(NamedTuple):
    """An object whose content has to be read, with the time and the number of the attempt."""

    due: float
    attempt: int


class Reads:
    """The reads of one controller's runs. Safe to use from any thread."""

    def __init__(self, resource: ApiResource, client: Client, watches: Watches, *, controller: str,
                 namespaces: frozenset[str], chosen: NamespaceSelection | None, own_writes: bool, sink: Sink,
                 clock: Clock, draining: StopToken, logger: GuardedLogger, observer: Observer) -> None:
        """`resource`: the kind of the controller's objects. They are in `namespaces`, in the namespaces that are
        `chosen` at each moment, or in all namespaces. `sink` takes the requests for runs."""
        self._resource = resource
        self._client = client
        self._watches = watches
        self._controller = controller
        self._namespaces = namespaces
        self._chosen = chosen
        self._own_writes = own_writes
        self._sink = sink
        self._clock = clock
        self._draining = draining
        self._logger = logger
        self._observer = observer
        self._dependencies = Dependencies()
        self.readers: Container[Key] = self._dependencies.nodes_of
        """The objects whose runs have read something."""
        self._targets: dict[Any, Target] = {}
        self._singles = 0
        self._by_fields = 0
        self.untidy = False
        """Whether readers have gone since `tidy`."""
        self._warned: set[str] = set()
        self._unsure: dict[tuple[Source, Key], _Wait] = {}
        self.spawn: Callable[[str, Callable[[], object]], None] = _not_spawned
        """Starts a thread; without it the caller has to call `step`."""
        self._spawned = False
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._making = threading.RLock()
        """Held while a watch is made."""
        renewed_in_children(self)

    def renew(self) -> None:
        """Make new locks. Only for the child of a fork, where a thread of the parent may hold the old locks."""
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._making = threading.RLock()

    # --- declared kinds ---------------------------------------------------------------------------------------------

    def declare(self, kind: Any) -> list[str]:
        """Take the watches of a kind; returns their names. Nothing is requested yet."""
        target = self._target(kind)
        names = []
        for namespace in self._places(target):
            with self._making:
                source = target.sources.get((namespace, "", ""))
                if source is None:
                    source = Source(target, namespace)
                    self._take(source)
                    target.sources[(namespace, "", "")] = source
            if source.watched is not None and not source.refused:
                names.append(source.watched.name)
        return names

    def connect(self, kind: Any, arrived: Callable[[str], None]) -> list[Watched]:
        """Connect the watches of a declared kind. `arrived` is called with the name of a watch that is complete, or
        that must not be made."""
        target, found = self._target(kind), []
        for source in [*target.sources.values()]:
            if source.watched is None or source.name or source.fields or source.connected:
                continue  # or it is connected: runs have read it already, or it was declared as another class
            source.arrived = partial(arrived, source.watched.name)
            self._connect(source)
            found.append(source.watched)
        return found

    # --- reads ------------------------------------------------------------------------------------------------------

    def read(self, run: Run, kind: Any, which: str | ObjectRef, value: Value | None) -> Any:
        """The object for this run; None while there is none. Blocks for one request at most."""
        target = self._target(kind)
        self._foresee(target)
        key = key_of_read(run, target, which)
        if value is not None:
            check_value(value)
        while True:
            source = self._source_of(target, key)
            if source is None or run.reads_over or (key == run.key and self._is_own(target)):
                known, record = (False, None) if source is None else self._current(source, key)
                if not known:
                    record = self._get(target, key)
                return None if record is None else _object(target, record)
            found = self._read(run, source, key, value)
            if found is not _AGAIN:
                return found

    def read_all(self, run: Run, kind: Any, namespace: str | None, labels: LabelSelection | None,
                 fields: FieldSelection | None) -> list[Any]:
        """The objects of a selection for this run, by namespace and name. Blocks for one list, or `FEW` reads."""
        target = self._target(kind)
        self._foresee(target)
        selector, text = Selector.of(labels), field_selection(fields) or ""
        if namespace is not None and not target.resource.namespaced:
            raise RequestError(f"read_all: {target.resource.kind} is cluster-scoped: it has no namespace")
        found: list[Record] = []
        for place in [namespace] if namespace else self._places(target):
            found += self._read_all(run, target, None if place == CHOSEN else place or None, selector, text)
        return [_object(target, record) for record in sorted(found, key=_by_name)]

    def _places(self, target: Target) -> Sequence[str | None]:
        """The namespaces in which a kind is watched and listed; None: all, or a cluster-scoped kind."""
        if target.namespaced and self._chosen is not None:
            return (CHOSEN,)
        return sorted(self._namespaces) if target.namespaced and self._namespaces else (None,)

    def _foresee(self, target: Target) -> None:
        """Report the permissions that the watch of this kind needs, which no run uses itself."""
        if hearers:
            for place in self._places(target):
                foresee(Place(target.resource, None if place == CHOSEN else place), "get", "list", "watch")

    def _read(self, run: Run, source: Source, key: Key, value: Value | None) -> Any:
        target, shelf, reader = source.target, source.shelf, run.key
        with self._lock:
            if source.ended or run.reads_over or not source.covers(key[0]):
                return _AGAIN
            node = shelf.one(key)
            Dependencies.begin(reader, node)
            nodes = _nodes_of(run)
            before = node.revision
            known, record = self._from_memory(source, key)
            plain = known and value is None and node.members.get(key) == identity_of(record)
            if plain:  # the common case
                nodes[node] = None
                node.revision = before or 1
                Dependencies.read(reader, node, current=True)
            else:
                nodes.setdefault(node, () if value is not None else None)
        if plain:
            return None if record is None else _object(target, record)
        if not known:
            record = self._get(target, key)
        seen = None if value is None else Seen(value, self._value_of(node, target, record, value))
        with self._lock:
            earlier = nodes.get(node)
            seens = nodes[node] = None if seen is None or earlier is None else (*earlier, seen)
            found = {} if record is None else {key: (record.head.uid, record.head.resource_version)}
            moved, current = shelf.answered(node, before, found, source.shown, progress=source.progress, besides=reader)
            if record is not None and not known:
                shelf.hold(key, record)
            again = not run.reads_over and Dependencies.read(reader, node, current=current, seen=seens)
            self._note_unsure(source)
        self._trigger(target, moved)
        if again:
            self._sink([self._request(reader, f"{self._name(target, key, reader)} changed", None, bulk=False)])
        return None if record is None else _object(target, record)

    def _read_all(self, run: Run, target: Target, namespace: str | None, selector: Selector,
                  fields: str) -> list[Record]:
        while True:
            source, exact = self._source_for_all(target, namespace, fields)
            if source is None or run.reads_over:
                return self._listed(target, namespace, selector, fields, source)[0]
            shelf, reader = source.shelf, run.key
            with self._lock:
                if source.ended or run.reads_over or (namespace is not None and not source.covers(namespace)):
                    continue
                node = shelf.all_of(namespace, selector)
                Dependencies.begin(reader, node)
                _nodes_of(run)[node] = None
                before = node.revision
                seen, missing = self._selected(source, node)
                break
        version = ""
        if not exact or missing is None or len(missing) > FEW:
            records, version = self._listed(target, namespace, selector, fields, source)
        else:
            records = [record for record in seen.values() if record is not None]
            for key in missing:
                read = self._get(target, key)
                if read is not None and selector.matches(read.head.labels):
                    records.append(read)
        with self._lock:
            found = {record.key: (record.head.uid, record.head.resource_version) for record in records}
            if exact:
                moved, current = shelf.answered(node, before, found, source.shown, version,
                                                progress=source.progress, besides=reader)
                for record in records:
                    shelf.hold(record.key, record)
            else:
                moved, current = [], node.revision == before
            again = not run.reads_over and Dependencies.read(reader, node, current=current)
            self._note_unsure(source)
        self._trigger(target, moved)
        if again:
            self._sink([self._request(reader, f"{target.resource.plural} changed", None, bulk=False)])
        return records

    def _from_memory(self, source: Source, key: Key) -> tuple[bool, Record | None]:
        """Whether the object is known without a request, and its record. The lock must be held."""
        state = source.state
        with state.lock:
            if not state.ready or state.ended is not None:
                return False, None
            stored = state.find(key, self._own_writes)
        if stored is None or source.shelf.whole:
            return True, stored
        held = source.shelf.held(key, (stored.head.uid, stored.head.resource_version))
        return held is not None, held

    def _selected(self, source: Source, node: Node) -> tuple[dict[Key, Record | None], list[Key] | None]:
        """The objects of a selection that are known without a request, and the keys whose content is missing; None if
        nothing is known. The lock must be held."""
        state, shelf = source.state, source.shelf
        with state.lock:
            if not state.ready or state.ended is not None:
                return {}, None
            own = state.own_entries(self._own_writes)
            if node.revision and not own and not node.ahead:
                records: Iterable[Record] = [state.records[key] for key in node.members if key in state.records]
            else:
                records = [*state.snapshot(self._own_writes).values()]
        found: dict[Key, Record | None] = {}
        missing = []
        for record in records:
            key = record.key
            if node.selects(key, record):
                found[key] = record if shelf.whole else shelf.held(key, (record.head.uid,
                                                                         record.head.resource_version))
                if found[key] is None:
                    missing.append(key)
        return found, missing

    def _current(self, source: Source, key: Key) -> tuple[bool, Record | None]:
        with self._lock:
            return self._from_memory(source, key)

    def _get(self, target: Target, key: Key) -> Record | None:
        """The object as the server has it."""
        found: Any = Api(self._client, target.kind, Place(target.resource, key[0])).get_opt(key[1])
        return None if found is None else found.record

    def _listed(self, target: Target, namespace: str | None, selector: Selector, fields: str,
                source: Source | None) -> tuple[list[Record], str]:
        """The objects of a selection as the server has them, and the version of the list (of the first list, if there
        are several).
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

    def _chosen_now(self, source: Source) -> Sequence[str | None]:
        """The chosen namespaces; (None,) if a pattern or selector decides, so that any namespace may be chosen."""
        assert source.watched is not None
        names = source.watched.share.watch.namespaces
        return (None,) if names is None else sorted(name for name in names if source.covers(name))

    def _fits(self, record: Record) -> bool:
        return self._chosen is None or self._chosen.fits(record.head.namespace)

    def _value_of(self, node: Node, target: Target, record: Record | None, value: Value) -> Any:
        """The value; a path is looked up once for all readers."""
        if record is None or not isinstance(value, str):
            return self._valued(target, record, value)
        identity = record.head.uid, record.head.resource_version
        kept = node.evaluated.get(value)
        if kept is not None and kept[0] == identity:
            return kept[1]
        found = self._valued(target, record, value)
        if kept is not None and same(kept[1], found):
            found = kept[1]
        with self._lock:
            node.evaluated[value] = identity, found
        return found

    def _valued(self, target: Target, record: Record | None, value: Value) -> Any:
        if record is None:
            return ABSENT
        if isinstance(value, str):
            return value_at(plain_object(record.raw, record.enveloped, record.ref), value)
        return not_awaitable(value(_object(target, record)), value)

    # --- where a kind is watched --------------------------------------------------------------------------------------

    def _target(self, kind: Any) -> Target:
        try:
            known = self._targets.get(kind)
        except TypeError:  # it has no hash, so it is no kind
            known = None
        if known is None:
            made = target_of(kind)
            with self._making:  # one for a resource, whatever the classes that read it
                made.sources = next((one.sources for one in self._targets.values() if one.resource == made.resource),
                                    made.sources)
                known = self._targets.setdefault(kind, made)
        return known

    def _is_own(self, target: Target) -> bool:
        return target.resource.kind == self._resource.kind and target.resource.group == self._resource.group

    def _place_of(self, target: Target, namespace: str | None) -> str | None:
        """The scope of the watch for a read: everywhere (None), the chosen namespaces, or the namespace."""
        if self._chosen is not None and target.namespaced:
            source = target.sources.get((CHOSEN, "", "")) or self._made(Source(target, CHOSEN))
            return CHOSEN if namespace is None or source.covers(namespace) else namespace
        return namespace if self._namespaces and target.namespaced else None

    def _source_of(self, target: Target, key: Key) -> Source | None:
        """The source that keeps a single object up to date; None without one."""
        place = self._place_of(target, key[0])
        source = target.sources.get((place, "", "")) or self._made(Source(target, place))
        if not source.refused:
            return source
        single = target.sources.get((key[0], key[1], ""))
        if single is None:
            with self._making:
                if self._singles >= SINGLE_WATCHES:
                    self._warn(f"{target.resource.full_name} {place or ''}", "%s: more than %d of them are read by name"
                               ", and %s: those beyond are read each time, and their changes trigger nothing; grant "
                               "list and watch of %s%s", target.resource.full_name, SINGLE_WATCHES,
                               "the controller may not watch all of them", target.resource.full_name,
                               f" in the namespace {place}" if place else "")
                    return None
                self._singles += 1
                single = self._made(Source(target, key[0], key[1]))
        return None if single.refused else single

    def _source_for_all(self, target: Target, namespace: str | None, fields: str) -> tuple[Source | None, bool]:
        """The source that keeps a selection up to date, and whether it selects by these fields."""
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
                    self._warn(f"fields of {target.resource.full_name}", "%s: more than %d selections by fields are "
                               "read: beyond, each change of an object with their labels triggers their readers",
                               target.resource.full_name, FIELD_WATCHES)
                    return source, False
                self._by_fields += 1
                by_fields = self._made(Source(target, place, fields=fields))
        if by_fields.refused or (namespace is not None and not by_fields.covers(namespace)):
            return source, False
        return by_fields, True

    def _made(self, source: Source) -> Source:
        """The source with a running watch, which another thread may have made."""
        key, sources = (source.namespace, source.name, source.fields), source.target.sources
        with self._making:
            if (known := sources.get(key)) is not None:
                return known
            self._take(source)
            self._connect(source)
            assert source.watched is not None
            sources[key] = source
            self._watches.start(source.watched)
            return source

    def _take(self, source: Source) -> None:
        target = source.target
        is_chosen = source.namespace == CHOSEN
        api: Any = Api(self._client, target.kind, Place(target.resource, None if is_chosen else source.namespace))
        if is_chosen and self._chosen is not None:
            api = SelectedNamespaces(api, self._chosen)
        fields = f"metadata.name={source.name}" if source.name else source.fields
        config = WatcherConfig(field_selector=fields) if fields else DEFAULT_CONFIG
        source.watched = self._watches.take(api, config)
        source.shelf.whole = source.watched.whole

    def _connect(self, source: Source) -> None:
        assert source.watched is not None
        source.connected = True
        source.watched.share.on_failure(partial(self._failed, source))
        source.watched.share.watch.when_left(partial(self._left, source))
        self._watches.connect(source.watched, OfHeads(partial(self._heard, source)), self._sink, source.arrived)

    def _left(self, source: Source, namespaces: frozenset[str]) -> None:
        """The watch no longer shows these namespaces, so their readers read again from another watch."""
        with self._lock:
            readers = self._dependencies.abandon(source.shelf, namespaces)
        if readers:
            plural = source.target.resource.plural
            self._sink([self._request(reader, f"{plural} are watched elsewhere", None, bulk=True)
                        for reader in readers])

    def _failed(self, source: Source, error: BaseException) -> None:
        """An attempt of a watch failed. A watch that is forbidden and was never complete is given up."""
        if not isinstance(error, ApiError) or error.code != 403 or source.state.ready or source.watched is None:
            return
        with self._lock:
            if source.refused:
                return
            source.refused = source.ended = True
            readers = self._dependencies.abandon(source.shelf)
        resource = source.target.resource
        if source.name or source.fields:
            self._warn(f"{resource.full_name} {source.name}{source.fields}",
                       "%s may not be watched, so changes of what is read of them trigger nothing: grant list and watch"
                       " of %s (%s)", resource.full_name, resource.full_name, error)
        else:
            self._logger.info("%s may not be watched as a whole: each object that is read is watched by name",
                              resource.full_name)
        self._watches.drop(source.watched, "it is not allowed")
        source.arrived()
        if readers and not source.name:
            self._sink([self._request(reader, f"{resource.plural} are watched by name", None, bulk=True)
                        for reader in readers])

    def _warn(self, what: str, text: str, *args: object) -> None:
        if what not in self._warned:
            self._warned.add(what)
            self._logger.warning(text, *args)

    # --- changes ----------------------------------------------------------------------------------------------------

    def _heard(self, source: Source, event: Event[Any]) -> Iterable[ReconcileRequest]:
        """Process an event, in the watch's thread."""
        shelf = source.shelf
        if event is INIT_DONE:
            with self._lock:
                moved = shelf.completed(source.stored, source.state.overlay.shown)
                self._note_unsure(source)
                read = {node.namespace if node.key is None else node.key[0] for node in shelf.nodes()}
            if elsewhere := frozenset(name for name in read if name is not None and not source.covers(name)):
                self._left(source, elsewhere)
        elif isinstance(event, Delete):
            record: Record = event.obj
            key = record.key
            with self._lock:
                moved = shelf.touched(key, source.stored(key), record.head.uid)
        else:
            found: Any = obj_of(event)
            if found is None or not len(shelf):
                return ()
            key = found.key
            with self._lock:
                now = source.stored(key)
                if now is None:
                    return ()  # its deletion follows
                moved = shelf.touched(key, now)
                if shelf.unsure:
                    self._note_unsure(source)
        return self._requests(source.target, moved)

    def _trigger(self, target: Target, moved: list[Moved]) -> None:
        if moved and (requests := self._requests(target, moved)):
            self._sink(requests)

    def _requests(self, target: Target, moved: Iterable[Moved]) -> list[ReconcileRequest]:
        requests: list[ReconcileRequest] = []
        for one in moved:
            if not one.readers:
                continue
            self._observer.read_changed(self._controller, target.resource.full_name, one.key, one.what,
                                        len(one.readers))
            bulk = len(one.readers) >= MANY
            requests += [self._request(reader, f"{self._name(target, one.key, reader)} {one.what}", one.cause,
                                       bulk=bulk) for reader in one.readers]
            if self._logger.isEnabledFor(10):
                named = ", ".join(_said(reader) for reader in one.readers[:NAMED])
                more = f" and {len(one.readers) - NAMED} more" if len(one.readers) > NAMED else ""
                self._logger.debug("%s %s: triggers %s%s, which read it", self._name(target, one.key), one.what, named,
                                   more)
        return requests

    def _request(self, reader: Key, reason: str, cause: Identity | None, *, bulk: bool) -> ReconcileRequest:
        known = cause if cause is not None and cause[0] and cause[1] else None
        return ReconcileRequest(ObjectRef(self._resource, reader[1], reader[0]), reason, known, bulk)

    def _name(self, target: Target, key: Key, reader: Key | None = None) -> str:
        """`secret/x`, with the namespace if it is not the reader's."""
        namespace = key[0]
        inside = namespace is None or (reader is not None and reader[0] == namespace)
        return f"{target.word}/{key[1]}" if inside else f"{target.word}/{namespace}/{key[1]}"

    # --- values -----------------------------------------------------------------------------------------------------

    def _note_unsure(self, source: Source) -> None:
        """Note that values have to be compared. The lock must be held."""
        if not source.shelf.unsure:
            return
        now = self._clock.monotonic()
        for key in source.shelf.unsure:
            self._unsure[(source, key)] = _Wait(now, 0)
        source.shelf.unsure.clear()
        self._changed.notify_all()
        if not self._spawned and self.spawn is not _not_spawned:
            self._spawned = True
            guarded(None, "starting the thread of reads", self.spawn, "reads", self.serve)

    def due(self) -> float | None:
        """Seconds until `step` has something to do; None when there is nothing to do."""
        with self._lock:
            if not self._unsure:
                return None
            return max(0.0, min(wait.due for wait in self._unsure.values()) - self._clock.monotonic())

    def serve(self) -> None:
        """Step until the controller stops. Blocks."""
        forget = self._draining.on_set(self._wake)
        try:
            while not self._draining.is_set():
                if self.step():
                    continue
                left = self.due()
                with self._changed:
                    if left != 0.0 and not self._draining.is_set() and (left is not None or not self._unsure):
                        self._clock.wait(self._changed, left)
        finally:
            forget()

    def step(self) -> bool:
        """Compare the values of one changed object, reading its content if needed. Returns whether there was one."""
        now = self._clock.monotonic()
        with self._lock:
            found = next((item for item in self._unsure.items() if item[1].due <= now), None)
            if found is None:
                return False
            (source, key), wait = found
            del self._unsure[(source, key)]
            node = source.shelf.singles.get(key)
            readers = source.shelf.to_compare(key)
            if node is None or not readers:
                return True
            before = node.revision
            known, record = self._from_memory(source, key)
        if not known:
            try:
                record = self._get(source.target, key)
            except (KubeError, OSError) as error:
                self._again(source, key, wait, error)
                return True
        self._compare(source, node, before, record, readers)
        return True

    def _again(self, source: Source, key: Key, wait: _Wait, error: BaseException) -> None:
        """The content could not be read: try again later, or, if reading is forbidden, let the runs read it."""
        target = source.target
        if isinstance(error, ApiError) and error.code in (401, 403):
            with self._lock:
                node = source.shelf.singles.get(key)
                readers = [] if node is None else [reader for reader, _ in source.shelf.to_compare(key)]
                moved = [Moved(node, key, "changed", None, readers)] if node is not None and readers else []
            self._trigger(target, moved)
            return
        delay = min(LONGEST_RETRY, RETRY * 2 ** min(wait.attempt, 10))
        self._logger.debug("%s cannot be read, to compare a value of it; again in %g s: %s", self._name(target, key),
                           delay, error)
        with self._lock:
            self._unsure.setdefault((source, key), _Wait(self._clock.monotonic() + delay, wait.attempt + 1))

    def _compare(self, source: Source, node: Node, before: int, record: Record | None,
                 readers: list[tuple[Key, Wanted]]) -> None:
        """Compare values with `record`, which was read when the node's revision was `before`."""
        target, shelf, key, results = source.target, source.shelf, node.key, []
        assert key is not None
        for reader, wanted in readers:
            differs = any(guarded(True, name_of(seen.of) if callable(seen.of) else "a value", self._differs, node,
                                  target, record, seen) for seen in (*wanted.good, *wanted.added))
            results.append((reader, wanted, differs))
        with self._lock:
            identity = identity_of(record)
            found = {} if identity is None else {key: identity}
            moved, current = shelf.answered(node, before, found, source.shown, progress=source.progress)
            if current and record is not None and identity is not None:
                shelf.unsure.pop(key, None)  # this is the comparison
                shelf.hold(key, record)
                if (one := shelf.compared(key, identity, results)) is not None:
                    moved.append(one)
            self._note_unsure(source)
        self._trigger(target, moved)

    def _differs(self, node: Node, target: Target, record: Record | None, seen: Seen) -> bool:
        return not same(self._value_of(node, target, record, seen.of), seen.value)

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    # --- runs -------------------------------------------------------------------------------------------------------

    def end(self, run: Run, outcome: Outcome) -> None:
        """A run has ended: its reads replace the earlier ones, or are added to them. Must be called if the run has read
        anything, or if its object is one of the `readers`."""
        with self._lock:
            nodes = run.reads
            good = outcome.error is None and outcome.repeated is not Repeated.CONFLICT
            absent = run.record is not None and not run.record.head.uid  # a run for an object that is gone
            if run.forgotten or run.ends_reads or outcome.result is RunResult.GONE or (good and absent):
                self._dependencies.forget(run.key, nodes)
            elif outcome.result is not RunResult.SKIPPED:
                self._dependencies.settle(run.key, nodes or {}, good=good)
        self.tidy()

    def tidy(self) -> None:
        """Release the watches that no object reads any more: watches of single names, of fields, and of namespaces
        outside the selection."""
        with self._lock:
            self.untidy = False
            unused = self._unused() if self._singles or self._by_fields or self._chosen is not None else ()
        for source in unused:
            assert source.watched is not None
            self._watches.drop(source.watched, "nothing reads it any more")

    def _unused(self) -> list[Source]:
        """Remove the sources that `tidy` gives back. The lock must be held."""
        unused = []
        for source in self._all_sources():
            is_beside = self._chosen is not None and source.namespace not in (None, CHOSEN)
            if source.ended or not (source.name or source.fields or is_beside) or len(source.shelf):
                continue
            source.target.sources.pop((source.namespace, source.name, source.fields), None)
            source.ended = True
            self._singles -= 1 if source.name else 0
            self._by_fields -= 1 if source.fields else 0
            unused.append(source)
        return unused

    def _all_sources(self) -> list[Source]:
        return [*{id(one): one for target in [*self._targets.values()] for one in [*target.sources.values()]}.values()]

    def forget(self, key: Key) -> None:
        """The object was deleted, or belongs to another replica."""
        if key in self.readers:
            with self._lock:
                self._dependencies.forget(key)
                self.untidy = True  # the caller may hold a lock, so watches are given back later

    def forget_all(self, of: Callable[[Key], bool]) -> None:
        """The objects for whose keys `of` is true belong to another replica."""
        with self._lock:
            readers = [*self._dependencies.nodes_of]
        for key in readers:
            if of(key):
                self.forget(key)

    def look(self, most: int) -> tuple[int, list[tuple[Key, list[str]]]]:
        """The number of objects that have read anything, and the reads of up to `most` objects."""
        with self._lock:
            rows = [(reader, [self._described(node, reader) for node in nodes])
                    for reader, nodes in self._dependencies.first(most)]
            return len(self._dependencies), rows

    def _described(self, node: Node, reader: Key) -> str:
        source = next((one for one in self._all_sources() if one.shelf is node.shelf), None)
        if source is None:
            return ""
        if node.key is not None:
            return self._name(source.target, node.key, reader)
        parts = [f"{len(node.members)} {source.target.resource.plural}", str(node.selector or ""), source.fields]
        where = "" if node.namespace == reader[0] or not source.target.resource.namespaced else (
            f"in {node.namespace}" if node.namespace else "in all namespaces")
        return " ".join(part for part in (*parts, where) if part)


_AGAIN: Any = object()
"""The watch has ended in between: look for another one."""


def _nodes_of(run: Run) -> dict[Node, tuple[Seen, ...] | None]:
    nodes: dict[Node, tuple[Seen, ...] | None] | None = run.reads
    if nodes is None:
        nodes = run.reads = {}
    return nodes


def _object(target: Target, record: Record) -> Any:
    if record.problem is not None:
        return InvalidObject(record)  # as `Api.get` does: its content raises the error
    return target.kind.from_record(record)


def _by_name(record: Record) -> tuple[str, str]:
    return record.head.namespace or "", record.head.name


def _said(key: Key) -> str:
    return key[1] if key[0] is None else f"{key[0]}/{key[1]}"


def _not_spawned(_what: str, _body: Callable[[], object]) -> None:
    return None
