"""A whole `Watch` against a server that may do anything: what must hold whatever it does.

    never stuck          once the server behaves, the store is equal to it, soon
    never a tight loop   the number of requests in a minute is bounded, whatever the server does
    never half a list    each state of the store is one that the server had
    every difference     who only hears the changes knows exactly what is stored, each step of the way
"""
from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from kubectl_runtime.core.base.errors import RequestTimeout, TransportError
from kubectl_runtime.core.codec.views import Record, plain_object
from kubectl_runtime.core.scope import StopToken
from kubectl_runtime.runtime.triggers.shared_watches import Watch
from kubectl_runtime.runtime.triggers.triggers import ReconcileRequest
from kubectl_runtime.runtime.watch.config import InitialListStrategy, ListSemantic, WatcherConfig
from kubectl_runtime.runtime.watch.event import Apply, Delete, Event, InitDone
from kubectl_runtime.testing.clock import SimClock
from tests.runtime.watch.scripted_watch import (
    EXPIRED,
    TOO_LARGE,
    AnsweringServer,
    Asked,
    Page,
    RecordEvent,
    Thing,
    added,
    api_error,
    bookmark,
    deleted,
    error_event,
    list_end,
    modified,
    page,
    thing,
)
from tests.thoroughness import examples

NAMES = "abcde"
PAGE = 2

CHANGES = st.tuples(st.sampled_from(["put", "delete", "recreate", "swap", "compact"]), st.sampled_from(NAMES))
LIST_FAULTS = ("500", "403", "404", "410", "429", "too large", "refused", "no version", "same token")
WATCH_FAULTS = ("410", "404", "405", "500", "too large", "refused")
EVENTS = ("events", "one event", "event and error", "again", "bookmark", "empty bookmark", "unknown")
ENDS = ("error 410", "error 500", "error 429", "error", "garbage", "silence", "reset", "end")
PAUSES = ("minute", "idle")


def mostly_ok(faults: Sequence[str]) -> st.SearchStrategy[str]:
    return st.one_of(st.just("ok"), st.just("ok"), st.sampled_from(faults))


LISTS = st.lists(st.tuples(st.lists(CHANGES, max_size=2), mostly_ok(LIST_FAULTS)), max_size=8)
STREAM = st.lists(st.one_of(CHANGES, CHANGES, st.sampled_from(EVENTS), st.sampled_from((*PAUSES, *ENDS))), max_size=12)
WATCHES = st.lists(st.tuples(st.lists(CHANGES, max_size=2), mostly_ok(WATCH_FAULTS), STREAM), max_size=8)


def as_error(fault: str) -> Exception:
    if fault == "refused":
        return TransportError("connection refused")
    if fault == "too large":
        return api_error(**TOO_LARGE, retry_after=2)
    return api_error(int(fault), "Expired" if fault == "410" else "", retry_after=3 if fault == "429" else None)


