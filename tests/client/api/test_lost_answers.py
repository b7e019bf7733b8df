"""What each verb does when its answer is lost, and whom each tells that it writes: one table of all verbs.

A write is sent once: it is sent again only where a second one has the same effect, whatever became of the first.
"""
from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kubectl_runtime import (
    Api,
    ApiError,
    ApiResource,
    Client,
    Config,
    ObjectRef,
    OutcomeUnknownError,
    Patch,
    RequestTimeout,
    RetryPolicy,
    TransportError,
    create_or_update,
    ensure_queryable,
    retry_on_conflict,
)
from kubectl_runtime.client.api.client import Write
from kubectl_runtime.client.api.queryable import REVIEWS
from kubectl_runtime.core.requests.request import Request, Retry
from kubectl_runtime.errors import KindNotServedError
from kubectl_runtime.kinds import Scope
from kubectl_runtime.objects import Status
from kubectl_runtime.observe import Observer
from kubectl_runtime.params import DeleteParams, Preconditions
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.testing import ApiServer
from tests.client.wire_server import Peer, Received, WireServer, config_map, says, status

FAST = RetryPolicy(base=0.001, maximum=0.002)
CONFIG_MAPS = ApiResource("", "v1", "ConfigMap", "configmaps")
NODES = ApiResource("", "v1", "Node", "nodes", Scope.CLUSTER)
ACCOUNTS = ApiResource("", "v1", "ServiceAccount", "serviceaccounts")
DEPLOYMENTS = ApiResource("apps", "v1", "Deployment", "deployments")
SIGNING = ApiResource("certificates.k8s.io", "v1", "CertificateSigningRequest", "certificatesigningrequests",
                      Scope.CLUSTER)
ACCESS = ApiResource("authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", Scope.CLUSTER)
TOKENS = ApiResource("authentication.k8s.io", "v1", "TokenReview", "tokenreviews", Scope.CLUSTER)
NAMED = {"metadata": {"name": "a"}}
BODY = {"metadata": {"name": "a", "resourceVersion": "7"}}
MERGE = Patch.merge({"data": {"k": "v"}})
GUARDED = Patch.merge({"metadata": {"resourceVersion": "7"}})
TESTED = Patch.json([{"op": "test", "path": "/data/k", "value": "u"}, {"op": "remove", "path": "/data/k"}])
APPLIED = Patch.apply(NAMED)
UID = Preconditions(uid="uid-a")
MINE = {"field_manager": "me"}

KubeErrors = (ApiError, TransportError)


class Row(NamedTuple):
    """One way to call a verb; whether it is sent again, and whether it is a write."""

    again: bool
    writes: bool
    use: Callable[[Api[Any]], object]
    kind: ApiResource = CONFIG_MAPS


def reads(use: Callable[[Api[Any]], object], kind: ApiResource = CONFIG_MAPS) -> Row:
    return Row(True, False, use, kind)


def sent_once(use: Callable[[Api[Any]], object], kind: ApiResource = CONFIG_MAPS) -> Row:
    return Row(False, True, use, kind)


def sent_again(use: Callable[[Api[Any]], object], kind: ApiResource = CONFIG_MAPS) -> Row:
    return Row(True, True, use, kind)


def raw(method: str, verb: str = "", path: str = "/api/v1/namespaces/default/configmaps/a", **more: Any
        ) -> Callable[[Api[Any]], object]:
    request = Request(method, path, verb or method.lower(), None, f"{method} {path}", **more)
    return lambda api: api.client.request(request)


