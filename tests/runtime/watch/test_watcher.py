"""The watcher over a scripted server: what it asks for, what comes out, and that it ends only when it is told to."""
from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from kubectl_runtime.core.base.errors import RequestError, RequestTimeout, TransportError
from kubectl_runtime.core.meta.problems import DecodeError
from kubectl_runtime.core.scope import StopToken
from kubectl_runtime.runtime.watch.backoff import WatchBackoff
from kubectl_runtime.runtime.watch.config import DEFAULT_CONFIG, ListSemantic, WatcherConfig
from kubectl_runtime.runtime.watch.event import Apply, Failed, InitApply, InitDone
from kubectl_runtime.runtime.watch.watcher import metadata_watcher, watch_object, watcher
from kubectl_runtime.testing.clock import SimClock
from tests.runtime.watch.scripted_watch import (
    EXPIRED,
    TOO_LARGE,
    Foo,
    Late,
    ScriptedServer,
    Thing,
    added,
    api_error,
    bookmark,
    broken,
    deleted,
    error_event,
    modified,
    page,
    thing,
)

A, B = thing("a", 20), thing("b", 21)
MINUTE = Late(60)


class World:
    """A scripted server, a clock that moves by itself, and a watcher on them."""

    def __init__(self, lists: Sequence[Any] = (), watches: Sequence[Any] = (), **more: Any) -> None:
        self.clock = SimClock(self_advancing=True)
        self.stop = StopToken(clock=self.clock)
        self.server = ScriptedServer(self.stop, lists, watches, clock=self.clock, pass_time=self.clock.advance, **more)
        self.api = self.server.api

    def run(self, config: WatcherConfig = DEFAULT_CONFIG, **more: Any) -> list[Any]:
        """Everything that comes out until the script is over."""
        return list(watcher(self.api, config, self.stop, clock=self.clock, rng=random.Random(1), **more))

    def brief(self, config: WatcherConfig = DEFAULT_CONFIG, **more: Any) -> list[str]:
        return [short(event) for event in self.run(config, **more)]


def short(event: Any) -> str:
    return (
        f"{type(event).__name__} {event.obj.name}@{event.obj.resource_version}"
        if hasattr(event, "obj")
        else type(event).__name__
    )


def test_a_list_then_the_watch_from_its_version() -> None:
    world = World(
        [page(100, B, A)], [[[modified(thing("a", 101))], [deleted(thing("b", 102)), bookmark(500)], MINUTE], [MINUTE]]
    )
    assert world.brief() == ["Init", "InitApply b@21", "InitApply a@20", "InitDone", "Apply a@101", "Delete b@102"]
    assert world.server.verbs()[:3] == ["list", "watch 100", "watch 500"]


def test_readers_come_out_each_event_with_its_own() -> None:
    events = World([page(1, thing(spec={"size": 1}))], [[[modified(thing(rv=2, spec={"size": 2}))]]]).run()
    assert [event.obj.spec for event in events if isinstance(event, InitApply | Apply)] == [{"size": 1}, {"size": 2}]
    assert isinstance(events[1].obj, Thing)


def test_pages_carry_the_same_selectors_and_limit_and_the_token() -> None:
    world = World([page(7, thing("a"), token="t1"), page(7, thing("b"), token="t2"), page(7, thing("c"))], [[MINUTE]])
    assert len(world.brief(WatcherConfig(label_selector="app=web", field_selector="x=y", page_size=1))) == 5
    params = [params for verb, params in world.server.requests if verb == "list"]
    assert [p.continue_token for p in params[:3]] == [None, "t1", "t2"]
    assert {(p.label_selector, p.field_selector, p.limit) for p in params[:3]} == {("app=web", "x=y", 1)}


def test_the_default_page_size_is_500_and_no_version_is_sent() -> None:
    world = World([page(7)], [[MINUTE]])
    world.run()
    (params,) = [params for verb, params in world.server.requests[:1] if verb == "list"]
    assert (params.limit, params.resource_version) == (500, None)


def test_any_semantic_asks_the_cache_without_a_limit_the_first_time_only() -> None:
    world = World([api_error(500), page(7), page(9)], [api_error(**EXPIRED), [MINUTE]])
    world.run(WatcherConfig(list_semantic=ListSemantic.ANY))
    lists = [(p.resource_version, p.limit) for verb, p in world.server.requests if verb == "list"]
    assert lists[:3] == [("0", None), ("0", None), (None, 500)]


@pytest.mark.parametrize("expired", [api_error(**EXPIRED), [[error_event(**EXPIRED)]], [[error_event(410, "Gone")]]],
                         ids=["http", "event", "event Gone"])
