"""The overlay of own writes: when an entry is made, what reads see of it, when it goes, and against a model server."""
from __future__ import annotations

import json
import random
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubectl_runtime.client.api.client import Write
from kubectl_runtime.core.base.threads import SYSTEM_CLOCK
from kubectl_runtime.core.codec.jsonbytes import decode_object
from kubectl_runtime.core.codec.views import Record
from kubectl_runtime.core.meta.gvk import ObjectRef
from kubectl_runtime.core.objects.partial import FieldsForm, PartialView
from kubectl_runtime.core.requests.request import Place
from kubectl_runtime.runtime.store.overlay import Written, number_of
from kubectl_runtime.runtime.store.reflector import Reflector, StoreWriter
from kubectl_runtime.runtime.store.store import Store
from kubectl_runtime.runtime.watch.config import WatcherConfig
from kubectl_runtime.runtime.watch.driver import Modifier
from kubectl_runtime.runtime.watch.event import INIT, INIT_DONE, Apply, Delete, Event, InitApply
from tests.runtime.watch.scripted_watch import THING, Thing, thing
from tests.thoroughness import examples


class Source:
    """As much of an Api as a store's judge of writes looks at."""

    def __init__(self, *, namespace: str | None = None, metadata_only: bool = False, form: Any = None) -> None:
        self.resource, self.namespace, self.kind, self.form = THING, namespace, Thing, form
        self.place = Place(THING, namespace, metadata_only)


class World:
    """A store, its reflector, and a client's writes."""

    def __init__(self, config: WatcherConfig | None = None, modify: Any = None, **place: Any) -> None:
        self.writer: StoreWriter[Thing] = StoreWriter(THING, Thing.from_record)
        self.store = self.writer.store
        self.reflector = Reflector(self.writer)
        self.written = Written(Source(**place), config or WatcherConfig(),
                               None if modify is None else Modifier(modify, Thing.from_record, SYSTEM_CLOCK))

    def list(self, version: int | str, *records: Record, mark: int | None = None) -> list[Event[Record]]:
        self.reflector.list_begins(self.writer.mark() if mark is None else mark)
        events = [INIT, *map(InitApply, records), INIT_DONE]
        return [change for commit in self.reflector.commits(events, str(version)) for change in commit.changes]

    def events(self, version: int | str, *events: Event[Record]) -> list[Event[Record]]:
        return [change for commit in self.reflector.commits(events, str(version)) for change in commit.changes]

    def write(self, record: Record, verb: str = "patch") -> Record | None:
        return self.tell(Write(record.ref, verb, record.resource_version, record.uid, record))

    def delete(self, name: str = "a", uid: str = "") -> Record | None:
        return self.tell(Write(ObjectRef(THING, name, "default"), "delete", uid=uid))

    def tell(self, write: Write) -> Record | None:
        own = self.written.entry(write)
        return None if own is None else self.writer.wrote(write.ref.key, own)[0]

    def read(self, name: str = "a") -> str | None:
        obj = self.store.get(name, "default")
        return None if obj is None else obj.resource_version

    @property
    def pending(self) -> int:
        return len(self.writer.state.overlay.entries)


@pytest.fixture
def world() -> World:
    world = World()
    world.list(5, thing("a", 3))
    return world


def test_versions_compare_as_numbers_and_others_do_not_compare() -> None:
    assert number_of("10") == 10
    assert [number_of(version) for version in ("", None, "01", "x", "1.5", "-1", "\u0661")] == [None] * 7


def test_every_kind_of_read_shows_a_write_before_the_watch_does(world: World) -> None:
    world.store.add_index("size", lambda obj: obj.spec.get("size"))
    world.write(thing("a", 7, spec={"size": 2}))
    world.write(thing("new", 8, spec={"size": 2}), "create")
    assert (world.read("a"), world.read("new"), len(world.store)) == ("7", "8", 2)
    assert sorted(obj.name for obj in world.store.list()) == ["a", "new"]
    assert sorted(obj.name for obj in world.store.by_index("size", 2)) == ["a", "new"]
    assert world.store.by_index("size", None) == []
    world.delete("a", "uid-a")
    assert (world.read("a"), len(world.store)) == (None, 1)
    assert [obj.name for obj in world.store.by_index("size", 2)] == ["new"]


