"""Whatever somebody has manifests in, to objects: the one door for scripts and for the embedded server.

======================  ==============================================================================================
a ``Path``              that file or folder, as ``files`` reads it
a ``str``               the file or folder of that name if there is one and it is one line; ``-`` is standard input;
                        else the text itself, YAML or JSON
``bytes``               the text itself
a mapping               one object, or a List of them
an object               a resource object, or a model of the official client
an iterable             any number of these, one after the other
======================  ==============================================================================================
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.requests.body import plain_body
from kubectl_runtime.manifests.documents import Document, read_text
from kubectl_runtime.manifests.files import STDIN, read_files
from kubectl_runtime.manifests.objects import Object, objects_of
from kubectl_runtime.manifests.problems import ManifestError

Manifests: TypeAlias = str | bytes | Path | Mapping[str, Any] | Iterable[Any] | Any
"""What `read_objects` takes; `Any` stands for resource objects and models, which have no common type."""


def read_objects(source: Manifests, *, recursive: bool = False,
                 defaults: bool = True) -> Iterator[tuple[Object, str]]:
    """The Kubernetes objects in `source` as plain JSON values under the wire's keys, each with where it stands
    (``deploy/web.yaml, document 2, line 14``, or ``object 3``), in order; the items of a List one by one.

    `recursive` goes into the folders of folders. Without `defaults` a resource object that was made here leaves out
    what equals its class's default, as for a server-side apply. Files are read as the iterator goes on. That an object
    has a kind and a name is not looked at. Raises `ManifestError` for what is not a manifest, OSError for what cannot
    be read.
    """
    for value, place in _values(source, "the object given", recursive, defaults):
        yield from objects_of(value, place)


def _values(source: Manifests, place: str, recursive: bool, defaults: bool) -> Iterator[tuple[Any, str]]:
    """The values of the documents, each with where it stands; `place` is where one stands that is not text."""
    if isinstance(source, str | bytes | Path):
        for document in _documents(source, recursive):
            yield document.value, document.place
    elif isinstance(source, Iterable) and not isinstance(source, Mapping) and not hasattr(source, "to_dict"):
        for number, one in enumerate(source, 1):
            yield from _values(one, f"object {number}", recursive, defaults)
    else:
        try:
            yield plain_body(source, defaults=defaults), place
        except RequestError as error:
            raise ManifestError(place, str(error)) from None


def _documents(source: str | bytes | Path, recursive: bool) -> Iterator[Document]:
    if isinstance(source, Path) or (isinstance(source, str) and _is_a_file(source)):
        yield from read_files(source, recursive=recursive)
        return
    documents = read_text(source, "the YAML text")
    if len(documents) == 1 and isinstance(documents[0].value, str):
        raise ManifestError("the YAML text", f"there is no file or folder {documents[0].value!r}, and as a text it is "
                                             "no Kubernetes object")
    yield from documents


def _is_a_file(text: str) -> bool:
    """Whether it names one, or a folder, or standard input. A text may be one that no file can be named by."""
    return text == STDIN or (bool(text) and "\n" not in text and os.path.exists(text))
