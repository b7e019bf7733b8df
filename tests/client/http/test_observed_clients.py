"""What an observer hears of a client, over real sockets: attempts, retries, failures, streams, writes, credentials."""
from __future__ import annotations

import sys
import threading
from typing import Any

import pytest

from kubectl_runtime.client.api.api import Api
from kubectl_runtime.client.config.auth import ClientCertificate
from kubectl_runtime.client.http.layers import ObservedCredentials
from kubectl_runtime.client.http.retry import RetryPolicy
from kubectl_runtime.core.base.errors import ApiError, AuthError, TransportError
from kubectl_runtime.core.requests import request as build
from kubectl_runtime.core.requests.params import Patch, PatchParams, PostParams, WatchParams
from kubectl_runtime.resources import ConfigMap, Deployment
from kubectl_runtime.testing.clock import SimClock
from tests.client.wire_server import Peer, Received, WireServer, answering, config_map, says, status
from tests.core.recording_observer import RecordingObserver

FAST = RetryPolicy(base=0.001, maximum=0.002, random=lambda: 0.0)


def attempts(observer: RecordingObserver) -> list[tuple[Any, ...]]:
    """Method, verb, resource and code of each attempt."""
    return [call[1:5] for call in observer.of("request_attempted")]


def lost(peer: Peer, _: Received) -> None:
    peer.close()


def test_each_attempt_and_each_retry_is_told_in_order() -> None:
    observer = RecordingObserver()
    answers = answering(says(503, status(503)), lost, says(200, config_map()))
    with WireServer(answers) as server, server.client(client={"retry": FAST, "observer": observer}) as client:
        Api.namespaced(client, ConfigMap, "default").get("a")
    host = f"127.0.0.1:{server.port}"
    told = [(call[0], *call[1:-1]) for call in observer.heard]  # without seconds or delay
    assert told == [
        ("request_attempted", host, "GET", "get", "configmaps", 503),
        ("request_retried", host, "get", "configmaps", 503, 1),
        ("request_attempted", host, "GET", "get", "configmaps", 0),
        ("request_retried", host, "get", "configmaps", 0, 2),
        ("request_attempted", host, "GET", "get", "configmaps", 200),
    ]
    assert [call[-1] for call in observer.of("request_retried")] == [0.001, 0.002]
    assert all(0 < call[-1] < 30 for call in observer.of("request_attempted"))


def test_a_call_that_fails_for_good_is_an_attempt_and_no_retry() -> None:
    observer = RecordingObserver()
    with WireServer(answering(says(403, status(403)))) as server:
        with server.client(client={"observer": observer}) as client, pytest.raises(ApiError):
            Api.namespaced(client, Deployment, "default").get("a")
    assert attempts(observer) == [("GET", "get", "deployments.apps", 403)]
    assert not observer.of("request_retried", "object_written")


def test_the_last_failure_of_a_call_that_gives_up_is_followed_by_no_retry() -> None:
    observer = RecordingObserver()
    retry = RetryPolicy(base=0.001, retries=2)
    with WireServer(answering(says(503, status(503)))) as server:
        with server.client(client={"retry": retry, "observer": observer}) as client, pytest.raises(ApiError):
            client.server_version()
    assert attempts(observer) == 3 * [("GET", "get", "", 503)]
    assert len(observer.of("request_retried")) == 2


def test_a_server_that_is_not_there_has_code_0() -> None:
    observer = RecordingObserver()
    with WireServer(answering(says(200, config_map()))) as server:
        port = server.port
    with server.client(client={"retry": RetryPolicy.never(), "observer": observer}) as client:
        with pytest.raises(TransportError):
            client.server_version()
    assert [call[:5] for call in observer.of("request_attempted")] == [(f"127.0.0.1:{port}", "GET", "get", "", 0)]


def test_an_attempt_at_a_stream_ends_with_its_head() -> None:
    observer, told = RecordingObserver(), threading.Event()

    def serve(peer: Peer, _: Received) -> None:
        peer.start_stream()
        assert told.wait(20)
        peer.end_stream()

    with WireServer(answering(serve)) as server, server.client(client={"observer": observer}) as client:
        place = Api.namespaced(client, ConfigMap, "default").place
        with client.stream(build.watch(place, WatchParams(), "1")) as stream:
            assert attempts(observer) == [("GET", "watch", "configmaps", 200)]
            told.set()
            assert not list(stream.chunks())
    assert len(attempts(observer)) == 1


def test_writes_are_told_with_their_verb_and_version_and_dry_runs_are_not() -> None:
    observer = RecordingObserver()
    answers = answering(says(200, config_map()))
    with WireServer(answers) as server, server.client(client={"observer": observer}) as client:
        api = Api.namespaced(client, ConfigMap, "default")
        body = {"metadata": {"name": "a"}}
        api.create(body)
        api.create(body, PostParams(dry_run=True))
        api.apply(body, field_manager="me")
        api.patch("a", Patch.merge({"data": {}}), PatchParams(dry_run=True))
        api.get("a")
    key = ("default", "a")
    assert observer.of("object_written") == [("configmaps", key, "create", "7"), ("configmaps", key, "apply", "7")]


