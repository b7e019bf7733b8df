"""`WatchDriver`: performs the effects that the watch machine requests, one at a time.

    machine's state        effect                                             input to the machine
    Listing                `api.list_page`                                    PageRead, or Broke
    Listing, as a stream   `api.open_watch` with the initial events           Opened, or Broke
    Listed, too early      none; returns how long to wait                     none
    Listed, to be verified the verifier's lists                               none, or a suspect Listing
    Listed                 `api.open_watch`                                   Opened, or Broke
    Watching in doubt      `api.list_page` of one object; if another          VersionRead, or Broke
                           FlowSchema answered, then one `api.list_page`
                           for each of the objects seen last
    Streaming, Watching    the next batch of the open stream                  BatchRead, Ended (also by the idle
                                                                              guard), or Broke

While the server is unreachable, a request is made only at this watch's turn (see `ServerGate`). An error is an input
like any other; nothing is raised. Errors after the stop token is set are dropped. Only one thread at a time may call
`advance` and `close`; another thread that sets the stop token wakes a blocked read at once.

`Verifier` compares the store with lists of metadata from time to time. It finds changes that no event reports: such
changes exist if the database was restored from an older copy and the server's versions have already passed the known
versions again. `Verifier` compares key, uid and version of each listed object with the stored object and with the
object that readers see. (For a write of this process that the watch has not shown yet, readers see the version that the
server returned.) An object that
differs is compared again after 10 s, since an event may be on its way. If it still differs and the local state is
unchanged, no event will correct the difference, and everything is listed again.

`reader_of`, `Modifier` and `validated` turn records into the objects that user code gets.
"""
from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar, cast

import msgspec

from kubectl_runtime.client.api.api import Api
from kubectl_runtime.client.api.api_base import walk
from kubectl_runtime.client.api.watch import RecordEvent, WatchStream
from kubectl_runtime.client.http.send import Outage
from kubectl_runtime.core.base.errors import RequestError, RequestTimeout
from kubectl_runtime.core.base.guard import Guard, as_exception, described, guarded_logger, name_of, pass_interrupt
from kubectl_runtime.core.base.plain import Key
from kubectl_runtime.core.base.threads import Clock
from kubectl_runtime.core.codec.views import Modify, Record, is_in_shard, pruned
from kubectl_runtime.core.meta.metav1 import ListMeta
from kubectl_runtime.core.meta.problems import DecodeError, Problem
from kubectl_runtime.core.objects.partial import InvalidObject, PartialView
from kubectl_runtime.core.requests.params import IDLE_MARGIN, ListParams, WatchParams
from kubectl_runtime.core.requests.request import Retry
from kubectl_runtime.core.scope import StopToken
from kubectl_runtime.runtime.watch.backoff import ServerGate, WatchTarget
from kubectl_runtime.runtime.watch.config import InitialListStrategy, ListSemantic, WatcherConfig
from kubectl_runtime.runtime.watch.event import Event, Failed, with_obj
from kubectl_runtime.runtime.watch.machine import is_lower, step
from kubectl_runtime.runtime.watch.states import (
    BEGIN,
    INITIAL_EVENTS_SECONDS,
    BatchRead,
    Broke,
    Ended,
    Input,
    Listed,
    Listing,
    Opened,
    PageRead,
    State,
    Streaming,
    VersionRead,
    WatchBatch,
    Watching,
)

log = guarded_logger(__name__)

CONFIRM_SECONDS = 10.0
"""The time, in seconds, within which events may still explain a difference."""
_NAMED = 3

Identity = tuple[str, str] | None
"""Uid and version of an object; None when there is no object."""

Held = tuple[Identity, Identity]
"""The stored object, and the object that readers see."""

_NOT_HELD: Held = None, None


