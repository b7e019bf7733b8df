"""One subscription: Ctrl-C in the main thread, which brings changes when it subscribes and when it deletes."""
from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import pytest

from kubectl_runtime.core.base.threads import SYSTEM_CLOCK
from kubectl_runtime.core.codec.views import Record
from kubectl_runtime.core.scope import StopToken
from kubectl_runtime.runtime.controller.controller import Controller
from kubectl_runtime.runtime.reconcile.reconciler import Action
from kubectl_runtime.runtime.store.reflector import StoreWriter
from kubectl_runtime.runtime.triggers.triggers import CHUNK, OfHeads, ReconcileRequest, Subscriber
from kubectl_runtime.runtime.watch.driver import reader_of
from kubectl_runtime.runtime.watch.event import Apply, Delete, Event
from kubectl_runtime.testing import eventually
from tests.runtime.scripted_cluster import Child, Cluster, Parent

LIMIT = 20


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    eventually(lambda: [t.name for t in threading.enumerate() if t not in before], ([]).__eq__, LIMIT)


class Mapped:
    """A subscription of each object itself, that the person at the keyboard interrupts at some of them."""

    def __init__(self, interrupted_at: Iterable[int], *, again: bool = False) -> None:
        self.interrupted_at = set(interrupted_at)
        self.again = again
        self.got: list[str] = []
        self.stop = StopToken()
        self.subscriber = Subscriber(self.requests, self.sink, lambda record: record, SYSTEM_CLOCK, self.stop,
                                     lambda: None)

    def requests(self, event: Event[Any]) -> Iterable[ReconcileRequest]:
        assert isinstance(event, Apply)
        number = int(event.obj.ref.name)
        if number in self.interrupted_at:
            if not self.again:
                self.interrupted_at.discard(number)
            raise KeyboardInterrupt
        return [ReconcileRequest(event.obj.ref)]

    def sink(self, requests: list[ReconcileRequest]) -> None:
        self.got += [request.ref.name for request in requests]


def changes(*numbers: int) -> list[Event[Record]]:
    cluster = Cluster()
    return [Apply(cluster.put(Parent, f"{number}")) for number in numbers]


@pytest.mark.parametrize("first", ["begin", "deliver"])
@pytest.mark.parametrize("at", [0, 1, CHUNK - 1, CHUNK, CHUNK + 7])
def test_ctrl_c_passes_and_the_rest_is_delivered_in_order(first: str, at: int) -> None:
    mapped, count = Mapped([at]), CHUNK + 8
    if first == "deliver":
        mapped.subscriber.begin([])
    with pytest.raises(KeyboardInterrupt):
        getattr(mapped.subscriber, first)(changes(*range(count)))
    mapped.subscriber.deliver(changes(count))
    eventually(lambda: mapped.got, [f"{number}" for number in range(count + 1)].__eq__, LIMIT)


def test_code_that_raises_keyboard_interrupt_each_time_loses_its_own_event_and_no_other() -> None:
    mapped = Mapped([1, 3], again=True)
    with pytest.raises(KeyboardInterrupt):
        mapped.subscriber.begin(changes(*range(5)))
    eventually(lambda: mapped.got, ["0", "2", "4"].__eq__, LIMIT)
    with pytest.raises(KeyboardInterrupt):
        mapped.subscriber.deliver(changes(3))
    mapped.subscriber.deliver(changes(5))
    eventually(lambda: mapped.got, ["0", "2", "4", "5"].__eq__, LIMIT)


@pytest.mark.parametrize("how", ["cancel", "stop"])
def test_what_has_ended_is_not_delivered_by_the_thread_that_goes_on(how: str) -> None:
    mapped = Mapped([0])
    mapped.subscriber.cancel() if how == "cancel" else mapped.stop.set()
    mapped.subscriber.begin(changes(0, 1))
    mapped.subscriber.deliver(changes(2))
    assert mapped.got == []


def reconcile(obj: Parent, ctx: Any) -> Action:
    return Action.await_change()


@pytest.fixture
def cluster() -> Cluster:
    """Its watch of children is full, as another controller has it already."""
    cluster = Cluster(blocking=True)
    for name in "abc":
        cluster.put(Child, name)
    cluster.put(Parent, "p")
    return cluster


class Interrupted:
    """A mapper that is interrupted the first time."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, child: Child) -> None:
        self.calls += 1
        if self.calls == 1:
            raise KeyboardInterrupt


def test_a_controller_whose_mapper_is_interrupted_while_it_starts_does_not_stay(cluster: Cluster) -> None:
    with Controller(cluster.api(Child), name="first").start(reconcile) as first:
        first.wait_until_ready(LIMIT)
        mapper = Interrupted()
        second = Controller(cluster.api(Parent), name="second").watches(cluster.api(Child), mapper)
        with pytest.raises(KeyboardInterrupt):
            second.start(reconcile)
        assert first.is_ready
        with second.start(reconcile) as running:  # its name is free
            running.wait_until_ready(LIMIT)
            assert mapper.calls >= 4


def test_a_controller_whose_further_mapper_is_interrupted_ends(cluster: Cluster) -> None:
    with Controller(cluster.api(Child), name="first").start(reconcile) as first:
        first.wait_until_ready(LIMIT)
        second = Controller(cluster.api(Parent), name="second")
        running = second.start(reconcile)
        running.wait_until_ready(LIMIT)
        with pytest.raises(KeyboardInterrupt):
            second.watches(cluster.api(Child), Interrupted())
        assert running.wait(LIMIT)
        assert not running.is_ready
        assert isinstance(running.error, KeyboardInterrupt)
        running.stop()


@pytest.mark.parametrize("successor", ["there before", "coming", "gone again", "never"])
def test_a_deletion_that_becomes_known_late_is_never_the_last_word_on_a_successor(successor: str) -> None:
    """It waits until another thread has delivered; what the store has changes in the meantime."""
    cluster, got = Cluster(), list[tuple[str, str]]()
    writer = StoreWriter(Parent.api_resource, reader_of(Parent))
    busy, first = cluster.put(Parent, "busy"), cluster.put(Parent, "p")
    cluster.delete(Parent, "p")
    second = cluster.put(Parent, "p")

    def commits(record: Record | None) -> None:
        writer.commit({second.key: record})
        subscriber.deliver([Delete(second) if record is None else Apply(record)])

    def requests(event: Event[Any]) -> Iterable[ReconcileRequest]:
        if event.obj is busy:
            if successor == "there before":
                commits(second)
            subscriber.deliver(partial(writer.deletion, first))
            if successor in ("coming", "gone again"):
                commits(second)
            if successor == "gone again":
                commits(None)
        else:
            got.append((type(event).__name__, event.obj.uid))
        return ()

    subscriber = Subscriber(OfHeads(requests), lambda _: None, lambda record: record, SYSTEM_CLOCK, StopToken(),
                            lambda: None)
    subscriber.begin([Apply(busy)])
    assert ("Delete", first.uid) in got
    assert got[-1] == {"there before": ("Apply", second.uid), "coming": ("Apply", second.uid),
                       "gone again": ("Delete", second.uid), "never": ("Delete", first.uid)}[successor]
