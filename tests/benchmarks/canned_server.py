"""A canned API server over plain HTTP, as fast as the socket takes it, so that what is timed is the client.

    python tests/benchmarks/canned_server.py OBJECTS EVENTS [PORT] [CONTAINERS]

It prints `ready URL`, and runs until its input is closed. A list answers OBJECTS Pods of 4.6 KB (of 3.5 KB if
CONTAINERS is 1 and not 2), paged; pod i has version 1000 + i, the list 1000 + OBJECTS. A watch sends EVENTS
changes, round robin over the Pods, each with the next version, in chunks of at most 2 KiB as a real server does; then a
bookmark, then nothing. From `LAZY` bytes on, what is sent is not prepared but made while it is sent. Any request for
ConfigMaps, a write too, is answered by the same small one.

    line of its input    what it does to the watches that have said all
    expire               ends them with a 410, so that clients list again
    change               sends a change of each Pod, as fast as the socket takes it
    drip COUNT PAUSE     sends COUNT more changes, PAUSE seconds apart, each with the time of its sending (`SENT`)
"""
from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, overload
from urllib.parse import parse_qs, urlsplit

FIRST_VERSION = 1000
CHUNK = 2048
LAZY = 1 << 29
ABOUT = 4700
"""Bytes of a Pod."""
NAMES = "main", "sidecar"
SENT = "sent"
"""The annotation that holds `time.monotonic()` of the machine at the moment of sending."""


def pod_name(number: int) -> str:
    return f"web-{number:06d}-6f7d9c5b8-x{number % 97:02d}zq"


def last_versions(objects: int, events: int) -> dict[str, str]:
    """The version in which each Pod comes to rest."""
    versions = {}
    for number in range(objects):
        rounds, rest = divmod(events, objects)
        last = number + objects * (rounds - (number >= rest))
        versions[pod_name(number)] = str(FIRST_VERSION + number if last < 0 else FIRST_VERSION + objects + 1 + last)
    return versions


def _container(name: str, number: int) -> dict[str, Any]:
    return {"name": name, "image": f"registry.example.com/team/{name}:1.2.{number % 7}",
            "ports": [{"containerPort": 8080, "name": "http", "protocol": "TCP"}],
            "env": [{"name": f"VAR_{index}", "value": f"value-{index}-{number}"} for index in range(8)],
            "resources": {"limits": {"cpu": "1", "memory": "512Mi"}, "requests": {"cpu": "100m", "memory": "128Mi"}},
            "livenessProbe": {"httpGet": {"path": "/healthz", "port": "http", "scheme": "HTTP"}, "periodSeconds": 10,
                              "timeoutSeconds": 1, "successThreshold": 1, "failureThreshold": 3},
            "volumeMounts": [{"mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "name": "kube-api",
                              "readOnly": True}]}


def _status_of(name: str) -> dict[str, Any]:
    return {"name": name, "ready": True, "restartCount": 0, "started": True,
            "image": f"registry.example.com/team/{name}:1.2",
            "imageID": "sha256:" + "ab" * 32, "containerID": "containerd://" + "cd" * 32,
            "state": {"running": {"startedAt": "2026-01-01T00:00:04Z"}}, "lastState": {}}


def _managed_fields() -> list[dict[str, Any]]:
    metadata = {"f:annotations": {".": {}, "f:checksum/config": {}}, "f:generateName": {}, "f:labels": {
        ".": {}, "f:app": {}, "f:pod-template-hash": {}}, "f:ownerReferences": {".": {}, 'k:{"uid":"aaaa"}': {}}}
    env = {".": {}, 'k:{"name":"A"}': {".": {}, "f:name": {}, "f:value": {}}}
    spec = {"f:containers": {'k:{"name":"main"}': {".": {}, "f:image": {}, "f:env": env}}}
    status = {"f:conditions": {'k:{"type":"Ready"}': {".": {}, "f:status": {}}}, "f:containerStatuses": {},
              "f:phase": {}, "f:podIP": {}}
    common = {"operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1"}
    return [{"manager": "kube-controller-manager", **common, "fieldsV1": {"f:metadata": metadata, "f:spec": spec}},
            {"manager": "kubelet", **common, "subresource": "status", "fieldsV1": {"f:status": status}}]


