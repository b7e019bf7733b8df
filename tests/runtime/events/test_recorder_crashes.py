"""No observation is counted twice: with a crash between any two steps, lost and late answers, and others who interfere.

An Event's count is the highest that it ever showed, also if it was deleted since; what somebody else wrote over it is
theirs. Each process is an instance of its own, so its Events are told from those of the process after it.
"""
from __future__ import annotations

import itertools
import logging
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import requests
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from requests.adapters import BaseAdapter

from kubectl_runtime import Action, Api, ApiError, Client, Config, Context, Controller, Patch, Recorder
from kubectl_runtime.apiserver.transport.faults.rule import Rule
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.testing import ApiServer, Simulation
from tests.runtime.events.events_cluster import EVENT, Cluster, count_of
from tests.thoroughness import examples


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL + 1)


PROCESS = "x-process"


class Crash(BaseException):
    """The process is gone."""


class Line(BaseAdapter):
    """A process's way to the server, on which it dies before or after a write."""

    def __init__(self, server: ApiServer, see: Callable[[], None], dies_at: int | None = None) -> None:
        super().__init__()
        self.transport = server.transport()
        self.see = see
        self.dies_at = dies_at
        self.steps = 0
        self.dead = False

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        if request.method == "GET":
            return self.transport.send(request, **options)
        request.headers[PROCESS] = "yes"
        self._may_die()
        try:
            answer = self.transport.send(request, **options)
        finally:
            self.see()
        self._may_die()
        return answer

    def close(self) -> None:
        self.transport.close()

    def _may_die(self) -> None:
        self.steps += 1
        self.dead = self.dead or self.steps == self.dies_at
        if self.dead:
            raise Crash


