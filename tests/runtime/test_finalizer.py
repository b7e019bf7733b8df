"""The finalizer's two tables, row by row, against the embedded server: what is called, with what, and what is sent."""
from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st

from kubectl_runtime import (
    Action,
    Api,
    ApiError,
    ApiResource,
    Client,
    Config,
    Context,
    Controller,
    CustomResource,
    FinalizingReconciler,
    OutcomeUnknownError,
    Patch,
    RequestError,
    finalizer,
)
from kubectl_runtime.apiserver.names import qualified_name_errors
from kubectl_runtime.apiserver.transport.faults.rule import Rule
from kubectl_runtime.errors import KindNotServedError
from kubectl_runtime.objects import PartialView
from kubectl_runtime.resources import ConfigMap, Namespace, Secret
from kubectl_runtime.runtime.finalizer import ATTEMPTS, _check_bare_name, check_finalizer_name
from kubectl_runtime.testing import ApiServer, Simulation

OURS = "maps.example.com/cleanup"
OTHER = "other.example.com/x"
THIRD = "third.example.com/y"


class Cluster:
    """A server and a client of it on simulated time, with one ConfigMap `a`; what is sent later is in `sent`."""

    def __init__(self) -> None:
        self.sim = Simulation()
        self.server = ApiServer(clock=self.sim.clock)
        session = requests.Session()
        session.mount("http://", self.server.transport())
        self.client = Client(Config(cluster_url="http://simulated"), session=session, clock=self.sim.clock)
        self.maps = Api.namespaced(self.client, ConfigMap, "default")
        self.calls: list[tuple[str, Any]] = []

    def make(self, *finalizers: str, deleted: bool = False) -> ConfigMap:
        self.maps.create(ConfigMap(name="a", finalizers=list(finalizers) or None, labels={"v": "1"}))
        if deleted:
            self.maps.delete("a")
        self.server.requests.clear()
        return self.maps.get("a")

    def set_finalizers(self, *finalizers: str) -> None:
        self.maps.patch("a", Patch.merge({"metadata": {"finalizers": list(finalizers)}}))

    def label(self) -> None:
        self.maps.patch("a", Patch.merge({"metadata": {"labels": {"v": "2"}}}))

    @property
    def finalizers(self) -> tuple[str, ...] | None:
        """None: the object is gone."""
        found = self.maps.get_opt("a")
        return found.finalizers if found is not None else None

    def apply(self, obj: Any) -> Action:
        self.calls.append(("apply", obj))
        return Action.requeue(300)

    def cleanup(self, obj: Any) -> Action:
        self.calls.append(("cleanup", obj))
        return Action.await_change()

    def run(self, obj: Any, api: Api[Any] | None = None, **functions: Callable[[Any], Any]) -> Action:
        """One run; what was sent before is forgotten."""
        self.server.requests.clear()
        return finalizer(api or self.maps, OURS, obj, **{"apply": self.apply, "cleanup": self.cleanup, **functions})

    @property
    def called(self) -> list[str]:
        return [name for name, _ in self.calls]

    @property
    def sent(self) -> list[str]:
        return [entry.method for entry in self.server.requests]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    with made.client:
        yield made


# One row of the first table each


def test_a_new_object_gets_the_finalizer_before_it_is_applied_in_the_same_run(cluster: Cluster) -> None:
    obj = cluster.make()

    def apply(now: ConfigMap) -> Action:
        assert cluster.finalizers == (OURS,)
        return cluster.apply(now)

    assert cluster.run(obj, apply=apply) == Action.requeue(300)
    (_, now), = cluster.calls
    assert now.finalizers == (OURS,)
    assert now.resource_version == cluster.maps.get("a").resource_version != obj.resource_version


def test_an_object_with_the_finalizer_is_applied_without_a_request(cluster: Cluster) -> None:
    obj = cluster.make(OURS)
    assert cluster.run(obj) == Action.requeue(300)
    assert cluster.calls == [("apply", obj)]
    assert cluster.sent == []


def test_a_deleted_object_is_cleaned_up_as_it_is_now_and_then_goes(cluster: Cluster) -> None:
    obj = cluster.make(OURS, deleted=True)
    cluster.label()
    assert cluster.run(obj) == Action.await_change()
    assert cluster.sent == ["GET", "PATCH"]
    (what, now), = cluster.calls
    assert what == "cleanup"
    assert now.labels == {"v": "2"}, "a stale copy would not know what was written last"
    assert cluster.finalizers is None


