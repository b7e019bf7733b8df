"""A log handler that raises on every line, of whatever part of the library, costs the lines and nothing else; one that
blocks keeps who stands in it, and no stop."""
from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kubectl_runtime import Action, Api, ApiError, Context, Controller, LeaderElection, Manager, StopToken
from kubectl_runtime.apiserver.server import ApiServer
from kubectl_runtime.resources import ConfigMap, Secret
from kubectl_runtime.testing import eventually

LIMIT = 20.0


class RaisingHandler(logging.Handler):
    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error
        self.asked = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.asked += 1
        raise self.error


class RaisingFilter(logging.NullHandler):
    """A handler that is never reached: its filter raises."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error
        self.asked = 0

    def handle(self, record: logging.LogRecord) -> bool:
        self.asked += 1
        raise self.error


@pytest.fixture(params=[RuntimeError("planned"), SystemExit(3), GeneratorExit()], ids=["error", "exit", "generator"])
def error(request: pytest.FixtureRequest) -> BaseException:
    return request.param


@pytest.fixture(params=[RaisingHandler, RaisingFilter])
def handler(request: pytest.FixtureRequest, error: BaseException) -> Iterator[Any]:
    own, library = request.param(error), logging.getLogger("kubectl_runtime")
    level = library.level
    library.setLevel(logging.DEBUG)
    library.addHandler(own)
    yield own
    library.removeHandler(own)
    library.setLevel(level)


def test_a_controller_lives_through_failures_and_breaks_and_converges(handler: Any) -> None:
    ran: queue.SimpleQueue[str] = queue.SimpleQueue()

    def reconcile(obj: ConfigMap, ctx: Context[Any]) -> Action:
        ctx.logger.warning("a line of the program's own")
        secrets = Api.namespaced(ctx.client, Secret, "default")
        if secrets.get_opt(obj.name) is None:
            secrets.create(Secret(name=obj.name))
        ran.put(obj.name)
        if ctx.attempt == 1:
            raise ValueError("planned")
        return Action.await_change()

    with ApiServer() as server, server.client() as client:
        maps = Api.namespaced(client, ConfigMap, "default")
        server.faults.on("list watch", resource="configmaps").first(1).status(503)
        server.faults.on("create", resource="secrets").first(2).status(503)
        server.faults.on("get", resource="secrets").nth(2).drop()
        with Controller(maps).owns(Api.namespaced(client, Secret, "default")).start(reconcile) as running:
            maps.create(ConfigMap(name="a"))
            assert ran.get(timeout=LIMIT) == "a"
            server.drop_connections()
            maps.get("a")  # behind a proxy the end of a connection is seen later, and a write may be on its way then
            maps.create(ConfigMap(name="b"))
            seen = ["a"]
            while seen.count("b") < 2:
                seen.append(ran.get(timeout=LIMIT))
            assert running.error is None
            assert running.stop() == []
    assert handler.asked > 20


def test_a_call_whose_line_cannot_be_written_answers_all_the_same(handler: Any) -> None:
    with ApiServer() as server, server.client() as client:
        maps = Api.namespaced(client, ConfigMap, "default")
        server.faults.on("get list").first(3).status(503)
        assert maps.create(ConfigMap(name="a")).name == "a"
        assert maps.get("a").name == "a"
        server.faults.on("get").status(401)
        with pytest.raises(ApiError, match="401"):
            maps.get("a")
    assert handler.asked


class BlockingHandler(logging.NullHandler):
    """Once told to, keeps every line until it is let go. Without a lock: each thread blocks for itself."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks, self.free = threading.Event(), threading.Event()

    def handle(self, record: logging.LogRecord) -> bool:
        if self.blocks.is_set():
            self.free.wait(LIMIT)
        return True


@pytest.fixture
def blocking() -> Iterator[BlockingHandler]:
    own, library = BlockingHandler(), logging.getLogger("kubectl_runtime")
    level = library.level
    library.setLevel(logging.INFO)
    library.addHandler(own)
    yield own
    own.free.set()
    library.removeHandler(own)
    library.setLevel(level)


@pytest.mark.parametrize("in_the_run", [False, True], ids=["idle", "a run logs"])
def test_a_handler_that_blocks_is_not_waited_for_beyond_the_time_of_the_stop(
        blocking: BlockingHandler, *, in_the_run: bool) -> None:
    ran, go_on = threading.Event(), threading.Event()

    def reconcile(obj: ConfigMap, ctx: Context[Any]) -> Action:
        ran.set()
        go_on.wait(LIMIT)
        if in_the_run:
            ctx.logger.info("a line that nobody gets")
        return Action.await_change()

    with ApiServer() as server, server.client() as client:
        maps = Api.namespaced(client, ConfigMap, "default")
        maps.create(ConfigMap(name="a"))
        running = Controller(maps).start(reconcile)
        assert ran.wait(LIMIT)
        blocking.blocks.set()
        go_on.set()
        begun = time.monotonic()
        stuck = running.stop(timeout=2)
        took = time.monotonic() - begun
        blocking.free.set()
    assert [ref.name for ref in stuck] == (["a"] if in_the_run else [])
    assert took < LIMIT / 2  # for which the handler blocks twice
    assert running.has_ended


@pytest.mark.parametrize("serve", [None, "127.0.0.1:0"], ids=["alone", "with a server"])
def test_nor_is_it_by_the_end_of_a_manager(blocking: BlockingHandler, serve: str | None) -> None:
    with ApiServer() as server, server.client() as client:
        manager = Manager(client, serve=serve, leader=LeaderElection("one", "default"))
        manager.add(Controller(Api.namespaced(client, ConfigMap, "default")), lambda obj, ctx: Action.await_change())
        running = manager.start()
        eventually(lambda: running.phase.name == "LEADING", timeout=LIMIT)
        blocking.blocks.set()
        begun = time.monotonic()
        running.stop(timeout=1)
        assert time.monotonic() - begun < LIMIT / 2
        assert running.phase.name == "STOPPED"


def test_what_an_end_logs_has_its_traceback_and_is_written_when_the_stop_returns(
        caplog: pytest.LogCaptureFixture) -> None:
    def fails(stop: StopToken) -> None:
        raise ValueError("planned")

    with ApiServer() as server, server.client() as client, caplog.at_level(logging.INFO, "kubectl_runtime.manager"):
        running = Manager(client, serve=None).add_runnable(fails, "work").start()
        assert running.wait(LIMIT)
        running.stop()
    [told] = [record for record in caplog.records if record.levelno == logging.CRITICAL]
    assert told.exc_info is not None
    assert isinstance(told.exc_info[1], ValueError)
    assert caplog.messages[-1] == "manager: stopped"