def test_reads_that_do_without_show_what_the_watch_has_shown(world: World) -> None:
    plain = Store(THING, Thing.from_record, world.writer.state, own_writes=False)
    world.write(thing("a", 7))
    found = plain.get("a", "default")
    assert found is not None
    assert found.resource_version == "3"
    assert plain.records()[0].resource_version == "3"


def test_nothing_is_read_before_the_first_list_whatever_was_written() -> None:
    world = World()
    world.write(thing("a", 7), "create")
    assert (world.read(), len(world.store), world.store.list()) == (None, 0, [])


def test_events_and_what_follows_from_them_know_only_the_watch(world: World) -> None:
    new = thing("a", 7)
    world.write(new)
    (change,) = world.events(7, Apply(new))
    assert isinstance(change, Apply)
    assert change.previous is not None
    assert change.previous.resource_version == "3"


@pytest.mark.parametrize("version", [7, 9])
def test_an_event_at_least_as_new_ends_it(world: World, version: int) -> None:
    world.write(thing("a", 7))
    world.events(6, Apply(thing("a", 6)))
    assert (world.read(), world.pending) == ("7", 1)
    world.events(version, Apply(thing("a", version)))
    assert (world.read(), world.pending) == (str(version), 0)


def test_a_watch_that_is_past_it_ends_it_even_without_an_event_of_the_object(world: World) -> None:
    world.write(thing("a", 7))
    world.writer.progressed("7")
    assert world.pending == 0


@pytest.mark.parametrize("by_a_bookmark", [False, True], ids=["by an event", "by a bookmark"])
def test_a_write_that_the_watch_passes_over_is_no_more_and_that_is_said_once(
        world: World, *, by_a_bookmark: bool) -> None:
    world.write(thing("new", 7), "create")
    world.write(thing("a", 8))
    other = [] if by_a_bookmark else [Apply(thing("other", 9))]
    lost, undone = world.events(9, *other)[len(other):]
    assert isinstance(lost, Delete)
    assert (lost.obj.head.name, lost.obj.resource_version) == ("new", "7")
    assert isinstance(undone, Apply)
    assert undone.previous is not None
    assert (undone.obj.resource_version, undone.previous.resource_version) == ("3", "8")
    assert (world.pending, world.read("a"), world.read("new")) == (0, "3", None)
    assert world.events(10) == []


def test_a_write_of_which_a_later_list_shows_the_state_before_is_undone_and_that_is_said_once(world: World) -> None:
    world.write(thing("a", 8))
    *_, undone = world.list(9, thing("a", 3))
    assert isinstance(undone, Apply)
    assert undone.previous is not None
    assert (undone.obj.resource_version, undone.previous.resource_version) == ("3", "8")
    assert [type(event).__name__ for event in world.list(10, thing("a", 3))] == ["InitDone"]
    world.delete("a", "uid-a")
    *_, back = world.list(11, thing("a", 3))
    assert isinstance(back, Apply)
    assert (back.obj.resource_version, world.read("a"), world.pending) == ("3", "3", 0)


def test_a_list_that_is_older_than_the_write_or_as_new_undoes_nothing(world: World) -> None:
    world.write(thing("a", 8))
    assert [type(event).__name__ for event in world.list(7, thing("a", 3), mark=0)] == ["InitDone"]
    assert world.pending == 1
    assert [type(event).__name__ for event in world.list(9, thing("a", 8))] == ["Apply", "InitDone"]


def test_a_write_that_the_watch_shows_is_not_passed_over(world: World) -> None:
    world.write(thing("new", 7), "create")
    world.write(thing("a", 8))
    assert len(world.events(9, Apply(thing("new", 7)), Apply(thing("a", 8)), Apply(thing("other", 9)))) == 3
    world.delete("new", "uid-new")
    world.write(thing("a", 12))
    assert len(world.events(12, Delete(thing("new", 11)), Apply(thing("a", 12)))) == 2
    assert world.events(20) == []


