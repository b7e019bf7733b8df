"""`deadline` bounds what a script asks of the library; the changes of a store can be iterated over by code that blocks;
a manager gives a member back."""
from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kubectl_runtime import (
    Action,
    Api,
    ApiError,
    Client,
    Controller,
    LeaderElection,
    Manager,
    RequestError,
    await_condition,
    deadline,
    delete_and_finalize,
    elect,
    watch_store,
    watcher,
)
from kubectl_runtime.errors import DeadlineExceeded, OutcomeUnknownError
from kubectl_runtime.resources import ConfigMap, Secret
from kubectl_runtime.testing import ApiServer, eventually
from kubectl_runtime.watch import Apply, Delete

SPAN = 0.5
ENOUGH = 20.0
"""Seconds that a loaded machine may take for what takes half a second."""


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as made:
        yield made


@pytest.fixture
def client(server: ApiServer) -> Iterator[Client]:
    with server.client() as made:
        yield made


def maps(client: Client) -> Api[ConfigMap]:
    return Api.namespaced(client, ConfigMap, "default")


def silent_get(server: ApiServer, client: Client) -> None:
    server.faults.on("get").never_answer()
    maps(client).get("a")


def test_a_call_that_has_no_time_for_another_attempt_says_what_failed(server: ApiServer, client: Client) -> None:
    server.faults.on("list").status(503)
    began = time.monotonic()
    with pytest.raises((ApiError, DeadlineExceeded)), deadline(SPAN):
        maps(client).list()
    assert time.monotonic() - began < ENOUGH


def endless_watch(server: ApiServer, client: Client) -> None:
    for _ in maps(client).watch():
        pass


def endless_watcher(server: ApiServer, client: Client) -> None:
    for _ in watcher(maps(client)):
        pass


def long_wait(server: ApiServer, client: Client) -> None:
    await_condition(maps(client), "never", lambda obj: obj is not None, timeout=3600)


def held_deletion(server: ApiServer, client: Client) -> None:
    maps(client).create(ConfigMap.from_dict({"metadata": {"name": "held", "finalizers": ["example.com/stay"]}}))
    delete_and_finalize(maps(client), "held", timeout=3600)


def unready_store(server: ApiServer, client: Client) -> None:
    server.faults.on("list").status(503)
    server.faults.on("watch").status(503)
    with watch_store(maps(client)) as store:
        store.wait_until_ready()


def unready_controller(server: ApiServer, client: Client) -> None:
    server.faults.on("list").status(503)
    server.faults.on("watch").status(503)
    with Controller(maps(client)).start(lambda obj, ctx: Action.await_change()) as running:
        running.wait_until_ready()


def changes_that_never_come(server: ApiServer, client: Client) -> None:
    with watch_store(maps(client)) as store:
        for _ in store.changes():
            pass


def election_of_another(server: ApiServer, client: Client) -> None:
    with elect(client, LeaderElection("x", "default")) as first:
        first.wait(ENOUGH)
        with elect(client, LeaderElection("x", "default", identity="other")) as lock:
            lock.wait()


def own_code(server: ApiServer, client: Client) -> None:
    threading.Event().wait(2 * SPAN)


EVERYTHING = [silent_get, endless_watch, endless_watcher, long_wait, held_deletion, unready_store,
              unready_controller, changes_that_never_come, election_of_another, own_code]


@pytest.mark.parametrize("work", EVERYTHING)
def test_everything_in_it_ends(work: Callable[[ApiServer, Client], None], server: ApiServer, client: Client) -> None:
    began = time.monotonic()
    with pytest.raises(DeadlineExceeded, match=r"not done within 0\.5 s"), deadline(SPAN):
        work(server, client)
    assert SPAN <= time.monotonic() - began < ENOUGH
    server.faults.clear()
    assert maps(client).list() is not None  # what comes after it is not bounded


def test_what_is_done_in_time_is_left_alone(client: Client) -> None:
    with deadline(60):
        assert maps(client).create(ConfigMap(name="a")).name == "a"
    with pytest.raises(KeyError), deadline(60):
        raise KeyError("of the program")


