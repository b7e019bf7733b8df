"""What a page is told of controllers: each key's state, what failed and how, and nothing of objects but their names."""
from __future__ import annotations

import json
import logging
import threading
from importlib.resources import files
from typing import Any

import msgspec
import pytest

from kubectl_runtime.core.base.errors import ApiError, Status
from kubectl_runtime.core.meta.gvk import ObjectRef
from kubectl_runtime.runtime.controller.controller import Controller
from kubectl_runtime.runtime.observe.debug import MOST_BYTES, DebugState, ManagerState, json_schema
from kubectl_runtime.runtime.reconcile.reconciler import Action, Context, TerminalError
from tests.runtime.observe.debug_rig import DebugRig, Seen
from tests.runtime.scripted_cluster import Child, Parent

SECRET = "the password is tiger"


def by_name(obj: Parent, ctx: Context[Any]) -> Action:
    """Does what the object's name says."""
    kind = obj.name.partition("-")[0]
    if kind == "broken":
        raise ValueError(SECRET)
    if kind == "conflict":
        raise ApiError(Status(code=503, reason="ServiceUnavailable", message=SECRET), "get a thing")
    if kind == "wrong":
        raise TerminalError(SECRET)
    return Action.requeue(300) if kind == "later" else Action.await_change()


def rig_of(*names: str) -> DebugRig:
    rig = DebugRig()
    for name in names:
        rig.cluster.put(Parent, name)
    rig.start(by_name)
    rig.sim.settle(1)
    return rig


