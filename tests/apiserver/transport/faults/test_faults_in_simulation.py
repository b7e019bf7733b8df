"""The same script through the transport of simulations: on its clock, with the errors of requests and urllib3."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import requests
import urllib3

from kubectl_runtime.testing import ApiServer
from kubectl_runtime.testing.clock import SimClock

PATH = "http://simulated/api/v1/namespaces/default/configmaps"


class Simulated:
    """A server and a session in one thread."""

    def __init__(self) -> None:
        self.clock = SimClock(self_advancing=True)
        self.server = ApiServer(controllers=(), clock=self.clock, compaction_interval=0)
        self.session = requests.Session()
        self.session.mount("http://", self.server.transport())

    def get(self, path: str = PATH, **more: Any) -> requests.Response:
        return self.session.get(path, **{"timeout": 30, **more})

    def create(self, name: str) -> None:
        self.server.load({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}})

    def watch(self) -> Iterator[bytes]:
        version = self.get().json()["metadata"]["resourceVersion"]
        return self.get(f"{PATH}?watch=1&resourceVersion={version}", stream=True).raw.stream()


@pytest.fixture
def sim() -> Simulated:
    return Simulated()


def test_without_faults_it_answers(sim) -> None:
    assert sim.get().json()["kind"] == "ConfigMapList"
    assert sim.server.requests[0].status == 200
    assert sim.clock.monotonic() == 0


@pytest.mark.parametrize(("fault", "ended"), [
    (lambda rule: rule.drop(), "reset"), (lambda rule: rule.drop("close"), "close"),
    (lambda rule: rule.lose_answer(), "reset"), (lambda rule: rule.truncate(10), "close")])
def test_a_broken_connection_is_a_connection_error(sim, fault, ended) -> None:
    fault(sim.server.faults.on("list"))
    with pytest.raises(requests.ConnectionError, match="Connection aborted"):
        sim.get()
    assert sim.server.requests[0].ended == ended


def test_a_refused_connection_is_no_request(sim) -> None:
    sim.server.faults.connections().first().drop()
    with pytest.raises(requests.ConnectionError):
        sim.get()
    assert len(sim.server.requests) == 0
    assert sim.get().ok


@pytest.mark.parametrize("fault", [lambda rule: rule.never_answer(), lambda rule: rule.delay(31),
                                   lambda rule: rule.delay(31, handled=True)])
def test_an_answer_that_does_not_come_ends_with_the_read_timeout(sim, fault) -> None:
    fault(sim.server.faults.on("list"))
    with pytest.raises(requests.ReadTimeout):
        sim.get()
    assert sim.clock.monotonic() == 30


def test_a_stall_without_a_timeout_is_found_out(sim) -> None:
    sim.server.faults.on("list").never_answer()
    with pytest.raises(RuntimeError):
        sim.get(timeout=None)


def test_a_short_delay_only_takes_its_time(sim) -> None:
    sim.server.faults.on("list").delay(5).delay(2, handled=True)
    assert sim.get().ok
    assert sim.clock.monotonic() == 7


def test_a_body_stalls_breaks_off_or_dribbles(sim) -> None:
    faults = sim.server.faults
    faults.on("list").nth(1).truncate(10, of="body", then="stall")
    faults.on("list").nth(2).truncate(10, of="body", then="reset")
    faults.on("list").nth(3).slow(10, piece=10)
    with pytest.raises(requests.ConnectionError):  # as requests calls a read timeout within a body
        sim.get()
    assert sim.clock.monotonic() == 30
    with pytest.raises(requests.exceptions.ChunkedEncodingError):
        sim.get()
    assert sim.get().json()["kind"] == "ConfigMapList"
    assert sim.clock.monotonic() > 35


def test_a_watch_is_never_waited_for_and_breaks_as_the_script_says(sim) -> None:
    sim.server.faults.on("watch").end_watch(after=1, how="reset")
    stream = sim.watch()
    assert next(stream) == b""
    sim.create("a")
    assert b'"ADDED"' in next(stream)
    with pytest.raises(urllib3.exceptions.ProtocolError):
        next(stream)
    assert sim.server.requests[-1].ended == "reset"


def test_a_stalled_watch_has_nothing_for_ever(sim) -> None:
    sim.server.faults.on("watch").end_watch(how="stall")
    stream = sim.watch()
    sim.create("a")
    for _ in range(5):
        assert next(stream) == b""
        sim.clock.advance(1000)


def test_late_events_come_on_the_clock(sim) -> None:
    sim.server.faults.on("watch").lag_events(10)
    stream = sim.watch()
    sim.create("a")
    assert next(stream) == b""
    sim.clock.advance(9)
    assert next(stream) == b""
    sim.clock.advance(1)
    assert b'"ADDED"' in next(stream)


def test_a_slow_watch_waits_between_pieces(sim) -> None:
    sim.server.faults.on("watch").split(50, pause=3)
    stream = sim.watch()
    sim.create("a")
    pieces = []
    for _ in range(60):
        if piece := next(stream):
            pieces.append((sim.clock.monotonic(), piece))
        sim.clock.advance(1)
    assert len(pieces) > 3
    assert all(later - earlier >= 3 for (earlier, _), (later, _) in pairwise(pieces))
    assert b"".join(piece for _, piece in pieces).count(b"\n") == 1


def test_an_event_is_cut_within_its_line(sim) -> None:
    sim.server.faults.on("watch").cut_event(1, at=15)
    stream = sim.watch()
    sim.create("a")
    assert next(stream) == b'{"type":"ADDED",'[:15]
    with pytest.raises(urllib3.exceptions.ProtocolError):
        next(stream)


@pytest.mark.parametrize("fresh", [False, True])
def test_a_restart_ends_open_watches_and_binds_nothing(sim, fresh) -> None:
    watch = sim.watch()
    assert next(watch) == b""
    sim.server.restart(fresh=fresh)
    assert next(watch, None) is None
    with pytest.raises(RuntimeError, match="no address"):
        sim.server.url  # noqa: B018 - asking is the test
    assert sim.get().status_code == 200


def test_a_network_that_breaks_breaks_open_watches_stalled_ones_too(sim) -> None:
    sim.server.faults.on("watch").nth(2).stall_after_headers()
    watches = [sim.watch(), sim.watch()]
    assert [next(watch) for watch in watches] == [b"", b""]
    sim.server.drop_connections()
    for watch in watches:
        with pytest.raises(urllib3.exceptions.ProtocolError, match="reset by peer"):
            next(watch)
    assert sim.get().status_code == 200


def test_a_request_whose_client_gave_up_is_handled_at_its_time_all_the_same(sim) -> None:
    sim.server.faults.on("create").delay(5)
    with pytest.raises(requests.ReadTimeout):
        sim.session.post(PATH, json={"metadata": {"name": "late"}}, timeout=2)
    assert sim.get(f"{PATH}/late").status_code == 404
    sim.clock.advance(3)
    assert sim.get(f"{PATH}/late").status_code == 200
    assert [entry.status for entry in sim.server.requests] == [201, 404, 200]


@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_connection_that_ends_after_its_answer_is_recorded(sim, how) -> None:
    sim.server.faults.on("list").hang_up(how=how)
    assert sim.get().json()["kind"] == "ConfigMapList"
    assert [(entry.status, entry.ended) for entry in sim.server.requests] == [(200, how)]
