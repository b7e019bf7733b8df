"""Two replicas as processes against one embedded server, of which the leader is killed, ended, or stopped beyond its
lease.

    ELECTION_ROUNDS   how often, once by default; `tox run -e election` does it 20 times
    ELECTION_TIMES    lease/renew deadline/retry in seconds, 2/1.5/0.3 by default
"""
from __future__ import annotations

import bisect
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from configmapgen_controller import ConfigMapGenerator

from kubectl_runtime import Api, Client, apply_crd
from kubectl_runtime.apiserver.server import ApiServer
from kubectl_runtime.core.base.threads import SYSTEM_CLOCK
from kubectl_runtime.resources import ConfigMap

ROOT = Path(__file__).parents[2]
ROUNDS = int(os.environ.get("ELECTION_ROUNDS", "1"))
LEASE, RENEW_DEADLINE, RETRY = (float(part) for part in os.environ.get("ELECTION_TIMES", "2/1.5/0.3").split("/"))
SLACK = 1.0 if ROUNDS > 1 else 20.0
"""Seconds for the requests of a takeover. Many rounds measure how soon it comes, on a machine that does nothing else;
one, among all other tests, shows that it comes."""
LIMIT = 60 + 4 * LEASE
OBJECTS = 20

pytestmark = [
    pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="this system cannot stop processes"),
    pytest.mark.timeout(300 + ROUNDS * (10 + 4 * LEASE)),
]


@dataclass(frozen=True)
class Told:
    """One line of a replica."""

    event: str
    at: float
    pid: int
    left: float = 0.0


