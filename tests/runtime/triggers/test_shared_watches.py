"""One watch for several users: who joins, who ends it, what a defect of it does, and many threads at once."""
from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.runtime.triggers.shared_watches import Share, SharedWatches, Watch, shared_watches
from kubectl_runtime.runtime.triggers.triggers import trigger_self
from kubectl_runtime.runtime.watch.config import WatcherConfig
from tests.runtime.scripted_cluster import Child, Cluster, Parent

LIMIT = 20


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster(blocking=True)
    cluster.put(Parent, "p")
    yield cluster
    assert watch_threads() == []


@pytest.fixture
def registry(cluster: Cluster) -> SharedWatches:
    return shared_watches(cluster.api(Parent))


def watch_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("watch ")]


def ended(share: Share) -> None:
    assert share.thread is not None
    share.thread.join(LIMIT)
    assert not share.thread.is_alive()


def test_the_last_of_its_users_ends_a_watch_however_often_each_releases_it(
        cluster: Cluster, registry: SharedWatches) -> None:
    one, two = (registry.take(cluster.api(Parent)) for _ in range(2))
    other = registry.take(cluster.api(Child))
    assert (one.watch is two.watch, one.watch is other.watch, len(registry)) == (True, False, 2)
    for share in (one, two, other):
        share.start()
    one.watch.store.wait_until_ready(LIMIT)
    for _ in range(3):
        one.release()
    assert (one.has_ended, one.ends, two.has_ended) == (True, False, False)
    two.release()
    other.release()
    ended(two)
    ended(other)
    assert (len(registry), two.has_ended) == (0, True)
    again = registry.take(cluster.api(Parent))
    assert again.watch is not two.watch
    again.release()


def test_a_watch_whose_last_user_ends_while_another_joins_is_not_joined(
        cluster: Cluster, registry: SharedWatches) -> None:
    class Modify:
        """Two of them are the same, and the comparison takes as long as it takes the first user to end."""

        def __call__(self, obj: Any) -> None:
            pass

        def __eq__(self, other: object) -> bool:
            one.release()
            return True

        __hash__ = None  # type: ignore[assignment]

    one = registry.take(cluster.api(Parent), modify=Modify())
    two = registry.take(cluster.api(Parent), modify=Modify())
    assert one.ends
    assert two.watch is not one.watch
    assert not two.watch.stop.is_set()
    two.start()
    two.watch.store.wait_until_ready(LIMIT)
    two.release()
    ended(two)
    assert len(registry) == 0


def test_what_is_subscribed_by_a_user_that_has_ended_is_never_told_anything(
        cluster: Cluster, registry: SharedWatches) -> None:
    one, two = (registry.take(cluster.api(Parent)) for _ in range(2))
    heard, arrived = list[Any](), threading.Event()
    one.release()
    one.subscribe(trigger_self(Parent), heard.extend)
    two.subscribe(trigger_self(Parent), lambda _: arrived.set())
    two.start()
    assert arrived.wait(LIMIT)
    two.release()
    ended(two)
    assert heard == []


def test_what_one_user_hears_ends_with_its_release_and_nobody_elses_does(
        cluster: Cluster, registry: SharedWatches) -> None:
    heard: dict[str, list[str]] = {"one": [], "two": []}
    first, arrived = threading.Event(), threading.Event()
    one, two = (registry.take(cluster.api(Parent)) for _ in range(2))

    def sink(name: str, requests: list[Any]) -> None:
        heard[name] += [request.ref.name for request in requests]
        if heard["one"]:
            first.set()
        if "q" in heard["two"]:
            arrived.set()

    for name, share in (("one", one), ("two", two)):
        share.start()
        share.subscribe(trigger_self(Parent), lambda requests, name=name: sink(name, requests))
    assert first.wait(LIMIT)
    forget = one.subscribe(trigger_self(Parent), lambda requests: None)
    one.release()
    forget()
    cluster.put(Parent, "q")
    assert arrived.wait(LIMIT)
    assert heard == {"one": ["p"], "two": ["p", "q"]}
    one.subscribe(trigger_self(Parent), lambda requests: heard["one"].append("late"), lambda: None)
    cluster.put(Parent, "q", 2)
    two.release()
    ended(two)
    assert heard["one"].count("late") <= 1, "what is stored, once; no change: its user has gone"
    with pytest.raises(RequestError, match="has stopped"):
        two.subscribe(trigger_self(Parent), lambda requests: None)


def test_a_defect_of_the_watch_is_told_to_each_of_its_users_and_the_next_one_gets_another(
        cluster: Cluster, registry: SharedWatches, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, str, str]] = []

    def teller(name: str) -> Any:
        return lambda what, error: told.append((name, what, type(error).__name__))

    def careless(what: str, error: BaseException) -> None:
        raise ValueError("no")

    shares = [registry.take(cluster.api(Parent), on_bug=on_bug) for on_bug in (teller("one"), careless, teller("two"))]

    def defect(self: Watch[Any]) -> None:
        raise MemoryError

    monkeypatch.setattr(Watch, "step", defect)
    shares[0].start()
    ended(shares[0])
    assert told == [(name, "watch parents.test.example", "MemoryError") for name in ("one", "two")]
    monkeypatch.undo()
    healthy = registry.take(cluster.api(Parent))
    assert healthy.watch is not shares[0].watch
    for share in (*shares, healthy):
        share.release()
    assert len(registry) == 0


def test_where_there_can_be_no_more_threads_that_is_raised_and_the_next_user_tries_again(
        cluster: Cluster, registry: SharedWatches, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = (registry.take(cluster.api(Parent)) for _ in range(2))

    def full(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", full)
    with pytest.raises(RuntimeError, match="new thread"):
        one.start()
    assert one.thread is None
    one.release()
    monkeypatch.undo()
    two.start()
    two.watch.store.wait_until_ready(LIMIT)
    two.release()
    ended(two)


def test_of_many_threads_that_come_and_go_all_share_and_nothing_is_left(
        cluster: Cluster, registry: SharedWatches) -> None:
    began, wrong = threading.Barrier(6), list[str]()

    def user(seed: int) -> None:
        rng = random.Random(seed)
        began.wait(LIMIT)
        for _ in range(40):
            config = WatcherConfig(page_size=rng.randint(1, 9), label_selector=rng.choice(["", "a"]) or None)
            share = registry.take(cluster.api(Parent), config)
            share.start()
            try:
                share.watch.store.wait_until_ready(LIMIT)
                if [obj.name for obj in share.watch.store] != ["p"]:
                    wrong.append("content")
            except Exception as error:
                wrong.append(repr(error))
            if len(registry) > 2:
                wrong.append("more than one watch of the same")
            share.release()

    users = [threading.Thread(target=user, args=(seed,), daemon=True) for seed in range(6)]
    for thread in users:
        thread.start()
    for thread in users:
        thread.join(60)
    assert wrong == []
    assert len(registry) == 0
    for thread in threading.enumerate():
        if thread.name.startswith("watch "):
            thread.join(LIMIT)
