"""The watch machine: each row of its transition table."""
from __future__ import annotations

import pytest
from msgspec.structs import replace

from kubectl_runtime.client.api.api_base import TokenTrail
from kubectl_runtime.core.base.errors import TransportError
from kubectl_runtime.core.meta.problems import DecodeError
from kubectl_runtime.runtime.watch.event import INIT, INIT_DONE, Apply, Delete, Failed, Init, InitApply
from kubectl_runtime.runtime.watch.machine import step
from kubectl_runtime.runtime.watch.states import (
    BEGIN,
    MAX_PAGED_TRIES,
    MAX_STALLS,
    BatchRead,
    Broke,
    Ended,
    Listed,
    Listing,
    Opened,
    PageRead,
    VersionRead,
    WatchError,
    Watching,
)
from tests.runtime.watch.scripted_watch import (
    EXPIRED,
    TOO_LARGE,
    RecordEvent,
    added,
    api_error,
    bookmark,
    broken,
    deleted,
    error_event,
    modified,
    thing,
)

A, B = thing("a", 5), thing("b", 90)
WATCHING = Watching("100", "100", 0.0)


def verdict(out: list[object]) -> list[str]:
    return [type(item).__name__ for item in out]


def test_the_first_page_begins_a_new_list() -> None:
    state, out = step(BEGIN, PageRead("100", "next", [A]), 0)
    assert out == [INIT, InitApply(A)]
    assert state == Listing(token="next", first=True, trail=TokenTrail("next", 0, 2))


def test_a_later_page_continues_it() -> None:
    state, out = step(Listing(token="next"), PageRead("100", "third", [A]), 0)
    assert out == [InitApply(A)]
    assert state == Listing(token="third", trail=TokenTrail("third", 0, 2))


def test_the_last_page_gives_the_version_to_watch_from_whatever_its_items_say() -> None:
    state, out = step(Listing(token="t"), PageRead("100", "", [B, A]), 0)
    assert out == [InitApply(B), InitApply(A), INIT_DONE]
    assert state == Listed("100")


@pytest.mark.parametrize("version", [None, ""])
def test_a_list_without_a_version_fails_and_is_never_watched(version: str | None) -> None:
    state, out = step(BEGIN, PageRead(version, None, [A]), 0)
    assert verdict(out) == ["Init", "InitApply", "Failed"]
    assert state == Listing()


def test_an_empty_list_is_complete() -> None:
    assert step(BEGIN, PageRead("7", None, []), 0) == (Listed("7"), [INIT, INIT_DONE])


def test_an_expired_page_token_restarts_the_list_and_is_counted() -> None:
    state, out = step(Listing(token="old"), Broke(api_error(**EXPIRED)), 0)
    assert verdict(out) == ["Failed"]
    assert state == Listing(expired=1)
    assert state.paged


def test_after_some_expired_tokens_the_list_is_asked_for_in_one_piece() -> None:
    state: object = BEGIN
    for _ in range(MAX_PAGED_TRIES):
        assert isinstance(state, Listing)
        assert state.paged
        state, _out = step(Listing(token="t", expired=state.expired), Broke(api_error(**EXPIRED)), 0)
    assert isinstance(state, Listing)
    assert not state.paged


def test_a_page_that_continues_with_its_own_token_cannot_go_on_for_ever() -> None:
    state, _ = step(Listing(), PageRead("100", "same", [A]), 0)
    state, out = step(state, PageRead("100", "same", [A]), 0)
    assert verdict(out) == ["Failed"]
    assert state == Listing(expired=1)


def test_a_refused_old_version_is_not_asked_for_again() -> None:
    state, out = step(BEGIN, Broke(api_error(**TOO_LARGE, retry_after=3)), 0)
    assert out == [Failed(out[0].error, "list", 3)]  # type: ignore[union-attr]
    assert state == Listing(first=False)


@pytest.mark.parametrize("error", [api_error(403, "Forbidden"), api_error(500), TransportError("refused")], ids=str)
def test_any_other_failure_restarts_the_list(error: Exception) -> None:
    assert step(Listing(token="t", first=True), Broke(error), 0) == (Listing(first=True), [Failed(error, "list")])


def test_an_opened_watch_has_seen_the_version_of_the_list() -> None:
    assert step(Listed("100"), Opened(), 4.0) == (Watching("100", "100", 4.0), [])


@pytest.mark.parametrize("error", [api_error(**EXPIRED), api_error(404), api_error(400, "BadRequest"),
                                   api_error(422, "Invalid"), api_error(**TOO_LARGE)], ids=str)
def test_a_version_that_can_never_be_watched_leads_to_a_list(error: Exception) -> None:
    state, out = step(Listed("100"), Broke(error), 0)
    assert verdict(out) == ["Failed"]
    assert state == Listing()
    assert step(WATCHING, Broke(error), 0).state == Listing()