def test_what_never_was_one_of_the_stores_is_not_missed_when_it_is_passed_over() -> None:
    world = World(WatcherConfig(label_selector="app=web"))
    world.list(5)
    world.write(thing("hidden", 7, labels={"app": "other"}), "create")
    assert world.events(9) == []


def test_no_entry_is_made_for_what_the_watch_was_faster_with(world: World) -> None:
    world.events(9, Apply(thing("a", 9)))
    world.write(thing("a", 7))
    world.write(thing("a", 9))
    assert (world.read(), world.pending) == ("9", 0)


def test_a_write_that_is_told_after_its_deletion_was_seen_brings_nothing_back(world: World) -> None:
    world.events(8, Apply(thing("n", 7)), Delete(thing("n", 8)))
    assert world.write(thing("n", 7), "create") is None
    assert world.read("n") is None


def test_incomparable_versions_make_no_entry(world: World) -> None:
    world.write(thing("a", "abc"))
    assert world.read() == "3"


def test_two_threads_that_tell_their_writes_in_the_wrong_order_leave_the_newer(world: World) -> None:
    world.write(thing("a", 9))
    world.write(thing("a", 7))
    assert world.read() == "9"


def test_a_list_whose_request_began_after_the_answer_ends_it_whatever_its_version(world: World) -> None:
    world.write(thing("a", 7))
    world.list("opaque", thing("a", 3))
    assert (world.read(), world.pending) == ("3", 0)


def test_a_list_in_flight_does_not_unless_it_is_as_new(world: World) -> None:
    mark = world.writer.mark()
    world.write(thing("a", 7))
    assert world.list(6, thing("a", 3), mark=mark) == [INIT_DONE]
    assert world.read() == "7"
    world.list(7, thing("a", 7), mark=mark)
    assert (world.read(), world.pending) == ("7", 0)


def test_a_deletion_hides_the_object_until_the_watch_shows_it(world: World) -> None:
    world.delete("a", "uid-a")
    world.events(6, Apply(thing("a", 6)))  # what happened before the deletion comes late
    assert world.read() is None
    world.events(7, Delete(thing("a", 7)))
    assert world.pending == 0


def test_a_deletion_does_not_hide_the_successor_that_somebody_else_made(world: World) -> None:
    world.delete("a", "uid-a")
    world.events(9, Apply(thing("a", 9, uid="second")))
    assert (world.read(), world.pending) == ("9", 0)


def test_a_deletion_and_a_new_creation_by_this_process_show_the_new_object(world: World) -> None:
    world.delete("a", "uid-a")
    world.write(thing("a", 8, uid="second"), "create")
    world.events(7, Delete(thing("a", 7)))
    assert world.read() == "8"
    world.delete("a", "uid-a")  # told late, by another thread
    assert world.read() == "8"


def test_a_late_answer_to_a_write_does_not_resurrect_what_this_process_deleted(world: World) -> None:
    world.delete("a", "uid-a")
    world.write(thing("a", 6))
    assert world.read() is None


def test_a_list_that_is_older_than_the_deletion_keeps_the_object_hidden(world: World) -> None:
    mark = world.writer.mark()
    world.delete("a", "uid-a")
    world.list(6, thing("a", 3), mark=mark)
    assert world.read() is None
    world.list(8, mark=mark)
    assert world.pending == 0


@pytest.mark.parametrize(("grace", "finalizers", "read"),
                         [(0, [], None), (0, ["f"], "7"), (30, [], "7"), (None, [], "7")])
def test_an_answered_object_that_is_being_deleted_is_gone_when_nothing_holds_it(
        world: World, grace: int | None, finalizers: list[str], read: str | None) -> None:
    times = {} if grace is None else {"deletionGracePeriodSeconds": grace}
    world.write(thing("a", 7, deletionTimestamp="2026-01-01T00:00:00Z", finalizers=finalizers, **times))
    assert world.read() == read


def test_a_selector_that_ceases_to_match_hides_the_object() -> None:
    world = World(WatcherConfig(label_selector="app=web"))
    world.list(5, thing("a", 3, labels={"app": "web"}))
    world.write(thing("a", 7, labels={"app": "db"}))
    assert world.read() is None
    world.events(7, Delete(thing("a", 7, labels={"app": "db"})))
    assert world.pending == 0


