"""`kubectl-runtime top URL ...`: shows in a terminal what a process's controllers do, until `q` or Ctrl-C.

URL is the address of a Manager or HealthServer: http://127.0.0.1:8080, 127.0.0.1:8080 or :8080, with or without /debug.
For several URLs the command shows one table of replicas with shards, objects, memory and runs. `--once` prints the
complete state once.

The command reads `/debug/state.json` every two seconds. If a process stops answering, its last state stays on the
screen; a process that never answered is an error. Colours are off if NO_COLOR is set or standard output is not a
terminal. The output follows the size of the window.
"""
from __future__ import annotations

import argparse
import contextlib
import http.client
import io
import os
import select
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

import msgspec

from kubectl_runtime.cli.places import CommandError
from kubectl_runtime.cli.top_screen import RED, Screen, joined
from kubectl_runtime.client.config.proxies import is_loopback_url
from kubectl_runtime.core.base.errors import text_of
from kubectl_runtime.core.base.threads import Thread
from kubectl_runtime.core.base.wire import decoded
from kubectl_runtime.core.meta.problems import DECODE_FAILURES
from kubectl_runtime.runtime.observe.debug import VERSION, DebugState

PATIENCE = 5.0
"""Seconds to wait for a response."""

MOST_BYTES = 4 << 20


def state_url(text: str) -> str:
    """Return the URL of a server's state for the address that the user typed. Raises ValueError for an invalid
    address."""
    given = text.strip()
    if "://" not in given:
        given = f"http://{given}"
    try:
        parts = urlsplit(given)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}") from None
    if parts.scheme not in ("http", "https") or parts.query or parts.fragment or parts.username or not (host or port) \
            or any(letter.isspace() or not letter.isprintable() for letter in given):
        raise ValueError(f"{text!r} is not a server's address: write http://127.0.0.1:8080, 127.0.0.1:8080 or :8080")
    name = f"[{host}]" if host and ":" in host else host or "127.0.0.1"
    path = parts.path.rstrip("/").removesuffix("/state.json").removesuffix("/debug")
    return f"{parts.scheme}://{name}{'' if port is None else f':{port}'}{path}/debug/state.json"


def fetched(url: str) -> DebugState:
    """Return the state at `url`. Blocks for about `PATIENCE` seconds at most. Raises CommandError."""
    page = url.removesuffix("/state.json")
    try:
        with _opener(url).open(url, timeout=PATIENCE) as answer:
            body = answer.read(MOST_BYTES + 1)
    except urllib.error.HTTPError as error:
        with error:
            raise CommandError(f"{page}: {_refused(error)}") from None
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        said = reason if isinstance(reason, str) else text_of(reason)
        raise CommandError(f"nothing answers at {page}: {said}. Does the program run, and serve there "
                           "(Manager(serve=...))? For a Pod: kubectl port-forward POD 8080") from None
    try:
        return read(body)
    except ValueError as error:
        raise CommandError(f"{page} is not a status page of kubectl_runtime: {error}") from None


def read(body: bytes) -> DebugState:
    """Decode a process's state. Raises ValueError for any other document, and for the state of a newer library
    version."""
    if len(body) > MOST_BYTES:
        raise ValueError(f"the response has more than {MOST_BYTES >> 20} MiB")
    with contextlib.suppress(*DECODE_FAILURES):
        version = msgspec.json.decode(body, type=dict[str, msgspec.Raw]).get("version", msgspec.Raw(b"0"))
        if msgspec.json.decode(version, type=int) > VERSION:
            raise ValueError("the page is from a newer version of kubectl_runtime: use that version's "
                             "`kubectl-runtime top`")
    try:
        return decoded(body, DebugState)
    except DECODE_FAILURES as error:
        raise ValueError(str(error)) from None


def _refused(error: urllib.error.HTTPError) -> str:
    if error.code == 404:
        return "there is no status page: the program has turned it off (debug=None), or does not use kubectl_runtime"
    text = ""
    with contextlib.suppress(OSError, http.client.HTTPException):
        text = error.read(500).decode("utf-8", "replace").partition("\n")[0]
    return text if error.code == 403 and text else f"HTTP {error.code} {error.reason}"


def _opener(url: str) -> urllib.request.OpenerDirector:
    """An opener that uses no proxy for the local host, even if the environment names one."""
    return urllib.request.build_opener(*([urllib.request.ProxyHandler({})] if is_loopback_url(url) else []))


