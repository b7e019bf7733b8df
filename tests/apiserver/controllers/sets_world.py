"""A server with all controllers, and short ways to make sets and look at their Pods."""
from __future__ import annotations

from kubectl_runtime import Api, Patch
from kubectl_runtime.resources import (
    ControllerRevision,
    CronJob,
    DaemonSet,
    Event,
    PersistentVolume,
    PersistentVolumeClaim,
    StatefulSet,
    StorageClass,
)
from tests.apiserver.kubelet.world import World


class SetsWorld(World):
    """See the module."""

    def __init__(self, **arguments):
        super().__init__(**arguments)
        self.sets, self.daemons, self.crons, self.claims, self.revisions, self.events = (
            Api.namespaced(self.client, kind, "default") for kind in (
                StatefulSet, DaemonSet, CronJob, PersistentVolumeClaim, ControllerRevision, Event))
        self.volumes, self.classes = (Api.all(self.client, kind) for kind in (PersistentVolume, StorageClass))

    def settle(self):
        self.transport.settle()

    def make_set(self, name="db", replicas=3, *, image="db:1", storage=False, **spec):
        if storage:
            spec["volumeClaimTemplates"] = [{"metadata": {"name": "data"}, "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]
        self.sets.create({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name}, "spec": {
            "replicas": replicas, "serviceName": name, "selector": {"matchLabels": {"app": name}}, **spec,
            "template": {"metadata": {"labels": {"app": name}}, "spec": {
                "terminationGracePeriodSeconds": 0, "containers": [{"name": "main", "image": image}]}}}})
        self.settle()

    def make_class(self, name="fast", **fields):
        annotations = {"storageclass.kubernetes.io/is-default-class": "true"}
        self.classes.create({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "disks.test",
                             "metadata": {"name": name, "annotations": annotations}, **fields})

    def make_claim(self, name="data", size="1Gi", annotations=None, **spec):
        metadata = {"name": name, "annotations": annotations or {}}
        self.claims.create({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, **spec}})
        self.settle()

    def make_volume(self, name="disk", size="1Gi", **spec):
        self.volumes.create({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": size}, "hostPath": {"path": "/x"}, **spec}})
        self.settle()

    def merge(self, api, name, change, *, status=False):
        (api.patch_status if status else api.patch)(name, Patch.merge(change))
        self.settle()

    def images(self):
        """Pod -> image, of those that are not being deleted."""
        self.settle()
        return {pod.name: pod.to_dict()["spec"]["containers"][0]["image"] for pod in self.pods.list()
                if not pod.metadata.deletion_timestamp}

    def set_status(self, name="db", api=None):
        self.settle()
        return (api or self.sets).get(name).to_dict().get("status") or {}

    def claim_phases(self):
        self.settle()
        return {claim.name: claim.to_dict()["status"]["phase"] for claim in self.claims.list()}

    def reasons(self, name):
        return [event.to_dict()["reason"] for event in self.events.list()
                if event.to_dict()["involvedObject"]["name"] == name]
