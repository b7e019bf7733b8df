"""`NamespacesDriver`: a `WatchDriver` for a changing set of namespaces. Its watch has one store.

    everywhere   one watch of the whole cluster; objects of other namespaces are dropped before they are stored. An
                 added namespace is listed; the objects of a removed namespace are deleted from the store
    each         after a 403 for the first list or watch of the cluster: a shared watch for each namespace, at most
                 `MOST`. Their events are passed on in order, and the list of a namespace is passed on as a whole

    a namespace                  everywhere                                 each
    is added                     listed at version v; its events up to v    one object is requested, to test the
                                 are dropped, since the list has them       permission; then the namespace is watched
    is removed                   Delete of its stored objects               Delete of its stored objects; its watch is
                                                                            released
    is added, but forbidden      -                                          logged once and skipped; tried again when
                                                                            the namespace changes, and each minute

No event is passed on before the namespaces are known and the first lists are complete. If only a pattern selects the
namespaces, the mode `everywhere` does not watch Namespaces, since a namespace's name alone decides.

`Membership` is a shared watch of the namespaces' metadata. When the set changes, `Membership` wakes the reading thread:
the open watch of the cluster ends and resumes from its last version. Only the thread of the watch uses the driver. In a
simulation, which has no other threads, `advance` steps the watches of the namespaces.
"""
from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from kubectl_runtime.client.api.api import Api
from kubectl_runtime.client.api.api_base import walk
from kubectl_runtime.client.api.selected import NamespaceSelection, SelectedNamespaces
from kubectl_runtime.client.http.send import Outage
from kubectl_runtime.core.base.errors import ApiError, RequestError
from kubectl_runtime.core.base.guard import as_exception, guarded_logger
from kubectl_runtime.core.base.observer import Observer
from kubectl_runtime.core.base.plain import Key
from kubectl_runtime.core.base.threads import Clock, renewed_in_children
from kubectl_runtime.core.codec.views import Record, is_in_shard
from kubectl_runtime.core.requests.params import ListParams, WatchParams
from kubectl_runtime.core.requests.request import Retry
from kubectl_runtime.core.scope import FirstOf, StopToken
from kubectl_runtime.runtime.triggers.triggers import OfHeads
from kubectl_runtime.runtime.watch.config import WatcherConfig
from kubectl_runtime.runtime.watch.driver import Advance, WatchDriver
from kubectl_runtime.runtime.watch.event import (
    CARRIERS,
    INIT,
    INIT_DONE,
    Apply,
    Delete,
    Event,
    Failed,
    Init,
    InitApply,
)
from kubectl_runtime.runtime.watch.machine import is_lower
from kubectl_runtime.runtime.watch.states import (
    Listed,
    Listing,
    State,
    Streaming,
    WatchBatch,
    WatchError,
    Watching,
)

log = guarded_logger(__name__)

MOST = 100
"""The most namespaces that get their own watch: each such watch takes a thread and a connection."""

ASK_AGAIN = 60.0
"""Seconds after which a forbidden namespace is tried again: roles are often bound after the namespace was created."""

LOOK_SECONDS = 1.0
"""The longest wait, in seconds, for events of the namespaces' watches, and for room in a full backlog of events."""

SOON = 0.001
"""The wait, in seconds, after a check that found nothing new. It is short because the check itself has waited."""

BACKLOG = 10_000
"""If more events than this number wait for the store, the threads that deliver events are slowed down."""

JOIN_SECONDS = 2.0
"""The longest wait for each thread on closing: a millisecond is enough unless user code blocks the thread."""


class Taken(Protocol):
    """A user's part of a shared watch: `shared_watches.Share`."""

    @property
    def watch(self) -> Any:
        """The watch."""

    @property
    def thread(self) -> threading.Thread | None:
        """The watch's thread, if it was started."""

    def start(self) -> None:
        """Start a thread for the watch."""

    def subscribe(self, subscription: Any, sink: Any, on_complete: Callable[[], None] = ...) -> Callable[[], None]:
        """Pass the events of the watch through `subscription`."""

    def release(self, reason: str = ...) -> None:
        """Release the watch."""


