"""The rollout script as a program."""
from __future__ import annotations

from pathlib import Path

from rollout import RELEASE, roll_out
from rollout_demo import deployment

from kubectl_runtime import Api, ListParams, Patch
from kubectl_runtime.resources import Deployment, ReplicaSet
from kubectl_runtime.testing import ApiServer
from tests.examples.programs import ROOT, Program

SCRIPT = ROOT / "examples" / "rollout.py"
CONTROLLERS = ["garbage-collector", "namespace", "deployment", "replicaset"]


def test_the_demo_rolls_out_labels_and_tidies_up() -> None:
    with Program("-W", "error::ResourceWarning", SCRIPT, "--demo") as demo:
        assert demo.end() == 0, demo.text
    assert demo.lines[0] == "backend, frontend, search run shop:1"
    assert demo.lines[-1] == "3 Deployments run shop:2"
    assert demo.text.count("is rolled out") == 3
    assert demo.text.count("of an earlier release is gone") == 3
    assert "Traceback" not in demo.text


def test_it_works_page_by_page_on_what_is_selected_only() -> None:
    other = deployment("other")
    other.metadata.labels = {"app": "other"}
    with ApiServer() as server, server.client() as client:
        server.load([deployment("a"), deployment("b"), other])
        api = Api.namespaced(client, Deployment, "default")
        complete = {"conditions": [{"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"}]}
        for name in ("a", "b"):  # no controller runs: the test says that the rollout is complete
            api.patch_status(name, Patch.merge({"status": complete}))
        server.load([ReplicaSet.from_dict({
            "metadata": {"name": f"{owner}-old", "namespace": "default",
                         "ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": owner,
                                              "uid": api.get(owner).uid}]},
            "spec": {"replicas": 0, "selector": {"matchLabels": {"x": "y"}},
                     "template": {"metadata": {"labels": {"x": "y"}}, "spec": {
                         "containers": [{"name": "c", "image": "i"}]}}}}) for owner in ("a", "other")])
        server.requests.clear()
        assert roll_out(client, "default", "app=shop", "shop:3", timeout=30, page=1) == 2
        lists = server.requests.select("list", resource="deployments")
        assert [entry.param("limit") for entry in lists].count("1") == 3  # a page for each, the one not selected too
        images = {one.name: one.spec.template.spec.containers[0].image for one in api.list().items}
        assert images == {"a": "shop:3", "b": "shop:3", "other": "shop:1"}
        assert [one.name for one in api.list(ListParams(label_selector=f"{RELEASE}=3")).items] == ["a", "b"]
        assert [one.name for one in Api.namespaced(client, ReplicaSet, "default").list().items] == ["other-old"]


def test_a_rollout_that_does_not_end_is_named_with_what_was_last_seen(tmp_path: Path) -> None:
    with ApiServer(controllers=CONTROLLERS) as server:
        server.load([deployment("web")])
        environment = {"KUBECONFIG": server.write_kubeconfig(tmp_path / "kubeconfig")}
        with Program(SCRIPT, "-l", "app=shop", "--image", "shop:2", "--timeout", "1", env=environment) as program:
            assert program.end() == 1
    assert program.lines[0] == "web gets shop:2"
    assert program.lines[-1].startswith("error: await deployments.apps default/web: is_deployment_completed did "
                                        "not become true within 1 s; last seen: uid ")
    assert "Available=False (MinimumReplicasUnavailable: " in program.lines[-1]
    assert "), Progressing=True (" in program.lines[-1]


def test_without_anything_to_do_it_says_what_it_needs() -> None:
    with Program(SCRIPT) as program:
        assert program.end() == 2
    assert "--selector and --image are required" in program.text


def test_the_script_is_short() -> None:
    assert len(SCRIPT.read_text(encoding="utf-8").splitlines()) <= 120
