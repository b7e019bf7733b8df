"""What readers of a store can count on while lists come and go: whole lists only, no old ones, little memory."""
from __future__ import annotations

import gc
import json
import threading
import tracemalloc
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubectl_runtime.apiserver.server import ApiServer
from kubectl_runtime.client.api.api import Api
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.core.codec.views import Record
from kubectl_runtime.core.scope import StopToken
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.runtime.store.reflector import Reflector, StoreWriter
from kubectl_runtime.runtime.store.store import StoreNotReady
from kubectl_runtime.runtime.triggers.shared_watches import Watch
from kubectl_runtime.runtime.triggers.triggers import trigger_self
from kubectl_runtime.runtime.triggers.watch_store import watch_store
from kubectl_runtime.runtime.watch.config import WatcherConfig
from kubectl_runtime.runtime.watch.event import INIT, INIT_DONE, Apply, Delete, Event, InitApply
from kubectl_runtime.testing.clock import SimClock
from tests.runtime.watch.scripted_watch import EXPIRED, THING, AnsweringServer, Asked, Thing, api_error, thing

LIMIT = 20
NAMES = ("a", "b", "c", "d")


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


@pytest.fixture
def client(server: ApiServer) -> Iterator[Client]:
    with server.client() as client:
        yield client


# Whole lists only

STEPS = st.lists(st.one_of(
    st.tuples(st.just("put"), st.sampled_from(NAMES)), st.tuples(st.just("remove"), st.sampled_from(NAMES)),
    st.tuples(st.sampled_from(["list", "page", "page", "page", "break", "watch"]), st.just(""))), max_size=60)


@given(STEPS, st.integers(1, 3))
def test_a_reader_only_ever_sees_a_complete_list_and_the_changes_after_it(steps: list[tuple[str, str]],
                                                                         page_size: int) -> None:
    writer: StoreWriter[Thing] = StoreWriter(THING, Thing.from_record)
    reflector = Reflector(writer)
    writer.store.add_index("name", lambda obj: obj.name)
    server: dict[str, Record] = {}
    shown: dict[str, str] = {}
    listing: list[Record] | None = None
    listed: dict[str, str] = {}
    changes: list[Event[Record]] = []
    ready = False
    for version, (what, name) in enumerate(steps, 1):
        if what == "put":
            server[name] = thing(name, version)
            changes.append(Apply(server[name]))
        elif what == "remove" and name in server:
            changes.append(Delete(server.pop(name)))
        elif what == "list":
            listing, changes = [*server.values()], []
            listed = {record.name: record.resource_version for record in listing}
            reflector.feed(INIT)
        elif what == "page" and listing is not None:
            page, listing = listing[:page_size], listing[page_size:]
            reflector.feed(*map(InitApply, page))
            if not listing:
                reflector.feed(INIT_DONE)
                shown, listing, ready = {**listed}, None, True
        elif what == "break":
            listing = None
        elif what == "watch" and listing is None and ready:
            for event in changes:
                if isinstance(event, Apply):
                    shown[event.obj.name] = event.obj.resource_version
                elif isinstance(event, Delete):
                    shown.pop(event.obj.name, None)
            reflector.feed(*changes)
            changes = []
        assert writer.store.is_ready is ready
        assert {obj.name: obj.resource_version for obj in writer.store} == shown
        for one in NAMES:
            assert [obj.resource_version for obj in writer.store.by_index("name", one)] == [
                version for found, version in shown.items() if found == one]


def test_a_reader_in_another_thread_sees_the_old_size_then_the_new_one_while_a_list_comes_in_slow_pages(
        server: ApiServer, client: Client) -> None:
    maps = Api.namespaced(client, ConfigMap, "default")
    for number in range(6):
        maps.create({"metadata": {"name": f"m{number}"}})
    sizes: list[int] = []
    done, lists = threading.Event(), threading.Semaphore(0)

    def poll() -> None:
        while not done.is_set():
            size = len(store)
            if not sizes or sizes[-1] != size:
                sizes.append(size)

    def completed(event: Event[ConfigMap]) -> None:
        if event is INIT_DONE:
            lists.release()

    others = Api.namespaced(server.client(), ConfigMap, "default")  # so that no own write shows
    with others.client, watch_store(maps, WatcherConfig(page_size=2)) as store:
        store.subscribe(completed)
        assert lists.acquire(timeout=LIMIT)
        reader = threading.Thread(target=poll, daemon=True)
        reader.start()
        away = server.faults.on("watch").status(503)
        server.drop_connections()
        for number in range(6, 9):
            others.create({"metadata": {"name": f"m{number}"}})
        others.delete("m0")
        others.delete("m1")
        server.expire_history()
        slow = server.faults.on("list").delay(0.1)
        away.remove()
        assert lists.acquire(timeout=LIMIT)
        done.set()
        reader.join(LIMIT)
    assert slow.taken >= 4, "of seven objects, two a page"
    assert sizes in ([6, 7], [6])
    assert len(store) == 7


