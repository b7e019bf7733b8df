"""Lists as streams: each row of the transition table that is theirs, and the fall-back to pages."""
from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from kubectl_runtime.client.server import REMEMBERED_SECONDS
from kubectl_runtime.core.base.errors import RequestTimeout, TransportError
from kubectl_runtime.core.scope import StopToken
from kubectl_runtime.runtime.triggers.shared_watches import Watch
from kubectl_runtime.runtime.watch.backoff import WatchBackoff
from kubectl_runtime.runtime.watch.config import InitialListStrategy, ListSemantic, WatcherConfig
from kubectl_runtime.runtime.watch.event import INIT, INIT_DONE, Apply, Delete, Init, InitApply
from kubectl_runtime.runtime.watch.machine import step
from kubectl_runtime.runtime.watch.states import (
    BEGIN,
    INITIAL_EVENTS_SECONDS,
    MAX_STREAMED_TRIES,
    BatchRead,
    Broke,
    Ended,
    Listing,
    Opened,
    Streaming,
    Watching,
)
from kubectl_runtime.testing.clock import SimClock
from tests.runtime.watch.scripted_watch import (
    Late,
    ScriptedServer,
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

A, B = thing("a", 5), thing("b", 8)
STREAMS = WatcherConfig(initial_list_strategy=InitialListStrategy.STREAMING_LIST)
STREAMING = Streaming(BEGIN, 0.0)
FOR_EVER = 3600.0 * 24


def test_a_stream_begins_a_new_list() -> None:
    assert step(BEGIN, Opened("s"), 3.0) == (Streaming(BEGIN, 3.0, "s"), [INIT])
    assert step(Listing(suspect=True), Opened(), 3.0).out == [Init(suspect=True)]


def test_objects_are_those_of_the_list_until_its_end_which_says_the_version() -> None:
    state, out = step(STREAMING, BatchRead([added(A), added(B), list_end(100)]), 1.0)
    assert out == [InitApply(A), InitApply(B), INIT_DONE]
    assert state == Watching("100", "100", 0.0)


def test_what_follows_the_end_in_the_same_batch_is_a_change() -> None:
    state, out = step(STREAMING, BatchRead([added(A), list_end(100), modified(thing("a", 101))]), 1.0)
    assert [type(event).__name__ for event in out] == ["InitApply", "InitDone", "Apply"]
    assert isinstance(out[-1], Apply)
    assert isinstance(state, Watching)
    assert state.version == "101"


def test_only_the_marked_bookmark_ends_the_list() -> None:
    assert step(STREAMING, BatchRead([added(A), bookmark(9)]), 1.0) == (STREAMING, [InitApply(A)])


def test_changes_and_deletions_before_the_end_are_part_of_the_list() -> None:
    out = step(STREAMING, BatchRead([added(A), modified(thing("a", 6)), deleted(thing("a", 7)), added(B)]), 1.0).out
    assert [type(event) for event in out] == [InitApply, InitApply, Delete, InitApply]


@pytest.mark.parametrize("code", [400, 403, 422])
def test_a_refused_stream_is_asked_for_in_pages_at_once(code: int, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert step(BEGIN, Broke(api_error(code), True), 0.0) == (Listing(first=True, in_pages=True), [])
        assert step(STREAMING, BatchRead([error_event(code)]), 0.0) == (Listing(first=True, in_pages=True), [])
    assert len(caplog.records) == 2


@pytest.mark.parametrize("error", [api_error(429, retry_after=3), api_error(500), api_error(503),
                                   TransportError("refused")], ids=str)
def test_what_passes_is_retried_as_a_stream(error: Exception) -> None:
    state, out = step(BEGIN, Broke(error, True), 0.0)
    assert isinstance(state, Listing)
    assert not state.in_pages
    assert len(out) == 1


def test_an_end_without_a_version_is_none(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        state, out = step(STREAMING, BatchRead([added(A), list_end("")]), 1.0)
    assert (state, out) == (Listing(first=True, in_pages=True), [])
    assert "without a resourceVersion" in caplog.text


@pytest.mark.parametrize("given", [Ended(), Ended(broke=True), Broke(RequestTimeout("silent"))], ids=str)
def test_streams_that_break_off_again_and_again_lead_to_pages(given: Any) -> None:
    state: Any = BEGIN
    for _ in range(MAX_STREAMED_TRIES - 1):
        state = step(step(state, Opened(), 0.0).state, given, 1.0).state
        assert not state.in_pages
    assert step(step(state, Opened(), 0.0).state, given, 1.0).state.in_pages  # type: ignore[union-attr]


@pytest.mark.parametrize("given", [Ended(), Broke(RequestTimeout("silent")), BatchRead([added(A)])], ids=str)
def test_no_end_within_thirty_seconds_leads_to_pages(given: Any) -> None:
    assert step(STREAMING, given, INITIAL_EVENTS_SECONDS + 0.1).state == Listing(first=True, in_pages=True)


class World:
    """A watch of a script, with streaming lists."""

    def __init__(self, lists: Sequence[Any] = (), watches: Sequence[Any] = (), config: WatcherConfig = STREAMS) -> None:
        self.clock = SimClock(self_advancing=True)
        self.stop = StopToken(clock=self.clock)
        self.server = ScriptedServer(self.stop, lists, watches, clock=self.clock, pass_time=self.clock.advance)
        self.watch: Watch[Thing] = Watch(self.server.api, replace(config, backoff=WatchBackoff(jitter=False)),
                                         stop=self.stop, clock=self.clock, rng=random.Random(1))
        self.shown: list[dict[str, str]] = []
        while not self.watch.stopped:
            wait = self.watch.step()
            now = {obj.name: obj.resource_version for obj in self.watch.store}
            if self.watch.store.is_ready and (not self.shown or self.shown[-1] != now):
                self.shown.append(now)
            if wait:
                self.clock.advance(wait)


def test_a_stream_fills_the_store_and_goes_on_as_its_watch() -> None:
    world = World(watches=[[[added(A), added(B)], [list_end(100)], [modified(thing("a", 101))], Late(30)]])
    assert world.shown == [{"a": "5", "b": "8"}, {"a": "101", "b": "8"}]
    assert world.server.verbs() == ["stream", "watch 101"]


def test_initial_events_are_asked_for_when_a_list_is_wanted_and_never_on_resuming() -> None:
    world = World(watches=[[[list_end(100)], Late(30)], [Late(30)], [[error_event(410, "Expired")]],
                           [[added(B), list_end(200)], Late(30)]])
    assert world.server.verbs()[:4] == ["stream", "watch 100", "watch 100", "stream"]
    assert world.server.verbs()[4] == "watch 200"


def test_list_mode_never_asks_for_them() -> None:
    world = World([page(1)], [[Late(30)]], WatcherConfig())
    assert world.server.verbs() == ["list", "watch 1", "watch 1"]


def test_any_semantic_asks_the_cache_the_first_time_only() -> None:
    config = WatcherConfig(initial_list_strategy=InitialListStrategy.STREAMING_LIST, list_semantic=ListSemantic.ANY)
    world = World(watches=[[[list_end(1)], [error_event(410, "Expired")]], [[list_end(2)], Late(30)]], config=config)
    assert world.server.verbs()[:2] == ["stream 0", "stream"]


def test_what_a_stream_brought_before_it_broke_off_is_nowhere_shown() -> None:
    lost = [[added(thing("ghost", 3))], Late(1)]
    world = World([page(100, B)], [lost, lost, lost, [Late(30)]])
    assert world.shown == [{"b": "8"}]
    assert world.server.verbs()[:4] == ["stream", "stream", "stream", "list"]


def test_an_object_that_is_deleted_before_the_end_of_the_list_is_not_in_the_store() -> None:
    came_and_went = [added(A), modified(thing("a", 6)), deleted(thing("a", 7))]
    world = World(watches=[[[*came_and_went, added(B), list_end(8)], Late(30)]])
    assert world.shown == [{"b": "8"}]


def test_a_refusal_is_remembered_for_an_hour() -> None:
    expired = [[error_event(410, "Expired")]]
    soon = [Late(REMEMBERED_SECONDS / 2), [error_event(410, "Expired")]]
    late = [Late(REMEMBERED_SECONDS), [error_event(410, "Expired")]]
    world = World([page(1), page(2), page(3)], [api_error(422, "Invalid"), soon, expired, late, [[list_end(4)]]])
    assert [verb for verb in world.server.verbs() if not verb.startswith("watch")][:5] == [
        "stream", "list", "list", "list", "stream"]
    assert world.clock.monotonic() < FOR_EVER