def test_an_object_that_left_the_selection_and_was_brought_back_is_read() -> None:
    world, web, db = World(WatcherConfig(label_selector="app=web")), {"app": "web"}, {"app": "db"}
    world.list(5, thing("a", 3, labels=web))
    world.write(thing("a", 7, labels=db))
    world.write(thing("a", 8, labels=web))
    world.events(7, Delete(thing("a", 7, labels=db)))
    assert world.read() == "8"
    world.events(8, Apply(thing("a", 8, labels=web)))
    world.events(9, Delete(thing("a", 9, labels=db)))
    world.write(thing("a", 10, labels=web))
    assert world.read() == "10"
    world.delete("a", "uid-a")
    assert world.read() is None


def test_a_predecessor_that_an_old_list_lacks_is_told_though_its_successor_is_newer() -> None:
    world = World()
    world.list(5)
    mark, first = world.writer.mark(), thing("a", 7, uid="first")
    world.write(first, "create")
    world.write(thing("a", 10, uid="second"), "create")
    assert world.list(8, mark=mark) == [Delete(first), INIT_DONE]
    assert world.read() == "10"
    assert world.list(9, mark=mark) == [INIT_DONE]


def test_an_object_that_the_selector_never_matched_leaves_nothing_behind() -> None:
    world = World(WatcherConfig(label_selector="app=web"))
    world.list(5)
    assert world.write(thing("a", 7, labels={"app": "db"}), "create") is None
    world.writer.progressed("8")
    assert (world.read(), world.pending) == (None, 0)


@pytest.mark.parametrize(("selector", "read"), [
    ("metadata.name=a", "7"), ("metadata.name=b", None), ("spec.node=n1", "7"), ("spec.node=n2", None),
    ("spec.unset=", "3"), ("spec.node!=n2", "3")])
def test_field_selectors_are_judged_as_far_as_texts_go(selector: str, read: str | None) -> None:
    world = World(WatcherConfig(field_selector=selector))
    world.list(5, thing("a", 3))
    world.write(thing("a", 7, spec={"node": "n1"}))
    assert world.read() == read


def test_writes_elsewhere_are_none_of_the_stores() -> None:
    world = World(namespace="other")
    world.list(5)
    world.write(thing("a", 7), "create")
    assert world.pending == 0


def test_modify_is_applied_and_what_it_raises_keeps_the_object_whole(caplog: pytest.LogCaptureFixture) -> None:
    def prune(obj: Thing) -> None:
        if obj.name == "bad":
            raise ValueError("no")
        obj.spec.clear()

    world = World(modify=prune)
    world.list(5)
    for number, name in enumerate(("a", "bad"), 7):
        world.write(thing(name, number, spec={"large": "x"}), "create")
    specs = {obj.name: dict(obj.spec) for obj in world.store}
    assert specs == {"a": {}, "bad": {"large": "x"}}
    assert "prune" in caplog.text


def test_metadata_stores_get_metadata_and_whole_stores_nothing_partial() -> None:
    partial = World(metadata_only=True)
    partial.list(5)
    partial.write(thing("a", 7, spec={"large": "x"}, labels={"b": "c"}), "create")
    (record,) = partial.store.records()
    assert record.partial
    assert b"large" not in record.raw
    assert json.loads(record.raw)["kind"] == "PartialObjectMetadata"
    whole = World()
    whole.list(5, thing("a", 3))
    whole.write(record)
    assert (whole.read(), whole.pending) == ("3", 1)


class ThingView(PartialView, frozen=True):
    spec: dict[str, int]


def test_stores_of_declared_fields_get_these() -> None:
    world = World(form=FieldsForm(THING, ThingView))
    world.list(5)
    world.write(thing("a", 7, spec={"size": 4}), "create")
    (record,) = world.store.records()
    assert record.view.spec == {"size": 4}


def test_a_scale_is_a_version_without_content(world: World) -> None:
    world.tell(Write(ObjectRef(THING, "a", "default"), "patch", "7", "uid-a", None, "scale"))
    assert (world.read(), world.pending) == ("3", 1)
    world.writer.progressed("7")
    assert world.pending == 0


