"""Where the generated files lie in the package, and what makes a file of documents or of a module's text."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from kubectl_runtime import resources, schema
from kubectl_runtime.apiserver.kinds import typed

# Beside the modules that read them.
DEFINITIONS = Path(schema.__file__).with_name("definitions.json.gz")
TYPES = Path(typed.__file__).with_name("types.json.gz")
RESOURCES = Path(resources.__file__).parent


def packed(documents: tuple[Any, ...]) -> bytes:
    """JSON documents, one a line, compressed; without a time, so that the same documents make the same bytes."""
    lines = [json.dumps(document, separators=(",", ":"), ensure_ascii=False) for document in documents]
    return gzip.compress("\n".join(lines).encode(), compresslevel=9, mtime=0)


def module(name: str) -> Path:
    """The file of a module of resource classes."""
    return RESOURCES / f"{name}.py"


def unpacked(content: bytes) -> bytes:
    """What a compressed file holds; any other content as it is."""
    return gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content


def differs(path: Path, content: bytes) -> bool:
    """Whether a file is missing or holds something else than this content does.

    Compressed bytes are not compared: another release of zlib may pack the same content into other ones.
    """
    return not path.exists() or unpacked(path.read_bytes()) != unpacked(content)
