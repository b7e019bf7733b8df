"""Reading a cluster: what is asked for, what is kept, what is missing; and nothing is written."""
from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
import logging
import stat
import tracemalloc
import zlib
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from kubectl_runtime import (
    Action,
    Api,
    ApiResource,
    Client,
    Controller,
    LeaderElection,
    Manager,
    RequestError,
    apply_crd,
)
from kubectl_runtime.plan import Snapshot, SnapshotError, plan
from kubectl_runtime.plan.stored import Redaction
from kubectl_runtime.resources import ConfigMap, Deployment, Pod, Secret, SelfSubjectAccessReview
from kubectl_runtime.testing import ApiServer
from tests.plan import sites
from tests.plan.conftest import World, sites_world

TOKEN = "correct-horse-battery-staple"
CONFIG = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: default}\ndata: {pin: '4711', url: 'x'}"


def watching(*kinds: Any, reconcile: Any = None) -> Any:
    def build(client: Client) -> Any:
        controller = Controller(Api.all(client, kinds[0]), name="reader")
        for kind in kinds[1:]:
            controller = controller.owns(Api.all(client, kind))
        return controller.bind(reconcile or (lambda obj, ctx: Action.await_change()))
    return build


def test_nothing_but_lists_reaches_the_cluster() -> None:
    """A server that counts: no write, event, lease or watch, neither while it is read nor while it is planned."""
    def reconcile(obj: Any, ctx: Any) -> Action:
        ctx.record("Seen", "an event")
        Api.namespaced(ctx.client, ConfigMap, obj.namespace).apply(
            {"metadata": {"name": "made"}, "data": {"a": "b"}}, field_manager="me")
        return Action.await_change()

    def build(client: Client) -> Manager:
        manager = Manager(client, leader=LeaderElection("mine", "default"))
        manager.add_runnable(lambda stop: stop.wait(1), "background")
        return manager.add(Controller(Api.namespaced(client, ConfigMap, "default")), reconcile)

    with ApiServer(controllers=["*"]) as server, server.client() as client:
        server.load(CONFIG)
        before, state = len(list(server.requests)), server.snapshot()
        found = plan(build, Snapshot.read(client, build))
        assert [str(change) for change in found.created] == ["create ConfigMap default/made"]
        asked = list(server.requests)[before:]
        assert {request.method for request in asked} == {"GET"}
        assert not [request for request in asked if "watch" in str(request.query)]
        assert not [request for request in asked if "/events" in request.path or "/leases" in request.path]
        assert server.snapshot()[0] == state[0]
        assert "the function background of its Manager" in found.not_simulated


def test_a_program_that_writes_while_it_is_built_is_refused() -> None:
    def build(client: Client) -> Any:
        Api.namespaced(client, ConfigMap, "default").create(ConfigMap(name="x"))

    with ApiServer() as server, server.client() as client, pytest.raises(RequestError, match="a plan writes nothing"):
        Snapshot.read(client, build)


def test_lists_come_in_pages() -> None:
    world = World()
    world.server.load([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"c{number:04}"}}
                       for number in range(1203)])
    found = Snapshot.read(world.client, watching(ConfigMap))
    assert found.by_name["configmaps"].count >= 1203
    pages = [request for request in world.server.requests if request.path == "/api/v1/configmaps"]
    assert len(pages) >= 3
    world.sim.close()


def test_owners_children_and_what_the_program_asks_for_are_read(world: World) -> None:
    def reconcile(obj: Any, ctx: Any) -> Action:
        Api.namespaced(ctx.client, Secret, obj.namespace).get_opt("other")
        return Action.await_change()

    found = Snapshot.read(world.client, watching(Deployment, reconcile=reconcile))
    assert {"deployments.apps", "replicasets.apps", "pods", "sites.plan.example.com", "secrets",
            "namespaces"} <= set(found.by_name)
    assert "services" not in found.by_name
    assert [obj["metadata"]["name"] for obj in found.objects if obj["kind"] == "CustomResourceDefinition"] == [
        "sites.plan.example.com"]
    assert Snapshot.read(world.client, watching(Pod), kinds=[ApiResource("", "v1", "Service", "services")]).by_name[
        "services"].count