TABLE: dict[str, Row] = {
    # Reads
    "get": reads(lambda api: api.get("a")),
    "get_opt": reads(lambda api: api.get_opt("a")),
    "get_status": reads(lambda api: api.get_status("a")),
    "get_scale": reads(lambda api: api.get_scale("a")),
    "get_subresource": reads(lambda api: api.get_subresource("a", "scale")),
    "get_ephemeral_containers": reads(lambda api: api.get_ephemeral_containers("a")),
    "get_resize": reads(lambda api: api.get_resize("a")),
    "get_approval": reads(lambda api: api.get_approval("a")),
    "list": reads(lambda api: api.list()),
    "pages": reads(lambda api: list(api.pages())),
    "list_all": reads(lambda api: list(api.list_all())),
    "list_page": reads(lambda api: api.list_page()),
    "logs": reads(lambda api: api.logs("a")),
    "log_stream": reads(lambda api: api.log_stream("a").close()),
    # Reviews
    "create, of an access review": reads(lambda api: api.create({"spec": {}}), ACCESS),
    "create, of a token review": reads(lambda api: api.create({"spec": {}}), TOKENS),
    # Dry runs
    "create, dry": reads(lambda api: api.create(NAMED, dry_run=True)),
    "replace, dry": reads(lambda api: api.replace(BODY, dry_run=True)),
    "patch, dry": reads(lambda api: api.patch("a", MERGE, dry_run=True)),
    "apply, dry": reads(lambda api: api.apply(NAMED, dry_run=True, **MINE)),
    "delete, dry": reads(lambda api: api.delete("a", dry_run=True)),
    "delete_collection, dry": reads(lambda api: api.delete_collection(dry_run=True)),
    "evict, dry": reads(lambda api: api.evict("a", dry_run=True)),
    "scale, dry": reads(lambda api: api.scale("a", 3, dry_run=True)),
    "patch_subresource, dry": reads(lambda api: api.patch_subresource("a", "scale", MERGE, dry_run=True)),
    # Applies
    "apply": sent_again(lambda api: api.apply(NAMED, **MINE)),
    "apply, of what was read": sent_again(lambda api: api.apply(BODY, **MINE)),
    "apply_status": sent_again(lambda api: api.apply_status(NAMED, **MINE)),
    "apply_scale": sent_again(lambda api: api.apply_scale(NAMED, **MINE)),
    "patch, an apply": sent_again(lambda api: api.patch("a", APPLIED, **MINE)),
    "patch_subresource, an apply": sent_again(lambda api: api.patch_subresource("a", "odd", APPLIED, **MINE)),
    "patch_subresource, an apply with a version": sent_once(
        lambda api: api.patch_subresource("a", "odd", Patch.apply(BODY), **MINE)),
    # Deletes
    "delete": sent_once(lambda api: api.delete("a")),
    "delete, of one uid": sent_again(lambda api: api.delete("a", preconditions=UID)),
    "delete, of one uid and version": sent_once(
        lambda api: api.delete("a", preconditions=Preconditions("uid-a", "7"))),
    "delete, of one version": sent_once(lambda api: api.delete("a", preconditions=Preconditions(None, "7"))),
    "delete_collection": sent_once(lambda api: api.delete_collection()),
    "delete_collection, of one uid": sent_once(lambda api: api.delete_collection(preconditions=UID)),
    "evict": sent_once(lambda api: api.evict("a")),
    "evict, of one uid": sent_once(lambda api: api.evict("a", preconditions=UID)),
    # Other writes
    "create": sent_once(lambda api: api.create(NAMED)),
    "create, with a generated name": sent_once(lambda api: api.create({"metadata": {"generateName": "a-"}})),
    "replace": sent_once(lambda api: api.replace(BODY)),
    "patch": sent_once(lambda api: api.patch("a", MERGE)),
    "patch, guarded by a version": sent_once(lambda api: api.patch("a", GUARDED)),
    "patch, guarded by a test": sent_once(lambda api: api.patch("a", TESTED)),
    "patch, strategic": sent_once(lambda api: api.patch("a", Patch.strategic({"data": {}}))),
    "entry": sent_once(lambda api: api.entry("absent").or_insert(ConfigMap).commit()),
    "replace_status": sent_once(lambda api: api.replace_status(BODY)),
    "patch_status": sent_once(lambda api: api.patch_status("a", MERGE)),
    "scale": sent_once(lambda api: api.scale("a", 3)),
    "replace_scale": sent_once(lambda api: api.replace_scale("a", BODY)),
    "patch_scale": sent_once(lambda api: api.patch_scale("a", MERGE)),
    "create_subresource": sent_once(lambda api: api.create_subresource("a", "binding", NAMED)),
    "replace_subresource": sent_once(lambda api: api.replace_subresource("a", "scale", BODY)),
    "patch_subresource": sent_once(lambda api: api.patch_subresource("a", "scale", MERGE)),
    "replace_ephemeral_containers": sent_once(lambda api: api.replace_ephemeral_containers(BODY)),
    "patch_ephemeral_containers": sent_once(lambda api: api.patch_ephemeral_containers("a", MERGE)),
    "replace_resize": sent_once(lambda api: api.replace_resize(BODY)),
    "patch_resize": sent_once(lambda api: api.patch_resize("a", MERGE)),
    "restart": sent_once(lambda api: api.restart("a"), DEPLOYMENTS),
    "cordon": sent_once(lambda api: api.cordon("a"), NODES),
    "uncordon": sent_once(lambda api: api.uncordon("a"), NODES),
    "create_token": sent_once(lambda api: api.create_token("a"), ACCOUNTS),
    "replace_approval": sent_once(lambda api: api.replace_approval(BODY), SIGNING),
    "patch_approval": sent_once(lambda api: api.patch_approval("a", MERGE), SIGNING),
    "approve": sent_once(lambda api: api.approve("a", "Because"), SIGNING),
    "deny": sent_once(lambda api: api.deny("a", "Because"), SIGNING),
    "exec": sent_once(lambda api: api.exec("a", ["ls"])),
    "attach": sent_once(lambda api: api.attach("a")),
    "portforward": sent_once(lambda api: api.portforward("a", [80])),
    "portforward_local": sent_once(lambda api: api.portforward_local("a", 80).__enter__()),
}
RAW: dict[str, Row] = {
    "raw GET": reads(raw("GET")),
    "raw POST": sent_once(raw("POST", body=b"{}")),
    "raw POST of a review": reads(raw("POST", path=REVIEWS, body=b"{}")),
    "raw POST that says it is safe": sent_again(raw("POST", body=b"{}", retry=Retry.SAFE)),
    "raw PUT": sent_once(raw("PUT", body=b"{}")),
    "raw PUT, dry": reads(raw("PUT", body=b"{}", query=(("dryRun", "All"),))),
    "raw PATCH": sent_once(raw("PATCH", body=b"{}")),
    "raw DELETE": sent_once(raw("DELETE")),
    "raw DELETE of one uid": sent_again(raw("DELETE", body=b'{"preconditions": {"uid": "u"}}')),
    "ensure_queryable": reads(lambda api: ensure_queryable(api.client, CONFIG_MAPS, ["list"])),
}
PLACES = {"all", "namespaced", "namespaces", "default_namespaced", "with_metadata_only", "with_fields"}
WATCHES = {"watch", "open_watch"}
"""They are never repeated: `watcher` has a backoff of its own."""
STREAMS = {"exec", "attach", "portforward", "portforward_local", "log_stream"}
"""They open a stream, and no object is written by them."""

