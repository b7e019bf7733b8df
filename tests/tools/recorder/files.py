"""Files of recordings: of vectors, and of refusals (refusals.py has their format).

A file of vectors is ``{"topic", "about", "server", "vectors": [...]}``. A vector is

===========  =========================================================================================================
name         unique in its file
shows        what it is about, in a sentence; the recording decides where they differ
needs        what the server must have: ``auth`` (tokens and RBAC), ``compaction`` (history is dropped within a minute),
             ``controller-manager``
given        steps that prepare; they must succeed, their answers are not compared
steps        steps whose answers are compared
rvOrder      the resourceVersion symbols (symbols.py) from low to high, if that is not their numbering
===========  =========================================================================================================

and a step is a request and its answer:

==============  ======================================================================================================
id              name of the step, for placeholders
method, path,   the request; ``User-Agent: golden/1.0``, ``Accept: application/json`` and, with a body, ``Content-Type:
query, headers  application/json`` are sent unless ``headers`` says otherwise; a header that is null is not sent
as              ``admin`` (if missing), ``user``, ``anonymous`` or ``invalid`` (a wrong token)
body            sent as JSON, or as it is if it is a text
changes         a JSON merge patch of ``body``, applied before it is sent: "what I read, with these changes"
until,          repeat the request until the answer contains this, for at most so many seconds (20); the last answer
patience        counts
watch           the request is a watch: ``now`` reads it at once, ``background`` leaves it open while more steps run
collect         instead of a request: the events so far of the watch with this id
count           wait for at least so many events; without it read until the server ends the stream
bookmarks       compare plain bookmarks too (else they are dropped, as they come at any time); several in a row are one
pause           instead of a request: seconds to wait
expect          ``status``, ``headers``, ``body``; of a watch ``status``, ``headers``, ``events``, ``ended`` (by the
                server). The recorder writes it: a new vector is written without
compare         ``full`` (if missing): equal; ``contains``: objects may have more fields, lists more elements
compareMessage  compare the message of a Status and of its causes too
ignore          JSON pointers into the answer (``*`` is any key or index) that must be there, with any value
==============  ======================================================================================================

Placeholders: ``{{ns}}`` is the vector's namespace, ``{{id}}`` its unique name, ``{{step.body.metadata.uid}}`` something
from an earlier answer. A text that is nothing but a placeholder takes the value itself: ``"body": "{{made.body}}"``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

Entry = dict[str, Any]  # a vector, or a group of refusals


@dataclass(frozen=True)
class RecordingFile:
    """The contents of a file; ``header`` is what stands beside the vectors, None in a file of refusals."""

    path: Path
    header: dict[str, Any] | None
    entries: list[Entry]
    indented: bool  # one value a line, instead of one step or case a line

    @classmethod
    def read(cls, path: Path) -> RecordingFile:
        """Read a file. Raises OSError and, for what is no JSON, ValueError."""
        text = path.read_text(encoding="utf-8")
        content = json.loads(text)
        if isinstance(content, list):
            return cls(path, None, content, False)
        return cls(path, content, content.pop("vectors"), text.startswith("{\n"))

    def with_entries(self, entries: list[Entry], version: str | None) -> RecordingFile:
        """The file with other entries, and with the version of the server that all of them are recorded from."""
        header = {**self.header, "server": version} if self.header is not None and version else self.header
        return replace(self, header=header, entries=entries)

    def label(self, entry: Entry) -> str:
        """``topic/name`` of an entry."""
        return f"{self.header['topic'] if self.header is not None else self.path.stem}/{entry['name']}"

    def text(self) -> str:
        """The file's text, in the layout that it was read in."""
        if self.header is None:
            groups = ",\n".join(_lines(group, ("cases",), "", "\n", "\n") for group in self.entries)
            return f"[\n{groups}\n]\n"
        if self.indented:
            return json.dumps({**self.header, "vectors": self.entries}, indent=1, ensure_ascii=False) + "\n"
        vectors = ",\n".join(_lines(vector, ("given", "steps"), "\n ", "\n  ", "") for vector in self.entries)
        return f'{_compact(self.header)[:-1]},"vectors":[\n{vectors}\n]}}\n'


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _lines(entry: Entry, listed: tuple[str, ...], before: str, between: str, after: str) -> str:
    """An entry on one line, but for some lists: these have a line for each element."""
    parts = []
    for key, value in entry.items():
        if key in listed and value:
            elements = f",{between}".join(map(_compact, value))
            parts.append(f"{before}{_compact(key)}:[{between}{elements}{after}]")
        else:
            parts.append(f"{_compact(key)}:{_compact(value)}")
    return "{" + ",".join(parts) + "}"