def test_only_the_named_namespaces(world: World) -> None:
    world.server.load("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, namespace: kube-public}")
    found = Snapshot.read(world.client, watching(ConfigMap), namespaces=["kube-public"])
    assert {obj["metadata"]["namespace"] for obj in found.objects if obj["kind"] == "ConfigMap"} == {"kube-public"}
    one = Snapshot.read(world.client, lambda client: Controller(
        Api.namespaced(client, ConfigMap, "kube-public")).bind(lambda obj, ctx: Action.await_change()))
    assert one.by_name["configmaps"].namespaces == ("kube-public",)


def rights(*resources: str) -> list[dict[str, Any]]:
    rules = [{"apiGroups": ["*"], "resources": list(resources), "verbs": ["get", "list", "watch"]}]
    return [{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "r"},
             "rules": rules},
            {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "r"},
             "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"},
             "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "planner"}]}]


@pytest.fixture(scope="module")
def objects_of_sites() -> list[dict[str, Any]]:
    made = sites_world()
    objects = [{"apiVersion": kind.resource.api_version, "kind": kind.kind, **obj.to_dict()}
               for kind in Snapshot.read(made.client, sites.RUNNING.build).kinds
               for obj in Api.all(made.client, kind.resource).list()]
    made.sim.close()
    return objects


@pytest.mark.parametrize("allowed", [("sites", "configmaps", "services", "deployments", "namespaces"),
                                     ("sites", "customresourcedefinitions"), ("sites",)])
def test_a_missing_right_is_named_and_what_follows_is_unknown(
        objects_of_sites: list[dict[str, Any]], allowed: tuple[str, ...]) -> None:
    with ApiServer(authorization_mode="RBAC", tokens={"t": "planner"}, controllers=["*"]) as server:
        with server.client() as admin:
            apply_crd(admin, sites.Site)
        server.implant([obj for obj in objects_of_sites if obj["kind"] != "CustomResourceDefinition"])
        server.load(rights(*allowed))
        with server.client("planner") as client:
            snapshot = Snapshot.read(client, sites.RUNNING.build)
        found = plan(sites.RUNNING.build, snapshot)
    assert not found.created, str(found)
    assert not found.failed, str(found)
    text = "\n".join(map(str, found.unknown))
    assert "the right to list secrets is missing" in text
    assert "create Secret default/a" in text
    assert ("create ConfigMap default/a" in text) == ("configmaps" not in allowed)
    assert not found.empty


def test_each_namespace_that_must_not_be_listed_is_named() -> None:
    with ApiServer(authorization_mode="RBAC", tokens={"t": "planner"}) as server:
        rules, binding = rights("configmaps")
        server.load([{**rules, "kind": "Role", "metadata": {"name": "r", "namespace": "kube-public"}},
                     {**binding, "kind": "RoleBinding", "metadata": {"name": "r", "namespace": "kube-public"},
                      "roleRef": {**binding["roleRef"], "kind": "Role"}}])
        with server.client("planner") as client:
            found = Snapshot.read(client, watching(ConfigMap), namespaces=["default", "kube-public", "kube-system"])
    assert found.by_name["configmaps"].refused == ("list configmaps in namespace default, "
                                                   "list configmaps in namespace kube-system")


def secret_objects(world: World) -> None:
    applied = json.dumps({"data": {"token": base64.b64encode(TOKEN.encode()).decode()}})
    world.server.load([
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default", "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": applied}}, "stringData": {"token": TOKEN}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "copy", "namespace": "default"},
         "stringData": {"other": TOKEN, "short": "a", "empty": ""}}])


def appears(text: str) -> bool:
    encoded = base64.b64encode(TOKEN.encode()).decode()
    return any(part in text for part in (TOKEN, encoded, encoded[:20], TOKEN[:12]))


def test_values_of_secrets_are_digests_of_equal_length(tmp_path: Path) -> None:
    world = World()
    secret_objects(world)
    first, second = (Snapshot.read(world.client, watching(Secret)) for _ in range(2))
    secrets = {obj["metadata"]["name"]: obj for obj in first.objects if obj["kind"] == "Secret"}
    digest = secrets["s"]["data"]["token"]
    assert len(base64.b64decode(digest)) == len(TOKEN)
    assert secrets["copy"]["data"]["other"] == digest  # a copy stays a copy
    assert len(base64.b64decode(secrets["copy"]["data"]["short"])) == 1
    assert secrets["copy"]["data"]["empty"] == ""
    again = {obj["metadata"]["name"]: obj for obj in second.objects if obj["kind"] == "Secret"}
    assert again["s"]["data"]["token"] != digest  # another key
    first.save(tmp_path / "s.json")
    assert not appears((tmp_path / "s.json").read_text())
    assert not appears(repr(first))
    world.sim.close()