def test_a_scale_that_changes_nothing_does_not_take_the_content_of_the_write_before_it(world: World) -> None:
    world.write(thing("a", 7))
    world.tell(Write(ObjectRef(THING, "a", "default"), "patch", "7", "uid-a", None, "scale"))
    assert (world.read(), world.pending) == ("7", 1)


# Objects that were made and deleted while nobody watched

def test_a_written_object_that_a_later_list_lacks_was_deleted_and_the_difference_says_so(world: World) -> None:
    child = thing("child", 7)
    world.write(child, "create")
    assert world.list(9, thing("a", 3)) == [Delete(child), INIT_DONE]
    assert world.list(10, thing("a", 3)) == [INIT_DONE]


def test_so_does_a_list_whose_version_is_later_though_its_request_was_not(world: World) -> None:
    mark, child = world.writer.mark(), thing("child", 7)
    world.write(child, "create")
    assert world.list(6, thing("a", 3), mark=mark) == [INIT_DONE]
    assert world.list(8, thing("a", 3), mark=mark) == [Delete(child), INIT_DONE]


def test_so_does_a_list_with_a_namesake(world: World) -> None:
    child, other = thing("child", 7), thing("child", 8, uid="second")
    world.write(child, "create")
    assert world.list(9, thing("a", 3), other) == [Delete(child), Apply(other), INIT_DONE]


def test_a_stored_object_is_deleted_once(world: World) -> None:
    stored = world.store.records()[0]
    world.write(thing("a", 7))
    assert world.list(9) == [Delete(stored), INIT_DONE]


def test_a_cached_first_list_says_so_only_by_its_version() -> None:
    world, child = World(), thing("child", 7)
    world.write(child, "create")
    world.reflector.list_begins(None)
    assert world.events(6, INIT, INIT_DONE) == [INIT_DONE]
    world.reflector.list_begins(None)
    assert world.events(8, INIT, INIT_DONE) == [Delete(child), INIT_DONE]


def test_a_write_that_is_told_only_after_such_a_list_was_stored_says_so_itself(world: World) -> None:
    world.list(9, thing("a", 3))
    child = thing("child", 7)
    assert world.write(child, "create") is child
    assert world.write(child, "create") is None


def test_a_late_answer_does_not_resurrect_what_a_list_has_shown_to_be_gone(world: World) -> None:
    child = thing("child", 7)
    world.write(child, "create")
    assert world.list(9, thing("a", 3)) == [Delete(child), INIT_DONE]
    assert world.write(thing("child", 8)) is None  # its deletion is reported once
    assert (world.read("child"), world.pending) == (None, 0)


@pytest.mark.parametrize("passed", [lambda world: world.events(9, Apply(thing("a", 9))),
                                    lambda world: world.events(9, Delete(thing("a", 9))),
                                    lambda world: world.writer.progressed("9")])
def test_a_late_answer_brings_nothing_back_that_the_watch_has_passed_when_nothing_else_was_written(
        world: World, passed: Any) -> None:
    child = thing("child", 7)
    passed(world)
    assert world.write(child, "create") is child  # made and deleted before
    assert (world.read("child"), world.pending) == (None, 0)


def test_a_deletion_that_is_told_after_a_list_has_shown_it_leaves_nothing_behind(world: World) -> None:
    world.list(9)
    world.delete("a", "uid-a")
    assert (world.read("a"), world.pending) == (None, 0)


@pytest.mark.parametrize(("known", "second"), [("stored", "9"), ("written", "9"), ("unknown", "9"), ("stored", "x")])
def test_a_deletion_that_is_told_after_a_list_has_shown_a_successor_does_not_hide_it(known: str, second: str) -> None:
    world, first = World(), thing("a", 3, uid="first")
    world.list(5, *([first] if known == "stored" else []))
    if known == "written":
        world.write(thing("a", 6, uid="first"), "create")
    successor = thing("a", second, uid="second")
    world.list(9, successor)
    world.delete("a", "first")
    assert (world.read(), world.pending) == (second, 0)
    assert world.write(thing("a", 4, uid="first")) is None or known == "unknown"  # else its deletion was delivered


