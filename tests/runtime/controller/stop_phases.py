"""Controllers in each phase of their life in which nothing runs, and how long `stop()` takes there.

    python -m tests.runtime.controller.stop_phases [ROUNDS]     prints the largest time of each phase, and of all

Each phase is a context manager that gives a started controller, once it is in the phase: its threads are in the calls
in which they are to be interrupted (as far as a stack shows it: a thread that is not yet in the kernel makes it only
easier).
"""
from __future__ import annotations

import logging
import queue
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import repeat
from typing import Any

from kubectl_runtime import Action, Api, Client, Config, Context, Controller, Running, StopToken
from kubectl_runtime.apiserver.server import ApiServer
from kubectl_runtime.core.meta.gvk import ObjectRef
from kubectl_runtime.resources import ConfigMap, Secret
from kubectl_runtime.runtime.lifecycle.lifecycle import stack_of
from kubectl_runtime.runtime.store.reflector import reflector, store
from kubectl_runtime.runtime.watch.states import Phase
from kubectl_runtime.runtime.watch.watcher import watcher
from tests.client.wire_server import Peer, WireServer
from tests.runtime.scripted_cluster import Child, Cluster, Parent

GRACE = 20.0
LIMIT = 20.0
"""Seconds after which a controller never comes into a phase."""

Enter = Callable[[], AbstractContextManager[Running[Any]]]
PHASES: dict[str, Enter] = {}


def phase(enter: Callable[[], Iterator[Running[Any]]]) -> None:
    PHASES[enter.__name__.replace("_", " ")] = contextmanager(enter)


def until(reached: Callable[[], bool]) -> None:
    """Wait until it is so."""
    deadline = time.monotonic() + LIMIT
    while not reached():
        assert time.monotonic() < deadline, "the phase was not reached"
        threading.Event().wait(0.001)


def until_in(running: Running[Any], threads: str, call: str) -> None:
    """Wait until each of its threads with `threads` in their name has this call on its stack."""
    def stacks() -> list[str]:
        all_of = running._threads
        own = {*all_of.own, *all_of.sources, *all_of._watching(lambda _: True)}  # others may use its watches too
        return [stack_of(thread.ident) for thread in own if threads in thread.name]

    assert stacks()
    until(lambda: all(call in stack for stack in stacks()))


def do_nothing(obj: Any, ctx: Context[Any]) -> Action:
    return Action.await_change()


def on(client: Client) -> Controller[ConfigMap]:
    api = Api.namespaced(client, ConfigMap, "default")
    return Controller(api).owns(Api.namespaced(client, Secret, "default"))


def of(port: int, scheme: str = "http") -> Client:
    return Client(Config(cluster_url=f"{scheme}://127.0.0.1:{port}"))


@phase
def just_started() -> Iterator[Running[Any]]:
    yield Controller(Cluster(blocking=True).api(Parent)).start(do_nothing)


@phase
def connecting() -> Iterator[Running[Any]]:
    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listening.getsockname())
        running = on(of(listening.getsockname()[1])).start(do_nothing)
        until_in(running, "watch", "in dial")
        yield running


@phase
def in_a_TLS_handshake() -> Iterator[Running[Any]]:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        running = on(of(silent.getsockname()[1], "https")).start(do_nothing)
        until_in(running, "watch", ".do_handshake()")
        yield running


@phase
def a_frozen_server() -> Iterator[Running[Any]]:
    def serve(peer: Peer) -> None:
        peer.receive()
        peer.hold()

    with WireServer(serve) as server, server.client() as client:
        running = on(client).start(do_nothing)
        until_in(running, "watch", ".recv(")
        yield running


