"""The store: reads, readiness, indexes."""
from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.codec.views import Record
from kubectl_runtime.core.meta.gvk import ApiResource, ObjectRef
from kubectl_runtime.core.meta.selectors import Selector
from kubectl_runtime.runtime.store.reflector import Reflector, StoreWriter
from kubectl_runtime.runtime.store.reflector import store as store_for
from kubectl_runtime.runtime.store.store import Store, StoreNotReady
from kubectl_runtime.runtime.watch.event import Apply, Delete
from kubectl_runtime.testing.clock import SimClock
from tests.runtime.watch.scripted_watch import THING, Foo, Thing, thing

OTHER = ApiResource("other.example", "v1", "Thing", "things")


def fill(writer: StoreWriter, *records: Record) -> None:
    new = {record.key: record for record in records}
    writer.replace(new, dict(new))


@pytest.fixture
def clock() -> SimClock:
    return SimClock()


@pytest.fixture
def writer(clock: SimClock) -> StoreWriter:
    return StoreWriter(THING, Thing.from_record, clock=clock)


@pytest.fixture
def store(writer: StoreWriter) -> Store[Thing]:
    return writer.store


def test_a_namespaced_object_is_found_by_ref_and_by_name(writer: StoreWriter, store: Store[Thing]) -> None:
    fill(writer, thing("a", 7))
    ref = ObjectRef(THING, "a", "default")
    for found in (
        store.get(ref),
        store.get("a", "default"),
        store.get(ObjectRef(THING.with_version("v2"), "a", "default")),
    ):
        assert found is not None
        assert found.resource_version == "7"
    assert ref in store
    assert len(store) == 1


def test_the_name_of_a_namespaced_object_needs_its_namespace(writer: StoreWriter, store: Store[Thing]) -> None:
    fill(writer, thing("a"))
    for name in ("a", "default/a"):
        for read in (store.get, store.record):
            with pytest.raises(RequestError, match=rf"are namespaced, so the name '{name}' is not enough"):
                read(name)
    assert store.get("a", "elsewhere") is None
    assert store.get(ObjectRef(THING, "a")) is None


def test_a_cluster_scoped_object_is_found_with_and_without_a_namespace() -> None:
    writer = StoreWriter(Foo.api_resource, Foo.from_record)
    store = writer.store
    fill(writer, thing("f", namespace=None, resource=Foo.api_resource))
    assert store.get("f") is not None
    assert store.get(ObjectRef(Foo.api_resource, "f", "default")) is not None


def test_a_ref_of_another_kind_is_a_mistake_to_get_and_simply_not_in_the_store(store: Store[Thing]) -> None:
    ref = ObjectRef(OTHER, "a", "default")
    assert ref not in store
    with pytest.raises(RequestError, match=r"is not of the kind things.*, which this store holds"):
        store.get(ref)


def test_readers_cannot_change_what_is_stored(writer: StoreWriter, store: Store[Thing]) -> None:
    fill(writer, thing("a", spec={"size": 1}, labels={"app": "web"}))
    first = store.get("a", "default")
    assert first is not None
    first.spec["size"] = 2
    assert first.metadata.labels is not None
    first.metadata.labels["app"] = "changed"
    second = store.get("a", "default")
    assert second is not None
    assert second.spec == {"size": 1}
    assert second.labels == {"app": "web"}


def test_find_and_filter_by_function_and_by_selector(writer: StoreWriter, store: Store[Thing]) -> None:
    fill(writer, thing("a", labels={"app": "web"}), thing("b", labels={"app": "db"}), thing("c"))
    found = store.find(lambda obj: obj.name == "b")
    assert found is not None
    assert found.name == "b"
    assert store.find(lambda obj: obj.name == "zzz") is None
    assert [obj.name for obj in store.filter(lambda obj: obj.name > "a")] == ["b", "c"]
    for selection in (Selector.parse("app in (web)"), "app=web", {"app": "web"}, {"matchLabels": {"app": "web"}}):
        assert [obj.name for obj in store.filter(selection)] == ["a"]
    with pytest.raises(RequestError):
        store.filter(["app"])  # type: ignore[arg-type]
    assert sorted(obj.name for obj in store) == ["a", "b", "c"]


def test_what_a_predicate_raises_reaches_the_caller_and_no_lock_is_held(
    writer: StoreWriter, store: Store[Thing]
) -> None:
    fill(writer, thing("a"))

    def predicate(obj: Thing) -> bool:
        worker = threading.Thread(target=lambda: store.get("a", "default"))
        worker.start()
        worker.join(10)
        assert not worker.is_alive(), "another thread cannot read while a predicate runs"
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        store.find(predicate)


