"""What a controller refuses before it starts: functions that could only fail at each run."""
from __future__ import annotations

import typing
from typing import Any

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.runtime.reconcile.context import Context
from kubectl_runtime.runtime.usercode import misfit, name_of


def check_api(api: Any, taker: str) -> None:
    """Raises RequestError for what is likely to be passed instead of an Api: a kind, or the client."""
    if isinstance(api, type) or not hasattr(api, "resource"):
        given = api.__name__ if isinstance(api, type) else repr(api)
        raise RequestError(f"{taker} takes an Api, such as Api.all(client, Kind) or "
                           f"Api.namespaced(client, Kind, namespace), not {given}")


def check_functions(reconcile: Any, error_policy: Any, data: Any) -> None:
    """Raises RequestError for a reconciler that does not take `(obj, ctx)`, an error policy that does not take
    `(obj, error, ctx)`, and for no `context=` where the reconciler's annotation, `ctx: Context[Settings]`, says that it
    needs one."""
    if (wrong := misfit(reconcile, ("obj", "ctx"))) is not None:
        raise RequestError(f"the reconciler {name_of(reconcile)} {wrong}")
    if error_policy is not None:
        if not callable(error_policy):
            raise RequestError(f"an error policy is a function (obj, error, ctx), not {error_policy!r}")
        if (wrong := misfit(error_policy, ("obj", "error", "ctx"))) is not None:
            raise RequestError(f"the error policy {name_of(error_policy)} {wrong}")
    wanted = _data_type(reconcile) if data is None else None
    if wanted is not None:
        raise RequestError(f"the reconciler {name_of(reconcile)} takes a Context[{getattr(wanted, '__name__', wanted)}]"
                           ", but no context= was given")


def check_gone(on_gone: Any) -> None:
    """Raises RequestError for what is no function `(ref, ctx)`."""
    if on_gone is None:
        return
    if not callable(on_gone):
        raise RequestError(f"on_gone is a function (ref, ctx), not {on_gone!r}")
    if (wrong := misfit(on_gone, ("ref", "ctx"))) is not None:
        raise RequestError(f"on_gone, {name_of(on_gone)}, {wrong}")


def _data_type(function: Any) -> Any:
    """The class that a function's annotation says `ctx.data` is; None when it says nothing, or that None will do."""
    function = getattr(function, "__func__", function)
    try:
        hints = typing.get_type_hints(function)
    except Exception:  # noqa: BLE001 - names that exist for type checkers only: then nothing is known
        return None
    hints.pop("return", None)
    for hint in hints.values():
        if typing.get_origin(hint) is Context:
            (data,) = typing.get_args(hint)
            return data if isinstance(data, type) and data not in (Any, type(None), object) else None
    return None