TOKEN = {"token": "t", "expirationTimestamp": "2026-01-01T00:00:00Z"}


def lose(peer: Peer, _: Received) -> None:
    """The request was read, and the connection ends without an answer."""
    peer.close()


def cut(peer: Peer, _: Received) -> None:
    peer.send(b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
    peer.close()


ETCD = "etcdserver: request timed out, possibly due to connection lost"
LOSSES: dict[str, Callable[[Peer, Received], None]] = {
    "no answer": lose, "half an answer": cut,
    "502": says(502, b"<html>bad gateway</html>", kind="text/html"),
    "503": says(503, status(503, "ServiceUnavailable", "apiserver is shutting down")),
    "504": says(504, status(504, "Timeout", "request did not complete within the allotted timeout")),
    "504 with Retry-After": says(504, headers=("Retry-After: 0",)),
    "etcd's 500": says(500, status(500, "InternalError", ETCD)),
}


class World:
    """Answers everything well, but the first request that is not a preparation as `lost` does. `asked` are the
    requests that are no preparation."""

    def __init__(self, *, lost: Callable[[Peer, Received], None] | None, prepares: Callable[[Received], bool]) -> None:
        self.asked: list[Received] = []
        self._lost, self._prepares = lost, prepares

    def __call__(self, peer: Peer) -> None:
        while (request := peer.receive()) is not None:
            if not self._prepares(request):
                self.asked.append(request)
                if len(self.asked) == 1 and self._lost is not None:
                    self._lost(peer, request)
                    continue
            self._answer(peer, request)

    def _answer(self, peer: Peer, request: Received) -> None:
        path = request.target.partition("?")[0]
        if path in ("/api", "/apis"):
            peer.answer(200, DISCOVERED if path == "/api" else {"kind": "APIGroupDiscoveryList", "items": []},
                        kind="application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
        elif path.endswith("/absent"):
            peer.answer(404, status(404, "NotFound", "absent", details={"name": "absent"}))
        elif path.endswith("/log"):
            peer.answer(200, b"a line\n", kind="text/plain")
        elif path.endswith("/configmaps") and request.method != "POST":
            peer.answer(200, {"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {}, "items": [config_map()]})
        else:
            answer = config_map(status={**TOKEN, "allowed": True}, spec={"replicas": 3})
            if "/namespaces/" not in path:
                del answer["metadata"]["namespace"]
            peer.answer(200, answer)


DISCOVERED = {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": [{
    "metadata": {}, "versions": [{"version": "v1", "resources": [{
        "resource": "configmaps", "scope": "Namespaced", "singularResource": "configmap", "verbs": ["list"],
        "responseKind": {"group": "", "version": "v1", "kind": "ConfigMap"}}]}]}]}


def prepares(name: str) -> Callable[[Received], bool]:
    """What `use` asks before what it is about."""
    return lambda request: request.target.startswith(("/api?", "/apis?")) or request.target in ("/api", "/apis") or (
        request.method == "GET" and name in ("approve", "deny", "entry"))


def api_of(client: Client, row: Row) -> Api[Any]:
    return Api.namespaced(client, row.kind, "default") if row.kind.namespaced else Api.all(client, row.kind)


def play(row: Row, name: str, lost: Callable[[Peer, Received], None] | None, **client: Any
         ) -> tuple[list[Received], BaseException | None]:
    """The requests that a verb sends, and what it raises."""
    world = World(lost=lost, prepares=prepares(name))
    raised: BaseException | None = None
    with WireServer(world) as server, server.client(client={"retry": FAST, **client}) as own:
        try:
            row.use(api_of(own, row))
        except KubeErrors as error:
            raised = error
    return world.asked, raised


def test_the_table_has_every_verb() -> None:
    verbs = {name for name in dir(Api) if not name.startswith("_") and callable(getattr(Api, name))}
    assert {name.partition(",")[0] for name in TABLE} == verbs - PLACES - WATCHES


def test_the_guide_on_errors_has_every_verb_in_its_row() -> None:
    guide = (Path(__file__).parents[3] / "examples/guides/errors-and-backoff.md").read_text()
    table = guide.partition("| verbs | what happens |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (.*) \| (`Out|sent again).* \|$", table, re.MULTILINE)
    assert len(rows) == 3
    for verb in [name for name in TABLE if "," not in name]:
        family = f"{verb.partition('_')[0]}_…"
        assert ("sent again" if TABLE[verb].again else "`Out") in {
            outcome for verbs, outcome in rows if f"`{verb}`" in verbs or f"`{family}`" in verbs}, verb


@pytest.mark.parametrize("name", [*TABLE, *RAW])
def test_a_lost_answer(name: str) -> None:
    row = {**TABLE, **RAW}[name]
    asked, raised = play(row, name, lose)
    if row.again:
        assert (len(asked), raised) == (2, None)
        assert (asked[0].method, asked[0].target, asked[0].body) == (asked[1].method, asked[1].target, asked[1].body)
    else:
        assert len(asked) == 1
        assert isinstance(raised, OutcomeUnknownError)
        assert "whether the server has carried it out is not known" in str(raised)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", ["get", "create, dry", "apply", "delete, of one uid", "create", "replace",
                                  "patch, guarded by a test", "delete", "delete_collection", "raw POST"])
