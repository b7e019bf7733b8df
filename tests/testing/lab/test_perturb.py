"""Perturbation finds what it is there for, says it so that it can be repeated, and finds nothing where nothing is."""
from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import pytest

from kubectl_runtime import (
    Action,
    Api,
    ApiError,
    ApiResource,
    Client,
    Config,
    Controller,
    Manager,
    Patch,
    RequestError,
    apply_crd,
    predicates,
)
from kubectl_runtime import await_condition as await_condition_of
from kubectl_runtime.resources import ConfigMap, Deployment, Secret
from kubectl_runtime.testing import CRASH, MISSED, STALE, Fault, perturb
from kubectl_runtime.testing.lab.perturb import Progress, naming_what_blocks
from kubectl_runtime.testing.lab.world import Point
from tests.examples.programs import ROOT, environment
from tests.testing.lab import buggy

HERE = "tests.testing.lab.buggy"

BUGS: list[tuple[str, str, Fault, str]] = [
    ("create_that_fails_the_second_time", "create", CRASH, "status is nothing"),
    ("status_before_child", "create", CRASH, "configmaps default/a is missing"),
    ("trust_in_the_store_after_a_restart", "create", STALE, "there are 2, not 1"),
    ("acting_on_the_reason", "create_and_lose_the_child", MISSED, "configmaps default/a is missing"),
    ("cleanup_that_works_once", "open_accounts", CRASH, "default/a is there and should not be"),
    ("generated_name_without_a_look", "create", CRASH, "there are 2, not 1"),
    ("adopting_by_memory", "pages_come_and_go", CRASH, "default/a-one is there and should not be"),
    ("counting_in_memory", "two_and_one_less", MISSED, "data.sites is '1', not '2'"),
    ("finalizer_removed_before_cleanup", "create_and_delete", CRASH, "kube-public/a is there and should not be"),
    ("ignoring_a_conflict", "create", STALE, "configmaps default/a is missing"),
    ("deletions_heard_and_not_looked_for", "create_and_delete", MISSED, "default/a is there and should not be"),
    ("high_water_mark_of_what_it_saw", "there_and_back", MISSED, "data.size is '1', not '5'"),
]


@pytest.mark.parametrize(("build", "story", "fault", "difference"), BUGS)
def test_each_seeded_bug_is_found_and_comes_back_by_its_point_and_seed(build: str, story: str, fault: Fault,
                                                                       difference: str) -> None:
    functions = getattr(buggy, build), getattr(buggy, story)
    report = perturb(*functions, faults={fault}, seed=7)
    first = report.first_divergence
    assert first is not None
    assert first.fault is fault
    assert difference in first.difference[0]
    assert first.write.startswith(("the controllers", "never made: the controllers"))
    assert first.seed == 7
    (again,) = perturb(*functions, seed=7, only=str(first.point)).divergences
    assert again == first


@pytest.mark.parametrize(("build", "story"), [
    ("right", "create"), ("right", "create_and_lose_the_child"), ("right_with_an_account", "open_accounts"),
    *(pytest.param("right", story, marks=pytest.mark.long)
      for story in ("pages_come_and_go", "two_and_one_less", "there_and_back"))])
def test_a_controller_that_can_do_everything_again_passes(build: str, story: str) -> None:
    report = perturb(getattr(buggy, build), getattr(buggy, story))
    assert report.ok, str(report)
    assert report.runs >= 2 * report.writes
    assert report.first_divergence is None


