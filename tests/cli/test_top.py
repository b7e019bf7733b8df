"""`kubectl-runtime top`: what it makes of a state, where it gets it, and how it lives in a terminal."""
from __future__ import annotations

import contextlib
import fcntl
import http.server
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubectl_runtime.cli.main import main
from kubectl_runtime.cli.places import CommandError
from kubectl_runtime.cli.top import MOST_BYTES, fetched, read, state_url
from kubectl_runtime.cli.top_screen import Screen, cut, numbers, shares
from kubectl_runtime.runtime.observe.debug import (
    CallCounts,
    ControllerState,
    Counts,
    DebugPage,
    DebugState,
    KeyRow,
    LoopRow,
    ManagerState,
    ReplicaRow,
    RunRow,
    ShardingState,
    WatchRow,
    WebhookRow,
)
from kubectl_runtime.runtime.observe.health import HealthServer

LIMIT = 30
NONE = Counts(running=0, due=0, delayed=0, backing_off=0, held_back=0, failing=0)


def sample() -> DebugState:
    shop = ControllerState(
        name="shop", kind="shops.example.com", concurrency=10, runs=1234, failed=5,
        counts=Counts(running=1, due=20_000, delayed=1, backing_off=1, held_back=0, failing=2),
        running=[KeyRow(name="default/slow", state="running", age=75, reason="object updated", attempt=3)],
        due=[KeyRow(name=f"default/due-{number}", state="due", age=2) for number in range(30)],
        delayed=[KeyRow(name="default/later", state="delayed", due_in=290, reason="asked to run again after 300 s")],
        failing=[KeyRow(name="default/broken", state="backing_off", due_in=12, failures=4, failing_for=31,
                        error="ApiError 503"),
                 KeyRow(name="default/wrong", state="waits_for_change", failures=1, error="TerminalError")],
        recent=[RunRow(name="default/well", result="success", took=0.012, ago=1)],
        slowest=[RunRow(name="default/big", result="success", took=45, ago=600)],
        loops=[LoopRow(name="default/busy", what="runs in a loop", ago=9, fields=["spec.size"])])
    idle = ControllerState(name="idle", kind="widgets.example.com", concurrency=1, counts=NONE,
                           not_ready="it waits for widgets.example.com")
    return DebugState(
        version=1, library="0.2.0", time="2026-01-02T03:04:05Z", process=7, uptime=3661,
        manager=ManagerState(phase="leading", leader=True, lease="system/shop"), controllers=[shop, idle],
        watches=[WatchRow(name="widgets.example.com", controllers=["idle"], phase="waiting", since=3, failures=4,
                          error="cannot list widgets: 404 NotFound"),
                 WatchRow(name="shops.example.com", controllers=["shop"], phase="watching", since=60, complete=True,
                          objects=20_000, bytes=92_000_000, last_event=0.5)])


def shown(width: int = 120, height: int | None = None) -> list[str]:
    return Screen(width, colours=False).lines(sample(), height)


# What it makes of a state


def test_it_shows_watches_counts_and_each_state_of_a_key() -> None:
    text = "\n".join(shown(140))
    for expected in (
            r"2026-01-02 03:04:05 UTC  manager leading  leads by system/shop  process 7  up 61 min",
            r"widgets.example.com +waiting +0 objects +0 B +no event yet\n +cannot list widgets: 404 NotFound",
            r"shops.example.com +watching +20,000 objects +88 MiB +last event 500 ms ago",
            r"shop  shops.example.com  1,234 runs, 5 failed",
            r"running 1 of 10 +due 20,000 +backing off 1 +held back 0 +delayed 1 +failing 2",
            r"loop +9.0 s ago +default/busy +differed: spec.size; runs in a loop",
            r"backing off +in 12 s +default/broken +ApiError 503, failed 4 times in 31 s",
            r"waits for a change +default/wrong +TerminalError, failed once",
            r"running +for 75 s +default/slow +object updated, attempt 3",
            r"due +for 2.0 s +default/due-0", r"and 19,970 more due",
            r"delayed +in 5 min +default/later +asked to run again after 300 s",
            r"slowest +took 45 s +default/big +10 min ago", r"success +1.0 s ago +default/well +took 12 ms",
            r"not ready: it waits for widgets.example.com"):
        assert re.search(expected, text), expected


@pytest.mark.parametrize("width", [1, 40, 80, 300])
@pytest.mark.parametrize("height", [1, 2, 10, 24, 60])
def test_it_never_fills_more_than_the_window(width: int, height: int) -> None:
    lines = Screen(width, colours=False).lines(sample(), height)
    assert len(lines) <= height
    assert max(map(len, lines)) <= max(40, width)


