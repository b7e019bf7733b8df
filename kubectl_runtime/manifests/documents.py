"""A text to its documents, as kubectl reads it.

Text that begins with ``{`` is JSON: objects one after the other, with nothing or white space between. Everything else
is YAML, in documents between lines of ``---``, which may hold a comment besides and nothing else. Empty documents are
left out and not counted. JSON may be followed by a ``---`` and then by YAML, and a text that begins with ``{`` and is
no JSON may be YAML, as newer versions of kubectl have it.

Bytes are UTF-8, or UTF-16 with a mark; other bytes become U+FFFD, as do halves of surrogate pairs in JSON. Numbers
without fraction are integers, those beyond 64 bits floating-point numbers. A text is read as a whole or not at all.

Files, folders and standard input to documents, as ``kubectl apply -f`` reads them.

A file that is named is read whatever its name; of a folder, the files ``*.json``, ``*.yaml`` and ``*.yml``, in the
order of their names, and those of the folders in it only if asked for. ``-`` is standard input.

Documents to Kubernetes objects: a List gives its items one by one, in order, and a list in a list likewise.

Items of a typed list (``PodList``) may leave out apiVersion and kind. ``items: null`` is an empty list. kubectl takes
every object with ``items`` for a list; here its kind has to end with List, so that a custom resource may have such a
field.

Whatever somebody has manifests in, to objects: the one door for scripts and for the embedded server.

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

import codecs
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.requests.params import plain_body
from kubectl_runtime.manifests.scalars import ManifestError, YamlError, go_text, whole_numbers

_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_HALVES = re.compile("[\ud800-\udfff]")
_SPACE = re.compile(r"[ \t\r\n]*")
_SEPARATOR = re.compile(r"^---(.*)$", re.MULTILINE)
_BLANK_LINES = r"(?:[^\S\n]*(?:#.*)?\n)*"
_DIRECTIVES = re.compile(rf"{_BLANK_LINES}(?:%.*\n{_BLANK_LINES})+\Z")


@dataclass(frozen=True, slots=True)
class Document:
    """A document and where it stands: `number` among those of its `source`, the `line` on which it begins, from 1."""

    value: Any = field(repr=False)  # it may be a Secret
    source: str
    number: int
    line: int

    @property
    def place(self) -> str:
        """``pods.yaml, document 2, line 14``."""
        return f"{self.source}, document {self.number}, line {self.line}"


def read_text(text: str | bytes, source: str = "the text") -> list[Document]:
    """The documents of a text; `source` is its name in errors. Raises `ManifestError`."""
    decoded = decode_text(text) if isinstance(text, bytes) else _HALVES.sub("\ufffd", text.removeprefix("\ufeff"))
    found: list[Document] = []
    for value, line in _values(decoded, source, found):
        if value is not None:
            found.append(Document(whole_numbers(value, narrow=True), source, len(found) + 1, line))
    return found


def decode_text(data: bytes, *, strict: bool = False) -> str:
    """Bytes to text: by their mark, else UTF-8, with U+FFFD for other bytes; UnicodeError for that if `strict`."""
    mark, encoding = next((entry for entry in _MARKS if data.startswith(entry[0])), (b"", "utf-8"))
    data = data[len(mark):]
    if strict or encoding != "utf-8":
        return data.decode(encoding, "strict" if strict else "replace")
    return go_text(data)


def decode_json(text: str, start: int = 0) -> tuple[Any, int]:
    """The JSON value that begins at `start`, and where it ends. ValueError (json.JSONDecodeError for the grammar).

    Halves of surrogate pairs become U+FFFD.
    """
    value, end = _decoder.raw_decode(text, start)
    if "\\u" in text[start:end]:
        encoded = json.dumps(value, ensure_ascii=False).encode("utf-16", "surrogatepass")
        value = msgspec.json.decode(encoded.decode("utf-16", "replace"))
    return value, end


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")  # Python's decoder would take NaN and Infinity


_decoder = json.JSONDecoder(parse_constant=_refuse)


def _values(text: str, source: str, found: list[Document]) -> Iterator[tuple[Any, int]]:
    """The values with the lines on which they begin; `found` tells how many came before an error."""
    at = _skip_space(text, 0)
    while text.startswith("{", at):
        line = text.count("\n", 0, at) + 1
        try:
            value, at = decode_json(text, at)
        except (ValueError, RecursionError) as error:
            if found:
                raise _json_error(text, at, source, len(found) + 1, error) from None
            yield from _flow_documents(text, source, found, _json_error(text, at, source, 1, error))
            return
        yield value, line
        at = _skip_space(text, at)
    if at < len(text):
        if found and not text.startswith("---", at):
            raise ManifestError(source, "what follows the JSON is neither JSON nor a line of ---",
                                document=len(found) + 1, line=text.count("\n", 0, at) + 1)
        yield from _yaml_values(text, source, found, at if found else 0)


def _flow_documents(text: str, source: str, found: list[Document], problem: ManifestError
                    ) -> Iterator[tuple[Any, int]]:
    """Text that begins with a brace and is not JSON: YAML, or else what was said of it as JSON is the error."""
    try:
        yield from list(_yaml_values(text, source, found, 0))
    except ManifestError:
        raise problem from None


def _yaml_values(text: str, source: str, found: list[Document], start: int) -> Iterator[tuple[Any, int]]:
    from kubectl_runtime.manifests.yaml_text import decode_yaml

    number = len(found)
    for part, line in _parts(text, source, start):
        try:
            value = decode_yaml(part, alone=True)
        except YamlError as error:
            raise ManifestError(source, f"yaml: {error.problem}", document=number + 1, column=error.column,
                                line=line + error.line - 1 if error.line else line) from None
        if value is not None:
            number += 1
            yield value, line + _leading_lines(part)


def _parts(text: str, source: str, start: int) -> Iterator[tuple[str, int]]:
    """The documents' texts with the lines on which they begin."""
    begin, line = start, text.count("\n", 0, start) + 1
    for match in _SEPARATOR.finditer(text, start):
        part = text[begin:match.start()]
        if _DIRECTIVES.match(part):
            continue  # %YAML and %TAG belong to what follows the line
        if (rest := match[1].strip()) and not rest.startswith("#"):
            raise ManifestError(source, "a line that begins with --- parts documents and holds nothing else",
                                line=text.count("\n", 0, match.start()) + 1)
        if part.strip():
            yield part, line
        line += part.count("\n")
        begin = match.end()
    if text[begin:].strip():
        yield text[begin:], line