@pytest.mark.parametrize("part", ["data", "stringData"])
def test_each_part_of_a_secret_that_holds_values_is_redacted(part: str) -> None:
    value = base64.b64encode(TOKEN.encode()).decode() if part == "data" else TOKEN
    given = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, part: {"token": value}}
    found = Redaction().redact(given)
    assert not appears(json.dumps(found))
    assert len(found[part]["token"]) == len(value)
    assert given[part] == {"token": value}


def test_no_value_of_a_secret_is_shown_anywhere(caplog: pytest.LogCaptureFixture) -> None:
    """Not one that the program makes up either: in fields, differences, errors, logs, pages."""
    caplog.set_level(logging.DEBUG)
    own = base64.b64encode(b"made-by-the-program").decode()

    def reconcile(obj: Secret, ctx: Any) -> Action:
        api = Api.namespaced(ctx.client, Secret, "default")
        if obj.name == "s" and "new" not in (obj.data or {}):
            api.apply({"metadata": {"name": "s"}, "data": {"new": own}}, field_manager="me")
            Api.namespaced(ctx.client, ConfigMap, "default").apply(
                {"metadata": {"name": "leak"}, "data": {"a": "made-by-the-program"}}, field_manager="me")
        if obj.name == "copy":
            value = (obj.data or {})["other"]
            raise ValueError(f"cannot use {value!r} {own} made-by-the-program")
        return Action.await_change()

    world = World()
    secret_objects(world)
    world.server.load("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: leak, namespace: default}\ndata: {a: b}")
    snapshot = Snapshot.read(world.client, watching(Secret, reconcile=reconcile))
    found = plan(watching(Secret, reconcile=reconcile), snapshot)
    shown = "\n".join([str(found), json.dumps(found.to_dict()), found.to_html(), repr(found), caplog.text])
    assert not appears(shown)
    assert own not in shown
    assert "made-by-the-program" not in shown
    assert "data.new: nothing -> ***" in str(found)
    assert "cannot use" in str(found)
    world.sim.close()


DOCKER = json.dumps({"auths": {"r.example.com": {"username": "robot", "password": "inner-password-of-json"}}})
PEM = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\nBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj\n-----END-----\n"


@pytest.mark.parametrize(("value", "quoted", "forbidden"), [
    ("made-by-the-program", lambda value: value.encode().hex(), "6d6164652d6279"),
    ("made by/the=program", lambda value: f"postgres://u:{quote(value, safe='')}@db", "made%20by%2Fthe"),
    ("made-by-the-program", lambda value: base64.b64encode(base64.b64encode(value.encode())).decode(), "YldGa1pT"),
    (PEM, repr, "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC"),
    (DOCKER, lambda value: f"login failed with {json.loads(value)['auths']['r.example.com']}", "inner-password"),
    ("made-by-the-program", lambda value: "Basic " + base64.b64encode(f"user:{value}".encode()).decode(), "Basic dX"),
    ("made-by-the-program", lambda value: base64.urlsafe_b64encode(f"{{'p': '{value}'}}".encode()).decode().strip("="),
     "eydwJz"), ("made-by-the-program", str.upper, "PROGRAM"),
    ("made-by-the-program", lambda value: value.encode().hex().upper(), "6D6164652D6279"),
    ('quo"ted & \\hush', lambda value: json.dumps({"p": value}), "hush"), ('quo"ted <hush>', html.escape, "hush"),
    ("pass", lambda value: "passwordpass", "wordpass")], ids=[
        "hex", "url", "twice", "pem", "json", "basic", "inside", "upper", "upper hex", "escaped", "html", "parts"])
def test_a_secret_is_starred_in_whatever_form_it_is_quoted(value: str, quoted: Any, forbidden: str) -> None:
    def reconcile(obj: Any, ctx: Any) -> Action:
        Api.namespaced(ctx.client, Secret, "default").apply(
            {"metadata": {"name": "made"}, "stringData": {"value": value, "longer": "passwordpass"}},
            field_manager="me")
        ctx.api(ConfigMap).apply({"metadata": {"name": "c"}, "data": {"url": quoted(value)}}, field_manager="me",
                                 force=True)
        raise ValueError(f"cannot use {quoted(value)}")

    def build(client: Client) -> Any:
        return Controller(Api.namespaced(client, ConfigMap, "default"), name="leaky").bind(reconcile)

    world = World()
    world.server.load([CONFIG])
    found = plan(build, Snapshot.read(world.client, build))
    shown = "\n".join([str(found), json.dumps(found.to_dict()), found.to_html(), repr(found)])
    assert "cannot use" in shown
    assert "***" in shown
    assert forbidden not in shown
    world.sim.close()