def test_in_a_small_window_each_kind_keeps_a_line_or_is_counted() -> None:
    text = "\n".join(shown(100, 30))
    for word in ("loop ", "backing off ", "running ", "due ", "delayed ", "slowest ", "success "):
        assert f"\n  {word}" in text, word
    assert re.search(r"and 19,9\d\d more due", text)
    tiny = "\n".join(shown(100, 16))
    assert "and 20,000 more due" in tiny


@given(st.lists(st.integers(0, 60), max_size=20), st.integers(0, 200))
def test_groups_share_the_lines_evenly_and_leave_none_that_somebody_wants(wanted: list[int], available: int) -> None:
    got = shares(wanted, available)
    assert sum(got) == min(available, sum(wanted))
    assert all(0 <= have <= want for have, want in zip(got, wanted, strict=True))
    short = [have for have, want in zip(got, wanted, strict=True) if have < want]
    assert all(have <= min(short) + 1 for have in got) if short else True


def test_colours_come_only_where_they_are_wanted_and_cost_no_width() -> None:
    coloured = Screen(80, colours=True).lines(sample())
    plain = Screen(80, colours=False).lines(sample())
    assert [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in coloured] == plain
    assert any("\x1b[31m" in line for line in coloured)
    assert not any("\x1b" in line for line in plain)


def test_names_and_errors_cannot_move_the_terminal() -> None:
    state = sample()
    state.controllers[0].failing[0].name = "default/a\x1b[2J\r\nb\x07"
    state.watches[0].error = "\x1b]0;title\x07"
    state.controllers[0].name = "c\x9b31m\u202e"
    lines = Screen(140, colours=False).lines(state)
    assert all(line.isprintable() for line in lines)
    assert cut("a\nb", 10) == "a·b"


@pytest.mark.parametrize("width", [40, 80, 120, 150, 200])
def test_without_a_window_nothing_is_cut_off(width: int) -> None:
    state = sample()
    text = "-".join(f"word{number}" for number in range(60))
    shop, idle = state.controllers
    shop.failing[0] = KeyRow(name="default/broken", state="backing_off", due_in=12, failures=4, failing_for=31,
                             error=f"ApiError {text} end-of-error", failed_run="a1b2c3d4", succeeded=7200)
    shop.loops[0].fields = ["status.conditions[0].lastTransitionTime", "spec.size"]
    idle.not_ready = f"it waits {text} end-of-reason"
    state.calls = CallCounts(total=12_345, throttled=3, failed=4, unanswered=5, per_second=6.7, latency=0.012,
                             slowest=2.5)
    state.webhooks = [WebhookRow(name="/quota/validate", requests=8, failed=1, running=2, latency=0.004, ago=60)]
    lines = Screen(width, colours=False).lines(state)
    assert max(map(len, lines)) <= width
    whole = "".join(line.strip() for line in lines).replace(" ", "")
    for word in ("end-of-error", "end-of-reason", "a1b2c3d4", "lastsuccess2hago", "lastTransitionTime,spec.size",
                 "6.7requestsasecond", "12msonaverage", "2.5satmost", "12,345inall", "3of429", "4of5xx", "5unanswered",
                 "webhook/quota/validate", "8requests", "1failed", "failing2"):
        assert word in whole, word


@pytest.mark.parametrize("width", [80, 120, 200])
def test_in_a_window_the_field_of_a_loop_is_to_be_seen(width: int) -> None:
    state = sample()
    state.controllers[0].loops[0].fields = ["status.conditions[0].lastTransitionTime"]
    text = "".join(line.strip() for line in Screen(width, colours=False).lines(state, 40)).replace(" ", "")
    assert "differed:status.conditions[0].lastTransitionTime" in text


@pytest.mark.parametrize("height", [None, 40])
@pytest.mark.parametrize("width", [80, 120, 200])
def test_a_watch_shows_its_name_its_numbers_and_its_whole_error(width: int, height: int | None) -> None:
    state = sample()
    why = "cannot list widgets: " + "the server does not serve them " * 8 + "(404 NotFound)"
    state.watches[0].error = why
    state.watches[1].name = "configmaps in namespace default"
    lines = Screen(width, colours=False).lines(state, height)
    assert max(map(len, lines)) <= width
    watch = " ".join(lines).partition("configmaps in namespac")[2].partition(" ago")[0]
    assert " ".join(watch.split()).endswith("watching 20,000 objects 88 MiB last event 500 ms")
    assert why.replace(" ", "") in "".join(line.strip() for line in lines).replace(" ", "")