def test_an_expired_version_is_one_failure_and_one_list_without_it(expired: Any) -> None:
    world = World([page(10, thing("a", 5)), page(30, A, B)], [expired, [MINUTE]])
    assert world.brief(backoff=None)[3:] == ["Failed", "Init", "InitApply a@20", "InitApply b@21", "InitDone"]
    assert world.server.verbs()[:4] == ["list", "watch 10", "list", "watch 30"]
    assert world.server.requests[2][1].resource_version is None


def test_the_outage_is_over_with_the_first_answer_so_the_next_failure_does_not_count_as_one() -> None:
    world = World([TransportError("refused"), page(10)], [api_error(503), [MINUTE]])
    failed = [event for event in world.run(backoff=None) if isinstance(event, Failed)]
    assert [(one.away, one.outage_over) for one in failed[:2]] == [(True, False), (False, True)]


def test_a_status_without_metadata_does_not_become_a_version() -> None:
    world = World([page(1), page(9)], [[[modified(thing("a", 7)), error_event(**EXPIRED)]], [MINUTE]])
    world.run()
    assert world.server.verbs()[:4] == ["list", "watch 1", "list", "watch 9"]


@pytest.mark.parametrize(
    ("end", "doubt"), [(Late(0), []), (RequestTimeout("silent"), ["version"]), (TransportError("reset"), ["version"])],
    ids=["end", "silence", "reset"]
)
def test_a_break_resumes_at_the_last_version_without_a_list(end: Any, doubt: list[str]) -> None:
    world = World([page(1)], [[[modified(thing("a", 7))], MINUTE, end], [MINUTE], [MINUTE]])
    assert world.brief() == ["Init", "InitDone", "Apply a@7"]
    assert world.server.verbs()[:4 + len(doubt)] == ["list", "watch 1", "watch 7", *doubt, "watch 7"]
    assert world.server.open_streams == 0


def test_a_quiet_resource_is_kept_watchable_by_bookmarks() -> None:
    world = World([page(1)], [[MINUTE, [bookmark(500)], MINUTE], [MINUTE]])
    world.run()
    assert world.server.verbs()[2] == "watch 500"


def test_an_expired_page_token_restarts_and_in_the_end_the_list_is_asked_for_whole() -> None:
    half = page(5, thing("a"), token="t")
    world = World([half, api_error(**EXPIRED)] * 3 + [page(9, A, B)], [[MINUTE]])
    assert world.brief()[-3:] == ["InitApply a@20", "InitApply b@21", "InitDone"]
    limits = [(p.limit, p.continue_token) for verb, p in world.server.requests if verb == "list"]
    assert limits == [(500, None), (500, "t")] * 3 + [(None, None)]


def test_too_large_a_version_waits_as_told_and_lists_without_one() -> None:
    world = World([page(750), page(800)], [api_error(**TOO_LARGE, retry_after=5), [MINUTE]])
    started: list[float] = []
    world.server.pass_time = lambda seconds: started.append(world.clock.monotonic()) or world.clock.advance(seconds)
    world.run(backoff=WatchBackoff(jitter=False))
    assert world.server.verbs()[:4] == ["list", "watch 750", "list", "watch 800"]
    assert started[0] >= 5


def test_a_forbidden_or_missing_kind_is_asked_for_with_backoff_until_it_is_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failures = [api_error(403, "Forbidden")] * 3 + [api_error(404, message="404 page not found")] * 5
    world = World([*failures, page(9, A)], [[MINUTE]])
    assert world.brief() == ["Init", "InitApply a@20", "InitDone"]
    assert 100 < world.clock.monotonic() < 400
    assert len([r for r in caplog.records if "next attempt" in r.getMessage()]) == 8


def test_a_kind_that_cannot_be_watched_slows_down_and_is_not_listed_again() -> None:
    world = World([page(1)], [api_error(405, "MethodNotAllowed")] * 30)
    world.run(backoff=WatchBackoff(jitter=False))
    assert world.server.verbs().count("list") == 1
    assert world.clock.monotonic() > 20 * 30


@pytest.mark.parametrize(("config", "more", "waited"), [
    (WatcherConfig(), {}, 0.8),
    (WatcherConfig(backoff=WatchBackoff(initial=7, jitter=False)), {}, 7),
    (WatcherConfig(backoff=WatchBackoff(initial=7)), {"backoff": WatchBackoff(initial=20, jitter=False)}, 20)])
def test_the_wait_after_a_failure_is_the_config_s_unless_the_call_says_another(
        config: WatcherConfig, more: dict[str, Any], waited: float) -> None:
    world = World([api_error(403, "Forbidden"), page(9, A)])
    events = watcher(world.api, config, world.stop, clock=world.clock, rng=random.Random(1), **more)
    while not isinstance(next(events), InitDone):
        pass
    assert waited <= world.clock.monotonic() <= 2 * waited


