"""`watch_store`: a store that is kept up to date by a watch, without a controller.

    with watch_store(Api.all(client, Pod), indexes={"node": node_of}) as pods:
        pods.wait_until_ready(10)
        pods.by_index("node", "worker-1")

Before the `with` block nothing is requested and reads find nothing; the first read logs that. In the block a thread
watches, shared with other users of the same watch. After the block, or when the client is closed, the store keeps its
last state.
"""
from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable, Iterator
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from kubectl_runtime.client.api.client import OwnWrites
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.guard import check_api, check_callback, check_type, guarded_logger, not_awaitable
from kubectl_runtime.core.base.threads import Clock, Duration, seconds
from kubectl_runtime.core.codec.views import Modify
from kubectl_runtime.core.scope import StopToken, with_scope
from kubectl_runtime.runtime.store.indexes import IndexFunctions, check_indexes
from kubectl_runtime.runtime.store.store import Store
from kubectl_runtime.runtime.triggers.shared_watches import Share, shared_watches
from kubectl_runtime.runtime.triggers.triggers import ReconcileRequest, named_after
from kubectl_runtime.runtime.watch.config import DEFAULT_CONFIG, WatcherConfig
from kubectl_runtime.runtime.watch.driver import reader_of
from kubectl_runtime.runtime.watch.event import Apply, Delete, Event
from kubectl_runtime.runtime.watch.states import Phase, WatchApi, WatchState, as_configured

log = guarded_logger(__name__)

K = TypeVar("K")

JOIN_SECONDS = 2.0
"""How long leaving the block waits for the watch's thread, which takes a millisecond unless user code blocks it."""


class Size(NamedTuple):
    """How much a store holds."""

    objects: int
    bytes: int
    """Of JSON as it was received, without what `modify` removed; objects that are kept as declared fields have none."""


