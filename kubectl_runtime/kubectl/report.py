"""What became of a set of manifests: `ManifestOutcome` of one object, `ManifestReport` of all, `ManifestsFailed`.

One error with the whole report in it, and no ExceptionGroup: `except KubeError` catches it, and what did succeed is
known as well.

`Progress`: what a set of manifests is doing, for whoever watches the script.

    on a terminal    a line for each object that is done; below them one that says what is waited for, rewritten
    elsewhere        a line for each object that is done, and one each time that another object is waited for

It writes to standard error by default, so that a script's own output stays clean. A stream that fails is written to no
more: nobody's manifests fail because nobody looks. For one thread.
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
"""absent: it was to be deleted and is not there. skipped: it was not tried, since the server gave no answer or a stop
was asked for."""


@dataclass(frozen=True, slots=True)
class ManifestOutcome:
    r"""What became of one object of a set of manifests; in a dry run, what would become of it.

    `ref` is the object, `place` where it stands, `action` what was done, `difference` a unified diff, `error` why not.

    >>> text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: default}"
    >>> report = apply_manifests(client, text, field_manager="me", progress=False)
    >>> [outcome.action for outcome in report]
    ['created']
    """

    ref: ObjectRef
    place: str
    """Where it stands: ``deploy/web.yaml, document 2, line 14``."""
    action: ManifestAction
    ready: bool | None = None
    """Whether it came to what was waited for: ready, or gone. None when nothing was."""
    difference: str = ""
    """In a dry run, a unified diff of YAML from what is on the server to what would be; empty when they are alike."""
    checked: bool = True
    """False in a dry run of what the server cannot judge yet: its namespace or CRD comes with the same set."""
    error: KubeError | None = None

    def __str__(self) -> str:
        """``Deployment default/web created``, one line."""
        notes = [] if self.checked else ["not checked by the server yet"]
        if self.ready is False:
            notes.append("and is still there" if self.action == "deleted" else "and is not ready")
        return f"{said(self.ref)} {self.action}{' (' + ', '.join(notes) + ')' if notes else ''}"


@dataclass(frozen=True, slots=True)
class ManifestReport:
    r"""What became of each object of a set of manifests, in the order of the source. Iterates over the outcomes; as
    text, a line for each.

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
        """The differences of a dry run, as `kubectl diff` prints them; empty when the server has it all."""
        return "".join(outcome.difference for outcome in self.outcomes)

    def __iter__(self) -> Iterator[ManifestOutcome]:
        return iter(self.outcomes)

    def __len__(self) -> int:
        return len(self.outcomes)

    def __str__(self) -> str:
        return "\n".join(map(str, self.outcomes))


class ManifestsFailed(KubeError):
    r"""Some objects of a set failed; the others went on. The text has a line for each, with where it stands.

    `report` is the whole of it, those that succeeded included.

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
    """Lines for a stream. `to`: True for standard error, False for nowhere. Close it: the last line is wiped then."""

    def __init__(self, to: TextIO | bool) -> None:
        self._stream = sys.stderr if to is True else None if to is False else to
        self._lively = self._is_terminal()
        self._shown = ""

    def done(self, text: str) -> None:
        """One object is done: a line that stays."""
        self._wipe()
        self._write(_printable(text) + "\n")

    def waiting(self, whom: str, why: str) -> None:
        """`whom` is waited for, since `why`."""
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
        """Wipe the last line, if it was one of waiting."""
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
        except (OSError, ValueError):  # a pipe that broke, a stream that was closed or cannot encode the text
            self._stream = None

    def _is_terminal(self) -> bool:
        try:
            return self._stream is not None and self._stream.isatty()
        except (OSError, ValueError):
            return False


def _printable(text: str) -> str:
    """Nothing in a name or an error moves the cursor."""
    return "".join(character if character.isprintable() else " " for character in text)
