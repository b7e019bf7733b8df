"""The recording of requests."""

from __future__ import annotations

import threading

import pytest

from kubectl_runtime.apiserver.transport.faults import Recording
from kubectl_runtime.apiserver.wire import HttpRequest
from kubectl_runtime.testing.clock import SimClock


def request(path: str = "/api/v1/pods", method: str = "GET", **more) -> HttpRequest:
    return HttpRequest(method, path, **more)


def test_requests_are_kept_in_order_with_time_and_outcome() -> None:
    clock = SimClock()
    recording = Recording(clock)
    first = recording.add(request(query=[("watch", "true")], headers={"user-agent": "me"}))
    clock.advance(2)
    second = recording.add(request("/api/v1/namespaces/ns/pods", "POST", body=b'{"a":1}'))
    recording.answered(first, 200)
    recording.answered(second, None, "reset")
    assert [(entry.number, entry.monotonic, entry.verb, entry.status, entry.ended) for entry in recording] == [
        (1, 0, "watch", 200, ""), (2, 2, "create", None, "reset")]
    assert (recording[0].param("watch"), recording[0].headers["user-agent"]) == ("true", "me")
    assert recording[-1].json() == {"a": 1}
    assert [entry.number for entry in recording[:1]] == [1]


def test_its_repr_tells_no_secret() -> None:
    recording = Recording()
    recording.add(request(headers={"authorization": "Bearer SECRET"}, body=b"SECRET"))
    assert repr(recording) == "<1: list GET /api/v1/pods -> None>"
    assert repr(Recording()) == "<no requests>"


def test_requests_are_selected_by_verb_path_and_resource() -> None:
    recording = Recording()
    for path, method in (("/api/v1/pods", "GET"), ("/api/v1/namespaces/a/pods/x", "GET"),
                         ("/apis/apps/v1/deployments", "GET"), ("/api/v1/namespaces/a/pods", "POST")):
        recording.add(request(path, method))
    assert [e.number for e in recording.select("list")] == [1, 3]
    assert [e.number for e in recording.select(resource="pods")] == [1, 2, 4]
    assert [e.number for e in recording.select(resource="deployments.apps")] == [3]
    assert [e.number for e in recording.select(path="/api/v1/namespaces/*/pods")] == [4]
    assert [e.number for e in recording.select("get create", method="POST")] == [4]


def test_the_oldest_are_forgotten_and_numbers_go_on() -> None:
    recording = Recording(max_requests=3, max_bytes=100)
    for _ in range(5):
        recording.add(request())
    assert [entry.number for entry in recording] == [3, 4, 5]
    recording.add(request(body=b"x" * 90))
    recording.add(request(body=b"x" * 20))
    assert [entry.number for entry in recording] == [7]
    recording.add(HttpRequest("GET", "/" + "p" * 40, [("q", "v" * 20)], {"h": "v" * 30}))  # heads count, too
    assert [entry.number for entry in recording] == [8]
    recording.clear()
    assert (len(recording), recording.total) == (0, 8)
    recording.add(request(body=b"x" * 200))  # larger than the bound: the newest is always kept
    assert len(recording) == 1


def test_waiting_ends_when_enough_requests_have_an_outcome() -> None:
    recording = Recording()
    entries = [recording.add(request()) for _ in range(2)]
    found = []
    thread = threading.Thread(target=lambda: found.extend(recording.wait_for(2, "list", timeout=20)))
    thread.start()
    recording.answered(entries[0], 200)
    recording.answered(entries[1], None, "reset")
    thread.join(20)
    assert [entry.number for entry in found] == [1, 2]


def test_waiting_in_vain_is_a_timeout_that_says_what_was_seen() -> None:
    recording = Recording(SimClock(self_advancing=True))
    recording.add(request())
    with pytest.raises(TimeoutError, match=r"0 of 1 requests \(list any path\) were answered within 5 s; 1 requests"):
        recording.wait_for(1, "list", timeout=5)
