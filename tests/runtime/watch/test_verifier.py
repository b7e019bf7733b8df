"""verify=: what no event and no version shows is found by a list of metadata, and only that."""
from __future__ import annotations

import logging
import random

import pytest

from kubectl_runtime.client.api.api import Api
from kubectl_runtime.core.base.errors import TransportError
from kubectl_runtime.core.base.plain import Key
from kubectl_runtime.core.codec.views import Record
from kubectl_runtime.core.scope import StopToken
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.runtime.triggers.triggers import ReconcileRequest
from kubectl_runtime.runtime.watch.config import WatcherConfig
from kubectl_runtime.runtime.watch.driver import CONFIRM_SECONDS, Held, Verifier
from kubectl_runtime.runtime.watch.event import Delete, Event
from tests.runtime.watch.scripted_watch import AnsweringServer, Asked, Page, page, thing
from tests.runtime.watch.test_outages import World

EVERY = 600.0


class Lists(AnsweringServer):
    """Lists of whatever the server has at the moment, in pages of two."""

    def __init__(self, *records: Record) -> None:
        super().__init__()
        self.has = list(records)
        self.asked: list[Asked] = []
        self.error: BaseException | None = None

    def on_list(self, params: Asked) -> Page:
        self.asked.append(params)
        if self.error is not None:
            raise self.error
        begin = int(params.continue_token or 0)
        end = begin + (params.limit or len(self.has))
        return page(1, *self.has[begin:end], token=str(end) if end < len(self.has) else None)


class Verified:
    """A verifier of a store that holds `records`, as the server does at first."""

    def __init__(self, *records: Record) -> None:
        self.server = Lists(*records)
        self.known = {record.key: record for record in records}
        self.verifier = Verifier(self.server.api, WatcherConfig(page_size=2), EVERY, self.held, StopToken(), 0.0)

    def held(self) -> dict[Key, Held]:
        return {key: ((record.uid, record.resource_version),) * 2 for key, record in self.known.items()}

    def check(self) -> str:
        return self.verifier.check(self.verifier.due)


A, B, C = thing("a", 1), thing("b", 2), thing("c", 3)


def test_nothing_is_asked_before_it_is_due_and_what_is_the_same_is_asked_again_after_the_interval() -> None:
    world = Verified(A, B, C)
    assert world.verifier.check(EVERY - 1) == ""
    assert world.server.asked == []
    assert world.verifier.check(EVERY) == ""
    assert [params.continue_token for params in world.server.asked] == [None, "2"]
    assert world.verifier.due == 2 * EVERY


@pytest.mark.parametrize("there", [[A, B], [A, B, C, thing("d", 4)], [A, B, thing("c", 4)],
                                   [A, B, thing("c", 3, uid="x")]],
                         ids=["one less", "one more", "another version", "another uid"])
def test_what_differs_twice_is_found(there: list[Record]) -> None:
    world = Verified(A, B, C)
    world.server.has = there
    assert world.check() == ""
    assert world.verifier.due == EVERY + CONFIRM_SECONDS
    found = world.check()
    assert found.startswith("1 objects differ from the server's, and no event announced it (default/")


def test_what_an_event_mends_in_time_is_not_found() -> None:
    world = Verified(A, B)
    world.server.has = [A, thing("b", 9)]
    assert world.check() == ""
    world.known[B.key] = thing("b", 9)
    assert world.check() == ""
    assert world.verifier.due == EVERY + CONFIRM_SECONDS + EVERY


def test_an_object_that_changes_all_the_time_is_not_found() -> None:
    world = Verified(A)
    for version in range(2, 20):
        world.server.has = [thing("a", version + 1)]
        assert world.check() == ""
        world.known[A.key] = thing("a", version)


