"""The stack of layers, and the client's own limit on what it sends."""
from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

import pytest

from kubectl_runtime import Api, ApiResource, Client, Config, ConfigError, RequestTimeout, RetryPolicy, TransportError
from kubectl_runtime.client.http.layers import AUTH, BASE_URL, HEADERS, RATE_LIMIT, RETRY, Stack
from kubectl_runtime.client.http.middleware import Answer, Call, Layer, Send, retrying
from kubectl_runtime.client.http.retry import ConnectionFailed, Failure
from kubectl_runtime.client.http.send import RateLimit, limiting
from kubectl_runtime.core.requests import request as build
from kubectl_runtime.core.requests.params import DeleteParams, Preconditions
from kubectl_runtime.core.requests.request import Place
from kubectl_runtime.core.scope import StopToken
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.testing import SimClock
from tests.client.wire_server import WireServer, answering, config_map, says

PLACE = Place(ConfigMap.api_resource, "default")
LEASES = Place(ApiResource("coordination.k8s.io", "v1", "Lease", "leases"), "default")
URL = "http://127.0.0.1:9"


def noting(name: str, seen: list[str]) -> Layer:
    def layer(send: Send) -> Send:
        def noted(call: Call) -> Answer:
            seen.append(name)
            return send(call)

        return noted

    return layer


class TestStack:
    def calls(self, layers: Any, *answers: Any, **client: Any) -> list[Any]:
        with WireServer(answering(*answers)) as server:
            retry = RetryPolicy(base=0.001, maximum=0.002)
            with server.client(token="t", client={"layers": layers, "retry": retry, **client}) as made:
                assert Api.namespaced(made, ConfigMap, "default").get("a").name == "a"
        return server.requests

    def test_what_stands_outside_retry_sees_a_call_once_and_what_stands_inside_each_attempt(self) -> None:
        seen: list[str] = []

        def layers(stack: Stack) -> Stack:
            return (stack.outside(RETRY, noting("outside", seen)).inside(RETRY, noting("inside", seen))
                    .innermost(noting("last", seen)))

        self.calls(layers, says(503), says(503), says(200, config_map()))
        assert seen == ["outside"] + ["inside", "last"] * 3

    def test_a_layer_that_gives_nothing_to_call_is_a_configuration_error(self) -> None:
        with pytest.raises(ConfigError, match="returned a NoneType"):
            Client(Config(cluster_url=URL), layers=[lambda send: None])  # type: ignore[arg-type, return-value]

    @pytest.mark.parametrize("deadline", [float("inf"), 1e18])
    def test_a_layer_may_take_the_time_limit_away(self, deadline: float) -> None:
        def patient(send: Send) -> Send:
            def sent(call: Call) -> Answer:
                call.deadline = deadline
                return send(call)
            return sent

        self.calls([patient], says(200, config_map()))

    def test_layers_that_are_put_at_one_place_keep_their_order(self) -> None:
        seen: list[str] = []
        first, second, third = (noting(name, seen) for name in ("1", "2", "3"))
        self.calls(lambda stack: stack.outside(BASE_URL, first, second).outside(HEADERS, third),
                   says(200, config_map()))
        assert seen == ["1", "2", "3"]

    @pytest.mark.parametrize("name", [BASE_URL, RETRY, AUTH, HEADERS, RATE_LIMIT])
    def test_each_built_in_layer_can_be_replaced(self, name: str) -> None:
        seen: list[str] = []

        def own(send: Send) -> Send:
            def sent(call: Call) -> Answer:
                seen.append(name)
                if name == BASE_URL:
                    call.url = client.config.cluster_url + call.request.target
                return send(call)

            return sent

        with WireServer(answering(says(200, config_map()))) as server:
            with server.client(token="t", client={"layers": lambda stack: stack.replaced(name, own)}) as client:
                Api.namespaced(client, ConfigMap, "default").get("a")
        assert seen == [name]
        assert (server.requests[0].header("Authorization") is None) == (name == AUTH)
        assert (server.requests[0].header("Accept-Encoding") == "gzip") == (name != HEADERS)

    def test_a_layer_can_be_taken_away(self) -> None:
        with WireServer(answering(says(503), says(200, config_map()))) as server:
            with server.client(client={"layers": lambda stack: stack.without(RETRY)}) as client:
                with pytest.raises(Exception, match="get configmaps default/a"):
                    Api.namespaced(client, ConfigMap, "default").get("a")
        assert len(server.requests) == 1

    @pytest.mark.parametrize(("layers", "words"), [
        (lambda stack: stack.outside("retries"), r"no layer 'retries': it has 'base url', 'retry'"),
        (lambda stack: stack.without(AUTH).replaced(AUTH, stack), "no layer 'auth'"),
        (lambda stack: None, "not NoneType"), (lambda stack: stack.innermost(5), "a layer must be a function"),
        ([5], "a layer must be a function")])
    def test_a_stack_that_cannot_work_is_a_configuration_error(self, layers: Any, words: str) -> None:
        with pytest.raises(ConfigError, match=words):
            Client(Config(cluster_url=URL), layers=layers)


