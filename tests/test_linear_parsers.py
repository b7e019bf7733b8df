"""Texts of others, however long and however odd, are read in time that grows with their length and not faster.

Each case is of a size that took seconds to hours where a parser looked at a part of the text again and again. What is
measured is the processor's time of this thread, which does not depend on what else runs here.
"""
from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from kubectl_runtime.apiserver.output import table
from kubectl_runtime.certificates.bundles import certificates_in
from kubectl_runtime.client.http import sockets
from kubectl_runtime.client.http.retry import error_of
from kubectl_runtime.core.codec import salvage
from kubectl_runtime.core.codec.jsonbytes import head_of
from kubectl_runtime.core.meta.gvk import ApiResource
from kubectl_runtime.core.meta.metav1 import GoDuration, parse_time
from kubectl_runtime.core.meta.problems import problem_of
from kubectl_runtime.core.meta.quantities import Quantity
from kubectl_runtime.core.meta.selectors import Selector
from kubectl_runtime.core.requests import request as build
from kubectl_runtime.crd.codegen import _words
from kubectl_runtime.manifests.documents import read_text
from kubectl_runtime.schema.formats import parse_duration, text_fits
from kubectl_runtime.schema.patterns import compiled

PODS = ApiResource("", "v1", "Pod", "pods")
LIMIT = 2.0
"""Seconds; each takes a tenth at most on a slow machine."""


def page(text: str) -> Any:
    return error_of(build.get(build.Place(PODS, "n"), "a"), 502, {"Content-Type": "text/html"},
                     f"<html>{text}".encode(), now=datetime(2026, 1, 1, tzinfo=UTC))


def email(text: str) -> Any:
    return text_fits(text, "email")


CASES: list[tuple[Callable[[Any], Any], Any]] = [
    *((Selector.parse, text) for text in ("a=b," * 50_000, "," * 200_000, "a in (b,c)," * 20_000, "),(" * 50_000,
                                          "a in (" + "b," * 100_000, "a" * 200_000, "a" + " " * 200_000)),
    *((GoDuration.parse, text) for text in ("1h" * 300_000, "9" * 300_000, "0." + "9" * 300_000, "1.1ns" * 100_000,
                                            "1h" * 100_000 + "x", "h" * 300_000)),
    *((parse_duration, text) for text in ("1" * 300_000, "1h" * 100_000 + "!", "1 " * 100_000, "9 days " * 50_000)),
    *((page, text) for text in ("<title>" * 9_000, "<title" * 9_000, "<TITLE>x</title" * 4_000,
                                "<title>" + "x" * 63_000, "<title " + "<" * 63_000, " " * 63_000)),
    *((lambda raw: head_of(raw, PODS), raw) for raw in (
        b'{"metadata":{"a":1' + b',"managedFields":[{"a":1' * 40_000, b'{"m":{"a":1' + b',"managedFields":[' * 40_000,
        b'{"metadata":{"a":1' + b',"managedFields":[]' * 40_000)),
    *((salvage.split_page, raw) for raw in (b'{"items":[' + b'"\\' * 100_000, b'{"' + b'\\"' * 100_000, b'"' * 200_001,
                                            b'{"items":' * 50_000, b'{"items":[' + b"[" * 200_000)),
    *((lambda raw: salvage.head(raw, enveloped=False), raw) for raw in (
        b'{"kind":"' + b"\\" * 200_000, b'{"kind":"a",' * 20_000, b"{" + b" " * 200_000, b'{"metadata":' * 20_000)),
    *((certificates_in, raw) for raw in (b"-----BEGIN CERTIFICATE-----" * 20_000,
                                         b"-----BEGIN CERTIFICATE-----a-----END " * 20_000)),
    (lambda raw: list(sockets._CERTIFICATES.finditer(raw)), b"-----BEGIN CERTIFICATE-----" * 20_000),
    *((read_text, text) for text in ("\n" * 30_000 + "x: 1\n---\n", "# a\n \n" * 10_000 + "x: 1\n---\n",
                                     "%YAML 1.1\n" + "---\n" * 20_000, "%a\n---\n" * 20_000, "{}" * 5_000)),
    *((email, text) for text in (" " * 100_000, "a " * 50_000, "a" + "." * 100_000, '"' * 100_001, "a@" * 50_000)),
    *((compiled.__wrapped__, text) for text in ("a*" * 20_000, r"\p{L}" * 1_000, r"\d" * 5_000, "(?" * 20_000)),
    *((lambda text: table.find({}, f".a[?({text})]"), text) for text in (
        "@.a" + " " * 100_000, "a " * 50_000 + "==", "@.a == " + " " * 100_000 + "b")),
    *((_words, text) for text in ("A" * 100_000, "AS" * 50_000, "_" * 100_000)),
    *((Quantity.parse, text) for text in ("1" * 4_000, "0." + "1" * 100_000, "1e" + "9" * 100_000)),
    *((parse_time, text) for text in ("1" * 200_000, "2026-01-01T00:00:00." + "1" * 200_000)),
    *((lambda text: problem_of(msgspec.ValidationError(text)), text) for text in (
        " - at `$" * 20_000, " - at `" * 20_000, "Invalid value " * 20_000))]


@pytest.mark.parametrize("number", range(len(CASES)))
def test_a_long_text_takes_no_time(number: int) -> None:
    parse, text = CASES[number]
    begun = time.thread_time()
    with contextlib.suppress(Exception):
        parse(text)
    assert time.thread_time() - begun < LIMIT, text[:40]
