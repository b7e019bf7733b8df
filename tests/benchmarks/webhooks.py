"""Reviews per second, of a Pod of 4.6 KB: `python tests/benchmarks/webhooks.py` -> one JSON line.

`application`: the WSGI application called in one thread, without sockets and TLS; its request is what a server would
hand it. `tls`: over loopback from a process of its own, on one connection that stays, on four that do, and on a new
connection each time. `cpu_us`: of the serving process, a review, the cheapest round; `per_s`: by that, on one core.
`wall_per_s`: by the wall clock, the best round, which the client and everything else on the machine have a part in.
"""
from __future__ import annotations

import io
import json
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec
from canned_server import pod as canned_pod

from kubectl_runtime import Conversion, Resource
from kubectl_runtime.resources import Pod
from kubectl_runtime.webhooks import Admission, AdmissionRequest, Denied, application
from kubectl_runtime.webhooks.server import WebhookServer
from kubectl_runtime.webhooks.serving_certificates import SelfSigned

CALLS, ROUNDS = 48, 40


class Container(msgspec.Struct):
    name: str
    image: str = ""


class PodSpec(msgspec.Struct):
    containers: list[Container] = []


class OwnPod(Resource, version="v1", kind="Pod"):
    """Declares what is looked at."""

    spec: PodSpec


class Quota(Admission[OwnPod]):
    def validate(self, request: AdmissionRequest[OwnPod]) -> None:
        if len(request.object.spec.containers) > 5:
            raise Denied("at most 5 containers")

    def mutate(self, request: AdmissionRequest[OwnPod]) -> OwnPod:
        for container in request.object.spec.containers:
            container.image = f"mirror/{container.image}"
        return request.object


class Everything(Admission[Pod]):
    """The same on the class that declares all there is."""

    def validate(self, request: AdmissionRequest[Pod]) -> None:
        if len(request.object.spec.containers) > 5:
            raise Denied("at most 5 containers")

    def mutate(self, request: AdmissionRequest[Pod]) -> Pod:
        for container in request.object.spec.containers:
            container.image = f"mirror/{container.image}"
        return request.object


APP = application({"/quota": Quota(), "/everything": Everything(),
                   "/convert": Conversion({("v1", "v2"): lambda content: content})})


def admission(pod: dict[str, Any]) -> bytes:
    kind, resource = {"group": "", "version": "v1"}, {"group": "", "version": "v1", "resource": "pods"}
    return json.dumps({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "kind": {**kind, "kind": "Pod"}, "resource": resource,
        "requestKind": {**kind, "kind": "Pod"}, "requestResource": resource, "name": "web", "namespace": "shop",
        "operation": "CREATE", "userInfo": {"username": "kubernetes-admin", "groups": ["system:authenticated"]},
        "object": pod, "oldObject": None, "dryRun": False, "options": None}}).encode()


def conversion(pod: dict[str, Any]) -> bytes:
    return json.dumps({"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1", "request": {
        "uid": "1", "desiredAPIVersion": "example.com/v2",
        "objects": [{**pod, "apiVersion": "example.com/v1", "kind": "Widget"}]}}).encode()


def called(path: str, body: bytes) -> Callable[[], None]:
    environ = {"REQUEST_METHOD": "POST", "PATH_INFO": path, "CONTENT_TYPE": "application/json",
               "CONTENT_LENGTH": str(len(body))}

    def call() -> None:
        status: list[str] = []
        APP({**environ, "wsgi.input": io.BytesIO(body)},
            lambda said, headers, exc_info=None: status.append(said))  # type: ignore[arg-type,return-value]
        assert status == ["200 OK"]
    return call


def cheapest(run: Callable[[], int]) -> dict[str, float]:
    """`run` answers how many reviews it had."""
    rounds = []
    for _ in range(ROUNDS):
        wall, cpu = time.perf_counter(), time.process_time()
        count = run()
        rounds.append(((time.process_time() - cpu) / count, (time.perf_counter() - wall) / count))
    cpu, wall = min(cpu for cpu, _ in rounds), min(wall for _, wall in rounds)
    return {"per_s": round(1 / cpu), "cpu_us": round(1e6 * cpu), "wall_per_s": round(1 / wall)}


def client() -> None:
    """The other process: PORT on the command line; a CA and a body on standard input; then rounds as they are asked."""
    content = json.loads(sys.stdin.readline())
    context = ssl.create_default_context(cadata=content["ca"])
    body = content["body"].encode()
    request = (b"POST /quota/validate?timeout=10s HTTP/1.1\r\nHost: hooks\r\nContent-Type: application/json\r\n"
               b"Content-Length: %d\r\n\r\n%s" % (len(body), body))

    def connect() -> ssl.SSLSocket:
        return context.wrap_socket(socket.create_connection(("127.0.0.1", int(sys.argv[2]))),
                                   server_hostname="127.0.0.1")

    def ask(connection: ssl.SSLSocket) -> None:
        connection.sendall(request)
        answer = connection.recv(65536)
        head, _, rest = answer.partition(b"\r\n\r\n")
        left = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]) - len(rest)
        while left > 0:
            left -= len(connection.recv(65536))
        assert answer.startswith(b"HTTP/1.1 200 ")

    def stay(number: int) -> None:
        with connect() as connection:
            for _ in range(number):
                ask(connection)

    for line in sys.stdin:
        how = line.strip()
        if how == "new":
            for _ in range(CALLS):
                stay(1)
        else:
            threads = [threading.Thread(target=stay, args=(max(1, CALLS // int(how)),)) for _ in range(int(how))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        print("done", flush=True)


def over_tls(body: bytes) -> dict[str, dict[str, float]]:
    with WebhookServer(APP, certificates=SelfSigned(), host="127.0.0.1", port=0) as server:
        other = subprocess.Popen([sys.executable, __file__, "client", str(server.port)], stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, text=True)
        assert other.stdin is not None
        assert other.stdout is not None
        print(json.dumps({"ca": server.ca_bundle.decode(), "body": body.decode()}), file=other.stdin, flush=True)

        def run(how: str, count: int) -> int:
            print(how, file=other.stdin, flush=True)
            assert other.stdout is not None
            assert other.stdout.readline() == "done\n"
            return count

        try:
            return {"one connection": cheapest(lambda: run("1", CALLS)), "four": cheapest(lambda: run("4", CALLS)),
                    "new ones": cheapest(lambda: run("new", CALLS))}
        finally:
            other.stdin.close()
            other.wait(10)


def main() -> None:
    pod = canned_pod(1, 1000)
    bodies = {path: admission(pod) for path in APP.paths if path != "/convert"} | {"/convert": conversion(pod)}
    found: dict[str, Any] = {"bytes": len(bodies["/quota/validate"]), "application": {}}
    for path, body in bodies.items():
        call = called(path, body)

        def run(call: Callable[[], None] = call) -> int:
            for _ in range(CALLS):
                call()
            return CALLS

        found["application"][path] = cheapest(run)
    print(json.dumps({**found, "tls": over_tls(bodies["/quota/validate"])}))


if __name__ == "__main__":
    client() if sys.argv[1:2] == ["client"] else main()
