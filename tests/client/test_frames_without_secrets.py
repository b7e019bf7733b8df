"""No local variable of a frame shows a credential: what tools that report errors with their variables would send."""

from __future__ import annotations

import base64
import json
import logging
import socket
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from kubectl_runtime import Api, Client, Config, RetryPolicy
from kubectl_runtime.client.config.auth import FixedCredentials
from kubectl_runtime.client.config.checks import Impersonation
from kubectl_runtime.client.config.kubeconfig import Kubeconfig
from kubectl_runtime.client.http import sockets
from kubectl_runtime.core.requests.request import Request
from kubectl_runtime.resources import ConfigMap, Pod
from tests.client.config.test_credentials import V1, script
from tests.client.proxies import ProxyServer
from tests.client.wire_server import Peer, WireServer, answering, says

pytest.importorskip("cryptography", reason="certificates are made with the package cryptography")
from kubectl_runtime.certificates.authority import Authority
from kubectl_runtime.certificates.bundles import server_context

SECRET = "geheim" * 4
FORMS = [SECRET, base64.b64encode(f"u:{SECRET}".encode()).decode()[:30]]
OWN = str(Path(__file__))


def frames(error: BaseException | None, seen: set[int]) -> Iterator[traceback.FrameSummary]:
    """Every frame of the error and of what it came from, whether Python would print that or not."""
    if error is None or id(error) in seen:
        return
    seen.add(id(error))
    yield from traceback.TracebackException.from_exception(error, capture_locals=True).stack
    for other in (error.__cause__, error.__context__):
        yield from frames(other, seen)


def leaks(error: BaseException) -> list[str]:
    return [f"{frame.filename}:{frame.lineno} {frame.name}: {name} = {value}"
            for frame in frames(error, set()) if frame.filename != OWN
            for name, value in (frame.locals or {}).items() if any(form in value for form in FORMS)]


def credentials(tmp_path: Path) -> dict[str, Callable[[], dict[str, Any]]]:
    """Arguments of a Config for each kind of credential; made late, as each shows up in the frames of this module."""
    (tmp_path / "token").write_text(SECRET)
    answer = json.dumps({"apiVersion": V1, "kind": "ExecCredential", "status": {"token": SECRET}})
    exec_user = {"exec": {"command": script(tmp_path, f"print({answer!r})"), "apiVersion": V1,
                          "interactiveMode": "Never", "env": [{"name": "X", "value": SECRET}], "args": [SECRET]}}
    part = base64.urlsafe_b64encode(json.dumps({"exp": 4102444800, "sub": SECRET}).encode()).decode().rstrip("=")
    oidc_user = {"auth-provider": {"name": "oidc", "config": {
        "id-token": f"{SECRET}.{part}.{SECRET}", "refresh-token": SECRET, "client-secret": SECRET}}}

    def of_kubeconfig(user: dict[str, Any]) -> dict[str, Any]:
        return {"auth": Config.from_kubeconfig({
            "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": {"server": "https://h"}}],
            "users": [{"name": "u", "user": user}]}).auth}

    class Own:
        def header(self, deadline: float | None = None) -> str:
            return f"Bearer {SECRET}"

        def refresh(self, rejected: str | None, deadline: float | None = None) -> bool:
            return True

        def certificate(self) -> None:
            return None

    return {
        "token": lambda: {"token": SECRET}, "basic": lambda: {"username": "u", "password": SECRET},
        "token file": lambda: {"token_file": tmp_path / "token"},
        "fixed": lambda: {"auth": FixedCredentials.token(SECRET)}, "own": lambda: {"auth": Own()},
        "exec": lambda: of_kubeconfig(exec_user), "oidc": lambda: of_kubeconfig(oidc_user),
        "header": lambda: {"headers": {"Authorization": f"Bearer {SECRET}", "X-Api-Key": SECRET}},
        "cookie": lambda: {"headers": {"cookie": f"session={SECRET}"}, "token": SECRET,
                           "impersonate": Impersonation("jane", groups=("a", "b"))},
    }


KINDS = ["token", "basic", "token file", "fixed", "own", "exec", "oidc", "header", "cookie"]
CALLS: dict[str, Callable[[Client], object]] = {
    "get": lambda client: Api.namespaced(client, ConfigMap, "default").get("a", timeout=0.5),
    "create": lambda client: Api.namespaced(client, ConfigMap, "default").create({"metadata": {"name": "a"}}),
    "watch": lambda client: list(Api.namespaced(client, ConfigMap, "default").watch()),
    "logs": lambda client: list(Api.namespaced(client, Pod, "default").log_stream("a")),
    "exec": lambda client: Api.namespaced(client, Pod, "default").exec("a", ["true"]),
}


def cut(peer: Peer) -> None:
    peer.receive()
    peer.reset()


