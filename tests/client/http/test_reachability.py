"""What all requests of a client know together of whether its server is there."""
from __future__ import annotations

import contextlib
import random
from itertools import pairwise

import requests
from requests.adapters import BaseAdapter

from kubectl_runtime.client.api.client import Client
from kubectl_runtime.client.config.config import Config
from kubectl_runtime.client.http.retry import RetryPolicy
from kubectl_runtime.client.http.send import FIRST_TRY, PROBE_SECONDS, PROBE_SPREAD, Reachability
from kubectl_runtime.client.server import REMEMBERED_SECONDS, Refusals
from kubectl_runtime.core.base.errors import ApiError, TransportError
from kubectl_runtime.core.requests.request import Request

REFUSED = TransportError("refused")
DRAW = random.Random(1).random


def test_turns_are_five_seconds_apart_and_the_first_comes_after_about_a_second() -> None:
    outage = Reachability().lost(REFUSED, 100.0, DRAW)
    assert FIRST_TRY[0] <= outage.due - 100 <= FIRST_TRY[1]
    now, taken = 100.0, []
    while now < 200:
        if outage.turn(now, DRAW) == 0:
            taken.append(now)
            assert outage.turn(now, DRAW) > 0, "the turn was taken"
        now += 0.01
    apart = [later - earlier for earlier, later in pairwise(taken)]
    assert all(PROBE_SECONDS - 0.011 <= gap <= PROBE_SECONDS + PROBE_SPREAD + 0.011 for gap in apart), apart


def test_an_answer_ends_the_outage_and_one_that_comes_and_goes_is_not_tried_more_often() -> None:
    known = Reachability()
    outage = known.lost(REFUSED, 0.0, DRAW)
    assert outage.turn(2.0, DRAW) == 0
    known.answered()
    assert known.outage is None
    again = known.lost(REFUSED, 2.5, DRAW)
    assert again.turn(4.4, DRAW) > 0, "the last turn was at 2"
    assert again.turn(7.6, DRAW) == 0


def test_connecting_gets_less_time_while_the_server_is_away() -> None:
    known = Reachability()
    assert known.connect_limit(30) == 30
    known.lost(REFUSED, 0.0, DRAW)
    assert (known.connect_limit(30), known.connect_limit(2)) == (PROBE_SECONDS, 2)


class OneAnswer(BaseAdapter):
    """Refuses, or answers with a status."""

    def __init__(self) -> None:
        super().__init__()
        self.status = 0
        self.timeouts: list[object] = []

    def send(self, request: requests.PreparedRequest, *_: object, timeout: object = None,
             **__: object) -> requests.Response:
        self.timeouts.append(timeout)
        if not self.status:
            raise requests.ConnectionError("refused")
        response = requests.Response()
        response.status_code, response._content, response.request = self.status, b"{}", request
        return response

    def close(self) -> None:
        pass


def test_every_answer_of_a_client_proves_that_its_server_is_there_whatever_it_says() -> None:
    adapter, session = OneAnswer(), requests.Session()
    session.mount("http://", adapter)
    ask = Request("GET", "/version", "get", None, "ask")
    with Client(Config(cluster_url="http://localhost:1"), session=session, retry=RetryPolicy.never()) as client:
        for status in (200, 403, 410, 429, 503):
            client.reachability.lost(REFUSED, 0.0, DRAW)
            adapter.status = 0
            with contextlib.suppress(TransportError):
                client.request(ask)
            assert client.reachability.outage is not None
            adapter.status = status
            with contextlib.suppress(ApiError):
                client.request(ask)
            assert client.reachability.outage is None, status
    connect_limits = [limits[0] for limits in adapter.timeouts]  # type: ignore[index]
    assert connect_limits == [PROBE_SECONDS] * 10


def test_a_refusal_is_remembered_for_an_hour() -> None:
    refusals = Refusals()
    refusals.note("pods", 100.0)
    assert refusals.holds("pods", 100 + REMEMBERED_SECONDS - 1)
    assert not refusals.holds("pods", 100 + REMEMBERED_SECONDS)
    assert not refusals.holds("nodes", 100.0)