def test_named_fields_are_redacted_too(tmp_path: Path) -> None:
    world = World()
    world.server.load([CONFIG])
    found = Snapshot.read(world.client, watching(ConfigMap), redact=["ConfigMap:data.pin"])
    [config] = [obj for obj in found.objects if obj["metadata"]["name"] == "c"]
    assert config["data"]["url"] == "x"
    assert config["data"]["pin"] != "4711"
    assert len(config["data"]["pin"]) == 4
    assert found.redacted == ("ConfigMap:data.pin",)

    def reconcile(obj: Any, ctx: Any) -> Action:
        Api.namespaced(ctx.client, ConfigMap, "default").apply(
            {"metadata": {"name": "c"}, "data": {"pin": "123456789", "url": "y"}}, field_manager="me", force=True)
        return Action.await_change()

    shown = plan(watching(ConfigMap, reconcile=reconcile), found)
    assert "123456789" not in str(shown) + shown.to_html() + json.dumps(shown.to_dict())
    assert 'data.url: "x" -> "y"' in str(shown)
    for wrong in ("ConfigMap", "ConfigMap:", ":data", "ConfigMap:a..b"):
        with pytest.raises(RequestError, match="names no field"):
            Snapshot.read(world.client, watching(ConfigMap), redact=[wrong])
    world.sim.close()


def test_the_copy_that_kubectl_keeps_of_a_named_field_is_redacted_too(tmp_path: Path) -> None:
    """Of an object, and of a definition, which is read before all objects."""
    kept = "kubectl.kubernetes.io/last-applied-configuration"
    world = World()
    world.server.load([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
        "name": "c", "namespace": "default", "annotations": {kept: '{"data":{"pin":"4711"}}'}},
        "data": {"pin": "4711"}}])
    definition = sites.Site.crd()
    definition["metadata"]["annotations"] = {kept: '{"about":"secret-words"}', "about": "secret-words"}
    world.server.load([definition])
    found = Snapshot.read(world.client, watching(ConfigMap, sites.Site), redact=[
        "ConfigMap:data.pin", "CustomResourceDefinition:metadata.annotations.about"])
    found.save(tmp_path / "s.json")
    text = (tmp_path / "s.json").read_text()
    assert "last-applied-configuration" in text
    assert "4711" not in text
    assert "secret-words" not in text
    world.sim.close()


def test_a_saved_snapshot_is_the_same(running: Snapshot, tmp_path: Path) -> None:
    found = running
    for name in ("a.json", "b.json.gz"):
        found.save(tmp_path / name)
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
        assert Snapshot.load(tmp_path / name) == found
    assert (tmp_path / "b.json.gz").stat().st_size < (tmp_path / "a.json").stat().st_size / 3
    assert "2026-01-01" in str(found)


def test_the_fixture_reads_it(running: Snapshot, tmp_path: Path, kube_snapshot: Any) -> None:
    running.save(tmp_path / "a.json.gz")
    assert kube_snapshot(tmp_path / "a.json.gz") == running
    with pytest.raises(FileNotFoundError, match="tests/plan/no-such-file"):
        kube_snapshot("no-such-file")


@pytest.mark.parametrize(("content", "why"), [
    (b'{"format": 99}', "version 99 of the snapshot format"), (b"{}", "version None"),
    (b"nonsense", "holds no snapshot"),
    (b'{"format": 1, "objects": 3}', "damaged"), (b"\x1f\x8bnonsense", "holds no snapshot"), (b"", "no snapshot"),
    (b'[1]', "no snapshot")])
def test_another_format_is_refused(tmp_path: Path, content: bytes, why: str) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(SnapshotError, match=why):
        Snapshot.load(tmp_path / "x")