def test_a_write_that_is_told_after_its_objects_deletion_was_has_the_deletion_delivered(world: World) -> None:
    world.delete("child", "uid-child")
    assert world.list(9, thing("a", 3)) == [INIT_DONE]  # nothing was known of the object
    child = thing("child", 7)
    assert world.write(child, "create") is child
    assert world.write(child) is None
    world.delete("other", "uid-other")
    other = thing("other", 10)
    assert world.write(other, "create") is None
    assert world.list(12, thing("a", 3)) == [Delete(other), INIT_DONE]
    world.delete("third", "uid-third")
    third = thing("third", 11)
    assert world.write(third, "create") is third  # the list has passed it already
    assert world.list(13, thing("a", 3)) == [INIT_DONE]


def test_a_deletion_that_is_told_late_does_not_hide_what_this_process_wrote_since() -> None:
    world = World()
    world.list(5)
    world.write(thing("a", 8, uid="second"), "create")
    world.delete("a", "first")
    assert world.read() == "8"


def test_the_last_event_is_about_the_object_that_exists(world: World) -> None:
    """Predecessors: one whose write becomes known late, one that an old list lacks, one that the server has undone."""
    second, first = thing("late", 9, uid="second"), thing("late", 7, uid="first")
    world.list(9, second, thing("a", 3))
    unseen = world.write(first, "create")
    assert unseen is first
    assert world.writer.deletion(first) == [Delete(first), Apply(second)]

    world = World()
    world.list(5)
    first, second = thing("a", 7, uid="first"), thing("a", 8, uid="second")
    world.write(first, "create")
    world.write(thing("a", 10, uid="second"))
    world.events(8, Apply(second))
    assert world.list(9, second, mark=-1) == [Delete(first), Apply(second), INIT_DONE]

    world = World()
    stored, undone, other = thing("a", 3), thing("a", 7, uid="other"), thing("b", 9)
    world.list(5, stored)
    world.write(undone)
    assert world.events(9, Apply(other)) == [Apply(other), Delete(undone), Apply(stored)]


# Writes that no watch selects

@pytest.mark.parametrize("config", [
    WatcherConfig(label_selector="app=web"), WatcherConfig(field_selector="spec.node=n1"),
    WatcherConfig(field_selector="status.phase!=Running")])
def test_writes_outside_the_selection_leave_reads_as_cheap_as_they_were(config: WatcherConfig) -> None:
    world = World(config)
    stored = [thing(f"s{number}", 3, labels={"app": "web"}) for number in range(5000)]
    world.list(5, *stored)
    for number in range(100):
        world.write(thing(f"other{number}", 10 + number, labels={"app": "db"}, spec={"node": "n2"}), "create")
    state = world.writer.state
    assert state.snapshot(True) is state.records
    tracemalloc.start()
    assert len(world.store) == 5000
    used = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert used < 20_000  # a copy of the dictionary takes ten times that


def test_reads_do_not_copy_for_deletions_that_the_watch_has_shown_nor_to_count(world: World) -> None:
    world.list(6, thing("a", 3), thing("b", 4), thing("c", 4))
    world.write(thing("a", 7))
    world.write(thing("new", 8), "create")
    world.delete("b", "uid-b")
    assert len(world.store) == len(world.store.list()) == 3
    world.events(9, Apply(thing("a", 7)), Apply(thing("new", 8)), Delete(thing("b", 9)))
    assert len(world.store) == 3
    assert world.writer.state.snapshot(True) is world.writer.state.records


@pytest.mark.parametrize("by_list", [False, True])
def test_an_object_outside_the_selection_is_hidden_from_the_moment_the_watch_shows_an_older_state(
        by_list: bool) -> None:
    world, web, db = World(WatcherConfig(label_selector="app=web")), {"app": "web"}, {"app": "db"}
    world.list(5)
    world.write(thing("a", 8, labels=db))
    older = thing("a", 7, labels=web)  # somebody else's, that came late
    if by_list:
        world.list(7, older, mark=-1)
    else:
        world.events(7, Apply(older))
    assert (world.read(), len(world.store), world.store.list()) == (None, 0, [])
    world.events(8, Delete(thing("a", 8, labels=db)))
    assert world.pending == 0


