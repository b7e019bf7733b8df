"""`Watch`: steps, what can be seen of it, and who hears of what is stored."""
from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from kubectl_runtime.core.codec.jsonbytes import decode_object
from kubectl_runtime.core.codec.views import strip_managed_fields
from kubectl_runtime.core.scope import StopToken
from kubectl_runtime.runtime.store.overlay import Own
from kubectl_runtime.runtime.store.store import StoreNotReady
from kubectl_runtime.runtime.triggers import predicates
from kubectl_runtime.runtime.triggers.shared_watches import Watch
from kubectl_runtime.runtime.triggers.streams import PredicateCache
from kubectl_runtime.runtime.triggers.triggers import (
    BACKLOG,
    ReconcileRequest,
    Subscriber,
    trigger_others,
    trigger_self,
)
from kubectl_runtime.runtime.watch.backoff import WatchBackoff
from kubectl_runtime.runtime.watch.config import ListSemantic, WatcherConfig
from kubectl_runtime.runtime.watch.event import Apply, Delete, Event, InitDone
from kubectl_runtime.runtime.watch.states import Phase
from kubectl_runtime.testing.clock import SimClock
from tests.runtime.watch.scripted_watch import (
    EXPIRED,
    Late,
    ScriptedServer,
    Thing,
    api_error,
    bookmark,
    deleted,
    error_event,
    modified,
    page,
    thing,
)

A, B = thing("a", 20), thing("b", 21)


