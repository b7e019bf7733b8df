"""Operators in each state that the status page and `top` show, every one on an API server of its own.

Each is a context manager whose value is the URL of the page and what the page shows when it has the state, as
JavaScript.
"""
from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from kubectl_runtime import (
    Action,
    Api,
    ApiResource,
    Client,
    Context,
    Controller,
    KubeError,
    LeaderElection,
    Manager,
    Patch,
    RetryPolicy,
    Sharding,
)
from kubectl_runtime.controller import KeyBackoff
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.runtime.observe.debug import DebugPage
from kubectl_runtime.runtime.observe.listener import ListenAddress
from kubectl_runtime.testing import ApiServer, eventually

LIMIT = 40
WIDGET = ApiResource("example.com", "v1", "Widget", "widgets")
State = tuple[str, str]
MANAGER = "(document.querySelector('#manager')?.textContent ?? '')"


def row(panel: str, name: str, state: str) -> str:
    return f"document.querySelector(`[data-panel='{panel}'] tr[data-name='{name}'][data-state='{state}']`)"


def free_address() -> str:
    with ListenAddress("127.0.0.1", 0).listen() as free:
        return f"127.0.0.1:{free.getsockname()[1]}"


def nothing(obj: Any, ctx: Context[None]) -> Action:
    return Action.await_change()


def maps_of(client: Client, *names: str) -> Api[ConfigMap]:
    maps = Api.namespaced(client, ConfigMap, "default")
    for name in names:
        maps.create(ConfigMap(name=name))
    return maps


def managed(client: Client, reconcile: Callable[[ConfigMap, Context[None]], Action] = nothing, *, address: str,
            **options: Any) -> Manager:
    manager = Manager(client, serve=address, debug=DebugPage(), **options)
    manager.add(Controller(Api.namespaced(client, ConfigMap, "default"), name="shops", concurrency=3,
                           backoff=KeyBackoff(initial=600)), reconcile)
    return manager


@contextlib.contextmanager
def starting() -> Iterator[State]:
    """One watch has no answer yet, and the kind of another does not exist."""
    address = free_address()
    with ApiServer() as server, server.client() as client:
        server.faults.on("list", resource="configmaps").never_answer()
        manager = managed(client, address=address)
        manager.add(Controller(Api.all(client, WIDGET), name="widgets"), nothing)
        running = manager.start()
        try:
            yield f"http://{address}/debug", row("watches", "widgets.example.com", "waiting")
        finally:
            running.stop(1)


@contextlib.contextmanager
def empty() -> Iterator[State]:
    """Everything is ready, and there are no objects."""
    address = free_address()
    with ApiServer() as server, server.client() as client, managed(client, address=address).start():
        yield f"http://{address}/debug", row("watches", "configmaps in namespace default", "watching")


@contextlib.contextmanager
def refused() -> Iterator[State]:
    """Calls are answered by 429 and 503, and one is not answered."""
    address = free_address()

    def writes(obj: ConfigMap, ctx: Context[None]) -> Action:
        ctx.api(ConfigMap).patch(obj, Patch.merge({"data": {"seen": "yes"}}))
        return Action.await_change()

    with ApiServer() as server, Client(server.config(timeout=2), retry=RetryPolicy(initial=0.01)) as client:
        server.faults.on("patch", resource="configmaps").first(3).throttle(0)
        server.faults.on("get", resource="configmaps", name="a").status(503)
        server.faults.on("get", resource="configmaps", name="b").never_answer()
        maps = maps_of(client, "a", "b", "c")
        with managed(client, writes, address=address).start():
            for name, timeout in (("a", 0.5), ("b", 0.2)):
                with contextlib.suppress(KubeError):
                    maps.get(name, timeout=timeout)
            yield f"http://{address}/debug", "document.querySelectorAll(`[data-panel='calls'] .s-failing`).length === 3"


@contextlib.contextmanager
def stopping() -> Iterator[State]:
    """A stop waits for runs that do not end."""
    address, release = free_address(), threading.Event()

    def slow(obj: ConfigMap, ctx: Context[None]) -> Action:
        release.wait(LIMIT)
        return Action.await_change()

    with ApiServer() as server, server.client() as client:
        maps_of(client, *(f"map-{number}" for number in range(5)))
        running = managed(client, slow, address=address).start()
        stop = threading.Thread(target=running.stop, args=(LIMIT,))
        try:
            eventually(lambda: server.requests, lambda seen: any(one.verb == "watch" for one in seen))
            stop.start()
            yield f"http://{address}/debug", MANAGER + ".includes('stopping')"
        finally:
            release.set()
            stop.join()


@contextlib.contextmanager
def sharing() -> Iterator[State]:
    """Three replicas share the objects."""
    steady = {"shards": 16, "lease": 60, "renew_deadline": 40, "retry": 0.2}
    with ApiServer() as server, contextlib.ExitStack() as stack:
        addresses = [free_address() for _ in range(3)]
        for number, address in enumerate(addresses):
            client = stack.enter_context(server.client())
            if not number:
                maps_of(client, *(f"map-{number}" for number in range(30)))
            sharding = Sharding("shops", "default", identity=f"shop-operator-5c9d8f7b6d-x{number}k2p", **steady)
            stack.enter_context(managed(client, address=address, sharding=sharding).start())
        yield f"http://{addresses[0]}/debug", MANAGER + ".split(' has ').length === 3"


@contextlib.contextmanager
def standing_by() -> Iterator[State]:
    """Another replica leads."""
    addresses = [free_address() for _ in range(2)]
    with ApiServer() as server, contextlib.ExitStack() as stack:
        for number, address in enumerate(addresses):
            client = stack.enter_context(server.client())
            election = LeaderElection("shop-operator", "default", identity=f"shop-operator-{number}")
            stack.enter_context(managed(client, address=address, leader=election).start())
            eventually(lambda: server.requests, lambda seen: any(one.verb == "create" for one in seen))
        yield f"http://{addresses[1]}/debug", MANAGER + ".includes('does not lead')"


STATES = [starting, empty, refused, stopping, sharing, standing_by]
"""Beside these: working, failing, a loop and gone, which the tests of the page have."""