def test_the_command_of_a_report_works_as_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_CURRENT_TEST")  # as in a program that is no test
    monkeypatch.chdir(ROOT)
    report = perturb(buggy.status_before_child, buggy.create, faults={CRASH}, seed=3)
    assert report.first_divergence is not None
    command = report.first_divergence.command
    assert command == (f"kubectl-runtime perturb {HERE}:status_before_child {HERE}:create --only crash-after-1 "
                       "--seed 3")
    typed = command.replace("kubectl-runtime", f"{sys.executable} -m kubectl_runtime", 1)
    done = subprocess.run(typed, shell=True, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "configmaps default/a is missing" in done.stdout
    assert f"again: {command}" in done.stdout
    passing = typed.replace("status_before_child", "right")
    done = subprocess.run(passing, shell=True, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "1 disturbed runs of 3 writes" in done.stdout


def test_functions_without_a_name_of_their_own_are_repeated_by_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    report = perturb(lambda client: buggy.status_before_child(client),  # noqa: PLW0108 - that it has no name is the point
                     buggy.create, faults={CRASH})
    assert report.first_divergence is not None
    assert report.first_divergence.command == 'perturb(..., only="crash-after-1", seed=0)'


def test_a_manager_is_played_without_its_election() -> None:
    from kubectl_runtime import LeaderElection

    def build(client: Client) -> Manager:
        manager = Manager(client, leader=LeaderElection("sites", "default"))
        return manager.add(buggy.status_before_child(client))

    report = perturb(build, buggy.create, faults={CRASH})
    assert [str(one.point) for one in report.divergences] == ["crash-after-1", "crash-before-2"]


def test_a_story_may_wait_for_what_the_controllers_and_the_cluster_do() -> None:
    def story(client: Client) -> None:
        buggy.create(client)
        sites = buggy.sites(client)
        await_condition_of(sites, "a", lambda site: site is not None and site.status is not None, timeout=30)
        container = {"name": "c", "image": "i"}
        Api.namespaced(client, Deployment, "default").create({
            "metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {
                "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}}}})
        sites.delete("a")
        await_condition_of(buggy.maps(client), "a", lambda one: one is None, timeout=60)

    report = perturb(buggy.right, story, faults={MISSED})
    assert report.ok, str(report)


def test_what_the_story_raises_is_raised_undisturbed_and_reported_disturbed() -> None:
    def story(client: Client) -> None:
        buggy.create(client)
        assert buggy.maps(client).get("a").data == {"size": "1"}

    with pytest.raises(ApiError, match="not found"):
        perturb(buggy.counting_in_memory, story)
    report = perturb(buggy.status_before_child, story, faults={CRASH})
    assert report.first_divergence is not None
    assert isinstance(report.first_divergence.error, ApiError)
    assert report.first_divergence.difference[0].startswith("the story raised ApiError")


def test_what_is_drawn_at_random_is_no_difference_and_a_secret_is_not_shown() -> None:
    import secrets

    def build(client: Client) -> Any:
        def reconcile(obj: buggy.Site, ctx: Any) -> Action:
            api = Api.namespaced(ctx.client, Secret, "default")
            user = b"hunter2" if api.get_opt("a") is None else b"swordfish"
            api.apply(Secret(name="a", data={"password": secrets.token_bytes(), "user": user}), field_manager="sites")
            if obj.status is None:
                buggy.ready(obj, ctx.client)
            return Action.await_change()

        return Controller(Api.all(client, buggy.Site), predicate=predicates.generation).bind(reconcile)

    report = perturb(build, buggy.create, faults={CRASH})
    assert report.first_divergence is not None
    assert report.first_divergence.difference == ("secrets default/a: data.user has another value",)
    assert not any(word in str(report) for word in ("hunter2", "swordfish", "aHVudGVyMg", "password"))


def test_random_numbers_are_no_difference() -> None:
    import random

    def build(client: Client) -> Any:
        def reconcile(obj: buggy.Site, ctx: Any) -> Action:
            if buggy.maps(ctx.client).get_opt("a") is None:
                buggy.maps(ctx.client).apply(buggy.child(obj, number=str(random.random())), field_manager="sites")
            buggy.ready(obj, ctx.client)
            return Action.await_change()

        return Controller(Api.all(client, buggy.Site)).bind(reconcile)

    state = random.getstate()
    report = perturb(build, buggy.create, faults={CRASH})
    assert report.ok, str(report)
    assert random.getstate() == state


def test_a_process_that_ends_while_it_begins_begins_again() -> None:
    def build(client: Client) -> Any:
        buggy.maps(client).apply(ConfigMap(name="settings", data={"a": "b"}), field_manager="sites")
        return buggy.right(client)

    report = perturb(build, buggy.create, faults={CRASH})
    assert report.ok, str(report)
    assert report.writes > 3


def test_a_run_that_never_rests_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubectl_runtime.testing.lab.perturb.MOST_REQUESTS", 5_000)

    def build(client: Client) -> Any:
        begun = buggy.maps(client).get_opt("begun") is not None

        def reconcile(obj: buggy.Site, ctx: Any) -> Action:
            buggy.maps(ctx.client).apply(ConfigMap(name="begun", data={"a": "b"}), field_manager="sites")
            while begun:
                buggy.maps(ctx.client).get("begun")
            return Action.await_change()

        return buggy.bound(client, reconcile)

    report = perturb(build, buggy.create, faults={CRASH})
    assert report.first_divergence is not None
    assert "does not come to rest" in report.first_divergence.difference[0]


def test_what_cannot_be_played_is_refused_in_words() -> None:
    def silent(client: Client) -> Any:
        return buggy.bound(client, lambda obj, ctx: Action.await_change())

    def elsewhere(client: Client) -> Any:
        return buggy.right(Client(Config(cluster_url="http://127.0.0.1:1")))

    names = iter("abcdefgh")
    story: Any = buggy.create
    wrong: Any = "crash"
    with pytest.raises(ValueError, match="write nothing"):
        perturb(silent, story)
    with pytest.raises(ValueError, match="not the client passed to `build`"):
        perturb(elsewhere, story)
    with pytest.raises(ValueError, match="end with different objects"):
        perturb(buggy.right, lambda client: buggy.sites(client).create(buggy.Site(name=next(names),
                                                                                 spec=buggy.SiteSpec())))
    with pytest.raises(RequestError, match="faults must be among CRASH"):
        perturb(buggy.right, story, faults={wrong})
    with pytest.raises(RequestError, match="story"):
        perturb(buggy.right, None)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="cannot be called"):
        perturb(buggy.right, lambda: None)  # type: ignore[arg-type, misc]
    with pytest.raises(TypeError, match="build returned Controller"):
        perturb(lambda client: Controller(Api.all(client, buggy.Site)), story)  # type: ignore[arg-type, return-value]
    with pytest.raises(ValueError, match="not a point such as"):
        perturb(buggy.right, story, only="crash-3")
    with pytest.raises(ValueError, match=r"no crash-after-99 in this story: .* the controllers make 3 writes"):
        perturb(buggy.right, story, only="crash-after-99")
    with pytest.raises(ValueError, match="only if another write follows it"):
        perturb(buggy.right, story, only="missed-1")

    async def later(client: Client) -> None: ...

    with pytest.raises(RequestError, match="is async"):
        perturb(buggy.right, later)


@pytest.mark.parametrize("text", ["", "crash", "crash-before-0", "crash-before--1", "stale-1 ", "STALE-1", "stale-x"])
def test_a_point_is_a_word_and_a_number(text: str) -> None:
    with pytest.raises(ValueError, match="not a point such as"):
        Point.parse(text)
    assert str(Point.parse("down-12")) == "down-12"


def test_progress_is_one_line_written_anew() -> None:
    told: list[str] = []
    points = [Point("crash-before", 1), Point("crash-after", 1), Point("stale", 1)]
    progress = Progress(points, told.append)
    progress.ran(points[0], diverged=False)
    progress.ran(points[2], diverged=True)
    progress.end()
    assert told == ["\r\x1b[Kperturbing: crash 1/2, stale 0/1",
                    "\r\x1b[Kperturbing: crash 1/2, stale 1/1; 1 do not end as undisturbed", "\n"]


THING = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
         "metadata": {"name": "things.other.example.org"}, "spec": {
             "group": "other.example.org", "scope": "Namespaced", "names": {"kind": "Thing", "plural": "things"},
             "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {
                 "type": "object", "x-kubernetes-preserve-unknown-fields": True}}}]}}