def validated(body: bytes) -> None:
    """By the schema that is shipped."""
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema comes with the extra 'test'")
    schema = json.loads(files("kubectl_runtime.runtime.observe").joinpath("debug_state.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(strict(schema)).validate(json.loads(body))


def strict(schema: Any) -> Any:
    """The schema, by which a member that it does not know is wrong."""
    closed = {name: {**definition, "additionalProperties": False} for name, definition in schema["$defs"].items()}
    return {**schema, "$defs": closed}


def test_the_schema_that_is_shipped_is_that_of_what_is_told() -> None:
    shipped = files("kubectl_runtime.runtime.observe").joinpath("debug_state.schema.json").read_text()
    made = json_schema()
    assert _in_order(json.loads(shipped)) == _in_order(made), "write it again from json_schema()"
    assert shipped == json.dumps(json.loads(shipped), indent=1) + "\n"


def _in_order(schema: Any) -> Any:
    """With the alternatives of each `anyOf` in one order: msgspec 0.20 has another than 0.21."""
    if isinstance(schema, dict):
        return {key: sorted(map(_in_order, value), key=json.dumps) if key == "anyOf" else _in_order(value)
                for key, value in schema.items()}
    return [_in_order(value) for value in schema] if isinstance(schema, list) else schema


def test_what_is_told_is_as_the_schema_says() -> None:
    rig = rig_of("well", "later-a", "broken-a", "conflict-a", "wrong-a")
    rig.managed = ManagerState(phase="leading", leader=True, lease="system/operator", shards=[1, 2])
    validated(rig.body())
    validated(rig.body(details=True))
    validated(DebugRig().body())


def test_a_member_that_the_schema_does_not_know_is_found() -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema comes with the extra 'test'")
    state = json.loads(rig_of("well").body())
    state["controllers"][0]["odd"] = 1
    with pytest.raises(jsonschema.ValidationError):
        validated(json.dumps(state).encode())


def test_each_key_is_told_with_its_state_its_age_and_its_error() -> None:
    rig = rig_of("well", "later-a", "broken-a", "conflict-a", "wrong-a")
    state = rig.state()
    (controller,) = state.controllers
    counts = controller.counts
    assert (counts.running, counts.due, counts.delayed, counts.backing_off, counts.failing) == (0, 0, 1, 2, 3)
    assert (controller.runs, controller.failed) == (5, 3)
    (later,) = controller.delayed
    assert (later.name, later.state, later.reason) == ("default/later-a", "delayed", "asked to run again after 300 s")
    assert later.due_in == pytest.approx(299, abs=1)
    failing = {row.name: row for row in controller.failing}
    assert {name: (row.state, row.error, row.failures) for name, row in failing.items()} == {
        "default/broken-a": ("backing_off", "ValueError", 1),
        "default/conflict-a": ("backing_off", "ApiError 503", 1),
        "default/wrong-a": ("waits_for_change", "TerminalError", 1)}
    assert failing["default/broken-a"].due_in == pytest.approx(29, abs=1)
    assert failing["default/broken-a"].failing_for == pytest.approx(1, abs=1)
    assert {row.name for row in controller.recent} == {f"default/{name}" for name in (
        "well", "later-a", "broken-a", "conflict-a", "wrong-a")}
    assert {row.result for row in controller.recent} == {"success", "requeue_after", "error", "terminal_error"}


def test_texts_of_errors_are_told_only_where_details_are_switched_on() -> None:
    rig = rig_of("broken-a", "conflict-a", "wrong-a")
    assert SECRET not in rig.body().decode()
    texts = {row.name: row.error for row in rig.state(details=True).controllers[0].failing}
    assert all(SECRET in text for text in texts.values())
    assert (rig.state().details, rig.state(details=True).details) == (False, True)


@pytest.mark.parametrize("text", ["\ud800", "\x00\x1b[2J", "x" * 10_000, "\u2028\u202e"],
                         ids=["half a letter", "control characters", "long", "separators"])
def test_whatever_the_text_of_an_error_is_made_of_it_is_told_in_short(text: str,
                                                                      caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "kubectl_runtime")  # a report of pytest-xdist cannot hold half a letter
    rig = DebugRig()
    rig.cluster.put(Parent, "a")

    def fails(obj: Parent, ctx: Context[Any]) -> Action:
        raise ValueError(text)

    rig.start(fails)
    rig.sim.settle(1)
    (row,) = rig.state(details=True).controllers[0].failing
    assert row.error.startswith("ValueError: ")
    assert len(row.error) <= 201


def test_a_run_in_progress_and_those_behind_it_are_told() -> None:
    rig = DebugRig()
    for name in ("a", "b", "c"):
        rig.cluster.put(Parent, name)
    inside: list[DebugState] = []

    def look(obj: Parent, ctx: Context[Any]) -> Action:
        rig.sim.clock.advance(2)
        inside.append(rig.state())
        return Action.await_change()

    rig.start(look, concurrency=1)
    rig.sim.settle(1)
    counts = inside[0].controllers[0].counts
    assert (counts.running, counts.due) == (1, 2)
    (running,) = inside[0].controllers[0].running
    assert (running.state, running.age, running.attempt) == ("running", pytest.approx(2, abs=0.1), 1)
    due = inside[0].controllers[0].due
    assert [row.state for row in due] == ["due", "due"]
    assert all(row.age >= 2 and row.bulk for row in due)
    assert {running.name, *(row.name for row in due)} == {"default/a", "default/b", "default/c"}


def test_a_watch_is_told_with_what_it_holds() -> None:
    rig = DebugRig()
    rig.start(by_name, name="one")
    rig.sim.settle(1)
    (watch,) = rig.state().watches
    assert (watch.name, watch.phase, watch.complete, watch.objects) == ("parents.test.example", "watching", True, 0)
    rig.cluster.put(Parent, "a")
    rig.sim.settle(1)
    (watch,) = rig.state().watches
    assert (watch.objects, watch.error) == (1, "")
    assert watch.bytes > 10
    assert watch.last_event is not None


def test_a_watch_that_fails_is_told_before_the_others_with_its_error_and_keeps_its_controller_unready() -> None:
    rig = DebugRig()
    rig.cluster.failing.add(Child.api_resource)
    controller = Controller(rig.cluster.api(Parent), name="one").owns(rig.cluster.api(Child))
    rig.seen.append(Seen("one", rig.sim.start(controller, by_name).assembly))
    rig.sim.settle(1)
    state = rig.state()
    failing, well = state.watches
    assert (failing.name, failing.phase, failing.complete) == ("children.test.example", "waiting", False)
    assert "children.test.example cannot be reached" in failing.error
    assert failing.failures >= 1
    assert (well.name, well.error) == ("parents.test.example", "")
    assert state.controllers[0].not_ready.startswith("it waits for children.test.example")


def test_two_controllers_on_one_watch_share_its_row() -> None:
    rig = DebugRig()
    started = rig.start(by_name, name="one")
    rig.sim.settle(1)
    rig.seen.append(rig.seen[0])
    (watch,) = rig.state().watches
    assert watch.controllers == ["one", "one"]
    assert started.is_ready


def test_a_loop_is_told_with_what_differed() -> None:
    rig = DebugRig()
    rig.cluster.put(Parent, "a")

    def again(obj: Parent, ctx: Context[Any]) -> Action:
        return Action.requeue(0)

    rig.start(again)
    rig.sim.settle(5)
    (loop,) = rig.state().controllers[0].loops
    assert loop.name == "default/a"
    assert "it asks to run again at once" in loop.what


def test_20_000_keys_are_told_in_numbers_and_a_few_names_within_the_limit() -> None:
    rig = DebugRig()
    started = rig.start(by_name, concurrency=10)
    rig.sim.settle(1)
    resource = started.assembly.plan.resource
    for number in range(20_000):
        started.assembly.inbox.trigger(ObjectRef(resource, f"{'x' * 40}-{number}", "a-namespace-with-a-long-name"))
    body = rig.body()
    page = files("kubectl_runtime.runtime.observe").joinpath("debug_page.html").read_bytes()
    assert len(body) + len(page) < 200_000
    counts = rig.state().controllers[0].counts
    assert counts.due == 20_000
    assert len(rig.state().controllers[0].due) == 30


def test_many_controllers_with_the_longest_names_show_fewer_rows_and_stay_within_the_limit() -> None:
    rig = DebugRig()
    for number in range(60):
        rig.start(by_name, name=f"controller-{number}", concurrency=1)
    rig.sim.settle(1)
    for seen in rig.seen:
        resource = seen.assembly.plan.resource
        refs = [ObjectRef(resource, f"{number:03}{'x' * 250}", "n" * 63) for number in range(40)]
        for ref in refs:
            seen.assembly.inbox.trigger(ref)
    body = rig.body()
    assert len(body) <= MOST_BYTES
    state = msgspec.json.decode(body, type=DebugState)
    assert (len(state.controllers), state.controllers_left_out) == (50, 10)
    assert all(one.counts.due == 40 for one in state.controllers)


def test_a_look_takes_no_more_turns_of_the_lock_than_one_and_no_worker_waits_for_its_encoding() -> None:
    rig = rig_of("a", "b")
    runner = rig.seen[0].assembly.runner
    taken = 0

    class Counted:
        def __init__(self, lock: Any) -> None:
            self.lock = lock

        def __enter__(self) -> None:
            nonlocal taken
            taken += 1
            self.lock.acquire()

        def __exit__(self, *_: object) -> None:
            self.lock.release()

    assert isinstance(runner._lock, type(threading.Lock()))
    runner._lock = Counted(runner._lock)  # type: ignore[assignment]
    rig.body()
    assert taken == 1


def test_what_a_hostile_name_or_reason_holds_arrives_as_json() -> None:
    rig = DebugRig()
    started = rig.start(by_name, concurrency=1)
    resource = started.assembly.plan.resource
    for name in ("</script><script>alert(1)</script>", "a\x1b[31m", "\u2028", "é" * 300):
        started.assembly.inbox.trigger(ObjectRef(resource, name, "default"))
    names = {row.name for row in rig.state().controllers[0].due}
    assert "default/</script><script>alert(1)</script>" in names