class Replica:
    """One process, and what it tells."""

    def __init__(self, kubeconfig: Path) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("KUBERNETES_SERVICE_")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.manager.replica_program", f"{LEASE:.0f}", f"{RENEW_DEADLINE}",
             f"{RETRY}"], stdout=subprocess.PIPE, text=True, cwd=ROOT,
            env={**kept, "KUBECONFIG": str(kubeconfig), "PYTHONPATH": f"{ROOT}:{ROOT / 'examples'}"})
        self.told: list[Told] = []
        self.killed_at: float | None = None
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, name="reader of a replica", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            fields = json.loads(line)
            with self._changed:
                self.told.append(Told(fields["event"], fields["at"], fields["pid"], fields.get("left", 0.0)))
                self._changed.notify_all()

    def has(self, event: str) -> bool:
        return any(told.event == event for told in self.told)

    def first(self, event: str) -> Told:
        """The first line of this kind; blocks until it is there."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.has(event), LIMIT), f"no {event!r}: {self.told[-3:]}"
        return next(told for told in self.told if told.event == event)

    def send(self, number: signal.Signals) -> float:
        """When it was sent."""
        at = SYSTEM_CLOCK.boottime()
        self.process.send_signal(number)
        return at

    def end(self) -> int:
        status = self.process.wait(LIMIT)
        self._reader.join(LIMIT)
        return status

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.end()
        assert self.process.stdout is not None
        self.process.stdout.close()


class Pair:
    """Two replicas at work, in a world in which there is always something to do."""

    def __init__(self, server: ApiServer, client: Client, kubeconfig: Path, seed: int) -> None:
        self.server = server
        self.random = random.Random(seed)
        self.kubeconfig = kubeconfig
        self.generators = Api.namespaced(client, ConfigMapGenerator, "default")
        self.children = Api.namespaced(client, ConfigMap, "default")
        self.all: list[Replica] = []
        self.wanted: dict[str, str] = {}
        self.takeovers: list[float] = []
        self._over = threading.Event()
        self._world = threading.Thread(target=self._change_things, name="world", daemon=True)
        self.leader, self.standby = self.join(), self.join()
        if not self.one_leads():
            raise AssertionError("nobody leads")
        self._world.start()

    def one_leads(self) -> bool:
        give_up = time.monotonic() + LIMIT
        while time.monotonic() < give_up:
            for one, other in ((self.leader, self.standby), (self.standby, self.leader)):
                if one.has("leads"):
                    self.leader, self.standby = one, other
                    return True
            self._over.wait(0.02)
        return False

    def join(self) -> Replica:
        replica = Replica(self.kubeconfig)
        self.all.append(replica)
        return replica

    def _change_things(self) -> None:
        dice = random.Random(self.random.random())
        number = 0
        while not self._over.wait(dice.uniform(0, 0.05)):
            number += 1
            name, content = f"g{dice.randrange(OBJECTS)}", f"c{number}"
            self.generators.apply({"metadata": {"name": name}, "spec": {"content": content}}, field_manager="world")
            self.wanted[name] = content

    def random_moment(self) -> None:
        """Both are up, the leader at work, and then some time passes."""
        self.standby.first("seen")
        self.leader.first("begin")
        self._over.wait(self.random.uniform(0, RENEW_DEADLINE))

    def send_to_leader(self, number: signal.Signals) -> float:
        return self.leader.send(number)

    def taken_over(self, since: float) -> None:
        """The standby becomes the leader; after any round but the last another replica becomes the standby."""
        self.takeovers.append(self.standby.first("leads").at - since)
        self.leader = self.standby
        if len(self.takeovers) < ROUNDS:
            self.standby = self.join()

    def settle(self) -> None:
        """The world stands still; blocks until everything is as it should be."""
        self._over.set()
        self._world.join(LIMIT)
        give_up = time.monotonic() + LIMIT
        while (found := self.found()) != self.wanted:
            assert time.monotonic() < give_up, f"{found} is not {self.wanted}"
            threading.Event().wait(0.1)

    def found(self) -> dict[str, str]:
        return {child.name: child.data["content"] for child in self.children.list_all() if child.name in self.wanted}

    def close(self) -> None:
        self._over.set()
        for replica in self.all:
            replica.close()

    def strays(self, *events: str) -> list[Told]:
        """What somebody did after another had begun to. A leadership begins when it is told of or with the first work:
        two threads tell of them, so that either may come first."""
        work = [[told for told in one.told if told.event in ("leads", "begin", "attempt")] for one in self.all]
        beginnings = sorted(min((told.at, told.pid) for told in of_one) for of_one in work if of_one)
        return [told for one in self.all for told in one.told if told.event in events
                and beginnings[bisect.bisect_right(beginnings, (told.at, sys.maxsize)) - 1][1] != told.pid]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Callable[[int], Pair]]:
    made: list[Pair] = []
    with ApiServer() as server, server.client() as client:
        kubeconfig = tmp_path / "kubeconfig"
        server.write_kubeconfig(kubeconfig)
        apply_crd(client, ConfigMapGenerator, field_manager="test")

        def make(seed: int) -> Pair:
            made.append(Pair(server, client, kubeconfig, seed))
            return made[-1]

        try:
            yield make
        finally:
            for one in made:
                one.close()


def report(pair: Pair, record_property: Callable[[str, Any], None], what: str) -> None:
    attempts = sum(told.event == "attempt" for one in pair.all for told in one.told)
    worst, mean = max(pair.takeovers), sum(pair.takeovers) / len(pair.takeovers)
    text = (f"{what} {len(pair.takeovers)} times at {LEASE:g}/{RENEW_DEADLINE:g}/{RETRY:g} s: takeover after "
            f"{mean:.2f} s on average, {worst:.2f} s at the longest; {attempts} writes")
    record_property("election", text)
    print(text)


def test_when_the_leader_is_killed_the_other_takes_over_in_time_and_nothing_is_lost(
        pair: Callable[[int], Pair], record_property: Callable[[str, Any], None]) -> None:
    two = pair(1)
    for _ in range(ROUNDS):
        two.random_moment()
        victim = two.leader
        at = two.send_to_leader(signal.SIGKILL)
        victim.end()
        two.taken_over(at)
    two.settle()
    report(two, record_property, "killed")
    assert max(two.takeovers) <= LEASE + RETRY + SLACK
    assert two.strays("begin", "end", "attempt") == []


@pytest.mark.parametrize("fault", [
    pytest.param(lambda rule: rule.status(500), marks=pytest.mark.long, id="500"),
    pytest.param(lambda rule: rule.status(403), marks=pytest.mark.long, id="403"),
    pytest.param(lambda rule: rule.never_answer(), id="no answer")])
def test_a_leader_that_is_to_end_gives_the_lease_back_before_its_events(
        pair: Callable[[int], Pair], record_property: Callable[[str, Any], None], fault: Callable[[Any], Any]) -> None:
    two = pair(3)
    fault(two.server.faults.on(resource="events"))
    for _ in range(ROUNDS):
        two.random_moment()
        leaving = two.leader
        two.send_to_leader(signal.SIGTERM)
        next_one = two.standby.first("leads")
        assert leaving.end() == 0
        last = max(told.at for told in leaving.told if told.event == "end")
        two.taken_over(last)
        assert next_one.at - last <= RETRY + 0.5 + (0 if ROUNDS > 1 else 1.2), "not after the events, which get 2 s"
    two.settle()
    report(two, record_property, "ended")
    assert two.strays("begin", "end", "attempt") == []


def test_a_leader_that_was_stopped_beyond_its_lease_begins_no_write_when_it_goes_on(
        pair: Callable[[int], Pair], record_property: Callable[[str, Any], None]) -> None:
    two = pair(2)
    for _ in range(ROUNDS):
        two.random_moment()
        sleeper = two.leader
        at = two.send_to_leader(signal.SIGSTOP)
        two.taken_over(at)
        threading.Event().wait(two.random.uniform(0, 0.5))
        sleeper.send(signal.SIGCONT)
        assert sleeper.end() == 2, "it did not end as one who has lost the leadership"
    two.settle()
    report(two, record_property, "stopped")
    assert max(two.takeovers) <= LEASE + RETRY + SLACK
    late = [told for one in two.all for told in one.told if told.event == "attempt" and told.left <= 0]
    assert late == []
    assert two.strays("attempt") == []
