"""A store without a controller, and the watches that several users share, over real sockets."""
from __future__ import annotations

import gc
import re
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kubectl_runtime.apiserver.server import ApiServer
from kubectl_runtime.client.api.api import Api
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.codec.views import strip_managed_fields
from kubectl_runtime.core.requests.params import Patch
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.runtime.store.store import StoreNotReady
from kubectl_runtime.runtime.triggers.shared_watches import SharedWatches
from kubectl_runtime.runtime.triggers.watch_store import WatchedStore, watch_store
from kubectl_runtime.runtime.watch.config import WatcherConfig
from kubectl_runtime.runtime.watch.states import Phase
from kubectl_runtime.testing import eventually

LIMIT = 20


@pytest.fixture
def client() -> Iterator[Client]:
    with ApiServer() as server, server.client() as client:
        yield client


@pytest.fixture
def maps(client: Client) -> Api[ConfigMap]:
    return Api.namespaced(client, ConfigMap, "default")


def config_map(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}, "data": {"k": "v"}}


def watch_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("watch ")]


def test_a_store_by_itself_has_indexes_subscriptions_a_size_and_an_end(maps: Api[ConfigMap]) -> None:
    maps.create(config_map("a", app="web"))
    heard: list[str] = []
    changed = threading.Condition()

    def hear(event: Any) -> None:
        with changed:
            heard.append(f"{type(event).__name__} {getattr(getattr(event, 'obj', None), 'name', '')}".strip())
            changed.notify_all()

    with watch_store(maps, WatcherConfig(label_selector="app"), indexes={"app": lambda obj: obj.labels["app"]},
                     modify=strip_managed_fields) as store:
        forget = store.subscribe(hear)
        store.wait_until_ready(LIMIT)
        assert [obj.name for obj in store.by_index("app", "web")] == ["a"]
        assert store.size.objects == 1
        assert b"managedFields" not in store.records()[0].raw
        assert store.size.bytes == len(store.records()[0].raw)
        maps.create(config_map("b", app="db"))
        assert [obj.name for obj in store.by_index("app", "db")] == ["b"]  # its own write, seen at once
        maps.delete("a")
        with changed:
            assert changed.wait_for(lambda: "Delete a" in heard, LIMIT)
        assert heard == ["Apply a", "InitDone", "Apply b", "Delete a"]
        forget()
        store.add_index("late", lambda obj: obj.name)
        assert [obj.name for obj in store.by_index("late", "b")] == ["b"]
        assert store.watch_state.phase is Phase.WATCHING
        assert (store.is_stale(60), store.is_stale(0)) == (False, True)
    assert watch_threads() == []
    assert store.is_stale(60)
    assert [obj.name for obj in store.list()] == ["b"]
    assert store.watch_state.phase is Phase.STOPPED


def test_a_store_that_does_not_fill_says_what_the_watch_says() -> None:
    with ApiServer() as server, server.client() as client:
        server.faults.on("list").status(403)
        with watch_store(Api.namespaced(client, ConfigMap, "default")) as store:
            eventually(lambda: "403" in store.watch_state.last_error, timeout=LIMIT)
            with pytest.raises(StoreNotReady, match="403 Forbidden"):
                store.wait_until_ready(0.1)
            assert store.is_stale(60)


def test_users_of_one_client_who_want_the_same_share_a_watch_and_the_last_one_ends_it(
        client: Client, maps: Api[ConfigMap]) -> None:
    registry = client.shared.get(SharedWatches)
    maps.create(config_map("a"))
    by_name = {"by": lambda obj: obj.name}
    with watch_store(maps, indexes=by_name) as one:
        one.wait_until_ready(LIMIT)
        with watch_store(maps, WatcherConfig(page_size=7), indexes={"by": lambda obj: obj.data["k"]}) as two:
            two.wait_until_ready(0)
            assert ([obj.name for obj in one.by_index("by", "a")], [obj.name for obj in two.by_index("by", "v")]) == (
                ["a"], ["a"])
            assert (len(registry), watch_threads()) == (1, ["watch configmaps in namespace default"])
            with watch_store(maps, WatcherConfig(label_selector="x")), watch_store(maps.with_metadata_only()), \
                    watch_store(maps, modify=strip_managed_fields), watch_store(maps, WatcherConfig(shared=False)):
                assert (len(registry), len(watch_threads())) == (4, 5)
        assert len(registry) == 1
        assert one.watch_state.phase is Phase.WATCHING
    assert (len(registry), watch_threads()) == (0, [])


def test_modify_functions_that_are_equal_share_a_watch(client: Client, maps: Api[ConfigMap]) -> None:
    class Prune:
        def __init__(self, key: str) -> None:
            self.key = key

        def __eq__(self, other: object) -> bool:
            if self.key == "touchy":
                raise ValueError("do not compare me")
            return isinstance(other, Prune) and other.key == self.key

        def __hash__(self) -> int:
            return 0

        def __call__(self, obj: ConfigMap) -> None:
            obj.data.clear()

    registry = client.shared.get(SharedWatches)
    with watch_store(maps, modify=Prune("a")), watch_store(maps, modify=Prune("a")):
        assert len(registry) == 1
        with watch_store(maps, modify=Prune("b")), watch_store(maps, modify=Prune("touchy")):
            assert len(registry) == 3


