"""Controllers that keep themselves or each other busy are named, others are not."""
from __future__ import annotations

import gc
import json
import logging
from types import FunctionType, ModuleType
from typing import Any

import pytest

from kubectl_runtime.core.codec.jsonbytes import decode_object
from kubectl_runtime.core.codec.views import Record
from kubectl_runtime.runtime.controller.controller import Controller
from kubectl_runtime.runtime.reconcile.loop_detector import (
    MOST_BYTES,
    LoopDetector,
    Sketch,
    at_odds_with_itself,
    differences,
    taken,
)
from kubectl_runtime.runtime.reconcile.reconciler import Action, Context
from kubectl_runtime.testing.simulation import Simulation
from tests.runtime.scripted_cluster import Child, Cluster, Parent


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records
            if record.levelno == logging.WARNING and "what differed" in record.getMessage()]


class World:
    """A controller of one Parent on simulated time."""

    def __init__(self) -> None:
        self.simulation = Simulation(9)
        self.cluster = Cluster(self.simulation.clock)
        self.cluster.put(Parent, "a")
        self.runs = 0

    def start(self, reconcile: Any, name: str = "x", *, owns: bool = False) -> None:
        def counted(obj: Parent, ctx: Context[Any]) -> Action:
            self.runs += 1
            return reconcile(obj, ctx)

        controller = Controller(self.cluster.api(Parent), name=name)
        if owns:
            controller.owns(self.cluster.api(Child))
        self.started = self.simulation.start(controller, counted)

    def write(self, kind: Any, name: str, value: int, *, managers: dict[str, str] | None = None,
              finalizers: list[str] | None = None, annotations: dict[str, str] | None = None, **more: Any) -> None:
        """As a write of a controller here; `managers`: who owns which field of the spec from now on."""
        fields = [{"manager": manager, "operation": "Apply", "fieldsV1": {"f:spec": {f"f:{field}": {}}}}
                  for field, manager in (managers or {}).items()]
        metadata = {"managedFields": fields, "finalizers": finalizers or [], "annotations": annotations or {}}
        self.cluster.put(kind, name, value, verb="apply", metadata=metadata,
                         sent=json.dumps({"spec": {"value": value}}).encode(), **more)


def test_a_reconciler_that_writes_its_own_status_each_time_is_named_once_with_the_path(
        caplog: pytest.LogCaptureFixture) -> None:
    world = World()

    def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
        if world.runs < 60:
            world.write(Parent, "a", world.runs)
        return Action.await_change()

    world.start(reconcile)
    world.simulation.settle(30)
    assert world.runs >= 60
    line, = warnings(caplog)
    assert "Parent default/a runs in a loop: 50 runs within" in line
    assert line.endswith("what differed between the last two versions: spec.value")
    loop, = world.started.assembly.loops.found()
    assert (loop.ref.name, loop.paths) == ("a", ("spec.value",))
    assert loop.what in line


def test_a_reconciler_that_asks_for_0_without_end_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.start(lambda obj, ctx: Action.requeue(0))
    world.simulation.settle(30)
    line, = warnings(caplog)
    assert "asks to run again at once" in line


def test_two_managers_that_take_a_field_from_each_other_are_named_with_the_path(
        caplog: pytest.LogCaptureFixture) -> None:
    world = World()

    def forcing(name: str, value: int) -> Any:
        def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
            if world.runs < 100 and world.cluster.value(Child, "c") != value:
                world.write(Child, "c", value, managers={"value": name}, owner="a")
            return Action.await_change()

        return reconcile

    world.start(forcing("one", 1), "one", owns=True)
    world.start(forcing("two", 2), "two", owns=True)
    world.simulation.settle(30)
    lines = [line for line in warnings(caplog) if "competes with" in line]
    assert 1 <= len(lines) <= 2, "each of the two controllers may say so, once"
    assert "competes with field manager" in lines[0]
    assert "Child default/c" in lines[0]
    assert "spec.value" in lines[0]