@pytest.mark.parametrize("width", [80, 120, 200])
@pytest.mark.parametrize("shards", [[], [3], list(range(0, 200, 2))])
def test_a_table_of_replicas_shows_every_fact_at_any_width(width: int, shards: list[int]) -> None:
    state = sample()
    assert state.manager is not None
    state.manager.shards, state.memory = shards, 12_345_678
    state.manager.sharding = ShardingState(name="default/shop", by="name", shards=200, replicas=[
        ReplicaRow(name="shop-operator-5c9d8f7b6d-x0k2p", shards=shards, here=True)])
    lines = Screen(width, colours=False).fleet([(":8080", state, ""), (":8081", None, "nothing answers at :8081")])
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    for fact in ("shop-operator-5c9d8f7b6d-x0k2p", "20,000", "88 MiB", "12 MiB", "1,234", "leading",
                 "nothing answers at :8081", "200 shards of default/shop by name"):
        assert fact in text, fact
    free = [shard for shard in range(200) if shard not in shards]
    assert numbers(free).replace(" ", "") in "".join(line.strip() for line in lines).replace(" ", "")


# Where it gets it


@pytest.mark.parametrize(("text", "url"), [
    (":8080", "http://127.0.0.1:8080/debug/state.json"),
    ("127.0.0.1:8080", "http://127.0.0.1:8080/debug/state.json"),
    ("localhost:8080/", "http://localhost:8080/debug/state.json"),
    ("http://[::1]:8080/debug", "http://[::1]:8080/debug/state.json"),
    ("https://proxy.example/pod/debug/state.json", "https://proxy.example/pod/debug/state.json"),
    ("operator", "http://operator/debug/state.json")])
def test_an_address_is_taken_as_it_is_typed(text: str, url: str) -> None:
    assert state_url(text) == url


@pytest.mark.parametrize("text", ["", "http://", "ftp://a", "file:///etc/passwd", ":x", "http://a:99999", "a b",
                                  "http://u:p@a", "http://a?x=1", "http://[::1", "a\x00b", "//"])
def test_what_is_no_address_is_a_wrong_command_line(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["top", text])
    assert ended.value.code == 2
    assert "argument URL" in capsys.readouterr().err


@pytest.mark.parametrize("interval", ["0", "-1", "nan", "x", "1e9"])
def test_an_interval_is_a_sensible_number(interval: str) -> None:
    with pytest.raises(SystemExit):
        main(["top", ":1", "--interval", interval])


class Answers(http.server.BaseHTTPRequestHandler):
    """Whatever the test says."""

    status, body = 200, b""

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def answering(status: int, body: bytes) -> Iterator[str]:
    handler = type("Handler", (Answers,), {"status": status, "body": body})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(("status", "body", "said"), [
    (404, b"", "there is no status page"),
    (403, b"the status page answers this host only\nmore", "the status page answers this host only"),
    (500, b"", "HTTP 500"),
    (200, b"<html>", "is not a status page of kubectl_runtime"),
    (200, b"", "is not a status page of kubectl_runtime"),
    (200, b'{"version": 1}', "is not a status page of kubectl_runtime"),
    (200, b"\xff\xfe", "is not a status page of kubectl_runtime"),
    (200, b"[" * 100_000, "is not a status page of kubectl_runtime"),
    (200, b'{"version": 2}', "from a newer version"),
    (200, b" " * (MOST_BYTES + 1), "the response has more than 4 MiB")])
