"""Watches that hear nothing for long, and then something: late, all at once, or what happened in between."""
from __future__ import annotations

import logging

import pytest

from kubectl_runtime.client.api.api import Api
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.runtime.triggers.triggers import ReconcileRequest
from kubectl_runtime.runtime.watch.event import Delete, Event
from tests.runtime.watch.test_outages import World


def watches_asked_for(world: World, since: float) -> dict[str, int]:
    """How often each namespace's watch was asked for since then."""
    asked: dict[str, int] = {}
    for entry in world.server.requests:
        if entry.verb == "watch" and entry.monotonic >= since:
            namespace = entry.path.split("/")[4]
            asked[namespace] = asked.get(namespace, 0) + 1
    return asked


def test_a_minute_of_silence_is_no_failure_and_what_comes_then_is_heard_at_once(
        caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.put("n0", "a")
    world.run(1)
    with caplog.at_level(logging.INFO, "kubectl_runtime"):
        world.run(60)
        world.put("n0", "a", "changed")
        world.run(0.5)
    assert world.heard["n0/a"] == pytest.approx(61, abs=0.5)
    assert len(world.adapter.times) == 2, "a list and a watch, as at the beginning"
    assert caplog.records == []


def test_events_that_a_proxy_keeps_back_until_it_has_several_all_come_without_a_new_watch() -> None:
    world = World()
    world.server.faults.on("watch").batch_events(3)
    world.run(1)
    begun = world.clock.monotonic()
    for name in ("a", "b"):
        world.put("n0", name)
        world.run(10)
    assert world.heard == {}
    world.put("n0", "c")
    world.run(1)
    assert list(world.heard) == ["n0/a", "n0/b", "n0/c"]
    assert world.adapter.since(begun) == []


def test_what_is_deleted_between_the_list_and_the_watch_is_heard_of_and_gone() -> None:
    world = World()
    world.put("n0", "a")
    deleted: list[str] = []

    def hear(event: Event[ConfigMap]) -> list[ReconcileRequest]:
        if isinstance(event, Delete):
            deleted.append(event.obj.name)
        return []

    [watch] = world.watches
    watch.subscribe(hear, lambda _: None)
    while not watch.store.is_ready:
        watch.step()
    assert watches_asked_for(world, 0) == {}
    Api.namespaced(world.client, ConfigMap, "n0").delete("a")
    world.run(5)
    assert deleted == ["a"]
    assert len(watch.store) == 0


def test_when_nobody_refuses_connections_any_more_each_watch_is_asked_for_once() -> None:
    world = World(5)
    world.run(10)
    gone = world.go_away()
    world.run(5)
    gone.remove()
    back = world.clock.monotonic()
    world.run(60)
    assert watches_asked_for(world, back) == {f"n{number}": 1 for number in range(5)}
    assert len(world.adapter.since(back)) <= 5 * 3, "of each the version, maybe a list, and the watch"