def test_waiting_ends_with_the_first_complete_list_for_every_waiter(
    writer: StoreWriter, store: Store[Thing], clock: SimClock
) -> None:
    waiters = [threading.Thread(target=store.wait_until_ready, args=(60,)) for _ in range(5)]
    for waiter in waiters:
        waiter.start()
    clock.settle(5)
    assert not store.is_ready
    fill(writer)
    for waiter in waiters:
        waiter.join(10)
        assert not waiter.is_alive()
    store.wait_until_ready(0)
    assert store.is_ready


def test_waiting_too_long_says_what_and_why() -> None:
    clock = SimClock(self_advancing=True)
    writer = StoreWriter(THING, Thing.from_record, clock=clock)
    writer.trouble("cannot list things.test.example: forbidden")
    with pytest.raises(
        StoreNotReady, match=r"things.test.example: no complete list after 5 s; last failure: .*forbidden"
    ):
        writer.store.wait_until_ready(5)
    assert clock.monotonic() == 5


def test_waiting_ends_when_the_watch_does(writer: StoreWriter, store: Store[Thing], clock: SimClock) -> None:
    failures: list[StoreNotReady] = []

    def wait() -> None:
        try:
            store.wait_until_ready()
        except StoreNotReady as error:
            failures.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    clock.settle()
    writer.end("shutdown")
    waiter.join(10)
    assert "shutdown" in str(failures[0])


def test_an_ended_store_that_was_complete_keeps_answering(writer: StoreWriter, store: Store[Thing]) -> None:
    fill(writer, thing("a"))
    writer.end("shutdown")
    store.wait_until_ready(0)
    assert store.get("a", "default") is not None


def names(store: Store[Thing], index: str, value: object) -> list[str]:
    return sorted(obj.name for obj in store.by_index(index, value))


def by_app(obj: Thing) -> str | None:
    return obj.labels.get("app")


def test_an_index_follows_changes_deletions_and_new_lists(writer: StoreWriter, store: Store[Thing]) -> None:
    store.add_index("app", by_app)
    a, b = thing("a", labels={"app": "web"}), thing("b", labels={"app": "web"})
    fill(writer, a, b)
    assert names(store, "app", "web") == ["a", "b"]
    moved = thing("a", 2, labels={"app": "db"})
    writer.commit({moved.key: moved})
    assert (names(store, "app", "web"), names(store, "app", "db")) == (["b"], ["a"])
    writer.commit({b.key: None})
    assert names(store, "app", "web") == []
    writer.replace({}, {moved.key: None})
    assert names(store, "app", "db") == []


def test_an_index_that_there_is_not_is_refused_with_what_makes_one(store: Store[Thing]) -> None:
    with pytest.raises(RequestError, match=r"no index 'team' \(it has none\): its add_index\('team', function\) adds"):
        store.by_index("team", "red")
    store.add_index("size", lambda obj: obj.name)
    with pytest.raises(RequestError, match=r"no index 'team' \(it has size\)"):
        store.by_index("team", "red")


def test_an_index_may_be_added_late_and_give_several_values(writer: StoreWriter, store: Store[Thing]) -> None:
    fill(writer, thing("a", labels={"x": "1", "y": "2"}), thing("b"))
    store.add_index("label", lambda obj: list(obj.labels))
    assert names(store, "label", "x") == names(store, "label", "y") == ["a"]
    with pytest.raises(RequestError, match="already has an index"):
        store.add_index("label", by_app)
    with pytest.raises(RequestError, match=r"no index 'app' \(it has label\)"):
        store.by_index("app", "web")


@pytest.mark.parametrize("failure", [ValueError, SystemExit])
def test_an_index_function_that_raises_is_reported_and_leaves_that_object_out(
    writer: StoreWriter, store: Store[Thing], caplog: pytest.LogCaptureFixture, failure: type[BaseException]
) -> None:
    def function(obj: Thing) -> str:
        if obj.name == "bad":
            raise failure("no")
        return "all"

    store.add_index("all", function)
    fill(writer, thing("bad"), thing("good"))
    assert names(store, "all", "all") == ["good"]
    assert "index all, given Thing" in caplog.text


def test_index_functions_run_without_a_lock(writer: StoreWriter, store: Store[Thing]) -> None:
    fill(writer, thing("a"))

    def function(obj: Thing) -> str:
        reader = threading.Thread(target=store.list)
        reader.start()
        reader.join(10)
        assert not reader.is_alive()
        return "all"

    store.add_index("all", function)
    writer.commit({("default", "b"): thing("b")})
    assert names(store, "all", "all") == ["a", "b"]