def test_a_subscriber_that_raises_or_is_slow_is_named_and_the_others_hear_all(
        maps: Api[ConfigMap], caplog: pytest.LogCaptureFixture) -> None:
    heard = threading.Event()

    def careless(event: Any) -> None:
        raise ValueError("no")

    with watch_store(maps) as one, watch_store(maps) as two:
        one.wait_until_ready(LIMIT)
        one.subscribe(careless)
        two.subscribe(lambda event: heard.set() if getattr(event, "obj", None) is not None else None)
        maps.create(config_map("a"))
        assert heard.wait(LIMIT)
        maps.patch("a", Patch.merge({"data": {"k": "w"}}))
    assert "careless" in caplog.text


def test_a_wrong_index_leaves_no_watch_behind(client: Client, maps: Api[ConfigMap]) -> None:
    with pytest.raises(RequestError):
        watch_store(maps, indexes=5)  # type: ignore[arg-type]
    assert len(client.shared.get(SharedWatches)) == 0


def test_a_store_whose_client_is_closed_says_so_and_its_watch_ends(client: Client, maps: Api[ConfigMap]) -> None:
    with watch_store(maps) as store:
        store.wait_until_ready(LIMIT)
        client.close()
        for thread in threading.enumerate():
            if thread.name.startswith("watch "):
                thread.join(LIMIT)
        assert (store.is_stale(60), store.has_ended, watch_threads()) == (True, True, [])
    with watch_store(maps) as late, pytest.raises(StoreNotReady):
        late.wait_until_ready(1)


def test_a_store_that_was_closed_before_it_was_entered_keeps_nobody_waiting(maps: Api[ConfigMap]) -> None:
    store = watch_store(maps)
    store.close()
    with pytest.raises(StoreNotReady, match="its store was closed"):
        store.wait_until_ready()


def test_a_store_that_was_never_entered_says_so_to_whoever_reads_or_waits(
        client: Client, maps: Api[ConfigMap], caplog: pytest.LogCaptureFixture) -> None:
    told = "its watch was never started: with watch_store(...) as configmaps: ..., or .start()"
    reads: list[Callable[[WatchedStore[ConfigMap]], Any]] = [
        lambda store: store.list(), len, lambda store: store.get("a", "default"),
        lambda store: store.by_index("app", "web"), lambda store: store.filter("app")]
    for read in reads:
        store = watch_store(maps, indexes={"app": lambda obj: obj.labels.get("app")})
        with pytest.raises(RequestError, match=re.escape(told)):
            store.wait_until_ready()
        assert not read(store)
        assert not read(store)
        assert [record.getMessage() for record in caplog.records if "never started" in record.getMessage()] == [
            f"the store of configmaps was read, but is empty: {told}"]
        caplog.clear()
        store.close()
    with watch_store(maps) as store:
        assert store.list() == []
    assert not caplog.records


@pytest.mark.parametrize("later", ["inside", "after", "closed"])
def test_a_store_is_entered_once(client: Client, maps: Api[ConfigMap], later: str) -> None:
    store = watch_store(maps)
    if later == "closed":
        store.close()
        store.close()  # closing is safe to repeat
    with store:
        if later == "inside":
            with pytest.raises(RequestError, match="configmaps was entered already"):
                store.__enter__()
            store.wait_until_ready(LIMIT)  # the first user's goes on
    if later == "after":
        with pytest.raises(RequestError, match="make another store"), store:
            pass
    with watch_store(maps) as other:
        other.wait_until_ready(LIMIT)


def test_of_threads_that_enter_one_store_at_once_one_does(maps: Api[ConfigMap]) -> None:
    store, barrier, refused = watch_store(maps), threading.Barrier(4), []

    def enter() -> None:
        barrier.wait(LIMIT)
        try:
            store.__enter__()
        except RequestError:
            refused.append(True)

    threads = [threading.Thread(target=enter) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    store.close()
    assert len(refused) == 3


class Listening:
    """A subscription, an index function or a callback that can be waited for to be freed."""

    def __call__(self, *_: Any) -> None:
        """Hear nothing."""


def test_what_was_subscribed_and_ended_is_freed(client: Client, maps: Api[ConfigMap]) -> None:
    maps.create(config_map("a"))
    freed: list[weakref.ref[Listening]] = []

    def listening() -> Listening:
        made = Listening()
        freed.append(weakref.ref(made))
        return made

    with watch_store(maps) as store:
        store.wait_until_ready(LIMIT)
        for _ in range(200):
            end = store.subscribe(listening())
            end()
            end()  # safe to repeat
        for _ in range(50):
            with watch_store(maps, indexes={"one": listening()}) as other:
                other.subscribe(listening())
                other.add_index("two", listening())
                other.by_index("two", "x")
        del end, other
        gc.collect()
        assert not [ref for ref in freed if ref() is not None]
        assert not store._share._undo
        assert len(client.shared.get(SharedWatches)) == 1


def test_subscriptions_that_end_leave_those_of_others(maps: Api[ConfigMap]) -> None:
    heard: list[str] = []
    with watch_store(maps) as store:
        store.wait_until_ready(LIMIT)
        ends = [store.subscribe(lambda event, n=n: heard.append(f"{n} {type(event).__name__}")) for n in range(3)]
        heard.clear()
        ends[1]()
        maps.create(config_map("a"))
        eventually(lambda: sorted(heard) == ["0 Apply", "2 Apply"], timeout=LIMIT)