class UnreliableServer(AnsweringServer):
    """Objects with one global version, history, compaction; each request takes the next of its script, if any."""

    def __init__(self, lists: Sequence[Any], watches: Sequence[Any], clock: SimClock) -> None:
        super().__init__(namespace=None, clock=clock)
        self.lists, self.watches = deque(lists), deque(watches)
        self.clock = clock
        self.version = 1
        self.objects: dict[str, Record] = {}
        self.history: list[tuple[int, RecordEvent]] = []
        self.compacted = 0
        self.states: set[frozenset[tuple[str, str]]] = set()
        self.request_times: list[float] = []
        self.problems: list[str] = []
        self.acting = False
        """Whether the open watch still has something of its script before it."""
        self._remember()

    def change(self, what: str, name: str) -> None:
        old = self.objects.get(name)
        if what == "compact":
            self.compacted = self.version
            return
        if what in ("delete", "recreate") and old is not None:
            self.version += 1
            del self.objects[name]
            self.history.append((self.version, deleted(thing(name, self.version, uid=old.uid))))
            self._remember()
        if what == "swap":  # recreated, and the deletion is shown to nobody
            self.objects.pop(name, None)
        if what in ("put", "recreate", "swap"):
            self.version += 1
            old = self.objects.get(name)
            self.objects[name] = thing(name, self.version, uid=old.uid if old else f"{name}-{self.version}")
            self.history.append((self.version, (modified if old else added)(self.objects[name])))
            self._remember()

    def _remember(self) -> None:
        self.states.add(frozenset((name, record.resource_version) for name, record in self.objects.items()))

    def on_list(self, params: Asked) -> Page:
        changes, fault = self._next(self.lists) or ((), "ok")
        self._make(changes)
        if fault not in ("ok", "no version", "same token"):
            raise as_error(fault)
        begin, snapshot = 0, sorted(self.objects)
        version = self.version
        if params.continue_token:
            position, at, names = params.continue_token.split("|")
            begin, version, snapshot = int(position), int(at), names.split(",")
            if version < self.compacted or version != self.version:
                raise api_error(**EXPIRED)  # (a real server would still have the old versions of what changed)
        end = begin + PAGE if params.limit else len(snapshot)
        records = [self.objects[name] for name in snapshot[begin:end]]
        token = f"{end}|{version}|{','.join(snapshot)}" if end < len(snapshot) else None
        if fault == "same token":
            token = params.continue_token or token
        return page(None if fault == "no version" else version, *records, token=token)

    def on_watch(self, params: Asked) -> Iterator[Any]:
        resource_version = params.resource_version or ""
        changes, fault, acts = self._next(self.watches) or ((), "ok", None)
        self._make(changes)
        if not (resource_version.isdecimal() or (params.initial_events and not resource_version)):
            self.problems.append(f"a watch from version {resource_version!r}")
        if fault != "ok":
            raise as_error(fault)
        if params.initial_events:
            initial = [*map(added, self.objects.values()), list_end(self.version)]
            return self._stream(self.version, acts, initial)
        if int(resource_version) < self.compacted:
            raise api_error(**EXPIRED)
        return self._stream(int(resource_version), acts)

    def _next(self, script: deque[Any]) -> Any:
        self.request_times.append(self.clock.monotonic())
        return script.popleft() if script else None

    def _make(self, changes: Sequence[Any]) -> None:
        for what, name in changes:
            self.change(what, name)

    def _stream(self, seen: int, acts: Sequence[Any] | None, initial: Sequence[RecordEvent] = ()) -> Iterator[Any]:
        self.acting = acts is not None
        try:
            if initial and acts is not None and "end" in acts[:1]:
                yield initial[:-1]  # it breaks off before the list is complete
            elif initial:
                yield initial
            yield from self._acted(seen, acts)
        finally:
            self.acting = False

    def _acted(self, seen: int, acts: Sequence[Any] | None) -> Iterator[Any]:
        for act in acts if acts is not None else ():
            news = [(version, item) for version, item in self.history if version > seen]
            if isinstance(act, tuple):
                self.change(*act)
            elif act in ("events", "one event", "event and error", "event and error"):
                news = news if act == "events" else news[:1]
                if news:
                    seen = news[-1][0]
                    yield [item for _, item in news] + [error_event(500)] * (act == "event and error")
            elif act == "again":
                yield [item for version, item in self.history if version == seen]
            elif act in ("bookmark", "empty bookmark"):
                yield [bookmark(seen if act == "bookmark" else "")]
            elif act.startswith("error"):
                code = int(act[6:] or 0)
                yield [error_event(code, "Expired" if code == 410 else "", retry_after=4)]
            elif act == "garbage":
                yield b"no event\n"
            elif act in ("silence", "reset"):
                raise RequestTimeout("silent") if act == "silence" else TransportError("reset")
            elif act == "end":
                return
            elif act == "minute":
                self.clock.advance(60)
            else:
                yield [RecordEvent("PROGRESS")] if act == "unknown" else []
        while acts is None:
            news = [(version, item) for version, item in self.history if version > seen]
            seen = news[-1][0] if news else seen
            yield [item for _, item in news]