def test_a_change_while_an_index_is_being_built_is_not_lost(writer: StoreWriter, store: Store[Thing]) -> None:
    fill(writer, thing("a", labels={"app": "old"}), thing("gone", labels={"app": "old"}))
    changed = thing("a", 2, labels={"app": "new"})
    begun: list[bool] = []

    def function(obj: Thing) -> str | None:
        if not begun:  # the writer gets in between while the index is computed for what was stored
            begun.append(True)
            writer.commit({("default", "a"): changed, ("default", "gone"): None})
        return by_app(obj)

    store.add_index("app", function)
    assert names(store, "app", "new") == ["a"]
    assert names(store, "app", "old") == []


@pytest.mark.parametrize("a_list", [True, False])
def test_an_index_that_is_declared_while_a_write_is_prepared_gets_that_write(
    writer: StoreWriter, store: Store[Thing], a_list: bool
) -> None:
    declared: list[bool] = []

    def first(obj: Thing) -> str:
        if not declared:
            declared.append(True)
            store.add_index("second", by_app)
        return "all"

    store.add_index("first", first)
    a = thing("a", labels={"app": "web"})
    if a_list:
        fill(writer, a)
    else:
        writer.commit({a.key: a})
    assert names(store, "second", "web") == ["a"]
    assert names(store, "first", "all") == ["a"]


def test_an_index_holds_each_value_once_however_often_the_function_gives_it(
        writer: StoreWriter, store: Store[Thing]) -> None:
    store.add_index("words", lambda obj: obj.spec["words"].split())
    fill(writer, thing("a", spec={"words": "s1 s1 s2"}))
    fill(writer, thing("a", 2, spec={"words": "s2 s2"}))
    assert (names(store, "words", "s1"), names(store, "words", "s2")) == ([], ["a"])
    writer.commit({("default", "a"): None})
    assert names(store, "words", "s2") == []


class Touchy:
    """A value that cannot be compared with others."""

    def __hash__(self) -> int:
        return 1

    def __eq__(self, other: object) -> bool:
        raise ValueError("do not compare me")


def test_a_value_that_cannot_be_compared_costs_its_bucket_and_nothing_else(
        writer: StoreWriter, store: Store[Thing], caplog: pytest.LogCaptureFixture) -> None:
    store.add_index("touchy", lambda obj: [Touchy(), obj.name])
    mirror = Reflector(writer)
    for name in ("a", "b", "c"):
        assert len(mirror.feed(Apply(thing(name)))) == 1
    mirror.feed(Apply(thing("d")), Delete(thing("d")), Delete(thing("a", 2)))
    assert {obj.name for obj in store} == {"b", "c"}
    assert [names(store, "touchy", name) for name in ("a", "b", "c")] == [[], ["b"], ["c"]]
    assert len(caplog.messages) == 2  # of b and c; a was alone


def test_indexes_of_one_user_are_not_those_of_another_and_go_with_it(writer: StoreWriter) -> None:
    one, other = (Store(THING, Thing.from_record, writer.state) for _ in range(2))
    one.add_index("by", lambda obj: obj.name)
    other.add_index("by", lambda obj: "all")
    fill(writer, thing("a"), thing("b"))
    assert (names(one, "by", "a"), names(other, "by", "all")) == (["a"], ["a", "b"])
    one.drop_indexes()
    assert [scope is other for scope, _ in writer.state.indexes.functions] == [True]
    writer.commit({("default", "c"): thing("c")})
    assert "c" in names(other, "by", "all")


KEYS = st.sampled_from("abc")


@given(st.lists(st.tuples(st.sampled_from(["apply", "delete", "list"]), st.lists(st.tuples(KEYS, st.integers(0, 10**6)),
                                                                                max_size=4)), max_size=20))
def test_the_bytes_of_a_store_are_those_of_what_it_holds(steps: list[tuple[str, list[tuple[str, int]]]]) -> None:
    writer = StoreWriter(THING, Thing.from_record, clock=SimClock())
    for action, objects in steps:
        records = {record.key: record for record in (thing(name, value) for name, value in objects)}
        if action == "list":
            writer.replace(records, {**dict.fromkeys(writer.records(), None), **records})
        else:
            writer.commit(records if action == "apply" else dict.fromkeys(records))
        assert writer.state.bytes == sum(len(record.raw) for record in writer.store.records())


def test_a_store_is_made_of_an_api_resource_as_an_api_is() -> None:
    reader, writer = store_for(THING)
    fill(writer, thing("a", 7))
    found = reader.get("a", "default")
    assert found is not None
    assert found["metadata"]["resourceVersion"] == "7"