def test_a_write_under_way_says_that_its_outcome_is_not_known(server: ApiServer, client: Client) -> None:
    server.faults.on("create").never_answer()
    with pytest.raises(DeadlineExceeded) as ended, deadline(SPAN):
        maps(client).create(ConfigMap(name="a"))
    assert isinstance(ended.value.__cause__, OutcomeUnknownError)


def test_an_error_of_the_program_passes_also_when_the_time_is_up() -> None:
    with pytest.raises(ValueError, match="of the program"), deadline(0.01):
        threading.Event().wait(0.1)
        raise ValueError("of the program")


def test_the_shorter_of_two_counts_and_the_longer_one_goes_on(client: Client) -> None:
    with deadline(60):
        with pytest.raises(DeadlineExceeded), deadline(SPAN):
            endless_watch(None, client)  # type: ignore[arg-type]
        assert maps(client).list() is not None
    with pytest.raises(DeadlineExceeded, match=r"0\.5 s"), deadline(SPAN), deadline(3600):
        endless_watch(None, client)  # type: ignore[arg-type]


def test_another_thread_is_not_bounded_and_no_thread_is_left(client: Client) -> None:
    found: list[Any] = []
    before = set(threading.enumerate())
    with pytest.raises(DeadlineExceeded), deadline(SPAN):
        other = threading.Thread(target=lambda: found.append(maps(client).list()))
        threading.Event().wait(2 * SPAN)
        other.start()
        other.join()
    assert found
    assert not [thread for thread in set(threading.enumerate()) - before if "deadline" in thread.name]


@pytest.mark.parametrize("wrong", [0, -1, float("nan"), "5", True])
def test_a_time_that_is_none_is_refused(wrong: Any) -> None:
    with pytest.raises((RequestError, TypeError)), deadline(wrong):
        pass


# The changes of a store


def test_a_slow_consumer_gets_the_newest_state_and_each_deletion(client: Client) -> None:
    api = maps(client)
    api.create(ConfigMap(name="a", data={"n": "0"}))
    with watch_store(api) as store:
        store.wait_until_ready(ENOUGH)
        changes = store.changes()
        first = next(changes)
        assert (type(first), first.obj.name) == (Apply, "a")
        for number in range(1, 5):  # while the consumer is busy
            api.apply(ConfigMap(name="a", data={"n": str(number)}), field_manager="t", force=True)
        api.create(ConfigMap(name="b"))
        api.delete("b")
        api.create(ConfigMap(name="b", data={"again": "yes"}))
        came: list[Any] = []
        store.subscribe(lambda event: came.append(getattr(getattr(event, "obj", None), "data", None)))
        eventually(lambda: {"again": "yes"} in came, timeout=ENOUGH)  # by the watch; reads know one's own writes before
        news = [next(changes) for _ in range(3)]
        assert [(type(one), one.obj.name, one.obj.data) for one in news] == [
            (Apply, "a", {"n": "4"}), (Delete, "b", {}), (Apply, "b", {"again": "yes"})]


def test_a_consumer_that_blocks_holds_up_nobody(client: Client) -> None:
    api, release, seen = maps(client), threading.Event(), []
    with watch_store(api) as store:
        store.wait_until_ready(ENOUGH)

        def block() -> None:
            for _ in store.changes():
                release.wait(ENOUGH)

        def read() -> None:
            seen.extend(change.obj.name for change in store.changes())

        threads = [threading.Thread(target=block), threading.Thread(target=read)]
        for thread in threads:
            thread.start()
        for number in range(20):
            api.create(ConfigMap(name=f"m{number}"))
        eventually(lambda: len(seen) == 20, timeout=ENOUGH)
        release.set()
    for thread in threads:  # closing the store ends the loops
        thread.join(ENOUGH)
        assert not thread.is_alive()


