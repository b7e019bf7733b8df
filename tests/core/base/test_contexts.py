"""Nothing of a run reaches a thread that outlives it, also where Python hands contexts on to new threads."""
from __future__ import annotations

import ast
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import kubectl_runtime
from kubectl_runtime.core.base.interpreter import RunVariable, Thread
from kubectl_runtime.core.base.stop import CallScope, StopToken, call_scope, enter_scope, leave_scope
from kubectl_runtime.core.meta.gvk import ApiResource
from kubectl_runtime.core.meta.refs import ObjectRef
from kubectl_runtime.runtime.logs import RunFilter, this_run
from kubectl_runtime.runtime.reconcile.executor import PoolExecutor

PACKAGE = Path(kubectl_runtime.__file__).parent
marker: ContextVar[str] = ContextVar("marker", default="nothing")


@pytest.fixture(autouse=True)
def handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Python 3.14 under `-X thread_inherit_context`: a thread has a copy of its starter's context."""
    plain = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        context, run = copy_context(), thread.run
        thread.run = lambda: context.run(run)  # type: ignore[method-assign]
        plain(thread)

    monkeypatch.setattr(threading.Thread, "start", start)


def seen_in(kind: Callable[..., threading.Thread], look: Callable[[], Any]) -> Any:
    found: list[Any] = []
    thread = kind(target=lambda: found.append(look()))
    thread.start()
    thread.join()
    return found[0]


@pytest.mark.parametrize(("kind", "seen"), [(threading.Thread, "a run"), (Thread, "nothing")])
def test_a_thread_of_the_library_starts_with_nothing(kind: Callable[..., threading.Thread], seen: str) -> None:
    token = marker.set("a run")
    try:
        assert seen_in(kind, marker.get) == seen
    finally:
        marker.reset(token)


def test_the_library_starts_no_other_threads() -> None:
    others = [f"{path.relative_to(PACKAGE)}:{call.lineno}" for path in PACKAGE.rglob("*.py")
              if "Thread(" in (text := path.read_text()) for call in ast.walk(ast.parse(text))
              if isinstance(call, ast.Call) and ast.unparse(call.func) in ("threading.Thread", "threading.Timer")]
    assert others == []


def test_a_run_variable_is_over_in_copies_too() -> None:
    variable: RunVariable[str] = RunVariable("of_a_test")
    outer = variable.set("outer")
    inner = variable.set("inner")
    copied = copy_context()
    assert copied.run(variable.get) == "inner"
    variable.reset(inner)
    assert (variable.get(), copied.run(variable.get)) == ("outer", None)
    variable.reset(outer)
    assert variable.get() is None


def test_a_thread_that_was_begun_in_a_run_obeys_its_end_no_longer_than_it_lasts() -> None:
    scope = CallScope(StopToken(), StopToken())
    entered = enter_scope(scope)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(call_scope).result() is scope
        leave_scope(entered)
        assert pool.submit(call_scope).result() is None


def test_nor_do_its_log_lines_name_the_run() -> None:
    run: Any = SimpleNamespace(controller="c", ref=ObjectRef(ApiResource("", "v1", "Pod", "pods"), "a"),
                               reconcile_id="r1", reason="object updated")
    token = this_run.set(run)
    copied = copy_context()
    within, after = logging.makeLogRecord({}), logging.makeLogRecord({})
    copied.run(RunFilter().filter, within)
    this_run.reset(token)
    copied.run(RunFilter().filter, after)
    assert (hasattr(within, "reconcile_id"), hasattr(after, "reconcile_id")) == (True, False)


def test_a_thread_that_a_pool_begins_for_a_run_knows_nothing_of_another() -> None:
    errors: list[BaseException] = []
    with ThreadPoolExecutor(1) as pool:
        token = marker.set("another run")
        PoolExecutor(pool, errors.append).submit(iter([None]))
        marker.reset(token)
        assert pool.submit(marker.get).result() == "nothing"
    assert errors == []
