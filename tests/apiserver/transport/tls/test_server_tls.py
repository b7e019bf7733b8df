"""HTTPS: the generated authority, certificates of users, and clients that check them."""

from __future__ import annotations

import json
import os
import shutil
import socket
import ssl
import stat
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import requests

from kubectl_runtime import Api, Patch, await_condition
from kubectl_runtime.apiserver.context import User
from kubectl_runtime.apiserver.credentials import ServerTls
from kubectl_runtime.certificates.authority import HOSTS, Authority, Certificate
from kubectl_runtime.core.base.errors import MissingExtra
from kubectl_runtime.resources import ConfigMap, Namespace
from kubectl_runtime.testing import ApiServer

WHOAMI = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
NS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    with ApiServer(controllers=(), tls=True, authorization_mode="RBAC") as running:
        yield running


@pytest.fixture
def ca(server: ApiServer, tmp_path: Path) -> str:
    assert server.tls is not None
    path = tmp_path / "ca.crt"
    path.write_bytes(server.tls.authority.pem)
    return str(path)


def files(folder: Path, certificate: Certificate) -> tuple[str, str]:
    """A certificate as the pair of files that requests wants."""
    names = str(folder / "client.crt"), str(folder / "client.key")
    for name, data in zip(names, (certificate.certificate, certificate.key), strict=True):
        Path(name).write_bytes(data)
    return names


def whoami(url: str, **more) -> dict:
    answer = requests.post(url + WHOAMI, json={}, timeout=20, **more)
    assert answer.status_code == 201, answer.text
    return answer.json()["status"]["userInfo"]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_the_certificate_is_good_for_loopback_names(server, ca, host) -> None:
    url = server.url.replace("127.0.0.1", host)
    assert requests.get(url + "/version", verify=ca, timeout=20).json()["major"] == "1"


def test_a_client_that_does_not_know_the_authority_refuses_it(server) -> None:
    with pytest.raises(requests.exceptions.SSLError):
        requests.get(server.url + "/version", timeout=20)


def test_a_client_certificate_is_a_user_with_groups(server, ca, tmp_path) -> None:
    assert server.tls is not None
    certificate = server.tls.authority.client("carol", ["devs", "ops"], uid="u-7")
    info = whoami(server.url, verify=ca, cert=files(tmp_path, certificate))
    fingerprint = info.pop("extra")["authentication.kubernetes.io/credential-id"][0]
    assert fingerprint.startswith("X509SHA256=")
    assert len(fingerprint) == len("X509SHA256=") + 64
    assert info == {"username": "carol", "uid": "u-7", "groups": ["devs", "ops", "system:authenticated"]}


def test_a_certificate_has_the_rights_that_rbac_gives_it(server, ca, tmp_path) -> None:
    certificate = files(tmp_path, server.credentials("dora", certificate=True).certificate)
    assert requests.get(server.url + NS, verify=ca, cert=certificate, timeout=20).status_code == 403
    server.load({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
                 "metadata": {"name": "dora", "namespace": "default"},
                 "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
                 "subjects": [{"kind": "User", "name": "dora", "apiGroup": "rbac.authorization.k8s.io"}]})
    assert requests.get(server.url + NS, verify=ca, cert=certificate, timeout=20).status_code == 200


@pytest.mark.parametrize(("make", "why"), [
    (lambda own: Authority("other").client("eve"), "another authority's"),
    (lambda own: own.client("eve", validity=timedelta(days=-2)), "an expired one"),
])
def test_a_certificate_that_proves_nothing_ends_the_handshake(server, ca, tmp_path, make, why) -> None:
    assert server.tls is not None
    with pytest.raises(requests.exceptions.ConnectionError):
        requests.get(server.url + "/version", verify=ca, cert=files(tmp_path, make(server.tls.authority)), timeout=20)
    assert requests.get(server.url + "/version", verify=ca, timeout=20).ok, why


def test_plain_http_on_the_port_is_told_so_as_the_real_server_does(server) -> None:
    with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), 20) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert connection.recv(1000) == (b"HTTP/1.0 400 Bad Request\r\n\r\n"
                                         b"Client sent an HTTP request to an HTTPS server.\n")


@pytest.mark.parametrize("authority", [None, Authority()])
def test_every_namespace_holds_the_certificate_of_the_authority(authority) -> None:
    with ApiServer(tls=authority or True, controllers=["root-ca-certificate-publisher"]) as own, own.client() as client:
        Api.all(client, Namespace).create(Namespace(name="later"))
        for namespace in ("default", "later"):
            maps = Api.namespaced(client, ConfigMap, namespace)
            found = await_condition(maps, "kube-root-ca.crt", lambda obj: obj is not None, timeout=20)
            assert found is not None
            assert found.data == {"ca.crt": own.tls.authority.pem.decode()}
        maps.patch("kube-root-ca.crt", Patch.merge({"data": {"ca.crt": "another"}}))
        assert await_condition(maps, "kube-root-ca.crt",
                               lambda obj: obj is not None and obj.data["ca.crt"] != "another", timeout=20)


