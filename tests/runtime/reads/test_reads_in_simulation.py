"""Reads of a controller, in simulation: an object runs again if, and only if, what its last good run read changed.

A story creates, changes and deletes Secrets, and the objects that read them, while requests fail, watches break off,
histories expire, servers restart and controllers die. Each write of a Secret is in a journal, against which each run is
held: why it came, and in the end whether one is missing.
"""
from __future__ import annotations

import logging
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kubectl_runtime import Action, Api, Context, Controller, Patch
from kubectl_runtime.resources import ConfigMap, Secret
from kubectl_runtime.testing import Simulation
from tests.thoroughness import examples

SPACE, OTHER = "default", "kube-system"
SECRETS = ("a", "b", "c")
OBJECTS = ("one", "two", "three")
SEEDS = st.integers(0, 2**32)
WORLD = st.lists(st.tuples(st.sampled_from(["change", "change", "change", "aside", "label", "create", "delete",
                                            "object", "cut", "expire", "restart", "lose", "fail", "fail", "steps",
                                            "steps", "time", "kill"]),
                           st.integers(0, 2), st.integers(1, 40)), min_size=5, max_size=40)
OFTEN = settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL + 1)


State = tuple[str, str, bytes | None, str | None]
"""Uid, version, data.x and the label of a Secret."""


UNANSWERED: Any = object()
"""A read that failed, so that anything is news."""


