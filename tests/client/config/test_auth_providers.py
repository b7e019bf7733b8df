"""OIDC providers of kubeconfigs: asked at the first call, verified, within its deadline, and without a trace."""

from __future__ import annotations

import base64
import gzip
import json
import logging
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kubectl_runtime import Api, Client, Config, ConfigError
from kubectl_runtime.client.config.auth_provider import AuthProviderCredentials
from kubectl_runtime.core.requests.request import Request
from kubectl_runtime.errors import AuthError
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.testing.clock import SimClock
from tests.client.wire_server import Peer, Received, WireServer, answering, config_map, says

pytest.importorskip("cryptography", reason="certificates are made with the package cryptography")
from kubectl_runtime.certificates.authority import Authority
from kubectl_runtime.certificates.bundles import server_context

ROOT = Path(__file__).parents[3]
FUTURE, PAST = 4102444800, 1


def token(expires: int, name: str = "a") -> str:
    def part(content: dict[str, object]) -> str:
        return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")

    return f"{part({'alg': 'none'})}.{part({'exp': expires, 'sub': name})}.{part({})}"


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


def provider(authority: Authority, answer: dict[str, Any] | None = None) -> WireServer:
    """An OIDC provider, that gives a new token for each refresh token."""

    def reply(peer: Peer, request: Received) -> None:
        if request.target.endswith("openid-configuration"):
            peer.answer(200, {"token_endpoint": f"{server.url}/token"})
        else:
            peer.answer(200, answer or {"id_token": token(FUTURE, "new"), "access_token": "x", "refresh_token": "r2"})

    server = WireServer(answering(reply), tls=server_context(authority.server(("127.0.0.1",)), authority.pem))
    return server


def settings(url: str, **more: str) -> dict[str, str]:
    return {"idp-issuer-url": url, "client-id": "c", "refresh-token": "geheim", "id-token": token(PAST), **more}


def kubeconfig(server: str, config: dict[str, str], name: str = "oidc") -> dict[str, Any]:
    return {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"auth-provider": {"name": name, "config": config}}}],
    }


def authority_of(authority: Authority) -> dict[str, str]:
    return {"idp-certificate-authority-data": base64.b64encode(authority.pem).decode()}


def test_a_token_that_is_valid_is_used_without_asking_the_provider() -> None:
    config = Config.from_kubeconfig(
        kubeconfig("https://127.0.0.1:1", settings("https://issuer.invalid", **{"id-token": token(FUTURE)})))
    credentials = config.credentials()
    assert credentials is not None
    assert credentials.header() == f"Bearer {token(FUTURE)}"
    assert token(FUTURE) not in repr(config)


@pytest.mark.parametrize("authority_given", [True, False])
def test_loading_opens_no_connection_and_the_first_call_asks_the_provider_verified(
    authority: Authority, authority_given: bool
) -> None:
    with provider(authority) as issuer, WireServer(answering(says(200, config_map()))) as server:
        extra = authority_of(authority) if authority_given else {}
        with Client(Config.from_kubeconfig(kubeconfig(server.url, settings(issuer.url, **extra)))) as client:
            assert issuer.connections == 0
            api = Api.namespaced(client, ConfigMap, "default")
            if authority_given:
                api.get("a")
                assert server.requests[0].header("Authorization") == f"Bearer {token(FUTURE, 'new')}"
            else:
                with pytest.raises(AuthError, match=r"auth provider 'oidc' gave no token.*SSL") as error:
                    api.get("a")
                assert "geheim" not in str(error.value)
                assert issuer.requests == []
                assert server.requests == []


