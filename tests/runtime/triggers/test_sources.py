"""Trigger sources: what is pulled out of iterables, and when that ends."""
from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from kubectl_runtime.core.scope import StopToken
from kubectl_runtime.runtime.triggers.streams import pull, pull_stream
from kubectl_runtime.runtime.triggers.triggers import ReconcileRequest, ref_of
from kubectl_runtime.runtime.watch.event import Apply
from kubectl_runtime.testing.clock import SimClock
from tests.runtime.watch.scripted_watch import THING, thing


def test_the_stop_is_heeded_between_the_items_of_an_iterable_which_is_closed() -> None:
    """A source may have many items at hand, or infinitely many: it must not go on until they are used up."""
    stop = StopToken()
    pulled: list[str] = []
    passed: list[str] = []
    closed: list[bool] = []

    def items() -> Iterator[Any]:
        try:
            for name in "abcd":
                pulled.append(name)
                yield thing(name)
        finally:
            closed.append(True)

    def to_requests(item: Any) -> list[ReconcileRequest]:
        if item.name == "b":
            stop.set("enough")
        return [ReconcileRequest(ref_of(item, THING), "test")]

    source = items()  # held here, so that nothing but `pull` closes it
    pull(source, to_requests, lambda requests: passed.extend(request.ref.name for request in requests), stop)
    assert passed == ["a", "b"]
    assert "d" not in pulled
    assert closed == [True]


def test_an_item_that_was_waited_for_when_the_stop_came_is_not_passed_on() -> None:
    stop = StopToken()
    passed: list[str] = []

    def items() -> Iterator[Any]:
        yield thing("a")
        stop.set("enough")
        yield thing("b")

    pull(items(), lambda item: [ReconcileRequest(ref_of(item, THING), "test")],
         lambda requests: passed.extend(request.ref.name for request in requests), stop)
    assert passed == ["a"]


def test_what_a_stream_was_waited_for_when_the_stop_came_is_not_passed_on() -> None:
    stop = StopToken()
    passed: list[str] = []

    def events() -> Iterator[Any]:
        yield Apply(thing("a"))
        stop.set("enough")
        yield Apply(thing("b"))

    pull_stream(events(), lambda event: [ReconcileRequest(ref_of(event.obj, THING), "test")],
                lambda requests: passed.extend(request.ref.name for request in requests), stop)
    assert passed == ["a"]


def test_once_stopped_an_iterable_is_not_asked_for_another_item_which_may_block_for_ever() -> None:
    stop = StopToken()
    pulled: list[str] = []

    def items() -> Iterator[Any]:
        for name in "abc":
            pulled.append(name)
            yield thing(name)

    pull(items(), lambda item: [ReconcileRequest(ref_of(item, THING), "test")], lambda _: stop.set("enough"), stop)
    assert pulled == ["a"]


class Broken:
    """An iterator of which one step fails."""

    def __init__(self, *steps: Any) -> None:
        self.steps = list(steps)

    def __iter__(self) -> Broken:
        return self

    def __next__(self) -> Any:
        if not self.steps:
            raise StopIteration
        step = self.steps.pop(0)
        if isinstance(step, BaseException):
            raise step
        return step


@pytest.mark.parametrize("failure", [ValueError("planned"), SystemExit(3), KeyboardInterrupt()])
def test_a_step_of_a_source_that_raises_is_logged_and_the_next_one_follows(
        failure: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    passed: list[str] = []

    class Odd:
        @property
        def ref(self) -> Any:
            raise SystemExit(1)

    source = Broken(thing("a"), failure, thing("b"), Odd(), 5, thing("c"))
    body = partial(pull, source, lambda item: [ReconcileRequest(ref_of(item, THING), "test")],
                   lambda requests: passed.extend(request.ref.name for request in requests), StopToken())
    thread = threading.Thread(target=body)  # in the main thread an interrupt is the person's
    thread.start()
    thread.join(20)
    assert passed == ["a", "b", "c"]
    assert f"a trigger source, a Broken, raised {type(failure).__name__}" in caplog.text


def test_a_source_that_always_raises_is_asked_ever_later_and_ends_with_the_stop() -> None:
    clock = SimClock(self_advancing=True)
    stop = StopToken(clock=clock)
    asked: list[float] = []

    class Dead:
        def __iter__(self) -> Dead:
            return self

        def __next__(self) -> Any:
            asked.append(clock.monotonic())
            if len(asked) == 12:
                stop.set()
            raise ValueError("planned")

    pull(Dead(), lambda item: [], lambda requests: None, stop)
    pauses = [later - earlier for earlier, later in pairwise(asked)]
    assert pauses == pytest.approx([min(0.1 * 2 ** n, 30) for n in range(11)])
