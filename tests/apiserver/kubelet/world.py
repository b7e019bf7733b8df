"""`World`: a server whose Pods run, in the test's own thread, on a clock that the test moves."""
from __future__ import annotations

import msgspec
import requests

from kubectl_runtime import Api, Client, Config
from kubectl_runtime.resources import Job, Node, Pod
from kubectl_runtime.testing import ApiServer, SimClock


class World:
    """A server, a client of it, and its time."""

    def __init__(self, controllers=("*",), **arguments):
        self.clock = SimClock()
        self.server = ApiServer(clock=self.clock, controllers=controllers, seed=1, compaction_interval=0,
                                **arguments)
        self.rules = self.server.kubelet.rules
        self.transport = self.server.transport()
        session = requests.Session()
        session.mount("http://", self.transport)
        self.client = Client(Config(cluster_url="http://simulated"), session=session, clock=self.clock)
        self.pods = Api.namespaced(self.client, Pod, "default")
        self.nodes = Api.all(self.client, Node)
        self.jobs = Api.namespaced(self.client, Job, "default")

    def advance(self, seconds):
        """So much later, nothing of what is due in between being late by more than a quarter of a second."""
        end = self.clock.monotonic() + seconds
        while self.clock.monotonic() < end:
            self.clock.advance(min(0.25, end - self.clock.monotonic()))
            self.transport.settle()

    def create(self, name="web", *, labels=None, meta=None, **spec):
        spec.setdefault("containers", [{"name": "main", "image": "nginx"}])
        self.pods.create({"apiVersion": "v1", "kind": "Pod", "spec": spec,
                          "metadata": {"name": name, "labels": labels or {}, **(meta or {})}})
        self.transport.settle()

    def status(self, name="web"):
        self.transport.settle()
        return self.pods.get(name).to_dict()["status"]

    def version(self):
        """The resourceVersion of now."""
        return self.pods.list().metadata.resource_version

    def history(self, since):
        """The Pods as they were at each change since a resourceVersion, as dicts."""
        found = []
        with self.pods.open_watch(resource_version=since) as batches:
            for batch in batches:
                if not batch:
                    return found
                assert all(event.status is None for event in batch)
                records = [event.record for event in batch if event.record is not None]
                found += [msgspec.json.decode(record.raw)["object"] for record in records]
        return found

    def phase(self, name="web"):
        return self.status(name)["phase"]

    def container(self, name="web", container="main"):
        status = self.status(name)
        return next(each for each in (*status["containerStatuses"], *status.get("initContainerStatuses", ()))
                    if each["name"] == container)

    def state(self, name="web", container="main"):
        """What the container is, and why: ``running``, ``waiting CrashLoopBackOff``."""
        found = self.container(name, container)["state"]
        kind = next(iter(found))
        return " ".join(filter(None, (kind, found[kind].get("reason", ""))))

    def conditions(self, name="web"):
        return {each["type"]: (each["status"], each.get("reason", "")) for each in self.status(name)["conditions"]}
