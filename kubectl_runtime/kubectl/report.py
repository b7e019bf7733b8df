"""The outcome of a set of manifests: `ManifestOutcome` per object, `ManifestReport` for all, `ManifestsFailed`.

ManifestsFailed is one error with the whole report, not an ExceptionGroup: `except KubeError` catches it, and it also
has the successful outcomes.

`Progress` writes a line for each finished object. On a terminal a rewritten line below shows what is awaited; elsewhere
each newly awaited object gets a line. It writes to standard error by default, so that a script's own output stays
clean. After a write error it writes nothing more, since a lost display must not fail the manifests. Not thread-safe.
"""
from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TextIO

from kubectl_runtime.core.base.errors import KubeError
from kubectl_runtime.core.meta.gvk import ObjectRef
from kubectl_runtime.runtime.logs import said

ManifestAction = Literal["created", "updated", "unchanged", "deleted", "absent", "failed", "skipped"]
"""`absent` means that the object to delete does not exist. `skipped` means that the object was not tried, because the
server did not respond or a stop was requested."""


@dataclass(frozen=True, slots=True)
class ManifestOutcome:
    r"""The outcome of one object of a set of manifests; in a dry run, what would happen to it.

    `ref` is the object, `place` its position in the source, `action` what was done, `difference` a unified diff, and
    `error` the reason for a failure.

    >>> text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: default}"
    >>> report = apply_manifests(client, text, field_manager="me", progress=False)
    >>> [outcome.action for outcome in report]
    ['created']
    """

    ref: ObjectRef
    place: str
    """The position in the source: ``deploy/web.yaml, document 2, line 14``."""
    action: ManifestAction
    ready: bool | None = None
    """Whether the object became ready, or was deleted; None if `wait` was not given."""
    difference: str = ""
    """In a dry run, a unified diff of YAML from the stored object to the result; empty when they are equal."""
    checked: bool = True
    """False in a dry run if the server cannot check the object yet: its namespace or CRD is created by the same set."""
    error: KubeError | None = None

    def __str__(self) -> str:
        """``Deployment default/web created``, on one line."""
        notes = [] if self.checked else ["not checked by the server yet"]
        if self.ready is False:
            notes.append("and is still there" if self.action == "deleted" else "and is not ready")
        return f"{said(self.ref)} {self.action}{' (' + ', '.join(notes) + ')' if notes else ''}"


@dataclass(frozen=True, slots=True)
class ManifestReport:
    r"""The outcomes of a set of manifests, in the order of the source. Iterates over the outcomes; its text has one
    line for each of them.

    >>> text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: default}"
    >>> report = diff_manifests(client, text, field_manager="me")
    >>> report.changed
    True
    """

    outcomes: tuple[ManifestOutcome, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether anything was, or in a dry run would be, created, updated or deleted."""
        return any(outcome.action in ("created", "updated", "deleted") for outcome in self.outcomes)

    @property
    def failed(self) -> tuple[ManifestOutcome, ...]:
        """The outcomes that have an error."""
        return tuple(outcome for outcome in self.outcomes if outcome.error is not None)

    @property
    def difference(self) -> str:
        """The differences of a dry run, as `kubectl diff` prints them; empty when nothing would change."""
        return "".join(outcome.difference for outcome in self.outcomes)

    def __iter__(self) -> Iterator[ManifestOutcome]:
        return iter(self.outcomes)

    def __len__(self) -> int:
        return len(self.outcomes)

    def __str__(self) -> str:
        return "\n".join(map(str, self.outcomes))


class ManifestsFailed(KubeError):
    r"""Some objects of a set failed; the others were still tried. The text has a line for each failure, with its
    position.

    `report` has all outcomes, including successful ones.

    >>> text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: NOT_A_NAME, namespace: default}"
    >>> try:
    ...     apply_manifests(client, text, field_manager="me", progress=False)
    ... except ManifestsFailed as error:
    ...     len(error.report.outcomes)
    1
    """

    def __init__(self, verb: str, report: ManifestReport, why_not_all: str = "") -> None:
        failed = report.failed
        skipped = sum(outcome.action == "skipped" for outcome in report)
        lines = [f"{verb}: {len(failed)} of {len(report)} objects failed"
                 + (f", {skipped} more were not tried: {why_not_all}" if skipped else "")]
        lines += [f"{said(outcome.ref)} ({outcome.place}): {outcome.error}" for outcome in failed]
        super().__init__("\n  ".join(lines))
        self.report = report


_BACK, _CLEAR = "\r", "\x1b[K"


class Progress:
    """Writes progress lines to a stream. `to`: the stream; True for standard error, False for no output. `close` erases
    a line that shows a wait."""

    def __init__(self, to: TextIO | bool) -> None:
        self._stream = sys.stderr if to is True else None if to is False else to
        self._lively = self._is_terminal()
        self._shown = ""

    def done(self, text: str) -> None:
        """Write a permanent line for a finished object."""
        self._wipe()
        self._write(_printable(text) + "\n")

    def waiting(self, whom: str, why: str) -> None:
        """Show that `whom` is awaited, because of `why`."""
        if self._lively:
            width = shutil.get_terminal_size().columns - 1
            text = _printable(f"waiting for {whom}: {why}")[:width]
            if text != self._shown:
                self._write(_BACK + text + _CLEAR)
            self._shown = text
        elif whom != self._shown:
            self._shown = whom
            self._write(_printable(f"waiting for {whom}: {why}") + "\n")

    def close(self) -> None:
        """Erase the last line, if it shows a wait."""
        self._wipe()

    def _wipe(self) -> None:
        if self._lively and self._shown:
            self._write(_BACK + _CLEAR)
            self._shown = ""

    def _write(self, text: str) -> None:
        if self._stream is None:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # a broken pipe, a closed stream, or text that the stream cannot encode
            self._stream = None

    def _is_terminal(self) -> bool:
        try:
            return self._stream is not None and self._stream.isatty()
        except (OSError, ValueError):
            return False


def _printable(text: str) -> str:
    """`text` without characters that move the cursor."""
    return "".join(character if character.isprintable() else " " for character in text)
