"""Watches of one client while its server is away: one attempt for all, and all at once when it is back."""
from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubectl_runtime.client.http.retry import ConnectionFailed, Failure
from kubectl_runtime.client.http.send import PROBE_SECONDS, Reachability
from kubectl_runtime.core.base.errors import RequestTimeout, TransportError
from kubectl_runtime.runtime.watch.backoff import GENTLE_SECONDS, ServerGate, is_unreachable
from tests.runtime.watch.scripted_watch import api_error
from tests.thoroughness import examples

REFUSED = TransportError("refused")


class Watches:
    """So many watches that want one request each, of a server that is away until `back`."""

    def __init__(self, count: int, back: float, seed: int) -> None:
        rng = random.Random(seed)
        self.known = Reachability()
        self.gates = [ServerGate(self.known, random.Random(rng.random())) for _ in range(count)]
        self.back = back
        self.attempts: list[tuple[float, int]] = []
        self.passed: dict[int, float] = {}

    def run(self, until: float) -> None:
        """Each as a thread would do it: asks, waits as told, tries."""
        wakes = dict.fromkeys(range(len(self.gates)), 0.0)
        while wakes:
            number = min(wakes, key=wakes.__getitem__)
            now, gate = wakes[number], self.gates[number]
            if now > until:
                return
            if (pause := gate.pause(now)) > 0:
                wakes[number] = now + pause
                continue
            self.attempts.append((now, number))
            if now >= self.back:
                self.known.answered()  # as the client reports each answer
                gate.passed(now)
                self.passed[number] = now
                del wakes[number]
            else:
                assert gate.failed(REFUSED, now), "it waits for the server, not for a backoff of its own"
                wakes[number] = now + 1e-6


@settings(max_examples=examples(60), deadline=None)
@given(count=st.integers(1, 40), back=st.floats(0.1, 100), seed=st.integers(0, 2**32))
def test_one_attempt_every_five_seconds_and_everybody_within_seven_of_the_servers_return(
        count: int, back: float, seed: int) -> None:
    watches = Watches(count, back, seed)
    watches.run(200)
    refused = [at for at, _ in watches.attempts if at < back]
    gaps = [later - earlier for earlier, later in pairwise(refused[1:])]
    assert all(gap >= PROBE_SECONDS - 1e-6 for gap in gaps), refused
    assert len(watches.passed) == count
    assert max(watches.passed.values()) - back <= 7


def test_after_an_outage_the_first_requests_are_spread_over_a_second() -> None:
    watches = Watches(200, 30.0, 7)
    watches.run(60)
    first = min(watches.passed.values())
    tenths = Counter(int((at - first) * 10) for at in watches.passed.values())
    assert set(tenths) == set(range(10))
    assert max(tenths.values()) <= 60


def test_turns_go_round_so_that_one_hopeless_watch_keeps_no_other_from_trying() -> None:
    """A server that refuses one watch for ever, on a client that is quiet otherwise."""
    known = Reachability()
    hopeless, other = (ServerGate(known, random.Random(seed)) for seed in (1, 2))
    assert hopeless.pause(0) == 0
    assert hopeless.failed(REFUSED, 0)
    now, tries = 0.0, []
    while now < 60 and len(tries) < 8:
        now += 0.01
        for name, gate in (("hopeless", hopeless), ("other", other)):
            if gate.pause(now) == 0:
                tries.append(name)
                assert gate.failed(REFUSED, now)
    assert "other" in tries


def test_a_watch_that_is_refused_while_others_are_answered_backs_off_alone() -> None:
    known = Reachability()
    gate, own = ServerGate(known, random.Random(1)), []
    now = 0.0
    for _ in range(10):
        while (pause := gate.pause(now)) > 0:
            now += pause
            known.answered()  # a busy client
        own.append(not gate.failed(REFUSED, now))
    assert own == [False, True] * 5
    assert known.outage is None


def test_an_outage_is_over_once_and_soon() -> None:
    known = Reachability()
    gate = ServerGate(known, random.Random(1))
    gate.passed(0)
    assert not gate.outage_is_over(0)
    for asked_after, over in ((1, True), (GENTLE_SECONDS + 1, False)):
        gate.failed(REFUSED, 10)
        assert gate.trouble is REFUSED
        known.answered()
        gate.passed(20)
        assert gate.trouble is None
        assert gate.outage_is_over(20 + asked_after) is over
        assert not gate.outage_is_over(20 + asked_after)


@pytest.mark.parametrize(("error", "unreachable"), [
    (TransportError("no route"), True),
    (ConnectionFailed("refused", Failure(sent=False)), True),
    (ConnectionFailed("reset before a byte", Failure()), True),
    (ConnectionFailed("broke off", Failure(answered=True)), False),
    (ConnectionFailed("not trusted", Failure(sent=False, permanent=True)), False),
    (RequestTimeout("no answer"), False), (api_error(503), False), (ValueError("x"), False)], ids=str)
def test_what_counts_as_nobody_there(error: Exception, unreachable: bool) -> None:
    assert is_unreachable(error) is unreachable
    assert ServerGate(Reachability(), random.Random(1)).failed(error, 0.0) is unreachable