@pytest.mark.parametrize("end", ["store", "client", "break"])
def test_the_loop_ends_with_the_store_or_its_client(end: str, server: ApiServer) -> None:
    client = server.client()
    store = watch_store(maps(client)).start()
    store.wait_until_ready(ENOUGH)
    maps(client).create(ConfigMap(name="a"))
    begun, ended = threading.Event(), threading.Event()

    def loop() -> None:
        for _ in store.changes():
            begun.set()
            if end == "break":
                break
        ended.set()

    thread = threading.Thread(target=loop)
    thread.start()
    assert begun.wait(ENOUGH)
    {"store": store.close, "client": client.close, "break": lambda: None}[end]()
    assert ended.wait(ENOUGH)
    thread.join(ENOUGH)
    store.close()
    client.close()


def test_a_store_is_started_once_by_either_way(client: Client) -> None:
    unstarted = watch_store(maps(client))
    with pytest.raises(RequestError, match="never started"):
        unstarted.changes()
    store = unstarted.start()
    try:
        store.wait_until_ready(ENOUGH)
        with pytest.raises(RequestError, match="entered already"):
            store.start()
        with pytest.raises(RequestError, match="entered already"):
            store.__enter__()
    finally:
        store.close()
    assert not store.is_stale(3600) or store.has_ended


# A manager gives a member back


def until_stopped(stop: Any) -> None:
    stop.wait()


def test_a_controller_is_removed_while_the_others_go_on(client: Client) -> None:
    seen: dict[str, list[str]] = {"maps": [], "secrets": []}

    def noting(name: str) -> Any:
        return lambda obj, ctx: seen[name].append(obj.name) or Action.await_change()

    secrets = Controller(Api.namespaced(client, Secret, "default"), name="secrets")
    manager = Manager(client, serve=None).add(Controller(maps(client), name="maps"), noting("maps"))
    manager.add(secrets, noting("secrets")).add_runnable(until_stopped, "waiter")
    with manager.start() as running:
        eventually(lambda: running.is_ready, timeout=ENOUGH)
        assert manager.remove("maps") == []
        assert manager.remove("waiter") == []
        maps(client).create(ConfigMap(name="a"))
        Api.namespaced(client, Secret, "default").create(Secret(name="s"))
        eventually(lambda: seen["secrets"] == ["s"], timeout=ENOUGH)
        assert seen["maps"] == []
        assert running.is_ready
        assert [plan.name for plan in manager.plans()] == ["secrets"]
        manager.add(Controller(maps(client), name="maps"), noting("maps"))  # the name is free
        eventually(lambda: seen["maps"] == ["a"], timeout=ENOUGH)
        assert manager.remove(secrets) == []
        assert [bound.controller.plan().name for bound in manager.controllers()] == ["maps"]
    assert not [thread for thread in threading.enumerate() if "secrets" in thread.name]


def test_a_run_that_does_not_end_is_reported_and_removing_oneself_does_not_block(client: Client) -> None:
    go, removed, begun = threading.Event(), threading.Event(), threading.Event()

    def stuck(obj: ConfigMap, ctx: Any) -> Action:
        begun.set()
        go.wait(ENOUGH)
        return Action.await_change()

    def leaves(obj: Secret, ctx: Any) -> Action:
        assert manager.remove("leaver") == []
        removed.set()
        return Action.await_change()

    maps(client).create(ConfigMap(name="a"))
    Api.namespaced(client, Secret, "default").create(Secret(name="s"))
    manager = Manager(client, serve=None).add(Controller(maps(client), name="stuck"), stuck)
    manager.add(Controller(Api.namespaced(client, Secret, "default"), name="leaver"), leaves)
    with manager.start():
        assert removed.wait(ENOUGH)
        assert begun.wait(ENOUGH)
        assert manager.remove("stuck", timeout=0.1)
        go.set()


@pytest.mark.parametrize("wrong", ["other", None, 3, Controller])
def test_what_is_not_there_cannot_be_removed(wrong: Any, client: Client) -> None:
    manager = Manager(client, serve=None).add_runnable(until_stopped, "waiter")
    with pytest.raises(RequestError, match=r"the members are: waiter"):
        manager.remove(wrong)
    assert manager.remove("waiter") == []  # before the start
    assert manager.runnables() == []
