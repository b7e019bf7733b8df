"""Certificates that are followed or made: the next connection has the new one, and no request fails meanwhile."""
from __future__ import annotations

import logging
import os
import ssl
from datetime import timedelta
from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="certificates are made with the package cryptography")

from kubectl_runtime import RequestError
from kubectl_runtime.certificates.authority import Authority, Certificate, described
from kubectl_runtime.certificates.bundles import certificates_in
from kubectl_runtime.core.base.errors import ConfigError
from kubectl_runtime.testing import SimClock, eventually
from kubectl_runtime.webhooks import application
from kubectl_runtime.webhooks.server import LONGEST_LOOK, WebhookServer
from kubectl_runtime.webhooks.serving_certificates import (
    AUTHORITY_NAME,
    CertificateFolder,
    OwnCertificates,
    SelfSigned,
)
from tests.webhooks.callers import LIMIT, Load, ask, connection, raw
from tests.webhooks.hooks import Quota

APP = application({"/quota": Quota()})


def write(folder: Path, certificate: Certificate) -> None:
    (folder / "tls.crt").write_bytes(certificate.certificate)
    (folder / "tls.key").write_bytes(certificate.key)


def publish(folder: Path, number: int, certificate: Certificate, ca: bytes) -> None:
    """As a kubelet writes a Secret into a volume: whole, behind a link that is replaced."""
    data = folder / f"..{number}"
    data.mkdir()
    write(data, certificate)
    (data / "ca.crt").write_bytes(ca)
    (folder / "..data_tmp").symlink_to(data.name)
    (folder / "..data_tmp").replace(folder / "..data")
    for name in ("tls.crt", "tls.key", "ca.crt"):
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"..data/{name}")


def issued_to(server: WebhookServer) -> bytes:
    """The certificate that a new connection is shown."""
    with raw(server) as one:
        return one.getpeercert(binary_form=True) or b""


def pem(certificate: Certificate) -> bytes:
    return ssl.PEM_cert_to_DER_cert(certificate.certificate.decode())


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority("cluster")


def test_a_broken_pair_keeps_the_old_one_and_a_good_one_is_served(authority: Authority, tmp_path: Path,
                                                                  caplog: pytest.LogCaptureFixture) -> None:
    """Behaviour 95 of controller-runtime: no restart."""
    first, second = authority.server(), authority.server()
    write(tmp_path, first)
    (tmp_path / "ca.crt").write_bytes(authority.pem)
    with WebhookServer(APP, certificates=tmp_path, host="127.0.0.1", port=0) as server:
        assert issued_to(server) == pem(first)
        for broken in (b"", b"no PEM", second.certificate):  # the last fits, but not to the old key
            (tmp_path / "tls.crt").write_bytes(broken)
            assert issued_to(server) == pem(first)
            assert issued_to(server) == pem(first)
        (tmp_path / "tls.key").unlink()
        assert issued_to(server) == pem(first)
        warned = [record for record in caplog.records if record.levelno == logging.WARNING]
        assert len(warned) == 4
        assert all("the last certificate stays in use" in record.getMessage() for record in warned)
        assert "PRIVATE KEY" not in caplog.text
        (tmp_path / "tls.key").write_bytes(second.key)
        assert issued_to(server) == pem(second)


def test_files_that_are_renewed_under_load_fail_no_request(authority: Authority, tmp_path: Path) -> None:
    certificates = [authority.server() for _ in range(6)]
    publish(tmp_path, 0, certificates[0], authority.pem)
    with WebhookServer(APP, certificates=tmp_path, host="127.0.0.1", port=0) as server, \
            Load(server, lambda: authority.pem) as load:
        for number, certificate in enumerate(certificates[1:], 1):
            load.until_more()
            publish(tmp_path, number, certificate, authority.pem)
            # While one connection reads the files, others are not kept waiting: they have the one before.
            eventually(lambda: issued_to(server), pem(certificate).__eq__, timeout=LIMIT, every=0.001)
        load.until_more()
    assert load.failures == []
    assert load.answered >= 100