def test_the_end_of_a_connection_is_announced(server, ca) -> None:
    context = ssl.create_default_context(cafile=ca)
    with (socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), 20) as plain,
          context.wrap_socket(plain, server_hostname="localhost", suppress_ragged_eofs=False) as connection):
        connection.sendall(b"GET /version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        received = b""
        while data := connection.recv(65536):  # an unannounced end would raise SSLEOFError
            received += data
    assert received.startswith(b"HTTP/1.1 200 OK")
    assert server.tls is not None
    assert server.tls.server_names[-1] == "localhost"


def test_a_reset_breaks_the_encryption_off(server, ca) -> None:
    server.faults.on("list").first().truncate(-5, then="reset")
    token = {"Authorization": f"Bearer {server.credentials().token}"}
    with pytest.raises((requests.exceptions.ConnectionError, requests.exceptions.ChunkedEncodingError)):
        requests.get(server.url + NS, verify=ca, headers=token, timeout=20)
    assert requests.get(server.url + NS, verify=ca, headers=token, timeout=20).ok


def test_the_client_and_its_kubeconfig_know_the_authority_and_are_administrators(server, tmp_path) -> None:
    path = server.write_kubeconfig(tmp_path / "kubeconfig")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    config = json.loads(path.read_text())
    assert set(config["clusters"][0]["cluster"]) == {"server", "certificate-authority-data"}
    assert set(config["users"][0]["user"]) == {"token"}
    with server.client() as client:
        assert client.server_version()


def test_a_kubeconfig_can_embed_a_client_certificate(server, tmp_path) -> None:
    kubectl = shutil.which("kubectl")
    path = server.write_kubeconfig(tmp_path / "kubeconfig", User("frank", groups=("devs",)), certificate=True)
    assert set(json.loads(path.read_text())["users"][0]["user"]) == {"client-certificate-data", "client-key-data"}
    if kubectl is None:
        pytest.skip("kubectl is not installed")
    shown = subprocess.run([kubectl, "--kubeconfig", str(path), "auth", "whoami", "-o", "json"], capture_output=True,
                           env={"HOME": str(tmp_path), "PATH": os.defpath}, timeout=60, check=True).stdout
    assert json.loads(shown)["status"]["userInfo"]["groups"] == ["devs", "system:authenticated"]


def test_without_rbac_and_tokens_the_users_of_a_tls_server_have_certificates(tmp_path) -> None:
    with ApiServer(controllers=(), tls=True) as server:
        assert server.credentials("gina").certificate is not None
        assert server.credentials().token == ""


def test_users_cannot_be_told_apart_by_a_plain_server() -> None:
    with pytest.raises(ValueError, match="authorization_mode"):
        ApiServer().credentials("gina")
    with pytest.raises(ValueError, match="tls=True"):
        ApiServer().credentials("gina", certificate=True)


def test_a_certificate_for_chosen_names(tmp_path) -> None:
    authority = Authority()
    with ApiServer(controllers=(), tls=ServerTls(authority, hosts=["api.internal"])) as server:
        path = tmp_path / "ca.crt"
        path.write_bytes(authority.pem)
        with pytest.raises(requests.exceptions.SSLError, match=r"mismatch|doesn't match"):
            requests.get(server.url + "/version", verify=str(path), timeout=20)
        context = ssl.create_default_context(cafile=str(path))
        with (socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), 20) as plain,
              context.wrap_socket(plain, server_hostname="api.internal") as connection):
            assert connection.version() in ("TLSv1.2", "TLSv1.3")


def test_the_authority_lives_through_restarts(tmp_path) -> None:
    with ApiServer(controllers=(), tls=True) as server:
        path = tmp_path / "ca.crt"
        path.write_bytes(server.credentials().ca)
        server.restart()
        assert requests.get(server.url + "/version", verify=str(path), timeout=20).ok


def test_no_key_is_shown_or_left_in_a_file(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    certificate = ServerTls().authority.client("x")
    assert list(tmp_path.iterdir()) == []
    assert "PRIVATE" not in repr(certificate)


def test_without_cryptography_the_extra_is_named(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(MissingExtra, match=r"the extra 'tls': pip install '.*\[tls\]'"):
        ApiServer(tls=True)
    assert ApiServer().tls is None


def test_importing_the_module_needs_no_cryptography() -> None:
    code = "import sys; sys.modules['cryptography'] = None; import kubectl_runtime.apiserver.server"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert HOSTS == ("localhost", "127.0.0.1", "::1")
