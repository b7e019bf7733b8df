"""How long a plan of a large cluster takes: 5,000 objects of 10 kinds; an operator makes 8 of the kinds.

    PYTHONPATH=. python tests/benchmarks/plan_size.py [--sites 500]

It prints one line of JSON: objects, kinds, seconds for the reading (over HTTP, from another process) and for the plan
of a version that changes every Deployment, and the process's highest memory in MiB.
"""
from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from msgspec import Struct

from kubectl_runtime import Action, Api, ApiResource, Client, Config, Controller, CustomResource
from kubectl_runtime.plan import Snapshot, plan
from kubectl_runtime.testing import ApiServer


class Spec(Struct):
    image: str = "nginx:1"


class Shop(CustomResource, group="bench.example.com", version="v1", kind="Shop"):
    spec: Spec


CHILDREN = {"ConfigMap": ApiResource("", "v1", "ConfigMap", "configmaps"),
            "Secret": ApiResource("", "v1", "Secret", "secrets"),
            "Service": ApiResource("", "v1", "Service", "services"),
            "ServiceAccount": ApiResource("", "v1", "ServiceAccount", "serviceaccounts"),
            "Deployment": ApiResource("apps", "v1", "Deployment", "deployments"),
            "Role": ApiResource("rbac.authorization.k8s.io", "v1", "Role", "roles"),
            "NetworkPolicy": ApiResource("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies")}


def peak_mib() -> int:
    """The most memory that this program had. `ru_maxrss` counts that of the process which started it, too."""
    return int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) // 1024


def children(name: str, uid: str, image: str) -> list[dict[str, Any]]:
    owner = {"apiVersion": "bench.example.com/v1", "kind": "Shop", "name": name, "uid": uid, "controller": True}
    labels = {"app": name}
    contents: dict[str, dict[str, Any]] = {
        "ConfigMap": {"data": {f"key{number}": "x" * 60 for number in range(20)}},
        "Secret": {"data": {"token": "c2VjcmV0"}}, "ServiceAccount": {}, "Role": {"rules": []},
        "Service": {"spec": {"selector": labels, "ports": [{"port": 80}]}},
        "NetworkPolicy": {"spec": {"podSelector": {"matchLabels": labels}}},
        "Deployment": {"spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels}, "spec": {"containers": [{"name": "web", "image": image}]}}}}}
    return [{"apiVersion": CHILDREN[kind].api_version, "kind": kind,
             "metadata": {"name": name, "namespace": "default", "labels": labels, "ownerReferences": [owner]},
             **content} for kind, content in contents.items()]


def version(image: str) -> Any:
    def reconcile(shop: Shop, ctx: Any) -> Action:
        for obj in children(shop.name, shop.uid, image):
            Api.namespaced(ctx.client, CHILDREN[obj["kind"]], "default").apply(obj, field_manager="shops", force=True)
        return Action.await_change()

    def build(client: Client) -> Any:
        controller = Controller(Api.all(client, Shop))
        for kind in CHILDREN.values():
            controller = controller.owns(Api.all(client, kind))
        return controller.bind(reconcile)
    return build


def serve(sites: int) -> None:
    """A server with the objects, in a process of its own, until its standard input ends."""
    with ApiServer(controllers=["*"]) as server, server.client() as client:
        server.load([Shop.crd()])
        server.load([Shop(name=f"shop-{number}", namespace="default", spec=Spec()) for number in range(sites)])
        for shop in Api.all(client, Shop).list_all():
            for obj in children(shop.name, shop.uid, "nginx:1"):
                Api.namespaced(client, CHILDREN[obj["kind"]], "default").apply(obj, field_manager="shops")
        pods, end = Api.all(client, ApiResource("", "v1", "Pod", "pods")), time.monotonic() + 300
        while len([*pods.list_all()]) < sites and time.monotonic() < end:
            time.sleep(1)
        print(server.url, flush=True)
        sys.stdin.read()


def main() -> None:
    """Measure, and print one line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sites", type=int, default=500)
    parser.add_argument("--serve", action="store_true")
    given = parser.parse_args()
    if given.serve:
        serve(given.sites)
        return
    with subprocess.Popen([sys.executable, __file__, "--serve", "--sites", str(given.sites)], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        with Client(Config(cluster_url=url)) as client:
            start, cpu = time.monotonic(), time.process_time()
            snapshot = Snapshot.read(client, version("nginx:1"))
            read, read_cpu = time.monotonic() - start, time.process_time() - cpu
        process.stdin.close()  # type: ignore[union-attr]
    start = time.monotonic()
    same = plan(version("nginx:1"), snapshot)
    unchanged = time.monotonic() - start
    start, cpu = time.monotonic(), time.process_time()
    found = plan(version("nginx:2"), snapshot)
    planned, cpu = time.monotonic() - start, time.process_time() - cpu
    print(json.dumps({
        "objects": len(snapshot.objects), "kinds": len({obj["kind"] for obj in snapshot.objects}),
        "read_seconds": round(read, 1), "read_cpu_seconds": round(read_cpu, 1),
        "planned_unchanged_seconds": round(unchanged, 1), "empty": same.empty,
        "planned_seconds": round(planned, 1), "planned_cpu_seconds": round(cpu, 1),
        "changed": len(found.changed), "failed": len(found.failed),
        "max_mib": peak_mib()}))


if __name__ == "__main__":
    main()