DAMAGES: dict[str, Any] = {
    "no kind": lambda saved: saved["objects"].append({"metadata": {"name": "x"}}),
    "no name": lambda saved: saved["objects"].append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}),
    "metadata": lambda saved: saved["objects"][-1].update(metadata="x"),
    "an owner": lambda saved: saved["objects"][-1]["metadata"].update(ownerReferences=["x"]),
    "a version": lambda saved: saved["objects"][-1]["metadata"].update(resourceVersion="x"),
    "a definition": lambda saved: saved["objects"].append({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "x"}}),
    "a Deployment": lambda saved: [obj.update(spec=[3]) for obj in saved["objects"] if obj["kind"] == "Deployment"],
    "a schema": lambda saved: [obj["spec"]["versions"][0]["schema"]["openAPIV3Schema"].update(properties=["x"])
                               for obj in saved["objects"] if obj["kind"] == "CustomResourceDefinition"],
    "twice": lambda saved: saved["objects"].append(saved["objects"][-1]),
    "the time": lambda saved: saved.update(read_at="0001-01-01T00:00:00+14:00"),
    "a redaction": lambda saved: saved.update(redacted=["x"])}


@pytest.mark.parametrize("damage", sorted(DAMAGES))
def test_a_damaged_snapshot_is_refused_with_one_error(running: Snapshot, tmp_path: Path, damage: str) -> None:
    running.save(tmp_path / "s.json")
    saved = json.loads((tmp_path / "s.json").read_text())
    DAMAGES[damage](saved)
    (tmp_path / "s.json").write_text(json.dumps(saved))
    with pytest.raises(SnapshotError, match="damaged"):
        plan(sites.RUNNING.build, Snapshot.load(tmp_path / "s.json"))


def test_a_file_of_endless_size_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubectl_runtime.plan.stored.LARGEST", 1 << 20)
    (tmp_path / "bomb").write_bytes(gzip.compress(b" " * (40 << 20)))
    (tmp_path / "long").write_bytes(b" " * (2 << 20))
    for path in (tmp_path / "bomb", tmp_path / "long", Path("/dev/zero")):
        tracemalloc.start()
        try:
            with pytest.raises(SnapshotError, match="more than 1 MiB"):
                Snapshot.load(path)
            assert tracemalloc.get_traced_memory()[1] < 10 << 20
        finally:
            tracemalloc.stop()


def copying(namespace: str) -> Any:
    """A program that watches the ConfigMaps of kube-public, and keeps one in another namespace."""
    def reconcile(obj: Any, ctx: Any) -> Action:
        Api.namespaced(ctx.client, ConfigMap, namespace).apply(
            {"metadata": {"name": "copy"}, "data": {"a": "b"}}, field_manager="load", force=True)
        return Action.await_change()

    def build(client: Client) -> Any:
        return Controller(Api.namespaced(client, ConfigMap, "kube-public"), name="copier").bind(reconcile)
    return build


def test_the_namespaces_that_a_program_asks_for_are_read_too() -> None:
    world = World()
    world.server.load(["apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, namespace: kube-public}",
                       "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: copy, namespace: default}\ndata: {a: b}"])
    found = Snapshot.read(world.client, copying("default"))
    assert set(found.by_name["configmaps"].namespaces or ()) == {"kube-public", "default"}
    assert plan(copying("default"), found).empty
    other = plan(copying("kube-system"), found)  # a later version, on a snapshot of the earlier one
    assert not other.created
    text = "\n".join(map(str, other.unknown))
    assert "create ConfigMap kube-system/copy: namespace kube-system was not read" in text
    assert "ConfigMap objects in namespace kube-system: are requested by the program but were not read" in text
    world.sim.close()


def test_a_namespace_without_the_right_to_read_it_is_a_gap_of_that_namespace() -> None:
    with ApiServer(authorization_mode="RBAC", tokens={"t": "planner"}, controllers=["*"]) as server:
        server.load([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "kube-public"}},
                     {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "copy", "namespace": "default"},
                      "data": {"a": "b"}}])
        role, binding = rights("configmaps")
        server.load([role, {**binding, "kind": "RoleBinding", "metadata": {"name": "r", "namespace": "kube-public"}}])
        with server.client("planner") as client:
            snapshot = Snapshot.read(client, copying("default"))
        found = plan(copying("default"), snapshot)
    text = "\n".join(map(str, found.unknown))
    assert "the right to list configmaps in namespace default is missing" in text
    assert not found.created
    assert "create ConfigMap default/copy" in text


def hashing(image: str = "i:1", how: Any = None) -> Any:
    """Keeps a Deployment with a hash of a Secret; `how` computes what stands in its annotation."""
    def reconcile(obj: Secret, ctx: Any) -> Action:
        if obj.name == "s":
            text = "".join(f"{key}={value!r}" for key, value in sorted(obj.data.items()))
            found = (how or (lambda text: hashlib.sha256(text.encode()).hexdigest()))(text)
            ctx.api(Deployment).apply({"metadata": {"name": "web"}, "spec": {
                "replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": {
                    "metadata": {"labels": {"a": "b"}, "annotations": {"checksum": found}},
                    "spec": {"containers": [{"name": "c", "image": image}]}}}}, field_manager="me", force=True)
        return Action.await_change()

    def build(client: Client) -> Any:
        return Controller(Api.namespaced(client, Secret, "default"), name="hasher").owns(
            Api.namespaced(client, Deployment, "default")).bind(reconcile)
    return build