def test_a_crd_that_goes_and_comes_back_leaves_an_empty_list_and_no_old_version() -> None:
    world = World([page(100, A), *[api_error(404)] * 5, page(900)], [[MINUTE], api_error(404), [MINUTE]])
    assert world.brief()[-2:] == ["Init", "InitDone"]
    assert world.server.verbs() == ["list", "watch 100", "watch 100", *["list"] * 6, "watch 900", "watch 900"]


def test_unavailable_then_expired_then_throttled_ends_with_a_live_watch() -> None:
    world = World(
        [page(1), api_error(429, retry_after=1), page(9)],
        [[MINUTE], api_error(503), api_error(503), api_error(**EXPIRED), [[modified(thing("a", 10))], MINUTE]],
    )
    assert world.brief()[-1] == "Apply a@10"
    assert world.server.verbs()[:8] == ["list", "watch 1", "watch 1", "watch 1", "watch 1", "list", "list", "watch 9"]


def test_a_watch_that_ends_at_once_is_a_failure_with_backoff() -> None:
    world = World([page(1), page(1), page(1)], [[]] * 14)
    outcomes = world.brief(backoff=WatchBackoff(jitter=False))
    assert outcomes.count("Init") == 3  # after five such watches a list, in case the version is what is wrong
    assert world.clock.monotonic() > 0.8 + 1.6 + 3.2 + 6.4 + 12.8 + 25.6 + 6 * 30


def test_a_watch_that_repeats_its_events_and_ends_at_once_is_no_tight_loop() -> None:
    world = World([page(1)], [[[added(thing("a", 5))]], [[added(thing("b", 6))]], [[added(thing("a", 5))]]])
    world.run()
    assert world.server.verbs()[:4] == ["list", "watch 1", "watch 5", "watch 6"]
    assert world.clock.monotonic() >= 3


def test_garbage_in_the_stream_is_a_failure_and_the_watch_resumes() -> None:
    garbage = b"no event\n"
    world = World([page(1)], [[[added(thing("a", 5))], garbage], [[added(thing("b", 6))], MINUTE]])
    assert world.brief(backoff=None) == ["Init", "InitDone", "Apply a@5", "Failed", "Apply b@6"]
    assert world.server.verbs()[2] == "watch 5"


def test_one_undecodable_object_does_not_keep_others_back() -> None:
    world = World([page(9, thing("ok"), broken("bad", 3), thing("ok2"))],
                  [[[modified(broken("bad", 10)), modified(thing("ok2", 11))], MINUTE], [MINUTE]])
    events = world.run()
    assert [short(e) for e in events if isinstance(e, Apply)] == ["Apply bad@10", "Apply ok2@11"]
    with pytest.raises(DecodeError, match=r"metadata\.labels|expected object"):
        _ = events[2].obj.spec
    assert "watch 11" in world.server.verbs()


def test_an_unexpected_exception_of_the_client_is_a_failure_like_any_other(caplog: pytest.LogCaptureFixture) -> None:
    world = World([ZeroDivisionError("bug"), page(1)], [[MINUTE]])
    assert world.brief() == ["Init", "InitDone"]
    assert "ZeroDivisionError" in caplog.text


def test_the_requested_timeout_is_drawn_anew_within_its_bounds() -> None:
    world = World([page(1)], [[MINUTE]] * 50)
    list(watcher(world.api, stop=world.stop, clock=world.clock, rng=random.Random(3)))
    drawn = [asked.timeout for verb, asked in world.server.requests if verb == "watch"]
    assert 232 <= min(drawn) < max(drawn) <= 290


def test_many_watchers_do_not_retry_in_step() -> None:
    times = set()
    for seed in range(20):
        clock = SimClock(self_advancing=True)
        stop = StopToken(clock=clock)
        api = ScriptedServer(stop, [api_error(429)] * 3, clock=clock).api
        list(watcher(api, stop=stop, clock=clock, rng=random.Random(seed)))
        times.add(round(clock.monotonic(), 3))
    assert len(times) == 20


def test_nothing_is_asked_for_when_it_is_stopped_before_it_begins() -> None:
    world = World([page(1)])
    world.stop.set()
    assert world.run() == []
    assert world.server.requests == []


def test_closing_a_watcher_closes_its_stream() -> None:
    world = World([page(1)], [[[added(A)], [added(B)]]])
    events = watcher(world.api, stop=world.stop, clock=world.clock)
    assert [short(next(events)) for _ in range(3)] == ["Init", "InitDone", "Apply a@20"]
    assert world.server.open_streams == 1
    events.close()  # type: ignore[attr-defined]
    assert world.server.open_streams == 0
    assert not world.stop.is_set()