LOOK = 0.2
"""Seconds between two checks of the window's size and the keyboard."""

_IN, _OUT = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_HOME, _CLEAR_LINE, _END_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("url", type=_url, metavar="URL", nargs="+", help="the address of the process, such as "
                        "http://127.0.0.1:8080; for a Pod: kubectl port-forward POD 8080, then :8080; several URLs "
                        "give one line per replica")
    parser.add_argument("--once", action="store_true", help="print the state once, and end")
    parser.add_argument("--interval", type=_interval, default=2.0, metavar="SECONDS",
                        help="seconds between two refreshes (default: 2)")


def run(options: argparse.Namespace) -> int:
    """Show what the process does until the user ends it; return the exit status. Blocks.

    Raises CommandError if no process answers the first request.
    """
    pages = _Pages(options.url)
    out = sys.stdout
    if isinstance(out, io.TextIOWrapper):
        out.reconfigure(errors="replace")  # for characters that the encoding lacks, as in the locale C
    colours = out.isatty() and "NO_COLOR" not in os.environ
    if options.once or not out.isatty():
        out.write(joined(pages.lines(Screen(_columns(), colours=colours))))
        return 0
    try:
        with _whole_screen(), _keys():
            _Live(pages, options.interval, colours=colours).run()
    except KeyboardInterrupt:
        pass
    return 0


class _Pages:
    """The last state of each status page, and the error of each page that does not answer now."""

    def __init__(self, urls: Sequence[str]) -> None:
        """Fetch all pages. Raises CommandError when no page answers."""
        self._urls = [*dict.fromkeys(urls)]
        self._said: dict[str, DebugState] = {}
        self._heard: dict[str, float] = {}
        self._troubles: dict[str, str] = {}
        self._rates: dict[str, float] = {}
        self.ask()
        if not self._said:
            raise CommandError("; ".join(self._troubles[url] for url in self._urls))

    def ask(self) -> None:
        """Fetch all pages again, in parallel. Blocks for about `PATIENCE` seconds at most."""
        threads = [Thread(target=self._ask, args=(url,), daemon=True) for url in self._urls[1:]]
        for thread in threads:
            thread.start()
        self._ask(self._urls[0])
        for thread in threads:
            thread.join()

    def _ask(self, url: str) -> None:
        before = self._said.get(url)
        try:
            report = fetched(url)
        except CommandError as error:
            self._troubles[url] = str(error)
            return
        self._said[url], self._heard[url] = report, time.monotonic()
        self._troubles.pop(url, None)
        if before is not None and len(self._urls) == 1:
            passed = report.uptime - before.uptime
            runs = {one.name: one.runs for one in before.controllers}
            same = before.process == report.process and passed > 0
            self._rates = {one.name: max(0, one.runs - runs[one.name]) / passed for one in report.controllers
                           if one.name in runs} if same else {}

    def lines(self, screen: Screen, height: int | None = None) -> list[str]:
        """The lines to show, at most `height` if given."""
        if len(self._urls) > 1:
            found = screen.fleet([(url.removesuffix("/debug/state.json"), None if url in self._troubles
                                   else self._said.get(url), self._troubles.get(url, "")) for url in self._urls])
            return found if height is None else found[:height]
        url, = self._urls
        found = screen.lines(self._said[url], height, self._rates)
        if url in self._troubles:
            found[0] = screen.paint(RED, f"{time.monotonic() - self._heard[url]:.0f} s old: {self._troubles[url]}")
        return found


class _Live:
    """Refreshes the screen until the user ends it."""

    def __init__(self, pages: _Pages, interval: float, *, colours: bool) -> None:
        self._pages = pages
        self._interval = interval
        self._colours = colours

    def run(self) -> None:
        """Refresh the screen until the user presses `q`. Blocks."""
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
                self._pages.ask()
                shown, ask_at = None, time.monotonic() + self._interval

    def _show(self, size: os.terminal_size) -> None:
        lines = self._pages.lines(Screen(size.columns, colours=self._colours), max(1, size.lines - 1))
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
    """Use the terminal's alternate screen, and restore the normal screen at the end, also after SIGTERM."""
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
    """Read keys as they are pressed, where the system supports it."""
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
    """The key pressed within `timeout` seconds, or an empty text."""
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