@pytest.mark.parametrize("how", [None, lambda text: f"sha256:{hashlib.sha256(text.encode()).hexdigest()[:12]}",
                                 lambda text: str(zlib.adler32(text.encode()))], ids=["hex", "prefix", "number"])
def test_a_hash_of_a_secret_is_unknown_and_no_change(how: Any, tmp_path: Path) -> None:
    world = World()
    secret_objects(world)
    world.run(hashing(how=how), 120)
    read = Snapshot.read(world.client, hashing(how=how))
    read.save(tmp_path / "s.json")
    world.sim.close()
    for snapshot in (read, Snapshot.load(tmp_path / "s.json")):
        found = plan(hashing(how=how), snapshot)
        assert not found.changes, str(found)
        [problem] = found.unknown
        assert str(problem) == ("Deployment default/web: spec.template.metadata.annotations.checksum: computed from "
                                "redacted values, so that it is unknown whether it changes  (hasher, for Secret "
                                "default/s)")
        found = plan(hashing("i:2", how), snapshot)
        [change] = found.changes
        assert [one.path for one in change.fields] == ["spec.template.spec.containers[c].image"]
        assert change.follows[0] == "replaces 2 Pods, one after the other"
        assert len(found.unknown) == 1


def test_a_token_that_is_computed_from_nothing_redacted_is_a_change() -> None:
    world = World()
    secret_objects(world)
    world.run(hashing(how=lambda text: "version-1"), 120)
    [change] = plan(hashing(how=lambda text: "version-2"), Snapshot.read(
        world.client, hashing(how=lambda text: "version-1"))).changes
    assert [one.path for one in change.fields] == ["spec.template.metadata.annotations.checksum"]
    assert change.follows[0] == "replaces 2 Pods, one after the other"
    world.sim.close()


@pytest.mark.parametrize("name", ["settings-{}", "{}", "settings-of-web-{}"])
def test_a_child_whose_name_is_a_hash_of_a_secret_is_unknown_with_the_one_that_goes(name: str) -> None:
    def build(client: Client) -> Any:
        def reconcile(obj: Secret, ctx: Any) -> Action:
            if obj.name == "s":
                wanted = name.format(hashlib.sha256(repr(sorted(obj.data.items())).encode()).hexdigest()[:10] + "0")
                api = Api.namespaced(ctx.client, ConfigMap, "default")
                api.apply({"metadata": {"name": wanted, "labels": {"mine": "yes"}}}, field_manager="me")
                for old in api.list(label_selector="mine=yes").items:
                    if old.name != wanted:
                        api.delete(old.name)
            return Action.await_change()
        return Controller(Api.namespaced(client, Secret, "default"), name="namer").owns(
            Api.namespaced(client, ConfigMap, "default")).bind(reconcile)

    world = World()
    secret_objects(world)
    world.server.load([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
        "name": "other-child", "namespace": "default", "labels": {"mine": "yes"}}}])
    snapshot = Snapshot.read(world.client, build)
    assert "- ConfigMap default/other-child" in str(plan(build, snapshot))  # no hash has stood there
    world.run(build, 60)
    found = plan(build, Snapshot.read(world.client, build))
    assert not found.changes, str(found)
    assert sorted(problem.object.partition(" ")[0] for problem in found.unknown) == ["create", "delete"]
    assert all("computed from redacted values" in problem.reason for problem in found.unknown)
    world.sim.close()


def test_kinds_that_are_only_created_are_not_listed() -> None:
    """A program that asks whether it may do something."""
    def build(client: Client) -> Any:
        def reconcile(obj: Any, ctx: Any) -> Action:
            review = {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}
            Api.all(ctx.client, SelfSubjectAccessReview).create(review)
            return Action.await_change()
        return Controller(Api.namespaced(client, ConfigMap, "default"), name="asker").bind(reconcile)

    world = World()
    world.server.load([CONFIG])
    found = plan(build, Snapshot.read(world.client, build))
    assert found.empty, str(found)
    assert found.runs
    world.sim.close()
