"""What could only fail later, in a thread, again and again, is refused where it is given."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from kubectl_runtime import (
    Action,
    Api,
    Client,
    Config,
    Context,
    Controller,
    HealthServer,
    LeaderElection,
    Manager,
    Recorder,
    RequestError,
    WatcherConfig,
    await_condition,
    create_or_update,
    delete_and_finalize,
    elect,
    metadata_watcher,
    predicates,
    retry_on_conflict,
    watch_object,
    watch_store,
    watcher,
)
from kubectl_runtime.params import WatchParams
from kubectl_runtime.pods import AttachParams, LogParams
from kubectl_runtime.resources import ConfigMap, Pod
from kubectl_runtime.runtime.observe.health_checks import TimedCheck
from kubectl_runtime.watch import Apply, WatchBackoff, reflector, store

CLIENT = Client(Config(cluster_url="http://127.0.0.1:1"))
MAPS = Api.namespaced(CLIENT, ConfigMap, "default")
PODS = Api.namespaced(CLIENT, Pod, "default")


def none() -> None:
    """Takes nothing."""


def three(one: Any, two: Any, more: Any) -> None:
    """Takes too much."""


@pytest.mark.parametrize("function", [5, "x", [], object(), none, three],
                         ids=["number", "text", "list", "object", "none", "three"])
@pytest.mark.parametrize("take", [
    predicates.value, predicates.when, lambda given: watch_store(MAPS, modify=given),
    lambda given: watch_store(MAPS, indexes={"app": given}), lambda given: watch_store(MAPS).subscribe(given),
    lambda given: Controller(MAPS).store.add_index("app", given),
    lambda given: await_condition(MAPS, "a", given, timeout=1), lambda given: create_or_update(MAPS, "a", given),
    lambda given: Manager(CLIENT).add_runnable(given, "work"),
    lambda given: LeaderElection("x", on_new_leader=given)])
def test_a_function_that_cannot_be_called_as_it_will_be(take: Any, function: Any) -> None:
    with pytest.raises(RequestError, match=r"function|cannot be called with 1 arguments"):
        take(function)


@pytest.mark.parametrize("name", ["on_started", "on_stopped"])
def test_what_is_called_without_arguments_takes_none(name: str) -> None:
    with pytest.raises(RequestError, match=f"election x: {name}"):
        LeaderElection("x", **{name: three})  # type: ignore[arg-type] # as a user might


@pytest.mark.parametrize("api", [None, 5, ConfigMap, CLIENT], ids=["None", "number", "kind", "client"])
@pytest.mark.parametrize("take", [
    watch_store, watcher, metadata_watcher, lambda api: watch_object(api, "a"),
    lambda api: await_condition(api, "a", lambda obj: True, timeout=1),
    lambda api: delete_and_finalize(api, "a", timeout=1), lambda api: create_or_update(api, "a", lambda obj: None)])
def test_what_is_no_api(take: Any, api: Any) -> None:
    with pytest.raises(RequestError, match=r"takes an Api, such as Api\.all\(client, Kind\)"):
        take(api)


@pytest.mark.parametrize("client", [None, "https://localhost", Client], ids=["None", "url", "class"])
@pytest.mark.parametrize("take", [lambda client: Api.all(client, ConfigMap), lambda client: Recorder(client, "x"),
                                  lambda client: Api.namespaced(client, ConfigMap, "default"),
                                  lambda client: elect(client, LeaderElection("x"))])
def test_what_is_no_client(take: Any, client: Any) -> None:
    with pytest.raises(RequestError, match=r"a Client, such as Client\.try_default\(\)"):
        take(client)


@pytest.mark.parametrize("take", [lambda: watch_store(MAPS, {"label_selector": "a=b"}), lambda: watcher(MAPS, 5),
                                  lambda: watch_object(MAPS, "a", "app=web"), lambda: elect(CLIENT, "my-operator"),
                                  lambda: watch_store(MAPS, indexes=["app"])])
def test_a_configuration_of_another_type(take: Any) -> None:
    with pytest.raises(RequestError, match="such as"):
        take()


def owner() -> ConfigMap:
    return ConfigMap.from_dict({"metadata": {"name": "a", "namespace": "default", "uid": "1"}})


@pytest.mark.parametrize("given", ["false", "no", 0, None], ids=repr)
@pytest.mark.parametrize("take", [
    lambda given: WatcherConfig(shared=given), lambda given: WatcherConfig(bookmarks=given),
    lambda given: WatcherConfig(validate=given), lambda given: WatchBackoff(jitter=given),
    lambda given: WatchParams(send_initial_events=given), lambda given: LeaderElection("x", release=given),
    lambda given: LogParams(previous=given), lambda given: LogParams(timestamps=given),
    lambda given: AttachParams(stdin=given), lambda given: AttachParams(stdout=given),
    lambda given: AttachParams(tty=given), lambda given: PODS.log_stream("a", follow=given),
    lambda given: MAPS.apply(ConfigMap(name="a"), field_manager="m", defaults=given),
    lambda given: MAPS.apply(ConfigMap(name="a"), field_manager="m", force=given),
    lambda given: Controller(MAPS).owns(MAPS, controller_only=given),
    lambda given: Manager(CLIENT).add_runnable(print, "work", needs_leader=given),
    lambda given: Manager(CLIENT).add(Controller(MAPS), lambda obj, ctx: Action.await_change(), needs_leader=given),
    lambda given: ConfigMap(name="b").set_owner(owner(), controller=given),
    lambda given: ConfigMap(name="b").set_owner(owner(), block_owner_deletion=given)])
def test_only_true_and_false_are_booleans(take: Any, given: Any) -> None:
    with pytest.raises(RequestError, match="must be True or False"):
        take(given)


def generator(obj: ConfigMap, ctx: Context[None]) -> Iterator[Action]:
    """Written with a slip."""
    yield Action.await_change()


class Asynchronous:
    """A callable object."""

    async def __call__(self, obj: ConfigMap, ctx: Context[None]) -> Action:
        return Action.await_change()


class Yielding:
    """A reconciler of the user's own making."""

    def reconcile(self, obj: ConfigMap, ctx: Context[None]) -> Iterator[Action]:
        yield Action.await_change()


