"""Files that are replaced while a client lives: the CA, the client certificate and its key."""

from __future__ import annotations

import logging
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from kubectl_runtime import Api, Client, ConfigError, RetryPolicy, TransportError
from kubectl_runtime.resources import ConfigMap
from tests.client.wire_server import Peer, WireServer, config_map

pytest.importorskip("cryptography", reason="certificates are made with the package cryptography")
from kubectl_runtime.certificates.authority import Authority, Certificate
from kubectl_runtime.certificates.bundles import server_context


@pytest.fixture(scope="module")
def old() -> Authority:
    return Authority("old")


@pytest.fixture(scope="module")
def new() -> Authority:
    return Authority("new")


class Server(WireServer):
    """Answers each connection once, and notes who the client was; its certificate can be replaced."""

    def __init__(self, authority: Authority) -> None:
        self.users: list[str | None] = []
        super().__init__(self._answer, tls=server_context(authority.server(("127.0.0.1",)), authority.pem))

    def _answer(self, peer: Peer) -> None:
        certificate: dict[str, Any] = peer._socket.getpeercert() or {}  # type: ignore[attr-defined]
        names = [pair[1] for part in certificate.get("subject", ()) for pair in part if pair[0] == "commonName"]
        self.users.append(names[0] if names else None)
        peer.receive()
        peer.answer(200, config_map())

    def moves_to(self, authority: Authority) -> None:
        self._tls = server_context(authority.server(("127.0.0.1",)), authority.pem)


def get(client: Client) -> None:
    Api.namespaced(client, ConfigMap, "default").get("a")


def put(path: Path, content: bytes) -> None:
    """As a kubelet does: a new file in the place of the old one."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_bytes(content)
    os.replace(fresh, path)


def write(folder: Path, certificate: Certificate) -> dict[str, str]:
    put(folder / "own.crt", certificate.certificate)
    put(folder / "own.key", certificate.key)
    return {"client_certificate_file": str(folder / "own.crt"), "client_key_file": str(folder / "own.key")}


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_new_ca_is_trusted_at_the_next_connection(old: Authority, new: Authority, tmp_path: Path) -> None:
    ca = tmp_path / "ca.crt"
    put(ca, old.pem)
    with Server(old) as server, server.client(ca_file=str(ca), client={"retry": RetryPolicy.never()}) as client:
        get(client)
        server.moves_to(new)
        with pytest.raises(TransportError, match=f"no trusted connection.*CA file {ca}"):
            get(client)
        put(ca, new.pem)
        get(client)


@pytest.mark.parametrize("way", ["in place", "renamed", "by a link", "in place with its old time and size"])
def test_however_the_ca_file_is_replaced_it_is_followed(
    way: str, old: Authority, new: Authority, tmp_path: Path
) -> None:
    ca, other = tmp_path / "ca.crt", tmp_path / "other"
    length = max(len(old.pem), len(new.pem))
    ca.write_bytes(old.pem.ljust(length))
    with Server(old) as server, server.client(ca_file=str(ca), client={"retry": RetryPolicy.never()}) as client:
        get(client)
        server.moves_to(new)
        before = ca.stat()
        if way == "renamed":
            other.write_bytes(new.pem)
            other.replace(ca)
        elif way == "by a link":
            (tmp_path / "v2").write_bytes(new.pem)
            other.symlink_to(tmp_path / "v2")
            other.replace(ca)
        else:
            ca.write_bytes(new.pem.ljust(length))
            if "old time" in way:
                os.utime(ca, ns=(before.st_atime_ns, before.st_mtime_ns))
        get(client)


def test_while_the_ca_file_cannot_be_used_the_last_one_stays_and_one_warning_names_it(
    old: Authority, new: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ca = tmp_path / "ca.crt"
    put(ca, old.pem)
    with Server(old) as server, server.client(ca_file=str(ca)) as client:
        for content in (b"", None):
            caplog.clear()
            put(ca, content) if content is not None else ca.unlink()
            for _ in range(3):
                get(client)
            assert len(warnings(caplog)) == 1
            assert str(ca) in warnings(caplog)[0]
        server.moves_to(new)
        put(ca, new.pem)
        get(client)


def test_a_new_client_certificate_is_shown_from_the_next_call_on(old: Authority, tmp_path: Path) -> None:
    files = write(tmp_path, old.client("one"))
    with Server(old) as server, server.client(ca_data=old.pem, **files) as client:
        get(client)
        write(tmp_path, old.client("two"))
        get(client)
    assert server.users == ["one", "two"]


def test_half_a_replacement_keeps_the_old_identity_until_the_other_half_is_there(
    old: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files, two = write(tmp_path, old.client("one")), old.client("two")
    with Server(old) as server, server.client(ca_data=old.pem, **files) as client:
        get(client)
        put(tmp_path / "own.crt", two.certificate)
        get(client)
        get(client)
        assert len(warnings(caplog)) == 1
        assert str(tmp_path / "own.crt") in warnings(caplog)[0]
        put(tmp_path / "own.key", two.key)
        get(client)
    assert server.users == ["one", "one", "one", "two"]


def test_a_token_goes_beside_a_followed_certificate(old: Authority, tmp_path: Path) -> None:
    files = write(tmp_path, old.client("one"))
    with Server(old) as server, server.client(ca_data=old.pem, token="t", **files) as client:
        get(client)
    assert server.requests[0].header("Authorization") == "Bearer t"
    assert server.users == ["one"]


def test_files_that_do_not_fit_or_are_missing_are_named_when_the_client_is_made(
    old: Authority, tmp_path: Path
) -> None:
    files = write(tmp_path, old.client("one"))
    put(tmp_path / "own.key", old.client("two").key)
    with Server(old) as server:
        with pytest.raises(ConfigError, match=f"{tmp_path}/own.crt"):
            server.client(ca_data=old.pem, **files)
        (tmp_path / "own.key").unlink()
        with pytest.raises(ConfigError, match=f"cannot read the client key {tmp_path}/own.key"):
            server.client(ca_data=old.pem, **files)
        with pytest.raises(ConfigError, match=f"cannot read the CA file {tmp_path}/none"):
            server.client(ca_file=str(tmp_path / "none"))


def test_no_private_key_is_left_in_a_file(
    old: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    files = write(tmp_path, old.client("one"))
    own = old.client("data")
    with Server(old) as server:
        with server.client(ca_data=old.pem, **files) as client:
            get(client)
            write(tmp_path, old.client("two"))
            get(client)
        data = {"client_certificate_data": own.certificate, "client_key_data": own.key}
        with server.client(ca_data=old.pem, **data) as client:
            get(client)
    assert server.users == ["one", "two", "data"]
    assert list((tmp_path / "temporary").iterdir()) == []
