"""The data files of the package, read back: what the resource classes are made of when the inputs are not at hand."""

from __future__ import annotations

import gzip
import json
from typing import Any

from tests.tools.generators import outputs


def schemas() -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, str]]]:
    """As `definitions.documents` made them."""
    first, second = map(json.loads, gzip.decompress(outputs.DEFINITIONS.read_bytes()).split(b"\n"))
    return first, second


def types() -> dict[str, dict[str, str]]:
    """As `gotypes.declarations` made them."""
    found: dict[str, dict[str, str]] = json.loads(gzip.decompress(outputs.TYPES.read_bytes()))
    return found
