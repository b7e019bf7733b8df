"""Lines for who watches: one that is written anew on a terminal, plain ones elsewhere, and never a failure."""
from __future__ import annotations

import io
import sys

import pytest

from kubectl_runtime.kubectl.report import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Broken(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")


def story(stream: io.StringIO) -> str:
    progress = Progress(stream)
    progress.done("Namespace a created")
    progress.waiting("Deployment a/b", "0 of 3 are ready")
    progress.waiting("Deployment a/b", "1 of 3 are ready")
    progress.waiting("Job a/c", "x")
    progress.done("Job a/c ready")
    progress.close()
    return stream.getvalue()


def test_elsewhere_each_object_is_named_once() -> None:
    assert story(io.StringIO()) == (
        "Namespace a created\nwaiting for Deployment a/b: 0 of 3 are ready\nwaiting for Job a/c: x\nJob a/c ready\n")


def test_on_a_terminal_one_line_is_written_anew_and_wiped() -> None:
    assert story(Terminal()) == (
        "Namespace a created\n\rwaiting for Deployment a/b: 0\x1b[K\rwaiting for Deployment a/b: 1\x1b[K"
        "\rwaiting for Job a/c: x\x1b[K\r\x1b[KJob a/c ready\n")


def test_the_line_is_no_longer_than_the_terminal_and_wiped_at_the_end() -> None:
    stream = Terminal()
    progress = Progress(stream)
    progress.waiting("a" * 100, "x")
    assert len(stream.getvalue().removeprefix("\r").removesuffix("\x1b[K")) == 29
    progress.close()
    assert stream.getvalue().endswith("\r\x1b[K")


def test_what_is_in_a_name_moves_no_cursor() -> None:
    stream = Terminal()
    Progress(stream).done("a\x1b[2J\rb\nc")
    assert stream.getvalue() == "a [2J b c\n"


def test_a_stream_that_fails_is_left_alone() -> None:
    story(Broken())
    closed = io.StringIO()
    closed.close()
    Progress(closed).done("a")


def test_true_is_standard_error_and_false_is_nowhere(capsys: pytest.CaptureFixture[str],
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    Progress(True).done("told")
    Progress(False).done("not told")
    assert capsys.readouterr() == ("", "told\n")
    monkeypatch.setattr(sys, "stderr", None)
    Progress(True).done("nobody has a standard error")
