"""`Reads`: answers the reads of one controller's runs from memory, and runs the readers again after a change.

    ctx.read, ctx.read_all   answered from a watch's store and the contents kept beside the store, else by a request;
                             either way the read becomes a dependency of the run's object
    a watch shows a change   the readers that depend on the changed object are triggered
    a value was requested    see `Values`
    a run ends               see `Dependencies`

Before the watch's first list is complete, reads make requests, so no read waits for the list. The answer and the
watch's events may arrive in any order. Safe to use from any thread; a read blocks for one request at most. One lock
guards the dependencies; no request is made and no user code runs while the lock is held.
"""
from __future__ import annotations

import threading
from collections.abc import Callable, Container, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from kubectl_runtime.client.api.selected import NamespaceSelection
from kubectl_runtime.core.base.errors import ApiError, RequestError
from kubectl_runtime.core.base.guard import GuardedLogger
from kubectl_runtime.core.base.observer import Observer, RunResult
from kubectl_runtime.core.base.plain import Key
from kubectl_runtime.core.base.threads import Clock, renewed_in_children
from kubectl_runtime.core.codec.views import Record
from kubectl_runtime.core.meta.gvk import ApiResource, ObjectRef
from kubectl_runtime.core.meta.selectors import FieldSelection, LabelSelection, Selector, field_selection
from kubectl_runtime.core.scope import StopToken
from kubectl_runtime.runtime.queue.runs import Outcome, Repeated, Run
from kubectl_runtime.runtime.reads.dependencies import (
    Dependencies,
    Identity,
    Moved,
    Node,
    Seen,
    identity_of,
)
from kubectl_runtime.runtime.reads.sources import (
    CHOSEN,
    Source,
    Sources,
    Target,
    Watched,
    Watches,
    key_of_read,
)
from kubectl_runtime.runtime.reads.values import Value, Values, check_value, object_of
from kubectl_runtime.runtime.triggers.triggers import OfHeads, ReconcileRequest, Sink
from kubectl_runtime.runtime.watch.event import INIT_DONE, Delete, Event, obj_of

if TYPE_CHECKING:
    from kubectl_runtime.client.api.client import Client

FEW = 3
"""Up to this many missing contents of a selection are read one by one; more are read by a list."""
MANY = 100
"""If one change triggers this many readers, their runs go to the background class."""
NAMED = 10
"""The most readers that a log line names."""


