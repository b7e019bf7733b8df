"""The reflector: what reaches the store and what is passed on, row by row, and against a model."""
from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubectl_runtime.client.api.api import Api
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.client.config.config import Config
from kubectl_runtime.core.codec.views import Record
from kubectl_runtime.core.scope import StopToken
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.runtime.store.reflector import Reflector, StoreWriter, reflector, store
from kubectl_runtime.runtime.store.store import Store, StoreNotReady
from kubectl_runtime.runtime.watch.event import INIT, INIT_DONE, Apply, Delete, Event, Failed, Init, InitApply
from kubectl_runtime.runtime.watch.watcher import watcher
from kubectl_runtime.testing.asking import eventually
from kubectl_runtime.testing.clock import SimClock
from tests.runtime.watch.scripted_watch import THING, ScriptedServer, Thing, api_error, broken, page, thing

A, B = thing("a", 1), thing("b", 2)


@pytest.fixture
def writer() -> StoreWriter:
    return StoreWriter(THING, Thing.from_record)


def listed(*records: Record) -> list[Event[Record]]:
    return [INIT, *map(InitApply, records), INIT_DONE]


def stored(writer: StoreWriter) -> dict[str, str]:
    return {name: record.resource_version for (_, name), record in writer.records().items()}


def test_a_list_is_held_back_until_it_is_complete(writer: StoreWriter) -> None:
    mirror = Reflector(writer)
    assert mirror.feed(INIT, InitApply(A)) == []
    assert mirror.feed(InitApply(B)) == []
    assert stored(writer) == {}
    assert mirror.feed(INIT_DONE) == [Apply(A), Apply(B), INIT_DONE]
    assert stored(writer) == {"a": "1", "b": "2"}


def test_an_interrupted_list_leaves_no_trace(writer: StoreWriter) -> None:
    mirror = Reflector(writer)
    mirror.feed(INIT, InitApply(A))
    assert mirror.feed(*listed(B)) == [Apply(B), INIT_DONE]
    assert stored(writer) == {"b": "2"}


def test_a_new_list_passes_on_the_difference_deletions_first(writer: StoreWriter) -> None:
    gone, same, changed, replaced = thing("gone"), thing("same"), thing("changed", 1), thing("replaced", 1, uid="first")
    mirror = Reflector(writer)
    mirror.feed(*listed(gone, same, changed, replaced))
    newer, other, new = thing("changed", 2), thing("replaced", 1, uid="second"), thing("new")
    assert mirror.feed(*listed(thing("same"), newer, other, new)) == [
        Delete(gone), Apply(newer, changed), Delete(replaced), Apply(other), Apply(new), INIT_DONE]
    assert writer.records()["default", "same"] is same


def test_relist_triggers_makes_an_apply_of_what_is_unchanged(writer: StoreWriter) -> None:
    mirror = Reflector(writer, relist_triggers=True)
    mirror.feed(*listed(A))
    assert mirror.feed(*listed(thing("a", 1))) == [Apply(A), INIT_DONE]


def test_an_event_at_the_stored_version_is_nothing_new(writer: StoreWriter) -> None:
    mirror = Reflector(writer)
    mirror.feed(*listed(A))
    assert mirror.feed(Apply(thing("a", 1))) == []
    assert writer.records()["default", "a"] is A


def test_another_uid_under_the_same_name_is_a_deletion_and_a_creation(writer: StoreWriter) -> None:
    mirror = Reflector(writer)
    mirror.feed(*listed(A))
    again = thing("a", 9, uid="again")
    assert mirror.feed(Apply(again)) == [Delete(A), Apply(again)]
    assert stored(writer) == {"a": "9"}


def test_versions_are_compared_for_equality_only(writer: StoreWriter) -> None:
    mirror = Reflector(writer)
    mirror.feed(*listed(thing("a", 900)))
    older = thing("a", "8")
    assert [change.obj for change in mirror.feed(Apply(older))] == [older]  # type: ignore[union-attr]


def test_a_deletion_removes_and_passes_on_the_last_state(writer: StoreWriter) -> None:
    mirror = Reflector(writer)
    mirror.feed(*listed(A, B))
    last = thing("a", 7)
    assert mirror.feed(Delete(last)) == [Delete(last)]
    assert stored(writer) == {"b": "2"}


def test_a_deletion_of_something_unknown_changes_nothing_and_is_told_once(writer: StoreWriter) -> None:
    mirror = Reflector(writer)
    mirror.feed(*listed(A))
    unknown = thing("z", 5)
    assert mirror.feed(Delete(unknown)) == [Delete(unknown)]
    assert stored(writer) == {"a": "1"}


