"""GET with watch=true: `OpenWatch`, the stream of one watch, and the handler that opens it.

A watch reads its type's history with its own cursor; nothing is queued per watch. A watch ends without an event

- when timeoutSeconds have passed;
- when its type is no longer served and all remaining events have been sent;
- when unread history was compacted (the client's next request gets the 410);
- when an object cannot be converted (this is logged, and the client's next list gets the 500);
- when the client is gone (`close()`).

If the client allows bookmarks, a bookmark is sent every minute and another one two seconds before the timeout. A watch
that begins at a future version (for example after a restore of the database) sends no events until the server reaches
that version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.context import RequestContext
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.handlers.read import ListRequest, parse_version, read_list_request, select
from kubectl_runtime.apiserver.output.negotiation import WATCH_TYPES, Form, encode
from kubectl_runtime.apiserver.storage import Bucket, Change, Cluster, Version
from kubectl_runtime.apiserver.wire import HttpResponse, is_true
from kubectl_runtime.core.base.guard import guarded_logger

log = guarded_logger(__name__)

BATCH = 500  # maximum number of changes that are read at once under the lock
CHUNK = 1 << 16  # size in bytes at which a chunk is sent even if more events are ready
BOOKMARK_EVERY = 60.0
BOOKMARK_BEFORE_END = 2.0
DEFAULT_TIMEOUT = (1800.0, 3600.0)  # without timeoutSeconds: a random value in this range, as on the real server


class OpenWatch:
    """The events of one watch. Implements `wire.EventStream`. `poll` and `close` must be called from one thread."""

    def __init__(self, cluster: Cluster, bucket: Bucket, form: Form, namespace: str, listing: ListRequest, *,
                 since: int, initial: list[Version] | None, initial_end: bool, bookmarks: bool) -> None:
        """The caller must hold the cluster's lock. `initial` objects, at version `since`, are sent first as ADDED."""
        self._cluster = cluster
        self._bucket = bucket
        self._form = form
        self._namespace = namespace
        self._listing = listing
        self._since = self._began = since
        self._cursor = cluster.storage.cursor(bucket, since)
        self._pending: Iterator[bytes] = self._initial(initial or [], bookmark=initial_end)
        self._started = False
        self._ready: Callable[[], None] | None = None
        self._closed = False
        now = cluster.clock.monotonic()
        timeout = float(listing.timeout) if listing.timeout else cluster.random.uniform(*DEFAULT_TIMEOUT)
        self._end = now + timeout
        self._bookmarks = bookmarks and timeout > BOOKMARK_BEFORE_END
        self._next_bookmark = min(now + BOOKMARK_EVERY, self._end - BOOKMARK_BEFORE_END)
        bucket.listeners.append(self._mark)

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def deadline(self) -> float | None:
        """When the next bookmark or the end of the watch is due."""
        return min(self._next_bookmark, self._end) if self._bookmarks else self._end

    def on_ready(self, callback: Callable[[], None]) -> None:
        """Call `callback` now, and then whenever events may be ready."""
        self._ready = callback
        callback()

    def _mark(self) -> None:
        """Notify the reader of a change once the cluster's lock is free; the caller must hold the lock."""
        if self._ready is not None:
            self._cluster.call_unlocked(self._ready)

    def close(self) -> None:
        """End the watch, because the client is gone or the stream has ended."""
        self._closed = True
        with self._cluster.locked():
            if self._mark in self._bucket.listeners:
                self._bucket.listeners.remove(self._mark)

    def poll(self) -> bytes | None:
        """The next events as one chunk; None if there are none now or the watch has ended (`closed`)."""
        while not self._closed:
            if chunk := self._take(self._pending):
                return chunk
            changes = self._read()
            if not changes:
                return self._timers()
            self._pending = self._lines(changes)
        return None

    def _take(self, lines: Iterator[bytes]) -> bytes:
        taken, size = [], 0
        try:
            for line in lines:
                taken.append(line)
                size += len(line)
                if size >= CHUNK:
                    break
        except errors.StatusError as error:
            log.warning("ending a watch of %s in %s: %s", self._form.type.qualified, self._form.type.version, error)
            self.close()
        return b"".join(taken)

    def _read(self) -> list[Change]:
        """The next changes. Ends the watch if unread history was compacted or the type is gone."""
        with self._cluster.locked():
            start = self._cursor - self._bucket.base
            changes = [] if start < 0 else self._bucket.history[start:start + BATCH]
            if not changes:
                self._since = max(self._since, self._cluster.storage.rv)
            ended = start < 0 or (not changes and self._bucket.ended)
        self._cursor += len(changes)
        if ended:
            self.close()
        return changes if self._is_present(changes) else self._read_on(changes)

    def _is_present(self, changes: list[Change]) -> bool:
        return not changes or changes[0].rv > self._began

    def _read_on(self, changes: list[Change]) -> list[Change]:
        """Skip changes that the client already has: return the rest of `changes`, or the next changes."""
        return [change for change in changes if change.rv > self._began] or self._read()

    def _timers(self) -> bytes | None:
        now = self._cluster.clock.monotonic()
        if not self._closed and now >= self._end:
            self.close()
        elif not self._closed and self._bookmarks and now >= self._next_bookmark:
            self._schedule_bookmark(now)
            return None if self._is_ahead() else self._form.bookmark(self._since, initial=False)
        return None

    def _is_ahead(self) -> bool:
        """Whether the client is at a version that the server has not reached yet."""
        with self._cluster.locked():
            return self._cluster.storage.rv < self._began

    def _schedule_bookmark(self, now: float) -> None:
        last = self._end - BOOKMARK_BEFORE_END
        self._next_bookmark = self._end if now >= last else min(now + BOOKMARK_EVERY, last)

    def _initial(self, versions: list[Version], *, bookmark: bool) -> Iterator[bytes]:
        for version in versions:
            yield self._form.event("ADDED", version)
        if bookmark:
            yield self._form.bookmark(self._since, initial=True)

    def _lines(self, changes: list[Change]) -> Iterator[bytes]:
        for change in changes:
            line = self._line(change)
            if line:
                yield line

    def _line(self, change: Change) -> bytes:
        """The event of a change for this watch; b"" if the watch does not cover the object."""
        if self._namespace and change.new.namespace != self._namespace:
            return b""
        before = change.old is not None and select(self._listing, change.old)
        if change.deleted:
            return self._form.event("DELETED", change.new) if before else b""
        after = select(self._listing, change.new)
        if after:
            return self._form.event("MODIFIED" if before else "ADDED", change.new)
        # An object that no longer matches is sent in its old state, with the resourceVersion of the change.
        return self._form.event("DELETED", change.old_as_left()) if before else b""


