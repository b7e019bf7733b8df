"""Watches against the embedded API server: over real sockets with its faults, in simulated time over its transport."""
from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import requests

from kubectl_runtime.apiserver.server import ApiServer
from kubectl_runtime.apiserver.transport.faults.rule import Rule
from kubectl_runtime.client.api.api import Api
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.client.config.config import Config
from kubectl_runtime.core.base.errors import PartialObjectError
from kubectl_runtime.core.objects.partial import PartialView
from kubectl_runtime.core.scope import StopToken
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.runtime.triggers.shared_watches import Watch
from kubectl_runtime.runtime.triggers.triggers import ReconcileRequest
from kubectl_runtime.runtime.watch.backoff import WatchBackoff
from kubectl_runtime.runtime.watch.config import InitialListStrategy, ListSemantic, WatcherConfig
from kubectl_runtime.runtime.watch.event import Apply, Event, Init, InitDone
from kubectl_runtime.runtime.watch.states import Phase
from kubectl_runtime.runtime.watch.watcher import metadata_watcher, watch_object, watcher
from kubectl_runtime.testing.clock import SimClock

QUICK = WatchBackoff(initial=0.01, maximum=0.05)
PATIENCE = 30.0
"""Seconds after which a test gives up; nothing ever takes that long."""


class Followed:
    """A watch in its thread, and the versions that somebody knows who only hears of changes."""

    def __init__(self, server: ApiServer, config: WatcherConfig) -> None:
        self.client = server.client()
        self.api = Api.namespaced(self.client, ConfigMap, "default")
        self.stop = StopToken()
        self.watch: Watch[ConfigMap] = Watch(self.api, replace(config, backoff=QUICK), stop=self.stop)
        self.known: dict[str, str] = {}
        self.heard = threading.Condition()
        self.watch.subscribe(self._hear, lambda _: None)
        self.thread = threading.Thread(target=self.watch.run, daemon=True)

    def _hear(self, event: Event[ConfigMap]) -> list[ReconcileRequest]:
        with self.heard:
            if isinstance(event, Apply):
                self.known[event.obj.name] = event.obj.resource_version
            elif not isinstance(event, InitDone):
                self.known.pop(event.obj.name, None)  # type: ignore[union-attr]
            self.heard.notify_all()
        return []

    def until(self, done: Callable[[], bool]) -> None:
        with self.heard:
            assert self.heard.wait_for(done, PATIENCE), f"knows {self.known}, {self.watch.state}"

    def agrees(self) -> None:
        """Blocks until what is known, and what is stored, is what the server has."""
        truth = {obj.name: obj.resource_version for obj in self.api.list()}
        self.until(lambda: self.known == truth)
        assert {obj.name: obj.resource_version for obj in self.watch.store} == truth

    def shows(self, *, trouble: bool) -> None:
        """Blocks until the watch's visible state says that it is in trouble, or not."""
        deadline = time.monotonic() + PATIENCE
        while bool(self.watch.state.last_error) is not trouble:
            assert time.monotonic() < deadline, self.watch.state
            self.stop.wait(0.01)

    def ended(self) -> bool:
        """Blocks until the watch's thread has ended; False when it does not."""
        self.thread.join(PATIENCE)
        return not self.thread.is_alive()

    def write(self, *names: str) -> None:
        for name in names:
            self.api.apply({"metadata": {"name": name}, "data": {"at": str(time.monotonic())}}, field_manager="test")


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


@pytest.fixture
def follow(server: ApiServer) -> Iterator[Callable[..., Followed]]:
    begun: list[Followed] = []

    def begin(config: WatcherConfig = WatcherConfig()) -> Followed:  # noqa: B008 - frozen
        followed = Followed(server, config)
        begun.append(followed)
        followed.thread.start()
        return followed

    yield begin
    for followed in begun:
        followed.stop.set("the test is over")
        assert followed.ended(), "the watch's thread does not end"
        followed.client.close()


def test_objects_are_listed_page_by_page_and_then_followed(server: ApiServer, follow: Callable[..., Followed]) -> None:
    with server.client() as client:
        api = Api.namespaced(client, ConfigMap, "default")
        for number in range(7):
            api.create(ConfigMap(name=f"n{number}", data={}))
    followed = follow(WatcherConfig(page_size=3))
    followed.watch.store.wait_until_ready(PATIENCE)
    assert len(followed.watch.store) == 7
    followed.write("n1", "new")
    followed.api.delete("n2")
    followed.agrees()
    assert followed.watch.state.relists == 0


@pytest.mark.parametrize("semantic", ListSemantic)
def test_a_selector_makes_objects_come_and_go(follow: Callable[..., Followed], semantic: ListSemantic) -> None:
    followed = follow(WatcherConfig(label_selector="app=web", list_semantic=semantic))
    followed.watch.store.wait_until_ready(PATIENCE)
    followed.api.create(ConfigMap(name="a", labels={"app": "web"}))
    followed.api.create(ConfigMap(name="b", labels={"app": "db"}))
    followed.until(lambda: set(followed.known) == {"a"})
    followed.api.apply({"metadata": {"name": "a", "labels": {"app": "db"}}}, field_manager="other", force=True)
    followed.until(lambda: not followed.known)