def test_nothing_is_called_or_sent_for_a_deleted_object_without_the_finalizer(cluster: Cluster) -> None:
    assert cluster.run(cluster.make(OTHER, deleted=True)) == Action.await_change()
    assert (cluster.calls, cluster.sent) == ([], [])
    assert cluster.finalizers == (OTHER,)


def test_a_cleanup_that_is_not_done_keeps_the_object_and_is_called_again(cluster: Cluster) -> None:
    obj = cluster.make(OURS, deleted=True)
    assert cluster.run(obj, cleanup=lambda now: Action.requeue(30)) == Action.requeue(30)
    assert cluster.finalizers == (OURS,)
    cluster.run(obj)
    assert cluster.finalizers is None


@pytest.mark.parametrize("after", [None, 30])
def test_a_cleanup_that_waits_keeps_the_object(cluster: Cluster, after: float | None) -> None:
    obj, waiting = cluster.make(OURS, deleted=True), Action.waiting("Dropping", "the bucket is emptied", after=after)
    assert cluster.run(obj, cleanup=lambda now: waiting) == waiting
    assert cluster.sent == ["GET"]
    assert cluster.finalizers == (OURS,)
    cluster.run(obj)
    assert cluster.finalizers is None


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1)])
def test_a_cleanup_that_raises_keeps_the_object(cluster: Cluster, error: BaseException) -> None:
    def cleanup(now: ConfigMap) -> Action:
        raise error

    with pytest.raises(type(error)):
        cluster.run(cluster.make(OURS, deleted=True), cleanup=cleanup)
    assert cluster.finalizers == (OURS,)


class Forgetful(FinalizingReconciler[ConfigMap]):
    finalizer_name = OURS

    def apply(self, obj: ConfigMap, ctx: Context[None]) -> Action:  # type: ignore[empty-body]
        """Lacks a return."""

    def cleanup(self, obj: ConfigMap, ctx: Context[None]) -> Action:  # type: ignore[empty-body]
        """Lacks a return."""


@pytest.mark.parametrize(("deleted", "named", "remedy"), [
    (False, "Forgetful.apply", "Action.await_change() or Action.requeue(seconds)"),
    (True, "Forgetful.cleanup", "Action.await_change() when all is cleaned up, Action.requeue(seconds) to try again")])
def test_the_error_for_a_missing_return_names_the_users_method(
        cluster: Cluster, caplog: pytest.LogCaptureFixture, deleted: bool, named: str, remedy: str) -> None:
    cluster.make(OURS, deleted=deleted)
    cluster.sim.start(Controller(cluster.maps), Forgetful())
    cluster.sim.settle(0.001)
    assert f"TypeError: {__name__}.{named} returned None for ConfigMap.v1./a.default: return {remedy}" in caplog.text
    assert cluster.finalizers == (OURS,)


def test_the_error_for_a_missing_return_names_the_users_function(cluster: Cluster) -> None:
    def forgetful(now: ConfigMap) -> None:
        """Lacks a return."""

    async def unawaited(now: ConfigMap) -> Action:
        return Action.await_change()

    obj = cluster.make(OURS, deleted=True)
    with pytest.raises(TypeError, match=r"forgetful returned None for ConfigMap.v1./a.default: return Action.await"):
        cluster.run(obj, apply=forgetful, cleanup=forgetful)
    with pytest.raises(TypeError, match=r"unawaited returned a coroutine, and nothing awaits it"):
        cluster.run(obj, apply=unawaited, cleanup=unawaited)
    assert cluster.finalizers == (OURS,)


def test_a_program_may_drop_the_result_of_apply(cluster: Cluster) -> None:
    assert cluster.run(cluster.make(), apply=lambda now: None) is None  # type: ignore[arg-type,return-value]


@pytest.mark.parametrize("action", [type("Own", (Action,), {"__module__": __name__})(), Action(message="all is gone")])
def test_a_cleanup_without_a_reason_to_wait_removes_the_finalizer(cluster: Cluster, action: Action) -> None:
    cluster.run(cluster.make(OURS, deleted=True), cleanup=lambda now: action)
    assert not cluster.finalizers


