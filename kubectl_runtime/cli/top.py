"""`kubectl-runtime top URL`: what the controllers of a process do, in a terminal, until `q` or Ctrl-C.

    URL      http://127.0.0.1:8080, 127.0.0.1:8080 or :8080; with /debug behind it or not
    --once   print it once, the whole of it, to whatever standard output is

It asks the status page of a Manager or a HealthServer for its state every two seconds. A process that does not answer
any more is waited for, and what it said last stays; one that never did is an error. Colours are left out where
standard output is not a terminal, and with NO_COLOR. The window may change its size.
"""
from __future__ import annotations

import argparse
import contextlib
import io
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kubectl_runtime.cli.places import CommandError
from kubectl_runtime.cli.top_screen import RED, Screen, joined
from kubectl_runtime.cli.top_source import fetched, state_url

if TYPE_CHECKING:
    from kubectl_runtime.runtime.observe.debug_state import DebugState

LOOK = 0.2
"""Seconds between two looks at the window's size and the keyboard."""

_IN, _OUT = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_HOME, _CLEAR_LINE, _END_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"


def add_options(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.add_argument("url", type=_url, metavar="URL", help="where the process serves, such as "
                        "http://127.0.0.1:8080; of a Pod: kubectl port-forward POD 8080, then :8080")
    parser.add_argument("--once", action="store_true", help="print the state once, and end")
    parser.add_argument("--interval", type=_interval, default=2.0, metavar="SECONDS",
                        help="the time between two looks (default: 2)")


def run(options: argparse.Namespace) -> int:
    """Show what the process does, again and again; the exit status. Blocks until the person ends it.

    Raises CommandError when nothing answers at first.
    """
    report = fetched(options.url)
    out = sys.stdout
    if isinstance(out, io.TextIOWrapper):
        out.reconfigure(errors="replace")  # where it has no such letter, in the locale C say
    colours = out.isatty() and "NO_COLOR" not in os.environ
    if options.once or not out.isatty():
        out.write(joined(Screen(_columns(), colours=colours).lines(report)))
        return 0
    try:
        with _whole_screen(), _keys():
            _Live(options.url, options.interval, report, colours=colours).run()
    except KeyboardInterrupt:
        pass
    return 0


class _Live:
    """Shows it again and again."""

    def __init__(self, url: str, interval: float, report: DebugState, *, colours: bool) -> None:
        self._url = url
        self._interval = interval
        self._colours = colours
        self._report = report
        self._heard = time.monotonic()
        self._trouble = ""
        self._rates: dict[str, float] = {}

    def run(self) -> None:
        """Until `q`."""
        shown: os.terminal_size | None = None
        ask_at = time.monotonic() + self._interval
        while True:
            size = os.get_terminal_size(sys.stdout.fileno())
            if shown != size:
                self._show(size)
                shown = size
            if _pressed(LOOK) in ("q", "Q"):
                return
            if time.monotonic() >= ask_at:
                self._ask()
                shown, ask_at = None, time.monotonic() + self._interval

    def _ask(self) -> None:
        before = self._report
        try:
            self._report, self._trouble, self._heard = fetched(self._url), "", time.monotonic()
        except CommandError as error:
            self._trouble = str(error)
            return
        passed = self._report.uptime - before.uptime
        runs = {one.name: one.runs for one in before.controllers}
        same = before.process == self._report.process and passed > 0
        self._rates = {one.name: max(0, one.runs - runs[one.name]) / passed for one in self._report.controllers
                       if one.name in runs} if same else {}

    def _show(self, size: os.terminal_size) -> None:
        screen = Screen(size.columns, colours=self._colours)
        lines = screen.lines(self._report, max(1, size.lines - 1), self._rates)
        if self._trouble:
            lines[0] = screen.paint(RED, f"{time.monotonic() - self._heard:.0f} s old: {self._trouble}")
        text = "\n".join(f"{_CLEAR_LINE}{line}" for line in lines)
        sys.stdout.write(f"{_HOME}{text}{_END_SCREEN}")
        sys.stdout.flush()


def _columns() -> int:
    with contextlib.suppress(OSError, ValueError):
        return os.get_terminal_size(sys.stdout.fileno()).columns
    given = os.environ.get("COLUMNS", "")
    return int(given) if given.isascii() and given.isdigit() else 140


@contextlib.contextmanager
def _whole_screen() -> Iterator[None]:
    """The terminal's other page, which leaves what stood there as it was; also when the process is told to end."""
    def end(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    sys.stdout.write(_IN)
    try:
        yield
    finally:
        sys.stdout.write(_OUT)
        sys.stdout.flush()
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _keys() -> Iterator[None]:
    """Keys are read as they are pressed, where the system can do so."""
    try:
        import termios
        import tty
    except ImportError:  # Windows
        yield
        return
    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _pressed(timeout: float) -> str:
    """The key that is pressed within `timeout` seconds; empty when none is."""
    if os.name == "posix" and sys.stdin.isatty():
        if not select.select([sys.stdin], [], [], timeout)[0]:
            return ""
        return os.read(sys.stdin.fileno(), 1).decode("ascii", "replace")
    time.sleep(timeout)
    return ""


def _url(text: str) -> str:
    try:
        return state_url(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _interval(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.2 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r}: write a number of seconds from 0.2 to 3600")
    return seconds
