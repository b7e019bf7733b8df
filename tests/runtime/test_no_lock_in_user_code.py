"""No lock of the library is held while user code runs, wherever it is called from."""
from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kubectl_runtime import (
    Action,
    Api,
    Client,
    Controller,
    HealthServer,
    LeaderElection,
    Manager,
    OwnWrites,
    Patch,
    Recorder,
    RequestError,
    StopToken,
    WebhookServer,
    await_condition,
    predicates,
    watch_store,
)
from kubectl_runtime.observe import Observer
from kubectl_runtime.resources import ConfigMap, Pod, Secret
from kubectl_runtime.testing import ApiServer, eventually
from kubectl_runtime.webhooks import Admission, AdmissionRequest, SelfSigned, application, apply_webhooks
from tests.runtime.held_locks import held_locks, tracked_locks

LIMIT = 20.0


class Watchman(logging.Handler):
    """Looks at what is held wherever it is called, and as a log handler at each line."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.calls: dict[str, int] = {}
        self.found: dict[str, list[str]] = {}

    def look(self, place: str) -> None:
        self.calls[place] = self.calls.get(place, 0) + 1
        if held := held_locks():
            self.found[place] = held

    def seen_by(self, place: str, answer: Any = None) -> Callable[..., Any]:
        """A function that looks, and gives `answer`."""
        def function(*_: Any, **__: Any) -> Any:
            self.look(place)
            return answer

        return function

    def emit(self, record: logging.LogRecord) -> None:
        self.look(f"log: {record.name}: {record.msg}")

    def observer(self) -> Observer:
        names = [name for name in vars(Observer) if not name.startswith("_")]
        kind = type("Seeing", (Observer,), {name: self.seen_by(f"observer: {name}") for name in names})
        return kind()  # type: ignore[no-any-return]

    def layer(self, send: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def sent(call: Any) -> Any:
            self.look("layer")
            return send(call)

        return sent

    def give_verdict(self, *places: str) -> None:
        assert self.found == {}
        assert set(places) <= self.calls.keys()


@pytest.fixture
def watchman() -> Iterator[Watchman]:
    made = Watchman()
    logger = logging.getLogger("kubectl_runtime")
    before = logger.level
    logger.addHandler(made)
    logger.setLevel(logging.DEBUG)
    with tracked_locks():
        yield made
    logger.removeHandler(made)
    logger.setLevel(before)


def test_the_watchman_sees_what_is_held() -> None:
    with tracked_locks():
        token = StopToken()
    assert held_locks() == []
    with token._lock:
        [origin] = held_locks()
        assert origin.startswith("core/scope.py:")
    assert held_locks() == []


@pytest.mark.parametrize("own_writes", [OwnWrites.OVERLAY, OwnWrites.OFF], ids=str)
def test_of_a_controller(watchman: Watchman, own_writes: OwnWrites) -> None:
    seen: list[str] = []
    await_change = Action.await_change()

    def reconcile(obj: ConfigMap, ctx: Any) -> Action:
        watchman.look("reconcile")
        seen.append(obj.name)
        if seen.count(obj.name) < 3:
            raise ValueError("planned")
        ctx.record("Seen", "it was seen")
        Api.namespaced(ctx.client, Secret, "default").apply(Secret(name=obj.name), field_manager="test")
        return await_change

    with ApiServer() as server, Client(server.config(), layers=[watchman.layer], own_writes=own_writes,
                                       observer=watchman.observer()) as client:
        maps, secrets = Api.namespaced(client, ConfigMap, "default"), Api.namespaced(client, Secret, "default")
        client.on_write(watchman.seen_by("on_write"))
        client.on_answer(watchman.seen_by("on_answer"))
        client.on_close(watchman.seen_by("on_close"))
        controller = Controller(maps, predicate=predicates.when(watchman.seen_by("predicate", True)),
                                modify=lambda obj: (watchman.look("modify"), obj)[1])
        controller.on_gone(watchman.seen_by("on_gone", await_change))
        controller.watches(secrets, watchman.seen_by("mapper", []),
                           predicate=predicates.value(watchman.seen_by("value", 1)))
        controller.watches(secrets, watchman.seen_by("event mapper", []), on="event")
        controller.on_result(watchman.seen_by("on_result"))
        controller.store.when_ready(watchman.seen_by("when_ready"))
        controller.store.add_index("early", watchman.seen_by("index", ["x"]))
        policy = watchman.seen_by("error policy", Action.requeue(0.01))
        with controller.start(reconcile, error_policy=policy) as running:
            running.on_stop(watchman.seen_by("on_stop"))
            running.wait_until_ready(LIMIT)
            controller.store.add_index("late", watchman.seen_by("late index", ["x"]))
            maps.create(ConfigMap(name="a"))
            eventually(lambda: seen.count("a") >= 3, timeout=LIMIT)
            assert [obj.name for obj in running.store.by_index("late", "x")] == ["a"]
            running.store.find(watchman.seen_by("find", False))
            running.store.filter(watchman.seen_by("filter", True))
            maps.patch("a", Patch.merge({"data": {"k": "v"}}))
            eventually(lambda: seen.count("a") >= 4, timeout=LIMIT)
            with watch_store(maps, indexes={"mine": watchman.seen_by("index of a store", ["x"])},
                             modify=lambda obj: (watchman.look("modify of a store"), obj)[1]) as store:
                store.subscribe(watchman.seen_by("subscription"))
                store.wait_until_ready(LIMIT)
                await_condition(maps, "a", watchman.seen_by("condition", True), timeout=LIMIT)
            maps.delete("a")
            eventually(lambda: "on_gone" in watchman.calls, timeout=LIMIT)
    watchman.give_verdict("reconcile", "predicate", "modify", "mapper", "value", "event mapper", "on_result",
                          "when_ready", "index", "late index", "error policy", "on_stop", "find", "filter",
                          "index of a store", "modify of a store", "subscription", "condition", "layer", "on_write",
                          "on_answer", "on_close", "observer: controller_started", "observer: run_ended",
                          "observer: watch_phase_changed", "observer: controller_stopped")


def test_of_a_manager_with_its_servers(watchman: Watchman) -> None:
    class Admits(Admission[Pod]):
        def validate(self, request: AdmissionRequest[Pod]) -> None:
            watchman.look("validate")

        def mutate(self, request: AdmissionRequest[Pod]) -> Pod | None:
            watchman.look("mutate")
            return None

    with ApiServer() as server, Client(server.config(), observer=watchman.observer()) as client:
        app = application({"/pods": Admits()})
        election = LeaderElection("here", "default", on_started=watchman.seen_by("on_started"),
                                  on_stopped=watchman.seen_by("on_stopped"),
                                  on_new_leader=watchman.seen_by("on_new_leader"))
        hooks = WebhookServer(app, "127.0.0.1:0", certificates=SelfSigned(hosts=("127.0.0.1",)), client=client)
        manager = Manager(client, serve=None, leader=election).add_server(hooks)
        Api.namespaced(client, ConfigMap, "default").create(ConfigMap(name="a"))
        manager.add(Controller(Api.all(client, ConfigMap)), watchman.seen_by("reconcile", Action.await_change()))
        manager.add_runnable(lambda stop: (watchman.look("runnable"), stop.wait())[1], "work")
        manager.add_check("mine", watchman.seen_by("check"))
        with manager.start() as running:
            eventually(lambda: {"runnable", "reconcile"} <= watchman.calls.keys(), timeout=LIMIT)
            apply_webhooks(client, app, "hooks", url=f"https://127.0.0.1:{hooks.port}", ca_bundle=hooks.ca_bundle)
            pod = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
            Api.namespaced(client, Pod, "default").create(pod)
            assert running.is_ready, running.why_not_ready
        with Recorder(client, "test") as recorder:
            recorder.publish(Api.namespaced(client, Pod, "default").get("a"), "Seen", "it was seen")
    watchman.give_verdict("validate", "mutate", "on_started", "on_stopped", "on_new_leader", "reconcile", "runnable",
                          "check", "observer: webhook_answered", "observer: leadership_changed")


def test_of_a_health_server(watchman: Watchman) -> None:
    with HealthServer("127.0.0.1:0", checks={"mine": watchman.seen_by("check")}) as health:
        def ask() -> None:
            assert health.application({"REQUEST_METHOD": "GET", "PATH_INFO": "/readyz"}, lambda *_: None)

        ask()
    watchman.give_verdict("check")


def test_of_webhooks_that_the_embedded_server_cannot_reach(watchman: Watchman) -> None:
    class Admits(Admission[Pod], failure_policy="Ignore"):
        def validate(self, request: AdmissionRequest[Pod]) -> None: ...

    with ApiServer() as server, server.client() as client:
        apply_webhooks(client, application({"/pods": Admits()}), "hooks", url="https://127.0.0.1:1", ca_bundle=b"")
        Api.namespaced(client, Pod, "default").create({"metadata": {"name": "a"},
                                                       "spec": {"containers": [{"name": "a", "image": "a"}]}})
    watchman.give_verdict(*[place for place in watchman.calls if "ignored" in place])
    assert any("ignored" in place for place in watchman.calls)


def test_a_controller_may_be_started_by_who_hears_of_its_start() -> None:
    """Which is refused, and not waited for."""
    refused: list[BaseException] = []
    waiting: list[bool] = []

    class Starting(Observer):
        def controller_started(self, controller: str, concurrency: int) -> None:
            thread = threading.Thread(target=start)
            thread.start()
            thread.join(5)
            waiting.append(thread.is_alive())

    with ApiServer() as server, server.client() as client:
        controller = Controller(Api.all(client, ConfigMap), observer=Starting())

        def start() -> None:
            try:
                controller.start(lambda obj, ctx: Action.await_change())
            except RequestError as error:
                refused.append(error)

        controller.start(lambda obj, ctx: Action.await_change()).stop()
    assert "is already running" in str(*refused)
    assert waiting == [False]