class Ears:
    """A subscription that records what it hears, and asks for each object it hears of."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.requests: list[ReconcileRequest] = []
        self.batches = 0

    def __call__(self, event: Event[Any]) -> Iterable[ReconcileRequest]:
        obj = getattr(event, "obj", None)
        self.heard.append(f"{type(event).__name__} {obj.name}@{obj.resource_version}" if obj else type(event).__name__)
        return trigger_self(Thing)(event)

    def sink(self, requests: list[ReconcileRequest]) -> None:
        self.batches += 1
        self.requests += requests


class World:
    def __init__(self, lists: Sequence[Any] = (), watches: Sequence[Any] = (), **options: Any) -> None:
        self.clock = SimClock(self_advancing=True)
        self.stop = StopToken(clock=self.clock)
        self.server = ScriptedServer(self.stop, lists, watches, clock=self.clock, pass_time=self.clock.advance)
        self.api = self.server.api
        self.watch: Watch[Thing] = Watch(self.api, WatcherConfig(backoff=WatchBackoff(jitter=False)), stop=self.stop,
                                         clock=self.clock, rng=random.Random(1), **options)
        self.ears = Ears()

    def subscribed(self) -> World:
        self.watch.subscribe(self.ears, self.ears.sink)
        return self

    def run(self) -> World:
        self.watch.run()
        return self


def test_steps_list_then_watch_and_say_how_long_to_wait() -> None:
    world = World([page(1, A, token="t"), page(1, B)], [[[modified(thing("a", 30))], []]])
    watch = world.watch
    phases = []
    for expected in (0, 0, 0, 0, None):
        phases.append(watch.state.phase)
        assert watch.step() == expected
    assert phases == [Phase.LISTING, Phase.LISTING, Phase.WATCHING, Phase.WATCHING, Phase.WATCHING]
    assert not watch.stopped
    assert {obj.name: obj.resource_version for obj in watch.store} == {"a": "30", "b": "21"}


def test_a_failure_is_visible_and_waited_out_even_by_who_steps_too_early() -> None:
    world = World([api_error(403, "Forbidden"), page(1)], [[[]]])
    watch = world.watch
    assert watch.step() == 0.8
    world.clock.advance(0.5)
    assert watch.step() == pytest.approx(0.3)
    state = watch.state
    assert (state.phase, state.consecutive_failures) == (Phase.WAITING, 1)
    assert "cannot list things.test.example" in state.last_error
    world.clock.advance(0.3)
    assert watch.step() == 0
    state = watch.state
    assert (state.phase, state.consecutive_failures, state.last_error, state.last_event) == (Phase.WATCHING, 0, "", 0.8)


def test_since_is_when_the_phase_began_not_when_something_last_happened_in_it() -> None:
    world = World([page(1, A, token="t"), page(1, B), page(9)],
                  [[[bookmark(3)], [modified(thing("a", 30))], [error_event(**EXPIRED)]], [[]]])
    watch = world.watch
    seen = [(watch.state.phase, watch.state.since)]
    for _ in range(7):
        world.clock.advance(10)
        watch.step()
        seen.append((watch.state.phase, watch.state.since))
    world.clock.advance(10)
    world.stop.set("shutdown")
    watch.step()
    seen.append((watch.state.phase, watch.state.since))
    listing, watching, waiting, stopped = Phase.LISTING, Phase.WATCHING, Phase.WAITING, Phase.STOPPED
    assert seen == [
        (listing, 0), (listing, 0),  # a page, and more to come
        (watching, 20), (watching, 20), (watching, 20), (watching, 20),  # a list, its watch, a bookmark, a change
        (waiting, 60), (watching, 70), (stopped, 80),
    ]


def test_relists_are_counted_and_arrivals_dated() -> None:
    world = World(
        [page(1), page(5), page(9)], [[Late(60), [bookmark(3)], [error_event(**EXPIRED)]], api_error(**EXPIRED), [[]]]
    )
    while world.watch.step() is not None:
        if world.watch.state.phase is Phase.WAITING:
            world.clock.advance(100)
    state = world.watch.state
    assert state.relists == 2
    assert state.last_event is not None
    assert state.last_event > 60


def test_a_stopped_watch_closes_its_stream_and_tells_who_waits() -> None:
    world = World([api_error(500)])
    world.watch.step()
    world.stop.set("shutdown")
    assert world.watch.step() is None
    assert world.watch.stopped
    with pytest.raises(StoreNotReady, match="shutdown"):
        world.watch.store.wait_until_ready()
    assert world.watch.step() is None


def test_whoever_waits_for_a_complete_list_is_told_after_its_requests_and_at_once_when_late() -> None:
    world = World([page(1, A, token="t"), page(1, B), page(40, B)],
                  [[[modified(thing("a", 30))], [error_event(**EXPIRED)]], [[]]])
    told: list[str] = []
    world.watch.subscribe(world.ears, lambda requests: told.extend(request.ref.name for request in requests),
                          lambda: told.append(f"complete: {world.watch.store.is_ready}"))
    world.watch.step()
    assert told == []
    world.watch.step()
    assert told == ["a", "b", "complete: True"]
    late: list[str] = []
    forget = world.watch.subscribe(world.ears, lambda requests: late.append(f"{len(requests)} requests"),
                                   lambda: late.append("complete"))
    assert late == ["2 requests", "complete"]
    forget()
    world.run()
    assert told == ["a", "b", "complete: True", "a", "a", "complete: True"]
    assert late == ["2 requests", "complete"]


def test_a_watch_that_was_told_to_stop_completes_nothing() -> None:
    def stopped_meanwhile(event: Event[Any]) -> Event[Any]:
        world.stop.set("shutdown")
        return event

    world, told = World([page(1, A)], modify=stopped_meanwhile), []
    world.watch.subscribe(world.ears, world.ears.sink, lambda: told.append("complete"))
    world.watch.step()
    assert world.watch.store.is_ready
    assert told == []


def test_a_subscription_hears_the_difference_that_each_list_makes() -> None:
    world = World(
        [page(1, A, B), page(40, B, thing("c", 33))], [[[modified(thing("a", 30))], [error_event(**EXPIRED)]], [[]]]
    )
    heard = world.subscribed().run().ears.heard
    assert heard == ["Apply a@20", "Apply b@21", "InitDone", "Apply a@30", "Delete a@30", "Apply c@33", "InitDone"]


def test_the_store_is_written_before_anybody_hears_of_it() -> None:
    world = World([page(1, A)], [[[modified(thing("a", 30)), deleted(thing("a", 31))]]])
    seen: list[tuple[str, bool, bool]] = []

    def subscription(event: Event[Thing]) -> list[ReconcileRequest]:
        seen.append(
            (type(event).__name__, world.watch.store.get("a", "default") is not None, world.watch.store.is_ready)
        )
        return []

    world.watch.subscribe(subscription, world.ears.sink)
    world.run()
    assert seen == [("Apply", True, True), ("InitDone", True, True), ("Apply", False, True), ("Delete", False, True)]


def test_a_late_subscription_first_hears_everything_that_is_stored() -> None:
    world = World([page(1, A, B)], [[[modified(thing("a", 30))], [modified(thing("b", 31))]]])
    for _ in range(3):
        world.watch.step()
    world.subscribed()
    assert world.ears.heard == ["Apply a@30", "Apply b@21", "InitDone"]
    world.run()
    assert world.ears.heard[3:] == ["Apply b@31"]


def test_a_subscription_before_the_first_list_hears_it_once() -> None:
    assert World([page(1, A)], [[[]]]).subscribed().run().ears.heard == ["Apply a@20", "InitDone"]


def test_after_unsubscribing_nothing_is_heard() -> None:
    world = World([page(1, A)], [[[modified(thing("a", 30))]]])
    unsubscribe = world.watch.subscribe(world.ears, world.ears.sink)
    world.watch.step()
    unsubscribe()
    world.run()
    assert world.ears.heard == ["Apply a@20", "InitDone"]


def test_changes_that_come_while_a_late_subscription_is_told_what_is_stored_follow_in_order() -> None:
    world = World([page(1, A)], [[[modified(thing("a", 30))], [deleted(thing("a", 31))]]])
    world.watch.step()
    ears = world.ears

    def subscription(event: Event[Any]) -> Iterable[ReconcileRequest]:
        if not ears.heard:
            for _ in range(3):  # the watch goes on during the first call
                world.watch.step()
        return ears(event)

    world.watch.subscribe(subscription, ears.sink)
    assert ears.heard == ["Apply a@20", "InitDone", "Apply a@30", "Delete a@31"]


# A subscription that is slower than the changes

class Flood:
    """A watch whose thread brings changes, one as soon as the other was delivered, until it is told to end."""

    def __init__(self, stored: int = 3, most: int = 10**9) -> None:
        self.world = World([page(1, *(thing(f"s{number}", 5) for number in range(stored)))])
        self.world.watch.step()
        self.end, self.brought, self.most = threading.Event(), 0, most
        self.thread = threading.Thread(target=self.bring, daemon=True)

    def bring(self) -> None:
        watch = self.world.watch
        while not self.end.is_set() and self.brought < self.most:
            self.brought += 1
            watch._deliver(watch._reflector.commits([Apply(thing("a", 100 + self.brought))], ""))


@pytest.mark.parametrize("stored", [0, 3, 60, pytest.param(600, marks=pytest.mark.long)])
def test_subscribing_comes_to_an_end_while_changes_come_faster_than_they_are_worked_through(stored: int) -> None:
    flood, heard = Flood(stored), []

    def slow(event: Event[Any]) -> Iterable[ReconcileRequest]:
        if heard or not stored:
            flood.brought_before = flood.brought
            if flood.thread.ident is None:
                flood.thread.start()
            elif threading.current_thread() is not flood.thread:
                until = time.monotonic() + 0.002  # the flood goes on meanwhile
                while time.monotonic() < until:
                    pass
        heard.append(getattr(getattr(event, "obj", None), "resource_version", "done"))
        return ()

    unsubscribe = flood.world.watch.subscribe(slow, lambda _: None)
    assert flood.thread.is_alive()
    flood.end.set()
    flood.thread.join(20)
    assert not flood.thread.is_alive()
    assert heard == ["5"] * stored + ["done"] + [str(101 + number) for number in range(flood.brought)]
    unsubscribe()


def test_what_waits_until_a_subscription_has_got_what_is_stored_is_logged_once(
        caplog: pytest.LogCaptureFixture) -> None:
    flood, heard = Flood(most=BACKLOG + 10), []

    def slow(event: Event[Any]) -> Iterable[ReconcileRequest]:
        if not heard:
            flood.thread.start()
            flood.thread.join(20)  # all of them come during the first call
        heard.append(event)
        return ()

    flood.world.watch.subscribe(slow, lambda _: None)
    assert len(heard) == 3 + 1 + BACKLOG + 10
    slow_lines = [record.getMessage() for record in caplog.records if "slower than the changes" in record.getMessage()]
    assert len(slow_lines) == 1
    assert "slow" in slow_lines[0]
    assert str(BACKLOG + 1) in slow_lines[0]


@pytest.mark.parametrize("end", ["unsubscribed", "stopped"])
def test_a_watch_that_waits_for_a_subscription_goes_on_when_that_has_ended(end: str) -> None:
    flood, entered, leave, ends = Flood(stored=1), threading.Event(), threading.Event(), []

    def stuck(event: Event[Any]) -> Iterable[ReconcileRequest]:
        if isinstance(event, Apply) and event.obj.name == "a" and not entered.is_set():
            entered.set()
            leave.wait(20)
        elif not flood.brought:  # one waits in the queue when what is stored was worked through
            watch = flood.world.watch
            flood.brought += 1
            thread = threading.Thread(target=watch._deliver, args=(
                watch._reflector.commits([Apply(thing("a", 101))], ""),))
            thread.start()
            thread.join(20)
        return ()

    subscribing = threading.Thread(
        target=lambda: ends.append(flood.world.watch.subscribe(stuck, lambda _: None)), daemon=True)
    subscribing.start()
    assert entered.wait(20)
    flood.thread.start()
    (observer,) = flood.world.watch._writer._observers
    if end == "stopped":
        flood.world.stop.set("the test says so")
    else:
        observer.cancel()
    flood.end.set()
    flood.thread.join(20)
    assert not flood.thread.is_alive()
    leave.set()
    subscribing.join(20)
    assert not subscribing.is_alive()


def test_each_subscription_has_readers_of_its_own() -> None:
    world = World([page(1, thing("a", spec={"size": 1}))], [[[]]])
    specs: list[Any] = []

    def subscription(event: Event[Thing]) -> list[ReconcileRequest]:
        if isinstance(event, Apply):
            specs.append(dict(event.obj.spec))
            event.obj.spec["size"] = 99
        return []

    for _ in range(2):
        world.watch.subscribe(subscription, world.ears.sink)
    world.run()
    assert specs == [{"size": 1}, {"size": 1}]
    stored = world.watch.store.get("a", "default")
    assert stored is not None
    assert stored.spec == {"size": 1}


@pytest.mark.parametrize("failure", [ValueError, SystemExit, GeneratorExit])
def test_user_code_that_raises_is_reported_and_ends_nothing(
    failure: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    def mapper(obj: Thing) -> Iterable[Any]:
        yield obj.ref
        if obj.name == "a":
            raise failure("no")

    world = World([page(1, A, B)], [[[]]])
    world.watch.subscribe(trigger_others(mapper), world.ears.sink)
    world.run()
    assert [request.ref.name for request in world.ears.requests] == ["a", "b"]
    assert f"mapper, given Apply of Thing.v1.test.example/a.default, raised {failure.__name__}" in caplog.text


def test_a_sink_that_raises_is_reported_and_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    world = World([page(1, A)], [[[modified(thing("a", 30))]]])

    def sink(requests: list[ReconcileRequest]) -> None:
        raise RuntimeError("full")

    world.watch.subscribe(world.ears, sink)
    world.run()
    assert world.ears.heard[-1] == "Apply a@30"
    assert caplog.text.count("the sink of") == 2


def test_a_slow_mapper_is_named(caplog: pytest.LogCaptureFixture) -> None:
    world = World([page(1, A)], [[[]]])

    def slow_mapper(obj: Thing) -> None:
        world.clock.advance(0.25)

    world.watch.subscribe(trigger_others(slow_mapper), world.ears.sink)
    world.run()
    assert "slow_mapper took 250 ms for Apply of" in caplog.text


def test_a_predicate_before_a_trigger() -> None:
    world = World(
        [page(1, thing("a", 1, generation=1))],
        [
            [
                [
                    modified(thing("a", 2, generation=1)),
                    modified(thing("a", 3, generation=2)),
                    deleted(thing("a", 4, generation=2)),
                ]
            ]
        ],
    )
    cache, itself = PredicateCache(predicates.generation, clock=world.clock), trigger_self(Thing)
    world.watch.subscribe(lambda event: itself(event) if cache.passes(event) else (), world.ears.sink)
    world.run()
    assert [request.cause for request in world.ears.requests] == [("uid-a", "1"), ("uid-a", "3"), ("uid-a", "4")]


def test_requests_of_a_batch_go_to_the_sink_together_and_large_lists_in_parts() -> None:
    world = World(
        [page(1, *[thing(f"n{n}") for n in range(1200)])], [[[modified(thing("n0", 30)), modified(thing("n1", 31))]]]
    )
    world.subscribed().run()
    assert len(world.ears.requests) == 1202
    assert world.ears.batches == 4


def test_modify_prunes_before_anything_is_stored_or_heard() -> None:
    world = World([page(1, thing("a", spec={"large": "x"}))], [[[]]], modify=lambda obj: obj.spec.clear())
    world.subscribed().run()
    (record,) = world.watch.store.records()
    assert b"large" not in record.raw
    assert record.partial


def test_managed_fields_can_be_stripped_before_anything_is_stored_and_nothing_is_partial_then() -> None:
    raw = decode_object(thing("a", managedFields=[{"manager": "m"}]).raw.replace(b": ", b":"), A.resource)
    world = World([page(1, raw)], [[[]]], modify=strip_managed_fields)
    world.subscribed().run()
    (record,) = world.watch.store.records()
    assert b"managedFields" in raw.raw
    assert b"managedFields" not in record.raw
    assert not record.partial


def test_relist_triggers_makes_everything_heard_again() -> None:
    world = World([page(1, A), page(5, A)], [api_error(**EXPIRED), [[]]], relist_triggers=True)
    assert world.subscribed().run().ears.heard == ["Apply a@20", "InitDone", "Apply a@20", "InitDone"]


def test_a_defect_inside_leads_to_a_new_list_and_is_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World([page(1, A), page(5, A, B)], [[[modified(thing("a", 30))]], [[]]])
    world.watch.step()
    world.watch.step()

    def defect(self: Subscriber, changes: object, **_: object) -> None:
        monkeypatch.undo()
        raise ZeroDivisionError("defect")

    world.subscribed()
    monkeypatch.setattr(Subscriber, "deliver", defect)
    world.run()
    assert "internal error" in caplog.text
    assert {obj.name for obj in world.watch.store} == {"a", "b"}


def test_after_a_defect_that_came_between_store_and_subscribers_they_hear_what_became_of_each_state_before(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """No list shows that an object was deleted, or once named another owner, when the store knows it already."""
    world = World([page(1, A, B, thing("c", 22)), page(50, thing("a", 31), thing("c", 32))],
                  [[[modified(thing("a", 30)), deleted(thing("b", 31)), modified(thing("a", 31))],
                    [modified(thing("c", 32))]], [[]]])
    states: list[str] = []

    def look(event: Event[Any]) -> Iterable[ReconcileRequest]:
        if isinstance(event, Apply) and event.previous is not None:
            states.append(f"{event.obj.name}: {event.previous.resource_version} -> {event.obj.resource_version}")
        elif isinstance(event, Delete):
            states.append(f"{event.obj.name}: gone")
        return ()

    def defect(self: Subscriber, changes: object, **_: object) -> None:
        monkeypatch.undo()
        raise ZeroDivisionError("defect")

    world.watch.step()
    world.watch.step()
    world.watch.subscribe(look, lambda requests: None)
    monkeypatch.setattr(Subscriber, "deliver", defect)
    world.run()
    assert {"a: 20 -> 31", "b: gone"} <= set(states)
    assert {obj.name: obj.resource_version for obj in world.watch.store} == {"a": "31", "c": "32"}


def test_run_steps_in_its_thread_until_the_token_is_set() -> None:
    clock = SimClock()
    stop = StopToken(clock=clock)
    api = ScriptedServer(stop, [page(1, A), api_error(500)], [api_error(**EXPIRED)], clock=clock).api
    watch: Watch[Thing] = Watch(api, stop=stop, clock=clock)
    thread = threading.Thread(target=watch.run)
    thread.start()
    watch.store.wait_until_ready(60)
    clock.settle()  # it waits in its backoff
    assert thread.is_alive()
    stop.set()
    thread.join(10)
    assert not thread.is_alive()
    assert watch.stopped


def test_late_subscriptions_in_many_threads_miss_nothing_and_hear_nothing_twice() -> None:
    """Real threads: a watch that changes a few objects again and again, subscribers that keep copies of their own."""
    changes = 2000
    objects = [thing(f"n{n % 7}", 100 + n) for n in range(changes)]
    batches = [[modified(record) if n % 5 else deleted(record)] for n, record in enumerate(objects)]
    started = threading.Barrier(5)
    stop = StopToken()
    pages = [page(1, *[thing(f"n{n}") for n in range(7)])]
    api = ScriptedServer(stop, pages, [[started.wait, *batches]]).api
    watch: Watch[Thing] = Watch(api, stop=StopToken())
    copies: list[dict[str, str]] = []
    order: list[str] = []

    def follow() -> None:
        mine: dict[str, str] = {}
        complete = []

        def subscription(event: Event[Thing]) -> list[ReconcileRequest]:
            if isinstance(event, Apply):
                if mine.get(event.obj.name) == event.obj.resource_version:
                    order.append(f"{event.obj!r} twice")
                mine[event.obj.name] = event.obj.resource_version
            elif isinstance(event, Delete):
                mine.pop(event.obj.name, None)
            elif isinstance(event, InitDone):
                complete.append(1)
            return []

        copies.append(mine)
        started.wait(10)
        watch.subscribe(subscription, lambda _: None)
        if complete != [1]:
            order.append("not complete when subscribe returned")

    followers = [threading.Thread(target=follow) for _ in range(4)]
    for follower in followers:
        follower.start()
    step_until(watch, stop.is_set)
    for follower in followers:
        follower.join(10)
    assert order == []
    stored = {obj.name: obj.resource_version for obj in watch.store}
    assert copies == [stored] * 4


def step_until(watch: Watch[Any], done: Callable[[], bool]) -> None:
    while not done():
        watch.step()


@pytest.mark.parametrize(("semantic", "version", "read"), [
    (ListSemantic.ANY, 100, "120"), (ListSemantic.ANY, 130, None), (ListSemantic.MOST_RECENT, 130, None)])
def test_a_list_from_a_cache_says_nothing_of_writes_that_are_newer_though_it_was_asked_for_later(
        semantic: ListSemantic, version: int, read: str | None) -> None:
    clock, stop, made = SimClock(), StopToken(), thing("made", 120)
    api = ScriptedServer(stop, [page(version, A)], [[Late(1)]], clock=clock).api
    watch: Watch[Thing] = Watch(api, WatcherConfig(list_semantic=semantic), stop=stop, clock=clock)
    watch._writer.wrote(made.key, Own(made.uid, "120", made, last=made))
    while not watch.store.is_ready:
        watch.step()
    found = watch.store.get("made", "default")
    assert (None if found is None else found.resource_version) == read
    stop.set()
    watch.step()
