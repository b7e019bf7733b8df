"""`Progress`: what a set of manifests is doing, for whoever watches the script.

    on a terminal    a line for each object that is done; below them one that says what is waited for, rewritten
    elsewhere        a line for each object that is done, and one each time that another object is waited for

It writes to standard error by default, so that a script's own output stays clean. A stream that fails is written to no
more: nobody's manifests fail because nobody looks. For one thread.
"""
from __future__ import annotations

import shutil
import sys
from typing import TextIO

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