class WatchedStore(Store[K]):
    """A `Store` with its own watch: made by `watch_store`.

    `watch_state` shows what the watch does, `is_stale(seconds)` whether the data may be outdated, and
    `subscribe(function)` delivers events, deletions included. A context manager, to be entered once; safe to use from
    any thread.

    >>> with watch_store(Api.all(client, ConfigMap)) as maps:
    ...     maps.wait_until_ready(10)
    ...     maps.is_stale(60), maps.size.objects == len(maps)
    (False, True)
    """

    def __init__(self, share: Share, kind: type[K], client: Any, clock: Clock, *, own_writes: bool) -> None:
        """`client`: the client of the Api, if it has one."""
        stored = share.watch.stored
        super().__init__(stored.resource, reader_of(kind), stored, own_writes=own_writes)
        self.declared_by = "watch_store(api, indexes={...})"
        self._share = share
        self._client = client
        self._clock = clock
        self._forget: Callable[[], None] = lambda: None
        self._over = StopToken(clock=clock)
        self._entering, self._is_begun = threading.Lock(), False

    def start(self) -> Self:
        """Begin the watch, as a `with` block does; call `close` later. For applications that a factory makes. Does not
        block. Raises RequestError the second time."""
        with self._entering:
            if self._is_begun:
                raise RequestError(f"the store of {self.resource.full_name} was entered already: its watch begins and "
                                   "ends once; make another one by watch_store(...)")
            self._share.start()
            self._is_begun = True
        self._forget = self._client.on_close(self._client_closed)
        return self

    def __enter__(self) -> Self:
        return self.start()

    def _client_closed(self) -> None:
        self._share.release("its client was closed")
        self._over.set("its client was closed")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the watch, unless it has other users. Waits at most 2 s for the watch's thread. Safe to repeat, and from
        any thread."""
        self._forget()
        self._share.release("its store was closed")
        self._over.set("its store was closed")
        self.drop_indexes()
        thread = self._share.thread
        if thread is not None and self._share.ends and thread is not threading.current_thread():
            thread.join(JOIN_SECONDS)
            if thread.is_alive():
                log.warning("%s has not ended %.0f s after its store was closed", thread.name, JOIN_SECONDS)

    def wait_until_ready(self, timeout: Duration | None = None) -> None:
        """Like `Store.wait_until_ready`. Raises RequestError before the `with` block, where no object would ever
        come."""
        if (unstarted := self._unstarted) and not self.has_ended:
            raise RequestError(f"the store of {self.resource.full_name} cannot be waited for: {unstarted}")
        super().wait_until_ready(timeout)

    @property
    def watch_state(self) -> WatchState:
        """The state of the watch, since when, and its last error."""
        return self._share.watch.state

    @property
    def _unstarted(self) -> str:
        """The missing step of the program; empty if there is none, for example because another user of the watch has
        started it."""
        if self._is_begun or self.is_ready:
            return ""
        return f"its watch was never started: with watch_store(...) as {self.resource.plural}: ..., or .start()"

    def is_stale(self, max_age: Duration) -> bool:
        """Whether nothing has arrived for longer than `max_age` that proves the store to be up to date.

        Pages, events and bookmarks prove it. Bookmarks come about once a minute, so a shorter `max_age` is of little
        use while nothing changes. True before the first complete list, and after the end of the watch.
        """
        state = self.watch_state
        if not self.is_ready or state.phase is Phase.STOPPED or state.last_event is None:
            return True
        return bool(self._clock.monotonic() - state.last_event > seconds(max_age))

    def subscribe(self, function: Callable[[Event[K]], object]) -> Callable[[], None]:
        """Call `function` with each event from then on. Returns a function that ends this.

        Before this returns, `function` gets an `Apply` of every stored object and `InitDone`, if there is a complete
        list, and maybe later changes. Then the watch's thread calls it with `Apply` and `Delete` of each change, and
        `InitDone` after each list. It must not block: a call of more than 100 ms is logged by name. An exception is
        logged and ends nothing. If more than 10,000 changes arrive before it has got all stored objects, that is
        logged. The objects are its own.
        """
        check_callback("a subscription", function, "event")

        def subscription(event: Event[Any]) -> Iterable[ReconcileRequest]:
            not_awaitable(function(event), function)
            return ()

        return self._share.subscribe(named_after(function, subscription), lambda _: None, read=self._read)

    def changes(self) -> Iterator[Apply[K] | Delete[K]]:
        """Iterate over changes: first an `Apply` of each stored object, then `Apply` and `Delete` as they come.

        Blocks while nothing has changed. Ends when the store or its client is closed, or at a `deadline`. The loop may
        block: each iterator collects its own changes and holds up neither the watch nor others. While the loop is busy,
        newer states of an object replace older ones, except that a deletion in between is kept; so there are at most
        two events per object. Any thread may use an iterator, one thread at a time; several threads can share the work
        through several iterators. Raises RequestError before the start.

        >>> with watch_store(Api.namespaced(client, ConfigMap, "default")) as maps:
        ...     next(change.obj.name for change in maps.changes())
        'settings'
        """
        if unstarted := self._unstarted:
            raise RequestError(f"the store of {self.resource.full_name} has no changes: {unstarted}")
        return self._changes()

    def _changes(self) -> Iterator[Apply[K] | Delete[K]]:
        news: dict[Hashable, list[Apply[K] | Delete[K]]] = {}
        changed = threading.Condition()

        def note(event: Event[K]) -> None:
            if not isinstance(event, Apply | Delete):
                return
            obj: Any = event.obj
            with changed:
                before = news.setdefault((obj.namespace, obj.name), [])
                before[:] = [*before[:1], event] if isinstance(event, Apply) and before and isinstance(
                    before[0], Delete) else [event]
                changed.notify_all()

        def wake() -> None:
            with changed:
                changed.notify_all()

        end = with_scope(self._over, self._clock)
        forget, unsubscribe = end.on_set(wake), self.subscribe(note)
        try:
            while True:
                with changed:
                    while not news and not end.is_set():
                        self._clock.wait(changed, None)
                    if end.is_set():
                        return
                    events = news.pop(next(iter(news)))
                yield from events
        finally:
            unsubscribe()
            forget()

    @property
    def size(self) -> Size:
        """How much the watch holds. Takes one lock."""
        stored = self._share.watch.stored
        with stored.condition:
            return Size(len(stored.records), stored.bytes)


def watch_store(api: WatchApi[K], config: WatcherConfig = DEFAULT_CONFIG, *,
                indexes: IndexFunctions[K] | None = None, modify: Modify | None = None) -> WatchedStore[K]:
    """A store of the objects of `api`, for a `with` block. Only `wait_until_ready` blocks.

    `indexes`: functions as `Store.add_index` takes them, by name; more can be added later. `modify` prunes each object
    before it is stored, such as `strip_managed_fields`. Users of the client that need the same watch share it (see
    `WatcherConfig.shared`). Objects that this client wrote are read as the server returned them, unless `own_writes`
    is off. Raises RequestError for an argument that cannot be used.

    >>> by_app = {"app": lambda pod: pod.labels.get("app")}
    >>> with watch_store(Api.all(client, Pod), indexes=by_app) as pods:
    ...     pods.wait_until_ready(10)
    ...     [pod.name for pod in pods.by_index("app", "web")]
    ['web-0']
    """
    check_api(api, "watch_store")
    check_type("config", config, WatcherConfig, "WatcherConfig(label_selector=\"app=web\")")
    if modify is not None:
        check_callback("modify", modify, "obj")
    check_indexes("indexes", indexes)
    client = api.client
    own_writes = client.own_writes is OwnWrites.OVERLAY
    watched: Any = api
    kind: type[K] = as_configured(watched, config).kind
    share = shared_watches(watched).take(watched, config, modify=modify, clock=client.clock,
                                     observer=client.observer)
    found: WatchedStore[K] = WatchedStore(share, kind, client, client.clock, own_writes=own_writes)
    try:
        found.add_indexes(indexes)
    except BaseException:
        found.close()
        raise
    return found
