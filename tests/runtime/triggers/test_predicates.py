"""Predicates, and the stages that flatten, prune and filter a stream."""
from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.runtime.store.reflector import StoreWriter, reflector
from kubectl_runtime.runtime.triggers import predicates
from kubectl_runtime.runtime.triggers.predicates import ObjectEvent, Predicate
from kubectl_runtime.runtime.triggers.streams import (
    PredicateCache,
    applied_objects,
    modify,
    predicate_filter,
    touched_objects,
)
from kubectl_runtime.runtime.watch.driver import reader_of
from kubectl_runtime.runtime.watch.event import INIT, INIT_DONE, Apply, Delete, Event, InitApply
from kubectl_runtime.testing.clock import SimClock
from tests.runtime.watch.scripted_watch import THING, Thing, broken, thing


def obj(name: str = "a", rv: int = 1, **more: Any) -> Thing:
    return Thing.from_record(thing(name, rv, **more))


def passed(predicate: Predicate[Any], *objects: Thing) -> list[bool]:
    cache = PredicateCache(predicate)
    return [cache.passes(Apply(o)) for o in objects]


def test_generation_hides_what_does_not_change_it() -> None:
    assert passed(predicates.generation, obj(generation=1), obj(rv=2, generation=1), obj(rv=3, generation=2)) == [
        True,
        False,
        True,
    ]


def test_a_kind_without_generation_always_passes() -> None:
    assert passed(predicates.generation, obj(rv=1), obj(rv=2), obj(rv=3)) == [True, True, True]


def test_resource_version_hides_repetitions() -> None:
    assert passed(predicates.resource_version, obj(rv=1), obj(rv=1), obj(rv=2)) == [True, False, True]


@pytest.mark.parametrize(("predicate", "key", "first", "second"), [
    (predicates.labels, "labels", {"a": "1", "b": "2"}, {"a": "2", "b": "2"}),
    (predicates.annotations, "annotations", {"a": "1"}, {}),
    (predicates.finalizers, "finalizers", ["x"], ["x", "y"])])
def test_each_predicate_watches_its_part(predicate: Predicate[Any], key: str, first: Any, second: Any) -> None:
    states = [
        obj(rv=1, **{key: first}),
        obj(rv=2, **{key: first}),
        obj(rv=3, **{key: second}),
        obj(rv=4, **{key: None}),
    ]
    assert passed(predicate, *states)[:3] == [True, False, True]


def test_null_collections_count_as_empty() -> None:
    assert passed(predicates.labels, obj(labels=None), obj(rv=2, labels={}), obj(rv=3)) == [True, False, False]


def test_combine_passes_when_either_changes() -> None:
    both = predicates.generation.combine(predicates.finalizers)
    assert passed(both, obj(generation=1), obj(generation=1), obj(generation=1, finalizers=["x"]),
                  obj(generation=2, finalizers=["x"])) == [True, False, True, True]


def test_combine_has_no_opinion_when_neither_has_one() -> None:
    silent = predicates.value(lambda obj: None)
    assert passed(silent.combine(silent), obj(), obj()) == [True, True]


def test_fallback_takes_over_where_the_first_has_no_opinion() -> None:
    either = predicates.generation.fallback(predicates.resource_version)
    assert passed(either, obj(rv=1), obj(rv=1), obj(rv=2), obj(rv=3, generation=1), obj(rv=4, generation=1)) == [
        True, False, True, True, False]


def test_a_deletion_timestamp_passes_although_the_generation_is_the_same() -> None:
    going = obj(rv=2, generation=1, deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["x"])
    assert passed(predicates.generation, obj(generation=1), going, going) == [True, True, False]


def test_a_new_object_of_the_same_name_and_generation_passes() -> None:
    assert passed(predicates.generation, obj(generation=1, uid="1"), obj(generation=1, uid="2")) == [True, True]


def test_a_deletion_always_passes_and_is_forgotten() -> None:
    cache = PredicateCache(predicates.generation)
    assert [
        cache.passes(event) for event in (Apply(obj(generation=1)), Delete(obj(generation=1)), Apply(obj(generation=1)))
    ] == [True, True, True]
    assert cache.passes(Delete(obj(generation=1)))
    assert len(cache) == 0


def test_what_was_not_seen_for_its_time_to_live_passes_again() -> None:
    clock = SimClock()
    cache = PredicateCache(predicates.generation, ttl=60, clock=clock)
    verdicts = []
    for _ in range(3):
        verdicts.append(cache.passes(Apply(obj(generation=1))))
        clock.advance(59)
    clock.advance(2)
    verdicts.append(cache.passes(Apply(obj(generation=1))))
    assert verdicts == [True, False, False, True]