def test_an_index_holds_no_object_that_a_later_list_lacks(server: ApiServer, client: Client) -> None:
    maps, other = (Api.namespaced(one, ConfigMap, "default") for one in (client, server.client()))
    for name in ("a", "b"):
        maps.create({"metadata": {"name": name, "labels": {"app": "web"}}})
    gone = threading.Event()
    with other.client, watch_store(maps, indexes={"app": lambda obj: obj.labels.get("app")}) as store:
        store.wait_until_ready(LIMIT)
        store.subscribe(lambda event: gone.set() if isinstance(event, Delete) else None)
        away = server.faults.on("watch").status(503)
        server.drop_connections()
        other.delete("b")
        server.expire_history()
        away.remove()
        assert gone.wait(LIMIT)
        assert [obj.name for obj in store.by_index("app", "web")] == ["a"]


def test_what_a_reader_does_to_an_object_is_seen_by_nobody_else(server: ApiServer, client: Client) -> None:
    maps = Api.namespaced(client, ConfigMap, "default")
    maps.create({"metadata": {"name": "a", "labels": {"app": "web"}}, "data": {"k": "v"}})
    with watch_store(maps, indexes={"k": lambda obj: obj.data["k"]}) as store:
        store.wait_until_ready(LIMIT)
        for found in (store.get("a", "default"), *store.list(), *store.by_index("k", "v"), store.find(lambda _: True)):
            assert found is not None
            found.data["k"] = "changed"
            found.metadata.labels["app"] = "changed"
            found["data"]["new"] = "x"
        again = store.get("a", "default")
        assert again is not None
        assert (again.data, again.metadata.labels) == ({"k": "v"}, {"app": "web"})
        assert len(store.by_index("k", "v")) == 1


def test_before_the_first_list_reads_find_nothing_and_say_so_and_waiting_tells_why(
        server: ApiServer, client: Client) -> None:
    maps = Api.namespaced(client, ConfigMap, "default")
    maps.create({"metadata": {"name": "a"}})
    held = server.faults.on("list").status(503)
    with watch_store(maps, indexes={"name": lambda obj: obj.name}) as store:
        assert (store.is_ready, store.is_stale(1e9)) == (False, True)
        assert (store.list(), store.get("a", "default"), len(store), store.by_index("name", "a")) == ([], None, 0, [])
        with pytest.raises(StoreNotReady, match="no complete list after"):
            store.wait_until_ready(0.05)
        held.remove()
        store.wait_until_ready(LIMIT)
        assert len(store) == 1


# Memory

class Pages(AnsweringServer):
    """A server that lists the same objects again and again, in pages of bytes, and whose watches have expired."""

    def __init__(self, pages: Sequence[bytes], stop: StopToken, lists: int) -> None:
        super().__init__(namespace=None)
        self.pages = pages
        self.stop = stop
        self.left = lists

    def on_list(self, asked: Asked) -> bytes:
        return self.pages[int(asked.continue_token or 0)]

    def on_watch(self, asked: Asked) -> Iterator[Any]:
        self.left -= 1
        if not self.left:
            self.stop.set("that was the last list")
        raise api_error(**EXPIRED)


def page_of(numbers: range, token: str) -> bytes:
    filler = {"large": "x" * 3800}
    items = [{"metadata": {"name": f"n{n}", "namespace": "default", "uid": f"u{n}", "resourceVersion": str(n + 1)},
              "spec": filler} for n in numbers]
    metadata = {"resourceVersion": "99999", **({"continue": token} if token else {})}
    return json.dumps({"kind": "ThingList", "apiVersion": "test.example/v1", "metadata": metadata,
                       "items": items}).encode()


def test_a_list_of_unchanged_objects_triggers_nothing_and_needs_little_memory() -> None:
    """Each object keeps its record, and a page is let go before the next one comes."""
    size, count = 250, 4000
    pages = [page_of(range(at, at + size), str(at // size + 1) if at + size < count else "")
             for at in range(0, count, size)]
    clock = SimClock(self_advancing=True)
    requests: list[Any] = []
    tracemalloc.start()
    try:
        base = tracemalloc.get_traced_memory()[0]
        stop = StopToken(clock=clock)
        watch: Watch[Thing] = Watch(Pages(pages, stop, lists=4).api, stop=stop, clock=clock)
        watch.subscribe(trigger_self(Thing), requests.extend)
        while not watch.store.is_ready:
            watch.step()
        assert len(requests) == count
        gc.collect()
        level = tracemalloc.get_traced_memory()[0] - base
        tracemalloc.reset_peak()
        watch.run()
        peak = tracemalloc.get_traced_memory()[1] - base
    finally:
        tracemalloc.stop()
    assert watch.state.relists == 3
    assert len(requests) == count, "nothing has changed"
    assert len(watch.store) == count
    assert level > count * 3800
    assert peak <= 1.3 * level, f"a list peaks at {peak / level:.2f} times the level"