class Reads:
    """The reads of one controller's runs. Safe to use from any thread."""

    def __init__(self, resource: ApiResource, client: Client, watches: Watches, *, controller: str,
                 namespaces: frozenset[str], chosen: NamespaceSelection | None, own_writes: bool, sink: Sink,
                 clock: Clock, draining: StopToken, logger: GuardedLogger, observer: Observer) -> None:
        """`resource`: the kind of the controller's objects. These objects are in `namespaces`, in the namespaces that
        `chosen` currently selects, or in all namespaces. `sink` takes the requests for runs."""
        self._resource = resource
        self._watches = watches
        self._controller = controller
        self._own_writes = own_writes
        self._sink = sink
        self._logger = logger
        self._observer = observer
        self._dependencies = Dependencies()
        self.readers: Container[Key] = self._dependencies.nodes_of
        """The objects whose runs have read something."""
        self.untidy = False
        """Whether any readers have gone since the last `tidy`."""
        self._lock = threading.Lock()
        self.sources = Sources(client, watches, namespaces, chosen, logger, self._connect)
        self.values = Values(self.sources, self._from_memory, self._trigger, lock=self._lock, clock=clock,
                             draining=draining, logger=logger)
        renewed_in_children(self)

    def renew(self) -> None:
        """Make new locks. Only for a forked child process, since a thread of the parent may have held the old locks."""
        self._lock = threading.Lock()
        self.sources.renew()
        self.values.renew(self._lock)

    # --- declared kinds ---------------------------------------------------------------------------------------------

    def declare(self, kind: Any) -> list[str]:
        """Take the watches of a kind and return the watches' names. Makes no request yet."""
        sources = self.sources.declared(self.sources.target(kind))
        return [source.watched.name for source in sources if source.watched is not None and not source.refused]

    def connect(self, kind: Any, arrived: Callable[[str], None]) -> list[Watched]:
        """Connect the watches of a declared kind. `arrived` is called with the name of each watch once the first list
        of the watch is complete or refused."""
        target, found = self.sources.target(kind), []
        for source in [*target.sources.values()]:
            if source.watched is None or source.name or source.fields or source.connected:
                continue  # if connected, runs have already read the kind, or another class of the kind was declared
            source.arrived = partial(arrived, source.watched.name)
            self._connect(source)
            found.append(source.watched)
        return found

    # --- reads ------------------------------------------------------------------------------------------------------

    def read(self, run: Run, kind: Any, which: str | ObjectRef, value: Value | None) -> Any:
        """Read an object for this run; None if the object does not exist. Blocks for one request at most."""
        target = self.sources.target(kind)
        self.sources.foresee(target)
        key = key_of_read(run, target, which)
        if value is not None:
            check_value(value)
        while True:
            source = self.sources.of_object(target, key)
            if source is None or run.reads_over or (key == run.key and self._is_own(target)):
                known, record = (False, None) if source is None else self._current(source, key)
                if not known:
                    record = self.sources.get(target, key)
                return None if record is None else object_of(target, record)
            found = self._read(run, source, key, value)
            if found is not _AGAIN:
                return found

    def read_all(self, run: Run, kind: Any, namespace: str | None, labels: LabelSelection | None,
                 fields: FieldSelection | None) -> list[Any]:
        """Read a selection for this run, sorted by namespace and name. Blocks for one list or `FEW` reads."""
        target = self.sources.target(kind)
        self.sources.foresee(target)
        selector, text = Selector.of(labels), field_selection(fields) or ""
        if namespace is not None and not target.resource.namespaced:
            raise RequestError(f"read_all: {target.resource.kind} is cluster-scoped, so namespace must be None, not "
                               f"{namespace!r}")
        found: list[Record] = []
        for place in [namespace] if namespace else self.sources.places(target):
            found += self._read_all(run, target, None if place == CHOSEN else place or None, selector, text)
        return [object_of(target, record) for record in sorted(found, key=_by_name)]

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
            return None if record is None else object_of(target, record)
        if not known:
            record = self.sources.get(target, key)
        seen = None if value is None else Seen(value, self.values.of(node, target, record, value))
        with self._lock:
            earlier = nodes.get(node)
            seens = nodes[node] = None if seen is None or earlier is None else (*earlier, seen)
            found = {} if record is None else {key: (record.head.uid, record.head.resource_version)}
            moved, current = shelf.answered(node, before, found, source.shown, progress=source.progress, besides=reader)
            if record is not None and not known:
                shelf.hold(key, record)
            again = not run.reads_over and Dependencies.read(reader, node, current=current, seen=seens)
            self.values.note(source)
        self._trigger(target, moved)
        if again:
            self._sink([self._request(reader, f"{target.name_of(key, reader)} changed", None, bulk=False)])
        return None if record is None else object_of(target, record)

    def _read_all(self, run: Run, target: Target, namespace: str | None, selector: Selector,
                  fields: str) -> list[Record]:
        while True:
            source, exact = self.sources.for_all(target, namespace, fields)
            if source is None or run.reads_over:
                return self.sources.listed(target, namespace, selector, fields, source)[0]
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
            records, version = self.sources.listed(target, namespace, selector, fields, source)
        else:
            records = [record for record in seen.values() if record is not None]
            for key in missing:
                read = self.sources.get(target, key)
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
            self.values.note(source)
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
        """The objects of a selection that are known without a request, and the keys whose content is missing (None if
        nothing is known). The lock must be held."""
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

    # --- watches ---------------------------------------------------------------------------------------------------

    def _is_own(self, target: Target) -> bool:
        return target.resource.kind == self._resource.kind and target.resource.group == self._resource.group

    def _connect(self, source: Source) -> None:
        assert source.watched is not None
        source.connected = True
        source.watched.share.on_failure(partial(self._failed, source))
        source.watched.share.watch.when_left(partial(self._left, source))
        self._watches.connect(source.watched, OfHeads(partial(self._heard, source)), self._sink, source.arrived)

    def _left(self, source: Source, namespaces: frozenset[str]) -> None:
        """Trigger the readers of these namespaces, which the watch no longer covers, to read from another watch."""
        with self._lock:
            readers = self._dependencies.abandon(source.shelf, namespaces)
        if readers:
            plural = source.target.resource.plural
            self._sink([self._request(reader, f"{plural} are watched elsewhere", None, bulk=True)
                        for reader in readers])

    def _failed(self, source: Source, error: BaseException) -> None:
        """Process a failed attempt of a watch. If the watch is forbidden and was never complete, release the watch."""
        if not isinstance(error, ApiError) or error.code != 403 or source.state.ready or source.watched is None:
            return
        with self._lock:
            if source.refused:
                return
            source.refused = source.ended = True
            readers = self._dependencies.abandon(source.shelf)
        resource = source.target.resource
        if source.name or source.fields:
            self.sources.warn(f"{resource.full_name} {source.name}{source.fields}",
                       "not allowed to watch %s, so changes of the objects that are read trigger nothing: grant list "
                       "and watch of %s (%s)", resource.full_name, resource.full_name, error)
        else:
            self._logger.info("not allowed to watch all %s; watching only the objects that are read, each by its name",
                              resource.full_name)
        self._watches.drop(source.watched, "it is not allowed")
        source.arrived()
        if readers and not source.name:
            self._sink([self._request(reader, f"{resource.plural} are watched by name", None, bulk=True)
                        for reader in readers])

    # --- changes ----------------------------------------------------------------------------------------------------

    def _heard(self, source: Source, event: Event[Any]) -> Iterable[ReconcileRequest]:
        """Process an event. Runs in the watch's thread."""
        shelf = source.shelf
        if event is INIT_DONE:
            with self._lock:
                moved = shelf.completed(source.stored, source.state.overlay.shown)
                self.values.note(source)
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
                    self.values.note(source)
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
            requests += [self._request(reader, f"{target.name_of(one.key, reader)} {one.what}", one.cause,
                                       bulk=bulk) for reader in one.readers]
            if self._logger.isEnabledFor(10):
                named = ", ".join(_said(reader) for reader in one.readers[:NAMED])
                more = f" and {len(one.readers) - NAMED} more" if len(one.readers) > NAMED else ""
                self._logger.debug("%s %s: triggers %s%s, which read it", target.name_of(one.key), one.what, named,
                                   more)
        return requests

    def _request(self, reader: Key, reason: str, cause: Identity | None, *, bulk: bool) -> ReconcileRequest:
        known = cause if cause is not None and cause[0] and cause[1] else None
        return ReconcileRequest(ObjectRef(self._resource, reader[1], reader[0]), reason, known, bulk)


    # --- runs -------------------------------------------------------------------------------------------------------

    def end(self, run: Run, outcome: Outcome) -> None:
        """Record the end of a run. After a success, its reads replace the earlier reads of its object; after a failure,
        its reads are added to them. Must be called if the run has read anything, or if its object is in `readers`."""
        with self._lock:
            nodes = run.reads
            good = outcome.error is None and outcome.repeated is not Repeated.CONFLICT
            absent = run.record is not None and not run.record.head.uid  # the run is for an object that is gone
            if run.forgotten or run.ends_reads or outcome.result is RunResult.GONE or (good and absent):
                self._dependencies.forget(run.key, nodes)
            elif outcome.result is not RunResult.SKIPPED:
                self._dependencies.settle(run.key, nodes or {}, good=good)
        self.tidy()

    def check(self) -> None:
        """Call `tidy` if it is needed. The dispatcher calls this method regularly."""
        if self.untidy:
            self.tidy()

    def tidy(self) -> None:
        """Release the watches that no object reads any more: watches of single names, of fields, and of namespaces
        outside the selection."""
        with self._lock:
            self.untidy = False
            unused = self.sources.unused()
        for source in unused:
            assert source.watched is not None
            self._watches.drop(source.watched, "nothing reads it any more")

    def forget(self, key: Key) -> None:
        """Forget the reads of an object that was deleted or belongs to another replica."""
        if key in self.readers:
            with self._lock:
                self._dependencies.forget(key)
                self.untidy = True  # release watches later, since the caller may hold a lock

    def forget_all(self, of: Callable[[Key], bool]) -> None:
        """Forget the reads of the objects for whose keys `of` is true; they belong to another replica."""
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
        source = next((one for one in self.sources.all() if one.shelf is node.shelf), None)
        if source is None:
            return ""
        if node.key is not None:
            return source.target.name_of(node.key, reader)
        parts = [f"{len(node.members)} {source.target.resource.plural}", str(node.selector or ""), source.fields]
        where = "" if node.namespace == reader[0] or not source.target.resource.namespaced else (
            f"in {node.namespace}" if node.namespace else "in all namespaces")
        return " ".join(part for part in (*parts, where) if part)


_AGAIN: Any = object()
"""The watch has ended in the meantime: look for another watch."""


def _nodes_of(run: Run) -> dict[Node, tuple[Seen, ...] | None]:
    nodes: dict[Node, tuple[Seen, ...] | None] | None = run.reads
    if nodes is None:
        nodes = run.reads = {}
    return nodes


def _by_name(record: Record) -> tuple[str, str]:
    return record.head.namespace or "", record.head.name


def _said(key: Key) -> str:
    return key[1] if key[0] is None else f"{key[0]}/{key[1]}"
