"""Which lines of an error's traceback are of the user's code: the library's own, before and after them, say nothing."""
from __future__ import annotations

import os
from types import TracebackType

_LIBRARY = __name__.partition(".")[0]


def user_trace(error: BaseException) -> TracebackType | None:
    """The traceback from the first line of user code on; all of it where none is in it."""
    trace = error.__traceback__
    while trace is not None and _is_ours(trace):
        trace = trace.tb_next
    return trace or error.__traceback__


def user_place(error: BaseException) -> str:
    """The last line of user code, as `greeter.py:12, in reconcile`; empty where there is none."""
    found, trace = None, error.__traceback__
    while trace is not None:
        if not _is_ours(trace):
            found = trace
        trace = trace.tb_next
    if found is None:
        return ""
    code = found.tb_frame.f_code
    return f"{os.path.basename(code.co_filename)}:{found.tb_lineno}, in {code.co_name}"


def _is_ours(trace: TracebackType) -> bool:
    module = trace.tb_frame.f_globals.get("__name__")
    return isinstance(module, str) and module.partition(".")[0] == _LIBRARY
