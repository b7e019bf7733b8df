"""`Controller(ready=...)`, `ctx.report`, and that what the library writes by itself starts no run; in simulations."""
from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import msgspec
import pytest

from kubectl_runtime import (
    Action,
    Api,
    Condition,
    Context,
    Controller,
    CustomResource,
    FinalizingReconciler,
    MapKeys,
    Patch,
    TerminalError,
)
from kubectl_runtime.core.codec.views import strip_managed_fields
from kubectl_runtime.core.scope import current_run
from kubectl_runtime.objects import PartialView
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.runtime.queue.runs import KeyBackoff
from kubectl_runtime.testing import Simulation, context_for, perturb


class SiteStatus(msgspec.Struct, rename="camel", omit_defaults=True):
    phase: str | None = None
    conditions: Annotated[list[Condition] | None, MapKeys("type")] = None


class Site(CustomResource, group="ready.example.com", version="v1", kind="Site"):
    spec: dict[str, Any]
    status: SiteStatus | None = None


Answer = Callable[[Site, Context[None]], Action]


class World:
    """A controller of Sites; what ran, and what was written."""

    def __init__(self, seed: int = 0) -> None:
        self.sim = Simulation(seed)
        self.server = self.sim.serve()
        self.server.load([Site.crd()])
        self.client = self.sim.client(self.server)
        self.sites = Api.namespaced(self.client, Site, "default")
        self.runs: Counter[str] = Counter()

    def start(self, answer: Answer, *, owns: bool = False, **options: Any) -> Any:
        def reconcile(obj: Site, ctx: Context[None]) -> Action:
            self.runs[obj.name] += 1
            return answer(obj, ctx)

        controller = Controller(Api.all(self.client, Site), **{"ready": "Ready", "name": "sites", **options})
        if owns:
            controller.owns(Api.all(self.client, ConfigMap))
        return self.sim.start(controller, reconcile)

    def site(self, name: str = "a") -> Site:
        return self.sites.create(Site(name=name, spec={"size": 1}))

    def ready(self, name: str = "a") -> tuple[str, str, str, int | None] | None:
        return self.condition(name, "Ready")

    def condition(self, name: str, kind: str) -> tuple[str, str, str, int | None] | None:
        found = self.sites.get(name).status
        for one in (found and found.conditions) or ():
            if one.type == kind:
                return one.status, one.reason, one.message, one.observed_generation
        return None

    def writes(self) -> int:
        return len([one for one in self.server.requests.select("patch") if "/sites/" in one.path])


@pytest.fixture(params=[0, 1, 2])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    made = World(request.param)
    with made.sim:
        yield made


class _Odd(Exception):
    """Its name begins as no reason does."""


def fail(error: BaseException) -> Answer:
    def answer(obj: Site, ctx: Context[None]) -> Action:
        raise error
    return answer


def wait_for_children(obj: Site, ctx: Context[None]) -> Action:
    run = current_run()
    assert run is not None
    run.waits_for("Deployment web", "Job seed")
    run.waits_for("Job seed")
    return Action.await_change()


def wait_for_both(obj: Site, ctx: Context[None]) -> Action:
    wait_for_children(obj, ctx)
    return Action.waiting("DatabaseStarting", "a backup is restored", after=60)


