"""`watch_store`: a store that is kept up to date by a watch, without a controller.

    with watch_store(Api.all(client, Pod), indexes={"node": node_of}) as pods:
        pods.wait_until_ready(10)
        pods.by_index("node", "worker-1")

Before the `with` block nothing is requested and reads find nothing; the first such read is logged. In the block a
thread runs the watch, which other users of the same watch share. After the block, or when the client is closed, the
store keeps its last state.
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
"""The longest wait for the watch's thread when the block is left: a millisecond is enough unless user code blocks it.
"""


class Size(NamedTuple):
    """How much a store holds."""

    objects: int
    bytes: int
    """Bytes of JSON as received, without what `modify` removed; views of declared fields count as 0."""


class WatchedStore(Store[K]):
    """A `Store` with its own watch, created by `watch_store`.

    `watch_state` is the state of the watch, `is_stale(seconds)` tests whether the data may be outdated, and
    `subscribe(function)` delivers events, including deletions. The store is a context manager that can be entered once.
    Safe to use from any thread.

    >>> with watch_store(Api.all(client, ConfigMap)) as maps:
    ...     maps.wait_until_ready(10)
    ...     maps.is_stale(60), maps.size.objects == len(maps)
    (False, True)
    """

    def __init__(self, share: Share, kind: type[K], client: Any, clock: Clock, *, own_writes: bool) -> None:
        """`client`: the client of the Api, if the Api has a client."""
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
        """Start the watch like a `with` block does, for applications built by a factory; call `close` later.

        Does not block. Raises RequestError on a second call.
        """
        with self._entering:
            if self._is_begun:
                raise RequestError(f"the store of {self.resource.full_name} was entered already: its watch begins and "
                                   "ends once; make another store by watch_store(...)")
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
        """End the watch unless it has other users. Waits at most 2 s for the watch's thread. Safe to repeat and to call
        from any thread."""
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
        """Like `Store.wait_until_ready`. Raises RequestError if the watch was never started, so that no list would
        arrive."""
        if (unstarted := self._unstarted) and not self.has_ended:
            raise RequestError(f"cannot wait for the store of {self.resource.full_name}: {unstarted}")
        super().wait_until_ready(timeout)

    @property
    def watch_state(self) -> WatchState:
        """The state of the watch, with its last error."""
        return self._share.watch.state

    @property
    def _unstarted(self) -> str:
        """What the program must do to start the watch; empty if nothing, for example because another user of the watch
        has started it."""
        if self._is_begun or self.is_ready:
            return ""
        return f"its watch was never started: with watch_store(...) as {self.resource.plural}: ..., or .start()"

    def is_stale(self, max_age: Duration) -> bool:
        """Whether the store may be outdated: no page, event or bookmark has arrived for longer than `max_age`.

        Bookmarks arrive about once a minute, so a shorter `max_age` is of little use while nothing changes. Returns
        True before the first complete list and after the end of the watch.
        """
        state = self.watch_state
        if not self.is_ready or state.phase is Phase.STOPPED or state.last_event is None:
            return True
        return bool(self._clock.monotonic() - state.last_event > seconds(max_age))

    def subscribe(self, function: Callable[[Event[K]], object]) -> Callable[[], None]:
        """Call `function` with each event. Returns a function that unsubscribes.

        If there is a complete list, `function` gets an `Apply` of every stored object and `InitDone` before the call
        returns, possibly followed by later changes. After that the watch's thread calls `function` with an `Apply` or
        `Delete` for each change, and with `InitDone` after each list. `function` must not block: a warning names a
        function whose call takes more than 100 ms. An exception is logged, and the subscription continues. If more than
        10,000 changes arrive before `function` has received all stored objects, a warning is logged. `function` may
        change the objects.
        """
        check_callback("a subscription", function, "event")

        def subscription(event: Event[Any]) -> Iterable[ReconcileRequest]:
            not_awaitable(function(event), function)
            return ()

        return self._share.subscribe(named_after(function, subscription), lambda _: None, read=self._read)

    def changes(self) -> Iterator[Apply[K] | Delete[K]]:
        """Iterate over changes: first an `Apply` of each stored object, then each `Apply` and `Delete` as it arrives.

        Blocks while nothing has changed. Ends when the store or its client is closed, or at a `deadline`. The loop body
        may block: each iterator collects its own changes and holds up neither the watch nor other iterators. While the
        loop body is busy, a newer state of an object replaces the older one. Only a deletion in between is kept, so at
        most two events per object are waiting. Any thread may use an iterator, but only one thread at a time. Each
        iterator gets all changes. Raises RequestError before the store is started.

        >>> with watch_store(Api.namespaced(client, ConfigMap, "default")) as maps:
        ...     next(change.obj.name for change in maps.changes())
        'settings'
        """
        if unstarted := self._unstarted:
            raise RequestError(f"the store of {self.resource.full_name} gets no changes: {unstarted}")
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
        """How many objects and bytes the watch holds. Takes one lock."""
        stored = self._share.watch.stored
        with stored.condition:
            return Size(len(stored.records), stored.bytes)


def watch_store(api: WatchApi[K], config: WatcherConfig = DEFAULT_CONFIG, *,
                indexes: IndexFunctions[K] | None = None, modify: Modify | None = None) -> WatchedStore[K]:
    """Make a store of the objects of `api`, for a `with` block. Only `wait_until_ready` blocks.

    `indexes` maps names to functions as `Store.add_index` takes them; more can be added later. `modify`, for example
    `strip_managed_fields`, prunes each object before it is stored. Users of the client that need the same watch share
    it (see `WatcherConfig.shared`). Reads return the client's own writes as the server answered them, unless
    `own_writes` is off. Raises RequestError for an argument that cannot be used.

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
