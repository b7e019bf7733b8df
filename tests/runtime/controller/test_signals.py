"""Whole processes and real signals: how a program with a controller ends."""
from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from tempfile import TemporaryFile

import pytest

from kubectl_runtime.runtime.lifecycle.signals import SAME_STOP

LIMIT = 30
"""Real seconds after which a process is hanging."""


class Program:
    """One run of `signal_program`."""

    def __init__(self, scenario: str, stderr: int | None = None) -> None:
        # A pipe that nobody reads would block the program's logging.
        self.log = TemporaryFile("w+")  # noqa: SIM115 - closed by the fixture
        self.process = subprocess.Popen([sys.executable, "-m", "tests.runtime.controller.signal_program", scenario],
                                        stdout=subprocess.PIPE, stderr=self.log if stderr is None else stderr,
                                        text=True)
        self.words: list[str] = []

    def until(self, word: str) -> None:
        """Read output up to this line."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.words.append(line.strip())
            if line.strip() == word:
                return
        raise AssertionError(f"{word!r} never came: {self.words}\n{self.end()[1]}")

    def send(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    def end(self) -> tuple[int, str]:
        """Exit status and what it logged."""
        assert self.process.stdout is not None
        self.words += self.process.stdout.read().split()
        status = self.process.wait(LIMIT)
        self.log.seek(0)
        return status, self.log.read()


@pytest.fixture
def program() -> Iterator[Callable[..., Program]]:
    started: list[Program] = []

    def start(scenario: str, stderr: int | None = None) -> Program:
        started.append(Program(scenario, stderr))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
        one.process.wait()
        if one.process.stdout is not None:
            one.process.stdout.close()
        one.log.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_in_the_busy_part_ends_it_with_no_thread_left(program: Callable[[str], Program],
                                                               number: signal.Signals) -> None:
    one = program("busy")
    one.until("busy")
    sent = time.monotonic()
    one.send(number)
    assert one.end()[0] == 0
    assert time.monotonic() - sent < 10
    assert one.words[-3:] == ["restored", "no-threads", "returned"]


def test_runs_in_progress_are_finished(program: Callable[[str], Program]) -> None:
    one = program("patient")
    one.until("begun")
    one.send(signal.SIGTERM)
    status, log = one.end()
    assert status == 0
    assert one.words.count("finished") == one.words.count("begun")
    (line,) = [line for line in log.splitlines() if "stopping: SIGTERM; " in line]
    assert re.search(r"waits until \d\d:\d\d:\d\d \(10 s\) for \d runs?: Parent.v1.test.example/p\d+.default", line)
    assert "a second signal ends the process at once" in line


def test_signals_within_half_a_second_are_one_stop(program: Callable[[str], Program]) -> None:
    """As `timeout` and terminals send them: to the process, then to its group."""
    assert SAME_STOP == 0.5
    one = program("patient")
    one.until("begun")
    for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGTERM, signal.SIGINT, signal.SIGCONT):
        one.send(number)  # it sees all of them at once, however long this takes
    status, log = one.end()
    assert status == 0
    assert one.words.count("finished") == one.words.count("begun")
    assert "ending at once" not in log


@pytest.mark.parametrize(("first", "second"), [(signal.SIGTERM, signal.SIGTERM), (signal.SIGINT, signal.SIGTERM),
                                               (signal.SIGTERM, signal.SIGINT)])
def test_a_second_signal_ends_the_process_at_once(
        program: Callable[[str], Program], first: signal.Signals, second: signal.Signals) -> None:
    one = program("stuck-for-long")
    one.until("begun")
    one.send(first)
    one.until("stopping")
    one.send(second)
    status, log = one.end()
    assert status == 128 + second
    assert f"{second.name} again: ending at once" in log
    assert "returned" not in one.words


def full_pipe() -> int:
    _, end = os.pipe()  # whose other end stays open, and nobody reads
    os.set_blocking(end, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(end, bytes(4096))
    os.set_blocking(end, True)
    return end


def broken_pipe() -> int:
    reader, end = os.pipe()
    os.close(reader)
    return end


def unwritable_file() -> int:
    return os.open(os.devnull, os.O_RDONLY)


@pytest.mark.parametrize("stderr", [full_pipe, broken_pipe, unwritable_file])
def test_a_second_signal_ends_a_process_whose_last_line_nobody_takes(
        program: Callable[..., Program], stderr: Callable[[], int]) -> None:
    end = stderr()
    one = program("stuck-unheard", end)
    os.close(end)
    one.until("begun")
    one.send(signal.SIGTERM)
    one.until("stopping")
    one.send(signal.SIGTERM)
    assert one.process.wait(LIMIT / 3) == 128 + signal.SIGTERM


@pytest.mark.parametrize(("kind", "words"), [
    ("plain", ["kept", "own", "went-on"]),
    ("calling", ["own", "noticed", "kept", "own"]),  # which calls what was there before: the end of the process
    ("ignoring", ["kept", "went-on"])])
def test_a_handler_that_the_program_installs_meanwhile_stays(
        program: Callable[[str], Program], kind: str, words: list[str]) -> None:
    one = program(f"own-{kind}")
    one.until("started")
    if kind == "calling":
        one.send(signal.SIGTERM)
    status, log = one.end()
    assert [word for word in one.words if word in ("own", "noticed", "kept", "went-on", "lost")] == words, log
    assert status == (-signal.SIGTERM if kind == "calling" else 0)


def test_a_handler_that_the_program_had_gets_the_second_signal_and_comes_back(
        program: Callable[[str], Program]) -> None:
    one = program("custom-handler")
    one.until("begun")
    one.send(signal.SIGTERM)
    one.until("stopping")
    one.send(signal.SIGTERM)
    assert one.end()[0] == 0
    assert one.words.count("custom-handler") == 1
    assert "restored" in one.words


def test_a_reconciler_that_never_returns_is_named_by_key_and_stack_and_the_process_ends(
        program: Callable[[str], Program]) -> None:
    one = program("stuck")
    one.until("begun")
    one.send(signal.SIGTERM)
    status, log = one.end()
    assert status == 1
    assert "the reconciler of Parent.v1.test.example/p" in log
    assert "in stuck_in_here" in log
    assert "returned" not in one.words


def test_a_signal_before_the_first_sync_ends_it(program: Callable[[str], Program]) -> None:
    one = program("unready")
    one.until("starting")
    one.send(signal.SIGTERM)
    assert one.end()[0] == 0
    assert "no-threads" in one.words


def test_a_signal_during_backoff_ends_it(program: Callable[[str], Program]) -> None:
    one = program("backoff")
    one.until("failed")
    one.send(signal.SIGTERM)
    assert one.end()[0] == 0
    assert "no-threads" in one.words


def test_a_signal_from_inside_a_reconciler_ends_it(program: Callable[[str], Program]) -> None:
    one = program("inside")
    assert one.end()[0] == 0
    assert "returned" in one.words


def test_an_embedded_controller_stops_on_a_signal_and_the_program_goes_on(program: Callable[[str], Program]) -> None:
    one = program("embedded-signal")
    one.until("busy")
    one.send(signal.SIGTERM)
    assert one.end()[0] == 0
    assert [word for word in one.words if word in ("noticed", "restored", "no-threads", "returned")] == [
        "noticed", "restored", "no-threads", "returned"]


def test_two_controllers_stop_on_one_signal_and_then_the_handlers_come_back(program: Callable[[str], Program]) -> None:
    one = program("two")
    one.until("busy")
    one.send(signal.SIGTERM)
    assert one.end()[0] == 0
    assert [word for word in one.words if word in ("noticed", "restored", "no-threads", "returned")] == [
        "noticed", "noticed", "restored", "no-threads", "returned"]


def test_a_forked_child_that_ends_leaves_the_controller_of_its_parent_alone(program: Callable[[str], Program]) -> None:
    one = program("forked")
    status, log = one.end()
    assert status == 0, log
    assert "child-3" in one.words
    assert "goes-on" in one.words
    assert {"it-says-so", "child-runs-its-own"} <= set(one.words)
    assert one.words.count("stopping") == 2, log  # the parent's own, and that of the child's own


def test_a_program_that_ends_without_stopping_finishes_runs_in_progress(program: Callable[[str], Program]) -> None:
    one = program("embedded-falls-off")
    status, log = one.end()
    assert status == 0
    assert one.words.count("finished") == one.words.count("begun")
    assert "stopping: the program ends" in log
    assert "Fatal" not in log


def test_a_program_that_ends_with_a_stuck_reconciler_still_ends(program: Callable[[str], Program]) -> None:
    one = program("embedded-stuck-falls-off")
    status, log = one.end()
    assert status == 0
    assert "in stuck_in_here" in log


def test_without_shutdown_on_signal_an_interrupt_stops_the_controller_and_is_raised(
        program: Callable[[str], Program]) -> None:
    one = program("keyboard")
    one.until("busy")
    one.send(signal.SIGINT)
    assert one.end()[0] == 0
    assert one.words[-4:] == ["interrupted", "restored", "no-threads", "returned"]


def test_after_a_controller_that_ended_by_itself_a_signal_goes_to_the_handler_of_before(
        program: Callable[[str], Program]) -> None:
    one = program("ended-by-itself")
    status, log = one.end()
    assert status == 0, log
    assert [word for word in one.words if word.startswith("custom")] == ["custom-handler", "custom-is-back"]


def test_forked_children_have_the_handlers_of_before(program: Callable[[str], Program]) -> None:
    one = program("pool")
    began = time.monotonic()
    status, log = one.end()
    assert status == 0, log
    assert {f"child-{-signal.SIGTERM}", "pool-3", "left-the-pool"} <= set(one.words)
    assert time.monotonic() - began < 20


def test_a_call_that_the_shutdown_ends_is_no_stuck_reconciler(program: Callable[[str], Program]) -> None:
    one = program("frozen-call")
    one.until("begun")
    one.send(signal.SIGTERM)
    status, log = one.end()
    assert status == 0, log
    assert "ended by the shutdown" in log
    assert "get configmaps default/never: given up, because the grace period is over" in log
    assert "does not end" not in log
    assert "no-threads" in one.words


def test_a_second_interrupt_of_an_embedded_controller_ends_it_at_once(program: Callable[[str], Program]) -> None:
    one = program("embedded-interrupts")
    one.until("started")  # an interrupt within start() would end it at once
    if "begun" not in one.words:
        one.until("begun")
    one.send(signal.SIGINT)
    one.until("stopping")
    sent = time.monotonic()
    one.send(signal.SIGINT)
    assert one.end()[0] == 0
    assert "interrupted" in one.words
    assert time.monotonic() - sent < LIMIT / 2
