"""A store that shows what several watches keep, each the objects of one namespace; and one that goes from watch to
watch."""
from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.codec.views import Record
from kubectl_runtime.runtime.store.reflector import Reflector, StoreWriter
from kubectl_runtime.runtime.store.store import Store, StoreNotReady
from kubectl_runtime.runtime.watch.event import INIT, INIT_DONE, Apply, Delete, InitApply
from tests.runtime.watch.scripted_watch import THING, Thing, thing

PLACES = ("one", "two", "three")


class Several:
    """A store, and a writer and reflector for each namespace."""

    def __init__(self, *places: str) -> None:
        self.writers = {place: StoreWriter(THING, Thing.from_record) for place in places}
        self.store: Store[Thing] = Store(THING, Thing.from_record, *(one.state for one in self.writers.values()))
        self.reflectors = {place: Reflector(writer) for place, writer in self.writers.items()}

    def list(self, place: str, *records: Record) -> list[Any]:
        return self.reflectors[place].feed(INIT, *map(InitApply, records), INIT_DONE)

    @property
    def content(self) -> set[tuple[str | None, str, str]]:
        return content(self.store)


def content(store: Store[Thing]) -> set[tuple[str | None, str, str]]:
    return {(obj.namespace, obj.name, obj.resource_version) for obj in store}


def record(namespace: str, name: str, rv: int = 1) -> Record:
    return thing(name, rv, namespace=namespace, uid=f"uid-{namespace}-{name}", spec={"rv": rv})


def test_the_store_shows_nothing_before_the_list_of_each_namespace_is_complete() -> None:
    several = Several("one", "two")
    store = several.store
    store.add_index("name", lambda obj: obj.name)
    ready: list[int] = []
    store.when_ready(lambda: ready.append(len(store)))
    several.list("one", record("one", "a"))
    several.reflectors["one"].feed(Apply(record("one", "b")))
    assert (store.is_ready, len(store), store.get("a", "one"), store.by_index("name", "a"), ready) == (
        False, 0, None, [], [])
    several.list("two", record("two", "a"))
    assert several.content == {("one", "a", "1"), ("one", "b", "1"), ("two", "a", "1")}
    assert len(store.by_index("name", "a")) == 2
    assert ready == [3]
    several.list("two")
    assert ready == [3]


def test_a_list_of_one_namespace_takes_nothing_of_the_others_away() -> None:
    several = Several("one", "two")
    for place in ("one", "two"):
        several.list(place, record(place, "a"), record(place, "b"))
    changes = several.list("one", record("one", "b"))
    assert [type(change).__name__ for change in changes] == ["Delete", "InitDone"]
    assert several.content == {("one", "b", "1"), ("two", "a", "1"), ("two", "b", "1")}


def test_the_trouble_of_each_namespace_is_told_until_it_is_over() -> None:
    several = Several("one", "two")
    several.writers["one"].trouble("forbidden in one")
    several.writers["two"].trouble("timeout in two")
    assert several.store.trouble == "forbidden in one; timeout in two"
    several.writers["one"].trouble("")
    with pytest.raises(StoreNotReady, match="last failure: timeout in two"):
        several.store.wait_until_ready(0)


STEPS = st.lists(st.tuples(st.sampled_from(PLACES), st.sampled_from(["list", "apply", "delete"]),
                           st.sampled_from("abc")), max_size=40)


@given(STEPS)
def test_the_store_is_what_the_namespaces_are_together(steps: list[tuple[str, str, str]]) -> None:
    several = Several(*PLACES)
    world: dict[str, dict[str, int]] = {place: {} for place in PLACES}
    listed: set[str] = set()
    for number, (place, what, name) in enumerate(steps, 1):
        if what == "apply":
            world[place][name] = number
        elif what == "delete":
            world[place].pop(name, None)
        if what == "list":
            listed.add(place)
            several.list(place, *(record(place, one, rv) for one, rv in world[place].items()))
        elif place in listed:
            changed = record(place, name, number)
            several.reflectors[place].feed(Apply(changed) if what == "apply" else Delete(changed))
        complete = listed == set(PLACES)
        assert several.store.is_ready is complete
        assert several.content == ({(where, one, str(rv)) for where, there in world.items()
                                    for one, rv in there.items()} if complete else set())


def test_a_store_that_goes_to_another_watch_takes_its_indexes_and_its_waiters_along() -> None:
    first, second = Several("one"), Several("one")
    store = first.store
    store.add_index("name", lambda obj: obj.name)
    told: list[str] = []
    store.when_ready(lambda: told.append("ready"))
    waiting = threading.Thread(target=lambda: (store.wait_until_ready(20), told.append("waited")), daemon=True)
    waiting.start()
    second.list("one", record("one", "a"), record("one", "b"))
    store.shows(second.writers["one"].state)
    waiting.join(20)
    assert sorted(told) == ["ready", "waited"]
    assert (content(store), [obj.name for obj in store.by_index("name", "b")]) == (
        {("one", "a", "1"), ("one", "b", "1")}, ["b"])
    second.reflectors["one"].feed(Delete(record("one", "b", 2)), Apply(record("one", "c", 3)))
    assert ([*store.by_index("name", "b")], [obj.name for obj in store.by_index("name", "c")]) == ([], ["c"])
    assert not first.writers["one"].state.indexes.functions, "nobody reads there any more"
    with pytest.raises(RequestError, match="already has an index"):
        store.add_index("name", lambda obj: obj.namespace)


def test_without_its_indexes_a_store_looks_at_each_object() -> None:
    """A store whose user is gone keeps answering, at no cost to the others that read from the same watch."""
    several = Several("one")
    several.store.add_index("name", lambda obj: obj.name)
    several.list("one", record("one", "a"), record("one", "b"))
    several.store.drop_indexes()
    several.reflectors["one"].feed(Apply(record("one", "c")))
    assert [obj.name for obj in several.store.by_index("name", "c")] == ["c"]
    assert several.store.by_index("name", "x") == []