def _leading_lines(part: str) -> int:
    """How many lines of white space and comments come before what is in a document."""
    count = 0
    for line in part.split("\n"):
        if line.strip() and not line.lstrip().startswith("#"):
            break
        count += 1
    return count


def _skip_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _json_error(text: str, at: int, source: str, number: int, error: Exception) -> ManifestError:
    place = error.pos if isinstance(error, json.JSONDecodeError) else at
    problem = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
    if isinstance(error, RecursionError):
        problem = "exceeded max depth"
    return ManifestError(source, f"json: {problem}", document=number, line=text.count("\n", 0, place) + 1,
                         column=place - (text.rfind("\n", 0, place) + 1) + 1)


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


Object = dict[str, Any]


def objects_of(value: Any, place: str) -> Iterator[tuple[Object, str]]:
    """The objects in a document, each with where it stands; `place` is the document's. Raises `ManifestError` for what
    is not an object."""
    if not isinstance(value, dict):
        raise ManifestError(place, f"there is {_article(value)} where a Kubernetes object is expected")
    kind = value.get("kind")
    if not (isinstance(kind, str) and kind.endswith("List") and "items" in value):
        yield value, place
        return
    items = value["items"]
    if not isinstance(items, list | None):
        raise ManifestError(place, f"items of {kind} is {_article(items)} and no list")
    item_kind = kind.removesuffix("List")
    typed = {"apiVersion": value.get("apiVersion"), "kind": item_kind} if item_kind else {}
    for number, item in enumerate(items or (), 1):
        yield from objects_of({**typed, **item} if isinstance(item, dict) else item, f"{place}, item {number}")


def _article(value: Any) -> str:
    if value is None:
        return "null"
    names = {str: "a text", bool: "a boolean", int: "a number", float: "a number", list: "a list", dict: "a mapping"}
    return names.get(type(value), f"a {type(value).__name__}")


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
    for value, place in _source_values(source, "the object given", recursive, defaults):
        yield from objects_of(value, place)


def _source_values(source: Manifests, place: str, recursive: bool, defaults: bool) -> Iterator[tuple[Any, str]]:
    """The values of the documents, each with where it stands; `place` is where one stands that is not text."""
    if isinstance(source, str | bytes | Path):
        for document in _documents(source, recursive):
            yield document.value, document.place
    elif isinstance(source, Iterable) and not isinstance(source, Mapping) and not hasattr(source, "to_dict"):
        for number, one in enumerate(source, 1):
            yield from _source_values(one, f"object {number}", recursive, defaults)
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
