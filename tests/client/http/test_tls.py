"""TLS as configured: the cluster's CA and no other, server names, client certificates, keys that touch no disk."""

from __future__ import annotations

import datetime
import ssl
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import requests
import urllib3

from kubectl_runtime import Api, Client, Config, ConfigError, OutcomeUnknownError, RetryPolicy, TransportError
from kubectl_runtime.client.config.auth import ClientCertificate
from kubectl_runtime.client.http.retry import ConnectionFailed, Failure
from kubectl_runtime.client.http.sockets import build_context
from kubectl_runtime.client.wire.transport_errors import transport_error
from kubectl_runtime.resources import ConfigMap, Pod
from kubectl_runtime.runtime.watch.backoff import is_unreachable
from tests.client.proxies import ProxyServer
from tests.client.wire_server import Peer, WireServer, answering, config_map, says

pytest.importorskip("cryptography", reason="certificates are made with the package cryptography")
from kubectl_runtime.certificates.authority import Authority, Certificate
from kubectl_runtime.certificates.bundles import server_context

NEVER = {"retry": RetryPolicy.never()}


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


def serving(authority: Authority, hosts: tuple[str, ...] = ("127.0.0.1",), serve: Any = None) -> WireServer:
    context = server_context(authority.server(hosts), authority.pem)
    server = WireServer(serve or answering(says(200, config_map())), tls=context)
    server.names = []  # type: ignore[attr-defined]
    context.sni_callback = lambda _, name, __: server.names.append(name)  # type: ignore[attr-defined]
    return server


def get(client: Client) -> str:
    with client:
        return Api.namespaced(client, ConfigMap, "default").get("a").name