# Against a model: one server, one watch that lags, this client, whose threads report their writes late and in any
# order, and somebody else

NAMES = ("a", "b")
OWN = st.tuples(st.sampled_from(["create", "update", "relabel", "delete", "dry run"]), st.sampled_from(NAMES))
WORLD = st.lists(st.one_of(
    OWN, OWN, st.tuples(st.just("other delete"), st.sampled_from(NAMES)),
    st.tuples(st.just("other update"), st.sampled_from(NAMES)), st.tuples(st.just("watch"), st.just("")),
    st.tuples(st.just("gap"), st.just("")), st.tuples(st.just("list begins"), st.just("")),
    st.tuples(st.just("list served"), st.just("")), st.tuples(st.just("list done"), st.just("")),
    st.tuples(st.just("bookmark"), st.just("")), st.tuples(st.just("report"), st.just(""))), max_size=60)


class Server:
    """Objects with versions, their history, and a watch of those labelled app=web."""

    def __init__(self, *, late: bool) -> None:
        self.world = World(WatcherConfig(label_selector="app=web"))
        self.version = 10
        self.objects: dict[str, Record] = {}
        self.queue: list[tuple[int, Event[Record]]] = []
        self.floor: dict[str, int] = dict.fromkeys(NAMES, 0)
        """What a read must be at least as new as: the version of this client's last write or deletion."""
        self.begun: int | None = None
        self.served: tuple[int, list[Record]] | None = None
        self.made: dict[str, Record] = {}
        self.written: set[str] = set()
        self.told: list[Event[Record]] = []
        self.last: dict[str, list[tuple[int, Record | None]]] = {name: [(0, None)] for name in NAMES}
        self.watched = 10
        """What the watch has shown, as a version."""
        self.late = late
        """Whether writes are answered, and reported only later."""
        self.unreported: list[Callable[[], None]] = []
        self.world.list(10)

    def put(self, name: str, labels: dict[str, str]) -> Record:
        self.version += 1
        old = self.objects.get(name)
        record = thing(name, self.version, uid=old.uid if old else f"{name}-{self.version}", labels=labels)
        self.objects[name] = record
        self.last[name].append((self.version, record))
        web = labels.get("app") == "web"
        if web or (old is not None and _is_web(old)):
            self.queue.append((self.version, Apply(record) if web else Delete(record)))
        return record

    def remove(self, name: str) -> Record | None:
        old = self.objects.pop(name, None)
        if old is not None:
            self.version += 1
            self.last[name].append((self.version, None))
            if _is_web(old):
                gone = thing(name, self.version, uid=old.uid, labels=dict(old.head.labels or {}))
                self.queue.append((self.version, Delete(gone)))
        return old

    def act(self, what: str, name: str, rng: random.Random) -> None:
        labels = {"app": "web"}
        if what in ("create", "update") or (what == "relabel" and name in self.objects):
            self.own(self.put(name, {"app": "db"} if what == "relabel" else labels))
        elif what == "delete":
            old = self.remove(name)
            if old is not None:
                self.report(partial(self.own_deletion, name, old.uid, self.version))
        elif what == "report" and self.unreported:
            self.unreported.pop(rng.randrange(len(self.unreported)))()
        elif what == "other delete":
            self.remove(name)
        elif what == "other update":
            self.put(name, labels)
        elif what == "dry run":
            thing(name, self.version + 1)  # the client tells nobody of it
        elif what == "watch" and self.queue and self.begun is None:
            count = rng.randint(1, len(self.queue))
            batch, self.queue = self.queue[:count], self.queue[count:]
            self.watched = batch[-1][0]
            self.told += self.world.events(batch[-1][0], *(event for _, event in batch))
        elif what == "bookmark" and not self.queue and self.begun is None:
            self.watched = self.version
            self.world.writer.progressed(str(self.version))
        elif what in ("gap", "list begins") and self.begun is None:
            self.queue.clear()  # the history is lost
            self.begun = self.world.writer.mark()
            if what == "gap":
                self.act("list served", "", rng)
                self.act("list done", "", rng)
        elif what == "list served" and self.begun is not None and self.served is None:
            self.queue.clear()
            self.served = self.version, [record for record in self.objects.values() if _is_web(record)]
        elif what == "list done" and self.served is not None:
            version, records = self.served
            self.watched = version
            self.told += self.world.list(version, *records, mark=self.begun)
            self.begun = self.served = None
        if self.begun is not None and self.served is None:
            self.queue.clear()  # nothing can be watched before the list

    def report(self, reported: Callable[[], None]) -> None:
        if self.late:
            self.unreported.append(reported)
        else:
            reported()

    def own(self, record: Record) -> None:
        self.report(partial(self.own_write, record, self.version))

    def own_write(self, record: Record, version: int) -> None:
        self.written.add(record.uid)
        unseen = self.world.write(record)
        if unseen is not None:
            self.told += self.world.writer.deletion(unseen)
        self.floor[record.name] = max(version, self.floor[record.name])
        if _is_web(record):
            self.made[record.uid] = record

    def own_deletion(self, name: str, uid: str, version: int) -> None:
        shown = self.world.store.get(name, "default")
        if uid in self.written or (shown is not None and shown.uid == uid):  # else too little is known
            self.floor[name] = max(version, self.floor[name])
        self.world.delete(name, uid)

    def check(self) -> None:
        for name in NAMES:
            shown = self.world.store.get(name, "default")
            watched = max(version for version, _ in self.last[name] if version <= self.watched)
            known = [record if record is not None and _is_web(record) else None
                     for version, record in self.last[name] if version >= max(watched, self.floor[name])]
            allowed = [None if record is None else record.resource_version for record in known]
            assert (None if shown is None else shown.resource_version) in allowed
        assert len(self.world.store) == len(self.world.store.list())