def test_every_way_to_lose_an_answer_is_one(name: str, loss: str) -> None:
    row = {**TABLE, **RAW}[name]
    asked, raised = play(row, name, LOSSES[loss])
    assert len(asked) == (2 if row.again else 1)
    assert isinstance(raised, OutcomeUnknownError) == (not row.again), raised


REFUSALS: dict[str, tuple[Callable[[Peer, Received], None], int, int | None]] = {
    "429 with a wait": (says(429, status(429, "TooManyRequests"), headers=("Retry-After: 0",)), 2, None),
    "503 with a wait": (says(503, status(503, "ServiceUnavailable"), headers=("Retry-After: 0",)), 2, None),
    "429": (says(429, status(429, "TooManyRequests")), 1, 429),
    "500": (says(500, status(500, "InternalError", "a webhook failed")), 1, 500),
    "409": (says(409, status(409, "Conflict")), 1, 409),
    "302": (says(302, headers=("Location: https://login.example.com",)), 1, 302),
}


@pytest.mark.parametrize("refusal", REFUSALS)
@pytest.mark.parametrize("name", ["create", "replace", "delete", "patch", "delete_collection"])
def test_an_answer_that_tells_is_as_it_was(name: str, refusal: str) -> None:
    refused, attempts, code = REFUSALS[refusal]
    asked, raised = play(TABLE[name], name, refused)
    assert len(asked) == attempts
    assert not isinstance(raised, OutcomeUnknownError)
    assert getattr(raised, "code", None) == code


