"""What decoding costs: python tests/benchmarks/decode.py [OBJECTS] [EVENTS] -> one JSON line.

Pods of about 4.6 KB, as watch lines and as list pages, into a dict keyed by namespace and name; and the same events
with declared fields only. Times are the best of three, in µs per object; memory is what the process gained, in MiB.
"""
from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from kubectl_runtime.core.codec.jsonbytes import decode_event, decode_list
from kubectl_runtime.core.codec.views import Record
from kubectl_runtime.core.objects.partial import FieldsForm, PartialView
from kubectl_runtime.resources import Pod


class StatusView(msgspec.Struct, frozen=True, gc=False):
    phase: str = ""


class PodView(PartialView, frozen=True, gc=False):
    status: StatusView = StatusView()


def pod(index: int, version: int) -> dict[str, Any]:
    """A Pod as a cluster has them: two containers, three conditions, managedFields."""
    containers = [{
        "name": name, "image": f"registry.example.com/team/{name}:1.2.{index % 7}",
        "ports": [{"containerPort": 8080, "name": "http", "protocol": "TCP"}],
        "env": [{"name": f"VAR_{number}", "value": f"value-{number}-{index}"} for number in range(8)],
        "resources": {"limits": {"cpu": "1", "memory": "512Mi"}, "requests": {"cpu": "100m", "memory": "128Mi"}},
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": "http", "scheme": "HTTP"}, "periodSeconds": 10,
                          "timeoutSeconds": 1, "successThreshold": 1, "failureThreshold": 3},
        "volumeMounts": [{"mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "name": "token",
                          "readOnly": True}],
    } for name in ("main", "sidecar")]
    managed = [{"manager": manager, "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
                "fieldsType": "FieldsV1",
                "fieldsV1": {"f:spec": {f"k:{{\"name\":\"VAR_{number}\"}}": {".": {}, "f:name": {},
                                                       "f:value": {}} for number in range(6)}}}
               for manager in ("kube-controller-manager", "kubelet")]
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": f"web-{index:06d}-6f7d9c5b8-x2zq", "namespace": "default",
            "uid": f"{index:08x}-1111-4222-8333-{index:012x}",
            "resourceVersion": str(version), "generateName": "web-6f7d9c5b8-",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": "web", "pod-template-hash": "6f7d9c5b8", "team": f"t{index % 13}", "tier": "frontend"},
            "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": "9090",
                            "checksum/config": f"{index * 2654435761 % 2**64:064x}"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"web-{index // 10}",
                                 "uid": f"{index // 10:08x}-0000-4222-8333-000000000000", "controller": True,
                                 "blockOwnerDeletion": True}],
            "managedFields": managed},
        "spec": {"nodeName": f"node-{index % 50}", "restartPolicy": "Always", "containers": containers},
        "status": {"phase": "Running", "podIP": f"10.0.{index >> 8 & 255}.{index & 255}", "conditions": [
            {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": "2026-01-01T00:00:09Z"}
            for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")], "containerStatuses": [
                {"name": name, "ready": True, "restartCount": 0, "started": True,
                 "image": f"registry.example.com/{name}:1",
                 "imageID": f"registry.example.com/{name}@sha256:{index:064x}",
                 "containerID": f"containerd://{index:064x}",
                 "state": {"running": {"startedAt": "2026-01-01T00:00:05Z"}}} for name in ("main", "sidecar")]}}


def line(index: int) -> bytes:
    return msgspec.json.encode({"type": "MODIFIED", "object": pod(index, index)})


def memory() -> float:
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20


def best_of_three(run: Callable[[], object], count: int) -> float:
    """µs per object, of `count` that each call of `run` handles."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return round(min(times) / count * 1e6, 2)


def repeated(call: Callable[[], object], times: int) -> Callable[[], None]:
    """Keeps no result, so that the garbage collector has nothing to look at."""
    def run() -> None:
        for _ in range(times):
            call()
    return run


def gained(records: Iterator[Record]) -> float:
    """MiB for a dict of these records."""
    gc.collect()
    before = memory()
    store = {(record.namespace, record.name): record for record in records}
    after = memory()
    assert store
    return round(after - before, 1)


def main(objects: int, events: int) -> None:
    resource = Pod.api_resource
    lines = [line(index) for index in range(min(events, 2000))]
    rounds = max(1, events // len(lines))
    page = msgspec.json.encode({"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"},
                                "items": [pod(index, index) for index in range(500)]})
    form = FieldsForm(resource, PodView)

    def all_events(decode: Callable[[bytes], object]) -> Callable[[], None]:
        def run() -> None:
            for _ in range(rounds):
                for received in lines:
                    decode(received)
        return run

    count = rounds * len(lines)
    record = decode_event(lines[0], resource)[1]
    assert isinstance(record, Record)
    figures = {
        "pod_bytes": len(lines[0]),
        "event_us": best_of_three(all_events(lambda received: decode_event(received, resource)), count),
        "event_fields_us": best_of_three(all_events(form.decode_event), count),
        "list_item_us": best_of_three(repeated(lambda: decode_list(page, resource), 5), 2500),
        "reader_us": best_of_three(repeated(lambda: Pod.from_record(record), 100_000), 100_000),
        "spec_us": best_of_three(repeated(lambda: Pod.from_record(record).spec, 20_000), 20_000),
        "ref_us": best_of_three(repeated(lambda: record.ref, 100_000), 100_000),
        "fields_mib": gained(_records(form.decode_event(line(index))[1] for index in range(objects))),
        "records_mib": gained(_records(decode_event(line(index), resource)[1] for index in range(objects))),
    }
    print(json.dumps({"objects": objects, "events": count, **figures}))


def _records(decoded: Iterator[object]) -> Iterator[Record]:
    return (record for record in decoded if isinstance(record, Record))


if __name__ == "__main__":
    given = [int(argument) for argument in sys.argv[1:]]
    main(*(given + [20_000, 50_000][len(given):]))