ENDS: dict[str, tuple[Answer, tuple[str, str, str]]] = {
    "await": (lambda obj, ctx: Action.await_change(), ("True", "Reconciled", "")),
    "requeue": (lambda obj, ctx: Action.requeue(300), ("True", "Reconciled", "")),
    "waiting": (lambda obj, ctx: Action.waiting("Starting", "soon"), ("Unknown", "Starting", "soon")),
    "children": (wait_for_children, ("Unknown", "ChildrenNotReady", "waiting for Deployment web, Job seed")),
    "both": (wait_for_both, ("Unknown", "DatabaseStarting", "a backup is restored")),
    "error": (fail(ValueError("no space left\non the disk")), ("False", "ValueError", "no space left\non the disk")),
    "empty": (fail(KeyError()), ("False", "KeyError", "")),
    "odd": (fail(_Odd("x")), ("False", "Odd", "x")),
    "exit": (fail(SystemExit(3)), ("False", "SystemExit", "3")),
    "terminal": (fail(TerminalError("no such color")), ("False", "TerminalError", "no such color")),
    "long": (fail(ValueError("x" * 40000)), ("False", "ValueError", "x" * 32768)),
    "wrong": (lambda obj, ctx: None, ("False", "TypeError", "")),  # type: ignore[arg-type, return-value]
}


@pytest.mark.parametrize("how", ENDS)
def test_the_condition_tells_how_the_run_ended(world: World, how: str) -> None:
    answer, (status, reason, message) = ENDS[how]
    world.site()
    world.start(answer)
    world.sim.settle(0.001)
    found = world.ready()
    assert found is not None
    assert (found[:2], found[3]) == ((status, reason), 1)
    assert found[2] == message or how == "wrong"


def test_it_follows_each_run_that_changes_it_and_is_written_once(world: World) -> None:
    answers: dict[str, Any] = {"now": Action.await_change}
    world.site()
    running = world.start(lambda obj, ctx: answers["now"]())
    world.sim.settle(1)
    assert (world.ready(), world.writes(), world.runs["a"]) == (("True", "Reconciled", "", 1), 1, 1)
    for _ in range(3):
        running.trigger_all()
        world.sim.settle(1)
    assert (world.writes(), world.runs["a"]) == (1, 4)
    for words in ("one", "one", "two"):
        answers["now"] = lambda words=words: Action.waiting("Starting", words)
        running.trigger_all()
        world.sim.settle(1)
    assert (world.ready(), world.writes(), world.runs["a"]) == (("Unknown", "Starting", "two", 1), 3, 7)
    answers["now"] = Action.await_change
    world.sites.patch("a", Patch.merge({"spec": {"size": 2}}))
    world.sim.settle(1)
    assert (world.ready(), world.writes(), world.runs["a"]) == (("True", "Reconciled", "", 2), 5, 8)  # one is ours


def test_a_run_that_fails_again_and_again_writes_when_something_changed(world: World) -> None:
    world.site()
    world.start(fail(ValueError("no")), backoff=KeyBackoff(initial=1, maximum=1, jitter=0))
    world.sim.settle(10.5)
    assert (world.writes(), world.runs["a"]) == (1, 11)


@pytest.mark.parametrize("error", [TerminalError("no"), ValueError("no")])
def test_the_condition_of_a_failure_brings_no_run_forward(world: World, error: Exception) -> None:
    world.site()
    world.start(fail(error), backoff=KeyBackoff(initial=100, maximum=100, jitter=0))
    world.sim.settle(50)
    assert (world.writes(), world.runs["a"]) == (1, 1)
    world.sites.patch("a", Patch.merge({"spec": {"size": 2}}))
    world.sim.settle(1)
    assert world.runs["a"] == 2
    assert world.ready() == ("False", type(error).__name__, "no", 2)


