"""How a controller ends: how soon, what is said, what is broken off and what is not."""
from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubectl_runtime import Api, ApiError, RetryPolicy, await_condition, retry_on_conflict
from kubectl_runtime.api import ConflictBackoff
from kubectl_runtime.apiserver.server import ApiServer
from kubectl_runtime.core.base.errors import TransportError
from kubectl_runtime.core.base.guard import guarded_logger
from kubectl_runtime.core.base.observer import Observer
from kubectl_runtime.core.base.threads import MAIN_THREAD_WAIT, SYSTEM_CLOCK
from kubectl_runtime.core.scope import StopToken, current_scope
from kubectl_runtime.errors import WaitStopped
from kubectl_runtime.objects import Status
from kubectl_runtime.resources import ConfigMap, Pod
from kubectl_runtime.runtime.conditions import is_created
from kubectl_runtime.runtime.controller.assembly import what_is_waited_for
from kubectl_runtime.runtime.controller.controller import Controller
from kubectl_runtime.runtime.controller.plan import ControllerError
from kubectl_runtime.runtime.controller.running import Running
from kubectl_runtime.runtime.lifecycle.lifecycle import DEFAULT_GRACE, Shutdown, ShutdownLog
from kubectl_runtime.runtime.reconcile.reconciler import Action, Context
from kubectl_runtime.runtime.watch.event import InitApply
from kubectl_runtime.runtime.watch.watcher import metadata_watcher, watch_object, watcher
from kubectl_runtime.testing.clock import SimClock
from tests.client.wire_server import Peer, WireServer, config_map
from tests.runtime.controller.stop_phases import PHASES, measure
from tests.runtime.controller.told_to_stop import stop_when_told
from tests.runtime.scripted_cluster import Cluster, Parent
from tests.thoroughness import examples

LIMIT = 20.0
AT_ONCE = 0.2
"""Seconds that a stop may take when nothing runs."""


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(blocking=True)


@pytest.fixture
def clock() -> SimClock:
    return SimClock()


@pytest.fixture
def still(clock: SimClock) -> Cluster:
    """For a controller whose time passes only when a test moves the clock."""
    return Cluster(clock, blocking=True)


@pytest.fixture
def handler() -> Iterator[logging.Handler]:
    """Every line of the library goes through it; a test sets its `emit`."""
    own, library = logging.Handler(), logging.getLogger("kubectl_runtime")
    level = library.level
    library.setLevel(logging.DEBUG)
    library.addHandler(own)
    yield own
    library.removeHandler(own)
    library.setLevel(level)


def in_a_run(cluster: Cluster, body: Callable[[Context[Any]], Any]) -> tuple[Running[Parent], threading.Event]:
    """A controller of which one run is in `body`."""
    begun = threading.Event()

    def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
        begun.set()
        body(ctx)
        return Action.await_change()

    cluster.put(Parent, "a")
    running = Controller(cluster.api(Parent)).start(reconcile)
    assert begun.wait(LIMIT)
    return running, begun


@pytest.mark.parametrize("phase", [
    pytest.param(phase, marks=pytest.mark.direct("its address is dead")) if phase == "connecting" else phase
    for phase in PHASES])
def test_when_nothing_runs_a_stop_is_over_at_once(phase: str) -> None:
    took, give_up = list[float](), time.monotonic() + LIMIT
    while min(took, default=LIMIT) >= AT_ONCE:  # a busy machine may hold any one of them up
        assert time.monotonic() < give_up, f"{phase}: {took}"
        took.append(measure(PHASES[phase]))


def test_the_default_grace_leaves_a_pod_time_to_end_its_process() -> None:
    assert DEFAULT_GRACE == 25.0


# What is said

