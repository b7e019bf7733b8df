"""User code that raises, log handlers included, costs a line in the log and nothing else."""
from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from typing import Any, NoReturn

import pytest

from kubectl_runtime.core.base.guard import MOST_TEXT, described, guarded, guarded_logger, pass_interrupt
from kubectl_runtime.runtime.controller.controller import Controller
from kubectl_runtime.runtime.reconcile.reconciler import Action, Context
from tests.runtime.scripted_cluster import Child, Cluster, Parent

LIMIT = 10.0
EVERYTHING = [ValueError("planned"), SystemExit(3), GeneratorExit(), StopIteration(1), MemoryError()]


def fail(error: BaseException) -> NoReturn:
    raise error


class RaisingHandler(logging.Handler):
    """Raises instead of logging, also what `Handler.handle` does not catch."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error, self.asked = error, 0

    def emit(self, record: logging.LogRecord) -> None:
        self.asked += 1
        raise self.error


@pytest.fixture(params=[RuntimeError("handler"), SystemExit(4)], ids=["RuntimeError", "SystemExit"])
def handler(request: pytest.FixtureRequest) -> Iterator[RaisingHandler]:
    """A handler that hears everything of the library, and raises."""
    found, library = RaisingHandler(request.param), logging.getLogger("kubectl_runtime")
    before = library.level
    library.addHandler(found)
    library.setLevel(logging.DEBUG)
    yield found
    library.removeHandler(found)
    library.setLevel(before)


@pytest.mark.parametrize("error", EVERYTHING, ids=repr)
def test_whatever_is_raised_is_reported_and_the_default_comes_back(
        error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    assert guarded("default", "the code", fail, error) == "default"
    assert caplog.messages == [f"the code raised {type(error).__name__}"]
    assert caplog.records[0].exc_info is not None
    assert caplog.records[0].exc_info[1] is error


def test_what_is_returned_comes_back_and_where_is_asked_only_in_case_of_need(caplog: pytest.LogCaptureFixture) -> None:
    asked: list[object] = []

    def where(number: int) -> str:
        asked.append(number)
        return f"division by {number}"

    assert guarded(-1.0, where, lambda number: 6 / number, 3) == 2
    assert asked == []
    assert guarded(-1.0, where, lambda number: 6 / number, 0) == -1
    assert caplog.messages == ["division by 0 raised ZeroDivisionError"]


def test_a_description_that_raises_is_reported_too(caplog: pytest.LogCaptureFixture) -> None:
    assert guarded(1, lambda _: fail(SystemExit(1)), fail, ValueError("planned")) == 1
    assert caplog.messages == ["a description raised SystemExit", "user code raised ValueError"]


def test_the_person_at_the_keyboard_is_obeyed_in_the_main_thread_only() -> None:
    with pytest.raises(KeyboardInterrupt):
        guarded(None, "the code", fail, KeyboardInterrupt())
    passed: list[object] = []
    thread = threading.Thread(target=lambda: passed.append(guarded("default", "x", fail, KeyboardInterrupt())))
    thread.start()
    thread.join(LIMIT)
    assert passed == ["default"]
    pass_interrupt(SystemExit())


def test_an_exception_without_a_text_is_described_by_its_name() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise SystemExit(1)

    assert described(Mute()) == "Mute: <its text cannot be shown>"
    assert described(ValueError("why")) == "ValueError: why"
    assert described(ValueError()) == "ValueError"


def test_a_text_that_quotes_a_whole_document_is_cut() -> None:
    assert described(ValueError("x" * MOST_TEXT)) == f"ValueError: {'x' * MOST_TEXT}"
    assert described(ValueError("x" * 5_000_000)) == f"ValueError: {'x' * MOST_TEXT}... (5,000,000 characters)"


def test_a_raising_handler_breaks_neither_the_report_nor_the_caller(
        handler: RaisingHandler, capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded("default", "the code", fail, ValueError("planned")) == "default"
    guarded_logger("kubectl_runtime.x").warning("a %s", "line")
    assert handler.asked == 2
    told = capsys.readouterr().err
    assert "a log handler of kubectl_runtime.x raised" in told
    assert f"{type(handler.error).__name__}: {handler.error}" in told


def test_a_stderr_that_is_closed_breaks_it_no_more(
        handler: RaisingHandler, monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed:
        def write(self, text: str) -> NoReturn:
            raise ValueError("I/O operation on closed file")

    for stderr in (Closed(), None):
        monkeypatch.setattr(sys, "stderr", stderr)
        guarded_logger("kubectl_runtime.x").error("a line")
    assert handler.asked == 2


def test_lines_name_their_origin_and_keep_their_extra_fields(caplog: pytest.LogCaptureFixture) -> None:
    guarded_logger("kubectl_runtime.x").warning("a line", extra={"ref": 5})
    record = caplog.records[0]
    assert (record.name, record.filename, record.funcName) == (
        "kubectl_runtime.x", "test_usercode.py", "test_lines_name_their_origin_and_keep_their_extra_fields")
    assert vars(record)["ref"] == 5


def test_a_handler_that_raises_on_every_line_loses_nothing(handler: RaisingHandler) -> None:
    """Each of the lines used to end something: the failed run's, the mapper's, the gate's, the watch's, the end's."""
    cluster, seen, failing = Cluster(), threading.Event(), threading.Event()

    def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
        if obj.name == "bad" and not failing.is_set():
            failing.set()
            raise ValueError("planned")
        if obj.name == "good":
            ctx.logger.info("the reconciler's own line")
            seen.set()
        return Action.await_change()

    cluster.failing.add(Child.api_resource)
    cluster.put(Parent, "bad")
    controller = Controller(cluster.api(Parent), concurrency=1).watches(cluster.api(Child), lambda child: fail(
        ValueError("mapper")))
    with controller.start(reconcile) as running:
        cluster.failing.clear()
        cluster.put(Child, "child")
        running.wait_until_ready(LIMIT)
        assert failing.wait(LIMIT)
        cluster.put(Parent, "good")
        assert seen.wait(LIMIT)
        assert running.error is None
        assert running.stop() == []
    assert handler.asked > 4


def test_an_item_that_is_nothing_to_reconcile_does_not_end_its_source(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        @property
        def ref(self) -> NoReturn:
            raise SystemExit(5)

    cluster, calls = Cluster(), 0
    record, seen = cluster.put(Parent, "a"), threading.Event()

    def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
        nonlocal calls
        if ctx.reason == "external trigger":
            seen.set()
        return Action.await_change()

    ready = threading.Event()

    def source() -> Iterator[Any]:
        ready.wait(LIMIT)
        yield Broken()
        yield record.ref

    with Controller(cluster.api(Parent)).reconcile_on(source()).start(reconcile) as running:
        running.wait_until_ready(LIMIT)
        ready.set()
        assert seen.wait(LIMIT)
    assert "an item of a trigger source, for which nothing is reconciled, raised SystemExit" in caplog.text