# Who is told

class Told(Observer):
    def __init__(self) -> None:
        self.written: list[tuple[str, str]] = []

    def object_written(self, resource: str, key: Any, verb: str, resource_version: str) -> None:
        self.written.append((f"{resource} {key[1]}", verb))


@pytest.mark.parametrize("name", [name for name in TABLE if name not in STREAMS])
def test_whom_a_verb_tells_that_it_writes(name: str) -> None:
    row, told = TABLE[name], Told()
    begun: list[ObjectRef | None] = []
    writes: list[Write] = []
    with WireServer(World(lost=None, prepares=prepares(name))) as server:
        with server.client(client={"retry": FAST, "observer": told}) as client:
            client.writes.begun.add(begun.append)
            client.on_write(writes.append)
            row.use(api_of(client, row))
    assert len(begun) == len(writes) == len(told.written) == row.writes
    if row.writes:
        [write] = writes
        assert told.written[0] == (f"{write.ref.resource.full_name} {write.ref.name}", write.verb)
        assert (write.ref.resource, write.ref.namespace) == (row.kind, "default" if row.kind.namespaced else None)
        assert write.uid == "uid-a" or name.startswith("evict")
        assert write.verb in ("create", "replace", "patch", "apply", "delete", "deletecollection")


def test_a_write_that_is_not_answered_is_begun_and_not_told() -> None:
    told, begun = Told(), []
    with WireServer(World(lost=lose, prepares=prepares("scale"))) as server:
        with server.client(client={"observer": told}) as client, pytest.raises(OutcomeUnknownError):
            client.writes.begun.add(begun.append)
            Api.namespaced(client, DEPLOYMENTS, "default").scale("a", 3)
    assert (begun, told.written) == ([ObjectRef(DEPLOYMENTS, "a", "default")], [])


# The error

def test_the_error_says_what_was_asked_and_what_to_do() -> None:
    _, raised = play(TABLE["replace"], "replace", LOSSES["504"])
    assert isinstance(raised, OutcomeUnknownError)
    assert (raised.verb, raised.kind, raised.namespace, raised.name, raised.sent) == (
        "replace", "ConfigMap", "default", "a", True)
    assert raised.operation == "replace configmaps default/a"
    assert isinstance(raised.cause, ApiError)
    assert raised.cause.code == 504
    assert str(raised) == (
        "replace configmaps default/a: request did not complete within the allotted timeout; whether the server has "
        "carried it out is not known, so it was not sent again: read the object before you write again (get configmaps "
        "default/a)")
    _, raised = play(TABLE["delete_collection"], "delete_collection", lose)
    assert str(raised).endswith("look at what exists before you write again (list configmaps default)")
    _, raised = play(RAW["raw POST"], "raw POST", lose)
    assert str(raised).endswith("find out what happened before you send it again")


def test_no_time_left_is_no_answer_and_a_timeout() -> None:
    def silent(peer: Peer) -> None:
        peer.receive()
        peer.hold()

    with WireServer(silent) as server, server.client() as client:
        for use, kind in ((TABLE["create"].use, OutcomeUnknownError), (TABLE["apply"].use, OutcomeUnknownError),
                          (TABLE["create, dry"].use, RequestTimeout), (TABLE["get"].use, RequestTimeout)):
            server.requests.clear()
            client._timeout = 0.1
            with pytest.raises(RequestTimeout) as caught:
                use(Api.namespaced(client, CONFIG_MAPS, "default"))
            assert isinstance(caught.value, OutcomeUnknownError) == (kind is OutcomeUnknownError)
            assert len(server.requests) == 1