def test_a_deletion_of_a_predecessor_does_not_touch_its_successor(writer: StoreWriter) -> None:
    mirror = Reflector(writer)
    mirror.feed(*listed(thing("a", 3, uid="second")))
    assert mirror.feed(Delete(thing("a", 2, uid="first"))) == []
    assert stored(writer) == {"a": "3"}


def test_changes_of_one_key_within_a_batch_see_each_other(writer: StoreWriter) -> None:
    mirror = Reflector(writer)
    mirror.feed(*listed())
    first, second = thing("a", 1, uid="first"), thing("a", 2, uid="second")
    assert mirror.feed(Apply(first), Apply(first), Delete(first), Apply(second), Apply(second)) == [
        Apply(first), Delete(first), Apply(second)]
    assert stored(writer) == {"a": "2"}


def test_a_batch_is_one_commit_and_a_completed_list_one_of_its_own(writer: StoreWriter) -> None:
    mirror = Reflector(writer)
    commits = mirror.commits([*listed(A), Apply(B), Apply(thing("a", 5))])
    assert [len(commit.changes) for commit in commits] == [2, 2]
    assert [commit.completes for commit in commits] == [True, False]


def test_an_undecodable_object_is_kept_and_told_once_per_version(writer: StoreWriter) -> None:
    mirror = Reflector(writer)
    mirror.feed(*listed(thing("bad", 1)))
    assert len(mirror.feed(Apply(broken("bad", 2)))) == 1
    assert mirror.feed(Apply(broken("bad", 2))) == []
    assert stored(writer) == {"bad": "2"}


def test_an_object_without_a_name_is_logged_and_left_out(writer: StoreWriter, caplog: pytest.LogCaptureFixture) -> None:
    mirror = Reflector(writer)
    assert mirror.feed(INIT, InitApply(broken("", 4)), INIT_DONE, Apply(broken("", 5)), Delete(broken("", 6))) == [
        INIT_DONE
    ]
    assert stored(writer) == {}
    assert caplog.text.count("ignored an object of") == 3


def test_the_generator_form_reads_and_yields_readers_and_closes_its_source(writer: StoreWriter) -> None:
    closed: list[bool] = []

    def source() -> Iterator[Event[Thing]]:
        try:
            yield INIT
            yield InitApply(Thing.from_record(A))
            yield INIT_DONE
            yield Apply(Thing.from_record(B))
        finally:
            closed.append(True)

    events = reflector(writer, source())
    first = next(events)
    assert isinstance(first, Apply)
    assert (first.obj.name, stored(writer)) == ("a", {"a": "1"})
    assert next(events) == INIT_DONE
    events.close()  # type: ignore[attr-defined]
    assert closed == [True]


NAMES = st.sampled_from("abc")
OBJECTS = st.builds(
    lambda name, rv, uid: thing(name, rv, uid=f"{name}-{uid}"), NAMES, st.integers(1, 4), st.integers(1, 2)
)
EVENTS = st.one_of(OBJECTS.map(Apply), OBJECTS.map(Delete))
LISTS = st.lists(OBJECTS, max_size=4, unique_by=lambda record: record.name).map(lambda records: listed(*records))
BATCHES = st.lists(st.one_of(st.lists(EVENTS, max_size=6), LISTS), max_size=8)


@given(BATCHES)
def test_who_follows_the_changes_knows_exactly_what_is_stored(batches: list[list[Event[Record]]]) -> None:
    writer = StoreWriter(THING, Thing.from_record)
    mirror = Reflector(writer)
    known: dict[str, Record] = {}
    for batch in batches:
        for change in mirror.feed(*batch):
            if isinstance(change, Apply):
                before = known.get(change.obj.name)
                assert before is None or before.uid == change.obj.uid, "a new uid without a deletion before it"
                assert before is None or before.resource_version != change.obj.resource_version, "nothing new"
                known[change.obj.name] = change.obj
            elif isinstance(change, Delete):
                known.pop(change.obj.name, None)
        assert known == {name: record for (_, name), record in writer.records().items()}


def same_version(spec: dict[str, int], **more: str) -> Record:
    return thing("a", 10, spec=spec, **more)


def test_a_suspect_list_makes_everything_heard_again_and_keeps_what_is_the_same(writer: StoreWriter) -> None:
    mirror = Reflector(writer)
    mirror.feed(*listed(A, B))
    kept = dict(writer.records())
    again = [Init(suspect=True), InitApply(thing("a", 1)), InitApply(thing("b", 2)), INIT_DONE]
    assert mirror.feed(*again) == [Apply(A), Apply(B), INIT_DONE]
    assert all(writer.records()[key] is record for key, record in kept.items())
    assert mirror.feed(*listed(thing("a", 1), thing("b", 2))) == [INIT_DONE], "the next list is not suspect"