def call(clock: SimClock, place: Place = PLACE, *, seconds: float = 1e6, streaming: bool = False) -> Call:
    request = build.list_(place)
    return Call(request, clock.monotonic() + seconds, StopToken(clock=clock), streaming=streaming)


class TestRetries:
    @pytest.mark.parametrize(("wait", "attempts"), [(0, 9), (4, 3), (9, 2), (10, 1), (3600, 1)])
    @pytest.mark.parametrize("lost", [False, True], ids=["answered", "lost"])
    def test_no_wait_for_another_attempt_passes_the_deadline(self, wait: float, attempts: int, lost: bool) -> None:
        clock, sent = SimClock(self_advancing=True), []
        began = clock.monotonic()

        def fails(call: Call) -> Answer:
            sent.append(clock.monotonic())
            if lost:
                raise ConnectionFailed("lost", Failure(sent=False, retry_after=wait))
            return Answer(503, {"Retry-After": str(wait)})

        policy = RetryPolicy(base=0.001, maximum=0.002)
        call = Call(build.get(PLACE, "a"), began + 10, StopToken(clock=clock))
        send = retrying(policy, clock)(fails)
        if lost:
            with pytest.raises(ConnectionFailed):
                send(call)
        else:
            assert send(call).status == 503
        assert len(sent) == attempts
        assert clock.monotonic() < began + 10

    GONE = Answer(404, {}, b'{"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404, '
                  b'"details": {"name": "a", "kind": "configmaps"}}')

    @pytest.mark.parametrize(("outcomes", "status"), [
        ([ConnectionFailed("lost", Failure(sent=True))], 200),
        ([ConnectionFailed("lost", Failure(sent=True)), ConnectionFailed("no route", Failure(sent=False))], 200),
        ([Answer(504, {}), Answer(429, {"Retry-After": "0"})], 200),
        ([ConnectionFailed("no route", Failure(sent=False)), Answer(429, {"Retry-After": "0"})], 404)])
    def test_a_doubt_about_one_attempt_outlives_those_after_it(self, outcomes: list[Any], status: int) -> None:
        """Only a deletion that may have been carried out finds its object gone because of itself."""
        clock, left = SimClock(self_advancing=True), [*outcomes, self.GONE]

        def answers(call: Call) -> Answer:
            if isinstance(found := left.pop(0), ConnectionFailed):
                raise found
            return found  # type: ignore[no-any-return]

        request = build.delete(PLACE, "a", DeleteParams(preconditions=Preconditions(uid="u")))
        call = Call(request, clock.monotonic() + 10, StopToken(clock=clock))
        assert retrying(RetryPolicy(base=0.001), clock)(answers)(call).status == status
        assert not left

    @pytest.mark.parametrize(("failure", "attempts"), [
        (ConnectionFailed("lost", Failure(sent=True)), 1), (Answer(504, {}), 1), (Answer(503, {}), 1),
        (ConnectionFailed("no route", Failure(sent=False)), 3), (Answer(429, {"Retry-After": "0"}), 3)])
    def test_a_write_that_may_have_been_carried_out_is_not_sent_again(self, failure: Any, attempts: int) -> None:
        clock, sent = SimClock(self_advancing=True), []

        def answers(call: Call) -> Answer:
            sent.append(call.attempt)
            if isinstance(failure, ConnectionFailed):
                raise failure
            return failure  # type: ignore[no-any-return]

        request = build.create(PLACE, {"metadata": {"generateName": "a-"}})
        call = Call(request, clock.monotonic() + 10, StopToken(clock=clock))
        with suppress(ConnectionFailed):
            retrying(RetryPolicy(retries=2, base=0.001), clock)(answers)(call)
        assert sent == [*range(attempts)]