@pytest.mark.parametrize("code", [401, 403, 405, 429])
def test_what_a_list_would_not_heal_never_leads_to_one(code: int) -> None:
    state: object = Listed("100")
    for _ in range(5 * MAX_STALLS):
        state, out = step(state, Broke(api_error(code)), 0)  # type: ignore[arg-type]
        assert verdict(out) == ["Failed"]
    assert state == Listed("100")


def test_an_unreachable_server_never_leads_to_a_list() -> None:
    state: object = Listed("100")
    for _ in range(5 * MAX_STALLS):
        state, _out = step(state, Broke(TransportError("refused")), 0)  # type: ignore[arg-type]
    assert state == Listed("100", doubt=True)


def test_a_server_that_fails_again_and_again_leads_to_a_list() -> None:
    state: object = Listed("100")
    for _ in range(MAX_STALLS - 1):
        state, _out = step(state, Broke(api_error(500)), 0)  # type: ignore[arg-type]
        assert isinstance(state, Listed)
    assert step(state, Broke(api_error(500)), 0).state == Listing()


def test_changes_come_out_in_order_and_move_the_version() -> None:
    events = [added(A), modified(thing("a", "x7")), deleted(thing("b", "opaque"))]
    state, out = step(WATCHING, BatchRead(events), 1)
    assert out == [Apply(A), Apply(events[1].record), Delete(events[2].record)]
    assert state == Watching("opaque", "100", 0.0)


def test_a_bookmark_moves_the_version_and_nothing_else() -> None:
    assert step(WATCHING, BatchRead([bookmark(500)]), 1) == (Watching("500", "100", 0.0), [])


def test_a_bookmark_without_a_version_is_nothing() -> None:
    assert step(WATCHING, BatchRead([bookmark("")]), 1) == (WATCHING, [])


def test_an_object_without_a_version_leads_to_a_list_and_keeps_what_came_before() -> None:
    state, out = step(WATCHING, BatchRead([added(A), added(thing("b", "")), added(B)]), 1)
    assert verdict(out) == ["Apply", "Failed"]
    assert state == Listing()


def test_an_undecodable_object_flows_and_the_version_moves_past_it() -> None:
    state, out = step(WATCHING, BatchRead([modified(broken("bad", 101)), modified(broken("worse"))]), 1)
    assert verdict(out) == ["Apply", "Apply"]
    assert state == Watching("101", "100", 0.0)


def test_an_expired_error_event_is_the_same_as_http_410() -> None:
    state, out = step(WATCHING, BatchRead([modified(thing("a", 7)), error_event(**EXPIRED), modified(B)]), 1)
    assert verdict(out) == ["Apply", "Failed"]
    assert state == Listing()


def test_an_error_event_without_a_status_is_a_failure_at_the_last_version() -> None:
    state, out = step(WATCHING, BatchRead([modified(thing("a", 7)), RecordEvent("ERROR"), modified(B)]), 1)
    assert verdict(out) == ["Apply", "Failed"]
    assert state == Listed("7", 0.0, 1)


def test_an_error_event_passes_on_how_long_to_wait() -> None:
    _state, out = step(WATCHING, BatchRead([error_event(429, "TooManyRequests", retry_after=9)]), 1)
    assert isinstance(out[0], Failed)
    assert out[0].retry_after == 9


def test_error_events_without_progress_lead_to_a_list() -> None:
    state: object = Listed("100")
    for _ in range(MAX_STALLS):
        state, _out = step(state, Opened(), 0)  # type: ignore[arg-type]
        state, _out = step(state, BatchRead([error_event(500)]), 0)
    assert state == Listing()


def test_a_broken_stream_resumes_at_the_last_version() -> None:
    error = DecodeError(None, "$", "not JSON")
    assert step(WATCHING, Broke(error), 5) == (Listed("100", 0.0, 1), [Failed(error, "watch")])


def test_unknown_events_are_ignored() -> None:
    assert step(WATCHING, BatchRead([RecordEvent("PROGRESS", None)]), 1) == (WATCHING, [])


def test_a_watch_that_ends_in_time_is_followed_by_the_next_at_once() -> None:
    assert step(Watching("120", "100", 10.0, stalls=3), Ended(), 11.0) == (Listed("120"), [])


def test_a_watch_that_ends_at_once_without_anything_new_is_a_failure() -> None:
    state, out = step(Watching("100", "100", 10.0), Ended(), 10.9)
    assert isinstance(out[0], Failed)
    assert isinstance(out[0].error, WatchError)
    assert state == Listed("100", 0.0, 1)


def test_a_watch_that_ends_at_once_with_something_new_is_followed_after_a_second() -> None:
    assert step(Watching("120", "100", 10.0), Ended(), 10.5) == (Listed("120", 11.0), [])


def test_progress_forgives_earlier_stalls() -> None:
    state, _out = step(Watching("120", "100", 0.0, stalls=4), BatchRead([error_event(500)]), 1)
    assert state == Listed("120", 0.0, 1)