def test_the_clusters_ca_is_trusted_as_data_and_as_file(authority: Authority, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_bytes(
        b"# the cluster's: gr\xc3\xb6\xc3\x9fe\n" + Authority("other").pem + b"text\n" + authority.pem
    )
    with serving(authority) as server:
        assert get(server.client(ca_data=authority.pem)) == "a"
        assert get(server.client(ca_file=str(tmp_path / "ca.pem"))) == "a"


def test_an_unknown_ca_is_an_error_with_the_remedy_and_is_not_retried(authority: Authority) -> None:
    with serving(authority) as server:
        for config in ({"ca_data": Authority("other").pem}, {}):
            with pytest.raises(TransportError, match=r"no trusted connection.*certificate authority"):
                get(server.client(**config))
        assert server.connections == 2


@pytest.mark.parametrize("ending", [Peer.close, Peer.reset])
@pytest.mark.parametrize("verb", ["get", "create"])
def test_a_handshake_that_is_cut_off_is_no_matter_of_trust_and_is_retried(
    authority: Authority, ending: Callable[[Peer], None], verb: str
) -> None:
    """A load balancer without a server behind it accepts connections and ends them; so does a server that dies."""
    def cut(peer: Peer) -> None:
        peer.take(5)  # the head of the first record: so the client is in the handshake
        ending(peer)

    with WireServer(cut) as server, Client(
        Config(cluster_url=f"https://127.0.0.1:{server.port}", ca_data=authority.pem),
        retry=RetryPolicy(base=0.001, retries=2),
    ) as client:
        maps = Api.namespaced(client, ConfigMap, "default")
        with pytest.raises(ConnectionFailed, match=r"cannot connect to .* \(the TLS handshake was cut off") as caught:
            maps.get("a") if verb == "get" else maps.create(ConfigMap(name="a"))
        assert not caught.value.sent
        assert "certificate" not in str(caught.value)
        assert is_unreachable(caught.value)  # so watches take turns, and go on when anything is answered
        assert server.connections == 3


@pytest.mark.direct("TLS with the proxy would end, too")
def test_a_connection_that_has_ended_before_the_request_is_no_matter_of_trust(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TLS has a name of its own for a broken pipe."""
    def serve(peer: Peer) -> None:
        if peer.number > 2:
            answering(says(200, config_map()))(peer)

    def ended(sock: ssl.SSLSocket, data: bytes, flags: int = 0) -> None:
        if server.connections > 2 or sock.server_side:
            return usual(sock, data, flags)
        raise ssl.SSLEOFError(8, "EOF occurred in violation of protocol")

    usual = ssl.SSLSocket.sendall
    monkeypatch.setattr(ssl.SSLSocket, "sendall", ended)
    quick = {"retry": RetryPolicy(base=0.001)}
    with serving(authority, serve=serve) as server, server.client(ca_data=authority.pem, client=quick) as client:
        maps = Api.namespaced(client, ConfigMap, "default")
        with pytest.raises(OutcomeUnknownError, match=r"the connection to .* was lost") as caught:
            maps.create(ConfigMap(name="a"))  # is not sent twice
        assert caught.value.sent
        assert maps.get("a").name == "a"
        assert server.connections == 3


@pytest.mark.parametrize("error", [ssl.SSLEOFError(8, "EOF"), ssl.SSLZeroReturnError(6, "closed")])
def test_the_end_of_a_users_connection_is_no_matter_of_trust(error: ssl.SSLError) -> None:
    outer = requests.exceptions.SSLError(urllib3.exceptions.SSLError(error))
    found = transport_error(outer, "get pods a/b", "host:6443", "Config()", 60)
    assert isinstance(found, ConnectionFailed)
    assert found.failure == Failure()
def test_a_server_without_tls_is_told_from_one_that_is_not_trusted() -> None:
    with WireServer(lambda peer: peer.answer(400)) as server:
        config = Config(cluster_url=server.url.replace("http://", "https://"))
        with pytest.raises(TransportError, match=r"Perhaps the server speaks HTTP without TLS; if so, use http:// in"):
            get(Client(config))


def test_no_public_ca_is_added_to_the_clusters(authority: Authority) -> None:
    assert len(build_context(ca=authority.pem).get_ca_certs()) == 1


@pytest.mark.filterwarnings("error")
def test_insecure_verifies_nothing(authority: Authority) -> None:
    with serving(authority, ("elsewhere",)) as server:
        assert get(server.client(insecure_skip_tls_verify=True)) == "a"


def test_the_host_must_match_unless_a_server_name_says_otherwise(authority: Authority) -> None:
    with serving(authority, ("api.internal",)) as server:
        with pytest.raises(TransportError, match="tls-server-name"):
            get(server.client(ca_data=authority.pem))
        assert get(server.client(ca_data=authority.pem, tls_server_name="api.internal")) == "a"
        assert server.names[-1] == "api.internal"  # type: ignore[attr-defined]
        assert server.requests[-1].header("Host") == f"127.0.0.1:{server.port}"


def test_an_address_is_not_sent_as_a_name(authority: Authority) -> None:
    with serving(authority) as server:
        get(server.client(ca_data=authority.pem))
        assert server.names == [None]  # type: ignore[attr-defined]


def test_the_name_that_is_verified_is_the_bare_host_of_a_url_with_port_and_path(authority: Authority) -> None:
    with serving(authority, ("localhost",)) as server:
        url = server.url.replace("127.0.0.1", "localhost") + "/k8s/clusters/c-1/"
        assert get(Client(Config(cluster_url=url, ca_data=authority.pem))) == "a"
        assert server.names == ["localhost"]  # type: ignore[attr-defined]
        assert server.requests[0].target.startswith("/k8s/clusters/c-1/api/")


def test_no_time_limit_is_no_limit_and_no_error(authority: Authority) -> None:
    unlimited: dict[str, Any] = {"timeout": float("inf"), "connect_timeout": float("inf")}
    with serving(authority) as server:
        get(server.client(ca_data=authority.pem, **unlimited))


def test_a_client_certificate_with_its_chain_is_shown_and_its_key_touches_no_disk(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    own = authority.client("jane")
    subjects: list[Any] = []

    def serve(peer: Peer) -> None:
        connection: ssl.SSLSocket = peer._socket  # type: ignore[assignment]
        certificate = connection.getpeercert()
        subjects.append(certificate and certificate["subject"])
        peer.receive()
        peer.answer(200, config_map())

    with serving(authority, serve=serve) as server:
        get(
            server.client(
                ca_data=authority.pem, client_certificate_data=own.certificate + authority.pem, client_key_data=own.key
            )
        )
    assert ("commonName", "jane") in [pair for part in subjects[0] for pair in part]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.filterwarnings("error")
def test_the_sessions_verify_and_cert_are_used(authority: Authority, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_bytes(authority.pem)
    own = authority.client("jane")
    (tmp_path / "own.pem").write_bytes(own.certificate + own.key)
    trusting, careless = requests.Session(), requests.Session()
    trusting.verify, trusting.cert = str(tmp_path / "ca.pem"), str(tmp_path / "own.pem")
    careless.verify = False
    with serving(authority) as server:
        assert get(server.client(client={"session": trusting})) == "a"
        assert get(server.client(client={"session": careless})) == "a"


def test_an_adapter_of_the_users_gets_the_ca_as_a_file(authority: Authority) -> None:
    class Mine(requests.adapters.HTTPAdapter):
        pass

    session = requests.Session()
    session.mount("https://", Mine())
    with serving(authority) as server:
        assert get(server.client(client={"session": session}, ca_data=authority.pem)) == "a"


def test_a_new_certificate_of_the_credentials_is_used_for_new_connections(authority: Authority) -> None:
    subjects: list[Any] = []

    def serve(peer: Peer) -> None:
        certificate = peer._socket.getpeercert()  # type: ignore[attr-defined]
        subjects.append(dict(pair[0] for pair in certificate["subject"])["commonName"])
        while peer.receive() is not None:
            peer.answer(200, config_map())

    class Rotating:
        current = authority.client("one")

        def header(self, deadline: float | None = None) -> None:
            return None

        def refresh(self, rejected: str | None, deadline: float | None = None) -> bool:
            return False

        def certificate(self) -> ClientCertificate:
            return ClientCertificate(self.current.certificate, self.current.key)

    rotating = Rotating()
    with serving(authority, serve=serve) as server, server.client(ca_data=authority.pem, auth=rotating) as client:
        api = Api.namespaced(client, ConfigMap, "default")
        api.get("a")
        api.get("a")
        rotating.current = authority.client("two")
        api.get("a")
    assert subjects == ["one", "two"]


@pytest.mark.parametrize(
    ("ca", "says_"),
    [
        (b"", "no PEM"),
        (b"nonsense", "no PEM"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "cannot be used"),
    ],
)
def test_an_unusable_ca_is_named(ca: bytes, says_: str, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_bytes(ca)
    with pytest.raises(ConfigError, match=says_) as error:
        Client(Config(cluster_url="https://h", ca_file=str(tmp_path / "ca.pem")))
    assert "ca.pem" in str(error.value)


def test_certificate_and_key_that_do_not_belong_together_are_an_error(authority: Authority) -> None:
    one, two = authority.client("one"), authority.client("two")
    with pytest.raises(ConfigError, match="client certificate"):
        build_context(ca=authority.pem, certificate=ClientCertificate(one.certificate, two.key))


def test_an_encrypted_key_is_an_error_not_a_question(authority: Authority) -> None:
    from cryptography.hazmat.primitives import serialization

    own: Certificate = authority.client("jane")
    key = serialization.load_pem_private_key(own.key, None)
    locked = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"x")
    )
    with pytest.raises(ConfigError, match="encrypted"):
        build_context(ca=authority.pem, certificate=ClientCertificate(own.certificate, locked))


def test_without_memfd_a_private_file_serves_and_is_gone_afterwards(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    own = authority.client("jane")
    build_context(ca=authority.pem, certificate=ClientCertificate(own.certificate, own.key))
    assert list(tmp_path.iterdir()) == []


def test_a_certificate_that_has_expired_is_an_error_that_says_so(authority: Authority) -> None:
    context = server_context(authority.server(("127.0.0.1",), validity=datetime.timedelta(days=-1)), authority.pem)
    with WireServer(answering(says()), tls=context) as server, pytest.raises(TransportError, match="expired") as caught:
        get(server.client(ca_data=authority.pem))
    assert "The server's certificate must be renewed, or the clock of this machine is wrong" in str(caught.value)
    assert "tls-server-name" not in str(caught.value)  # no setting mends it


@pytest.mark.parametrize("days", [-1, 1])
def test_a_client_certificate_that_is_refused_is_what_to_look_at(authority: Authority, days: int) -> None:
    """Expired, or of another authority: said by a server, or a proxy before it, that demands one."""
    issuer = authority if days < 0 else Authority("other")
    own = issuer.client("jane", validity=datetime.timedelta(days=days))
    context = server_context(authority.server(("127.0.0.1",)), authority.pem)
    context.verify_mode = ssl.CERT_REQUIRED
    with WireServer(answering(says()), tls=context) as server, pytest.raises(TransportError) as caught:
        get(server.client(ca_data=authority.pem, client_certificate_data=own.certificate, client_key_data=own.key,
                          client={"retry": RetryPolicy.never()}))
    assert "The server rejects the client certificate of Config()" in str(caught.value)


@pytest.mark.parametrize("way", ["direct", "https proxy"])
@pytest.mark.parametrize("goodbye", [True, False], ids=["goodbye", "cut"])
def test_a_body_that_ends_with_the_connection_is_whole_with_the_goodbye_of_tls_only(
    authority: Authority, way: str, goodbye: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else tells an end from a cut by whoever is on the way. Lengths and chunks do, and need no goodbye."""
    (tmp_path / "ca.pem").write_bytes(authority.pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    context = server_context(authority.server(("127.0.0.1",)), authority.pem)
    text = b"one\ntwo\n"

    def serve(peer: Peer) -> None:
        request = peer.receive()
        assert request is not None
        # It announces that it closes, so that the next request does not meet a connection that is about to end.
        framing = b"Content-Length: 8\r\nConnection: close\r\n" if "previous=true" in request.target else b""
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n" + framing + b"\r\n" + text)
        if goodbye:
            with suppress(OSError):
                peer._socket.unwrap()  # type: ignore[attr-defined]
        peer.close()

    with WireServer(serve, tls=context) as server, ProxyServer("https", tls=context) as proxy:
        through = {"proxy_url": proxy.url} if way != "direct" else {}
        config = Config(cluster_url=f"https://127.0.0.1:{server.port}", ca_data=authority.pem, **through)
        with Client(config, retry=RetryPolicy.never()) as client:
            pods = Api.namespaced(client, Pod, "default")
            assert pods.logs("a", previous=True) == text
            for read in (lambda: pods.logs("a"), lambda: b"".join(pods.log_stream("a"))):
                if goodbye:
                    assert read() == text
                else:
                    with pytest.raises(TransportError, match="EOF occurred in violation of protocol"):
                        read()
