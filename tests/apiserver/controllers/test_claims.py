"""Claims and volumes: protection, binding, provisioning, what becomes of volumes; Pods and namespaces with claims."""
from __future__ import annotations

import pytest

from kubectl_runtime import Api
from kubectl_runtime.apiserver.controllers import claims
from kubectl_runtime.resources import Namespace, PersistentVolumeClaim
from kubectl_runtime.testing import ApiServer
from tests.apiserver.controllers.sets_world import SetsWorld

VOLUME = [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]


@pytest.fixture
def world():
    made = SetsWorld()
    yield made
    made.client.close()


def test_a_claim_of_the_default_class_gets_a_volume_of_its_size(world):
    world.make_class()
    world.make_claim(size="3Gi")
    claim = world.claims.get("data").to_dict()
    assert claim["status"] == {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "3Gi"}}
    volume = world.volumes.get(claim["spec"]["volumeName"]).to_dict()
    assert volume["status"]["phase"] == "Bound"
    assert volume["spec"]["claimRef"]["uid"] == claim["metadata"]["uid"]
    assert volume["spec"]["persistentVolumeReclaimPolicy"] == "Delete"
    assert "ProvisioningSucceeded" in world.reasons("data")


@pytest.mark.parametrize(("provisioner", "source"), [
    ("disks.test", "csi"), ("kubernetes.io/gce-pd", "csi"), ("example.com/any", "hostPath"),
    ("rancher.io/local-path", "hostPath"), ("kubernetes.io/own_disks", "hostPath"), ("Disks_1", "hostPath")])
def test_every_provisioner_gets_a_volume(world, provisioner, source):
    world.make_class(provisioner=provisioner, mountOptions=["ro"])
    world.make_claim(volumeMode="Block")
    assert world.claim_phases() == {"data": "Bound"}
    [volume] = world.volumes.list()
    assert source in volume.to_dict()["spec"]
    assert volume.annotations["pv.kubernetes.io/provisioned-by"] == provisioner


def test_a_refused_volume_is_logged_once_and_explained_by_an_event(world, caplog, monkeypatch):
    monkeypatch.setattr(claims, "_source", lambda provisioner, name: {"csi": {"driver": "a/b", "volumeHandle": name}})
    world.make_class()
    world.make_claim()
    world.make_volume("other", storageClassName="other")
    assert world.claim_phases() == {"data": "Pending"}
    assert world.reasons("data") == ["ProvisioningFailed"]
    [record] = [record for record in caplog.records if record.name == claims.log.name]
    assert "the volume of PersistentVolumeClaim default/data was refused" in record.getMessage()
    assert "spec.csi.driver" in record.getMessage()


@pytest.mark.parametrize(("spec", "phase"), [
    ({"storageClassName": ""}, "Pending"), ({"storageClassName": "none"}, "Pending"), ({}, "Pending")])
def test_a_claim_without_class_or_volume_stays_pending(world, spec, phase):
    world.make_claim(**spec)
    assert world.claim_phases() == {"data": phase}
    assert set(world.reasons("data")) <= {"FailedBinding", "ProvisioningFailed"}


def test_a_claim_gets_the_default_class_that_comes_later(world):
    world.make_claim()
    world.make_claim("none", storageClassName="")
    world.make_class("slow", metadata={"name": "slow"})
    assert world.claim_phases() == {"data": "Pending", "none": "Pending"}
    world.make_class("fast")
    assert world.claim_phases() == {"data": "Bound", "none": "Pending"}
    assert world.claims.get("data").to_dict()["spec"]["storageClassName"] == "fast"


def test_the_deprecated_annotation_names_the_class(world):
    world.make_claim(annotations={"volume.beta.kubernetes.io/storage-class": "slow"})
    world.make_class("fast")
    assert world.claim_phases() == {"data": "Pending"}
    assert "storageClassName" not in world.claims.get("data").to_dict()["spec"]
    world.make_claim("later", annotations={"volume.beta.kubernetes.io/storage-class": "slow"})
    world.make_class("slow", metadata={"name": "slow"})
    assert world.claim_phases() == {"data": "Bound", "later": "Bound"}
    assert {volume.to_dict()["spec"]["storageClassName"] for volume in world.volumes.list()} == {"slow"}


