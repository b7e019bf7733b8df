"""Jobs that have ended are deleted after ``spec.ttlSecondsAfterFinished`` seconds."""

from __future__ import annotations

from datetime import datetime

from kubectl_runtime.apiserver.controllers.claims import AGENT
from kubectl_runtime.apiserver.controllers.queue import KeyQueue
from kubectl_runtime.apiserver.loopback import delete, served_type
from kubectl_runtime.apiserver.storage.cluster import Cluster
from kubectl_runtime.apiserver.storage.storage import Version

JOBS = "batch/jobs"


class TtlAfterFinishedController(KeyQueue):
    """See the module."""

    name = "ttl-after-finished"
    storage = JOBS

    def reconcile(self, cluster: Cluster, version: Version) -> None:
        """Delete the Job, or look again when its time is up."""
        job = version.decode()
        ttl = job["spec"].get("ttlSecondsAfterFinished")
        ends = [entry["lastTransitionTime"] for entry in (job.get("status") or {}).get("conditions") or ()
                if entry["type"] in ("Complete", "Failed") and entry["status"] == "True"
                and entry.get("lastTransitionTime")]
        if ttl is None or not ends or version.deleting:
            return
        left = ttl - (cluster.clock.now() - datetime.fromisoformat(max(ends))).total_seconds()
        if left > 0:
            self.look_later(cluster, version, left)
        else:
            delete(cluster, served_type(cluster, JOBS), version, agent=AGENT, policy="Foreground")
