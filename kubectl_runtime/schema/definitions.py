"""The OpenAPI definitions of the built-in kinds and their parts, read on first use from definitions.json.gz.

tests/tools/generate.py writes that file from the API's published definitions. Thread-safe: everything is computed from
immutable data; at worst two threads compute the same thing twice.
"""
from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

FILE = "definitions.json.gz"
OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
RAW_EXTENSION = "io.k8s.apimachinery.pkg.runtime.RawExtension"
QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"  # a string in OpenAPI, but numbers are accepted too


def _documents() -> list[bytes]:
    import gzip  # most programs need no definitions
    from importlib import resources

    return gzip.decompress(resources.files(__package__).joinpath(FILE).read_bytes()).split(b"\n")


@cache
def definitions() -> Mapping[str, dict[str, Any]]:
    """All definitions by name, without descriptions; each ``$ref`` is the bare name of a definition. Read-only."""
    decoded: dict[str, dict[str, Any]] = msgspec.json.decode(_documents()[0])
    return decoded


@cache
def descriptions() -> Mapping[str, dict[str, str]]:
    """The descriptions of the definitions (under "") and of their fields. Read-only; few programs need them."""
    decoded: dict[str, dict[str, str]] = msgspec.json.decode(_documents()[1])
    return decoded
