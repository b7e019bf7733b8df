"""The demo of rollout.py: an embedded server whose controllers roll out Deployments, and a simulated kubelet."""
from __future__ import annotations

import threading

from rollout import roll_out, say

from kubectl_runtime import Api, ApiError, Client, Patch, StopToken, await_condition, conditions, watcher
from kubectl_runtime.resources import Deployment, Pod
from kubectl_runtime.testing import ApiServer
from kubectl_runtime.watch import Apply, InitApply


def play() -> int:
    """Roll out three Deployments on an embedded server with the Deployment controller and a simulated kubelet."""
    names = ["backend", "frontend", "search"]
    with ApiServer(controllers=["garbage-collector", "namespace", "deployment", "replicaset"]) as server:
        server.load([deployment(name) for name in names])
        with server.client() as client:
            stop = StopToken()
            kubelet = threading.Thread(target=play_kubelet, args=(client, stop), name="kubelet")
            kubelet.start()
            try:
                for name in names:
                    deployments = Api.namespaced(client, Deployment, "default")
                    await_condition(deployments, name, conditions.is_deployment_completed, timeout=30)
                say(f"{', '.join(names)} run shop:1")
                count = roll_out(client, "default", "app=shop", "shop:2", timeout=30, page=2)
            finally:
                stop.set("the demo is over")
                kubelet.join()
    say(f"{count} Deployments run shop:2")
    return 0


def deployment(name: str) -> Deployment:
    labels = {"app": "shop", "part": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "shop:1"}]}}
    return Deployment.from_dict({"metadata": {"name": name, "namespace": "default", "labels": labels}, "spec": {
        "replicas": 2, "selector": {"matchLabels": {"part": name}}, "template": template}})


def play_kubelet(client: Client, stop: StopToken) -> None:
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    for event in watcher(Api.all(client, Pod), stop=stop):
        if isinstance(event, InitApply | Apply) and event.obj.status.phase == "Pending":
            try:
                pods = Api.namespaced(client, Pod, event.obj.namespace)
                pods.patch_status(event.obj.name, Patch.merge({"status": ready}))
            except ApiError as error:
                if not error.is_not_found:  # a Pod may be deleted at any moment
                    raise