class Story:
    """A controller whose objects say what they read."""

    def __init__(self, seed: int, *, declared: bool) -> None:
        self.rng = random.Random(seed)
        self.sim = Simulation(seed)
        self.server = self.sim.serve()
        self.declared = declared
        self.admin = self.sim.client(self.server)
        self.client = self.sim.client(self.server)
        self.calm = False
        self.journal: dict[str, list[State | None]] = {name: [None] for name in SECRETS}
        """What each Secret has been, None for absent."""
        self.good: dict[str, dict[Any, Any]] = {}
        self.failed: dict[str, dict[Any, Any]] = {}
        self.before: dict[str, list[dict[Any, Any]]] = {}
        self.problems: list[str] = []
        for name in OBJECTS:
            self.write_object(name)
        for name in SECRETS[:2]:
            self.create(name)
        self.start()

    # The story's side

    def start(self) -> None:
        controller = Controller(Api.namespaced(self.client, ConfigMap, SPACE) if self.declared
                                else Api.all(self.client, ConfigMap), concurrency=3)
        if self.declared:
            controller.reads(Secret)
        self.good, self.failed, self.before = {}, {}, {}
        self.sim.start(controller, self.reconcile)

    def write_object(self, name: str) -> None:
        """What an object reads: names, names with a value, or a selection."""
        reads = [self.rng.choice([f"{one}", f"{one}?", f"{one}!"]) for one in SECRETS if self.rng.random() < 0.5]
        if self.rng.random() < 0.3:
            reads.append("*")
        Api.namespaced(self.admin, ConfigMap, SPACE).apply(
            {"metadata": {"name": name}, "data": {"reads": " ".join(reads)}}, field_manager="story", force=True)

    @property
    def secrets(self) -> Api[Secret]:
        return Api.namespaced(self.admin, Secret, SPACE)

    def note(self, name: str, obj: Secret | None) -> None:
        self.journal[name].append(state_of(obj))

    def create(self, name: str) -> None:
        label = self.rng.choice(["web", "db"])
        self.note(name, self.secrets.create(Secret(name=name, labels={"app": label}, data={"x": b"0", "y": b"0"})))

    def change(self, name: str, patch: dict[str, Any]) -> None:
        self.note(name, self.secrets.patch(name, Patch.merge(patch)))

    def act(self, what: str, which: int, number: int) -> None:
        name, there = SECRETS[which], self.journal[SECRETS[which]][-1] is not None
        if what == "create" and not there:
            self.create(name)
        elif what == "delete" and there:
            self.secrets.delete(name)
            self.note(name, None)
        elif what == "change" and there:
            self.change(name, {"stringData": {"x": str(self.rng.randrange(3))}})
        elif what == "aside" and there:
            self.change(name, {"stringData": {"y": str(number)}})
        elif what == "label" and there:
            self.change(name, {"metadata": {"labels": {"app": self.rng.choice(["web", "db"])}}})
        elif what == "object":
            self.write_object(OBJECTS[which])
        elif what == "cut":
            self.server.drop_connections()
        elif what == "expire":
            self.server.expire_history()
            self.server.drop_connections()
        elif what in ("restart", "lose"):
            self.server.restart(lose_history=what == "lose")
        elif what == "fail":
            self.server.faults.on(verb=self.rng.choice(["get", "list", "watch"]), resource="secrets").first(
                number % 4 + 1).status(self.rng.choice([500, 503, 429]))
        elif what == "kill":
            self.sim.kill()
            self.client = self.sim.client(self.server)
            self.start()
        elif what == "time":
            self.sim.clock.advance(number / 4)
        else:
            self.sim.run(number)

    # The controller's side

    def reconcile(self, obj: ConfigMap, ctx: Context[None]) -> Action:
        self.check_reason(obj.name, ctx.reason)
        # What changes while a run is under way leads to another one, though this one may read it already.
        self.before[obj.name] = [self.good.get(obj.name, {}), dict(self.failed.get(obj.name, {}))]
        seen: dict[Any, Any] = {}
        self.failed.setdefault(obj.name, {})
        try:
            for word in (obj.data or {}).get("reads", "").split():
                if not self.calm and self.rng.random() < 0.1:
                    raise ValueError("planned")
                if word == "*":
                    seen[word] = UNANSWERED
                    found = ctx.read_all(Secret, namespace=obj.namespace, labels={"app": "web"})
                    seen["*"] = {one.name: state_of(one) for one in found}
                    continue
                seen[word] = UNANSWERED
                value = {"?": "data.x", "!": lambda one: one.data.get("x")}.get(word[1:])
                seen[word] = state_of(ctx.read(Secret, word[0], value=value))
            if not self.calm and self.rng.random() < 0.1:
                raise ValueError("planned")
        except BaseException:
            self.failed[obj.name].update(seen)
            raise
        self.good[obj.name], self.failed[obj.name] = seen, {}
        return Action.await_change()

    def check_reason(self, name: str, reason: str) -> None:
        """A run because of what was read has a reason in the journal."""
        if not reason.startswith("secret"):
            return
        for reads in (self.good.get(name, {}), self.failed.get(name, {}), *self.before.get(name, ())):
            if any(self.has_changed(word, seen) for word, seen in reads.items()):
                return
        self.problems.append(f"{name} runs ({reason}), but has read nothing that changed: {self.good.get(name)}")

    def has_changed(self, word: str, seen: Any) -> bool:
        """Whether what was read has been something else since."""
        if seen is UNANSWERED:
            return True
        if word == "*":
            return any(self.differs(state, seen.get(name), by_value=False, selected=True)
                       for name in SECRETS for state in self.since(name, seen.get(name)))
        by_value = word[1:] in ("?", "!")
        return any(self.differs(state, seen, by_value=by_value) for state in self.since(word[0], seen))

    def since(self, name: str, seen: State | None) -> list[State | None]:
        """The states after the one that was seen; of what was absent, or not selected, after the last deletion."""
        journal = self.journal[name]
        if seen is not None:
            return journal[journal.index(seen) + 1:]
        return journal

    @staticmethod
    def differs(state: State | None, seen: State | None, *, by_value: bool, selected: bool = False) -> bool:
        if selected and state is not None and state[3] != "web":
            state = None
        if state is None or seen is None:
            return state is not seen
        return state[::2][:2] != seen[::2][:2] if by_value else state != seen

    def come_to_rest(self) -> None:
        self.server.faults.clear()
        self.calm = True
        self.sim.settle(4000)

    def missed(self) -> list[str]:
        """Reads of last good runs that are not how things are."""
        found = []
        for name, reads in self.good.items():
            for word, seen in reads.items():
                if word == "*":
                    last = {one: self.journal[one][-1] for one in SECRETS}
                    now = {one: state for one, state in last.items() if state is not None and state[3] == "web"}
                    if now != seen:
                        found.append(f"{name} {word}: saw {seen}, is {now}")
                elif self.differs(self.journal[word[0]][-1], seen, by_value=word[1:] in ("?", "!")):
                    found.append(f"{name} {word}: saw {seen}, is {self.journal[word[0]][-1]}")
        return found


def state_of(obj: Secret | None) -> State | None:
    return None if obj is None else (obj.uid, obj.resource_version, (obj.data or {}).get("x"), obj.labels.get("app"))


@OFTEN
@given(SEEDS, WORLD, st.booleans())
def test_an_object_runs_again_if_and_only_if_what_its_last_good_run_read_changed(
        seed: int, world: list[tuple[str, int, int]], declared: bool) -> None:
    story = Story(seed, declared=declared)
    for what, which, number in world:
        story.act(what, which, number)
        story.sim.run(3)
    story.come_to_rest()
    assert not story.problems
    assert set(story.good) == set(OBJECTS)
    assert not story.missed()
    story.sim.close()
