"""Writing status, over the embedded server: one's own alone, and only when it has changed."""
from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any

import msgspec
import pytest
import requests

from kubectl_runtime.apiserver.server import ApiServer
from kubectl_runtime.client.api.api import Api
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.client.config.config import Config
from kubectl_runtime.core.base.errors import ApiError, RequestError
from kubectl_runtime.core.base.wire import MapKeys
from kubectl_runtime.core.codec.views import strip_managed_fields
from kubectl_runtime.core.meta.gvk import ApiResource
from kubectl_runtime.core.meta.metav1 import Condition
from kubectl_runtime.core.objects.partial import PartialObjectMeta
from kubectl_runtime.core.requests.params import Patch
from kubectl_runtime.crd.customresource import CustomResource
from kubectl_runtime.resources import ConfigMap, PersistentVolumeClaim, Pod
from kubectl_runtime.runtime import status
from kubectl_runtime.testing.clock import EPOCH, SimClock


class JobStatus(msgspec.Struct, rename="camel", omit_defaults=True):
    conditions: Annotated[list[Condition] | None, MapKeys("type")] = None
    observed_generation: int | None = None
    done: int = 0
    phase: str | None = None


class Work(CustomResource, group="status.example.com", version="v1", kind="Work"):
    spec: dict[str, Any]
    status: JobStatus | None


class Plain(CustomResource, group="status.example.com", version="v1", kind="Plain"):
    spec: dict[str, Any] | None = None
    status: dict[str, Any] | None = None


DynamicPlain = ApiResource(group="status.example.com", version="v1", kind="Plain", plural="plains")


class Loose(CustomResource, group="status.example.com", version="v1", kind="Loose"):
    status: dict[str, Any] | None = None


@dataclass
class World:
    """One object on a server, in one thread, on simulated time."""

    clock: SimClock
    server: ApiServer
    api: Api[Work]

    def get(self) -> Work:
        return self.api.get("a")

    def conditions(self) -> dict[str, Condition]:
        found = self.get().status
        return {condition.type: condition for condition in (found and found.conditions) or ()}

    def writes(self) -> int:
        return len(self.server.requests.select("patch"))

    def apply(self, obj: Work | None = None, *, kind: str = "Ready", to: str = "True", manager: str = "m",
              force: bool = False, **more: Any) -> bool:
        condition = Condition(type=kind, status=to, reason=more.pop("reason", "Because"), **more)
        return status.report(self.api, obj or self.get(), condition, field_manager=manager, force=force)


@pytest.fixture
def world() -> Iterator[World]:
    clock = SimClock(self_advancing=True)
    server = ApiServer(clock=clock)
    server.load([Work.crd()])
    session = requests.Session()
    session.mount("http://", server.transport())
    with Client(Config(cluster_url="http://simulated"), session=session, clock=clock) as client:
        api = Api.namespaced(client, Work, "default")
        api.create(Work(name="a", spec={}))
        yield World(clock, server, api)


def without_managed_fields(obj: Work) -> Work:
    assert obj.record is not None
    return Work.from_record(strip_managed_fields(obj.record))


def later(seconds: float) -> datetime:
    return EPOCH + timedelta(seconds=seconds)


def test_a_first_condition_is_written_with_the_time(world: World) -> None:
    world.clock.advance(5)
    assert world.apply(message="hello", observed_generation=1) is True
    assert world.conditions() == {"Ready": Condition(
        type="Ready", status="True", reason="Because", message="hello", last_transition_time=later(5),
        observed_generation=1)}


def test_nothing_is_sent_when_nothing_has_changed(world: World) -> None:
    world.apply(message="hello")
    before = world.get()
    requests_before = len(world.server.requests)
    assert world.apply(before, message="hello", last_transition_time=later(99)) is False
    assert len(world.server.requests) == requests_before
    assert world.get().resource_version == before.resource_version