class Follower:
    """Knows only the changes."""

    def __init__(self) -> None:
        self.known: dict[str, Record] = {}
        self.complete = 0
        self.problems: list[str] = []  # what a subscription raises would only be logged

    def __call__(self, event: Event[Thing]) -> list[ReconcileRequest]:
        if isinstance(event, InitDone):
            self.complete += 1
        elif isinstance(event, Delete):
            self.known.pop(event.obj.name, None)
        elif isinstance(event, Apply):
            record = event.obj.record
            assert record is not None
            before = self.known.get(record.name)
            if before is not None and before.uid != record.uid:
                self.problems.append(f"{record}: another object without a deletion before it")
            if before is not None and before.resource_version == record.resource_version:
                self.problems.append(f"{record}: nothing changed")
            self.known[record.name] = record
        return []


@settings(max_examples=examples(400), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(LISTS, WATCHES, st.integers(0, 2**32), st.sampled_from(ListSemantic), st.sampled_from(InitialListStrategy))
def test_whatever_a_server_does(lists: list[Any], watches: list[Any], seed: int, semantic: ListSemantic,
                                strategy: InitialListStrategy) -> None:
    clock = SimClock(self_advancing=True)
    server, stop = UnreliableServer(lists, watches, clock), StopToken(clock=clock)
    config = WatcherConfig(page_size=PAGE, list_semantic=semantic, initial_list_strategy=strategy)
    watch: Watch[Thing] = Watch(server.api, config, stop=stop, clock=clock, rng=random.Random(seed))
    follower = Follower()
    watch.subscribe(follower, lambda _: None)
    quiet = 0
    for _ in range(3000):
        wait = watch.step()
        records = {record.name: record for record in watch.store.records()}
        assert follower.known == records, "the changes do not add up to what is stored"
        assert follower.problems + server.problems == []
        shown = frozenset((name, record.resource_version) for name, record in records.items())
        assert not watch.store.is_ready or shown in server.states
        quiet = quiet + 1 if wait is None and not (server.watches or server.acting) else 0
        if quiet > 1:
            break
        if wait is None or wait > 0:
            clock.advance(wait or 0.05)
    else:
        raise AssertionError(f"stuck: {watch.state}")
    note(f"{len(server.request_times)} requests in {clock.monotonic():.0f} s")
    assert {record.name: content(record) for record in watch.store.records()} == {
        name: content(record) for name, record in server.objects.items()}
    assert watch.store.is_ready
    assert follower.complete == watch.state.relists + 1
    assert clock.monotonic() < 60 * 30
    assert busiest_minute(server.request_times) <= 200


def content(record: Record) -> dict[str, Any]:
    return plain_object(record.raw, record.enveloped, record.ref)


def busiest_minute(times: list[float]) -> int:
    return max((sum(1 for t in times[i:] if t < times[i] + 60) for i in range(len(times))), default=0)


HOSTILE_LISTS = st.lists(st.tuples(st.just(()), st.sampled_from(("ok", *LIST_FAULTS))), min_size=1, max_size=2)
HOSTILE_WATCHES = st.lists(st.one_of(
    st.tuples(st.just(()), st.sampled_from(WATCH_FAULTS), st.just(())),
    st.tuples(st.just((("put", "a"),)), st.just("ok"), st.lists(st.sampled_from((*EVENTS, *ENDS)), max_size=3))),
    min_size=1, max_size=3)


@settings(max_examples=examples(100), deadline=None)
@given(HOSTILE_LISTS, HOSTILE_WATCHES, st.integers(0, 2**32))
def test_a_server_that_does_the_same_for_ever_is_not_hammered(lists: list[Any], watches: list[Any], seed: int) -> None:
    clock = SimClock(self_advancing=True)
    server, stop = UnreliableServer(lists * 500, watches * 500, clock), StopToken(clock=clock)
    for name in NAMES:
        server.change("put", name)
    watch: Watch[Thing] = Watch(server.api, WatcherConfig(page_size=PAGE), stop=stop, clock=clock,
                                rng=random.Random(seed))
    while clock.monotonic() < 300 and server.lists and server.watches:
        wait = watch.step()
        clock.advance(0.05 if wait is None else wait)
    assert busiest_minute(server.request_times) <= 200