def test_another_flow_schema_raises_a_doubt_which_the_objects_decide() -> None:
    state, out = step(Listed("100"), Opened("first"), 0)
    assert (state, out) == (Watching("100", "100", 0, server="first"), [])
    for ending in (Ended(), Broke(TransportError("reset")), BatchRead([error_event(500)])):
        listed = step(state, ending, 5).state
        assert isinstance(listed, Listed)
        assert isinstance(step(listed, Opened("first"), 6).state, Watching)
        assert isinstance(step(listed, Opened(""), 6).state, Watching)
        doubtful, out = step(listed, Opened("second"), 6)
        assert isinstance(doubtful, Watching)
        assert (doubtful.doubt, doubtful.server, doubtful.other_server, out) == (True, "first", "second", [])
        same, out = step(doubtful, VersionRead("200"), 7)
        assert (same, out) == (replace(doubtful, doubt=False, server="second", other_server=""), [])
        other, out = step(doubtful, VersionRead("200", known=False), 7)
        assert other == Listing()
        assert verdict(out) == ["Failed"]
        unanswered = step(doubtful, Broke(TransportError("reset")), 7).state
        assert isinstance(unanswered, Listed)
        assert unanswered.server == "first", "the doubt comes back with the next watch"


@pytest.mark.parametrize("given", [Ended(broke=True), Broke(TransportError("reset"))], ids=str)
def test_a_connection_that_failed_leaves_a_doubt_and_a_clean_end_none(given: Ended | Broke) -> None:
    state = step(WATCHING, given, 60).state
    assert state == Listed("100", doubt=True)
    assert step(state, Opened(), 61).state == Watching("100", "100", 61, doubt=True)
    assert step(WATCHING, Ended(), 60).state == Listed("100")


def test_a_doubt_outlasts_failures_and_a_refused_connection_makes_one() -> None:
    state = step(Listed("100"), Broke(TransportError("refused")), 0).state
    assert state == Listed("100", doubt=True)
    assert step(state, Broke(api_error(503)), 0).state == Listed("100", stalls=1, doubt=True)


DOUBT = Watching("35500", "35500", 0.0, doubt=True)


@pytest.mark.parametrize(("version", "lower"), [
    ("35040", True), ("9999", True), ("00035499", True), ("35500", False), ("35501", False), ("100000", False),
    ("", False), (None, False), ("x35040", False), ("3.5", False), ("\u0663", False), ("-1", False),
    ("9" * 5000, False)])
def test_a_lower_version_of_the_server_means_that_it_went_back_in_time(version: str | None, lower: bool) -> None:
    state, out = step(DOUBT, VersionRead(version), 1)
    assert out == []
    assert state == (Listing(suspect=True) if lower else Watching("35500", "35500", 0.0))


def test_opaque_versions_conclude_nothing() -> None:
    assert step(Watching("v9", "v9", 0.0, doubt=True), VersionRead("1"), 1).state == Watching("v9", "v9", 0.0)


@pytest.mark.parametrize(("error", "goes_on"), [
    (api_error(403), True), (api_error(404), True), (api_error(410), True), (api_error(429), False),
    (api_error(500), False), (api_error(503), False), (TransportError("reset"), False)], ids=str)
def test_a_version_that_cannot_be_asked_for_concludes_nothing_and_what_passes_is_asked_again(
        error: Exception, goes_on: bool) -> None:
    state, out = step(DOUBT, Broke(error), 1)
    if goes_on:
        assert (state, out) == (Watching("35500", "35500", 0.0), [])
    else:
        assert isinstance(state, Listed)
        assert state.doubt
        assert verdict(out) == ["Failed"]


def test_a_suspect_list_stays_one_until_it_is_complete() -> None:
    state, out = step(Listing(suspect=True), PageRead("1", "t", [A]), 0)
    assert out[0] == Init(suspect=True)
    state = step(state, Broke(api_error(410)), 0).state
    state, out = step(state, PageRead("1", None, [A]), 0)
    assert out[0] == Init(suspect=True)
    assert state == Listed("1")


@pytest.mark.parametrize(("timeout", "lived", "fails"), [(1, 0.9, False), (1, 0.4, True), (290, 0.9, True)])
def test_a_watch_that_was_to_live_a_second_fails_only_if_it_lived_less_than_half(
        timeout: float, lived: float, fails: bool) -> None:
    state = step(Listed("100"), Opened("", timeout), 10.0).state
    assert verdict(step(state, Ended(), 10.0 + lived).out) == (["Failed"] if fails else [])


def test_continue_tokens_that_go_round_end_the_list() -> None:
    state, failures = step(BEGIN, PageRead("1", "A", [A]), 0).state, 0
    for token in "BABABABA":
        state, out = step(state, PageRead("1", token, [A]), 0)
        failures += verdict(out) == ["Failed"]
        if failures:
            break
    assert failures == 1