def test_another_thread_that_sets_the_token_ends_a_waiting_watcher_at_once() -> None:
    clock = SimClock()
    stop = StopToken(clock=clock)
    api = ScriptedServer(stop, [api_error(500)], clock=clock).api
    ended: list[list[Any]] = []
    thread = threading.Thread(target=lambda: ended.append(list(watcher(api, stop=stop, clock=clock))))
    thread.start()
    clock.settle()  # it waits in its backoff
    stop.set()
    thread.join(10)
    assert ended == [[]]


@pytest.mark.parametrize("wrong", [{"page_size": 0}, {"timeout": 0.5}, {"timeout": float("nan")},
                                   {"timeout": float("inf")}, {"timeout": "10"}, {"verify": 0.5}, {"verify": "300"}])
def test_a_senseless_configuration_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(RequestError):
        WatcherConfig(**wrong)


def test_a_single_object_is_followed_through_absence_breaks_and_recreation() -> None:
    lists = [page(1), page(20, thing("a", 15)), page(30, thing("a", 15)), page(40, thing("a", 40, uid="new"))]
    watches = [[[added(thing("a", 10))], [modified(thing("a", 15))], [error_event(**EXPIRED)]],
               api_error(**EXPIRED),
               [[deleted(thing("a", 31))], [error_event(**EXPIRED)]]]
    world = World(lists, watches)
    seen = [
        obj and f"{obj.uid}@{obj.resource_version}"
        for obj in watch_object(world.api, "a", stop=world.stop, clock=world.clock)
    ]
    assert seen == [None, "uid-a@10", "uid-a@15", None, "new@40"]
    assert {p.field_selector for verb, p in world.server.requests if verb == "list"} == {"metadata.name=a"}


def test_the_metadata_watcher_asks_for_metadata_alone() -> None:
    world = World([page(1, A)], [[MINUTE]])
    events = list(metadata_watcher(world.api, stop=world.stop, clock=world.clock))
    assert [short(e) for e in events] == ["Init", "InitApply a@20", "InitDone"]
    assert all(asked.metadata_only for _, asked in world.server.requests)


def test_failures_pass_through_only_without_backoff() -> None:
    world = World([api_error(500), page(1)], [[MINUTE]])
    first = world.run(backoff=None)[0]
    assert isinstance(first, Failed)
    assert first.verb == "list"


def test_a_single_object_that_was_deleted_and_made_anew_inside_a_gap_shows_that_it_was_gone() -> None:
    lists = [page(1, thing("a", 1)), page(20, thing("a", 15, uid="new"))]
    watches = [[[error_event(**EXPIRED)]], [[modified(thing("a", 30, uid="newer"))], MINUTE]]
    world = World(lists, watches)
    seen = [obj and obj.uid for obj in watch_object(world.api, "a", stop=world.stop, clock=world.clock)]
    assert seen == ["uid-a", None, "new", None, "newer"]


def test_a_single_object_needs_a_namespace() -> None:
    world = World(namespace=None)
    with pytest.raises(RequestError, match="in all namespaces several objects may have this name"):
        watch_object(world.api, "a")
    assert watch_object(World(namespace=None, kind=Foo).api, "a") is not None


@pytest.mark.parametrize("name", ["..", "a/b", "a%2fb", "", None, 5, Foo(name="a"), Thing(name="")], ids=repr)
def test_a_single_object_has_a_name_that_a_get_could_have(name: Any) -> None:
    with pytest.raises(RequestError):
        watch_object(World().api, name)


def test_a_single_object_may_be_named_by_itself() -> None:
    world = World([page(1, A)], [[MINUTE]])
    assert [obj and obj.name for obj in watch_object(world.api, Thing(name="a"), stop=world.stop)] == ["a"]
    assert {p.field_selector for verb, p in world.server.requests if verb == "list"} == {"metadata.name=a"}


def test_a_stream_has_no_store_that_could_be_verified() -> None:
    with pytest.raises(RequestError, match="compares a store"):
        watcher(World().api, WatcherConfig(verify=60))


def test_what_is_validated_and_does_not_fit_is_invalid_on_arrival_and_logged_with_its_name(
        caplog: pytest.LogCaptureFixture) -> None:
    bad = thing("bad", 2, spec=[1])  # type: ignore[arg-type]
    script: dict[str, Any] = {"lists": [page(3, A, bad)],
                              "watches": [[[modified(thing("bad", 4)), modified(A)], MINUTE]]}
    events = World(**script).run(WatcherConfig(validate=True))
    seen = [event.obj for event in events if isinstance(event, InitApply | Apply)]
    assert [type(obj).__name__ for obj in seen] == ["Thing", "InvalidObject", "Thing", "Thing"]
    told = [record.getMessage() for record in caplog.records if "bad" in record.getMessage()]
    assert len(told) == 1
    assert "version 2" in told[0]
    assert "default" in told[0]
    late = [event.obj for event in World(**script).run() if isinstance(event, InitApply | Apply)]
    assert {type(obj).__name__ for obj in late} == {"Thing"}