class ErrorStream:
    """A stream of at most one ERROR event, for a watch that fails after its headers were sent."""

    closed = False
    deadline: float | None = None

    def __init__(self, error: errors.StatusError | None) -> None:
        self._line = b'{"type":"ERROR","object":%s}\n' % encode(error.to_status()) if error else None

    def poll(self) -> bytes | None:
        """Return the event on the first call. The call that returns None closes the stream."""
        line, self._line = self._line, None
        self.closed = line is None
        return line

    def on_ready(self, callback: Callable[[], None]) -> None:
        """Call `callback` at once."""
        callback()

    def close(self) -> None:
        """Mark the stream as closed."""
        self.closed = True


def watch(ctx: RequestContext) -> HttpResponse:
    """Open a watch."""
    if ctx.request.method != "GET":
        raise errors.method_not_allowed()
    if ctx.media.yaml:
        raise errors.not_acceptable(WATCH_TYPES)
    form = Form(ctx.type, ctx.media, ctx.request, ctx.cluster.clock.now, is_list=False, is_watch=True)
    listing = read_list_request(ctx)
    _validate(ctx, listing)
    try:
        wanted = parse_version(listing.rv)
    except ValueError as error:
        raise errors.bare_500(str(error)) from None  # the real server sends a 500 without a reason, not a 400
    bookmarks = is_true(ctx.request, "allowWatchBookmarks")
    asked = ctx.request.has_param("sendInitialEvents")
    # Without a resourceVersion the real server sends the initial events and their bookmark by default.
    initial_events = is_true(ctx.request, "sendInitialEvents") if asked else not wanted
    headers = [("Content-Type", ctx.media.content_type)]
    if ctx.media.transform == "PartialObjectMetadataList":
        # The real server does not answer with a 406; it ends the stream without an event.
        return HttpResponse(200, headers, stream=ErrorStream(None))
    with ctx.cluster.locked():
        storage = ctx.cluster.storage
        bucket = storage.bucket(ctx.type.storage)
        if initial_events:
            if wanted > storage.rv:
                too_large = errors.resource_version_too_large(wanted, storage.rv)
                return HttpResponse(200, headers, stream=ErrorStream(too_large), delay=too_large.delay)
            since = storage.rv
            initial = [version for version in bucket.scan(ctx.namespace) if select(listing, version)]
            if ctx.type.strategy.asks_webhook:
                initial = form.own(initial, cached=True)  # an object that cannot be converted is an error, as in a list
            stream = OpenWatch(ctx.cluster, bucket, form, ctx.namespace, listing, since=since, initial=initial,
                               initial_end=bookmarks, bookmarks=bookmarks)
            return HttpResponse(200, headers, stream=stream)
        since = wanted or storage.rv
        oldest = max(storage.compacted, bucket.start)
        if since < oldest:
            # Surprising: the answer to an expired watch is a 200 with the error as an event.
            expired = errors.expired(f"too old resource version: {wanted} ({oldest})")
            return HttpResponse(200, headers, stream=ErrorStream(expired))
        stream = OpenWatch(ctx.cluster, bucket, form, ctx.namespace, listing, since=since, initial=None,
                           initial_end=False, bookmarks=bookmarks)
        return HttpResponse(200, headers, stream=stream)


def _validate(ctx: RequestContext, listing: ListRequest) -> None:
    causes: list[Cause] = []
    at, match, asked = "resourceVersionMatch", listing.match, ctx.request.has_param("sendInitialEvents")
    if not match and not asked and listing.rv in ("", "0"):
        asked, match = True, "NotOlderThan"  # the real server's default
    if asked:
        if match != "NotOlderThan":
            causes.append(errors.forbidden_field(
                at, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"))
    elif match:
        causes.append(errors.forbidden_field(
            at, "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"))
    if match and listing.token:
        causes.append(errors.forbidden_field(at, "resourceVersionMatch is forbidden when continue is provided"))
    if match and match != "NotOlderThan":
        causes.append(errors.not_supported(at, match, ["NotOlderThan"]))
    if causes:
        raise errors.invalid("meta.k8s.io", "ListOptions", "", causes)