THINGS = ApiResource("other.example.org", "v1", "Thing", "things")


def applying(data: Any) -> Any:
    """Builds a controller of things. Each thing gets a ConfigMap of `data(thing)`."""
    def reconcile(obj: Any, ctx: Any) -> Action:
        made = ConfigMap.from_dict({"metadata": {"name": obj.name}, **data(obj)})
        Api.namespaced(ctx.client, ConfigMap, obj.namespace).apply(made, field_manager="t", force=True)
        return Action.await_change()

    return lambda client: Controller(Api.all(client, THINGS)).bind(reconcile)


def one_thing(client: Client) -> None:
    apply_crd(client, THING)
    Api.namespaced(client, THINGS, "default").create({"metadata": {"name": "a"}})


def test_a_story_brings_the_definitions_of_others() -> None:
    report = perturb(applying(lambda thing: {"data": {"a": "b"}}), one_thing)
    assert report.ok, str(report)


def test_a_time_limit_of_the_story_does_not_count_what_the_controllers_do_for_it() -> None:
    """After each write they get a minute, which a limit of half a minute would never see the end of."""
    def story(client: Client) -> None:
        began = client.clock.monotonic()
        one_thing(client)
        assert client.clock.monotonic() - began < 30

    assert perturb(applying(lambda thing: {"data": {"a": "b"}}), story, faults=()).ok


class Steps:
    """Gives another number each time, also after a crash."""

    def __init__(self) -> None:
        self.number = 0

    def __call__(self) -> str:
        self.number += 1
        return str(self.number)