def test_what_apply_raises_passes_and_the_finalizer_is_on(cluster: Cluster) -> None:
    def apply(now: ConfigMap) -> Action:
        raise ValueError("planned")

    with pytest.raises(ValueError, match="planned"):
        cluster.run(cluster.make(), apply=apply)
    assert cluster.finalizers == (OURS,)


def test_when_the_finalizer_cannot_be_added_nothing_is_applied(cluster: Cluster) -> None:
    obj = cluster.make()
    cluster.server.faults.on("patch").status(403)
    with pytest.raises(ApiError) as raised:
        cluster.run(obj)
    assert raised.value.is_forbidden
    assert cluster.calls == []


# Other finalizers


def test_other_finalizers_stay_where_they_are(cluster: Cluster) -> None:
    cluster.run(cluster.make(OTHER, THIRD))
    assert cluster.finalizers == (OTHER, THIRD, OURS)
    cluster.set_finalizers(OTHER, OURS, THIRD)
    cluster.maps.delete("a")
    cluster.run(cluster.maps.get("a"))
    assert cluster.finalizers == (OTHER, THIRD)
    assert cluster.called == ["apply", "cleanup"]


def test_a_finalizer_that_stands_there_twice_is_removed_twice(cluster: Cluster) -> None:
    cluster.run(cluster.make(OURS, OTHER, OURS, deleted=True))
    assert cluster.finalizers == (OTHER,)
    assert cluster.called == ["cleanup"]
    assert cluster.sent.count("PATCH") == 1


# What others did since the object was seen


def test_another_finalizer_added_meanwhile_is_kept_and_ours_is_there_once(cluster: Cluster) -> None:
    obj = cluster.make()
    cluster.set_finalizers(OTHER)
    cluster.run(obj)
    assert cluster.finalizers == (OTHER, OURS)
    assert cluster.called == ["apply"]


def test_a_copy_from_before_our_own_addition_does_not_add_it_twice(cluster: Cluster) -> None:
    obj = cluster.make(OTHER)
    cluster.run(obj)
    cluster.run(obj)
    assert cluster.finalizers == (OTHER, OURS)
    assert cluster.called == ["apply", "apply"]


@pytest.mark.parametrize("finalizers", [(), (OTHER,)])
def test_nothing_is_added_to_an_object_that_goes_by_now(cluster: Cluster, finalizers: tuple[str, ...]) -> None:
    obj = cluster.make(*finalizers)
    cluster.set_finalizers(THIRD, *finalizers)
    cluster.maps.delete("a")
    assert cluster.run(obj) == Action.await_change()
    assert cluster.calls == []
    assert cluster.finalizers == (THIRD, *finalizers)


def test_an_object_that_goes_by_now_and_has_ours_is_cleaned_up(cluster: Cluster) -> None:
    obj = cluster.make()
    cluster.set_finalizers(OURS)
    cluster.maps.delete("a")
    cluster.run(obj)
    assert cluster.called == ["cleanup"]
    assert cluster.finalizers is None


@pytest.mark.parametrize("deleted", [False, True])
def test_an_object_that_is_gone_is_left_alone(cluster: Cluster, deleted: bool) -> None:
    obj = cluster.make(*[OURS] * deleted, deleted=deleted)
    cluster.set_finalizers()
    if not deleted:
        cluster.maps.delete("a")
    assert cluster.run(obj) == Action.await_change()
    assert cluster.calls == []


@pytest.mark.parametrize("deleted", [False, True])
def test_a_namesake_that_was_created_since_is_left_alone(cluster: Cluster, deleted: bool) -> None:
    obj = cluster.make(*[OURS] * deleted, deleted=deleted)
    cluster.set_finalizers()
    if not deleted:
        cluster.maps.delete("a")
    namesake = cluster.make(*[OURS] * deleted, deleted=deleted)
    assert cluster.run(obj) == Action.await_change()
    assert cluster.calls == []
    assert cluster.maps.get("a").resource_version == namesake.resource_version