def test_in_a_suspect_list_the_same_version_with_another_content_is_a_change(writer: StoreWriter) -> None:
    lost, new = same_version({"value": 1}), same_version({"value": 2})
    mirror = Reflector(writer)
    mirror.feed(*listed(lost))
    assert mirror.feed(*listed(new)) == [INIT_DONE]
    assert mirror.feed(Init(suspect=True), InitApply(new), INIT_DONE) == [Apply(new, lost), INIT_DONE]
    assert list(writer.records().values()) == [new]


def test_a_deletion_within_a_list_takes_the_object_out_of_it(writer: StoreWriter) -> None:
    mirror = Reflector(writer)
    mirror.feed(*listed(A))
    assert mirror.feed(INIT, InitApply(thing("a", 2)), InitApply(B), Delete(thing("a", 3))) != []
    mirror.feed(INIT_DONE)
    assert stored(writer) == {"b": "2"}


def world(*lists: Any, **options: Any) -> tuple[Store[Thing], Iterator[Event[Thing]], StopToken]:
    clock = SimClock(self_advancing=True)
    stop = StopToken(clock=clock)
    api = ScriptedServer(stop, lists, [[[]]], clock=clock, pass_time=clock.advance).api
    inside, writer = store(Thing, clock=clock)
    return inside, reflector(writer, watcher(api, stop=stop, clock=clock, **options)), stop


def test_who_waits_for_a_store_whose_watch_is_forbidden_is_told_so() -> None:
    inside, events, stop = world(api_error(403, "Forbidden", message="no"))
    assert list(events) == []  # the script is over after its one answer
    assert stop.is_set()
    with pytest.raises(StoreNotReady, match=r"ended \(its stream is over\).*cannot list things.*no \(403 Forbidden\)"):
        inside.wait_until_ready()
    assert inside.has_ended
    assert "403" in inside.trouble


def test_the_same_before_the_time_is_up_and_while_it_goes_on() -> None:
    inside, events, _ = world(*[api_error(403, "Forbidden")] * 3, page(5, A))
    assert "403" not in inside.trouble
    assert isinstance(next(events), Apply)
    assert (inside.trouble, inside.is_ready, inside.has_ended) == ("", True, False)
    events.close()  # type: ignore[attr-defined]
    assert inside.has_ended
    assert inside.get("a", "default") is not None


def test_without_backoff_failures_pass_and_are_told_too() -> None:
    inside, events, _ = world(api_error(403, "Forbidden"), page(5, A), backoff=None)
    assert isinstance(next(events), Failed)
    assert "Forbidden" in inside.trouble
    with pytest.raises(StoreNotReady, match="Forbidden"):
        inside.wait_until_ready(0)
    assert isinstance(next(events), Apply)
    assert inside.trouble == ""


def test_a_stream_that_fails_says_how_and_another_one_may_take_its_place(writer: StoreWriter) -> None:
    def broken_source() -> Iterator[Event[Thing]]:
        yield INIT
        raise ZeroDivisionError("oops")

    with pytest.raises(ZeroDivisionError):
        list(reflector(writer, broken_source()))
    with pytest.raises(StoreNotReady, match="its stream failed: ZeroDivisionError: oops"):
        writer.store.wait_until_ready()
    second = reflector(writer, iter([INIT, INIT_DONE]))
    assert next(second) == INIT_DONE
    writer.store.wait_until_ready(0)


def test_after_a_defect_one_list_passes_on_everything_as_if_it_were_new(writer: StoreWriter) -> None:
    mirror = Reflector(writer)
    mirror.feed(*listed(A, B))
    mirror.feed(INIT, InitApply(A))
    mirror = Reflector(writer)
    other = thing("b", 2, uid="second")
    again = [Init(suspect=True), InitApply(thing("a", 1)), InitApply(other), INIT_DONE]
    assert mirror.feed(*again) == [Apply(writer.records()["default", "a"]), Delete(B), Apply(other), INIT_DONE]
    assert mirror.feed(*listed(thing("a", 1), other)) == [INIT_DONE]


def test_a_stream_that_waits_for_the_server_with_others_says_why_too() -> None:
    stop = StopToken()
    with Client(Config(cluster_url="http://127.0.0.1:1", timeout=1)) as client:
        maps = Api.namespaced(client, ConfigMap, "default")
        for _ in range(2):  # the first one finds nobody, the second does not even try
            found, writer = store(ConfigMap)
            events = reflector(writer, watcher(maps, stop=stop))
            threading.Thread(target=list, args=(events,), daemon=True).start()
            eventually(lambda found=found: "127.0.0.1" in found.trouble, timeout=1)  # before its turn to try
            with pytest.raises(StoreNotReady, match=r"last failure: cannot \w+ configmaps in namespace default: "):
                found.wait_until_ready(0.01)
        stop.set()