def pod(number: int, version: int, containers: int = 2) -> dict[str, Any]:
    conditions = [{"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": "2026-01-01T00:00:05Z"}
                  for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")]
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": pod_name(number), "namespace": "default", "uid": f"{number:08x}-1111-4222-8333-{number:012x}",
            "resourceVersion": str(version), "generateName": "web-6f7d9c5b8-",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": "web", "pod-template-hash": "6f7d9c5b8", "team": f"t{number % 13}", "tier": "frontend"},
            "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": "9090",
                            "checksum/config": f"{number * 2654435761 % 2**64:064x}"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"web-{number // 10}",
                                 "uid": "aaaa", "controller": True, "blockOwnerDeletion": True}],
            "managedFields": _managed_fields()},
        "spec": {
            "nodeName": f"node-{number % 50}", "restartPolicy": "Always", "serviceAccountName": "default",
            "containers": [_container(name, number) for name in NAMES[:containers]],
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute",
                             "tolerationSeconds": 300}],
            "volumes": [{"name": "kube-api", "projected": {"defaultMode": 420, "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}]}}]},
        "status": {"phase": "Running", "podIP": "10.0.0.1", "qosClass": "Burstable",
                   "startTime": "2026-01-01T00:00:00Z",
                   "conditions": conditions, "containerStatuses": [_status_of(name) for name in NAMES[:containers]]}}


def _dumps(content: object) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()


def _small() -> bytes:
    """A ConfigMap."""
    body = _dumps({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {
        "name": "settings", "namespace": "default", "uid": "0b0f5d2e-8c37-4b9b-9a53-6e0c7a4b1f11",
        "resourceVersion": "48213", "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"app": "web"},
        "managedFields": [{"manager": "calls", "operation": "Apply", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
                           "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:color": {}, "f:size": {}}}}]},
        "data": {"color": "blue", "size": "12"}})
    return _ok(body)