@pytest.mark.parametrize(("place", "ignore"), [
    (lambda step: {"data": {"a": step}}, ["data.a"]),
    (lambda step: {"data": {"a": step}}, ["data"]),
    (lambda step: {"metadata": {"name": "a", "annotations": {"example.com/at": step}}},
     [("metadata", "annotations", "example.com/at")]),
])
def test_a_field_can_be_left_out_of_the_comparison(place: Any, ignore: list[Any],
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    from kubectl_runtime.testing.lab import perturb as module

    monkeypatch.setattr(module, "random_places", lambda one, other: frozenset())  # what draws at random is known else
    step = Steps()
    build = applying(lambda thing: place(step()))
    assert not perturb(build, one_thing, only="crash-after-1").ok
    assert perturb(build, one_thing, only="crash-after-1", ignore=ignore).ok


@pytest.mark.parametrize("text", ["2026-11-30T12:00:{:02d}", "2026-11-30 12:00:{:02d}",
                                  "2026-11-30T12:00:{:02d}.5+0100",
                                  "2026-11-30T12:00:{:02d}Z"])
def test_a_time_is_no_difference_in_whatever_form(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from kubectl_runtime.testing.lab import perturb as module

    monkeypatch.setattr(module, "random_places", lambda one, other: frozenset())
    step = Steps()
    build = applying(lambda thing: {"data": {"at": text.format(int(step()))}})
    assert perturb(build, one_thing, only="crash-after-1").ok


@pytest.mark.parametrize("wrong", ["status", [""], [()], [3], 3])
def test_fields_that_are_none_are_refused(wrong: Any) -> None:
    with pytest.raises((RequestError, TypeError)):
        perturb(applying(lambda thing: {}), one_thing, ignore=wrong)


def test_code_that_waits_for_the_real_time_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    released = threading.Event()
    with naming_what_blocks(0.05):
        released.wait(0.5)
    said = capsys.readouterr().err
    assert "released.wait(0.5)" in said
    assert said.count("nothing has moved") == 1
    with naming_what_blocks(30):
        pass
    assert capsys.readouterr().err == ""


WORKLOADS: dict[str, dict[str, Any]] = {"Deployment": {"replicas": 2}, "DaemonSet": {},
                                        "StatefulSet": {"serviceName": "a", "replicas": 2}}


def rolling(kind: str, *, skips: bool = True) -> Any:
    """Builds a controller of things, which have a workload of `kind` with their image, and a Service. If not `skips`,
    it leaves an image out that is not the next one."""
    def reconcile(obj: Any, ctx: Any) -> Action:
        image, labels = obj["spec"]["image"], {"app": obj.name}
        there = Api.namespaced(ctx.client, ApiResource("apps", "v1", kind, f"{kind.lower()}s"), "default").get_opt("a")
        before = int(there["spec"]["template"]["spec"]["containers"][0]["image"][-1]) if there else 0
        if not skips and int(image[-1]) > before + 1 > 1:
            return Action.await_change()
        ctx.ensure(obj, {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"},
                         "spec": {"selector": labels, "ports": [{"port": 80}]}})
        ctx.ensure(obj, {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "a"}, "spec": {
            **WORKLOADS[kind], "selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels}, "spec": {"containers": [{"name": "web", "image": image}]}}}})
        return Action.await_change()

    return lambda client: Controller(Api.all(client, THINGS)).bind(reconcile)


def images(*numbers: int) -> Any:
    """A story that gives a thing one image after the other."""
    def story(client: Client) -> None:
        apply_crd(client, THING)
        things = Api.namespaced(client, THINGS, "default")
        things.create({"metadata": {"name": "a"}, "spec": {"image": f"web:{numbers[0]}"}})
        for number in numbers[1:]:
            things.patch("a", Patch.merge({"spec": {"image": f"web:{number}"}}))

    return story


@pytest.mark.parametrize(("kind", "numbers"), [("Deployment", (1, 2, 3)), ("Deployment", (1, 2, 1)),
                                               ("StatefulSet", (1, 2, 3)), ("DaemonSet", (1, 2, 3))])
def test_an_image_that_a_controller_never_saw_is_no_difference(kind: str, numbers: tuple[int, ...]) -> None:
    report = perturb(rolling(kind), images(*numbers), faults={MISSED})
    assert report.ok, str(report)
    assert report.runs > len(numbers)


@pytest.mark.parametrize("kind", WORKLOADS)
def test_another_image_at_the_end_is_a_difference(kind: str) -> None:
    report = perturb(rolling(kind, skips=False), images(1, 2, 3), faults={MISSED})
    assert report.first_divergence is not None
    lines = report.first_divergence.difference
    assert f"{kind.lower()}s.apps default/a: spec.template.spec.containers.0.image is 'web:1', not 'web:3'" in lines
    assert any(line.startswith("pods default/a-") for line in lines)
