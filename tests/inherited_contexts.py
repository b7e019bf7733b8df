"""Threads as Python 3.14 starts them without the GIL, or under `-X thread_inherit_context`: in a copied context."""
from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

import pytest

from kubectl_runtime.core import scope


def inherit(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", lambda thread: _start(thread, plain))
    monkeypatch.setattr(scope, "_THREADS_INHERIT", True)


def _start(thread: threading.Thread, plain: Callable[[threading.Thread], None]) -> None:
    given: Any = thread
    context, run = copy_context(), thread.run
    given._context = context
    if sys.version_info < (3, 14):  # which runs every thread in its `_context`
        given.run = lambda: context.run(run)
    plain(thread)