class Verifier:
    """Compares a store with the server. Only for the thread of its watch. `known` returns the store's contents."""

    def __init__(self, api: Api[Any], config: WatcherConfig, interval: float,
                 known: Callable[[], dict[Key, Held]], stop: StopToken, now: float) -> None:
        self._api = api.with_metadata_only()
        self._params = ListParams(label_selector=config.label_text, field_selector=config.field_text,
                                  limit=config.page_size, shard=config.shard)
        self._interval = interval
        self._known = known
        self._stop = stop
        self._due = now + interval
        self._differed: dict[Key, Held] = {}

    @property
    def due(self) -> float:
        """When the next list is due."""
        return self._due

    def check(self, now: float) -> str:
        """Compare the store with a list from the server, if a list is due. Returns a text that names objects which have
        differed in two lists in a row, without a change in the store; empty if there are none. Blocks for the list."""
        if now < self._due:
            return ""
        before, self._differed = self._differed, {}
        self._due = now + self._interval
        try:
            differing = self._compare()
        except BaseException as error:  # noqa: BLE001 - a failed check must not end a working watch
            pass_interrupt(error)
            log.warning("the store of %s could not be verified: %s", self._api.resource.full_name, described(error))
            return ""
        still = [key for key, known in differing.items() if key in before and before[key] == known]
        if still:
            names = ", ".join("/".join(part for part in key if part) for key in sorted(still, key=str)[:_NAMED])
            more = f" and {len(still) - _NAMED} more" if len(still) > _NAMED else ""
            return f"{len(still)} objects differ from the server's, and no event announced it ({names}{more})"
        if differing:
            self._differed = differing
            self._due = now + min(CONFIRM_SECONDS, self._interval)
        return ""

    def _compare(self) -> dict[Key, Held]:
        """The local state of each object that differs from the server's list."""
        known = self._known()
        differing: dict[Key, Held] = {}
        operation = f"list {self._api.resource.full_name} to verify the store"
        for _, records in walk(self._fetch, self._params, operation):
            for record in records:
                here, there = known.pop(record.key, _NOT_HELD), (record.uid, record.resource_version)
                if here != (there, there):
                    differing[record.key] = here
        return {**differing, **{key: here for key, here in known.items() if here != _NOT_HELD}}

    def _fetch(self, params: ListParams) -> Any:
        meta, records = self._api.list_page(params, stop=self._stop, retry=Retry.SAFE)
        return meta, [record for record in records if is_in_shard(params.shard, record)]


WITNESSES = 3
"""How many of the last seen objects identify the cluster. One object is not enough, since it may have been deleted."""


class Advance(NamedTuple):
    """The result of one effect: events and failures in order, the seconds until the next effect (None: idle), and the
    number of events, including bookmarks and errors, that arrived on the open watch."""

    out: list[Event[Record] | Failed]
    wait: float | None = 0.0
    frame: int = 0


_IDLE = Advance([], None)
_NOTHING = Advance([])