def test_a_namesake_created_during_the_cleanup_keeps_its_finalizer(cluster: Cluster) -> None:
    def cleanup(now: ConfigMap) -> Action:
        cluster.set_finalizers()  # by hand: the object goes before we let it
        cluster.make(OURS)
        return Action.await_change()

    cluster.run(cluster.make(OURS, deleted=True), cleanup=cleanup)
    assert cluster.finalizers == (OURS,)


def test_a_neighbour_that_goes_during_the_cleanup_changes_the_index_and_nothing_else(cluster: Cluster) -> None:
    def cleanup(now: ConfigMap) -> Action:
        cluster.set_finalizers(OURS, THIRD)
        return cluster.cleanup(now)

    cluster.run(cluster.make(OTHER, OURS, THIRD, deleted=True), cleanup=cleanup)
    assert cluster.called == ["cleanup"]
    assert cluster.finalizers == (THIRD,)


def test_a_finalizer_removed_by_hand_during_the_cleanup_is_no_failure(cluster: Cluster) -> None:
    def cleanup(now: ConfigMap) -> Action:
        cluster.set_finalizers(OTHER)
        return cluster.cleanup(now)

    assert cluster.run(cluster.make(OTHER, OURS, deleted=True), cleanup=cleanup) == Action.await_change()
    assert cluster.finalizers == (OTHER,)


def test_changes_elsewhere_in_the_object_do_not_hinder_the_removal(cluster: Cluster) -> None:
    def cleanup(now: ConfigMap) -> Action:
        cluster.label()
        return cluster.cleanup(now)

    cluster.run(cluster.make(OURS, deleted=True), cleanup=cleanup)
    assert cluster.finalizers is None
    ours = [entry for entry in cluster.server.requests.select("patch") if isinstance(entry.json(), list)]
    assert len(ours) == 1


LOSSES: dict[str, Callable[[Rule], Rule]] = {
    "done and lost": lambda rule: rule.lose_answer(),
    "done and 504": lambda rule: rule.status(504, handled=True),
    "done and cut": lambda rule: rule.truncate(200),
    "not done and 504": lambda rule: rule.status(504),
    "not done and etcd's 500": lambda rule: rule.status(500, message="etcdserver: request timed out")}


@pytest.mark.parametrize("deleted", [False, True])
@pytest.mark.parametrize("how", LOSSES)
def test_a_lost_answer_is_made_up_for(cluster: Cluster, deleted: bool, how: str) -> None:
    obj = cluster.make(*[OURS] * deleted, deleted=deleted)
    rule = LOSSES[how](cluster.server.faults.on("patch").first(1))
    cluster.run(obj)
    assert rule.taken == 1
    assert cluster.called == ["cleanup" if deleted else "apply"]
    assert cluster.finalizers == (None if deleted else (OURS,))
    assert cluster.sent.count("PATCH") == (2 if how.startswith("not") else 1)


def test_answers_that_never_come_are_an_open_question_in_the_end(cluster: Cluster) -> None:
    obj = cluster.make()
    cluster.server.faults.on("patch").status(504)
    with pytest.raises(OutcomeUnknownError):
        cluster.run(obj)
    assert cluster.calls == []


def test_what_the_server_refuses_for_another_reason_is_raised(cluster: Cluster) -> None:
    obj = cluster.make()
    cluster.server.faults.on("patch").status(422, message="a webhook does not like it")
    with pytest.raises(ApiError, match="a webhook does not like it"):
        cluster.run(obj)
    assert cluster.calls == []
    assert cluster.sent == ["PATCH", "GET"]


def test_finalizers_that_keep_changing_end_as_a_conflict(cluster: Cluster) -> None:
    obj = cluster.make()
    seen: list[int] = []

    def change() -> None:
        seen.append(len(seen))
        found = cluster.maps.get("a")
        found.metadata.finalizers = [f"n{len(seen)}.example.com/x"]
        cluster.maps.replace(found)  # no patch, which the rule would take

    cluster.server.faults.on("patch").run(change)
    with pytest.raises(ApiError) as raised:
        cluster.run(obj)
    assert raised.value.is_conflict
    assert "patch configmaps default/a" in str(raised.value)
    assert len(seen) == ATTEMPTS
    assert cluster.calls == []


def test_a_conflict_is_tried_again_at_once(cluster: Cluster) -> None:
    obj = cluster.make()
    cluster.server.faults.on("patch").first(2).status(409, "Conflict")
    cluster.run(obj)
    assert cluster.called == ["apply"]
    assert cluster.finalizers == (OURS,)