def _ok(body: bytes) -> bytes:
    """An answer with the headers that a kube-apiserver gives it."""
    return (b"HTTP/1.1 200 OK\r\nAudit-Id: 7c1d2f0e-4a52-4a77-8f0a-5f5b2b8f7c10\r\n"
            b"Cache-Control: no-cache, private\r\nContent-Type: application/json\r\n"
            b"X-Kubernetes-Pf-Flowschema-Uid: 2a6d4c7e-2d9c-4f0e-8b0a-0d2f7f1b6c55\r\n"
            b"X-Kubernetes-Pf-Prioritylevel-Uid: 9f8e7d6c-5b4a-4c3d-9e2f-1a0b9c8d7e6f\r\n"
            b"Date: Thu, 01 Jan 2026 00:00:00 GMT\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))


SMALL = _small()


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def _modified(content: bytes) -> bytes:
    """The chunks of an event."""
    line = b'{"type":"MODIFIED","object":' + content + b"}\n"
    return b"".join(_chunk(line[at:at + CHUNK]) for at in range(0, len(line), CHUNK))


@cache
def _template(containers: int) -> tuple[bytes, bytes, bytes, bytes]:
    """A Pod around its name, uid and version."""
    name, uid, version = "@name@", "@uid@", "@version@"
    content = pod(0, 0, containers)
    content["metadata"].update(name=name, uid=uid, resourceVersion=version)
    before, rest = _dumps(content).split(name.encode())
    middle, rest = rest.split(uid.encode())
    last, after = rest.split(version.encode())
    return before, middle, last, after


def _like_others(number: int, version: int, containers: int) -> bytes:
    """A Pod that differs from others only in what tells them apart: quick to make."""
    before, middle, last, after = _template(containers)
    uid = b"%08x-1111-4222-8333-%012x" % (number, number)
    return b"".join((before, pod_name(number).encode(), middle, uid, last, str(version).encode(), after))


class _Made(Sequence[bytes]):
    """A sequence whose items are made when somebody takes them."""

    def __init__(self, length: int, make: Callable[[int], bytes]) -> None:
        self._range, self._make = range(length), make

    def __len__(self) -> int:
        return len(self._range)

    @overload
    def __getitem__(self, index: int) -> bytes: ...

    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...

    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        found = self._range[index]
        return self._make(found) if isinstance(found, int) else [self._make(number) for number in found]


class CannedServer:
    """Everything it will ever say, prepared."""

    def __init__(self, objects: int, events: int, containers: int = 2) -> None:
        self.objects, self.version, self.containers = objects, FIRST_VERSION + objects, containers
        self.last = self.version + events
        self.items: Sequence[bytes] = _Made(objects, lambda number: _like_others(
            number, FIRST_VERSION + number, containers))
        self.stream: Iterable[bytes] = _Made(events, lambda event: _modified(
            _like_others(event % objects, self.version + 1 + event, containers)))
        if (objects + events) * ABOUT < LAZY:
            self.items = [_dumps(pod(number, FIRST_VERSION + number, containers)) for number in range(objects)]
            self.stream = [b"".join(_modified(_dumps(pod(event % objects, self.version + 1 + event, containers)))
                                    for event in range(events))]
        end = {"type": "BOOKMARK", "object": {"apiVersion": "v1", "kind": "Pod", "metadata": {
            "resourceVersion": str(self.last)}}}
        self.end = _chunk(_dumps(end) + b"\n")
        self._watching: list[socket.socket] = []

    def serve(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection, connection.makefile("rb") as requests:
            try:
                while line := requests.readline():
                    length = 0
                    while (header := requests.readline()) not in (b"\r\n", b""):
                        if header[:15].lower() == b"content-length:":
                            length = int(header[15:])
                    requests.read(length)
                    url = urlsplit(line.decode().split(" ")[1])
                    self._answer(connection, url.path, {key: values[-1] for key, values in parse_qs(url.query).items()})
            except OSError:
                return

    def _answer(self, connection: socket.socket, path: str, query: dict[str, str]) -> None:
        if "/configmaps" in path:
            connection.sendall(SMALL)
        elif not path.endswith("/pods"):
            connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        elif query.get("watch") in ("true", "1"):
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: "
                               b"application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
            if int(query["resourceVersion"]) < self.last:
                for part in self.stream:
                    connection.sendall(part)
            connection.sendall(self.end)
            self._watching.append(connection)
        else:
            start = int(query.get("continue", 0))
            stop = start + int(query.get("limit") or len(self.items))
            meta = {"resourceVersion": str(self.version)} | ({"continue": str(stop)} if stop < len(self.items) else {})
            body = (b'{"kind":"PodList","apiVersion":"v1","metadata":' + _dumps(meta) + b',"items":['
                    + b",".join(self.items[start:stop]) + b"]}")
            connection.sendall(_ok(body))

    def obey(self, line: str) -> None:
        """One line of the input."""
        command, *numbers = line.split()
        if command == "expire":
            gone = {"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": "too old"}
            watching, self._watching = self._watching, []
            for connection in watching:
                connection.sendall(_chunk(_dumps({"type": "ERROR", "object": gone}) + b"\n") + b"0\r\n\r\n")
        elif command == "change":
            for number in range(self.objects):
                self.last += 1
                part = _modified(_like_others(number, self.last, self.containers))
                for connection in self._watching:
                    connection.sendall(part)
        elif command == "drip":
            for event in range(int(numbers[0])):
                time.sleep(float(numbers[1]))
                self.last += 1
                changed = pod(event % self.objects, self.last, self.containers)
                changed["metadata"]["annotations"][SENT] = repr(time.monotonic())
                part = _modified(_dumps(changed))
                for connection in self._watching:
                    connection.sendall(part)


def main(objects: int, events: int, port: int = 0, containers: int = 2) -> None:
    server = CannedServer(objects, events, containers)
    listener = socket.create_server(("127.0.0.1", port))

    def accept() -> None:
        while True:
            threading.Thread(target=server.serve, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    print(f"ready http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    for line in sys.stdin:
        server.obey(line)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