@pytest.mark.parametrize(("second", "said"), [("me", True), ("me-too", False)])
def test_two_applies_of_a_run_under_one_manager_are_named_as_the_cause(
        second: str, said: bool, caplog: pytest.LogCaptureFixture) -> None:
    world = World()

    def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
        if world.runs < 60:
            world.write(Parent, "a", 2 * world.runs, managers={"phase": "me"})
            world.write(Parent, "a", 2 * world.runs + 1, managers={"conditions": second})
        return Action.await_change()

    world.start(reconcile)
    world.simulation.settle(30)
    line, = warnings(caplog)
    assert "runs in a loop" in line
    assert ("; two calls under the field manager 'me' take each other's fields: give each call its own "
            "field manager; what differed" in line) is said


def test_a_controller_that_comes_to_rest_is_not_named(caplog: pytest.LogCaptureFixture) -> None:
    world = World()

    def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
        if obj.spec["value"] < 5:  # five writes of its own, then it is done
            world.write(Parent, "a", obj.spec["value"] + 1)
        return Action.requeue(5)

    world.start(reconcile)
    for _ in range(20):
        world.simulation.settle(3)
    assert warnings(caplog) == []


def test_changes_by_others_between_the_own_ones_break_the_row(caplog: pytest.LogCaptureFixture) -> None:
    world = World()

    def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
        world.write(Child, "c", world.runs, owner="a")
        return Action.await_change()

    world.start(reconcile)  # does not watch what it writes
    for value in range(40):
        world.cluster.put(Parent, "a", value)
        world.simulation.settle(0.5)
    assert world.runs == 40
    assert warnings(caplog) == []


def test_a_write_every_ten_seconds_is_no_loop(caplog: pytest.LogCaptureFixture) -> None:
    world = World()

    def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
        if ctx.reason != "object updated":
            world.write(Parent, "a", world.runs)
        return Action.requeue(10)

    world.start(reconcile)
    world.simulation.settle(600)
    assert world.runs > 60
    assert warnings(caplog) == []


def record(spec: Any, *entries: dict[str, Any], version: str = "1", name: str = "a") -> Record:
    metadata = {"name": name, "namespace": "default", "uid": "u", "resourceVersion": version,
                "managedFields": list(entries)}
    return decode_object(json.dumps({"metadata": metadata, "spec": spec}).encode(), Parent.api_resource)


def entry(manager: str, fields: dict[str, Any]) -> dict[str, Any]:
    return {"manager": manager, "operation": "Apply", "fieldsV1": fields}


@pytest.mark.parametrize("steps", [15, 30])
@pytest.mark.parametrize("what", ["children", "phases", "polls"])
def test_what_is_made_step_by_step_is_no_loop(what: str, steps: int, caplog: pytest.LogCaptureFixture) -> None:
    world = World()

    def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
        if what == "children" and (made := len(world.cluster.names(Child))) < steps:
            world.write(Child, f"c{made}", made, owner="a")
        elif what == "phases" and world.runs <= steps:
            world.write(Parent, "a", world.runs)
        elif what == "polls" and world.runs <= steps:
            return Action.requeue(0)
        return Action.await_change()

    world.start(reconcile, owns=True)
    world.simulation.settle(30)
    assert world.runs > steps
    assert warnings(caplog) == []


def test_a_content_that_comes_back_is_a_loop_after_a_few_runs(caplog: pytest.LogCaptureFixture) -> None:
    world = World()

    def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
        if world.runs < 15:
            world.write(Parent, "a", world.runs % 2)
        return Action.await_change()

    world.start(reconcile)
    world.simulation.settle(30)
    line, = warnings(caplog)
    assert "runs in a loop" in line
    assert line.endswith("spec.value")


LASTS = 20.0
"""Seconds for which the loops below go on, delayed: 200 runs at 10 a second, after what it took to notice them."""