def test_a_kind_that_is_served_no_more_is_an_error(cluster: Cluster) -> None:
    obj = cluster.make()
    cluster.server.faults.on("patch").answer(404, "404 page not found")
    with pytest.raises(KindNotServedError):
        cluster.run(obj)


# Names


@pytest.mark.parametrize("name", ["", "cleanup", "foregroundDeletion", "/x", "example.com/", "example.com/a/b",
                                  "Example.com/x", "example.com/-x", "exa mple.com/x", "example.com/x\n",
                                  "example.com/" + "x" * 64, "x" * 254 + "/x"])
def test_a_name_that_the_server_would_refuse_is_refused_before_any_request(cluster: Cluster, name: str) -> None:
    obj = cluster.make()
    cluster.server.requests.clear()
    with pytest.raises(RequestError, match=r"write a domain of yours, a slash"):
        finalizer(cluster.maps, name, obj, apply=cluster.apply, cleanup=cluster.cleanup)
    assert (cluster.calls, cluster.sent) == ([], [])


@given(st.text("aB0-._/\n", max_size=12) | st.builds(lambda a, b: "a" * a + "/" + "b" * b, st.integers(250, 256),
                                                   st.integers(60, 66)))
def test_names_with_a_slash_are_judged_as_the_server_judges_them(name: str) -> None:
    try:
        check_finalizer_name(name)
        fits = True
    except RequestError:
        fits = False
    bare = "." in name and "/" not in name and name == name.lower() and "_" not in name and not re.search(
        r"\.-|-\.|\.\.", name)
    assert fits == (("/" in name or bare) and not qualified_name_errors(name))


@pytest.mark.parametrize("name", ["documents.kube.rs", "example.com", "a.b-c.d"])
def test_a_domain_without_a_path_is_for_custom_resources(cluster: Cluster, name: str,
                                                         caplog: pytest.LogCaptureFixture) -> None:
    obj = cluster.make()
    with pytest.raises(RequestError, match=f"finalizer of a ConfigMap: .* as in '{name}/cleanup'"):
        finalizer(cluster.maps, name, obj, apply=cluster.apply, cleanup=cluster.cleanup)
    widgets = ApiResource("example.com", "v1", "Widget", "widgets")
    for _ in range(2):
        _check_bare_name(name, widgets)
    assert [record.levelname for record in caplog.records if name in record.getMessage()] == ["WARNING"]


def test_a_class_with_a_bad_name_is_refused_where_it_is_written() -> None:
    with pytest.raises(RequestError, match="'cleanup' is not a name for a finalizer"):
        type("Bad", (FinalizingReconciler,), {"finalizer_name": "cleanup"})
    for no_text in (None, 5, property(lambda self: OURS)):
        with pytest.raises(RequestError, match="is not a name for a finalizer"):
            type("Bad", (FinalizingReconciler,), {"finalizer_name": no_text})


def test_a_reconciler_without_a_name_is_refused_where_it_is_made() -> None:
    class Base(FinalizingReconciler[ConfigMap]):
        """What several reconcilers share, of which each has a name of its own."""

        def apply(self, obj: ConfigMap, ctx: Context[None]) -> Action:
            return Action.await_change()

        def cleanup(self, obj: ConfigMap, ctx: Context[None]) -> Action:
            return Action.await_change()

    class Named(Base):
        finalizer_name = OURS

        def __init__(self, size: int, *, more: bool) -> None:
            self.size, self.more = size, more

    with pytest.raises(RequestError, match="'' is not a name for a finalizer"):
        Base()
    assert Named(3, more=True).size == 3


# Forms and places


class Selected(PartialView, frozen=True):
    data: dict[str, str] | None = None


class Spec(msgspec.Struct):
    size: int = 1


class Bucket(CustomResource, group="example.com", version="v1", kind="Bucket"):
    spec: Spec


def whole(client: Client) -> Api[Any]:
    return Api.all(client, ConfigMap)


def metadata_only(client: Client) -> Api[Any]:
    return Api.all(client, ConfigMap).with_metadata_only()


def fields(client: Client) -> Api[Any]:
    return Api.all(client, ConfigMap).with_fields(Selected)