FAULTS: dict[str, Callable[[Rule], object]] = {
    "an event cut in the middle by FIN": lambda rule: rule.nth(1, 2).cut_event(2, 40),
    "an event cut in the middle by RST": lambda rule: rule.nth(1, 2).cut_event(2, 40, then="reset"),
    "an event cut in the size of its chunk": lambda rule: rule.nth(1, 2).cut_event(2, 2, of="chunk"),
    "watches that end after each event": lambda rule: rule.nth(1, 2, 3).end_watch(1),
    "an ERROR event 410": lambda rule: rule.nth(1, 3).expire_watch(1),
    "HTTP 410": lambda rule: rule.nth(1, 3).status(410, "Expired"),
    "HTTP 500 and dropped connections": lambda rule: rule.nth(1, 3).status(500),
    "a version from the future": lambda rule: rule.nth(1).status(504, "Timeout", details={
        "causes": [{"reason": "ResourceVersionTooLarge"}], "retryAfterSeconds": 0}),
    "refused by RBAC for a while": lambda rule: rule.first(3).status(403),
    "the plain 404 of a missing kind": lambda rule: rule.first(3).answer(404, "404 page not found"),
    "connections that are reset": lambda rule: rule.first(3).drop(),
    "events twice": lambda rule: rule.duplicate_events(2),
    "garbage between the events": lambda rule: rule.nth(1).insert_events(b"{garbage", after=1),
    "an unknown event and empty lines": lambda rule: rule.insert_events(b"", {"type": "NEWS", "object": {}}, after=1),
    "an error that is no Status": lambda rule: rule.nth(1).insert_events({"type": "ERROR", "object": 7}, after=1),
    "tiny chunks": lambda rule: rule.rechunk_events(7),
    "one byte at a time": lambda rule: rule.split(1),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_watch_is_recovered_from(server: ApiServer, follow: Callable[..., Followed], fault: str) -> None:
    FAULTS[fault](server.faults.on("watch", resource="configmaps"))
    followed = follow()
    followed.watch.store.wait_until_ready(PATIENCE)
    for _ in range(3):
        followed.write("a", "b", "c")
        followed.api.delete("b")
    followed.agrees()


@pytest.mark.parametrize("fault", ["drop", "403", "500", "expired page"])
def test_a_fault_of_the_list_is_recovered_from(server: ApiServer, follow: Callable[..., Followed], fault: str,
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubectl_runtime.client.http.send.PROBE_SECONDS", 0.2)
    with server.client() as client:
        for number in range(7):
            Api.namespaced(client, ConfigMap, "default").create(ConfigMap(name=f"n{number}"))
    rule = server.faults.on("list", resource="configmaps")
    if fault == "drop":
        rule.first(3).drop()
    elif fault == "expired page":
        rule.nth(2, 4).expire_history()
    else:
        rule.first(3).status(int(fault))
    followed = follow(WatcherConfig(page_size=3))
    followed.watch.store.wait_until_ready(PATIENCE)
    followed.write("n3", "new")
    followed.agrees()


def test_a_server_that_restarts_with_its_data(server: ApiServer, follow: Callable[..., Followed]) -> None:
    followed = follow()
    followed.write("a", "b")
    followed.agrees()
    server.restart()
    followed.write("b", "c")
    followed.agrees()


def test_a_server_that_is_away_is_seen_at_once(server: ApiServer, follow: Callable[..., Followed]) -> None:
    followed = follow()
    followed.write("a")
    followed.agrees()
    server.stop()
    followed.shows(trouble=True)
    assert "cannot watch configmaps in namespace default" in followed.watch.state.last_error
    server.start()
    followed.write("b")
    followed.agrees()
    followed.shows(trouble=False)


def test_a_server_that_restarts_empty(server: ApiServer, follow: Callable[..., Followed]) -> None:
    followed = follow()
    followed.write("a", "b")
    followed.agrees()
    followed.write("b")
    followed.agrees()  # so the watch is open: between the list and the first watch nothing tells servers apart
    server.restart(fresh=True)
    followed.write("c")
    followed.agrees()


def test_a_server_restored_to_an_earlier_state(server: ApiServer, follow: Callable[..., Followed]) -> None:
    followed = follow()
    followed.write("a", "b")
    followed.agrees()
    before = server.snapshot()
    followed.write("c")
    followed.api.delete("a")
    followed.agrees()
    server.restore(before)
    followed.agrees()


def test_connections_that_break_and_history_that_expires_meanwhile(
    server: ApiServer, follow: Callable[..., Followed]
) -> None:
    followed = follow()
    for number in range(5):
        followed.write(f"n{number}", "same")
        server.expire_history()
        server.drop_connections()
    followed.agrees()


def test_stopping_wakes_an_idle_watch_at_once(server: ApiServer, follow: Callable[..., Followed]) -> None:
    followed = follow()
    followed.write("a")
    followed.agrees()
    followed.stop.set("enough")
    assert followed.ended()  # its server ends it after minutes
    assert followed.watch.state.phase is Phase.STOPPED


def test_stopping_wakes_a_half_open_watch_at_once(server: ApiServer, follow: Callable[..., Followed]) -> None:
    server.faults.on("watch").end_watch(1, how="stall")
    followed = follow()
    followed.write("a")
    followed.until(lambda: set(followed.known) == {"a"})
    followed.stop.set("enough")
    assert followed.ended()  # its server ends it after minutes


def test_streams_of_metadata_and_of_one_object(server: ApiServer) -> None:
    with server.client() as client:
        api = Api.namespaced(client, ConfigMap, "default")
        api.create(ConfigMap(name="a", labels={"x": "y"}, data={"secret": "1"}))
        api.create(ConfigMap(name="b"))
        stop = StopToken()
        seen: list[object] = []
        for event in metadata_watcher(api, stop=stop):
            if isinstance(event, InitDone):
                stop.set()
            elif hasattr(event, "obj"):
                seen.append((event.obj.name, dict(event.obj.labels)))
                with pytest.raises(PartialObjectError, match="only the metadata"):
                    event.obj["data"]
        assert seen == [("a", {"x": "y"}), ("b", {})]
        stop = StopToken()
        versions: list[object] = []
        for obj in watch_object(api, "b", stop=stop):
            versions.append(obj and dict(obj.get("data") or {}))
            if obj is None:
                stop.set()
            elif len(versions) == 1:
                api.apply({"metadata": {"name": "b"}, "data": {"k": "v"}}, field_manager="test")
            else:
                api.delete("b")
        assert versions == [{}, {"k": "v"}, None]


def test_a_half_open_connection_is_given_up_after_the_idle_guard_in_simulated_time() -> None:
    clock = SimClock(self_advancing=True)
    server = ApiServer(clock=clock)
    session = requests.Session()
    session.mount("http://", server.transport())
    client = Client(Config(cluster_url="http://simulated"), session=session, clock=clock)
    api = Api.namespaced(client, ConfigMap, "default")
    server.faults.on("watch").nth(1).end_watch(1, how="stall")
    stop = StopToken(clock=clock)
    events = watcher(api, WatcherConfig(timeout=100), stop, clock=clock, rng=random.Random(1))
    assert isinstance(next(events), Init)
    assert isinstance(next(events), InitDone)
    api.create(ConfigMap(name="a"))
    assert next(events).obj.name == "a"  # type: ignore[union-attr]
    begun = clock.monotonic()
    api.create(ConfigMap(name="b"))
    assert next(events).obj.name == "b"  # type: ignore[union-attr]
    assert 80 < clock.monotonic() - begun < 110
    stop.set()
    assert list(events) == []
    client.close()


def test_a_list_as_a_stream_and_its_watch_are_one_request(server: ApiServer, follow: Callable[..., Followed]) -> None:
    server.load([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"n{number}"}} for number in range(7)])
    followed = follow(WatcherConfig(initial_list_strategy=InitialListStrategy.STREAMING_LIST))
    followed.watch.store.wait_until_ready(PATIENCE)
    assert len(followed.watch.store) == 7
    followed.write("n1", "new")
    followed.until(lambda: "new" in followed.known)
    assert [entry.verb for entry in server.requests if entry.verb in ("list", "watch")] == ["watch"]
    followed.agrees()


def test_a_store_of_single_fields_holds_views(server: ApiServer, follow: Callable[..., Followed]) -> None:
    class OnlyData(PartialView, frozen=True):
        data: dict[str, str] | None = None

    server.load([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "1"}}])
    followed = follow(WatcherConfig(fields=OnlyData))
    followed.watch.store.wait_until_ready(PATIENCE)
    held = followed.watch.store.get("a", "default")
    assert isinstance(held, OnlyData)
    assert held.data == {"x": "1"}
    server.load([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "2"}}])
    followed.agrees()
    assert followed.watch.store.get("a", "default").data == {"x": "2"}  # type: ignore[union-attr]


def test_the_state_of_a_watch_is_seen_on_its_store(server: ApiServer, follow: Callable[..., Followed]) -> None:
    followed = follow()
    followed.watch.store.wait_until_ready(PATIENCE)
    followed.write("a")
    followed.agrees()
    state = followed.watch.store.watch_state
    assert state is not None
    assert (state.phase, state.last_error) == (Phase.WATCHING, "")
    assert state.last_event is not None
    assert state.last_event >= state.since
