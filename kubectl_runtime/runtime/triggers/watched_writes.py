"""`WatchedWrites`: what a watch makes of the writes of its client, so that its store shows them at once.

The client tells of each write, in the thread that wrote; the store's overlay decides what readers see of it.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kubectl_runtime.core.meta.refs import ObjectRef
from kubectl_runtime.core.objects.dynamic import dynamic
from kubectl_runtime.core.requests.request import Place
from kubectl_runtime.runtime.reflector.overlay import Own
from kubectl_runtime.runtime.reflector.store_writer import StoreWriter
from kubectl_runtime.runtime.reflector.written import Written
from kubectl_runtime.runtime.triggers.subscribers import Subscriber
from kubectl_runtime.runtime.watcher.event import Delete
from kubectl_runtime.runtime.watcher.readers import Modifier
from kubectl_runtime.runtime.watcher.watch_api import WatchApi
from kubectl_runtime.runtime.watcher.watcher_config import WatcherConfig

if TYPE_CHECKING:
    from kubectl_runtime.client.api.writes import Write


class WatchedWrites:
    """The writes of this process, as far as one watch's store holds their objects. `listen` and `close` are for the
    watch's thread; all else is safe to use from any thread."""

    def __init__(self, api: WatchApi[Any], config: WatcherConfig, modify: Modifier | None,
                 writer: StoreWriter[Any]) -> None:
        """`api` in the form that is stored."""
        self._written = Written(api, config, modify)
        self._writer = writer
        self._client: Any = getattr(api, "client", None)
        self._forget: Callable[[], None] | None = None
        self.deaf = False
        """In the child of a fork, where no watch would ever show what was written."""

    def listen(self) -> None:
        """Hear of writes from now on. Safe to repeat; an Api that is of no client tells of none."""
        if self._forget is None:
            on_write = getattr(self._client, "on_write", None)
            self._forget = on_write(self._was_written) if on_write is not None else lambda: None

    def close(self) -> None:
        """Hear of no more writes."""
        if self._forget is not None:
            self._forget()

    def is_behind(self, ref: ObjectRef) -> bool:
        """Whether this process wrote the object, and the watch has not shown it yet."""
        return self._written.is_about(ref) and self._writer.is_behind(ref.key)

    def read_live(self, ref: ObjectRef) -> None:
        """Ask the server for an object that this process wrote; all readers see the answer until the watch is as far.

        Blocks; raises as `Api.get` does.
        """
        from kubectl_runtime.client.api.api import Api  # not needed to watch

        whole = Api(self._client, dynamic(ref.resource), Place(ref.resource, ref.namespace))
        api: Api[Any] = whole.with_metadata_only() if self._written.metadata_only else whole
        found = api.get_opt(ref.name)
        own = Own("", "", gone=True) if found is None else self._written.present(found.record)
        own.live = True
        self._writer.wrote(ref.key, own)

    def when_caught_up(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` whenever the watch has shown a write of this process; returns how to end that. It is
        called by the watch's thread, and must neither block nor raise."""
        return self._writer.when_caught_up(callback)

    def _was_written(self, write: Write) -> None:
        own = None if self.deaf else self._written.entry(write)
        if own is None:
            return
        unseen, observers = self._writer.wrote(write.ref.key, own)
        if unseen is not None:
            for observer in observers:
                assert isinstance(observer, Subscriber)
                observer.deliver([Delete(unseen)])