def test_the_memory_is_bounded_by_time_size_and_complete_lists() -> None:
    clock = SimClock()
    cache = PredicateCache(predicates.generation, ttl=60, max_size=100, clock=clock)
    for n in range(10_000):
        cache.passes(Apply(obj(f"n{n}", generation=1)))
    assert len(cache) == 100
    clock.advance(61)
    cache.passes(Apply(obj("last", generation=1)))
    assert len(cache) == 1
    for event in (INIT, InitApply(obj("listed", generation=1)), INIT_DONE):
        cache.passes(event)
    assert len(cache) == 1


@pytest.mark.parametrize("failure", [ValueError, SystemExit])
def test_a_predicate_that_raises_is_reported_and_lets_pass(
    failure: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    def value(obj: Thing) -> int:
        raise failure("no")

    assert passed(predicates.value(value), obj(), obj()) == [True, True]
    assert "predicate" in caplog.text


def test_an_undecodable_object_passes() -> None:
    cache = PredicateCache(predicates.labels)
    assert cache.passes(Apply(reader_of(Thing)(broken("bad", 1))))


def test_events_without_an_object_and_deletions_pass_and_a_repeated_value_does_not() -> None:
    cache = PredicateCache(predicates.generation)
    events: list[Event[Thing]] = [
        Apply(obj(generation=1)),
        Apply(obj(rv=2, generation=1)),
        INIT_DONE,
        Delete(obj(rv=3, generation=1)),
    ]
    assert [cache.passes(event) for event in events] == [True, False, True, True]


EVENTS: list[Event[Thing]] = [INIT, InitApply(obj("listed")), INIT_DONE, Apply(obj("applied")), Delete(obj("deleted"))]


def test_flattening_with_and_without_deletions() -> None:
    assert [o.name for o in applied_objects(EVENTS)] == ["listed", "applied"]
    assert [o.name for o in touched_objects(EVENTS)] == ["listed", "applied", "deleted"]


def test_the_filter_of_a_stream_of_objects() -> None:
    objects = [obj(generation=1), obj(rv=2, generation=1), obj("b", generation=1), obj(rv=3, generation=2)]
    assert [(o.name, o.resource_version) for o in predicate_filter(objects, predicates.generation)] == [
        ("a", "1"),
        ("b", "1"),
        ("a", "3"),
    ]


def prune(o: Thing) -> None:
    if o.name == "bad":
        raise SystemExit("no")
    o.spec.clear()


def test_modify_prunes_before_the_store_and_marks_the_object_as_partial() -> None:
    writer = StoreWriter(THING, Thing.from_record)
    events = [INIT, InitApply(obj(spec={"large": "x"})), INIT_DONE, Apply(obj("b", spec={"large": "x"}))]
    list(reflector(writer, modify(events, prune)))
    for record in writer.records().values():
        assert b"large" not in record.raw
        assert record.partial


def test_modify_changes_the_object_of_every_event_that_has_one_and_passes_the_others_on() -> None:
    events = [INIT, *(kind(obj(name, spec={"large": "x"})) for kind, name in (
        (InitApply, "listed"), (Apply, "applied"), (Delete, "deleted"))), INIT_DONE]
    out = list(modify(events, prune))
    assert [type(event) for event in out] == [type(event) for event in events]
    assert [b"large" in event.obj.record.raw for event in out if hasattr(event, "obj")] == [False] * 3


def test_modify_that_raises_is_reported_and_the_object_goes_on_unpruned(caplog: pytest.LogCaptureFixture) -> None:
    (event,) = modify([Apply(obj("bad", spec={"large": "x"}))], prune)
    assert isinstance(event, Apply)
    assert event.obj.spec == {"large": "x"}
    assert "prune, given" in caplog.text


def test_every_stage_closes_its_source() -> None:
    closed: list[int] = []

    def source() -> Iterator[Event[Thing]]:
        try:
            yield from EVENTS
        finally:
            closed.append(1)

    stages: list[Any] = [applied_objects(source()), touched_objects(source()), modify(source(), lambda o: None),
                         predicate_filter(touched_objects(source()), predicates.generation)]
    for stage in stages:
        next(stage)
        stage.close()
    assert len(closed) == len(stages)




# Values

class Free(msgspec.Struct):
    """A part of a view whose content is not declared."""

    content: dict[str, Any]


@dataclass
class Plain:
    """The same as a dataclass."""

    content: list[Any]


@pytest.mark.parametrize(("before", "now"), [(-1, -2), (1, True), (0, False), (1, 1.0), ((1,), (True,)), ([-1], [-2]),
                                             ({"a": -1}, {"a": -2}), ({"a": [1]}, {"a": [True]}), ("", None),
                                             ((1,), [1]), ({"a": 1}, {"b": 1}), ({1}, {True}), ({1}, frozenset({1})),
                                             (Free({"a": 1}), Free({"a": True})), (Plain([0]), Plain([False]))])
def test_values_are_compared_and_not_their_hashes_and_are_of_one_type(before: Any, now: Any) -> None:
    values = iter([now, before])
    assert predicates.value(lambda obj: next(values)).passes(ObjectEvent(obj(rv=2), obj()))


@pytest.mark.parametrize("same", [None, -1, True, "x", (1, "a"), [1, [2]], {"a": {"b": [1]}}, {1, "a"},
                                  Free({"a": [1]}), Plain([True])])
def test_an_equal_value_is_hidden_whatever_its_type(same: Any) -> None:
    seen = iter([same, copy.deepcopy(same)])
    assert predicates.value(lambda obj: next(seen)).passes(ObjectEvent(obj(rv=2), obj())) is (same is None)


def test_each_of_a_row_of_levels_passes_also_where_their_hashes_are_equal() -> None:
    levels = [obj(rv=n + 1, spec={"level": level}) for n, level in enumerate((0, -1, -2, -3))]
    assert passed(predicates.value(lambda o: o.spec["level"]), *levels) == [True] * 4


def test_what_is_done_to_an_object_later_does_not_change_what_is_remembered() -> None:
    """The value may be a part of the object itself."""
    cache = PredicateCache(predicates.value(lambda o: o.spec))
    first = obj(spec={"level": 1})
    assert cache.passes(Apply(first))
    first.spec["level"] = 2
    assert not cache.passes(Apply(obj(rv=2, spec={"level": 1})))


# From the state before, as a controller knows it

def test_without_a_state_before_a_value_passes() -> None:
    assert predicates.generation.passes(ObjectEvent(obj(generation=1)))


def test_a_deletion_passes_every_value() -> None:
    assert predicates.generation.passes(ObjectEvent(obj(generation=1), obj(generation=1), deleted=True))


@pytest.mark.parametrize(("before", "now", "expected"), [
    ("web", "web", True), ("web", "db", True), ("db", "web", True), ("db", "db", False), (None, "web", True),
    (None, "db", False)])
@pytest.mark.parametrize("deleted", [False, True])
def test_a_selector_passes_what_matches_now_or_matched_before(before: str | None, now: str, expected: bool,
                                                              deleted: bool) -> None:
    old = None if before is None else obj(labels={"app": before})
    assert predicates.selector("app=web").passes(ObjectEvent(obj(rv=2, labels={"app": now}), old, deleted)) is expected


def test_what_is_no_selector_is_refused_when_the_predicate_is_made() -> None:
    with pytest.raises(RequestError):
        predicates.selector("app=web=db")


@pytest.mark.parametrize("verdict", [True, False])
@pytest.mark.parametrize("event", [ObjectEvent(obj()), ObjectEvent(obj(rv=2, uid="other"), obj()),
                                   ObjectEvent(obj(), None, deleted=True)])
def test_when_decides_alone_deletions_included(event: ObjectEvent[Thing], verdict: bool) -> None:
    seen: list[ObjectEvent[Thing]] = []

    def decide(given: ObjectEvent[Thing]) -> bool:
        seen.append(given)
        return verdict

    assert predicates.when(decide).passes(event) is verdict
    assert seen == [event]


YES: Predicate[Any] = predicates.when(lambda event: True)
NO: Predicate[Any] = predicates.when(lambda event: False)
SILENT: Predicate[Any] = predicates.value(lambda obj: None)
AGAIN: ObjectEvent[Any] = ObjectEvent(obj(rv=2), obj())


@pytest.mark.parametrize(("predicate", "expected"), [
    (YES & YES, True), (YES & NO, False), (NO & YES, False), (SILENT & NO, False), (NO & SILENT, False),
    (SILENT & YES, True), (SILENT & SILENT, True),
    (YES.combine(NO), True), (NO.combine(YES), True), (NO.combine(NO), False), (SILENT.combine(NO), False),
    (SILENT.combine(SILENT), True),
    (NO.fallback(YES), False), (YES.fallback(NO), True), (SILENT.fallback(NO), False), (SILENT.fallback(YES), True)])
def test_and_or_and_else(predicate: Predicate[Any], expected: bool) -> None:
    assert predicate.passes(AGAIN) is expected


def test_and_does_not_ask_the_second_when_the_first_says_no() -> None:
    def never(event: ObjectEvent[Any]) -> bool:
        raise AssertionError("asked")

    assert not (NO & predicates.when(never)).passes(AGAIN)


def test_an_object_or_a_state_before_that_does_not_decode_is_shown_to_no_predicate() -> None:
    bad = reader_of(Thing)(broken("bad", 1))
    seen: list[ObjectEvent[Any]] = []
    ask = predicates.when(lambda event: bool(seen.append(event)))
    assert ask.passes(ObjectEvent(bad, obj()))
    assert not ask.passes(ObjectEvent(obj(), bad))
    assert [event.old for event in seen] == [None]


def test_the_filter_of_a_stream_of_events_lets_lists_and_deletions_through() -> None:
    events: list[Event[Thing]] = [INIT, InitApply(obj(generation=1)), INIT_DONE, Apply(obj(rv=2, generation=1)),
                                  Apply(obj(rv=3, generation=2)), Delete(obj(rv=4, generation=2))]
    assert list(predicate_filter(events, predicates.generation)) == [*events[:3], *events[4:]]
