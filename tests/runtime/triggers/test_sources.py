"""Trigger sources: what is pulled out of iterables, and when that ends."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubectl_runtime.core.base.stop import StopToken
from kubectl_runtime.runtime.triggers.inbox import ref_of
from kubectl_runtime.runtime.triggers.sources import pull
from kubectl_runtime.runtime.triggers.triggers import ReconcileRequest
from tests.runtime.watcher.watch_fakes import THING, thing


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