@pytest.mark.parametrize("how", ["trigger", "own write", "requeue", "flip"])
def test_a_loop_is_noticed_and_delayed(how: str, caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    clock = world.simulation.clock

    def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
        if clock.monotonic() < LASTS and world.runs < 2000:
            if how == "trigger":
                world.started.trigger(obj)
            elif how == "requeue":
                return Action.requeue(0)
            else:
                world.write(Parent, "a", world.runs % 2 if how == "flip" else world.runs)
        return Action.await_change()

    world.start(reconcile)
    world.simulation.settle(LASTS + 5)
    assert len(warnings(caplog)) == 1
    assert world.runs < 10 * LASTS + 60, "delayed to 10 runs a second"


@pytest.mark.parametrize("objects", ["their own object", "a child"])
def test_two_controllers_that_answer_each_other_on_different_fields_are_noticed_and_delayed(
        objects: str, caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    clock = world.simulation.clock

    def answering(field: str) -> Any:
        def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
            if clock.monotonic() < LASTS and world.runs < 4000:
                kind, name = (Parent, "a") if objects == "their own object" else (Child, "c")
                more = {} if kind is Parent else {"owner": "a"}
                world.write(kind, name, world.runs, managers={field: field}, **more)
            return Action.await_change()

        return reconcile

    world.start(answering("one"), "one", owns=True)
    world.start(answering("two"), "two", owns=True)
    world.simulation.settle(LASTS + 5)
    assert warnings(caplog)
    assert world.runs < 2 * 10 * LASTS + 400


def test_a_key_that_is_no_longer_in_a_loop_runs_at_once_again() -> None:
    world = World()

    def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
        if world.runs < 60:
            world.write(Parent, "a", world.runs)
        return Action.await_change()

    world.start(reconcile)
    world.simulation.settle(30)
    runs = world.runs
    for number in range(5):
        world.cluster.put(Parent, "a", 1000 + number)
        world.simulation.settle()
        assert world.runs == runs + number + 1


def kept(loops: LoopDetector) -> str:
    """All texts that are reached from what the detector keeps of the keys."""
    texts: list[str] = []
    seen: set[int] = set()
    waiting: list[Any] = [loops.trails]
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, (type, ModuleType, FunctionType)):
            continue
        seen.add(id(one))
        if isinstance(one, (str, bytes)):
            texts.append(str(one))
        fields = getattr(one, "__struct_fields__", ())  # gc does not look into every Struct
        waiting += [*gc.get_referents(one), *(getattr(one, name) for name in fields)]
    return "\n".join(texts)


@pytest.mark.parametrize("size", [10, 100_000])
def test_nothing_of_what_was_written_stays_but_hashes_and_nothing_after_the_deletion(size: int) -> None:
    world = World()
    names = [f"p{number}" for number in range(50)]

    def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
        if obj.spec["value"] < 5:
            world.write(Parent, obj.name, obj.spec["value"] + 1, finalizers=["x" * size])
        return Action.await_change()

    world.cluster.delete(Parent, "a")
    world.start(reconcile)
    for name in names:
        world.cluster.put(Parent, name)
    world.simulation.settle(30)
    loops = world.started.assembly.loops
    assert "xxxx" not in kept(loops)
    assert 0 < loops._bytes == sum(len(trail.last) for trail in loops.trails.values() if trail.last) < 50 * 1000
    for name in names:
        world.cluster.delete(Parent, name)
    world.simulation.settle(30)
    assert (len(loops.trails), loops._bytes) == (0, 0)


def test_what_is_kept_of_large_objects_has_a_limit_in_bytes() -> None:
    world = World()
    many = {f"annotation-{number:05}": "v" for number in range(20_000)}

    def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
        if obj.spec["value"] < 2:
            world.write(Parent, obj.name, obj.spec["value"] + 1, annotations=many)
        return Action.await_change()

    world.start(reconcile)
    for number in range(12):
        world.cluster.put(Parent, f"p{number}")
    world.simulation.settle(30)
    loops = world.started.assembly.loops
    assert 0 < loops._bytes <= MOST_BYTES
    assert len(loops.trails) < 13


def test_differences_are_paths_without_values_and_without_what_the_server_counts() -> None:
    before = record({"a": 1, "list": [{"x": 1}, {"x": 2}], "gone": 0, "same": {"y": [1]}}, version="1")
    after = record({"a": True, "list": [{"x": 1}, {"x": 3}], "new": 0, "same": {"y": [1]}}, version="2")
    found = differences(Sketch.of(before), Sketch.of(after))
    assert sorted(found) == ["spec.a", "spec.gone", "spec.list[1].x", "spec.new"]
    assert differences(None, Sketch.of(after)) == []
    assert differences(Sketch.of(record({}, name="b")), Sketch.of(after)) == []
    assert len(differences(Sketch.of(record({})), Sketch.of(record({f"k{number}": 1 for number in range(100)})))) == 10


def test_a_field_is_taken_when_its_only_manager_lost_it_to_another() -> None:
    list_item = 'k:{"name":"x"}'
    before = record({}, entry("one", {"f:spec": {".": {}, "f:a": {}, "f:b": {}, "f:l": {list_item: {"f:v": {}}}}}),
                    entry("three", {"f:spec": {"f:b": {}}}))
    after = record({}, entry("two", {"f:spec": {"f:a": {}, "f:b": {}, "f:l": {list_item: {"f:v": {}}}}}))
    assert taken(before, after) == [("spec.a", "one"), ('spec.l[{"name":"x"}].v', "one")]
    shared = record({}, entry("one", {"f:spec": {"f:a": {}}}), entry("two", {"f:spec": {"f:a": {}}}))
    assert taken(record({}, entry("one", {"f:spec": {"f:a": {}}})), shared) == []
    assert taken(before, record({})) == []


def test_a_manager_is_at_odds_with_itself_when_each_apply_drops_what_the_one_before_set() -> None:
    one = record({}, entry("me", {"f:status": {"f:a": {}}}))
    other = record({}, entry("me", {"f:status": {"f:b": {}}}))
    both = record({}, entry("me", {"f:status": {"f:a": {}, "f:b": {}}}))
    updated = record({}, {**entry("me", {"f:status": {"f:b": {}}}), "operation": "Update"})
    one, other, both, updated = map(Sketch.of, (one, other, both, updated))
    assert at_odds_with_itself(one, other, one) == "me"
    assert at_odds_with_itself(both, other, one) == "me"
    for versions in ((None, other, one), (one, one, one), (one, both, one), (other, other, one), (one, updated, one),
                     (Sketch.of(record({}, name="b")), other, one)):
        assert at_odds_with_itself(*versions) is None


def test_five_controllers_in_an_hour_of_faults_are_never_named(caplog: pytest.LogCaptureFixture) -> None:
    simulation = Simulation(11)
    cluster, rng = Cluster(simulation.clock), simulation.random
    names = [f"p-{number}" for number in range(5)]

    def reconciler(suffix: str, every: int | None) -> Any:
        def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
            child, value = f"{obj.name}-{suffix}", obj.spec["value"]
            if cluster.value(Child, child) != value:
                sent = json.dumps({"spec": {"value": value}}).encode()
                cluster.put(Child, child, value, owner=obj.name, verb="apply", sent=sent)
            if rng.random() < 0.03:
                raise ValueError("now and then")
            return Action.await_change() if every is None else Action.requeue(every)

        return reconcile

    for number, every in enumerate((None, 60, 120, 300, None)):
        controller = Controller(cluster.api(Parent), name=f"c{number}").owns(cluster.api(Child))
        simulation.start(controller, reconciler(f"c{number}", every))

    faults = [
        lambda: cluster.cut(Parent, Child), lambda: cluster.compact(Parent, Child),
        lambda: cluster.failing.add(Child.api_resource), cluster.failing.clear,
        lambda: cluster.put(Parent, rng.choice(names), rng.randrange(100)),
        lambda: cluster.put(Parent, rng.choice(names), rng.randrange(100)),
        lambda: cluster.delete(Parent, rng.choice(names)),
        lambda: cluster.delete(Child, rng.choice(sorted(cluster.names(Child)) or ["none"]))]
    for _ in range(360):
        rng.choice(faults)()
        simulation.settle(10)
        for history in cluster.history.values():
            del history[:-50]
    assert warnings(caplog) == []
