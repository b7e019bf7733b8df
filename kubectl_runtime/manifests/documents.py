"""A text to its documents, as kubectl reads it.

Text that begins with ``{`` is JSON: objects one after the other, with nothing or white space between. Everything else
is YAML, in documents between lines of ``---``, which may hold a comment besides and nothing else. Empty documents are
left out and not counted. JSON may be followed by a ``---`` and then by YAML, and a text that begins with ``{`` and is
no JSON may be YAML, as newer versions of kubectl have it.

Bytes are UTF-8, or UTF-16 with a mark; other bytes become U+FFFD, as do halves of surrogate pairs in JSON. Numbers
without fraction are integers, those beyond 64 bits floating-point numbers. A text is read as a whole or not at all.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kubectl_runtime.manifests.problems import ManifestError, YamlError
from kubectl_runtime.manifests.scalars import go_text, whole_numbers

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
    from kubectl_runtime.manifests.composer import decode_yaml

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