@pytest.mark.direct("the server refuses it")
def test_what_was_never_sent_is_no_open_question() -> None:
    with WireServer(World(lost=None, prepares=prepares(""))) as server:
        pass  # its port is closed again
    with Client(Config(cluster_url=server.url), retry=FAST) as client:
        for name in ("create", "delete", "apply", "delete, of one uid"):
            with pytest.raises(TransportError, match="cannot connect") as caught:
                TABLE[name].use(Api.namespaced(client, CONFIG_MAPS, "default"))
            assert not isinstance(caught.value, OutcomeUnknownError)
            assert not caught.value.sent


@pytest.mark.parametrize("name", ["apply", "delete, of one uid"])
@pytest.mark.parametrize("then", ["429 with a wait", "401", "302", "503", "no answer"])
def test_what_is_sent_again_and_never_answered_is_an_open_question(name: str, then: str) -> None:
    answers = {**LOSSES, "429 with a wait": REFUSALS["429 with a wait"][0], "401": says(401, status(401)),
               "302": lambda peer, _: peer.answer(302, b"", headers=("Location: https://login.example.com/",))}

    def serve(peer: Peer) -> None:
        while (request := peer.receive()) is not None:
            (lose if len(server.requests) == 1 else answers[then])(peer, request)

    with WireServer(serve) as server, server.client(client={"retry": FAST}) as client:
        with pytest.raises(OutcomeUnknownError) as caught:
            TABLE[name].use(Api.namespaced(client, CONFIG_MAPS, "default"))
    assert "not known:" in str(caught.value)


# Deletes of one uid

STORAGE = "StorageError: invalid object, Code: 4, AdditionalErrorMsg: Precondition failed: UID in precondition: " \
          "uid-a, UID in object meta: uid-b"
RECORD = "the UID in the precondition (uid-a) does not match the UID in record (uid-b). The object might have been " \
         "deleted and then recreated"
VERSION = "the ResourceVersion in the precondition (7) does not match the ResourceVersion in record (8)."


def deleting(*answers: Callable[[Peer, Received], None]) -> tuple[Any, int]:
    left = list(answers)

    def serve(peer: Peer) -> None:
        while (request := peer.receive()) is not None:
            if request.method == "DELETE":
                asked.append(request)
                left.pop(0)(peer, request)
            else:
                peer.answer(404)  # discovery, which explains errors

    asked: list[Received] = []
    with WireServer(serve) as server, server.client(client={"retry": FAST}) as client:
        api = Api.namespaced(client, CONFIG_MAPS, "default")
        try:
            return api.delete("a", DeleteParams(preconditions=UID)), len(asked)
        except KubeErrors as error:
            return error, len(asked)


NOT_FOUND = says(404, status(404, "NotFound", 'configmaps "a" not found', details={"name": "a"}))


@pytest.mark.parametrize("lost", [lose, LOSSES["504"], LOSSES["etcd's 500"]], ids=["lost", "504", "etcd"])
@pytest.mark.parametrize("then", [NOT_FOUND, says(409, status(409, "Conflict", STORAGE)),
                                  says(409, status(409, "Conflict", RECORD))], ids=["404", "storage", "record"])
def test_a_repeated_delete_that_finds_the_uid_gone_is_done(lost: Any, then: Any) -> None:
    found, sent = deleting(lost, then)
    assert isinstance(found, Status), found
    assert found.details is not None
    assert (found.status, found.details.name, found.details.uid, sent) == ("Success", "a", "uid-a", 2)


@pytest.mark.parametrize("then", [
    says(409, status(409, "Conflict", VERSION)), says(409, status(409, "Conflict", "Operation cannot be fulfilled on "
                                                                  "namespaces: uid-a: all content is being removed")),
    says(404, b"404 page not found", kind="text/plain"), says(403, status(403, "Forbidden")),
    says(404, status(404, "NotFound", "the server could not find the requested resource"))])
def test_a_repeated_delete_that_is_refused_otherwise_is_not(then: Any) -> None:
    found, sent = deleting(lose, then)
    assert isinstance(found, ApiError)
    assert not isinstance(found, OutcomeUnknownError)
    assert isinstance(found, KindNotServedError) == (found.code == 404)
    assert sent == 2