Take = Callable[..., Taken]
"""Returns a share of a shared watch: `SharedWatches.take`."""


class Membership:
    """The currently selected namespaces. `on_change` is called after a change, in the thread that has recorded it."""

    def __init__(self, api: SelectedNamespaces[Any], take: Callable[..., Taken],
                 on_change: Callable[[], None]) -> None:
        self._api = api
        self.selection: NamespaceSelection = api.selection
        self._take = take
        self._on_change = on_change
        self._versions: dict[str, str] = {}
        """The version of each namespace. Replaced as a whole once the list is complete, since other threads read it."""
        self._names: frozenset[str] | None = None
        self._forget: Callable[[], None] = lambda: None
        self.share: Taken | None = None
        if self.selection.chosen is not None:
            self._forget = self.selection.chosen.on_change(on_change)

    def begin(self, *, threaded: bool) -> float | None:
        """Start the watch of the namespaces if a watch is needed and not yet started. If `threaded` is false, make one
        step of the watch and return the step's result."""
        if self.selection.chosen is not None:
            return None
        if self.share is None:
            self.share = self._take(self._api.of_namespaces(), WatcherConfig(label_selector=self.selection.labels))
            self.share.subscribe(OfHeads(self._changed), lambda _: None, self._listed)
            if threaded:
                self.share.start()
        if threaded:
            return None
        wait: float | None = self.share.watch.step()
        return wait

    @property
    def names(self) -> frozenset[str] | None:
        """The names of the selected namespaces; None while they are not known."""
        if self.selection.chosen is not None:
            return self.selection.chosen.names
        return self._names

    @property
    def trouble(self) -> str:
        """Why the names are not known; empty if there is no error."""
        return "" if self._names is not None or self.share is None else self.share.watch.state.last_error

    def version(self, name: str) -> str:
        """A text that is different after each change of the namespace; empty without a watch of namespaces."""
        return self._versions.get(name, "")

    def close(self) -> Iterable[Taken]:
        """Release the watch, if there is one, and return its share."""
        self._forget()
        if self.share is None:
            return ()
        return (_released(self.share),)

    def _changed(self, event: Event[Record]) -> Iterable[Any]:
        if isinstance(event, CARRIERS) and self.selection.fits(event.obj.head.name):
            head = event.obj.head
            versions = self._versions if self._names is None else {**self._versions}
            if isinstance(event, Delete):
                versions.pop(head.name, None)
            else:
                versions[head.name] = head.resource_version
            self._versions = versions
            if self._names is not None:
                self._publish()
        return ()

    def _listed(self) -> None:
        if self._names is None:
            self._publish()

    def _publish(self) -> None:
        if self._names is None or self._versions.keys() != self._names:
            self._names = frozenset(self._versions)
        self._on_change()


class _Everywhere(Api[Any]):
    """The Api of the whole cluster. Its open watch can be woken: the watch then yields an empty batch and resumes from
    its last version."""

    __slots__ = ("nudge",)

    def __init__(self, api: Api[Any]) -> None:
        super().__init__(api.client, api.kind, api.place, api.form)
        self.nudge = StopToken()

    def open_watch(self, params: WatchParams, resource_version: str,  # type: ignore[override]  # only for a driver
                   stop: StopToken) -> Any:
        """Like `Api.open_watch`, for a watch driver."""
        return _Woken(self, partial(super().open_watch, params), resource_version, stop,
                      initial=params.send_initial_events)