def test_a_run_that_raises_or_says_nothing_loses_nothing_of_the_last_good_one(world: World) -> None:
    world.site()
    world.sites.apply_status({"metadata": {"name": "a"}, "status": {"conditions": [
        {"type": "Theirs", "status": "True", "reason": "Told", "message": "",
         "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}, field_manager="other")
    todo: list[Any] = []

    def answer(obj: Site, ctx: Context[None]) -> Action:
        return todo[0](obj, ctx) if todo else Action.await_change()

    def good(obj: Site, ctx: Context[None]) -> Action:
        ctx.report(obj, Condition(type="Synced", status="True", reason="Done"),
                   Condition(type="Backed", status="False", reason="Never"), phase="Running")
        return Action.await_change()

    running = world.start(answer)
    for step in (good, fail(ValueError("broken")), lambda obj, ctx: Action.await_change(), wait_for_children, good,
                 fail(ValueError("again"))):
        todo[:] = [step]
        running.trigger_all()
        world.sim.settle(0.001)
        assert world.condition("a", "Synced") == ("True", "Done", "", None)
        assert world.condition("a", "Backed") == ("False", "Never", "", None)
        assert world.condition("a", "Theirs") == ("True", "Told", "", None)
        found = world.sites.get("a")
        assert found.status is not None
        assert found.status.phase == "Running"
        assert found["metadata"]["managedFields"][0]["manager"] == "other"
    assert world.ready() == ("False", "ValueError", "again", 1)


def test_what_a_reconciler_reports_leads_to_a_run_as_ever(world: World) -> None:
    phases = {None: "One", "One": "Two", "Two": "Three", "Three": "Three"}

    def answer(obj: Site, ctx: Context[None]) -> Action:
        ctx.report(obj, phase=phases[obj.status and obj.status.phase])
        return Action.await_change()

    world.site()
    world.start(answer)
    world.sim.settle(1)
    found = world.sites.get("a").status
    assert found is not None
    assert found.phase == "Three"
    assert world.runs["a"] == 4
    assert world.ready() == ("True", "Reconciled", "", 1)


@pytest.mark.parametrize("ready", [None, "Ready"])
def test_fifty_new_objects_with_a_finalizer_are_fifty_runs(world: World, ready: str | None) -> None:
    applied: Counter[str] = Counter()

    class Sites(FinalizingReconciler[Site]):
        finalizer_name = "ready.example.com/cleanup"

        def apply(self, obj: Site, ctx: Context[Any]) -> Action:
            applied[obj.name] += 1
            return Action.await_change()

        def cleanup(self, obj: Site, ctx: Context[Any]) -> Action:
            return Action.await_change()

    reconciler = Sites()
    running = world.start(reconciler.reconcile, ready=ready)
    for number in range(50):
        world.site(f"s{number}")
    world.sim.settle(1)
    assert applied == {f"s{number}": 1 for number in range(50)}
    assert world.writes() == (100 if ready else 50)
    running.trigger_all()
    world.sim.settle(1)
    assert set(applied.values()) == {2}
    for number in range(50):
        world.sites.patch(f"s{number}", Patch.merge({"spec": {"size": 2}}))
    world.sim.settle(1)
    assert set(applied.values()) == {3}
    for number in range(50):
        world.sites.delete(f"s{number}")
    world.sim.settle(1)
    assert list(world.sites.list()) == []


@pytest.mark.parametrize("part", ["spec", "labels", "status", "deleted"])
def test_a_change_that_comes_between_is_seen(world: World, part: str) -> None:
    """Somebody changes the object after the run began and before the library writes: that leads to a run."""
    seen: list[Any] = []
    change: dict[str, Callable[[], Any]] = {
        "spec": lambda: world.sites.patch("a", Patch.merge({"spec": {"size": 7}})),
        "labels": lambda: world.sites.patch("a", Patch.merge({"metadata": {"labels": {"x": "y"}}})),
        "status": lambda: world.sites.patch_status("a", Patch.merge({"status": {"phase": "edited"}})),
        "deleted": lambda: world.sites.delete("a")}

    class Sites(FinalizingReconciler[Site]):
        finalizer_name = "ready.example.com/cleanup"

        def apply(self, obj: Site, ctx: Context[Any]) -> Action:
            seen.append((obj.spec["size"], dict(obj.labels), obj.status and obj.status.phase))
            return Action.await_change()

        def cleanup(self, obj: Site, ctx: Context[Any]) -> Action:
            seen.append("cleanup")
            return Action.await_change()

    reconciler = Sites()

    def answer(obj: Site, ctx: Context[None]) -> Action:
        if len(seen) == 0:
            change[part]()
        return reconciler.reconcile(obj, ctx)

    outside = world.sim.client(world.server)
    world.sites = Api.namespaced(outside, Site, "default")  # another process
    world.site()
    world.start(answer)
    world.sim.settle(1)
    last = {"spec": (7, {}, None), "labels": (1, {"x": "y"}, None), "status": (1, {}, "edited"), "deleted": "cleanup"}
    assert seen[-1:] == ([last[part]] if part != "deleted" else seen[-1:])
    assert part != "deleted" or world.sites.get_opt("a") is None


def test_other_controllers_see_what_the_library_writes(world: World) -> None:
    world.start(lambda obj, ctx: Action.await_change())
    seen: list[bool] = []

    def watch(obj: Site, ctx: Context[None]) -> Action:
        seen.append(bool(obj.status and obj.status.conditions))
        return Action.await_change()

    world.sim.start(Controller(Api.all(world.client, Site), name="other"), watch)
    world.site()
    world.sim.settle(1)
    assert seen[-1] is True


def test_a_deleted_object_is_not_called_ready_but_what_holds_it_is_told(world: World) -> None:
    world.sites.create(Site(name="a", spec={}, finalizers=["ready.example.com/x"]))
    answers: list[Any] = [Action.await_change()]
    world.start(lambda obj, ctx: answers[-1])
    world.sim.settle(1)
    assert world.writes() == 1
    world.sites.delete("a")
    world.sim.settle(1)
    assert world.writes() == 1
    answers.append(Action.waiting("Draining", "two clients are left"))
    world.sites.patch("a", Patch.merge({"metadata": {"labels": {"x": "y"}}}))
    world.sim.settle(1)
    found = world.ready()
    assert found is not None
    assert found[:3] == ("Unknown", "Draining", "two clients are left")


def test_a_condition_that_cannot_be_written_fails_the_run_and_hides_no_error(world: World,
                                                                             caplog: pytest.LogCaptureFixture) -> None:
    world.site()
    world.server.faults.on("patch").status(403, message="no right to patch sites/status")
    errors: list[Any] = []
    backoff = KeyBackoff(initial=1, maximum=1, jitter=0)
    controller = Controller(Api.all(world.client, Site), ready="Ready", backoff=backoff).on_result(
        lambda report: errors.append(type(report.error).__name__))
    answers: list[Answer] = [lambda obj, ctx: Action.await_change()]
    def reconcile(obj: Site, ctx: Context[None]) -> Action:
        return answers[-1](obj, ctx)

    running = world.sim.start(controller, reconcile)
    with caplog.at_level(logging.INFO):
        world.sim.settle(3.5)
        assert set(errors) == {"ApiError"}
        answers.append(fail(ValueError("mine")))
        errors.clear()
        running.trigger_all()
        world.sim.settle(0.5)
    assert errors == ["ValueError"]
    assert "the condition Ready, which does not show a failed run," in caplog.text


def test_two_controllers_with_a_condition_each_leave_each_other_alone(world: World) -> None:
    world.site()
    world.start(lambda obj, ctx: Action.await_change())
    world.start(fail(ValueError("no")), name="others", ready="Others",
                backoff=KeyBackoff(initial=100, maximum=100, jitter=0))
    world.sim.settle(50)
    assert world.ready() == ("True", "Reconciled", "", 1)
    assert world.condition("a", "Others") == ("False", "ValueError", "no", 1)
    assert world.writes() == 2
    assert world.runs["a"] <= 6


def test_a_reconciler_that_changed_its_copy_does_not_deceive_the_condition(world: World) -> None:
    def answer(obj: Site, ctx: Context[None]) -> Action:
        obj["status"] = {"conditions": [{"type": "Ready", "status": "True", "reason": "Reconciled"}]}
        obj.metadata.labels = {"x": "y"}
        return Action.await_change()

    world.site()
    world.start(answer)
    world.sim.settle(1)
    assert world.ready() == ("True", "Reconciled", "", 1)


@pytest.mark.parametrize("wrong", ["", "two words", "-x", "x-", "ends,", None, 5, "x" * 1025])
def test_a_reason_is_one_word(wrong: Any) -> None:
    with pytest.raises(Exception, match=r"Action\.waiting: a reason must be one word"):
        Action.waiting(wrong, "message")


def test_an_action_that_waits_is_an_action() -> None:
    assert Action.waiting("Starting", "soon").requeue_after is None
    assert Action.waiting("Starting", "soon", after=5).requeue_after == 5
    assert Action.waiting("Starting", "soon") != Action.await_change()
    assert repr(Action.requeue(5)) == "Action(requeue_after=5.0)"
    for wrong in (-1, float("inf")):
        with pytest.raises(Exception, match="delay"):
            Action.waiting("Starting", "soon", after=wrong)


def test_a_unit_test_reports_as_a_run_does(world: World) -> None:
    site = world.site()
    ctx: Context[None] = context_for(site, client=world.client)
    assert ctx.report(site, Condition(type="Synced", status="True", reason="Done"), phase="Running") is True
    assert ctx.report(site, phase="Running") is False
    assert world.condition("a", "Synced") == ("True", "Done", "", None)


class SizeSpec(msgspec.Struct, frozen=True):
    size: int = 0


class Size(PartialView, frozen=True):
    spec: SizeSpec | None = None


@pytest.mark.parametrize("form", ["metadata", "fields", "stripped", "dynamic"])
def test_other_objects_and_forms_are_reported_about_as_well(world: World, form: str) -> None:
    world.site()
    world.site("b")

    def answer(obj: Any, ctx: Context[None]) -> Action:
        if obj.name == "a":
            ctx.report(obj, phase="Mine")
            ctx.report(ctx.api(Site).get("b"), phase="Other")
        return Action.await_change()

    sites: Any = Api.all(world.client, Site)
    api = {"metadata": sites.with_metadata_only, "fields": lambda: sites.with_fields(Size), "stripped": lambda: sites,
           "dynamic": lambda: Api.all(world.client, Site.api_resource)}[form]()
    modify = strip_managed_fields if form == "stripped" else None
    running = world.sim.start(Controller(api, ready="Ready", modify=modify), answer)
    world.sim.settle(1)
    writes = world.writes()
    running.trigger_all()
    world.sim.settle(1)
    assert world.writes() == writes
    for name, phase in (("a", "Mine"), ("b", "Other")):
        found = world.sites.get(name).status
        assert found is not None
        assert found.phase == phase
        assert world.ready(name) == ("True", "Reconciled", "", 1)
    world.sites.delete("a")
    world.sim.settle(1)


class Staged(FinalizingReconciler[Site]):
    """Reports where it is, in three runs, and what it was ready for."""

    finalizer_name = "ready.example.com/cleanup"

    def apply(self, obj: Site, ctx: Context[Any]) -> Action:
        phase = {None: "One", "One": "Two"}.get(obj.status.phase if obj.status else None, "Two")
        ctx.report(obj, Condition(type="Synced", status="True", reason="Done"), phase=phase)
        ctx.api(ConfigMap).apply(ConfigMap(name=obj.name, data={"phase": phase}))
        return Action.await_change() if phase == "Two" else Action.waiting("Staging", "one more")

    def cleanup(self, obj: Site, ctx: Context[Any]) -> Action:
        return Action.await_change()


def test_a_crash_at_any_write_ends_the_same() -> None:
    def build(client: Any) -> Any:
        return Controller(Api.all(client, Site), ready="Ready", name="sites").bind(Staged())

    def story(client: Any) -> None:
        Api.namespaced(client, Site, "default").create(Site(name="a", spec={"size": 1}))

    report = perturb(build, story)
    assert report.ok, report
    assert report.writes >= 5
