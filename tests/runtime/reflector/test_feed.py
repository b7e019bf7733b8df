"""A store that several writers fill, each with the objects of one namespace."""
from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kubectl_runtime.core.base.clock import SYSTEM_CLOCK
from kubectl_runtime.core.codec.record import Record
from kubectl_runtime.runtime.reflector.feed import Feed
from kubectl_runtime.runtime.reflector.reflector import Reflector
from kubectl_runtime.runtime.watcher.event import INIT, INIT_DONE, Apply, Delete, InitApply
from tests.runtime.watcher.watch_fakes import THING, Thing, thing

PLACES = ("one", "two", "three")


def feed(*namespaces: str) -> Feed[Thing]:
    return Feed(THING, Thing.from_record, namespaces, SYSTEM_CLOCK)


def record(namespace: str, name: str, rv: int = 1) -> Record:
    return thing(name, rv, namespace=namespace, uid=f"uid-{namespace}-{name}", spec={"rv": rv})


def content(fed: Feed[Thing]) -> set[tuple[str | None, str, str]]:
    return {(obj.namespace, obj.name, obj.resource_version) for obj in fed.store}


def test_the_store_shows_nothing_before_the_list_of_each_namespace_is_complete() -> None:
    fed = feed("one", "two")
    fed.store.add_index("name", lambda obj: obj.name)
    ready: list[int] = []
    fed.store.when_ready(lambda: ready.append(len(fed.store)))
    one, two = map(Reflector, fed.renew())
    one.feed(INIT, InitApply(record("one", "a")), INIT_DONE, Apply(record("one", "b")))
    assert (fed.store.is_ready, len(fed.store), fed.store.get("a", "one"), fed.store.by_index("name", "a")) == (
        False, 0, None, [])
    two.feed(INIT, InitApply(record("two", "a")), INIT_DONE)
    assert content(fed) == {("one", "a", "1"), ("one", "b", "1"), ("two", "a", "1")}
    assert len(fed.store.by_index("name", "a")) == 2
    assert ready == [3]


def test_a_list_of_one_namespace_takes_nothing_of_the_others_away() -> None:
    fed = feed("one", "two")
    one, two = map(Reflector, fed.renew())
    for reflector, place in ((one, "one"), (two, "two")):
        reflector.feed(INIT, InitApply(record(place, "a")), InitApply(record(place, "b")), INIT_DONE)
    changes = one.feed(INIT, InitApply(record("one", "b")), INIT_DONE)
    assert [type(change).__name__ for change in changes] == ["Delete", "InitDone"]
    assert content(fed) == {("one", "b", "1"), ("two", "a", "1"), ("two", "b", "1")}


def test_who_observes_one_namespace_hears_of_no_other() -> None:
    fed = feed("one", "two")
    one, two = fed.renew()
    observer = object()
    assert one.attach(observer) == (False, [])
    assert Reflector(two).commits([INIT, InitApply(record("two", "a")), INIT_DONE])[0].observers == ()
    assert Reflector(one).commits([INIT, InitApply(record("one", "a")), INIT_DONE])[0].observers == (observer,)
    ready, stored = two.attach(observer)
    assert (ready, [found.namespace for found in stored]) == (True, ["two"])


def test_the_trouble_of_each_namespace_is_told_until_it_is_over() -> None:
    fed = feed("one", "two")
    one, two = fed.renew()
    one.trouble("forbidden in one")
    two.trouble("timeout in two")
    one.trouble("")
    assert fed._state.trouble == "timeout in two"


STEPS = st.lists(st.tuples(st.sampled_from(PLACES), st.sampled_from(["list", "apply", "delete"]),
                           st.sampled_from("abc")), max_size=40)


@given(STEPS)
def test_the_store_is_what_the_namespaces_are_together(steps: list[tuple[str, str, str]]) -> None:
    fed = feed(*PLACES)
    reflectors: dict[str, Any] = dict(zip(PLACES, map(Reflector, fed.renew()), strict=True))
    world: dict[str, dict[str, int]] = {place: {} for place in PLACES}
    listed: set[str] = set()
    for number, (place, what, name) in enumerate(steps, 1):
        if what == "apply":
            world[place][name] = number
        elif what == "delete":
            world[place].pop(name, None)
        if what == "list":
            listed.add(place)
            items = [InitApply(record(place, one, rv)) for one, rv in world[place].items()]
            reflectors[place].feed(INIT, *items, INIT_DONE)
        elif place in listed:
            changed = record(place, name, number)
            reflectors[place].feed(Apply(changed) if what == "apply" else Delete(changed))
        complete = listed == set(PLACES)
        assert fed.store.is_ready is complete
        assert content(fed) == ({(where, one, str(rv)) for where, there in world.items() for one, rv in there.items()}
                                if complete else set())
