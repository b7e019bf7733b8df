"""Nothing of a run reaches a thread that outlives it, also where Python hands contexts on to new threads."""
from __future__ import annotations

import ast
import asyncio
import logging
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import kubectl_runtime
from kubectl_runtime.core.base.threads import Thread
from kubectl_runtime.core.meta.gvk import ApiResource, ObjectRef
from kubectl_runtime.core.scope import RunScope, Trace, current_scope, enter_scope, leave_scope
from kubectl_runtime.runtime.logs import RunFilter
from kubectl_runtime.runtime.reconcile.runner import PoolExecutor
from tests.inherited_contexts import inherit

PACKAGE = Path(kubectl_runtime.__file__).parent
marker: ContextVar[str] = ContextVar("marker", default="nothing")


@pytest.fixture(params=[False, True], ids=["threads begin empty", "threads have a copy of the context"], autouse=True)
def inherited(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    if request.param:
        inherit(monkeypatch)
    return bool(request.param)


def seen_in(kind: Callable[..., threading.Thread], look: Callable[[], Any]) -> Any:
    found: list[Any] = []
    thread = kind(target=lambda: found.append(look()))
    thread.start()
    thread.join()
    return found[0]


def test_a_thread_of_the_library_starts_with_nothing(inherited: bool) -> None:
    token = marker.set("a run")
    try:
        assert seen_in(Thread, marker.get) == "nothing"
        copied = inherited or getattr(sys.flags, "thread_inherit_context", False)  # without the GIL it is the default
        assert seen_in(threading.Thread, marker.get) == ("a run" if copied else "nothing")
    finally:
        marker.reset(token)


def test_the_library_starts_no_other_threads() -> None:
    others = [f"{path.relative_to(PACKAGE)}:{call.lineno}" for path in PACKAGE.rglob("*.py")
              if "Thread(" in (text := path.read_text()) for call in ast.walk(ast.parse(text))
              if isinstance(call, ast.Call) and ast.unparse(call.func) in ("threading.Thread", "threading.Timer")]
    assert others == []


def test_a_scope_is_over_in_copies_too_and_what_is_around_it_is_in_force_there() -> None:
    outer, inner = RunScope(), RunScope()
    left = enter_scope(outer)
    inner.outer = current_scope()
    left_inner = enter_scope(inner)
    copied = copy_context()
    assert copied.run(current_scope) is inner
    leave_scope(left_inner)
    assert (current_scope(), copied.run(current_scope)) == (outer, outer)
    leave_scope(left)
    assert (current_scope(), copied.run(current_scope)) == (None, None)


def in_a_pool(look: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(look).result()


HOW: dict[str, Callable[[Callable[[], Any]], Any]] = {
    "a thread": lambda look: seen_in(threading.Thread, look),
    "a thread of a pool": in_a_pool,
    "a copy of the context": lambda look: copy_context().run(look),
    "a copy of the context in a thread": lambda look: seen_in(threading.Thread, partial(copy_context().run, look)),
    "a copy of the context in a thread of a pool": lambda look: in_a_pool(partial(copy_context().run, look)),
    "asyncio.to_thread": lambda look: asyncio.run(asyncio.to_thread(look)),
}


@pytest.mark.parametrize("how", HOW)
def test_a_thread_works_for_a_run_where_the_program_copied_the_context_and_nowhere_else(how: str) -> None:
    entered = enter_scope(work := RunScope())
    try:
        found = HOW[how](current_scope)
    finally:
        leave_scope(entered)
    assert found is (None if how in ("a thread", "a thread of a pool") else work)


def test_a_thread_of_a_pool_does_not_work_for_the_run_in_which_it_was_started() -> None:
    with ThreadPoolExecutor(1) as pool:
        first = enter_scope(RunScope())
        pool.submit(int).result()
        second = enter_scope(other := RunScope())
        assert pool.submit(current_scope).result() is None
        assert pool.submit(copy_context().run, current_scope).result() is other
        leave_scope(second)
        leave_scope(first)
        assert pool.submit(current_scope).result() is None


def test_log_lines_of_a_copied_context_name_the_run_no_longer_than_it_lasts() -> None:
    run: Any = SimpleNamespace(controller="c", ref=ObjectRef(ApiResource("", "v1", "Pod", "pods"), "a"),
                               reconcile_id="r1", reason="object updated")
    token = enter_scope(RunScope(logged=run, trace=Trace("t1", "s1", ("c", (None, "a")))))
    copied = copy_context()
    within, after, elsewhere = (logging.makeLogRecord({}) for _ in range(3))
    copied.run(RunFilter().filter, within)
    seen_in(threading.Thread, partial(RunFilter().filter, elsewhere))
    leave_scope(token)
    copied.run(RunFilter().filter, after)
    for name in ("reconcile_id", "trace_id"):
        assert [hasattr(record, name) for record in (within, after, elsewhere)] == [True, False, False]


def test_a_thread_that_a_pool_begins_for_a_run_knows_nothing_of_another() -> None:
    errors: list[BaseException] = []
    with ThreadPoolExecutor(1) as pool:
        token = marker.set("another run")
        PoolExecutor(pool, errors.append).submit(iter([None]))
        marker.reset(token)
        assert pool.submit(marker.get).result() == "nothing"
    assert errors == []