@pytest.mark.parametrize("then", [NOT_FOUND, says(409, status(409, "Conflict", RECORD))])
def test_the_first_delete_is_told_what_it_found(then: Any) -> None:
    found, sent = deleting(then)
    assert isinstance(found, ApiError)
    assert sent == 1
    busy = says(429, status(429, "TooManyRequests"), headers=("Retry-After: 0",))
    found, sent = deleting(busy, then)
    assert isinstance(found, ApiError), "what was refused unread has deleted nothing"
    assert sent == 2


# Against the embedded server

@pytest.fixture
def server() -> Any:
    with ApiServer() as running:
        yield running


@pytest.fixture
def client(server: ApiServer) -> Any:
    with Client(server.config(), retry=FAST) as own:
        yield own


@pytest.mark.parametrize("bound", [False, True])
@pytest.mark.parametrize("how", ["lost", "504"])
def test_an_object_that_takes_the_name_meanwhile_stays(server: ApiServer, client: Client, bound: bool, how: str
                                                       ) -> None:
    theirs = Api.namespaced(client, ConfigMap, "default")

    def then_recreate(send: Any) -> Any:
        def sent(call: Any) -> Any:
            first = call.request.method == "DELETE" and not call.attempt
            try:
                return send(call)
            finally:
                if first:
                    theirs.create(ConfigMap(name="a", data={"theirs": "yes"}))

        return sent

    maps = Api.namespaced(client.with_layer(then_recreate), ConfigMap, "default")
    uid = maps.create(ConfigMap(name="a")).uid
    rule = server.faults.on("delete").first(1)
    rule.lose_answer() if how == "lost" else rule.status(504, handled=True)
    if bound:
        assert isinstance(maps.delete("a", preconditions=Preconditions(uid=uid)), Status)
    else:
        with pytest.raises(OutcomeUnknownError):
            maps.delete("a")
    assert theirs.get("a").data == {"theirs": "yes"}


def test_a_count_is_raised_once(server: ApiServer, client: Client) -> None:
    maps = Api.namespaced(client, ConfigMap, "default")
    maps.create(ConfigMap(name="a", data={"count": "1"}))
    server.faults.on("update").first(1).lose_answer()

    def count() -> ConfigMap:
        obj = maps.get("a")
        obj.data["count"] = str(int(obj.data["count"]) + 1)
        return maps.replace(obj)

    with pytest.raises(OutcomeUnknownError):
        retry_on_conflict(count)
    with pytest.raises(OutcomeUnknownError):
        server.faults.on("update").first(1).status(504, handled=True)
        create_or_update(maps, "a", lambda obj: obj.data.update(count=str(int(obj.data["count"]) + 1)))
    assert maps.get("a").data == {"count": "3"}


@pytest.mark.parametrize("bound", [False, True])
def test_a_new_object_is_made_once(server: ApiServer, client: Client, bound: bool) -> None:
    maps = Api.namespaced(client, ConfigMap, "default")
    server.faults.on("create").first(1).lose_answer()
    with pytest.raises(OutcomeUnknownError):
        if bound:
            create_or_update(maps, "a", lambda obj: obj.data.update(count="1"))
        else:
            maps.create({"metadata": {"generateName": "a-"}})
    assert len(maps.list()) == 1


def test_a_collection_is_deleted_once(server: ApiServer, client: Client) -> None:
    maps = Api.namespaced(client, ConfigMap, "default")
    maps.create(ConfigMap(name="a"))
    server.faults.on("deletecollection").first(1).status(504, handled=True)
    with pytest.raises(OutcomeUnknownError):
        maps.delete_collection()
    assert maps.list().items == []
    assert [entry.verb for entry in server.requests].count("deletecollection") == 1


def test_deleting_a_collection_tells_of_each_object_and_of_none_that_it_is_gone(server: ApiServer, client: Client
                                                                                ) -> None:
    writes: list[Write] = []
    maps = Api.namespaced(client, ConfigMap, "default")
    made = [maps.create(ConfigMap(name="a", finalizers=["x.example.com/y"])), maps.create(ConfigMap(name="b"))]
    client.on_write(writes.append)
    maps.delete_collection()
    assert [(write.ref.name, write.verb, write.uid, write.record, write.resource_version) for write in writes] == [
        (obj.name, "deletecollection", obj.uid, None, "") for obj in made]