class TestRateLimit:
    def test_twenty_callers_at_twenty_a_second_send_no_twenty_one_in_any_second(self) -> None:
        clock = SimClock()
        sent: list[float] = []
        lock = threading.Lock()

        def note(_: Call) -> Answer:
            with lock:
                sent.append(clock.monotonic())
            return Answer(200, {})

        send = limiting(RateLimit(qps=20), clock)(note)
        left = threading.Semaphore(200)

        def work() -> None:
            while left.acquire(blocking=False):
                send(call(clock))

        threads = [threading.Thread(target=work, daemon=True) for _ in range(20)]
        for thread in threads:
            thread.start()
        while alive := [thread for thread in threads if thread.is_alive()]:
            # Time moves only while each thread waits for its turn, so that none records a later time than its own.
            waiting = [until for _, until in [*clock._waiters.values()]]
            if len(waiting) == len(alive) and min(waiting) > clock.monotonic():
                clock.advance(min(waiting) - clock.monotonic())
        assert len(sent) == 200
        times = sorted(sent)
        for index, begin in enumerate(times):
            within = sum(begin <= other < begin + 1 - 1e-6 for other in times[index:])
            assert within <= 20, f"{within} in the second from {begin}"
        assert times[-1] - times[0] < 12

    def test_a_burst_goes_at_once_and_comes_back_with_time(self) -> None:
        clock = SimClock()
        passed: list[float] = []

        def note(_: Call) -> Answer:
            passed.append(clock.monotonic())
            return Answer(200, {})

        send = limiting(RateLimit(qps=1, burst=3), clock)(note)
        for _ in range(3):
            send(call(clock))
        with pytest.raises(RequestTimeout, match="rate limit of 1 calls a second"):
            send(call(clock, seconds=0.5))
        clock.advance(10)
        for _ in range(3):
            send(call(clock, seconds=0.5))
        assert len(passed) == 6

    def test_a_wait_that_does_not_fit_the_deadline_is_not_begun_and_takes_no_turn(self) -> None:
        clock = SimClock()
        send = limiting(RateLimit(qps=1), clock)(lambda _: Answer(200, {}))
        send(call(clock))
        for _ in range(50):
            with pytest.raises(RequestTimeout) as error:
                send(call(clock, seconds=0.9))
        assert error.value.sent is False
        clock.advance(1.01)
        send(call(clock, seconds=0.1))

    def test_the_stop_token_ends_a_wait(self) -> None:
        clock = SimClock()
        send = limiting(RateLimit(qps=0.001), clock)(lambda _: Answer(200, {}))
        send(call(clock))
        waiting = call(clock)
        ended: list[BaseException] = []

        def wait() -> None:
            try:
                send(waiting)
            except TransportError as error:
                ended.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        waiting.stop.set("the controller stops")
        thread.join(10)
        assert "given up before it was sent, because the controller stops" in str(ended[0])
        assert isinstance(ended[0], TransportError)
        assert not ended[0].sent

    def test_watches_and_leases_do_not_wait(self) -> None:
        clock = SimClock()
        send = limiting(RateLimit(qps=0.001), clock)(lambda _: Answer(200, {}))
        for _ in range(5):
            send(call(clock, streaming=True))
            send(call(clock, LEASES))
        send(call(clock, seconds=1))

    def test_each_attempt_takes_a_turn(self) -> None:
        limit, retry = RateLimit(qps=0.001, burst=2), RetryPolicy(base=0.001, maximum=0.002)
        with WireServer(answering(says(503))) as server:
            with server.client(client={"rate_limit": limit, "retry": retry}) as client:
                with pytest.raises(RequestTimeout, match="rate limit"):
                    Api.namespaced(client, ConfigMap, "default").get("a", timeout=5)
        assert len(server.requests) == 2

    @pytest.mark.parametrize("arguments", [{"qps": 0}, {"qps": -1}, {"qps": "20"}, {"qps": float("nan")},
                                           {"qps": float("inf")}, {"qps": 1, "burst": 0}, {"qps": 1, "burst": 1.5}])
    def test_a_limit_that_makes_no_sense_is_refused(self, arguments: dict[str, Any]) -> None:
        with pytest.raises(ConfigError):
            RateLimit(**arguments)