def _is_web(record: Record) -> bool:
    return (record.head.labels or {}).get("app") == "web"


@settings(max_examples=examples(3000), deadline=None)
@given(WORLD, st.integers(0, 1000), st.booleans(), st.booleans())
def test_no_read_is_older_than_the_last_own_write_or_the_watch_and_no_deletion_is_lost(
        world: list[tuple[str, str]], seed: int, late: bool, reported_at_the_end: bool) -> None:
    server, rng = Server(late=late), random.Random(seed)
    reports = [("report", "")] * len(world)
    lists = [(what, "") for what in ("list begins", "list served", "list done") * 2]  # the first may be under way
    for what, name in [*world, *(lists + reports if reported_at_the_end else reports + lists)]:
        server.act(what, name, rng)
        server.check()
    for name in NAMES:
        about = [event for event in server.told if isinstance(event, Apply | Delete) and event.obj.name == name]
        last = about[-1] if about else None
        now = server.objects.get(name)
        assert isinstance(last, Apply) == (now is not None and _is_web(now)), (last, now)
        assert now is None or not isinstance(last, Apply) or last.obj.uid == now.uid
    gone = {event.obj.uid for event in server.told if isinstance(event, Delete)}
    alive = {record.uid for record in server.objects.values() if _is_web(record)}
    assert set(server.made) <= gone | alive
    for what, name in lists:
        server.act(what, name, rng)
        server.check()
    assert server.world.pending == 0


def test_what_cannot_be_decoded_is_not_shown(world: World) -> None:
    metadata = b'{"name":"a","namespace":"default","uid":"uid-a","resourceVersion":"7","labels":[]}'
    bad = decode_object(b'{"metadata":' + metadata + b"}", THING)
    world.write(bad)
    assert world.read() == "3"


@pytest.mark.parametrize("declared", [True, False])
def test_a_write_beside_a_lookup_by_index_does_not_disturb_it(declared: bool) -> None:
    """Index functions are user code: another write may come while one is called."""
    world = World()
    world.list(1)
    names = iter("bcdefgh")

    def function(obj: Thing) -> str:
        if (name := next(names, None)) is not None:
            world.write(thing(name, 2))
        return "all"

    if declared:
        world.store.add_index("by", function)
    world.write(thing("a", 2))
    for _ in range(3):
        found = world.store.by_index("by", "all") if declared else world.store.filter(lambda obj: bool(function(obj)))
        assert {obj.name for obj in found} >= {"a"}