def test_the_transition_time_stays_while_the_status_does(world: World) -> None:
    world.apply()
    world.clock.advance(5)
    assert world.apply(message="another") is True
    assert world.conditions()["Ready"].last_transition_time == EPOCH
    assert world.apply(to="False") is True
    assert world.conditions()["Ready"].last_transition_time == later(5)


def test_two_writers_of_conditions_leave_each_other_alone(world: World) -> None:
    world.apply(kind="Ready", manager="m")
    world.apply(kind="Synced", manager="n")
    for number in range(3):
        assert world.apply(kind="Ready", manager="m", to=str(number % 2 == 0), reason=f"m{number}") is True
        assert world.apply(kind="Synced", manager="n", to=str(number % 2 == 1), reason=f"n{number}") is True
    assert {kind: one.reason for kind, one in world.conditions().items()} == {"Ready": "m2", "Synced": "n2"}
    owners = {entry["manager"]: sorted(entry["fieldsV1"]["f:status"]["f:conditions"])
              for entry in world.get()["metadata"]["managedFields"] if entry.get("subresource") == "status"}
    assert owners == {"m": ['k:{"type":"Ready"}'], "n": ['k:{"type":"Synced"}']}


def test_an_old_object_undoes_nothing_of_another_writer(world: World) -> None:
    old = world.get()
    world.apply(kind="Synced", manager="n", to="True")
    world.apply(old, kind="Ready", manager="m")
    assert {kind: one.status for kind, one in world.conditions().items()} == {"Ready": "True", "Synced": "True"}


def test_one_writer_of_several_conditions_keeps_all_of_them(world: World) -> None:
    old = world.get()
    world.apply(old, kind="Ready")
    world.apply(kind="Synced", to="False")
    world.apply(kind="Ready", to="False", reason="Later")
    assert {kind: (one.status, one.reason) for kind, one in world.conditions().items()} == {
        "Ready": ("False", "Later"), "Synced": ("False", "Because")}


def test_a_run_may_report_several_conditions_with_the_object_that_it_was_given(world: World) -> None:
    given = world.get()
    assert world.apply(given, kind="Ready") is True
    assert world.apply(given, kind="Synced") is True
    assert set(world.conditions()) == {"Ready", "Synced"}
    requests_before = len(world.server.requests)
    assert world.apply(given, kind="Synced") is False  # nothing is read either
    assert len(world.server.requests) == requests_before


def test_a_run_may_report_a_beginning_and_an_end_with_the_object_that_it_was_given(world: World) -> None:
    world.apply(kind="Progressing", to="False")
    given = world.get()
    for passed in (10, 20):  # a second run, whose store has not caught up
        world.clock.advance(10)
        assert world.apply(given, kind="Progressing", to="True") is True
        world.clock.advance(5)
        assert world.apply(given, kind="Progressing", to="False") is True
        assert world.conditions()["Progressing"].last_transition_time == later(1.5 * passed)
    assert [entry.method for entry in world.server.requests if entry.path.endswith("/a")].count("GET") == 4  # our own


def test_an_object_that_is_newer_than_the_last_write_is_believed(world: World) -> None:
    world.apply(kind="Ready")
    world.api.apply_status({"metadata": {"name": "a"}, "status": {}}, field_manager="m")
    assert world.apply(kind="Ready") is True


def test_a_server_that_is_restored_from_a_backup_is_believed_after_a_minute(world: World) -> None:
    backup = world.get()
    world.apply(kind="Ready")
    world.api.apply_status({"metadata": {"name": "a"}, "status": {}}, field_manager="m")
    world.clock.advance(59)
    assert world.apply(backup, kind="Ready") is False
    world.clock.advance(2)
    assert world.apply(backup, kind="Ready") is True


