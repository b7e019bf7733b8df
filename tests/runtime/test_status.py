"""Writing status, over the embedded server: one's own alone, and only when it has changed."""
from __future__ import annotations

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
from kubectl_runtime.resources import ConfigMap, Pod
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
        return status.apply_condition(self.api, obj or self.get(), condition, field_manager=manager, force=force)


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
        assert status.apply_condition(api, given, synced, field_manager="n") is True


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
        assert status.apply_condition(loose, loose.get(made.name), ready, field_manager="m", force=True) is True
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
    with pytest.raises(ApiError, match="subresource 'status'"):
        status.apply_condition(maps, made, Condition(type="Ready", status="True"), field_manager="m")
    with pytest.raises(RequestError, match="a type and a status"):
        status.apply_condition(maps, made, Condition(type="Ready"), field_manager="m")


def test_conditions_of_built_in_kinds_keep_the_fields_that_are_theirs(world: World) -> None:
    pods = Api.namespaced(world.api.client, Pod, "default")
    pods.create({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
    kubelets = {"type": "Ready", "status": "True", "lastProbeTime": "2026-01-01T00:00:00Z"}
    pods.apply_status({"metadata": {"name": "p"}, "status": {"conditions": [kubelets]}}, field_manager="kubelet")
    mine = Condition(type="example.com/SyncGate", status="True", reason="Open")
    assert status.apply_condition(pods, pods.get("p"), mine, field_manager="m") is True
    second = Condition(type="example.com/Second", status="True")
    assert status.apply_condition(pods, pods.get("p"), second, field_manager="kubelet") is True
    found = {entry["type"]: entry for entry in pods.get("p")["status"]["conditions"]}
    assert set(found) == {"Ready", "example.com/SyncGate", "example.com/Second"}
    assert found["Ready"]["lastProbeTime"] == "2026-01-01T00:00:00Z"


# apply_if_changed


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
    with pytest.raises(RequestError, match="a status is a map"):
        status.apply_if_changed(world.api, old, ["x"], field_manager="m")
