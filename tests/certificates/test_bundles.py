"""Bundles: several servers keep their authorities in one, and nobody's is lost."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

pytest.importorskip("cryptography", reason="certificates are made with the package cryptography")

from kubectl_runtime.certificates import bundles
from kubectl_runtime.certificates.authority import Authority
from kubectl_runtime.certificates.bundles import certificates_in, joined, merged

NOW = datetime.now(UTC)


def pems(number, name="hooks", validity=timedelta(days=1)):
    return [Authority(name, validity).pem for _ in range(number)]


def test_ours_are_added_and_those_of_others_stay():
    a, b, c = pems(3)
    assert certificates_in(merged(b"", [a], [], name="hooks", now=NOW)) == [a]
    assert certificates_in(merged(a + b, [c], [], name="hooks", now=NOW)) == [a, b, c]
    assert certificates_in(merged(a + b, [c], [a], name="hooks", now=NOW)) == [b, c]


def test_bundles_are_joined_without_a_look_into_them():
    first, second, third = (f"-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n".encode()
                            for text in "abc")
    assert joined(first, [second]) == first + second
    assert joined(first + second, [second, third]) == first + second + third
    odd = b"a comment\n" + first
    assert joined(odd, [first]) is odd


def test_nothing_to_do_leaves_the_bytes_alone():
    a, b = pems(2)
    odd = b"a comment\n" + b + a.rstrip()
    assert merged(odd, [a], [], name="hooks", now=NOW) is odd
    assert merged(odd, [a, b], [], name="hooks", now=NOW) is odd
    assert merged(b"", [], [], name="hooks", now=NOW) == b""


def test_what_has_expired_goes_and_what_is_nobodys_certificate_stays():
    a, = pems(1)
    expired, = pems(1, validity=timedelta(hours=-2))
    strange = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    assert certificates_in(merged(expired + strange, [a], [], name="hooks", now=NOW)) == [strange, a]


def test_a_certificate_that_is_there_twice_is_there_once():
    a, b = pems(2)
    assert certificates_in(merged(a + a + b, [a], [], name="hooks", now=NOW)) == [b, a]


def test_a_program_that_crashes_for_days_does_not_fill_the_bundle(monkeypatch):
    monkeypatch.setattr(bundles, "MOST", 4)
    monkeypatch.setattr(bundles, "described", lambda pem: bundles.Described(
        "other" if b"other" in pem else "hooks", NOW + timedelta(seconds=int(pem.split()[2])), NOW + timedelta(days=1)))
    block = "-----BEGIN CERTIFICATE-----\n{} {}\n-----END CERTIFICATE-----\n".format
    there = [block(number, "hooks").encode() for number in range(10)]
    others = [block(number, "other").encode() for number in range(10)]
    ours = [block(99, "hooks").encode()]
    found = certificates_in(merged(b"".join(there + others), ours, [], name="hooks", now=NOW))
    assert found == [*there[-3:], *others, *ours]