class Story(Cluster):
    """Processes one after the other, who publish, and what becomes of it."""

    def __init__(self, deaths: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.deaths = list(deaths)
        self.published: Counter[tuple[str, str]] = Counter()
        self.seen: dict[str, tuple[tuple[str, str], int]] = {}
        self.theirs: set[str] = set()
        self.number = 0
        self.crashes = 0
        self.begin()

    def begin(self) -> None:
        self.number += 1
        self.line = Line(self.server, self.see, self.deaths.pop(0) if self.deaths else None)
        session = requests.Session()
        session.mount("http://", self.line)
        self.process = Client(Config(cluster_url="http://simulated"), session=session, clock=self.clock)
        self.recorder = Recorder(self.process, "op", instance=f"op-{self.number}", burst=1000)

    def see(self) -> None:
        for event in self.events:
            name = event["metadata"]["name"]
            if name not in self.theirs:
                which = (event["reportingInstance"], event["reason"])
                self.seen[name] = which, max(count_of(event), self.seen.get(name, (which, 0))[1])

    def say(self, reason: str, times: int = 1) -> None:
        self.published[f"op-{self.number}", reason] += times
        self.publish(times, reason)

    def go_on(self, duration: float) -> None:
        self.drive(duration)
        while self.line.dead:
            self.crashes += 1
            self.begin()

    @property
    def told(self) -> Counter[tuple[str, str]]:
        self.see()
        told: Counter[tuple[str, str]] = Counter()
        for which, count in self.seen.values():
            told[which] += count
        return told

    # others, and bad days

    def act(self, what: str, reason: str, number: int) -> None:
        if what == "say":
            self.say(reason, number)
        elif what == "lose":
            self.fault("create" if number % 2 else "patch").first(number % 3 + 1).lose_answer()
        elif what == "late":
            self.fault("create" if number % 2 else "patch").first(1).delay(5 * number)
        elif what == "refuse":
            self.fault("create" if number % 2 else "patch").first(number).status((500, 429, 409)[number % 3])
        elif what == "crash":
            self.line.dies_at = self.line.steps + number
        elif what in ("delete", "change"):
            self.interfere(what, number)
        else:
            self.go_on({"time": number, "long": 90 * number}[what])

    def fault(self, verb: str) -> Rule:
        """For requests of the processes alone."""
        return self.server.faults.on(verb, where=lambda request: PROCESS in request.headers)

    def interfere(self, what: str, number: int) -> None:
        found = self.events
        if not found:
            return
        self.see()
        name = found[number % len(found)]["metadata"]["name"]
        events = Api.namespaced(self.others, EVENT, "default")
        try:
            if what == "delete":
                events.delete(name)
            else:
                self.theirs.add(name)
                series = {"count": 1000 + number, "lastObservedTime": "2026-01-01T00:00:09.000000Z"}
                events.patch(name, Patch.merge({"series": series}))
        except ApiError:
            pass

    def come_to_rest(self) -> None:
        self.line.dies_at = None
        self.server.faults.clear()
        self.go_on(200)
        assert self.recorder.close(200)


def life(deaths: tuple[int, ...]) -> Story:
    """Three counts of one event, one of another, told by five requests."""
    story = Story(deaths)
    for reason, times in (("A", 1), ("A", 2), ("B", 1), ("A", 1), ("B", 4)):
        story.say(reason, times)
        story.go_on(10)
    assert story.recorder.close(60)
    return story


def test_without_a_crash_everything_is_counted_once() -> None:
    story = life(())
    assert story.told == story.published == {("op-1", "A"): 4, ("op-1", "B"): 5}
    assert story.line.steps == 10


def test_a_crash_between_any_two_steps_counts_nothing_twice() -> None:
    for step in itertools.count(1):
        story = life((step,))
        assert story.told <= story.published, step
        last = f"op-{story.number}"  # the one that did not die told all it had to tell
        assert {which: n for which, n in story.told.items() if which[0] == last} == \
            {which: n for which, n in story.published.items() if which[0] == last}
        if not story.crashes:
            break
    assert step == 11


@pytest.mark.parametrize("verb", ["create", "patch"])
@pytest.mark.parametrize("times", [1, 2, 5])
def test_an_answer_that_is_lost_counts_nothing_twice(verb: str, times: int) -> None:
    story = Story()
    lost = story.fault(verb).first(times).lose_answer()
    story.say("A", 2)
    story.go_on(100)
    story.say("A", 3)
    story.go_on(300)
    assert lost.taken == times if verb == "create" else lost.taken >= 1
    assert story.told == story.published
    assert len(story.events) == 1


@pytest.mark.parametrize("verb", ["create", "patch"])
def test_a_request_that_is_handled_late_counts_nothing_twice(verb: str) -> None:
    """The client has given it up, done it again, and told more; then the first one arrives."""
    story = Story()
    story.say("A", 2)
    if verb == "patch":
        story.go_on(1)
    late = story.fault(verb).first(1).delay(200)
    for _ in range(5):
        story.say("A", 2)
        story.go_on(30)
    assert story.recorder.close(10)
    assert (late.taken, story.counts) == (1, [12])
    story.clock.advance(300)
    Api.all(story.process, EVENT).list()  # a simulated line handles what is late when it is used
    refusal = 409 if verb == "create" else 422
    assert (story.counts, [entry.status for entry in story.server.requests].count(refusal)) == ([12], 1)


def test_an_answer_lost_at_the_last_try_is_remembered_for_the_next_observation() -> None:
    story = Story()
    story.say("A")
    story.go_on(1)
    lost = story.fault("patch").first(1).lose_answer()
    story.say("A")
    story.go_on(1.1)
    assert lost.taken == 1
    story.fault("patch").status(500)
    story.go_on(300)
    assert (story.recorder.waiting, story.recorder.lost) == (0, {"refused": 1})
    story.server.faults.clear()
    story.say("A")
    story.go_on(300)
    assert (story.told, story.recorder.lost) == (story.published, {})


WORLD = st.lists(st.tuples(
    st.sampled_from(["say", "say", "say", "say", "time", "time", "long", "lose", "late", "refuse", "delete", "change",
                     "crash"]),
    st.sampled_from("AB"), st.integers(1, 9)), min_size=5, max_size=40)


@settings(max_examples=examples(50), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(WORLD)
@example([("say", "A", 1), ("say", "B", 1), ("lose", "A", 6), ("say", "A", 1), ("refuse", "A", 8)])  # a lost conflict
def test_whatever_happens_an_event_is_counted_once(world: list[tuple[str, str, int]]) -> None:
    story = Story()
    for act in world:
        story.act(*act)
        story.go_on(1)
        assert story.told <= story.published
    story.come_to_rest()
    assert story.told <= story.published
    if not {"crash", "delete", "change"} & {what for what, _, _ in world} and not story.recorder.lost:
        assert story.told == story.published
        assert sum(story.counts) == story.published.total()


# In a controller's simulation


@pytest.mark.parametrize("seed", range(5))
def test_a_controller_s_events_are_sent_beside_its_runs_and_with_the_seed_come_back(seed: int) -> None:
    def run() -> list[tuple[str, int]]:
        sim = Simulation(seed)
        server = ApiServer(clock=sim.clock, seed=seed)
        session = requests.Session()
        session.mount("http://", server.transport())
        with Client(Config(cluster_url="http://simulated"), session=session, clock=sim.clock) as client:
            def reconcile(obj: ConfigMap, ctx: Context[None]) -> Action:
                ctx.record("Seen", f"attempt {ctx.attempt}")
                if ctx.attempt < 4:
                    raise ValueError("planned")
                return Action.await_change()

            maps = Api.namespaced(client, ConfigMap, "default")
            made = [maps.create(ConfigMap(name=name)) for name in "ab"]
            sim.start(Controller(maps, name="my maps"), reconcile)
            sim.settle(400)
            events = [event.to_dict() for event in Api.namespaced(client, EVENT, "default").list().items]
            ours = [event for event in events if event["reportingController"] == "my-maps"]
            assert {event["regarding"]["uid"] for event in ours} >= {obj.uid for obj in made}
            return sorted((event["metadata"]["name"], count_of(event)) for event in ours)

    found = run()
    assert {count for _, count in found} == {4}
    assert found == run()