def test_timers_are_no_work_that_is_dropped(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    ran: queue.SimpleQueue[str] = queue.SimpleQueue()

    def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
        ran.put(obj.name)
        return Action.requeue(300)

    for number in range(20):
        cluster.put(Parent, f"p{number}")
    running = Controller(cluster.api(Parent)).start(reconcile)
    for _ in range(20):
        ran.get(timeout=LIMIT)
    running.stop()
    assert "stopping: stop() was called; 0 due runs dropped; nothing is running" in caplog.text


def test_due_runs_that_are_dropped_are_counted_and_runs_that_are_waited_for_are_named(
        cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    begun, end = threading.Event(), threading.Event()

    def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
        begun.set()
        end.wait(LIMIT)
        return Action.await_change()

    for name in "abc":
        cluster.put(Parent, name)
    running = Controller(cluster.api(Parent), concurrency=1).start(reconcile)
    assert begun.wait(LIMIT)
    running._shutdown.draining.on_set(end.set)
    running.stop(7)
    (line,) = [record.getMessage() for record in caplog.records if record.getMessage().startswith("stopping")]
    assert "; 2 due runs dropped; waits until " in line
    assert "(7 s) for 1 run: Parent.v1.test.example/a.default" in line
    assert "second signal" not in line


def test_of_many_runs_ten_are_named_and_an_endless_wait_is_called_so() -> None:
    shutdown = Shutdown(SYSTEM_CLOCK)
    shutdown.begin("test", float("inf"))
    runs: Any = [type("Run", (), {"request": type("Request", (), {"ref": number})}) for number in range(12)]
    said = what_is_waited_for(runs, shutdown, SYSTEM_CLOCK)
    assert said == "waits without a limit for 12 runs: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more"


def test_a_source_that_blocks_is_left_by_name_and_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    measure(PHASES["a source that blocks for ever"])
    assert "not waiting for thread 'parent trigger source 1': it blocks in a trigger source" in caplog.text
    assert [record for record in caplog.records if record.levelno > logging.INFO] == []


def test_a_log_handler_that_blocks_does_not_hold_up_a_stop(cluster: Cluster, handler: logging.Handler) -> None:
    running = Controller(cluster.api(Parent)).start(lambda obj, ctx: Action.await_change())
    running.wait_until_ready(LIMIT)
    release, held = threading.Event(), threading.Event()

    def emit(record: logging.LogRecord) -> None:
        held.set()
        release.wait(LIMIT)

    handler.emit = emit  # type: ignore[method-assign]
    began = time.monotonic()
    assert running.stop(2) == []
    took = time.monotonic() - began
    release.set()
    for thread in threading.enumerate():  # what it still says would reach the next test's handler
        if thread.name.endswith("shutdown log"):
            thread.join(LIMIT)
    assert held.is_set()
    assert took < LIMIT / 2, took  # for which the handler blocks twice


def test_lines_of_a_shutdown_come_in_order_and_a_handler_may_stop_the_controller(handler: logging.Handler) -> None:
    words = ShutdownLog(guarded_logger("kubectl_runtime.test"), "words")
    said: list[str] = []

    def emit(record: logging.LogRecord) -> None:
        said.append(record.getMessage())
        words.finish(time.monotonic() + LIMIT)

    handler.emit = emit  # type: ignore[method-assign]
    for number in range(5):
        words.info("line %d", number)
    words.finish(time.monotonic() + LIMIT)
    deadline = time.monotonic() + LIMIT
    while "line 0" not in said and time.monotonic() < deadline:
        threading.Event().wait(0.01)
    assert said == [f"line {number}" for number in range(len(said))]
    assert said


class ThreadThatEndsWhenJoined(threading.Thread):
    """Needs a moment of whoever waits for its end: it ends once it is joined with one."""

    MOMENT = 0.5

    def __init__(self) -> None:
        self.joined_for: float | None = None
        self._go = threading.Event()
        super().__init__(target=self._go.wait, args=(LIMIT,), daemon=True)

    def join(self, timeout: float | None = None) -> None:
        self.joined_for = timeout
        if timeout is None or timeout >= self.MOMENT:
            self._go.set()
        super().join(timeout)


def test_a_thread_of_the_library_is_joined_also_when_a_run_has_used_up_the_grace(
        cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """What a stuck run leaves of the grace is nothing; the others need their milliseconds all the same."""
    release = threading.Event()
    running, _ = in_a_run(cluster, lambda ctx: release.wait(LIMIT))
    late = ThreadThatEndsWhenJoined()
    late.start()
    running._threads._others.append(late)
    assert [ref.name for ref in running.stop(0.05)] == ["a"]
    release.set()
    assert late.joined_for is not None
    assert not late.is_alive()
    stuck = [record.getMessage() for record in caplog.records if "does not end" in record.getMessage()]
    assert len(stuck) == 1
    assert stuck[0].startswith("the reconciler of Parent")


# What begins it

def test_a_client_that_is_closed_under_a_controller_ends_it_with_the_reason(cluster: Cluster) -> None:
    running = Controller(cluster.api(Parent)).start(lambda obj, ctx: Action.await_change())
    running.wait_until_ready(LIMIT)
    cluster.client.close()
    assert running.wait(LIMIT)
    assert running.stop() == []
    with pytest.raises(ControllerError, match="its client was closed while it ran"):
        running.raise_error()


def test_a_client_that_is_closed_after_the_stop_is_no_error(cluster: Cluster) -> None:
    with Controller(cluster.api(Parent)).start(lambda obj, ctx: Action.await_change()) as running:
        running.wait_until_ready(LIMIT)
    cluster.client.close()
    assert running.error is None


def test_an_observer_may_stop_the_controller_whose_end_it_observes(cluster: Cluster) -> None:
    """The end's own thread calls it, and cannot wait for itself."""
    stopped: list[Any] = []

    class Stops(Observer):
        def controller_stopped(self, controller: str, stuck: int) -> None:
            stopped.append(running.stop())

    running = Controller(cluster.api(Parent), observer=Stops()).start(lambda obj, ctx: Action.await_change())
    stopper = threading.Thread(target=running.stop, daemon=True)
    stopper.start()
    stopper.join(LIMIT)
    assert stopped == [[]]
    assert running.has_ended


def test_an_end_that_begins_inside_comes_to_its_end_without_anybody(cluster: Cluster) -> None:
    holder: queue.SimpleQueue[Running[Parent]] = queue.SimpleQueue()

    def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
        holder.get(timeout=LIMIT).stop()
        return Action.await_change()

    cluster.put(Parent, "a")
    controller = Controller(cluster.api(Parent))
    running = controller.start(reconcile)
    holder.put(running)
    deadline = time.monotonic() + LIMIT
    while not running.has_ended:
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)
    controller.start(lambda obj, ctx: Action.await_change()).stop()


def test_stops_from_several_threads_at_once_agree(cluster: Cluster) -> None:
    release = threading.Event()
    running, _ = in_a_run(cluster, lambda ctx: release.wait(LIMIT))
    answers: list[list[str]] = []
    threads = [threading.Thread(target=lambda: answers.append([ref.name for ref in running.stop(0.3)]))
               for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    release.set()
    assert answers == [["a"]] * 5


# What is broken off

def test_calls_of_a_run_see_the_end_of_the_grace_and_calls_outside_do_not(cluster: Cluster) -> None:
    scopes: list[Any] = []
    running, _ = in_a_run(cluster, lambda ctx: scopes.append((current_scope(), ctx.stop)))
    running.stop()
    (scope, stop), = scopes
    assert scope.stop is stop
    assert current_scope() is None


def test_a_read_that_is_never_answered_ends_with_the_grace_and_is_not_stuck(
        still: Cluster, clock: SimClock, caplog: pytest.LogCaptureFixture) -> None:
    asked = threading.Event()

    def serve(peer: Peer) -> None:
        peer.receive()
        asked.set()
        peer.hold()

    with WireServer(serve) as server, server.client() as client:
        running, _ = in_a_run(still, lambda ctx: Api.namespaced(client, ConfigMap, "default").get("a"))
        assert asked.wait(LIMIT)
        assert stop_when_told(running, clock) == []
    assert "ended by the shutdown: ConnectionFailed: get configmaps default/a: given up" in caplog.text


def test_a_wait_between_attempts_ends_with_the_grace(still: Cluster, clock: SimClock) -> None:
    answered = threading.Event()

    def serve(peer: Peer) -> None:
        while peer.receive():
            peer.answer(503, b"{}", headers=("Retry-After: 50",))
            answered.set()

    with WireServer(serve) as server, server.client() as client:
        running, _ = in_a_run(still, lambda ctx: Api.namespaced(client, ConfigMap, "default").get("a"))
        assert answered.wait(LIMIT)
        assert stop_when_told(running, clock) == []


def test_the_librarys_own_waits_in_a_run_end_with_the_grace(still: Cluster, clock: SimClock) -> None:
    ended: list[str] = []

    def wait(ctx: Context[Any]) -> None:
        try:
            await_condition(Api.namespaced(client, ConfigMap, "default"), "a", is_created, timeout=100)
        except WaitStopped as error:
            ended.append(str(error))
        conflict = ApiError(Status(code=409, reason="Conflict"), "replace")
        try:
            retry_on_conflict(lambda: raised(conflict), backoff=ConflictBackoff(initial=100))
        except ApiError:
            ended.append("conflict")

    with ApiServer() as server, server.client() as client:
        running, _ = in_a_run(still, wait)
        server.requests.wait_for(1, "watch", resource="configmaps", timeout=LIMIT)
        assert stop_when_told(running, clock) == []
    assert len(ended) == 2
    assert "when the wait was stopped (the grace period is over)" in ended[0]


def raised(error: Exception) -> None:
    raise error


STREAMS: dict[str, Callable[[Api[ConfigMap]], Iterator[Any]]] = {
    "one request": lambda api: api.watch(),
    "a watcher": watcher,
    "a watcher without backoff": lambda api: watcher(api, backoff=None),
    "a watcher with a token of its own": lambda api: watcher(api, stop=StopToken()),
    "an object": lambda api: watch_object(api, "a"),
    "metadata": metadata_watcher}


@pytest.mark.parametrize("answers", [True, False], ids=["an open watch", "a server that refuses"])
@pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS.keys())
def test_a_stream_that_a_run_reads_ends_with_the_grace(
        stream: Callable[[Api[ConfigMap]], Iterator[Any]], answers: bool, still: Cluster, clock: SimClock) -> None:
    read = threading.Event()

    def follow(ctx: Context[Any]) -> None:
        for _ in stream(Api.namespaced(client, ConfigMap, "default")):
            read.set()

    with ApiServer() as server, server.client() as client:
        Api.namespaced(client, ConfigMap, "default").create(ConfigMap(name="a"))
        broken = server.faults.on("list watch", resource="configmaps")
        if not answers:
            broken.drop()
        running, _ = in_a_run(still, follow)
        deadline = time.monotonic() + LIMIT
        while not (read.is_set() if answers else broken.taken):
            assert time.monotonic() < deadline
            threading.Event().wait(0.01)
        assert stop_when_told(running, clock) == []


def _follow(pods: Api[Pod]) -> None:
    with pods.log_stream("p", follow=True) as log:
        for _ in log.lines():
            pass


def _read(pods: Api[Pod]) -> None:
    with pods.exec("p", ["sleep"]) as process:
        process.stdout.read()


def _await(pods: Api[Pod]) -> None:
    with pods.exec("p", ["sleep"]) as process:
        process.returncode()


@pytest.mark.parametrize("read", [_follow, _read, _await])
def test_what_a_run_reads_of_a_pod_ends_with_the_grace(
        read: Callable[[Api[Pod]], None], still: Cluster, clock: SimClock) -> None:
    reading, end = threading.Event(), threading.Event()

    def sleeping(_call: Any) -> int:
        reading.set()
        end.wait(LIMIT)
        return 0

    with ApiServer() as server, server.client() as client:
        server.load({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
                     "spec": {"containers": [{"name": "c", "image": "i"}]}})
        server.kubelet.logs("p", "a line\n")
        server.kubelet.exec("p", sleeping)
        if read is _follow:
            reading.set()
        running, _ = in_a_run(still, lambda ctx: read(Api.namespaced(client, Pod, "default")))
        assert reading.wait(LIMIT)
        assert stop_when_told(running, clock) == []
        end.set()


def test_a_stream_outside_of_runs_knows_nothing_of_their_end(cluster: Cluster) -> None:
    """Made in a run, pulled by a thread of the program's own."""
    streams: queue.SimpleQueue[Any] = queue.SimpleQueue()
    with ApiServer() as server, server.client() as client:
        maps, stop = Api.namespaced(client, ConfigMap, "default"), StopToken()
        running, _ = in_a_run(cluster, lambda ctx: streams.put(watcher(maps, stop=stop)))
        events = streams.get(timeout=LIMIT)
        running.stop()
        maps.create(ConfigMap(name="later"))
        assert any(isinstance(event, InitApply) and event.obj.name == "later" for event in events)
        stop.set()


def test_a_write_that_is_never_answered_ends_too_and_says_that_nothing_is_known(
        still: Cluster, clock: SimClock, caplog: pytest.LogCaptureFixture) -> None:
    asked = threading.Event()

    def serve(peer: Peer) -> None:
        peer.receive()
        asked.set()
        peer.hold()

    body = {"metadata": {"name": "a"}}
    with WireServer(serve) as server, server.client() as client:
        running, _ = in_a_run(still, lambda ctx: Api.namespaced(client, ConfigMap, "default").create(body))
        assert asked.wait(LIMIT)
        assert stop_when_told(running, clock, writes=True) == []
    assert "whether the server has carried it out is not known" in caplog.text


def test_no_stop_breaks_a_write_within_its_grace(cluster: Cluster) -> None:
    """The controller's own list is in flight when the stop begins, and what ends it is held up; meanwhile a run's write
    goes out on the connection which the list has given back."""
    stopping, posted, go_on = threading.Event(), threading.Event(), threading.Event()
    results: list[Any] = []

    def serve(peer: Peer) -> None:
        while (request := peer.receive()) is not None:
            if request.method == "GET":
                listing.set()
                stopping.wait(LIMIT)
                peer.answer(200, {"metadata": {"resourceVersion": "1"}, "items": []})
            else:
                posted.set()
                go_on.wait(LIMIT)
                peer.answer(201, config_map())

    listing = threading.Event()
    with WireServer(serve) as server, server.client(client={"retry": RetryPolicy.never()}) as client:
        maps = Api.namespaced(client, ConfigMap, "default")

        def write(ctx: Context[Any]) -> None:
            listed.wait(LIMIT)
            try:
                results.append(maps.create({"metadata": {"name": "a"}}).name)
            except TransportError as error:
                results.append(error)

        listed = threading.Event()
        running, _ = in_a_run(cluster, write)
        draining = running._shutdown.draining

        def held_up() -> None:
            stopping.set()
            assert posted.wait(LIMIT)

        def lists() -> None:
            try:
                maps.list_page(stop=draining)
            finally:
                listed.set()

        draining.on_set(held_up)  # before the list's own callback, as a slow one of anybody's may be
        reader = threading.Thread(target=lists)
        reader.start()
        assert listing.wait(LIMIT)
        stopper = threading.Thread(target=running.stop, args=(LIMIT,))
        stopper.start()
        assert posted.wait(LIMIT)
        threading.Event().wait(0.1)  # the callbacks that were held up run now
        go_on.set()
        stopper.join(LIMIT)
        reader.join(LIMIT)
    assert results == ["a"]


@given(st.lists(st.floats(0, 1000), min_size=1, max_size=5))
@settings(max_examples=examples(60), deadline=None)
def test_the_moments_of_an_end_are_in_order_and_no_later_stop_puts_them_off(graces: list[float]) -> None:
    clock = SimClock()
    shutdown = Shutdown(clock)
    assert (shutdown.deadline, shutdown.cut_at, shutdown.give_up_at) == (None, None, None)
    before = float("inf")
    for grace in graces:
        shutdown.begin("test", grace)
        assert shutdown.deadline is not None
        assert shutdown.cut_at is not None
        assert shutdown.give_up_at is not None
        assert clock.monotonic() <= shutdown.deadline <= shutdown.cut_at <= shutdown.give_up_at <= before
        assert shutdown.give_up_at - shutdown.deadline <= 2
        before = shutdown.give_up_at


# The main thread

def test_no_wait_in_the_main_thread_is_without_a_look_at_signals() -> None:
    condition, began = threading.Condition(), time.monotonic()
    with condition:
        assert not SYSTEM_CLOCK.wait(condition, None)
    assert time.monotonic() - began >= MAIN_THREAD_WAIT / 2


def test_a_signal_that_comes_just_before_the_wait_for_it_is_heard(
        cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python notes a signal and runs its handler between two instructions; one that comes after the last of them lets
    the wait begin, which must therefore not be endless."""
    running = Controller(cluster.api(Parent)).start(lambda obj, ctx: Action.await_change())
    waits: list[float | None] = []

    class Heard:
        def put(self, number: int | None) -> None: ...

        def get(self, timeout: float | None = None) -> int:
            waits.append(timeout)
            if len(waits) < 3:
                raise queue.Empty
            return 15

    monkeypatch.setattr(running._signals, "heard", Heard())
    assert running.obey_signal() == 15
    assert waits == [MAIN_THREAD_WAIT] * 3
    assert running.stop() == []