def test_the_smallest_volume_that_fits_is_bound(world):
    for name, size in (("large", "10Gi"), ("fitting", "2Gi"), ("small", "1Mi")):
        world.make_volume(name, size)
    world.make_volume("other", storageClassName="slow")
    world.make_claim(size="1Gi")
    assert world.claims.get("data").to_dict()["spec"]["volumeName"] == "fitting"
    assert {volume.name: volume.to_dict()["status"]["phase"] for volume in world.volumes.list()} == {
        "large": "Available", "fitting": "Bound", "small": "Available", "other": "Available"}


@pytest.mark.parametrize("claim", [
    {"accessModes": ["ReadWriteMany"]}, {"volumeMode": "Block"}, {"selector": {"matchLabels": {"disk": "ssd"}}},
    {"size": "5Gi"}])
def test_a_volume_that_does_not_fit_is_not_bound(world, claim):
    world.make_volume()
    world.make_claim(**claim)
    assert world.claim_phases() == {"data": "Pending"}


def test_a_volume_that_comes_later_and_one_that_names_the_claim_are_bound(world):
    world.make_claim()
    world.make_volume("a")
    assert world.claim_phases() == {"data": "Bound"}
    world.make_volume("b")
    world.make_volume("z", claimRef={"namespace": "default", "name": "mine"})
    world.make_claim("mine")
    assert world.claims.get("mine").to_dict()["spec"]["volumeName"] == "z"


def test_wait_for_first_consumer(world):
    world.make_class(volumeBindingMode="WaitForFirstConsumer")
    world.make_claim()
    assert world.claim_phases() == {"data": "Pending"}
    assert world.reasons("data") == ["WaitForFirstConsumer"]
    world.create(volumes=VOLUME)
    assert world.claim_phases() == {"data": "Bound"}
    assert world.phase() == "Running"


def test_a_pod_waits_for_its_claims(world):
    world.create(volumes=VOLUME)
    assert world.conditions()["PodScheduled"] == ("False", "Unschedulable")
    world.make_claim()
    assert world.phase() == "Pending"
    world.make_volume()
    assert world.phase() == "Running"


def test_a_deleted_claim_stays_while_a_pod_uses_it_and_its_volume_goes_with_it(world):
    world.make_class()
    world.make_claim()
    world.create(volumes=VOLUME, terminationGracePeriodSeconds=0)
    world.claims.delete("data")
    assert list(world.claim_phases()) == ["data"]
    assert len(list(world.volumes.list())) == 1
    world.pods.delete("web")
    assert world.claim_phases() == {}
    assert not list(world.volumes.list())


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_keeps_no_claim(world, phase):
    world.make_class()
    world.make_claim()
    world.create(volumes=VOLUME)
    world.merge(world.pods, "web", {"status": {"phase": phase}}, status=True)
    world.claims.delete("data")
    assert world.claim_phases() == {}


def test_a_retained_volume_is_released_and_a_bound_one_protected(world):
    world.make_class(reclaimPolicy="Retain")
    world.make_claim()
    name = world.claims.get("data").to_dict()["spec"]["volumeName"]
    world.volumes.delete(name)
    world.settle()
    assert world.volumes.get(name).metadata.deletion_timestamp
    world.claims.delete("data")
    world.settle()
    assert not list(world.volumes.list())
    world.make_claim("more")
    name = world.claims.get("more").to_dict()["spec"]["volumeName"]
    world.claims.delete("more")
    world.settle()
    assert world.volumes.get(name).to_dict()["status"]["phase"] == "Released"


def test_by_default_claims_volumes_and_their_namespaces_can_be_deleted():
    with ApiServer() as server, server.client() as client:
        Api.all(client, Namespace).create({"metadata": {"name": "team"}})
        claims = Api.namespaced(client, PersistentVolumeClaim, "team")
        for name in ("a", "b"):
            claims.create({"metadata": {"name": name}, "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}})
        from kubectl_runtime import delete_and_finalize

        delete_and_finalize(claims, "a", timeout=20)
        delete_and_finalize(Api.all(client, Namespace), "team", timeout=20)