class WatchDriver:
    """Drives one watch, which begins with a list and never ends by itself."""

    def __init__(self, api: Api[Any], config: WatcherConfig, stop: StopToken, clock: Clock,
                 rng: random.Random, verifier: Verifier | None = None) -> None:
        """Knowledge about the server is shared through the client of `api`."""
        self._api = api
        self._config = config
        self._stop = stop
        self._clock = clock
        self._rng = rng
        self._verifier = verifier
        self._target = WatchTarget.of(api, config)
        self._gate = ServerGate(api.client.reachability, rng)
        self._refusals = api.client.refusals
        self.state: State = BEGIN
        """The state of the watch machine. Only the driver changes it."""
        self.unasked = False
        """Whether objects outside the requested hash ranges arrived, which means that the server ignores ranges."""
        self._stream: WatchStream | None = None
        self._patience = self._heard = 0.0
        self._witnesses: dict[Key, str] = {}
        """The uids of the objects that were seen last, by key."""

    @property
    def server_trouble(self) -> Exception | None:
        """The error that makes the watch wait for the server; None when it does not wait."""
        return self._gate.trouble

    @property
    def outage(self) -> Outage | None:
        """The present outage of the client's server, shared by all watches of the client; None while it answers."""
        return self._gate.outage

    def advance(self) -> Advance:
        """Perform one effect. Blocks for its requests, or for the next batch of the open watch."""
        state, now = self.state, self._clock.monotonic()
        if isinstance(state, Streaming) or (isinstance(state, Watching) and not state.doubt):
            return self._read()
        if isinstance(state, Listed) and now < state.not_before:
            return Advance([], state.not_before - now)
        if (pause := self._gate.pause(now)) > 0:
            return Advance([], pause)
        if isinstance(state, Watching):
            return self._ask_version()
        if isinstance(state, Listed):
            return self._open(state)
        return self._stream_list(state) if self._streams(state, now) else self._list(state)

    def restart(self) -> None:
        """Forget everything known and begin with a list."""
        self.close()
        self.state = Listing(suspect=True)

    def close(self) -> None:
        """Close the open stream, if there is one."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def _list(self, state: Listing) -> Advance:
        try:
            # The client retries later pages, so that earlier pages are not lost. A failed first page is reported.
            retry = Retry.SAFE if state.token else Retry.NEVER
            meta, records = self._page(self._list_params(state), retry)
        except BaseException as error:  # noqa: BLE001 - the watch must go on and report the failure
            return self._broke(error)
        self._gate.passed(self._clock.monotonic())
        if state.token is None:
            self._witnesses.clear()
        self._note(records[-WITNESSES:])
        return self._give(PageRead(meta.resource_version, meta.continue_token, records))

    def _stream_list(self, state: Listing) -> Advance:
        # The request's timeout limits the time for the list: if the list is not complete by then, the watch ends.
        params = self._watch_params(INITIAL_EVENTS_SECONDS, initial=True)
        version = "0" if state.first and self._config.list_semantic is ListSemantic.ANY else ""
        return self._opened(params, version, streaming=True)

    def _open(self, state: Listed) -> Advance:
        timeout = float(self._config.draw_timeout(self._rng))
        if self._verifier is not None:
            finding = self._verifier.check(self._clock.monotonic())
            if finding:
                log.warning("%s: %s; listing everything again", self._target, finding)
                self.state = Listing(suspect=True)
                return _NOTHING
            timeout = max(1.0, min(timeout, self._verifier.due - self._clock.monotonic()))
        return self._opened(self._watch_params(timeout), state.version)

    def _watch_params(self, timeout: float, *, initial: bool = False) -> WatchParams:
        config = self._config
        return WatchParams(label_selector=config.label_text, field_selector=config.field_text, timeout=timeout,
                           bookmarks=config.bookmarks or initial, send_initial_events=initial, shard=config.shard)

    def _opened(self, params: WatchParams, version: str, *, streaming: bool = False) -> Advance:
        try:
            self._stream = self._api.open_watch(params, version, self._stop)
        except BaseException as error:  # noqa: BLE001 - as above
            return self._broke(error, streaming=streaming)
        timeout = params.timeout
        assert isinstance(timeout, float)
        self._heard = self._clock.monotonic()
        self._patience = timeout + IDLE_MARGIN
        self._gate.passed(self._heard)
        return self._give(Opened(self._stream.flow_schema, timeout))

    def _ask_version(self) -> Advance:
        before = self.state
        try:
            meta, found = self._one_object()
            known = (not isinstance(before, Watching) or not before.other_server
                     or self._recognizes(before.version, found))
        except BaseException as error:  # noqa: BLE001 - as above
            return self._broke(error)
        answer = self._give(VersionRead(meta.resource_version, known))
        if isinstance(before, Watching) and isinstance(self.state, Listing) and self.state.suspect:
            log.warning("%s: the server went back in time, from version %s to %s (was its database restored?); "
                        "listing everything again, and every object counts as changed", self._target, before.version,
                        meta.resource_version)
        return answer

    def _one_object(self, *further: str) -> tuple[ListMeta, Sequence[Record]]:
        """A list of at most one object that also matches the `further` field selectors."""
        config = self._config
        selector = ",".join(text for text in (config.field_text, *further) if text) or None
        params = ListParams(label_selector=config.label_text, field_selector=selector, limit=1, shard=config.shard)
        return self._page(params, Retry.NEVER)

    def _page(self, params: ListParams, retry: Retry) -> tuple[ListMeta, list[Record]]:
        """A page, without the objects outside the requested hash ranges."""
        meta, records = self._api.list_page(params, stop=self._stop, retry=retry)
        if params.shard is not None:
            asked = [record for record in records if is_in_shard(params.shard, record)]
            self.unasked = self.unasked or len(asked) < len(records)
            records = asked
        return meta, records

    def _asked(self, batch: WatchBatch) -> WatchBatch:
        """The events, with a bookmark in place of each event for an object outside the requested hash ranges."""
        asked = [event if event.record is None or is_in_shard(self._config.shard, event.record)
                 else RecordEvent("BOOKMARK", None, event.resource_version or "") for event in batch]
        self.unasked = self.unasked or any(one is not other for one, other in zip(asked, batch, strict=True))
        return asked

    def _recognizes(self, version: str, found: Sequence[Record]) -> bool:
        """Whether the server still has one of the last seen objects. If no seen object is known: whether `found` is
        empty, or has an object newer than `version`, which the watch itself will deliver."""
        if not self._witnesses:
            return not found or is_lower(version, found[0].resource_version)
        for (namespace, name), uid in self._witnesses.items():
            place = [f"metadata.namespace={namespace}"] if namespace and self._api.namespace is None else []
            _, found = self._one_object(f"metadata.name={name}", *place)
            if any(record.uid == uid for record in found):
                return True
        return False

    def _note(self, records: Iterable[Record]) -> None:
        for record in records:
            if record.uid:
                self._witnesses.pop(record.key, None)
                self._witnesses[record.key] = record.uid
        while len(self._witnesses) > WITNESSES:
            del self._witnesses[next(iter(self._witnesses))]

    def _note_batch(self, batch: WatchBatch) -> None:
        for event in batch:
            if event.type == "DELETED" and event.record is not None:
                self._witnesses.pop(event.record.key, None)
        last = batch[-1]
        if last.record is not None and last.type in ("ADDED", "MODIFIED"):
            self._note([last.record])

    def _read(self) -> Advance:
        stream = self._stream
        batch: WatchBatch | None = None
        try:
            if stream is not None:
                batch = next(stream, None)
        except RequestTimeout:
            return self._give(Ended(broke=True))
        except BaseException as error:  # noqa: BLE001 - as above
            return self._give(Broke(as_exception(error)))
        if batch is None:
            return self._give(Ended(broke=stream is not None and stream.broke is not None))
        if batch:
            self._heard = self._clock.monotonic()
            if self._config.shard is not None:
                batch = self._asked(batch)
            self._note_batch(batch)
            return self._give(BatchRead(batch), len(batch))
        # Sockets have a read timeout; this is the idle guard for transports that do not block.
        silent = self._clock.monotonic() - self._heard >= self._patience
        return self._give(Ended(broke=True)) if silent else _IDLE

    def _broke(self, raised: BaseException, *, streaming: bool = False) -> Advance:
        """Process the error of a failed request."""
        error = as_exception(raised)
        if self._stop.is_set():
            return _NOTHING
        away = self._gate.failed(error, self._clock.monotonic())
        return self._give(Broke(error, streaming), away=away)

    def _give(self, given: Input, frame: int = 0, *, away: bool = False) -> Advance:
        if self._stop.is_set() and isinstance(given, Broke | Ended):
            return _NOTHING
        now = self._clock.monotonic()
        self.state, out = step(self.state, given, now)
        state = self.state
        if not isinstance(state, Watching | Streaming):
            self.close()
            if isinstance(state, Listing) and state.in_pages:
                self._refusals.note(self._api.resource, now)
        if out and isinstance(out[-1], Failed):
            over = not away and self._gate.outage_is_over(now)
            out[-1] = msgspec.structs.replace(out[-1], away=away, outage_over=over)
        return Advance(out, 0.0, frame)

    def _streams(self, state: Listing, now: float) -> bool:
        """Whether this list is requested as a stream."""
        return (self._config.initial_list_strategy is InitialListStrategy.STREAMING_LIST and not state.in_pages
                and state.token is None and not self._refusals.holds(self._api.resource, now))

    def _list_params(self, state: Listing) -> ListParams:
        config = self._config
        cached = state.first and config.list_semantic is ListSemantic.ANY
        return ListParams(label_selector=config.label_text, field_selector=config.field_text,
                          limit=config.page_size if state.paged and not cached else None,
                          continue_token=state.token, resource_version="0" if cached else None, shard=config.shard)


K = TypeVar("K")


def reader_of(kind: type[K]) -> Callable[[Record], K]:
    """A function that makes an object of `kind` from a record; an `InvalidObject` if the metadata does not decode."""
    from_record: Callable[[Record], K] = cast(Any, kind).from_record  # kinds are resource classes

    def read(record: Record) -> K:
        if record.problem is not None:
            return cast(K, InvalidObject(record))  # an InvalidObject instead of a K: reading its content raises
        return from_record(record)

    return read


def record_of(obj: Any) -> Record:
    """The record of an object, or the record itself. Raises RequestError for a view, which has no record."""
    if isinstance(obj, PartialView):
        raise RequestError(f"{obj!r} is a read-only view, which lacks the rest of its object, so it can be neither "
                           "modified nor stored by a reflector; watch_store(api, WatcherConfig(fields=View)) stores "
                           "views")
    record: Record = obj if isinstance(obj, Record) else obj.record
    return record


class Modifier:
    """Applies the `modify` function of a watch to its objects. Safe to use from any thread."""

    def __init__(self, modify: Modify, read: Callable[[Record], Any], clock: Clock) -> None:
        self._modify = modify
        self._read = read
        self._guard = Guard(name_of(modify), clock=clock)

    def __call__(self, event: Event[Record]) -> Event[Record]:
        """The event with its record pruned; unchanged if `modify` raises (which is logged) or the object is invalid."""
        return with_obj(event, self._pruned)

    def _pruned(self, record: Record) -> Record:
        return self._guard.call(record, lambda: str(record.ref), lambda: pruned(self._read(record), self._modify))


def modifier_of(modify: Modify | None, kind: type[Any], clock: Clock) -> Modifier | None:
    """The Modifier of a watch of `kind`, if there is a `modify`. Raises RequestError for views, which are read-only."""
    if modify is None:
        return None
    if issubclass(kind, PartialView):
        raise RequestError(f"modify={name_of(modify)} cannot be used with views, which are read-only: let the view "
                           f"{kind.__name__} declare only the fields to keep, or watch whole objects")
    return Modifier(modify, reader_of(kind), clock)


def validated(event: Event[Record], read: Callable[[Record], Any]) -> Event[Record]:
    """The event, with a `problem` in its record if the declared content does not decode. Logs the error."""

    def check(record: Record) -> Record:
        validate = getattr(read(record), "validate", None) if record.problem is None else None
        if validate is None:  # the record has a problem already, or all its content was decoded when it arrived
            return record
        try:
            validate()
        except DecodeError as error:
            log.warning("%s at version %s: %s", record.resource.full_name, record.resource_version, error)
            return msgspec.structs.replace(record, problem=Problem(error.path, error.problem))
        return record

    return with_obj(event, check)
