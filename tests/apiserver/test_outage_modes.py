"""What a client sees of an embedded server that was restarted or restored as a real one is."""
from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kubectl_runtime.apiserver.access import User
from kubectl_runtime.apiserver.server import ApiServer
from kubectl_runtime.apiserver.wire import HttpRequest, HttpResponse, parse_query
from kubectl_runtime.testing.clock import SimClock

MAPS = "/api/v1/namespaces/default/configmaps"


class Cluster:
    """A server without sockets, on a clock of its own."""

    def __init__(self) -> None:
        self.clock = SimClock(self_advancing=True)
        self.server = ApiServer(clock=self.clock)

    def ask(self, path: str, method: str = "GET", body: Any = None) -> HttpResponse:
        where, _, query = path.partition("?")
        content = msgspec.json.encode(body) if body is not None else b""
        headers = {"content-type": "application/json"}
        return self.server.handle(HttpRequest(method, where, parse_query(query), headers, content))

    def create(self, name: str) -> int:
        answer = self.ask(MAPS, "POST", {"metadata": {"name": name}})
        return int(msgspec.json.decode(answer.body)["metadata"]["resourceVersion"])

    def watch(self, version: int) -> Any:
        options = f"watch=true&allowWatchBookmarks=true&timeoutSeconds=290&resourceVersion={version}"
        stream = self.ask(f"{MAPS}?{options}").stream
        assert stream is not None
        return stream


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def events(stream: Any) -> list[tuple[str, Any]]:
    """Type and version of what is ready."""
    found = []
    while chunk := stream.poll():
        for line in chunk.splitlines():
            event = msgspec.json.decode(line)
            what = event["object"]
            found.append((event["type"], what["code"] if event["type"] == "ERROR" else
                          int(what["metadata"]["resourceVersion"])))
    return found


def test_a_restart_that_loses_history_expires_earlier_versions_and_keeps_the_data(cluster: Cluster) -> None:
    first, second = cluster.create("a"), cluster.create("b")
    cluster.server.restart()
    assert events(cluster.watch(first)) == [("ADDED", second)]
    cluster.server.restart(lose_history=True)
    assert events(cluster.watch(first)) == [("ERROR", 410)]
    assert len(msgspec.json.decode(cluster.ask(MAPS).body)["items"]) == 2


def test_a_watch_from_the_future_of_a_rewound_server_is_silent_until_it_is_reached(cluster: Cluster) -> None:
    before = cluster.server.snapshot()
    future = [cluster.create(f"n{number}") for number in range(3)][-1]
    cluster.server.restore(before, rewind=True)
    stream = cluster.watch(future)
    versions = [cluster.create(f"m{number}") for number in range(3)]
    assert versions[-1] == future
    cluster.clock.advance(100)
    assert events(stream) == [("BOOKMARK", future)]  # reached: nothing before it is shown
    assert events(cluster.watch(versions[0])) == [("ADDED", versions[1]), ("ADDED", versions[2])]
    further = cluster.create("new")
    assert events(stream) == [("ADDED", further)]


def test_a_watch_from_the_future_gets_no_bookmark(cluster: Cluster) -> None:
    before = cluster.server.snapshot()
    future = [cluster.create(f"n{number}") for number in range(3)][-1]
    cluster.server.restore(before, rewind=True)
    stream = cluster.watch(future)
    cluster.create("m")
    cluster.clock.advance(200)
    assert events(stream) == []


def test_a_server_that_is_initializing_refuses_as_a_real_one_does(cluster: Cluster) -> None:
    cluster.server.restart(initializing=10)
    early = cluster.ask(MAPS)
    status = msgspec.json.decode(early.body)
    assert (early.status, status["reason"], status["details"]) == (503, "ServiceUnavailable", {"retryAfterSeconds": 5})
    assert status["message"] == ("the request has been made before all known HTTP paths have been installed, "
                                 "please try again")
    assert ("Retry-After", "5") in early.headers
    assert (cluster.ask("/readyz").status, cluster.ask("/livez").status) == (500, 200)
    cluster.clock.advance(5)
    for path in (MAPS, MAPS + "?watch=true"):
        late = cluster.ask(path)
        assert (late.status, msgspec.json.decode(late.body)["message"]) == (429, "storage is (re)initializing")
        assert ("Retry-After", "1") in late.headers
    assert cluster.ask(MAPS + "/none").status == 404
    cluster.clock.advance(5)
    assert (cluster.ask(MAPS).status, cluster.ask("/readyz").status) == (200, 200)


@pytest.mark.parametrize("user", ["alice", "system:serviceaccount:default:operator"])
def test_a_restarted_server_knows_no_roles_for_a_moment(user: str) -> None:
    clock = SimClock(self_advancing=True)
    server = ApiServer(clock=clock, authorization_mode="RBAC", tokens={"mine": user, "root": User(
        "root", groups=("system:masters",))})
    kind = "ServiceAccount" if ":" in user else "User"
    subject = {"kind": kind, "name": user.rpartition(":")[2], **({"namespace": "default"} if ":" in user else {})}
    group = "rbac.authorization.k8s.io"
    role = {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": "reader"},
            "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]}
    binding = {"apiVersion": f"{group}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "reader"},
               "subjects": [subject], "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "reader"}}
    server.load([role, binding])

    def listed(token: str) -> int:
        return server.handle(HttpRequest("GET", MAPS, [], {"authorization": f"Bearer {token}"}, b"")).status

    assert (listed("mine"), listed("root")) == (200, 200)
    server.restart(loading_roles=1)
    assert (listed("mine"), listed("root")) == (403, 200)
    clock.advance(0.9)
    assert listed("mine") == 403
    clock.advance(0.1)
    assert listed("mine") == 200
    server.restart()
    assert listed("mine") == 200


@pytest.mark.parametrize(("delay", "later", "expected"), [(2, 0.0, 2.0), (2, 1.5, 2.0), (2, 2.0, 0.0), (0, 0.0, 0.0)])
def test_the_first_create_of_a_new_kind_waits_where_a_test_asks_for_it(
        delay: int, later: float, expected: float) -> None:
    cluster = Cluster()
    cluster.server = ApiServer(clock=cluster.clock, first_create_delay=delay)
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
    cluster.ask("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "POST", {
        "metadata": {"name": "things.example.com"}, "spec": {
            "group": "example.com", "scope": "Namespaced", "versions": [version],
            "names": {"kind": "Thing", "plural": "things"}}})
    while cluster.server.core.next_wakeup() == 0.0:
        cluster.server.core.tick()
    things = "/apis/example.com/v1/namespaces/default/things"
    cluster.clock.advance(later)
    made = cluster.ask(things, "POST", {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"}})
    assert (made.status, made.delay) == (201, expected)
    assert cluster.ask(things).delay == 0
    assert cluster.ask(MAPS, "POST", {"metadata": {"name": "a"}}).delay == 0


@pytest.mark.parametrize("version", [1, 2, 5])
def test_a_server_that_never_compacts_has_its_history_from_the_first_version(version: int) -> None:
    cluster = Cluster()
    cluster.server = ApiServer(clock=cluster.clock, compaction_interval=0)
    made = cluster.create("a")
    assert events(cluster.watch(version))[0] == ("ADDED", made)
    cluster.clock.advance(3600)
    assert events(cluster.watch(version))[0] == ("ADDED", made)
    cluster.server.expire_history()
    assert events(cluster.watch(version)) == [("ERROR", 410)]


def test_a_server_that_compacts_has_no_first_version(cluster: Cluster) -> None:
    cluster.create("a")
    assert events(cluster.watch(1)) == [("ERROR", 410)]