class Renewing:
    """Credentials that are others whenever the test says so."""

    def __init__(self) -> None:
        self.token = "one"
        self.next: str | None = None
        self.error: AuthError | None = None

    def header(self, deadline: float | None = None) -> str | None:
        if self.error is not None:
            raise self.error
        return f"Bearer {self.token}"

    def refresh(self, rejected: str | None, deadline: float | None = None) -> bool:
        if self.next is not None:
            self.token = self.next
        return f"Bearer {self.token}" != rejected

    def certificate(self) -> ClientCertificate | None:
        return None


def test_new_credentials_are_told_once_and_so_are_those_that_did_not_come() -> None:
    observer, auth = RecordingObserver(), Renewing()

    def serve(peer: Peer, request: Received) -> None:
        accepted = request.header("Authorization") != "Bearer rejected"
        (says(200, config_map()) if accepted else says(401, status(401)))(peer, request)

    with WireServer(answering(serve)) as server:
        with server.client(auth=auth, client={"retry": FAST, "observer": observer}) as client:
            api = Api.namespaced(client, ConfigMap, "default")
            host = f"127.0.0.1:{server.port}"

            def told() -> list[tuple[str, AuthError | None]]:
                found = [(call[0], call[2]) for call in observer.of("credentials_refreshed")]
                observer.heard.clear()
                return found

            for _ in range(3):
                api.get("a")
            assert told() == [(host, None)]
            auth.token = "two"
            api.get("a")
            api.get("a")
            assert told() == [(host, None)]
            auth.token, auth.next = "rejected", "three"
            api.get("a")
            assert attempts(observer) == [("GET", "get", "configmaps", 401), ("GET", "get", "configmaps", 200)]
            assert told() == [(host, None), (host, None)]  # the ones that were rejected, and those after them
            auth.token, auth.next = "rejected", None
            with pytest.raises(ApiError):
                api.get("a")
            assert told() == [(host, None)]
            auth.error = AuthError("the plugin does not answer")
            with pytest.raises(AuthError):
                api.get("a")
            assert told() == [(host, auth.error)]


def test_the_time_that_a_renewal_took_is_told_also_after_a_401() -> None:
    observer, clock = RecordingObserver(), SimClock()

    class Slow(Renewing):
        def refresh(self, rejected: str | None, deadline: float | None = None) -> bool:
            clock.advance(2)
            return super().refresh(rejected)

    auth = Slow()
    credentials = ObservedCredentials(auth, observer, "host", clock)
    header = credentials.header()
    auth.next = "two"
    assert credentials.refresh(header)
    assert credentials.header() == "Bearer two"
    assert observer.of("credentials_refreshed") == [("host", 0.0, None), ("host", 2.0, None)]


def test_no_credential_comes_to_an_observer() -> None:
    observer = RecordingObserver()
    with WireServer(answering(says(200, config_map()))) as server:
        with server.client(token="very-secret", client={"observer": observer}) as client:
            Api.namespaced(client, ConfigMap, "default").get("a")
    assert attempts(observer)
    assert not observer.of("credentials_refreshed")  # a token that never changes is not asked for
    assert "very-secret" not in repr(observer.heard)


@pytest.mark.parametrize("raised", [ValueError("no"), SystemExit(1)])
def test_an_observer_that_raises_harms_no_call(raised: BaseException) -> None:
    observer, auth = RecordingObserver(raised), Renewing()
    answers = answering(says(503, status(503)), says(200, config_map()))
    with WireServer(answers) as server:
        with server.client(auth=auth, client={"retry": FAST, "observer": observer}) as client:
            made = Api.namespaced(client, ConfigMap, "default").apply({"metadata": {"name": "a"}}, field_manager="me",
                                                                      force=True)
    assert made.resource_version == "7"
    assert [name for name, *_ in observer.heard] == ["credentials_refreshed", "request_attempted", "request_retried",
                                                     "request_attempted", "object_written"]


@pytest.mark.parametrize("verb", ["get", "create", "apply"])
def test_a_call_that_nothing_observes_runs_no_code_of_observers_log_lines_and_traces(verb: str) -> None:
    ran: set[str] = set()

    def note(frame: Any, event: str, _: Any) -> None:
        name = frame.f_code.co_filename.replace("\\", "/")
        if event == "call" and ("/observe" in name or "/logging/" in name or name.endswith("/guard.py")):
            ran.add(frame.f_code.co_name)

    made = ConfigMap(name="a")
    with WireServer(answering(*[says(200, config_map())] * 3)) as server, server.client() as client:
        api = Api.namespaced(client, ConfigMap, "default")
        call = {"get": lambda: api.get("a"), "create": lambda: api.create(made),
                "apply": lambda: api.apply(made, field_manager="m")}[verb]
        call()
        sys.setprofile(note)
        try:
            call()
        finally:
            sys.setprofile(None)
    assert ran <= {"isEnabledFor", "getEffectiveLevel"}