class _Woken(Iterator[WatchBatch]):
    def __init__(self, owner: _Everywhere, open_watch: Callable[[str, StopToken], Any], version: str,
                 stop: StopToken, *, initial: bool) -> None:
        """`initial`: the watch begins with a list. It cannot be woken during the list, which cannot be resumed."""
        self._owner = owner
        self._open_watch = open_watch
        self._version = version
        self._stop = stop
        self._initial = initial
        self._nudge = owner.nudge
        self._stream: Any = None
        self.flow_schema = ""
        self._open()

    @property
    def broke(self) -> Any:
        return None if self._stream is None else self._stream.broke

    def __next__(self) -> WatchBatch:
        if self._stream is None:
            self._open()
            if self._stream is None:
                return []
        try:
            batch: WatchBatch | None = next(self._stream, None)
        except Exception:
            if not self._is_woken:
                raise
            batch = None
        if batch is None:
            if not self._is_woken:
                raise StopIteration
            self.close()
            return []
        if batch:
            self._version = next((event.resource_version for event in reversed(batch) if event.resource_version),
                                 self._version)
            self._initial = self._initial and not any(event.initial_events_end for event in batch)
        return batch

    def close(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    @property
    def _is_woken(self) -> bool:
        return not self._initial and self._nudge.is_set() and not self._stop.is_set()

    def _open(self) -> None:
        self._nudge = self._owner.nudge
        stop = self._stop if self._initial else FirstOf(self._stop, self._nudge)
        try:
            self._stream = self._open_watch(self._version, stop)
        except Exception:
            if not self._is_woken:
                raise
        else:
            self.flow_schema = self._stream.flow_schema


class _Refusals(Observer):
    """Observes refused watches of single namespaces."""

    def __init__(self, on_refusal: Callable[[str], None]) -> None:
        self._on_refusal = on_refusal

    def watch_failed(self, watch: str, error: BaseException, failures: int, delay: float) -> None:  # noqa: ARG002
        if isinstance(error, ApiError) and error.is_forbidden:
            self._on_refusal(watch)


class NamespacesDriver:
    """Drives the watch of one kind in a changing set of namespaces. `known` returns the contents of the store,
    including later writes of this process."""

    def __init__(self, api: SelectedNamespaces[Any], config: WatcherConfig, stop: StopToken, clock: Clock,
                 rng: random.Random, take: Take, known: Callable[[], Mapping[Key, Record]]) -> None:
        """Raises RequestError for `config.verify`, which needs a single list."""
        if config.verify is not None:
            raise RequestError(f"verify={config.verify} compares a store with one list, but {api!r} needs several")
        self._api = api
        self._config = config
        self._stop = stop
        self._clock = clock
        self._known = known
        self._take = partial(take, clock=clock, rng=rng)
        self._target = f"{api.resource.full_name} in the namespaces of {api.selection}"
        self.threaded = False
        """Whether a thread calls `advance`, which may then block and start further threads."""
        self._members = Membership(api, self._take, self._wake)
        self._everywhere = _Everywhere(api.everywhere)
        self._cluster: WatchDriver | None = WatchDriver(self._everywhere, config, stop, clock, rng)
        self._is_proven = False
        """Whether a watch of the cluster was ever open."""
        self._inside: frozenset[str] = frozenset()
        """The namespaces whose objects the store has, or will have once the list in progress is complete."""
        self._floors: dict[str, str] = {}
        """For each added namespace, the version of its list; removed once the watch has passed that version."""
        self._each: dict[str, Taken] = {}
        self._listed: set[str] = set()
        """The namespaces whose first list is complete."""
        self._skipped: dict[str, tuple[str, float]] = {}
        """For each forbidden namespace, its version, and when it is tried again."""
        self._refused: set[str] = set()
        self._is_complete = self._leaves_some_out = False
        self._covered: frozenset[str] = frozenset()
        """The namespaces whose objects the store has."""
        self._delivered: frozenset[str] = frozenset()
        """In the mode `each`: the namespaces whose first lists the steps so far have returned."""
        self._on_left: tuple[Callable[[frozenset[str]], object], ...] = ()
        self._heard = 0.0
        """The oldest of the times at which the namespaces' watches last received an event."""
        self._changed = threading.Condition()
        self._arrived: deque[tuple[Taken, Event[Record]]] = deque()
        self._observer = _Refusals(self._refuse)
        self._forget = stop.on_set(self._wake)
        renewed_in_children(self)

    def renew(self) -> None:
        """In a forked child process, mark the driver as the parent's. The child must not use the driver: waking its
        watch would end a connection of the parent."""
        self.threaded, self._changed = False, threading.Condition()

    @property
    def state(self) -> State:
        """The state of the cluster's watch. In the mode `each`: `Watching` if all lists are complete, else `Streaming`.
        """
        if self._cluster is not None:
            return self._cluster.state
        return Watching("", "", 0.0) if self._is_complete else Streaming(Listing(), 0.0)

    @property
    def unasked(self) -> bool:
        """Like `WatchDriver.unasked`, for the cluster's watch."""
        return self._cluster is not None and self._cluster.unasked

    @property
    def server_trouble(self) -> Exception | None:
        """Like `WatchDriver.server_trouble`, for the cluster's watch. In the mode `each`, every namespace's watch logs
        its own failures."""
        return None if self._cluster is None else self._cluster.server_trouble

    @property
    def outage(self) -> Outage | None:
        """Like `WatchDriver.outage`."""
        if self._cluster is not None:
            return self._cluster.outage
        found: Outage | None = self._api.client.reachability.outage
        return found

    def admits(self, namespace: str | None) -> bool:
        """Whether the store has or may get objects of this namespace. Safe to call from any thread."""
        selection = self._api.selection
        if selection.decides_by_name:
            return selection.fits(namespace)
        return namespace in self._inside or namespace in (self._members.names or ())

    def covers(self, namespace: str | None) -> bool:
        """Whether the store, once complete, has all objects of this namespace that match the other selectors. Safe to
        call from any thread."""
        if self._cluster is not None and self._api.selection.decides_by_name:
            return self._api.selection.fits(namespace)
        return namespace in self._covered

    @property
    def names(self) -> frozenset[str] | None:
        """The selected namespaces; None while they are not known. If only a pattern selects the namespaces, they are
        known only in the mode `each`."""
        return self._members.names

    def when_left(self, callback: Callable[[frozenset[str]], object]) -> None:
        """Call `callback` with the namespaces that are no longer covered, before their objects leave the store. The
        callback must neither block nor raise."""
        self._on_left = (*self._on_left, callback)

    def _cover(self, names: frozenset[str]) -> None:
        gone, self._covered = self._covered - names, names
        if gone:
            for callback in self._on_left:
                callback(gone)

    def advance(self) -> Advance:
        """Like `WatchDriver.advance`."""
        # The output of the last step has been stored by now.
        if self._cluster is None:
            self._cover(self._delivered & self._each.keys())
        elif isinstance(self._cluster.state, Listed | Watching):
            self._cover(self._inside)
        if self._everywhere.nudge.is_set():
            self._everywhere.nudge = StopToken()
        by_name = self._cluster is not None and self._api.selection.decides_by_name
        waited = None if by_name else self._members.begin(threaded=self.threaded)
        names = None if by_name else self._members.names
        if names is None and not by_name:
            if trouble := self._members.trouble:
                return Advance([Failed(WatchError(f"the namespaces are not known: {trouble}"), "list")])
            return Advance([], waited)
        found = self._of_cluster(names) if self._cluster is not None else self._of_each(names or frozenset())
        return found._replace(wait=0.0) if waited == 0 and found.wait is None else found

    def restart(self) -> None:
        """Forget everything known and begin with a list."""
        if self._cluster is not None:
            self._cluster.restart()
            return
        self._give_back(self._each)
        self._is_complete = False

    def close(self) -> None:
        """Release all watches and wait for their threads."""
        self._forget()
        if self._cluster is not None:
            self._cluster.close()
        taken = [*self._members.close(), *self._give_back(self._each)]
        for share in taken:
            thread = share.thread
            if thread is not None and share.watch.stop.is_set() and thread is not threading.current_thread():
                thread.join(JOIN_SECONDS)

    # --- one watch of the cluster ---

    def _of_cluster(self, names: frozenset[str] | None) -> Advance:
        cluster = self._cluster
        assert cluster is not None
        if names is not None and names is not self._inside and isinstance(cluster.state, Listed | Watching):
            if names != self._inside:
                return self._moved(names)
            self._inside = names
        out, wait, frame = cluster.advance()
        self._is_proven = self._is_proven or isinstance(cluster.state, Watching)
        failure = out[-1] if out and isinstance(out[-1], Failed) else None
        if failure is not None and _is_refusal(failure.error) and not self._is_proven:
            log.info("%s: cannot watch all namespaces at once (%s); watching each namespace by itself", self._target,
                     failure.error)
            cluster.close()
            self._cluster = None
            return Advance([])
        return Advance([event for event in out if self._passes(event, names)], wait, frame)

    def _passes(self, event: Event[Record] | Failed, names: frozenset[str] | None) -> bool:
        if isinstance(event, Init):
            self._inside, self._floors = names or frozenset(), {}
            self._cover(self._covered & self._inside)
        elif event is INIT_DONE and not self._covered:  # no earlier list was complete
            self._cover(self._inside)
        if not isinstance(event, CARRIERS):
            return True
        head = event.obj.head
        if names is None:
            return self._api.selection.fits(head.namespace)
        if head.namespace not in self._inside:
            return False
        floor = self._floors.get(head.namespace) if self._floors else None
        if floor is None or isinstance(event, InitApply):
            return True
        if head.resource_version == floor or is_lower(head.resource_version, floor):
            return False
        del self._floors[head.namespace]
        return True

    def _moved(self, names: frozenset[str]) -> Advance:
        """Process added and removed namespaces. A step lists only one added namespace, so that no step takes long."""
        gone, came = self._inside - names, sorted(names - self._inside)
        self._cover(self._covered - gone)
        out: list[Event[Record] | Failed] = [*self._deleted(gone)]
        self._inside -= gone
        for name in gone:
            self._floors.pop(name, None)
        if came:
            try:
                records, version = self._read(came[0])
            except BaseException as error:  # noqa: BLE001 - the watch must go on and report the failure
                return Advance(out if self._stop.is_set() else [*out, Failed(as_exception(error), "list")])
            self._inside |= {came[0]}
            self._floors[came[0]] = version
            out += map(Apply, records)
        return Advance(out)

    def _read(self, name: str) -> tuple[list[Record], str]:
        """All objects of one namespace, and the version of the list. Blocks and raises like a list."""
        api, config, version = self._api.within(name), self._config, ""
        params = ListParams(label_selector=config.label_text, field_selector=config.field_text, limit=config.page_size,
                            shard=config.shard)
        records: dict[Key, Record] = {}

        def fetch(asked: ListParams) -> Any:
            return api.list_page(asked, stop=self._stop, retry=Retry.SAFE)

        for meta, page in walk(fetch, params, f"list {self._api.resource.full_name} in namespace {name}"):
            version = meta.resource_version or version
            records.update((record.key, record) for record in page if is_in_shard(config.shard, record))
        return [*records.values()], version

    # --- a watch of each namespace ---

    def _of_each(self, names: frozenset[str]) -> Advance:
        out: list[Event[Record] | Failed] = [*self._follow(names)]
        waits: list[float] = []
        if not self.threaded:
            waits = [wait for share in self._each.values() if (wait := share.watch.step()) is not None]
        with self._changed:
            if self.threaded and not (out or self._arrived or self._refused or self._stop.is_set() or self._may_begin):
                self._clock.wait(self._changed, LOOK_SECONDS)
            shares = [*self._each.values()]
            while self._arrived:
                share, event = self._arrived.popleft()
                if share in shares:
                    out.append(event)
            if self._is_complete or self._may_begin:
                self._delivered = frozenset(self._listed)
            self._changed.notify_all()
        if not self._is_complete:
            if not self._may_begin:
                return Advance([], SOON if self.threaded else min(waits, default=None))
            self._is_complete = True
            self._cover(self._delivered & self._each.keys())
            records = (record for share in shares for record in share.watch.stored.records.values())
            return Advance([INIT, *map(InitApply, [*records]), INIT_DONE])
        if out:
            return Advance(out, 0.0, len(out))
        heard = min((share.watch.state.last_event or 0.0 for share in shares), default=self._heard)
        if heard > self._heard:  # every namespace's watch has received something since this branch last ran
            self._heard = heard
            return Advance([])
        return Advance([], SOON if self.threaded else min(waits, default=None))

    def _follow(self, names: frozenset[str]) -> list[Event[Record]]:
        """Release the watches of removed namespaces, and take a watch for each added namespace."""
        refused, self._refused = self._refused, set()
        now = self._clock.monotonic()
        for name in refused:
            self._skip(name, now, "its watch was refused")
        gone = [name for name in self._each if name not in names or name in refused]
        deletions = self._deleted(frozenset(gone)) if gone else []
        self._give_back(gone)
        for name in [name for name in self._skipped if name not in names]:
            del self._skipped[name]
        waiting = [name for name in sorted(names.difference(self._each)) if self._is_due(name, now)]
        for name in waiting[:MOST - len(self._each)]:
            if self._may_read(name, now):
                self._begin(name)
        left = len(names) - len(self._each) - len(self._skipped)
        if left > 0 and not self._leaves_some_out:
            log.warning("%s: %d namespaces are not watched. Without permission to list and watch %s in all namespaces, "
                        "each namespace needs a watch, and at most %d are made; grant this permission by a ClusterRole",
                        self._target, left, self._api.resource.plural, MOST)
        self._leaves_some_out = left > 0
        return deletions

    def _is_due(self, name: str, now: float) -> bool:
        version, again = self._skipped.get(name, (None, 0.0))
        return version is None or now >= again or version != self._members.version(name)

    def _may_read(self, name: str, now: float) -> bool:
        """Request one object of a namespace, and also a watch if the namespace was skipped. Returns False if a request
        is forbidden. The namespace's watch handles any other failure."""
        api = self._api.within(name)
        try:
            meta, _ = api.list_page(ListParams(limit=1), stop=self._stop, retry=Retry.NEVER)
            if name in self._skipped:
                api.open_watch(WatchParams(timeout=1), meta.resource_version, self._stop).close()
        except BaseException as error:  # noqa: BLE001 - as above
            if not _is_refusal(as_exception(error)):
                return True
            self._skip(name, now, error)
            return False
        return True

    def _skip(self, name: str, now: float, why: object) -> None:
        """Skip a forbidden namespace. Logs this once."""
        if name not in self._skipped:
            log.warning("%s: skipping namespace %s: %s. Grant list and watch in it; it is tried again every minute and "
                        "when the Namespace changes", self._target, name, why)
        self._skipped[name] = self._members.version(name), now + ASK_AGAIN

    def _begin(self, name: str) -> None:
        self._skipped.pop(name, None)
        config = replace(self._config, validate=False)  # the watch that gets these events validates them
        share = self._take(self._api.within(name), config, observer=self._observer, name=name)
        self._each[name] = share
        share.subscribe(OfHeads(partial(self._collect, share)), lambda _: None, partial(self._completed, name))
        if self.threaded:
            share.start()

    def _collect(self, share: Taken, event: Event[Record]) -> Iterable[Any]:
        if isinstance(event, Apply | Delete):
            with self._changed:
                if self.threaded and len(self._arrived) > BACKLOG and not share.watch.stop.is_set():
                    self._clock.wait(self._changed, LOOK_SECONDS)
                self._arrived.append((share, event))
                self._changed.notify_all()
        return ()

    def _completed(self, name: str) -> None:
        with self._changed:
            self._listed.add(name)
            self._changed.notify_all()

    def _refuse(self, name: str) -> None:
        """Record that this namespace's watch was refused. Called in the thread of that watch."""
        with self._changed:
            self._refused.add(name)
            self._changed.notify_all()

    @property
    def _may_begin(self) -> bool:
        """Whether all namespaces have been listed and no event has been passed on yet."""
        return not self._is_complete and self._listed.issuperset(self._each)

    def _give_back(self, names: Iterable[str]) -> list[Taken]:
        given = []
        self._cover(self._covered.difference([*names]))
        for name in [*names]:
            share = self._each.pop(name)
            self._listed.discard(name)
            given.append(_released(share))
        return given

    def _deleted(self, names: frozenset[str]) -> list[Event[Record]]:
        known = self._known() if names else {}
        return [Delete(record) for (namespace, _), record in known.items() if namespace in names]

    def _wake(self) -> None:
        if self.threaded:
            self._everywhere.nudge.set("the namespaces have changed")
            with self._changed:
                self._changed.notify_all()


def _released(share: Taken) -> Taken:
    """Release the share and return it. If no thread runs the watch, its last step is made here."""
    share.release()
    if share.thread is None and share.watch.stop.is_set():
        share.watch.step()
    return share


def _is_refusal(error: object) -> bool:
    return isinstance(error, ApiError) and error.is_forbidden
