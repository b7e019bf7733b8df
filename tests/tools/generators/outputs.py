"""Where the generated files lie in the package, and what makes a file of documents."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from kubectl_runtime.apiserver import schemas
from kubectl_runtime.apiserver.kinds import typed

# Beside the modules that read them.
DEFINITIONS = Path(schemas.__file__).with_name("definitions.json.gz")
TYPES = Path(typed.__file__).with_name("types.json.gz")


def packed(documents: tuple[Any, ...]) -> bytes:
    """JSON documents, one a line, compressed; without a time, so that the same documents make the same bytes."""
    lines = [json.dumps(document, separators=(",", ":"), ensure_ascii=False) for document in documents]
    return gzip.compress("\n".join(lines).encode(), compresslevel=9, mtime=0)


def differs(path: Path, content: bytes) -> bool:
    """Whether a compressed file is missing or unpacks to something else than this content does.

    The compressed bytes are not compared: another release of zlib may pack the same content into other ones.
    """
    return not path.exists() or gzip.decompress(path.read_bytes()) != gzip.decompress(content)