@pytest.mark.parametrize(("reconciler", "said"), [(generator, "is a generator"), (Yielding(), "is a generator"),
                                                  (Asynchronous(), "is async")], ids=["function", "object", "async"])
def test_a_reconciler_that_would_return_no_action(reconciler: Any, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        Controller(MAPS).start(reconciler)
    with pytest.raises(RequestError, match=said):
        Controller(MAPS).bind(reconciler)


def test_what_is_right_is_taken() -> None:
    config = WatcherConfig(label_selector="a=b")
    watch_store(MAPS, config, indexes={"app": lambda obj: obj.name}, modify=lambda obj: None).close()
    watcher(MAPS, config).close()
    LeaderElection("x", on_started=none, on_stopped=none, on_new_leader=print)
    assert predicates.value(len)
    assert predicates.when(bool)  # a built-in, of whose signature nothing is known


def yields(*_: Any) -> Iterator[None]:
    yield


class Yields:
    def __call__(self, *_: Any) -> Iterator[None]:
        yield


async def is_async(*_: Any) -> None:
    ...


NOT_PLAIN = {"generator": yields, "object": Yields(), "partial": partial(yields), "async": is_async}
TAKERS: dict[str, Callable[[Any], object]] = {
    "check": lambda f: HealthServer(":0").add_check("database", f),
    "checks": lambda f: HealthServer(":0", checks={"database": f}),
    "live check": lambda f: HealthServer(":0").add_live_check("database", f),
    "check of a manager": lambda f: Manager(CLIENT).add_check("database", f),
    "runnable": lambda f: Manager(CLIENT).add_runnable(f, "work"),
    "election": lambda f: LeaderElection("x", on_started=f),
    "condition": lambda f: await_condition(MAPS, "a", f, timeout=1),
    "predicate": predicates.when,
    "value": predicates.value,
    "change": lambda f: create_or_update(MAPS, "a", f),
    "attempt": retry_on_conflict,
    "subscription": lambda f: watch_store(MAPS).subscribe(f),
    "result": lambda f: Controller(MAPS).on_result(f),
    "error policy": lambda f: Controller(MAPS).bind(lambda obj, ctx: Action.await_change(), error_policy=f)}


@pytest.mark.parametrize("function", NOT_PLAIN.values(), ids=NOT_PLAIN)
@pytest.mark.parametrize("taker", TAKERS.values(), ids=TAKERS)
def test_what_would_run_nothing_when_it_is_called_is_refused(taker: Callable[[Any], object], function: Any) -> None:
    with pytest.raises(RequestError, match=r"is a generator, and nothing|is async, and nothing awaits it"):
        taker(function)


@pytest.mark.parametrize("function", [lambda *_: yields(), lambda *_: is_async()], ids=["generator", "async"])
def test_what_returns_something_that_has_not_run_is_no_answer(function: Any) -> None:
    check = TimedCheck("database", function, 5)
    assert "TypeError" in check()
    reader, writer = store(ConfigMap)
    list(reflector(writer, [Apply(ConfigMap.from_dict({"metadata": {"name": "a"}}))]))
    for read in (reader.filter, reader.find):
        with pytest.raises(TypeError, match="returned a"):
            read(function)
    manager = Manager(CLIENT, serve=None).add_runnable(function, "work")
    with pytest.raises(TypeError, match="returned a"):
        manager.run()


def test_mappers_and_indexes_may_yield() -> None:
    def several(obj: Any) -> Iterator[Any]:
        yield from ()

    Controller(MAPS).watches(MAPS, several)
    with pytest.raises(RequestError, match="has no index"):
        watch_store(MAPS, indexes={"several": several}).by_index("other", 1)
