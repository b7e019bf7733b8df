"""A web page that shows which Pods run on a node: a store with an index inside a WSGI application, no controller.

    python examples/pod_inventory.py [--port 8000] [--namespace NAMESPACE]      until Ctrl-C

    GET /              how many Pods each node has
    GET /nodes/NODE    the Pods of a node
    GET /healthz       200 while the store is up to date, 503 and the reason when it is not

Each answer comes from memory. An application server calls `inventory` once when it starts and leaves the block when
it stops; the watch ends with the block. Two inventories of one client share one watch.
"""
from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote
from wsgiref.simple_server import WSGIServer, make_server

from kubectl_runtime import Api, Client, KubeError, strip_managed_fields, watch_store
from kubectl_runtime.errors import StoreNotReady
from kubectl_runtime.resources import Pod
from kubectl_runtime.watch import WatchedStore

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication

MAX_AGE = 180.0
"""Seconds without data after which a watch is stale. A quiet watch receives something about once a minute."""
FIRST_LIST = 30.0


def node_of(pod: Pod) -> str | None:
    name: str | None = pod.get("spec", {}).get("nodeName")
    return name


@contextmanager
def inventory(pods: Api[Pod]) -> Iterator[WSGIApplication]:
    """Yield the application; a watch keeps its store up to date until the block ends."""
    with watch_store(pods, indexes={"node": node_of}, modify=strip_managed_fields) as store:
        yield lambda environ, start: _answer(store, environ, start)


def _answer(store: WatchedStore[Pod], environ: dict[str, Any], start: StartResponse) -> Iterable[bytes]:
    status, content = _page(store, unquote(environ.get("PATH_INFO") or "/"))
    body = json.dumps(content, indent=2).encode() + b"\n"
    start(f"{status.value} {status.phrase}", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    return [body]


def _page(store: WatchedStore[Pod], path: str) -> tuple[HTTPStatus, Any]:
    if path == "/healthz":
        state = store.watch_state
        fresh = not store.is_stale(MAX_AGE)
        return (HTTPStatus.OK if fresh else HTTPStatus.SERVICE_UNAVAILABLE,
                {"fresh": fresh, "watch": state.phase, "error": state.last_error})
    try:
        store.wait_until_ready(FIRST_LIST)  # only the first requests of a process ever wait
    except StoreNotReady as error:
        return HTTPStatus.SERVICE_UNAVAILABLE, {"error": str(error)}
    if path == "/":
        size = store.size
        nodes = Counter(node_of(pod) or "(none)" for pod in store)
        return HTTPStatus.OK, {"pods": size.objects, "bytes": size.bytes, "nodes": dict(sorted(nodes.items()))}
    if path.startswith("/nodes/"):
        found = store.by_index("node", path.removeprefix("/nodes/"))
        return HTTPStatus.OK, sorted(f"{pod.namespace}/{pod.name}" for pod in found)
    return HTTPStatus.NOT_FOUND, {"error": f"nothing is at {path}"}


class _Server(ThreadingMixIn, WSGIServer):
    """Answers each request in a thread, because wsgiref would swallow a Ctrl-C that comes during an answer."""

    daemon_threads = True


def serve(pods: Api[Pod], port: int) -> None:
    """Blocks until it is interrupted."""
    with inventory(pods) as application, make_server("127.0.0.1", port, application, _Server) as server:
        print(f"http://127.0.0.1:{server.server_port}/", flush=True)
        server.serve_forever()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8000, help="0: any free port")
    parser.add_argument("--namespace", "-n", help="watch only this namespace (default: all)")
    args = parser.parse_args()
    try:
        with Client.try_default() as client:
            serve(Api.namespaced(client, Pod, args.namespace) if args.namespace else Api.all(client, Pod), args.port)
    except KeyboardInterrupt:
        print("stopped")
    except KubeError as error:  # no cluster is configured, or the configuration is invalid
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
