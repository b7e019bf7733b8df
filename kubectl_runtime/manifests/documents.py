"""Reads text, files and folders into documents and Kubernetes objects, as ``kubectl apply -f`` does.

- Text that begins with ``{`` is JSON: objects one after the other, with or without white space between. Other text is
  YAML: documents separated by lines of ``---``, which may have a comment but nothing else. Empty documents are left out
  and not counted. JSON may be followed by a ``---`` and then by YAML. Text that begins with ``{`` but is not JSON is
  read as YAML, as in newer versions of kubectl.
- Bytes are UTF-8, or UTF-16 with a byte order mark; invalid bytes become U+FFFD, as do halves of surrogate pairs in
  JSON. Numbers without a fraction are integers; integers beyond 64 bits become floating-point numbers. An error
  anywhere in a text means that none of its documents are returned.
- A named file is read whatever its name. In a folder the files ``*.json``, ``*.yaml`` and ``*.yml`` are read, sorted by
  name; files in subfolders are read only with ``recursive``. ``-`` is standard input.
- A List is replaced by its items, in order, and so is a List inside a List. Items of a typed list (``PodList``) may
  omit apiVersion and kind. ``items: null`` is an empty list. For kubectl every object with ``items`` is a list; here
  its kind must also end with List, so that a custom resource may have a field ``items``.

`read_objects` takes any source of manifests: a ``Path`` (file or folder), a ``str`` (the name of an existing file or
folder, ``-``, or else the text itself), ``bytes`` (the text), a mapping (an object or a List), a resource object, a
model of the official client, or an iterable of these.
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
    """A document, and its place in `source`: the document's `number` and its first `line`, each counted from 1."""

    value: Any = field(repr=False)  # not shown, because it may be a Secret
    source: str
    number: int
    line: int

    @property
    def place(self) -> str:
        """The document's place in words: ``pods.yaml, document 2, line 14``."""
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
    """Decode by the byte order mark, or as UTF-8. Invalid bytes become U+FFFD, or raise UnicodeError if `strict`."""
    mark, encoding = next((entry for entry in _MARKS if data.startswith(entry[0])), (b"", "utf-8"))
    data = data[len(mark):]
    if strict or encoding != "utf-8":
        return data.decode(encoding, "strict" if strict else "replace")
    return go_text(data)


def decode_json(text: str, start: int = 0) -> tuple[Any, int]:
    """Return the JSON value that begins at `start`, and the position after the value.

    Halves of surrogate pairs become U+FFFD. Raises ValueError, or its subclass json.JSONDecodeError for a syntax error.
    """
    value, end = _decoder.raw_decode(text, start)
    if "\\u" in text[start:end]:
        encoded = json.dumps(value, ensure_ascii=False).encode("utf-16", "surrogatepass")
        value = msgspec.json.decode(encoded.decode("utf-16", "replace"))
    return value, end


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")  # Python's decoder would accept NaN and Infinity


_decoder = json.JSONDecoder(parse_constant=_refuse)


def _values(text: str, source: str, found: list[Document]) -> Iterator[tuple[Any, int]]:
    """Yield each value with the line on which it begins. The caller appends each document to `found`."""
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
    """Read as YAML a text that begins with a brace but is not JSON. If that fails, raise `problem`, the JSON error."""
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
    """Yield the text of each YAML document, with the line on which the text begins."""
    begin, line = start, text.count("\n", 0, start) + 1
    for match in _SEPARATOR.finditer(text, start):
        part = text[begin:match.start()]
        if _DIRECTIVES.match(part):
            continue  # %YAML and %TAG belong to the document after this --- line
        if (rest := match[1].strip()) and not rest.startswith("#"):
            raise ManifestError(source, "a line that begins with --- separates documents and must hold nothing else",
                                line=text.count("\n", 0, match.start()) + 1)
        if part.strip():
            yield part, line
        line += part.count("\n")
        begin = match.end()
    if text[begin:].strip():
        yield text[begin:], line


def _leading_lines(part: str) -> int:
    """The number of blank lines and comment lines before a document's content."""
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

    `recursive` includes the folders in a folder; folders behind symbolic links are not entered, but files behind links
    are read. Files are read one by one as the iterator proceeds. Raises `ManifestError`, for example if the
    folder has no manifests, and OSError.
    """
    if str(path) == STDIN:
        yield from read_text(sys.stdin.buffer.read(), "standard input")
        return
    if not os.path.isdir(path):
        yield from read_text(Path(path).read_bytes(), str(path))
        return
    files = list(_manifests_in(str(path), recursive))
    if not files:
        raise ManifestError(str(path), f"the folder has no file that ends with {', '.join(EXTENSIONS)}")
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
    """Yield the objects in the document `value`, each with its place; `place` is the document's place. Raises
    `ManifestError` for anything that is not an object."""
    if not isinstance(value, dict):
        raise ManifestError(place, f"there is {_article(value)} where a Kubernetes object is expected")
    kind = value.get("kind")
    if not (isinstance(kind, str) and kind.endswith("List") and "items" in value):
        yield value, place
        return
    items = value["items"]
    if not isinstance(items, list | None):
        raise ManifestError(place, f"items of {kind} must be a list, not {_article(items)}")
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
"""The sources of `read_objects`; `Any` stands for resource objects and models, which have no common type."""


def read_objects(source: Manifests, *, recursive: bool = False,
                 defaults: bool = True) -> Iterator[tuple[Object, str]]:
    """Yield the Kubernetes objects in `source` in order, as plain JSON values with the API's keys (``apiVersion``).

    Each object comes with its place (``deploy/web.yaml, document 2, line 14``, or ``object 3``). The items of a List
    are yielded one by one. `recursive` includes subfolders. With `defaults=False`, a resource object that this program
    created leaves out fields that equal their class's default, as for a server-side apply. Files are read as the
    iterator proceeds. Kind and name of an object are not checked. Raises `ManifestError` for anything that is not a
    manifest, OSError for a file that cannot be read.
    """
    for value, place in _source_values(source, "the object given", recursive, defaults):
        yield from objects_of(value, place)


def _source_values(source: Manifests, place: str, recursive: bool, defaults: bool) -> Iterator[tuple[Any, str]]:
    """Yield each document's value with its place. `place` is the place of a source that is neither text nor a file."""
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
        raise ManifestError("the YAML text", f"there is no file or folder {documents[0].value!r}, and as text it is "
                                             "not a Kubernetes object")
    yield from documents


def _is_a_file(text: str) -> bool:
    """Whether `text` names an existing file or folder, or standard input. Text with a line break names no file."""
    return text == STDIN or (bool(text) and "\n" not in text and os.path.exists(text))
