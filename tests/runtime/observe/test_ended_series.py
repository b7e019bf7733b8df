"""The metrics of what has ended: the last few stay, all others go."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from kubectl_runtime import (
    Action,
    Api,
    Client,
    Controller,
    LeaderElection,
    Manager,
    Metrics,
    Sharding,
    elect,
    watch_store,
)
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.runtime.observe.families import KEPT
from kubectl_runtime.testing import ApiServer, eventually

LIMIT = 20


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    with ApiServer() as running:
        yield running


@contextmanager
def measured(server: ApiServer) -> Iterator[tuple[Client, Metrics]]:
    metrics = Metrics(CollectorRegistry())
    with server.client() as plain, Client(plain.config, observer=metrics) as client:
        yield client, metrics


def lines(metrics: Metrics, part: str = "") -> list[str]:
    return [line for line in generate_latest(metrics.registry).decode().splitlines()
            if part in line and not line.startswith("#")]


def maps(client: Client, number: int) -> Any:
    return Api.namespaced(client, ConfigMap, f"n{number}")


def run_a_controller(client: Client, number: int) -> None:
    with Controller(maps(client, number), name=f"c{number}").start(lambda obj, ctx: Action.await_change()) as running:
        running.wait_until_ready(LIMIT)


def keep_a_store(client: Client, number: int) -> None:
    with watch_store(maps(client, number)) as store:
        store.wait_until_ready(LIMIT)


def stand_for_election(client: Client, number: int) -> None:
    with elect(client, LeaderElection(f"e{number}", "default")) as lock:
        assert lock.wait(LIMIT)


def share(client: Client, number: int) -> None:
    sharding = Sharding(f"s{number}", "default", shards=2)
    with Manager(client, sharding=sharding, serve=None).start() as running:
        eventually(lambda: running.shards, lambda held: len(held) == 2, timeout=LIMIT)


@pytest.mark.parametrize("work", [run_a_controller, keep_a_store, stand_for_election, share])
def test_the_series_of_what_has_ended_do_not_pile_up(server: ApiServer, work: Callable[[Client, int], None]) -> None:
    def own() -> int:
        """Lines but those of requests, whose statuses come by chance."""
        return sum("rest_client" not in line for line in lines(metrics))

    with measured(server) as (client, metrics):
        for number in range(KEPT + 2):
            work(client, number)
        some = own()
        for number in range(KEPT + 2, 20):
            work(client, number)
        assert own() == some
        assert not lines(metrics, "n0") + lines(metrics, '"c0"') + lines(metrics, '"e0"') + lines(metrics, '"s0-')


def test_what_goes_on_beside_ended_ones_keeps_its_series(server: ApiServer) -> None:
    with measured(server) as (client, metrics), watch_store(maps(client, 100)) as store:
        store.wait_until_ready(LIMIT)
        with Controller(maps(client, 101), name="stays").start(lambda obj, ctx: Action.await_change()) as running:
            running.wait_until_ready(LIMIT)
            for number in range(2 * KEPT):
                run_a_controller(client, number)
            assert lines(metrics, 'kubectl_runtime_controller_running{controller="stays"} 1.0')
            assert lines(metrics, 'kubectl_runtime_store_objects{watch="configmaps in namespace n100"}')
        assert lines(metrics, 'kubectl_runtime_controller_running{controller="stays"} 0.0'), "the last values stay"


def test_a_watch_that_has_stopped_stores_nothing(server: ApiServer) -> None:
    def values() -> list[float]:
        found = lines(metrics, "kubectl_runtime_store_objects{") + lines(metrics, "kubectl_runtime_store_bytes{")
        return [float(line.rpartition(" ")[2]) for line in found if "n100" in line]

    with measured(server) as (client, metrics):
        server.load([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "namespace": "n100"}}])
        for _ in range(2):  # it may be started again
            with watch_store(maps(client, 100)) as store:
                store.wait_until_ready(LIMIT)
                assert values()[0] == 1
                assert values()[1] > 100
            assert values() == [0, 0]


def test_webhooks_of_servers_that_have_stopped_go_and_those_of_others_stay() -> None:
    metrics = Metrics(CollectorRegistry())
    for number in range(20):
        metrics.webhooks_served((f"/w{number}", "/shared"))
    metrics.webhook_began("/w0")
    for number in range(19):
        metrics.webhooks_ended((f"/w{number}", "/shared"))
    metrics.webhook_answered("/w0", 200, 1.0)  # an application that took longer than the stop
    shown = {line.split('webhook="')[1].split('"')[0] for line in lines(metrics, "webhook=")}
    assert shown == {"/shared", "/w19", *(f"/w{number}" for number in range(19 - KEPT, 19))}
    metrics.webhooks_served(("/w18",))
    metrics.webhooks_ended(("/w19", "/shared"))
    metrics.webhooks_ended(("/w18",))
    assert len(lines(metrics, "requests_in_flight")) == KEPT