def dynamic(client: Client) -> Api[Any]:
    return Api.all(client, ApiResource("", "v1", "ConfigMap", "configmaps"))


@pytest.mark.parametrize("form", [whole, metadata_only, fields, dynamic])
def test_every_form_of_an_object_will_do_and_stays_what_it_is(cluster: Cluster, form: Callable[[Client], Any]) -> None:
    """Through the class, which has only the object to tell it from."""
    calls: list[tuple[str, Any]] = []

    class Record(FinalizingReconciler[Any]):
        finalizer_name = OURS

        def apply(self, obj: Any, ctx: Context[None]) -> Action:
            calls.append(("apply", obj))
            return Action.await_change()

        def cleanup(self, obj: Any, ctx: Context[None]) -> Action:
            calls.append(("cleanup", obj))
            return Action.await_change()

    api = form(cluster.client)
    cluster.sim.start(Controller(api), Record())
    cluster.make(OTHER)
    cluster.sim.settle(1)
    assert cluster.finalizers == (OTHER, OURS)
    cluster.maps.delete("a")
    cluster.sim.settle(1)
    assert cluster.finalizers == (OTHER,)
    cluster.set_finalizers()
    cluster.sim.settle(1)
    assert [what for what, _ in calls].count("cleanup") == 1
    assert calls[0][0] == "apply"
    assert {type(obj) for _, obj in calls} == {api.kind}
    assert cluster.finalizers is None


def test_a_conflict_is_quiet_in_the_log_of_a_controller(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    class Nothing(FinalizingReconciler[ConfigMap]):
        finalizer_name = OURS

        def apply(self, obj: ConfigMap, ctx: Context[None]) -> Action:
            return cluster.apply(obj)

        def cleanup(self, obj: ConfigMap, ctx: Context[None]) -> Action:
            return cluster.cleanup(obj)

    cluster.sim.start(Controller(Api.all(cluster.client, ConfigMap)), Nothing())
    cluster.sim.settle(1)
    rule = cluster.server.faults.on("patch").first(1).status(422, details={}, handled=True)
    cluster.make()
    cluster.sim.settle(1)
    assert rule.taken == 1
    assert cluster.finalizers == (OURS,)
    assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]


def test_cluster_scoped_and_custom_kinds_have_finalizers_too(cluster: Cluster) -> None:
    cluster.server.load([Bucket.crd()])
    for api, obj in ((Api.all(cluster.client, Namespace), Namespace(name="team")),
                     (Api.namespaced(cluster.client, Bucket, "default"), Bucket(name="b", spec=Spec()))):
        places: Api[Any] = api
        cluster.run(places.create(obj), places)
        assert places.get(obj.name).finalizers == (OURS,)
        places.delete(obj.name)
        cluster.run(places.get(obj.name), places)
        cluster.sim.settle(60)
        assert places.get_opt(obj.name) is None or places.get(obj.name).finalizers == ()
    assert cluster.called == ["apply", "cleanup"] * 2


def test_an_api_of_all_namespaces_is_used_in_the_namespace_of_the_object(cluster: Cluster) -> None:
    cluster.run(cluster.make(), Api.all(cluster.client, ConfigMap))
    assert cluster.finalizers == (OURS,)


def test_what_is_not_the_place_of_the_object_is_refused_before_any_request(cluster: Cluster) -> None:
    obj = cluster.make()
    with pytest.raises(RequestError, match="an Api of the object's own namespace, or of all"):
        cluster.run(obj, Api.namespaced(cluster.client, ConfigMap, "kube-system"))
    with pytest.raises(RequestError, match="an Api of the object's own kind"):
        cluster.run(obj, Api.namespaced(cluster.client, Secret, "default"))
    with pytest.raises(RequestError, match="no name and uid from the server yet"):
        cluster.run(ConfigMap(name="a", namespace="default"))
    assert (cluster.calls, cluster.sent) == ([], [])


def test_a_view_knows_when_its_object_was_deleted(cluster: Cluster) -> None:
    cluster.make(OTHER)
    views = cluster.maps.with_fields(Selected)
    assert views.get("a").deletion_timestamp is None
    cluster.maps.delete("a")
    assert views.get("a").deletion_timestamp == cluster.maps.get("a").deletion_timestamp is not None
