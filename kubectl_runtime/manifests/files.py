"""Files, folders and standard input to documents, as ``kubectl apply -f`` reads them.

A file that is named is read whatever its name; of a folder, the files ``*.json``, ``*.yaml`` and ``*.yml``, in the
order of their names, and those of the folders in it only if asked for. ``-`` is standard input.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from kubectl_runtime.manifests.documents import Document, read_text
from kubectl_runtime.manifests.problems import ManifestError

EXTENSIONS = (".json", ".yaml", ".yml")
STDIN = "-"


def read_files(path: str | Path, *, recursive: bool = False) -> Iterator[Document]:
    """The documents of a file, of a folder, or of standard input (``-``), which is read to its end.

    `recursive` goes into the folders of a folder; folders behind symbolic links are not entered, files behind them are
    read. Reads file after file as the iterator goes on. Raises `ManifestError`, also for a folder without any manifest,
    and OSError.
    """
    if str(path) == STDIN:
        yield from read_text(sys.stdin.buffer.read(), "standard input")
        return
    if not os.path.isdir(path):
        yield from read_text(Path(path).read_bytes(), str(path))
        return
    files = list(_manifests_in(str(path), recursive))
    if not files:
        raise ManifestError(str(path), f"there is no file in it that ends with {', '.join(EXTENSIONS)}")
    for file in files:
        yield from read_text(Path(file).read_bytes(), file)


def _manifests_in(folder: str, recursive: bool) -> Iterator[str]:
    with os.scandir(folder) as entries:
        ordered = sorted(entries, key=lambda entry: entry.name)
    for entry in ordered:
        if entry.is_dir(follow_symlinks=False):
            if recursive:
                yield from _manifests_in(entry.path, recursive)
        elif entry.name.endswith(EXTENSIONS) and not entry.is_dir():
            yield entry.path