def cut_body(peer: Peer) -> None:
    peer.receive()
    peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{")
    peer.reset()


def silent(peer: Peer) -> None:
    peer.receive()
    peer.hold()


def nonsense(peer: Peer) -> None:
    peer.receive()
    peer.send(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: other\r\nSet-Cookie: " + SECRET.encode() + b"\r\n\r\n")
    peer.close()


SERVERS: dict[str, Any] = {
    "401": answering(says(401, {})), "403": answering(says(403, {})), "500": answering(says(500, {})),
    "redirect": answering(says(307, {}, headers=("Location: http://127.0.0.1:1/",))),
    "cut": cut, "cut body": cut_body, "silence": silent, "nonsense": nonsense,
    "not JSON": answering(says(200, b"<html>")),
}


def outcome(call: Callable[[], object]) -> BaseException | None:
    try:
        call()
    except (AttributeError, TypeError, NameError):
        raise
    except BaseException as error:
        return error
    return None


def failure(call: Callable[[], object]) -> BaseException:
    error = outcome(call)
    assert error is not None
    return error


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", SERVERS)
def test_a_call_that_an_answer_fails_shows_none(kind: str, how: str, tmp_path: Path) -> None:
    with WireServer(SERVERS[how]) as server:
        config = Config(cluster_url=server.url, timeout=0.3, **credentials(tmp_path)[kind]())
        with Client(config, retry=RetryPolicy.never()) as client:
            for name, call in CALLS.items():
                if how == "silence" and name != "get":  # others have no limit to the silence, or a longer one
                    continue
                error = outcome(lambda: call(client))  # noqa: B023 - it is called at once
                assert error is not None or name in ("watch", "logs")  # an empty stream is no failure
                assert error is None or leaks(error) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_that_gets_no_connection_shows_none(kind: str, tmp_path: Path) -> None:
    authority = Authority()
    own = authority.client("jane")
    certificate = {"client_certificate_data": own.certificate, "client_key_data": own.key}
    tls = server_context(Authority().server(("127.0.0.1",)), authority.pem)
    with socket.create_server(("127.0.0.1", 0)) as taken, WireServer(answering(says(407, {}))) as proxy, \
            WireServer(silent, tls=tls) as untrusted:
        port = taken.getsockname()[1]
        taken.close()
        for settings in ({"cluster_url": f"http://127.0.0.1:{port}"},
                         {"cluster_url": f"https://127.0.0.1:{port}", "ca_data": authority.pem, **certificate},
                         {"cluster_url": untrusted.url, "ca_data": authority.pem, **certificate},
                         {"cluster_url": "https://cluster.example.com",
                          "proxy_url": proxy.url.replace("//", f"//u:{SECRET}@")}):
            config = Config(timeout=1.0, **settings, **credentials(tmp_path)[kind]())
            with Client(config, retry=RetryPolicy.never()) as client:
                for call in CALLS.values():
                    error = failure(lambda: call(client))  # noqa: B023 - it is called at once
                    assert leaks(error) == []
                    key = own.key.decode().splitlines()[1]
                    assert not [frame for frame in frames(error, set()) if key in str(frame.locals)]


@pytest.mark.parametrize("way", ["direct", "a proxy", "a session that names the host"])
@pytest.mark.parametrize("interruption", [KeyboardInterrupt, SystemExit, ZeroDivisionError])
def test_an_interruption_while_the_connection_is_used_shows_none(
    interruption: type[BaseException], way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise interruption

    session = requests.Session() if way.startswith("a session") else None
    if session is not None:
        session.headers["Host"] = "cluster.example"  # the head is then written by http.client
    for kind in KINDS:
        with WireServer(answering(says(200, {}))) as server, ProxyServer("http") as proxy:
            config = Config(cluster_url=server.url, proxy_url=proxy.url if way == "a proxy" else None,
                            allow_plain_http_credentials=True, **credentials(tmp_path)[kind]())
            with Client(config, session=session) as client, monkeypatch.context() as patch:
                patch.setattr(sockets.ApiSocket, "sendall", interrupted)
                patch.setattr(sockets.ApiTlsSocket, "sendall", interrupted)
                for call in CALLS.values():
                    error = failure(lambda: call(client))  # noqa: B023 - it is called at once
                    assert isinstance(error, interruption)
                    assert leaks(error) == []


def test_user_code_sees_none_in_the_frames_above_it(tmp_path: Path) -> None:
    seen: list[str] = []

    def look(*_: object) -> None:
        frame = sys._getframe(1)
        while frame is not None:
            if "kubectl_runtime" in frame.f_code.co_filename and frame.f_code.co_filename != OWN:
                seen.extend(f"{frame.f_code.co_qualname}: {name} = {value!r}"
                            for name, value in frame.f_locals.items() if any(form in repr(value) for form in FORMS))
            frame = frame.f_back  # type: ignore[assignment]

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            look()

    def layer(send: Any) -> Any:
        def sent(call: Any) -> Any:
            look()
            return send(call)

        return sent

    handler = Handler()
    logging.getLogger("kubectl_runtime").addHandler(handler)
    try:
        for kind in KINDS:
            with WireServer(answering(says(401, {}))) as server:
                given = credentials(tmp_path)[kind]()
                Config(cluster_url="http://cluster.example.com", **given)  # it logs that they are withheld
                with Client(Config(cluster_url=server.url, **given), layers=[layer],
                            retry=RetryPolicy.never()) as client:
                    failure(lambda: client.request(Request("GET", "/", "get", None, "get")))
    finally:
        logging.getLogger("kubectl_runtime").removeHandler(handler)
    assert seen == []


@pytest.mark.parametrize("settings", [
    {"timeout": 0}, {"cluster_url": "ftp://h"}, {"ca_data": b"x", "insecure_skip_tls_verify": True},
    {"token": SECRET + "\n\n" + SECRET}, {"username": "a:b"}, {"client_key_data": SECRET.encode()},
    {"proxy_url": f"ftp://u:{SECRET}@h"}, {"headers": {"Authorization": SECRET + "\n"}}],
    ids=lambda given: next(iter(given)))
def test_a_configuration_that_is_refused_shows_none(settings: dict[str, Any]) -> None:
    given = {"cluster_url": "https://h", "token": SECRET, "password": SECRET, "headers": {"Cookie": SECRET}}
    if "username" in settings:
        del given["token"]
    assert leaks(failure(lambda: Client(Config(**{**given, **settings})))) == []


CONTEXT = ("contexts: [{name: c, context: {cluster: k, user: u}}]\n"
           "clusters: [{name: k, cluster: {server: 'https://h'}}]\ncurrent-context: c")


@pytest.mark.parametrize("text", [
    f"users: [{{name: u, user: {{token: {SECRET}}}}}]\nclusters: 5",
    f"users: [{{name: u, user: {{token: {SECRET}, username: x}}}}]\n\tx",
    f"users: [{{name: u, user: {{token: {SECRET}, password: {SECRET}}}}}]\n" + CONTEXT,
    f"users: [{{name: u, user: {{token: \"{SECRET}\\n{SECRET}\"}}}}]\n" + CONTEXT,
    f"users: [{{name: u, user: {{client-key-data: {SECRET}-}}}}]",
], ids=str.__len__)  # the text would be in an environment variable
def test_a_kubeconfig_that_is_refused_shows_none(text: str, tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    assert leaks(failure(lambda: Config.from_kubeconfig(path))) == []
    assert leaks(failure(lambda: Config.infer(environ={"KUBECONFIG": str(path)}))) == []
    error = outcome(lambda: Kubeconfig.read([path]))
    assert error is None or leaks(error) == []
    for whole in (text, text.encode()):
        assert leaks(failure(lambda: Config.from_kubeconfig(text=whole))) == []  # noqa: B023 - it is called at once
        assert leaks(failure(lambda: Config.from_kubeconfig(path, text=whole))) == []  # noqa: B023
        error = outcome(lambda: Kubeconfig.from_text(whole))  # noqa: B023
        assert error is None or leaks(error) == []


@pytest.mark.parametrize("content", [
    {"users": [{"name": "u", "user": {"token": [SECRET]}}]}, {"users": SECRET},
    {"users": [{"name": "u", "user": {"client-key-data": SECRET + "-"}}]}, {SECRET: 1}],
    ids=["token", "users", "key", "name"])
def test_a_mapping_that_is_refused_as_a_kubeconfig_shows_none(content: dict[str, Any]) -> None:
    assert leaks(failure(lambda: Config.from_kubeconfig(content))) == []
    error = outcome(lambda: Kubeconfig.from_dict(content))
    assert error is None or leaks(error) == []


def test_a_sessions_credentials_show_nowhere(tmp_path: Path) -> None:
    for given in ({"auth": ("u", SECRET)}, {"headers": {"Authorization": SECRET}}, {"headers": {"Cookie": SECRET}}):
        for through_session in (False, True):
            session = requests.Session()
            session.headers.update(given.get("headers", {}))  # type: ignore[arg-type]
            session.auth = given.get("auth")  # type: ignore[assignment]
            for serve in (cut, answering(says(403, {}))):
                with WireServer(serve) as server, Client(
                        Config(cluster_url=server.url), session=session, use_session_send=through_session,
                        retry=RetryPolicy.never()) as client:
                    for call in list(CALLS.values())[:3]:
                        assert leaks(failure(lambda: call(client))) == []  # noqa: B023 - it is called at once


def test_a_plugins_output_shows_nowhere(tmp_path: Path) -> None:
    answer = {"apiVersion": V1, "kind": "ExecCredential", "status": {"token": SECRET}}
    statuses: list[dict[str, Any]] = [
        {"token": SECRET, "expirationTimestamp": 5}, {"clientKeyData": SECRET}, {"token": f"{SECRET}\nx"},
        {"clientKeyData": SECRET, "clientCertificateData": "x"}]
    wrong = [{**answer, "apiVersion": "x"}, *({**answer, "status": status} for status in statuses)]
    codes = [f"print({json.dumps(output)!r})" for output in wrong]
    codes += [f"print({SECRET!r}); sys.exit(1)", f"print({SECRET!r} + '[')"]
    for code in codes:
        config = Config.from_kubeconfig({
            "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:1"}}],
            "users": [{"name": "u", "user": {"exec": {
                "command": script(tmp_path, code), "apiVersion": V1, "interactiveMode": "Never"}}}]})
        with Client(config) as client:
            for _ in range(2):
                assert leaks(failure(lambda: CALLS["get"](client))) == []
