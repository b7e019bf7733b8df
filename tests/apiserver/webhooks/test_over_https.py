"""Webhooks that listen on sockets: certificates, Services, and every way in which a call fails."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from kubectl_runtime.certificates.authority import Authority
from kubectl_runtime.certificates.bundles import server_context
from kubectl_runtime.client.api.api import Api
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.core.base.errors import ApiError
from kubectl_runtime.resources import ConfigMap, Service, ValidatingWebhookConfiguration
from kubectl_runtime.testing import ApiServer
from tests.apiserver.webhooks.hooked import CONFIGMAPS

Handling = Callable[[BaseHTTPRequestHandler, dict[str, Any]], None]
WHO = 'failed calling webhook "v.hooks.test": failed to call webhook: Post "{}?timeout={}s": '


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority("webhooks")


@pytest.fixture
def client() -> Iterator[Client]:
    with ApiServer(webhook_services={"default/hook": "https://127.0.0.1:1"}) as server, server.client() as client:
        yield client


def answer(handler: BaseHTTPRequestHandler, review: dict[str, Any], **response: Any) -> None:
    body = json.dumps({**{key: review[key] for key in ("apiVersion", "kind")}, "response": {
        "uid": review["request"]["uid"], "allowed": True, **response}}).encode()
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


@contextlib.contextmanager
def listening(handling: Handling, context: ssl.SSLContext | None) -> Iterator[int]:
    """A webhook; its port."""
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            handling(self, json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None:
            """Whoever is broken off says so on the other side."""

        def finish_request(self, request: Any, client_address: Any) -> None:
            if context is None:
                super().finish_request(request, client_address)
                return
            with context.wrap_socket(request, server_side=True) as secured:
                super().finish_request(secured, client_address)

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, name="webhook")
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join(10)


def configure(client: Client, config: dict[str, Any], ca: bytes | None = None, name: str = "v", **fields: Any) -> None:
    if ca is not None:
        config = {**config, "caBundle": base64.b64encode(ca).decode()}
    entry = {"name": f"{name}.hooks.test", "clientConfig": config, "sideEffects": "None",
             "admissionReviewVersions": ["v1"], "rules": [CONFIGMAPS], "timeoutSeconds": 10, **fields}
    Api.all(client, ValidatingWebhookConfiguration).create({"metadata": {"name": name}, "webhooks": [entry]})


def create(client: Client, name: str = "a") -> Any:
    return Api.namespaced(client, ConfigMap, "default").create({"metadata": {"name": name}})


def refusal(client: Client) -> str:
    with pytest.raises(ApiError) as found:
        create(client)
    message = found.value.status.message
    assert message is not None
    return message.removeprefix("Internal error occurred: ")


def test_a_webhook_at_a_url_is_asked_and_may_ask_the_server(client: Client, authority: Authority) -> None:
    def handling(handler: BaseHTTPRequestHandler, review: dict[str, Any]) -> None:
        if review["request"]["name"] == "a":
            create(client, "made-by-webhook")
        assert handler.path == "/validate?timeout=10s"
        assert handler.headers["Content-Type"] == "application/json"
        answer(handler, review, warnings=["hello"])

    with listening(handling, server_context(authority.server(), authority.pem)) as port:
        configure(client, {"url": f"https://127.0.0.1:{port}/validate"}, authority.pem)
        create(client)
    assert {obj.name for obj in Api.namespaced(client, ConfigMap, "default").list().items} >= {"a", "made-by-webhook"}


def test_a_service_is_where_the_server_was_told_and_has_its_own_name(authority: Authority) -> None:
    paths: list[str] = []

    def handling(handler: BaseHTTPRequestHandler, review: dict[str, Any]) -> None:
        paths.append(f"{handler.headers['Host']}{handler.path}")
        answer(handler, review, allowed=False, status={"message": "no", "code": 403, "reason": "Forbidden"})

    certificate = authority.server(["hook.default.svc"])
    with listening(handling, server_context(certificate, authority.pem)) as port, ApiServer(
            webhook_services={"default/hook": f"https://127.0.0.1:{port}"}) as server, server.client() as client:
        configure(client, {"service": {"namespace": "default", "name": "hook", "path": "/x", "port": 8443}},
                  authority.pem)
        with pytest.raises(ApiError, match=r'admission webhook "v\.hooks\.test" denied the request: no'):
            create(client)
    assert paths == ["hook.default.svc:8443/x?timeout=10s"]


@pytest.mark.parametrize("exists", [False, True])
def test_a_service_that_nobody_has_told_of_is_refused_as_one_that_is_not_there(client: Client, *, exists: bool) -> None:
    if exists:
        Api.namespaced(client, Service, "default").create(
            {"metadata": {"name": "other"}, "spec": {"ports": [{"port": 443}]}})
    configure(client, {"service": {"namespace": "default", "name": "other"}})
    told = 'no endpoints available for service "other"' if exists else 'service "other" not found'
    message = refusal(client)
    assert message.startswith(WHO.format("https://other.default.svc:443/", 10) + told)
    assert 'ApiServer(webhook_services={"default/other": "https://HOST:PORT"})' in message


@pytest.mark.parametrize("services", [{"hook": "https://127.0.0.1:1"}, {"a/b": "http://127.0.0.1:1"},
                                      {"a/b": "https://127.0.0.1:1/path"}])
def test_an_address_of_a_service_that_is_none_is_refused_at_once(services: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="webhook_services"):
        ApiServer(webhook_services=services)


@pytest.mark.parametrize("prefix", ["http://hooks.test", "hooks.test", "https://", "https://a/?b"])
def test_a_prefix_to_mount_at_that_is_none_is_refused_at_once(prefix: str) -> None:
    with pytest.raises(ValueError, match="https://host"):
        ApiServer().mount_webhook(prefix, lambda *_: [])


def test_one_that_is_down(client: Client) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    configure(client, {"url": f"https://127.0.0.1:{port}/v"})
    assert refusal(client) == (WHO.format(f"https://127.0.0.1:{port}/v", 10)
                               + f"dial tcp 127.0.0.1:{port}: connect: connection refused")


def test_one_that_is_down_is_passed_over_where_the_policy_says_so(client: Client) -> None:
    configure(client, {"url": "https://127.0.0.1:1/v"}, failurePolicy="Ignore")
    assert create(client).name == "a"


@pytest.mark.parametrize(("policy", "told"), [("Fail", "context deadline exceeded"), ("Ignore", "")])
@pytest.mark.parametrize("drips", [False, True])
def test_one_that_is_slow_has_its_timeout_whatever_it_sends(client: Client, authority: Authority, policy: str,
                                                            told: str, *, drips: bool) -> None:
    over = threading.Event()

    def handling(handler: BaseHTTPRequestHandler, _review: dict[str, Any]) -> None:
        if drips:
            handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
            while not over.wait(0.05):
                handler.wfile.write(b" ")
        over.wait(30)
        handler.close_connection = True

    with listening(handling, server_context(authority.server(), authority.pem)) as port:
        url = f"https://127.0.0.1:{port}/v"
        configure(client, {"url": url}, authority.pem, timeoutSeconds=1, failurePolicy=policy)
        began = time.monotonic()
        try:
            if told:
                assert refusal(client) == WHO.format(url, 1) + told
            else:
                create(client)
        finally:
            over.set()
        assert 0.9 < time.monotonic() - began < 25  # the webhook takes 30


def test_a_server_that_stops_waits_for_no_webhook(authority: Authority) -> None:
    asked, over = threading.Event(), threading.Event()

    def handling(handler: BaseHTTPRequestHandler, _review: dict[str, Any]) -> None:
        asked.set()
        over.wait(30)
        handler.close_connection = True

    with listening(handling, server_context(authority.server(), authority.pem)) as port:
        server = ApiServer().start()
        with server.client() as client:
            configure(client, {"url": f"https://127.0.0.1:{port}/v"}, authority.pem, timeoutSeconds=30)
            thread = threading.Thread(target=_try, args=(client,))
            thread.start()
            assert asked.wait(30)
            began = time.monotonic()
            server.stop()
            assert time.monotonic() - began < 20  # the webhook takes 30
            over.set()
            thread.join(30)


def _try(client: Client) -> None:
    with contextlib.suppress(Exception):
        create(client)


@pytest.mark.parametrize(("hosts", "validity", "known", "told"), [
    (["127.0.0.1"], timedelta(days=1), False,
     "tls: failed to verify certificate: x509: certificate signed by unknown authority"),
    (["hook.default.svc"], timedelta(days=1), True,
     "tls: failed to verify certificate: x509: certificate is not valid for 127.0.0.1"),
    (["127.0.0.1"], timedelta(days=-1), True,
     "tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time "),
])
def test_a_certificate_that_is_wrong(client: Client, authority: Authority, hosts: list[str], validity: timedelta,
                                     told: str, *, known: bool) -> None:
    certificate = authority.server(hosts, validity)
    with listening(answer, server_context(certificate, authority.pem)) as port:
        ca = authority.pem if known else Authority("other").pem
        configure(client, {"url": f"https://127.0.0.1:{port}/v"}, ca)
        assert refusal(client).startswith(WHO.format(f"https://127.0.0.1:{port}/v", 10) + told)


def test_a_bundle_that_is_none(client: Client) -> None:
    configure(client, {"url": "https://127.0.0.1:1/v"}, b"no certificate")
    assert refusal(client).endswith("unable to load root certificates: unable to parse bytes as PEM block")


def test_one_that_speaks_plain_http(client: Client) -> None:
    with listening(answer, None) as port:
        configure(client, {"url": f"https://127.0.0.1:{port}/v"})
        assert refusal(client).endswith("http: server gave HTTP response to HTTPS client")


@pytest.mark.parametrize(("sent", "told"), [
    (b"", "EOF"),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", "unexpected EOF"),
    (b"nonsense\r\n\r\n", "malformed HTTP response"),
])
def test_one_that_hangs_up_or_talks_nonsense(client: Client, authority: Authority, sent: bytes, told: str) -> None:
    def handling(handler: BaseHTTPRequestHandler, _review: dict[str, Any]) -> None:
        handler.wfile.write(sent)
        handler.close_connection = True

    with listening(handling, server_context(authority.server(), authority.pem)) as port:
        configure(client, {"url": f"https://127.0.0.1:{port}/v"}, authority.pem)
        assert told in refusal(client)


def test_a_name_that_nobody_knows(client: Client) -> None:
    configure(client, {"url": "https://hooks.invalid/v"})
    assert refusal(client).endswith("dial tcp: lookup hooks.invalid: no such host")


def test_several_are_asked_at_the_same_time_and_answered_in_their_order(client: Client, authority: Authority) -> None:
    both = threading.Barrier(2)

    def handling(handler: BaseHTTPRequestHandler, review: dict[str, Any]) -> None:
        both.wait(10)
        name = handler.path.partition("?")[0].strip("/")
        answer(handler, review, allowed=False, status={"message": f"not by {name}"}, warnings=[name])

    with listening(handling, server_context(authority.server(), authority.pem)) as port:
        for name in ("b", "a"):
            configure(client, {"url": f"https://127.0.0.1:{port}/{name}"}, authority.pem, name=name)
        assert refusal(client) == 'admission webhook "a.hooks.test" denied the request: not by a'


@pytest.mark.parametrize("port", ["99999999", "port"])
def test_an_address_that_is_none_is_refused_with_its_configuration(client: Client, port: str) -> None:
    with pytest.raises(ApiError, match="url must be a valid URL"):
        configure(client, {"url": f"https://127.0.0.1:{port}/v"})


@pytest.mark.parametrize("host", [".example", "a" * 70 + ".test"])
def test_a_host_that_can_be_none_fails_the_call(client: Client, host: str) -> None:
    configure(client, {"url": f"https://{host}/v"})
    assert refusal(client).startswith(WHO.format(f"https://{host}/v", 10))
