"""`SharedWatches`: one watch for all users of a client who want the same objects in the same form.

    take      a watch is made, or one that somebody else uses is joined; each user has a `Share` of it
    start     the first user's call starts the thread; a simulation steps the watch itself
    release   the user's subscriptions go; with the last user the watch is stopped

What makes two watches the same: kind and place, selectors, form or view, how recent the first list has to be,
`modify` (compared with `==`), backoff and observer; and the class of the objects, where it takes part in what is
stored. Page size, timeout and bookmarks of a joined watch are its first user's. `WatcherConfig(shared=False)` is a
watch of one's own.

All users of a watch share its thread: a subscriber that takes longer than 100 ms for an event is named in the log. Safe
to use from any thread; no lock is held while user code runs.
"""
from __future__ import annotations

import random
import threading
from collections.abc import Callable, Hashable
from dataclasses import fields
from typing import Any

from kubectl_runtime.core.base.clock import SYSTEM_CLOCK, Clock
from kubectl_runtime.core.base.guarded_log import GuardedLogger
from kubectl_runtime.core.base.observer import NO_OBSERVER, Observer
from kubectl_runtime.core.base.stop import StopToken
from kubectl_runtime.core.codec.prune import Modify
from kubectl_runtime.core.codec.record import Record
from kubectl_runtime.core.interpreter.contexts import Thread
from kubectl_runtime.core.interpreter.forks import renewed_in_children
from kubectl_runtime.core.objects.partial import FieldsForm
from kubectl_runtime.runtime.triggers.triggers import Sink, Subscription
from kubectl_runtime.runtime.triggers.watches import Watch
from kubectl_runtime.runtime.usercode import guarded, name_of
from kubectl_runtime.runtime.watcher.watch_api import WatchApi, as_configured
from kubectl_runtime.runtime.watcher.watch_backoff import DEFAULT_BACKOFF, WatchBackoff
from kubectl_runtime.runtime.watcher.watcher_config import DEFAULT_CONFIG, WatcherConfig

_HOW_ONLY = frozenset(("page_size", "timeout", "bookmarks", "shared", "fields"))
"""Options that change how a watch goes about it, and not what comes out."""

OnBug = Callable[[str, BaseException], None]
"""Hears of a defect that ended the thread of a watch."""


class _Held:
    """A watch and its users. The registry's lock guards all of it."""

    def __init__(self, key: Hashable, modify: Modify | None, watch: Watch[Any]) -> None:
        self.key = key
        self.modify = modify
        self.watch = watch
        self.users: dict[object, OnBug] = {}
        self.thread: threading.Thread | None = None