def test_a_provider_that_accepts_and_is_silent_holds_a_call_until_its_deadline_only(authority: Authority) -> None:
    def silent(peer: Peer) -> None:
        peer.receive()
        peer.hold()

    tls = server_context(authority.server(("127.0.0.1",)), authority.pem)
    with WireServer(silent, tls=tls) as issuer:
        content = kubeconfig("http://127.0.0.1:1", settings(issuer.url, **authority_of(authority)))
        with Client(Config.from_kubeconfig(content)) as client:
            deadline = client.clock.monotonic() + 1.0
            with pytest.raises(AuthError, match="auth provider 'oidc' gave no credentials within the call's deadline"):
                client.request(Request("GET", "/version", "get", None, "get the version"), deadline=deadline)
            assert client.clock.monotonic() < deadline + 10


def test_a_token_is_renewed_when_it_has_expired_and_kept_until_then(authority: Authority) -> None:
    clock = SimClock()
    soon = int(clock.now().timestamp()) + 100
    with provider(authority) as issuer:
        config = settings(issuer.url, **authority_of(authority), **{"id-token": token(soon)})
        credentials = AuthProviderCredentials("oidc", config, clock=clock)
        assert credentials.header() == f"Bearer {token(soon)}"
        clock.advance(90)
        assert issuer.connections == 0
        clock.advance(20)
        assert credentials.header() == f"Bearer {token(FUTURE, 'new')}"


def test_a_rejected_token_that_the_provider_does_not_replace_is_not_tried_again() -> None:
    credentials = AuthProviderCredentials("oidc", settings("https://h", **{"id-token": token(FUTURE)}))
    header = credentials.header()
    assert not credentials.refresh(header)


@pytest.mark.parametrize("missing", ["idp-issuer-url", "client-id", "refresh-token"])
def test_an_expired_token_that_cannot_be_renewed_is_an_error_that_names_the_field(missing: str) -> None:
    with pytest.raises(AuthError, match=f"'oidc' cannot renew its token.*{missing}"):
        AuthProviderCredentials("oidc", settings("https://h", **{missing: ""})).header()


def test_a_provider_that_is_not_asked_over_https_is_not_asked() -> None:
    with pytest.raises(AuthError, match="must be an https URL"):
        AuthProviderCredentials("oidc", settings("http://issuer.invalid")).header()


@pytest.mark.parametrize("answer", [{"error": "invalid_grant"}, {"access_token": "x"}, {"id_token": "a\nb"}])
def test_an_answer_without_a_token_is_an_error_without_the_providers_text(
    authority: Authority, answer: dict[str, str]
) -> None:
    with provider(authority, answer) as issuer:
        with pytest.raises(AuthError, match="'oidc'") as error:
            AuthProviderCredentials("oidc", settings(issuer.url, **authority_of(authority))).header()
    assert "geheim" not in str(error.value)


def test_a_provider_that_nobody_knows_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match=r"users\[0\].user.auth-provider.name is 'azure'.*exec plugin"):
        Config.from_kubeconfig(kubeconfig("https://h", {}, "azure"))