@pytest.mark.parametrize("error", [TransportError("refused"), SystemExit(3)], ids=repr)
def test_a_list_that_fails_is_told_and_made_again_later(error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    world = Verified(A)
    world.server.error = error
    with caplog.at_level(logging.WARNING):
        assert world.check() == ""
    assert "could not be verified" in caplog.text
    assert world.verifier.due == 2 * EVERY


def test_a_rewind_that_was_overtaken_is_found_by_verifying_and_by_nothing_else(
        caplog: pytest.LogCaptureFixture) -> None:
    for verify in (None, 60):
        world = World(2, WatcherConfig(verify=verify), seed=random.randrange(100))
        world.put("n0", "a", "old")
        before = world.server.snapshot()
        world.put("n0", "a", "lost")
        world.put("n0", "ghost")
        world.run(30)
        gone = world.go_away()
        world.run(7)
        world.server.restore(before, rewind=True)
        for number in range(20):
            world.put("n1", f"other{number}")  # the versions have overtaken what is known
        gone.remove()
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            world.run(20)
            stale = {obj.name: obj.data["value"] for obj in world.watches[0].store}
            assert stale == {"a": "lost", "ghost": ""}
            world.run(700)
        held = {obj.name: obj.data["value"] for obj in world.watches[0].store}
        finding = "namespace n0: 2 objects differ from the server's"
        told = sum(finding in record.message for record in caplog.records)
        assert (held, told) == (({"a": "old"}, 1) if verify else (stale, 0))
        assert len(world.watches[1].store) == (20 if verify else 18), "two came at versions that were known already"


def test_verifying_lists_metadata_punctually_and_does_no_harm() -> None:
    world = World(1, WatcherConfig(verify=30))
    world.put("n0", "a")
    world.run(5)
    seen = len(world.server.requests)
    world.run(300)
    lists = [entry for entry in list(world.server.requests)[seen:] if entry.verb == "list"]
    assert 9 <= len(lists) <= 10
    assert all("PartialObjectMetadataList" in entry.request.header("accept") for entry in lists)
    assert world.watches[0].state.relists == 0


def test_writes_of_this_process_that_a_rewind_undoes_are_found_though_no_event_ever_told_of_them() -> None:
    world = World(2, WatcherConfig(verify=60))
    world.put("n0", "kept", "old")
    world.run(5)
    before = world.server.snapshot()
    maps = Api.namespaced(world.client, ConfigMap, "n0")
    maps.delete("kept")  # answered, and undone before the watch reads of it
    maps.create(ConfigMap(name="made"))
    gone = world.go_away()
    world.server.restore(before, rewind=True)
    for number in range(20):
        world.put("n1", f"other{number}")  # the versions have overtaken what is known
    gone.remove()
    store = world.watches[0].store
    assert [obj.name for obj in store] == ["made"]
    world.run(200)
    assert [obj.name for obj in store] == ["kept"]


def test_a_deletion_by_this_process_whose_event_never_comes_is_found_and_told() -> None:
    world = World(2, WatcherConfig(verify=60))
    heard: list[str] = []

    def hear(event: Event[ConfigMap]) -> list[ReconcileRequest]:
        if isinstance(event, Delete):
            heard.append(event.obj.name)
        return []

    def busy_with(number: int) -> None:
        for other in range(number):
            world.put("n1", f"other{other}")
        world.put("n0", "b", "changed")

    [watch, _] = world.watches
    watch.subscribe(hear, lambda _: None)
    world.put("n0", "a")
    world.put("n0", "b")
    before = world.server.snapshot()
    busy_with(3)
    world.run(5)
    gone = world.go_away()
    world.server.restore(before, rewind=True)
    gone.remove()
    Api.namespaced(world.client, ConfigMap, "n0").delete("a")  # at a version that the watch has passed
    busy_with(2)  # which brings "b" to the very version that is known
    assert [obj.name for obj in watch.store] == ["b"]
    world.run(200)
    assert heard == ["a"]
    assert [obj.name for obj in watch.store] == ["b"]
