"""The rights that reconcilers use: those of their runs and of their events, and nothing that tests do beside them."""
from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
import requests

from kubectl_runtime import (
    Action,
    Api,
    Client,
    Config,
    Context,
    Controller,
    await_condition,
    create_or_update,
    finalizer,
)
from kubectl_runtime.core.meta.metav1 import Condition
from kubectl_runtime.core.requests.rights import Right
from kubectl_runtime.pods import drain
from kubectl_runtime.resources import ConfigMap, Pod, RoleBinding, Secret
from kubectl_runtime.resources.rbac_v1 import RoleRef
from kubectl_runtime.runtime.conditions import is_created
from kubectl_runtime.runtime.status import apply_condition
from kubectl_runtime.testing import ApiServer, Simulation
from kubectl_runtime.testing.rights_recorder import Recorded, RightsRecorder


def reconcile(obj: ConfigMap, ctx: Context[None]) -> Action:
    Api.namespaced(ctx.client, Secret, obj.namespace).get_opt("wanted")
    ctx.record("Looked", "nothing was there")
    return Action.await_change()


def story(sim: Simulation, reconciler: Any = reconcile) -> Client:
    server = ApiServer(clock=sim.clock)
    session = requests.Session()
    session.mount("http://", server.transport())
    client = Client(Config(cluster_url="http://simulated"), session=session, clock=sim.clock)
    sim.start(Controller(Api.all(client, ConfigMap)), reconciler)
    Api.namespaced(client, ConfigMap, "default").create(ConfigMap(name="a"))
    sim.settle(30)
    Api.namespaced(client, ConfigMap, "default").delete("a")
    return client


def test_runs_and_their_events_are_recorded_and_nothing_else(tmp_path: Path) -> None:
    with RightsRecorder() as recorder, story(Simulation()):
        pass
    wanted = [Right("", "secrets", "get", "default"), Right("events.k8s.io", "events", "create", "default"),
              Right("events.k8s.io", "events", "patch", "default")]  # what it needs when the event repeats
    assert recorder.rights() == wanted
    recorder.write(tmp_path / "rights.json")
    assert msgspec.json.decode((tmp_path / "rights.json").read_bytes(), type=Recorded).rights == wanted


def test_after_the_recording_clients_are_as_they_were() -> None:
    call: Any = Client._call
    with RightsRecorder() as recorder:
        assert Client._call is not call
    assert Client._call is call
    with story(Simulation()):
        assert recorder.rights() == []


def finalize(obj: ConfigMap, ctx: Context[None]) -> Action:
    return finalizer(Api.namespaced(ctx.client, ConfigMap, obj.namespace), "example.com/x", obj,
                     apply=lambda _: Action.await_change(), cleanup=lambda _: Action.await_change())


def make_one(obj: ConfigMap, ctx: Context[None]) -> Action:
    create_or_update(Api.namespaced(ctx.client, Secret, obj.namespace), "made", lambda made: None)
    return Action.await_change()


def commit_one(obj: ConfigMap, ctx: Context[None]) -> Action:
    Api.namespaced(ctx.client, Secret, obj.namespace).entry("made").or_insert(lambda: Secret(name="made")).commit()
    return Action.await_change()


def say_ready(obj: ConfigMap, ctx: Context[None]) -> Action:
    pods = Api.namespaced(ctx.client, Pod, obj.namespace)
    apply_condition(pods, pods.list().items[0], Condition(type="Ready", status="True"), field_manager="me")
    return Action.await_change()


def wait_for_it(obj: ConfigMap, ctx: Context[None]) -> Action:
    await_condition(Api.namespaced(ctx.client, ConfigMap, obj.namespace), obj.name, is_created, timeout=5)
    return Action.await_change()


def empty_a_node(obj: ConfigMap, ctx: Context[None]) -> Action:
    drain(ctx.client, "node", timeout=5)
    return Action.await_change()


@pytest.mark.parametrize(("reconcile", "wanted"), [
    (finalize, {"configmaps": {"get", "patch"}}),
    (make_one, {"secrets": {"get", "create", "update"}}),
    (commit_one, {"secrets": {"get", "create", "update"}}),
    (say_ready, {"pods": {"list", "get"}, "pods/status": {"patch"}}),
    (wait_for_it, {"configmaps": {"list", "watch"}}),
    (empty_a_node, {"nodes": {"patch"}, "pods": {"list", "get"}, "pods/eviction": {"create"}})])
def test_what_the_library_goes_on_to_by_itself_needs_no_test_to_lead_there(
        reconcile: Any, wanted: dict[str, set[str]]) -> None:
    done = threading.Event()

    def noted(obj: ConfigMap, ctx: Context[None]) -> Action:
        action: Action = reconcile(obj, ctx)
        done.set()
        return action

    container = [{"name": "a", "image": "a"}]
    with ApiServer() as server, server.client() as client, RightsRecorder() as recorder:
        server.load([{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node"}},
                     {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "default"},
                      "spec": {"containers": container}}])
        with Controller(Api.namespaced(client, ConfigMap, "default")).start(noted):
            Api.namespaced(client, ConfigMap, "default").create(ConfigMap(name="a"))
            assert done.wait(20)
    found: dict[str, set[str]] = {}
    for right in recorder.rights():
        found.setdefault(right.resource, set()).add(right.verb)
    assert found == wanted


def read_one(obj: ConfigMap, ctx: Context[None]) -> Action:
    ctx.read(Secret, "wanted")
    return Action.await_change()


def read_several(obj: ConfigMap, ctx: Context[None]) -> Action:
    ctx.read_all(Secret, labels={"app": obj.name})
    return Action.await_change()


def make_children(obj: ConfigMap, ctx: Context[None]) -> Action:
    ctx.ensure(obj, Secret(name="child"), prune=True)
    return Action.await_change()


def bind_one(obj: ConfigMap, ctx: Context[None]) -> Action:
    ctx.ensure(obj, RoleBinding(name="child", role_ref=RoleRef(api_group="rbac.authorization.k8s.io",
                                                               kind="ClusterRole", name="view")))
    return Action.await_change()


def test_a_written_binding_needs_the_verb_bind_on_its_role() -> None:
    with RightsRecorder() as recorder, story(Simulation(), bind_one):
        pass
    assert Right("rbac.authorization.k8s.io", "clusterroles", "bind", "default", "view") in recorder.rights()


@pytest.mark.parametrize(("reconciler", "verbs"), [
    (read_one, {"get", "list", "watch"}), (read_several, {"get", "list", "watch"}),
    (make_children, {"create", "patch", "delete"})])
def test_what_the_library_does_for_a_run_later_is_recorded_at_once(reconciler: Any, verbs: set[str]) -> None:
    """A read is watched from then on, and children that are pruned are deleted one day, perhaps in no test."""
    with RightsRecorder() as recorder, story(Simulation(), reconciler):
        pass
    assert verbs <= {right.verb for right in recorder.rights() if right.resource == "secrets"}