def test_what_does_not_answer_as_a_page_is_told_in_one_line(status: int, body: bytes, said: str,
                                                            capsys: pytest.CaptureFixture[str]) -> None:
    with answering(status, body) as url:
        assert main(["top", url, "--once"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert said in error
    assert error.count("\n") == 1


def test_nobody_there_is_told_with_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "127.0.0.1:1", "--once"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: nothing answers at http://127.0.0.1:1/debug: Connection refused. ")
    assert "kubectl port-forward" in error


def test_this_host_is_asked_without_the_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with answering(200, msgspec.json.encode(sample())) as url:
        assert fetched(state_url(url)).process == 7


def test_members_that_a_newer_page_has_are_passed_over() -> None:
    state = json.loads(msgspec.json.encode(sample()))
    state["controllers"][0]["later"] = {"any": 1}
    assert read(json.dumps(state).encode()) == sample()
    with pytest.raises(ValueError, match="newer version"):
        read(b'{"version": 9}')


def test_once_prints_what_a_server_says(capsys: pytest.CaptureFixture[str]) -> None:
    with HealthServer("127.0.0.1:0", debug=DebugPage()) as server:
        assert main(["top", f":{server.port}", "--once"]) == 0
    out = capsys.readouterr().out
    assert f"process {os.getpid()}" in out
    assert "\x1b" not in out


def test_a_terminal_of_another_alphabet_gets_what_it_can_show() -> None:
    state = sample()
    state.controllers[0].name = "größe"
    with answering(200, msgspec.json.encode(state)) as url:
        done = subprocess.run([sys.executable, "-m", "kubectl_runtime", "top", url, "--once"], capture_output=True,
                              env={**os.environ, "PYTHONIOENCODING": "ascii"}, timeout=LIMIT, check=False)
    assert done.returncode == 0, done.stderr
    assert b"gr??e  shops.example.com" in done.stdout


def test_a_server_without_a_page_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with HealthServer("127.0.0.1:0") as server, pytest.raises(CommandError, match="there is no status page"):
        fetched(state_url(f":{server.port}"))


# In a terminal


class Terminal:
    """`top` in a terminal of its own."""

    def __init__(self, url: str, columns: int, lines: int) -> None:
        self.main, self.side = pty.openpty()
        self.resize(columns, lines)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kubectl_runtime", "top", url, "--interval", "0.2"], stdin=self.side,
            stdout=self.side, stderr=self.side, close_fds=True,
            env={key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES", "NO_COLOR")})
        self.written = ""
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.side, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while data := os.read(self.main, 65536):
                self.written += data.decode("utf-8", "replace")

    @property
    def frames(self) -> list[str]:
        return self.written.split("\x1b[H")[1:-1]  # the last one may not be whole

    def until(self, done: Callable[[], object], what: str) -> None:
        give_up = time.monotonic() + LIMIT
        while not done():
            assert time.monotonic() < give_up, (what, self.written[-2000:])
            threading.Event().wait(0.02)

    def end(self) -> int:
        return self.process.wait(LIMIT)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.side)
        self.reader.join(5)
        os.close(self.main)


def lines_of(frame: str) -> list[str]:
    return [re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", line) for line in frame.split("\r\n")]


def test_it_lives_in_a_window_that_changes_its_size_keeps_what_it_saw_and_ends_by_q() -> None:
    state = sample()
    state.controllers[0].failing[0].error = "ApiError 503: the server is busy, and says so until the line ends"
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(answering(200, msgspec.json.encode(state)))
        terminal = Terminal(url, 100, 30)
        try:
            terminal.until(lambda: len(terminal.frames) > 1, "it shows something")
            frame = lines_of(terminal.frames[-1])
            assert "backing off" in terminal.frames[-1]
            assert len(frame) <= 30
            assert max(map(len, frame)) in range(90, 101)

            terminal.resize(60, 12)
            terminal.until(lambda: max(map(len, lines_of(terminal.frames[-1]))) <= 60, "it is narrower")
            assert len(lines_of(terminal.frames[-1])) <= 12

            stack.close()  # nobody answers any more
            terminal.until(lambda: "s old: nothing answers" in terminal.frames[-1], "it says so")
            assert "shop" in terminal.frames[-1]

            os.write(terminal.main, b"q")
            assert terminal.end() == 0
            terminal.until(lambda: terminal.written.endswith("\x1b[?25h\x1b[?1049l"), "the screen is given back")
        finally:
            terminal.close()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 0), (signal.SIGTERM, 128 + signal.SIGTERM)])
def test_a_signal_ends_it_and_gives_the_screen_back(number: signal.Signals, status: int) -> None:
    with answering(200, msgspec.json.encode(sample())) as url:
        terminal = Terminal(url, 80, 24)
        try:
            terminal.until(lambda: terminal.frames, "it shows something")
            terminal.process.send_signal(number)
            assert terminal.end() == status
            terminal.until(lambda: "\x1b[?25h\x1b[?1049l" in terminal.written, "the screen is given back")
            assert "Traceback" not in terminal.written
        finally:
            terminal.close()


def test_it_needs_neither_the_client_nor_requests() -> None:
    code = ("import sys, kubectl_runtime.cli.top\n"
            "print([name for name in ('requests', 'kubernetes', 'yaml') if name in sys.modules])")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=LIMIT)
    assert done.stdout == "[]\n"