def test_own_certificates_that_are_renewed_under_load_fail_no_request() -> None:
    """Also for those who have the bundle of before: the next authority is in it already."""
    clock = SimClock()
    day = 24 * 3600.0
    wanted = SelfSigned(validity=timedelta(days=3))
    with WebhookServer(APP, certificates=wanted, host="127.0.0.1", port=0, clock=clock) as server:
        bundle = [server.ca_bundle]
        with Load(server, lambda: bundle[0]) as load:
            for _ in range(4):
                load.until_more()
                shown = issued_to(server)
                before = server.ca_bundle
                clock.settle(1)
                clock.suspend(2 * day)  # advanced by as much it would look 2,880 times, beside those who ask
                clock.advance(LONGEST_LOOK + 1)
                clock.settle(1)  # it has been renewed, and waits again
                assert issued_to(server) != shown
                load.until_more()
                bundle[0] = server.ca_bundle
                assert certificates_in(before)[1] == certificates_in(bundle[0])[0]
    assert load.failures == []


def test_a_certificate_lives_as_long_as_it_was_asked_to_and_its_authority_longer() -> None:
    clock = SimClock()
    own = OwnCertificates(SelfSigned("shop/hooks", validity=timedelta(days=30)), clock)
    assert own.time_left() == timedelta(days=20).total_seconds()
    assert own.expires == clock.now() + timedelta(days=30)
    first, second = own.authorities
    found = described(second)
    assert found.name == AUTHORITY_NAME
    assert timedelta(days=60) <= found.end - found.begin <= timedelta(days=61)
    clock.suspend(timedelta(days=20))  # a machine that slept has not gained time
    assert own.time_left() == 0
    own.renew()
    assert own.authorities[0] == second
    assert own.gone == (first,)
    assert own.time_left() == timedelta(days=20).total_seconds()
    for _ in range(3):
        own.renew()
    assert len(own.gone) == 2  # what somebody wrote late is taken out as well; what is older has expired
    assert "PRIVATE" not in repr(own)


@pytest.mark.parametrize(("certificate", "key", "why"), [
    (None, b"x", "cannot read the certificate"), (b"x", None, "cannot read the key"), (b"x", b"y", "together"),
    (b"", b"", "together")])
def test_files_that_cannot_be_used_at_the_start_are_named(certificate: bytes | None, key: bytes | None, why: str,
                                                         tmp_path: Path) -> None:
    for name, content in (("tls.crt", certificate), ("tls.key", key)):
        if content is not None:
            (tmp_path / name).write_bytes(content)
    server = WebhookServer(APP, certificates=tmp_path, host="127.0.0.1", port=0)
    with pytest.raises(ConfigError, match=why):
        server.start()
    with pytest.raises(RequestError, match="no certificate"):
        _ = server.ca_bundle


def test_an_encrypted_key_is_refused_and_asks_nobody(authority: Authority, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization

    certificate = authority.server()
    key = serialization.load_pem_private_key(certificate.key, None)
    locked = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                               serialization.BestAvailableEncryption(b"secret"))
    write(tmp_path, Certificate(certificate.certificate, locked))
    with pytest.raises(ConfigError, match="the key is encrypted"):
        CertificateFolder(tmp_path)


def test_a_chain_without_a_line_break_at_its_end_is_read(authority: Authority, tmp_path: Path) -> None:
    certificate = authority.server()
    write(tmp_path, Certificate(certificate.certificate.rstrip(), certificate.key.rstrip()))
    assert CertificateFolder(os.fspath(tmp_path)).ca_bundle == b""


def test_a_connection_that_stays_is_not_cut_by_a_renewal(authority: Authority, tmp_path: Path) -> None:
    write(tmp_path, authority.server())
    with WebhookServer(APP, certificates=tmp_path, host="127.0.0.1", port=0) as server, \
            connection(server, authority.pem) as stays:
        assert ask(stays)[0] == 200
        sock = stays.sock
        write(tmp_path, authority.server())
        with connection(server, authority.pem) as new:
            assert ask(new)[0] == 200
        assert ask(stays)[0] == 200
        assert stays.sock is sock