class SharedWatches:
    """The watches of one client, and of the clients derived from it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        """Guards what is in here, and what its shares do not share."""
        self._held: list[_Held] = []
        self.elsewhere = False
        """In the child of a fork: nothing of it runs here."""
        renewed_in_children(self)

    def renew(self) -> None:
        """Be free of whoever holds the lock, and leave the parent's watches alone. For the child of a fork alone, whose
        clients begin with a registry of their own."""
        self.lock, self._held, self.elsewhere = threading.Lock(), [], True

    def __len__(self) -> int:
        """How many watches there are."""
        return len(self._held)

    def take(self, api: WatchApi[Any], config: WatcherConfig = DEFAULT_CONFIG, *,
             backoff: WatchBackoff = DEFAULT_BACKOFF, modify: Modify | None = None, clock: Clock = SYSTEM_CLOCK,
             rng: random.Random | None = None, name: str | None = None, observer: Observer = NO_OBSERVER,
             on_bug: OnBug = lambda _what, _error: None) -> Share:
        """One more user of such a watch; nothing is requested yet. Arguments as for `Watch`."""
        key = (selection_of(api, config), form_of(api, config, modify), backoff, id(clock), observer)
        made: _Held | None = None
        while True:
            with self.lock:
                known = [held for held in self._held if config.shared and held.key == key]
            # Outside the lock: `modify` may be an object with an `==` of its own.
            joined = next((held for held in known if _same(held.modify, modify)), None)
            if joined is None and made is None:
                watch = Watch(api, config, stop=StopToken(clock=clock), backoff=backoff, modify=modify, clock=clock,
                              rng=rng, name=name, observer=observer)
                made = _Held(key, modify, watch)
            with self.lock:
                if joined is not None:
                    if not joined.users or joined.watch.stop.is_set():
                        continue
                    held = joined
                elif config.shared and any(held.key == key and held not in known for held in self._held):
                    continue  # somebody was faster: it may be the same
                else:
                    assert made is not None
                    held = made
                    if config.shared:
                        self._held.append(held)
                share = Share(self, held)
                held.users[share] = on_bug
                return share

    def start(self, held: _Held) -> None:
        """Have a thread run this watch, if none does. Raises what Python does when there can be no more threads."""
        with self.lock:
            if held.thread is not None or self.elsewhere:
                return
            thread = Thread(target=self._run, args=(held,), name=f"watch {held.watch.target}", daemon=True)
            thread.start()
            held.thread = thread

    def _run(self, held: _Held) -> None:
        try:
            held.watch.run()
        except BaseException as error:  # noqa: BLE001 - whatever it is, its users must not go on half alive
            with self.lock:
                self._held = [other for other in self._held if other is not held]
                users = [*held.users.values()]
            held.watch.stop.set("a defect ended it")
            for on_bug in users:
                guarded(None, "the report of a defect", on_bug, f"watch {held.watch.target}", error)

    def release(self, held: _Held, share: object, reason: str) -> None:
        """This user needs the watch no more."""
        with self.lock:
            held.users.pop(share, None)
            last = not held.users and not self.elsewhere
            if last:
                self._held = [other for other in self._held if other is not held]
        if last:
            held.watch.stop.set(reason)
            held.watch.stored.end(reason)  # it may never have been started


class Share:
    """One user's part of a watch. Safe to use from any thread."""

    def __init__(self, registry: SharedWatches, held: _Held) -> None:
        self._registry = registry
        self._held = held
        self._undo: dict[object, Callable[[], None]] = {}
        self._released = False
        self.watch: Watch[Any] = held.watch

    @property
    def thread(self) -> threading.Thread | None:
        """The watch's thread, if it was started."""
        return self._held.thread

    @property
    def has_ended(self) -> bool:
        """Whether nothing of it moves any more on behalf of this user."""
        return self._released and (not self.watch.stop.is_set() or self.watch.stopped)

    @property
    def ends(self) -> bool:
        """Whether the watch ends, so that its thread may be joined: its last user has released it."""
        return self.watch.stop.is_set()

    def start(self) -> None:
        """Have a thread run the watch, if none does."""
        self._registry.start(self._held)

    def subscribe(self, subscription: Subscription, sink: Sink, on_complete: Callable[[], None] = lambda: None, *,
                  read: Callable[[Record], Any] | None = None,
                  logger: GuardedLogger | None = None) -> Callable[[], None]:
        """As `Watch.subscribe`, until `release`."""
        return self._until_release(
            self.watch.subscribe(subscription, sink, on_complete, read=read, logger=logger))

    def when_caught_up(self, callback: Callable[[], None]) -> Callable[[], None]:
        """As `WatchedWrites.when_caught_up`, until `release`."""
        return self._until_release(self.watch.writes.when_caught_up(callback))

    def release(self, reason: str = "its last user has ended") -> None:
        """This user needs it no more. Does not block; safe to repeat. What it stored stays."""
        with self._registry.lock:
            if self._released:
                return
            self._released = True
            undo, self._undo = self._undo, {}
        for function in undo.values():
            function()
        self._registry.release(self._held, self, reason)

    def _until_release(self, function: Callable[[], None]) -> Callable[[], None]:
        """Have `function` called by `release`, at the latest; returns how to call it before, and forget it."""
        key = object()
        with self._registry.lock:
            released = self._released
            if not released:
                self._undo[key] = function
        if released:
            function()

        def end() -> None:
            with self._registry.lock:
                undo = self._undo.pop(key, None)
            if undo is not None:
                undo()

        return end


def shared_watches(api: WatchApi[Any]) -> SharedWatches:
    """The registry of the client that this Api belongs to; one for nobody else, when it is not of a `Client`."""
    shared = getattr(getattr(api, "client", None), "shared", None)
    return SharedWatches() if shared is None else shared.get(SharedWatches)


def selection_of(api: WatchApi[Any], config: WatcherConfig) -> Hashable:
    """Which objects a watch is about, and how recent: the part of the key that is no form."""
    options = tuple((option.name, str(getattr(config, option.name) or "") if option.name.endswith("_selector")
                     else getattr(config, option.name)) for option in fields(config) if option.name not in _HOW_ONLY)
    return api.resource, api.namespace, options


def form_of(api: WatchApi[Any], config: WatcherConfig, modify: Modify | None) -> Hashable:
    """In which form objects are stored; where user code takes part in that, the class it sees."""
    form = getattr(as_configured(api, config), "form", None)
    view = form.view if isinstance(form, FieldsForm) else None
    looks = modify is not None or config.validate
    return is_metadata_only(api), view, api.kind if looks else None


def is_metadata_only(api: WatchApi[Any]) -> bool:
    """Whether the Api asks for metadata alone."""
    return bool(getattr(getattr(api, "place", None), "metadata_only", False))


def is_whole(api: WatchApi[Any], config: WatcherConfig) -> bool:
    """Whether it gives whole objects, which also serve who needs only a part."""
    return not is_metadata_only(api) and not isinstance(getattr(as_configured(api, config), "form", None), FieldsForm)


def _same(one: Modify | None, other: Modify | None) -> bool:
    if one is other or one is None or other is None:
        return one is other
    return bool(guarded(False, lambda *_: f"{name_of(one)}.__eq__", lambda: one == other))