def test_another_client_knows_nothing_of_these_writes(world: World) -> None:
    given = world.get()
    world.apply(given, kind="Ready", manager="m")
    session = requests.Session()
    session.mount("http://", world.server.transport())
    with Client(Config(cluster_url="http://simulated"), session=session, clock=world.clock) as other:
        synced = Condition(type="Ready", status="True", reason="Because")
        api = Api.namespaced(other, Work, "default")
        before = len(world.server.requests)
        assert status.report(api, given, synced, field_manager="n") is False  # as a conflict and a read tell
        assert [entry.method for entry in world.server.requests][before:] == ["PATCH", "GET"]


def test_what_others_have_put_into_a_status_ends_nothing(world: World) -> None:
    world.server.load([{
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "loose.status.example.com"}, "spec": {
            "group": "status.example.com", "scope": "Namespaced",
            "names": {"kind": "Loose", "plural": "loose", "singular": "loose"},
            "versions": [{"name": "v1", "served": True, "storage": True, "subresources": {"status": {}}, "schema": {
                "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}]}}])
    loose = Api.namespaced(world.api.client, ApiResource("status.example.com", "v1", "Loose", "loose"), "default")
    ready = Condition(type="Ready", status="True", reason="Because")
    for number, conditions in enumerate((None, "none", 5, {"Ready": True}, ["Ready", None],
                                         [{"type": "Ready", "status": "True", "lastTransitionTime": "yesterday"}])):
        made = loose.create({"metadata": {"name": f"l{number}"}})
        loose.patch_status(made.name, Patch.merge({"status": {"conditions": conditions}}))
        assert status.report(loose, loose.get(made.name), ready, field_manager="m", force=True) is True
        [found] = loose.get(made.name)["status"]["conditions"]
        assert found["status"] == "True"
        assert found["lastTransitionTime"] == "2026-01-01T00:00:00Z"


def test_what_else_a_writer_has_applied_is_kept_as_it_is_now(world: World) -> None:
    world.apply()
    old = world.get()

    def apply_phase(phase: str) -> Work:
        content = {"phase": phase, "conditions": old["status"]["conditions"]}
        return world.api.apply_status({"metadata": {"name": "a"}, "status": content}, field_manager="m")

    seen = apply_phase("x")
    apply_phase("y")
    assert world.apply(seen, to="False") is True
    found = world.get().status
    assert found is not None
    assert found.phase == "y"
    assert world.conditions()["Ready"].status == "False"


def test_another_managers_condition_is_a_conflict_until_it_is_taken(world: World) -> None:
    world.apply(manager="n", to="False")
    with pytest.raises(ApiError) as caught:
        world.apply(manager="m")
    assert caught.value.is_conflict
    assert world.apply(manager="m", force=True) is True
    assert world.conditions()["Ready"].status == "True"


def test_an_object_without_its_managed_fields_is_read_anew(world: World) -> None:
    world.apply(kind="Synced")
    stripped = without_managed_fields(world.get())
    assert world.apply(stripped, kind="Ready") is True
    assert set(world.conditions()) == {"Ready", "Synced"}
    partial = world.api.with_metadata_only().get("a")
    assert isinstance(partial, PartialObjectMeta)
    before = world.writes()
    assert world.apply(partial, kind="Ready") is False  # type: ignore[arg-type]
    assert world.writes() == before


def test_an_object_that_is_gone_or_another_one_is_no_error(world: World) -> None:
    old = world.get()
    world.api.delete("a")
    assert world.apply(old) is False
    assert world.apply(without_managed_fields(old)) is False
    world.api.create(Work(name="a", spec={}))
    assert world.apply(without_managed_fields(old)) is False
    assert world.conditions() == {}


def test_a_kind_without_a_status_is_an_error(world: World) -> None:
    maps = Api.namespaced(world.api.client, ConfigMap, "default")
    made = maps.create(ConfigMap(name="a"))
    with pytest.raises(ApiError, match=r"\.status: field not declared in schema"):
        status.report(maps, made, Condition(type="Ready", status="True"), field_manager="m")
    with pytest.raises(RequestError, match="a type and a status"):
        status.report(maps, made, Condition(type="Ready"), field_manager="m")


def test_conditions_of_built_in_kinds_keep_the_fields_that_are_theirs(world: World) -> None:
    pods = Api.namespaced(world.api.client, Pod, "default")
    pods.create({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
    kubelets = {"type": "Ready", "status": "True", "lastProbeTime": "2026-01-01T00:00:00Z"}
    pods.apply_status({"metadata": {"name": "p"}, "status": {"conditions": [kubelets]}}, field_manager="kubelet")
    mine = Condition(type="example.com/SyncGate", status="True", reason="Open")
    assert status.report(pods, pods.get("p"), mine, field_manager="m") is True
    second = Condition(type="example.com/Second", status="True")
    assert status.report(pods, pods.get("p"), second, field_manager="kubelet") is True
    found = {entry["type"]: entry for entry in pods.get("p")["status"]["conditions"]}
    assert set(found) == {"Ready", "example.com/SyncGate", "example.com/Second"}
    assert found["Ready"]["lastProbeTime"] == "2026-01-01T00:00:00Z"


# Fields and conditions in one apply


def owners(obj: Work) -> dict[str, list[str]]:
    return {entry["manager"]: sorted(entry["fieldsV1"]["f:status"]) for entry in obj["metadata"]["managedFields"]
            if entry.get("subresource") == "status"}


def tell(world: World, *conditions: Condition, obj: Work | None = None, manager: str = "m", **fields: Any) -> bool:
    return status.report(world.api, obj or world.get(), *conditions, field_manager=manager, **fields)


def ready(to: str = "True", kind: str = "Ready", **more: Any) -> Condition:
    return Condition(type=kind, status=to, reason=more.pop("reason", "Because"), **more)


def test_conditions_and_fields_are_one_apply_and_nothing_is_sent_twice(world: World) -> None:
    given = world.get()
    before = len(world.server.requests)
    assert tell(world, ready(), ready("False", "Synced"), obj=given, phase="Running", done=3, observed_generation=1)
    assert len(world.server.requests) == before + 1
    found = world.get()
    assert {**found["status"], "conditions": None} == {
        "phase": "Running", "done": 3, "observedGeneration": 1, "conditions": None}
    assert set(world.conditions()) == {"Ready", "Synced"}
    before = len(world.server.requests)
    for obj in (given, found):
        assert not tell(world, ready("False", "Synced"), ready(), obj=obj, observedGeneration=1, phase="Running",
                        done=3)
        assert not tell(world, ready(), obj=obj)
        assert not tell(world, obj=obj, done=3)
    assert not status.report(world.api, found, field_manager="m")
    assert len(world.server.requests) == before


@pytest.mark.parametrize(("said", "left"), [
    ({"phase": None}, {"done": 3}), ({"done": None}, {"phase": "x", "done": 0}),
    ({"phase": None, "done": None}, {"done": 0}),
    ({"phase": "y"}, {"phase": "y", "done": 3}), ({"observed_generation": None}, {"phase": "x", "done": 3}),
    ({"done": 0}, {"phase": "x", "done": 0}), ({"phase": ""}, {"phase": "", "done": 3})])
def test_a_field_goes_only_by_none(world: World, said: dict[str, Any], left: dict[str, Any]) -> None:
    tell(world, ready(), phase="x", done=3)
    sent = tell(world, **said)
    assert sent is (said != {"observed_generation": None})
    found = dict(world.get()["status"])
    assert found.pop("conditions")[0]["type"] == "Ready"
    assert found == left
    assert tell(world, **said) is False


def test_what_another_manager_says_stays_beside(world: World) -> None:
    tell(world, ready(kind="Theirs"), manager="n", observed_generation=7)
    tell(world, ready(), phase="x")
    tell(world, ready("False"), phase=None, done=2)
    assert dict(world.get()["status"], conditions=None) == {"observedGeneration": 7, "done": 2, "conditions": None}
    assert set(world.conditions()) == {"Ready", "Theirs"}
    assert owners(world.get()) == {"n": ["f:conditions", "f:observedGeneration"], "m": ["f:conditions", "f:done"]}


def test_an_old_object_takes_nothing_back_that_its_manager_said_since(world: World) -> None:
    old = world.get()
    session = requests.Session()
    session.mount("http://", world.server.transport())
    with Client(Config(cluster_url="http://simulated"), session=session, clock=world.clock) as other:
        elsewhere = Api.namespaced(other, Work, "default")  # as the process before, under the same name
        status.report(elsewhere, old, ready(kind="Synced"), field_manager="m", phase="theirs", done=9)
    assert tell(world, ready(), obj=old, done=1)
    assert dict(world.get()["status"], conditions=None) == {"phase": "theirs", "done": 1, "conditions": None}
    assert set(world.conditions()) == {"Ready", "Synced"}


@pytest.mark.parametrize("write", [
    lambda api: api.patch_status("a", Patch.merge({"status": {"phase": "edited"}}), field_manager="kubectl-edit"),
    lambda api: api.replace_status({**api.get("a").to_dict(), "status": {**api.get("a")["status"], "phase": "put"}},
                                   field_manager="dashboard"),
    lambda api: api.patch_status("a", Patch.json([{"op": "replace", "path": "/status/phase", "value": "json"}]))])
def test_a_field_that_an_update_took_is_taken_back(world: World, write: Any) -> None:
    tell(world, phase="x", done=1)
    write(world.api)
    assert tell(world, phase="x") is True
    assert world.get()["status"] == {"phase": "x", "done": 1}
    assert owners(world.get()) == {"m": ["f:done", "f:phase"]}


def test_a_field_that_another_manager_applied_is_a_conflict_until_it_is_taken(world: World) -> None:
    tell(world, manager="n", phase="theirs")
    with pytest.raises(ApiError, match="conflict with \"n\"") as caught:
        tell(world, ready(), phase="ours")
    assert caught.value.is_conflict
    assert world.conditions() == {}
    assert tell(world, ready(), phase="theirs")  # equal: it is shown
    assert tell(world, phase="ours", force=True)
    assert world.get()["status"]["phase"] == "ours"


def test_a_kind_without_a_status_subresource_is_written_as_a_whole(world: World) -> None:
    api = without_status(world)
    api.apply({"metadata": {"name": "p", "labels": {"a": "b"}}, "spec": {"size": 1}}, field_manager="m")
    for number in range(3):
        assert status.report(api, api.get("p"), ready(str(number % 2 == 0)), field_manager="m", phase=str(number))
    found = api.get("p").to_dict()
    assert (found["spec"], found["metadata"]["labels"], found["status"]["phase"]) == ({"size": 1}, {"a": "b"}, "2")
    before = len(world.server.requests)
    assert not status.report(api, api.get("p"), ready(), field_manager="m", phase="2")
    assert len(world.server.requests) == before + 1  # our own get
    writes = [request.path.rpartition("/")[2] for request in world.server.requests.select("patch")
              if "/plains/" in request.path]
    assert writes == ["p", "status", "p", "p", "p"]  # that there is none is asked once


def without_status(world: World) -> Api[Plain]:
    crd = Plain.crd()
    for version in crd["spec"]["versions"]:
        del version["subresources"]
    world.server.load([crd])
    return Api.namespaced(world.api.client, Plain, "default")


@pytest.mark.parametrize("said", [{"phase": None}, {"other": "2"}, {}], ids=["a field goes", "another one", "none"])
def test_a_new_process_keeps_what_an_earlier_one_said_of_a_kind_without_a_status(world: World, said: Any) -> None:
    """It learns by its first write that there is no status subresource, so its fields are in another entry."""
    api = without_status(world)
    made = api.create(Plain(name="p", spec={}))
    assert status.report(api, made, ready(), field_manager="m", phase="1")
    session = requests.Session()
    session.mount("http://", world.server.transport())
    with Client(Config(cluster_url="http://simulated"), session=session, clock=world.clock) as fresh:
        renewed = Api.namespaced(fresh, DynamicPlain, "default")
        assert status.report(renewed, renewed.get("p"), ready(kind="Synced"), field_manager="m", **said)
        found = api.get("p").to_dict()["status"]
        assert {one["type"] for one in found.pop("conditions")} == {"Ready", "Synced"}
        assert found == {key: value for key, value in {"phase": "1", **said}.items() if value is not None}
        assert not status.report(renewed, renewed.get("p"), ready(), field_manager="m")


def test_a_new_process_removes_a_field_of_a_kind_without_a_status(world: World) -> None:
    api = without_status(world)
    assert status.report(api, api.create(Plain(name="p", spec={})), ready(), field_manager="m", phase="1")
    session = requests.Session()
    session.mount("http://", world.server.transport())
    with Client(Config(cluster_url="http://simulated"), session=session, clock=world.clock) as fresh:
        renewed = Api.namespaced(fresh, DynamicPlain, "default")
        assert status.report(renewed, renewed.get("p"), field_manager="m", phase=None)
    assert {*api.get("p").to_dict()["status"]} == {"conditions"}


@pytest.mark.parametrize("by", ["condition", "field", "both"])
def test_the_observed_generation_of_a_kind_without_a_status_comes_to_rest(world: World, by: str) -> None:
    """Each write makes a generation; a report that names the present one is not out of date by itself."""
    api = without_status(world)
    api.create(Plain(name="p", spec={}))

    def tell() -> bool:
        seen = api.get("p")
        conditions = [ready(observed_generation=seen.generation)] if by != "field" else []
        fields = {"observedGeneration": seen.generation} if by != "condition" else {}
        return status.report(api, seen, *conditions, field_manager="m", **fields)

    for _ in range(2):
        assert [tell(), tell(), tell()] == [True, False, False]
        found = api.get("p")
        observed = found.to_dict()["status"]
        assert {observed.get("observedGeneration", found.generation),
                *(one["observedGeneration"] for one in observed.get("conditions", []))} == {found.generation}
        api.patch("p", Patch.merge({"spec": {"size": 2}}))


@pytest.mark.parametrize("fields", [{"capacity": {"storage": "1024Mi"}}, {"capacity": {"storage": "2000000000m"}},
                                    {"phase": "Bound", "capacity": {"storage": "0.5Gi"}}])
def test_what_the_server_makes_something_else_of_is_sent_once(world: World, fields: dict[str, Any]) -> None:
    claims = Api.namespaced(world.api.client, PersistentVolumeClaim, "default")
    made = claims.create({"metadata": {"name": "a"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}})
    assert status.report(claims, made, field_manager="m", **fields) is True
    assert claims.get("a")["status"]["capacity"] != fields["capacity"]
    for obj in (made, claims.get("a")):
        assert status.report(claims, obj, field_manager="m", **fields) is False
    claims.patch_status("a", Patch.merge({"status": {"capacity": {"storage": "7Gi"}}}))
    assert status.report(claims, claims.get("a"), field_manager="m", **fields) is True


def test_fields_are_checked_before_anything_is_sent(world: World) -> None:
    before = len(world.server.requests)
    given = Work(name="a", spec={})
    for said, words in (({"phas": "x"}, "no field phas (did you mean 'phase'?)"), ({"done": "many"}, "text"),
                        ({"conditions": []}, "pass conditions by position"), ({"nothing": 1}, "no field nothing")):
        with pytest.raises(RequestError) as caught:
            tell(world, obj=world.get(), **said)
        assert words in str(caught.value)
    for conditions in ((ready(), ready("False")), ({"type": "Ready", "status": "True"},)):
        with pytest.raises(RequestError, match=r"two conditions have the type Ready|a condition must be a Condition"):
            tell(world, *conditions, obj=world.get())  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="no name and uid from the server"):
        tell(world, obj=given, phase="x")
    with pytest.raises(RequestError, match="a status needs a field manager"):
        status.report(world.api, world.get(), phase="x")
    with pytest.raises(RequestError, match="own kind"):
        status.report(Api.all(world.api.client, Pod), world.get(), field_manager="m", phase="x")
    with pytest.raises(RequestError, match="own namespace"):
        status.report(Api.namespaced(world.api.client, Work, "other"), world.get(), field_manager="m", phase="x")
    assert len(world.server.requests.select("patch")) == 0 < before


@pytest.mark.parametrize("fields", [
    {"observedGeneration": 4, "observed_generation": 5}, {"observed_generation": 5, "observedGeneration": 5},
    {"observedGeneration": None, "observed_generation": 5}])
def test_two_spellings_of_one_field_are_refused(world: World, fields: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match="two values of the field observedGeneration are given"):
        tell(world, obj=world.get(), **fields)
    assert not world.server.requests.select("patch")
    assert tell(world, obj=world.get(), observedGeneration=6) is True


def test_two_spellings_of_a_field_of_another_class_are_refused(world: World) -> None:
    pods = Api.namespaced(world.api.client, Pod, "default")
    pod = pods.create({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
    with pytest.raises(RequestError, match="two values of the field podIP are given"):
        status.report(pods, pod, field_manager="m", pod_ip="10.0.0.1", podIP="10.0.0.2")
    loose = ApiResource("status.example.com", "v1", "Work", "works")  # declares no fields: any name is its own
    works = Api.namespaced(world.api.client, loose, "default")
    assert status.report(works, works.get("a"), field_manager="m", observedGeneration=4, done=5) is True


def test_any_api_of_the_kind_will_do(world: World) -> None:
    client = world.api.client
    for number, api in enumerate((Api.all(client, Work), world.api.with_metadata_only(),
                                  Api.all(client, Work.api_resource))):
        obj = api.get("a") if number == 1 else world.get()
        assert status.report(api, obj, field_manager="m", done=number + 1) is True
        assert world.get()["status"] == {"done": number + 1}


@pytest.mark.parametrize("how", ["lost", "unsent", "conflict", "busy"])
def test_a_write_that_is_not_answered_is_made_up_for(world: World, how: str) -> None:
    given, rule = world.get(), world.server.faults.on("patch").first(1)
    {"lost": rule.lose_answer, "unsent": rule.drop, "conflict": lambda: rule.status(409, "Conflict"),
     "busy": lambda: rule.status(503)}[how]()
    assert tell(world, ready(), obj=given, phase="x") is True
    assert world.get()["status"]["phase"] == "x"
    assert tell(world, ready(), obj=given, phase="x") is False


def test_who_is_always_slower_gets_the_conflict(world: World) -> None:
    given = world.get()
    world.server.faults.on("patch").status(409, "Conflict")
    with pytest.raises(ApiError) as caught:
        tell(world, obj=given, phase="x")
    assert caught.value.is_conflict
    assert world.writes() == status.ATTEMPTS


def test_a_namesake_is_not_told(world: World) -> None:
    tell(world, phase="x")
    old = world.get()
    world.api.delete("a")
    world.api.create(Work(name="a", spec={}))
    assert tell(world, ready(), obj=old, phase="y") is False
    assert world.get().status is None


# The two that are deprecated


def test_the_two_that_came_before_warn_and_may_share_a_manager(world: World) -> None:
    given = world.get()
    for _ in range(3):
        with pytest.warns(DeprecationWarning,
                          match="apply_condition is deprecated and will be removed in 0.4: use report"):
            status.apply_condition(world.api, world.get(), ready(), field_manager="m")
        with pytest.warns(DeprecationWarning,
                          match="apply_if_changed is deprecated and will be removed in 0.4: use report"):
            status.apply_if_changed(world.api, given, {"phase": "x"}, field_manager="m")
        assert world.get()["status"]["phase"] == "x"
        assert set(world.conditions()) == {"Ready"}
    assert world.writes() == 2


@pytest.fixture(autouse=True)
def _ignored() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "status.apply_if_changed", DeprecationWarning)
        yield


def test_a_status_is_applied_once_and_then_left_alone(world: World) -> None:
    wanted = JobStatus(observed_generation=1, done=3)
    first = status.apply_if_changed(world.api, world.get(), wanted, field_manager="m")
    assert first.status == wanted
    before = world.writes()
    assert status.apply_if_changed(world.api, first, wanted, field_manager="m") is first
    assert world.writes() == before


@pytest.mark.parametrize(("before", "after", "sent"), [(1, True, 1), (False, 0, 1), (1, 1.0, 0)])
def test_true_is_another_status_than_1(world: World, before: object, after: object, sent: int) -> None:
    world.server.load([Loose.crd()])
    api = Api.namespaced(world.api.client, Loose, "default")
    made = api.create(Loose(name="a"))
    first = status.apply_if_changed(api, made, {"anything": before}, field_manager="m")
    writes = world.writes()
    status.apply_if_changed(api, first, {"anything": after}, field_manager="m")
    assert world.writes() == writes + sent


def test_a_status_from_before_is_applied_again_over_one_that_was_written_since(world: World) -> None:
    status.apply_if_changed(world.api, world.get(), {"phase": "Done"}, field_manager="m")
    given = world.get()
    for phase in ("Working", "Done"):
        status.apply_if_changed(world.api, given, {"phase": phase}, field_manager="m")
        found = world.get().status
        assert found is not None
        assert found.phase == phase


def test_what_is_no_longer_wanted_goes(world: World) -> None:
    first = status.apply_if_changed(world.api, world.get(), {"phase": "x", "done": 3}, field_manager="m")
    second = status.apply_if_changed(world.api, first, {"done": 3}, field_manager="m")
    assert second["status"] == {"done": 3}


def test_what_others_wrote_does_not_count_as_a_change(world: World) -> None:
    first = status.apply_if_changed(world.api, world.get(), {"phase": "x"}, field_manager="m")
    world.apply(first, manager="n")
    seen = world.get()
    assert status.apply_if_changed(world.api, seen, {"phase": "x"}, field_manager="m") is seen


def test_a_status_that_somebody_overwrote_is_a_conflict_until_it_is_taken(world: World) -> None:
    status.apply_if_changed(world.api, world.get(), {"phase": "x"}, field_manager="m")
    status.apply_if_changed(world.api, world.get(), {"phase": "y"}, field_manager="n", force=True)
    with pytest.raises(ApiError) as caught:
        status.apply_if_changed(world.api, world.get(), {"phase": "x"}, field_manager="m")
    assert caught.value.is_conflict
    taken = status.apply_if_changed(world.api, world.get(), {"phase": "x"}, field_manager="m", force=True)
    assert taken["status"]["phase"] == "x"


def test_without_managed_fields_only_an_equal_status_is_left_alone(world: World) -> None:
    status.apply_if_changed(world.api, world.get(), {"phase": "x", "done": 1}, field_manager="m")
    stripped = without_managed_fields(world.get())
    before = world.writes()
    assert status.apply_if_changed(world.api, stripped, {"phase": "x", "done": 1}, field_manager="m") is stripped
    assert world.writes() == before
    status.apply_if_changed(world.api, stripped, {"phase": "y", "done": 1}, field_manager="m")
    assert world.writes() == before + 1


def test_the_status_of_an_object_that_is_gone_is_dropped(world: World) -> None:
    old = world.get()
    world.api.delete("a")
    assert status.apply_if_changed(world.api, old, {"phase": "x"}, field_manager="m") is old
    with pytest.raises(RequestError, match="a status must be a map"):
        status.apply_if_changed(world.api, old, ["x"], field_manager="m")