@phase
def half_a_list() -> Iterator[Running[Any]]:
    def serve(peer: Peer) -> None:
        peer.receive()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{")
        peer.hold()

    with WireServer(serve) as server, server.client() as client:
        running = on(client).start(do_nothing)
        until_in(running, "watch", ".recv_into(")
        yield running


@phase
def a_server_that_refuses() -> Iterator[Running[Any]]:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    running = on(of(port)).start(do_nothing)
    until(lambda: all(state.phase is Phase.WAITING for state in running.watch_states.values()))
    yield running


@phase
def converged_with_open_watches() -> Iterator[Running[Any]]:
    with ApiServer() as server, server.client() as client:
        running = on(client).start(lambda obj, ctx: Action.requeue(300))
        running.wait_until_ready(GRACE)
        until_in(running, "watch", ".recv_into(")
        yield running


@phase
def keys_in_backoff() -> Iterator[Running[Any]]:
    cluster = Cluster(blocking=True)
    for number in range(20):
        cluster.put(Parent, f"p{number}")

    def fail(obj: Any, ctx: Context[Any]) -> Action:
        raise ValueError("planned")

    running = Controller(cluster.api(Parent)).start(fail, error_policy=lambda obj, error, ctx: Action.requeue(60))
    running.wait_until_ready(GRACE)
    until(lambda: running._assembly.runner.failing() == (20, 0))
    yield running


@phase
def a_store_is_missing() -> Iterator[Running[Any]]:
    cluster = Cluster(blocking=True)
    cluster.failing.add(Child.api_resource)
    yield Controller(cluster.api(Parent)).owns(cluster.api(Child)).start(do_nothing)


def _with_source(source: Any, call: str, *, bulk: bool = False) -> Running[Any]:
    """A controller whose source is in this call."""
    controller = Controller(Cluster(blocking=True).api(Parent))
    running = (controller.reconcile_all_on if bulk else controller.reconcile_on)(source).start(do_nothing)
    running.wait_until_ready(GRACE)
    until_in(running, "trigger source", call)
    return running


@phase
def a_source_that_blocks_for_ever() -> Iterator[Running[Any]]:
    items: queue.SimpleQueue[ObjectRef | None] = queue.SimpleQueue()
    yield _with_source(iter(items.get, None), "item = step()")
    items.put(None)


@phase
def a_generator_that_sleeps() -> Iterator[Running[Any]]:
    end = threading.Event()

    def now_and_then() -> Iterator[Any]:
        while not end.wait(60):
            yield None

    yield _with_source(now_and_then(), "in now_and_then", bulk=True)
    end.set()


class EndlessWait:
    """An iterable, and a queue, in which everything blocks: the next item, the deadline it is asked for with, the end.
    """

    def __init__(self) -> None:
        self.end = threading.Event()

    def __iter__(self) -> EndlessWait:
        return self

    def __next__(self) -> Any:
        self.end.wait(60)
        raise StopIteration

    def close(self) -> None:
        self.end.wait(60)


class EndlessQueue:
    def __init__(self) -> None:
        self.end = threading.Event()

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        self.end.wait(60)
        raise queue.Empty


@phase
def a_source_whose_end_blocks_too() -> Iterator[Running[Any]]:
    source = EndlessWait()
    yield _with_source(source, "in __next__")
    source.end.set()


@phase
def a_queue_that_ignores_its_timeout() -> Iterator[Running[Any]]:
    source = EndlessQueue()
    yield _with_source(source, "source.get(")
    source.end.set()


@phase
def a_source_that_never_pauses() -> Iterator[Running[Any]]:
    yield _with_source(repeat(ObjectRef.of(Parent, "a", "default")), "in pull")


@phase
def a_queue_without_items() -> Iterator[Running[Any]]:
    yield _with_source(queue.Queue[Any](), "source.get(")


@phase
def a_watcher_as_a_source() -> Iterator[Running[Any]]:
    with ApiServer() as server, server.client() as client:
        after = StopToken()  # which the controller does not know
        yield _with_source(watcher(Api.namespaced(client, ConfigMap, "default"), stop=after),
                           ".recv_into(", bulk=True)
        after.set()


@phase
def a_stream_without_a_token() -> Iterator[Running[Any]]:
    with ApiServer() as server, server.client() as client:
        maps, writer = store(ConfigMap)
        after = StopToken()
        stream = reflector(writer, watcher(Api.namespaced(client, ConfigMap, "default"), stop=after))
        running = Controller.for_stream(stream, maps, client=client).start(do_nothing)
        running.wait_until_ready(GRACE)
        until_in(running, "stream", ".recv_into(")
        yield running
        after.set()


def measure(enter: Enter) -> float:
    """Real seconds that `stop()` takes in this phase."""
    with enter() as running:
        began = time.perf_counter()
        stuck = running.stop(GRACE)
        took = time.perf_counter() - began
        assert stuck == []
    return took


def main(rounds: int) -> None:
    logging.disable(logging.CRITICAL)
    largest = {name: max(measure(enter) for _ in range(rounds)) for name, enter in PHASES.items()}
    for name, took in largest.items():
        print(f"{took * 1000:7.1f} ms  {name}")
    print(f"{max(largest.values()) * 1000:7.1f} ms  the largest of {rounds} rounds of {len(largest)} phases")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
