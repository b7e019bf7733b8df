"""An authority in memory: what it issues is trusted by who trusts it, and by nobody else."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
import tempfile
from datetime import timedelta

import pytest

pytest.importorskip("cryptography", reason="certificates are made with the package cryptography")

from kubectl_runtime.certificates.authority import UID_ATTRIBUTE, Authority
from kubectl_runtime.certificates.bundles import server_context


@pytest.fixture(scope="module")
def authority():
    return Authority()


def handshake(server, client):
    """Run both sides of a handshake in memory; the two ends."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(to_client, to_server, server_hostname="localhost"),
            server.wrap_bio(to_server, to_client, server_side=True)]
    waiting = list(ends)
    while waiting:
        for end in list(waiting):
            try:
                end.do_handshake()
                waiting.remove(end)
            except ssl.SSLWantReadError:
                continue
    return ends


def client_context(authority, certificate=None, folder=None):
    context = ssl.create_default_context(cadata=authority.pem.decode())
    if certificate is not None:
        path = folder / "client.pem"
        path.write_bytes(certificate.key + certificate.certificate)
        context.load_cert_chain(path)
    return context


def test_a_client_that_trusts_the_authority_trusts_its_servers(authority):
    ends = handshake(server_context(authority.server(), authority.pem), client_context(authority))
    assert ("DNS", "localhost") in ends[0].getpeercert()["subjectAltName"]


def test_another_authority_is_not_trusted(authority):
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server_context(Authority().server(), authority.pem), client_context(authority))


def test_an_expired_certificate_is_not_trusted(authority):
    expired = authority.server(validity=timedelta(hours=-1))
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        handshake(server_context(expired, authority.pem), client_context(authority))


def test_a_user_is_a_common_name_with_groups_and_uid(authority, tmp_path):
    certificate = authority.client("jane", ["dev", "ops"], uid="u-1")
    ends = handshake(server_context(authority.server(), authority.pem),
                     client_context(authority, certificate, tmp_path))
    subject = [pair for part in ends[1].getpeercert()["subject"] for pair in part]
    assert subject == [("organizationName", "dev"), ("organizationName", "ops"), ("commonName", "jane"),
                       (UID_ATTRIBUTE, "u-1")]


def test_no_key_is_shown_or_left_in_a_file(authority, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    certificate = authority.server()
    server_context(certificate, authority.pem)
    assert list(tmp_path.iterdir()) == []
    assert "PRIVATE" not in repr(certificate)


def test_importing_the_modules_needs_no_cryptography():
    code = "import sys; sys.modules['cryptography'] = None; import kubectl_runtime.certificates.bundles"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="this system has no files without a name")
def test_a_context_needs_no_writable_folder(authority, monkeypatch):
    """The file systems of Pods are read-only."""
    monkeypatch.setattr(tempfile, "tempdir", "/no/such/folder")
    server_context(authority.server())