def test_the_official_client_is_imported_when_a_token_is_needed_and_not_before(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(json.dumps(kubeconfig("http://127.0.0.1:1", settings("https://127.0.0.1:1"))))
    code = (
        "import sys; from kubectl_runtime import Config, Client; from kubectl_runtime.errors import AuthError\n"
        "config = Config.from_kubeconfig(sys.argv[1]); Client(config)\n"
        "assert 'kubernetes' not in sys.modules\n"
        "try: config.credentials().header()\n"
        "except AuthError: pass\n"
        "assert ('kubernetes' in sys.modules) == (sys.argv[2] == 'gcp')\n"
    )
    for name in ("oidc", "gcp"):  # of which only the second is left to it
        path.write_text(json.dumps(kubeconfig("http://127.0.0.1:1", settings("https://127.0.0.1:1"), name)))
        command = [sys.executable, "-c", code, str(path), name]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
        assert done.returncode == 0, done.stderr


SECRETS = ("geheim-refresh", "geheim-client", token(PAST), token(FUTURE, "new"))


@pytest.mark.parametrize("status", [200, 301, 302, 303, 307, 308])
@pytest.mark.parametrize("where", ["discovery", "token"])
def test_nothing_is_logged_and_no_redirect_is_followed(
    status: int, where: str, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    tls = server_context(authority.server(("127.0.0.1",)), authority.pem)
    with WireServer(answering(says(200, {"id_token": token(FUTURE, "new")}))) as other:

        def reply(peer: Peer, request: Received) -> None:
            is_discovery = request.target.endswith("openid-configuration")
            if is_discovery == (where == "discovery") and status != 200:
                peer.answer(status, {}, headers=(f"Location: {other.url}/elsewhere",))
            elif is_discovery:
                peer.answer(200, {"token_endpoint": f"{issuer.url}/token"})
            else:
                peer.answer(200, {"id_token": token(FUTURE, "new"), "refresh_token": "geheim-refresh"})

        issuer = WireServer(answering(reply), tls=tls)
        with issuer:
            config = settings(issuer.url, **authority_of(authority), **{
                "refresh-token": "geheim-refresh", "client-secret": "geheim-client"})
            credentials = AuthProviderCredentials("oidc", config)
            if status == 200:
                assert credentials.header() == f"Bearer {token(FUTURE, 'new')}"
                sent = issuer.requests[-1]
                assert b"grant_type=refresh_token" in sent.body
                assert sent.header("Authorization") == "Basic " + base64.b64encode(b"c:geheim-client").decode()
            else:
                with pytest.raises(AuthError, match=f"HTTP {status}") as error:
                    credentials.header()
                assert not any(secret in str(error.value) for secret in SECRETS)
        assert other.connections == 0
    assert not any(secret in caplog.text for secret in SECRETS)


@pytest.mark.parametrize("endpoint", ["http://issuer.example.com/token", "ftp://127.0.0.1/token", "https://u:p@h/token",
                                      "https://127.0.0.1%00.example.com/token", "/token", "", 5, None])
def test_tokens_go_to_no_endpoint_that_is_not_https(endpoint: Any, authority: Authority) -> None:
    tls = server_context(authority.server(("127.0.0.1",)), authority.pem)
    with WireServer(answering(says(200, {"token_endpoint": endpoint})), tls=tls) as issuer:
        with pytest.raises(AuthError, match="'oidc'") as error:
            AuthProviderCredentials("oidc", settings(issuer.url, **authority_of(authority))).header()
        assert [request.method for request in issuer.requests] == ["GET"]
    assert "geheim" not in str(error.value)


@pytest.mark.parametrize("authority_given", [{"idp-certificate-authority-data": "%"},
                                             {"idp-certificate-authority-data": "Z2VoZWlt"},
                                             {"idp-certificate-authority": "/no/such/file"}])
def test_an_authority_that_cannot_be_used_is_an_error(authority_given: dict[str, str]) -> None:
    with pytest.raises(AuthError, match="its idp-certificate-authority cannot be used"):
        AuthProviderCredentials("oidc", settings("https://127.0.0.1:1", **authority_given)).header()


@pytest.mark.parametrize("body", [
    gzip.compress(b" " * (1 << 28)), gzip.compress(b'{"id_token": "x"}'), b" " * (20 << 20)],
    ids=["bomb", "gzip", "long"])
def test_an_answer_that_was_not_asked_for_so_is_not_unpacked(body: bytes, authority: Authority) -> None:
    def reply(peer: Peer, request: Received) -> None:
        if request.target.endswith("openid-configuration"):
            peer.answer(200, {"token_endpoint": f"{issuer.url}/token"})
        else:
            coding = ("Content-Encoding: gzip",) if body[:1] != b" " else ()
            with suppress(OSError):
                peer.answer(200, body, headers=coding)

    tls = server_context(authority.server(("127.0.0.1",)), authority.pem)
    with WireServer(answering(reply), tls=tls) as issuer:
        credentials = AuthProviderCredentials("oidc", settings(issuer.url, **authority_of(authority)))
        begun = time.process_time()
        with pytest.raises(AuthError, match="not the expected JSON"):
            credentials.header()
        assert time.process_time() - begun < 1
