"""What a controller refuses before it starts: functions that could only fail at each run, numbers without sense."""
from __future__ import annotations

import inspect
import typing
from pathlib import Path
from typing import Any

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.runtime.given import check_callback, check_type
from kubectl_runtime.runtime.reconcile.context import Context
from kubectl_runtime.runtime.reconcile.invoker import success_function
from kubectl_runtime.runtime.reconcile.reconciler import ErrorPolicy, ReconcileFunction, Reconciler
from kubectl_runtime.runtime.triggers.predicates import Predicate
from kubectl_runtime.runtime.usercode import is_async, misfit, name_of
from kubectl_runtime.runtime.watcher.watch_api import namespaces_of


def check_functions(reconcile: Any, error_policy: Any, data: Any) -> None:
    """Raise RequestError for a reconciler that does not take `(obj, ctx)`, an error policy that does not take `(obj,
    error, ctx)`, and a missing `context=` where the reconciler's annotation, `ctx: Context[Settings]`, says that it
    needs one."""
    if (wrong := misfit(reconcile, ("obj", "ctx"))) is not None:
        raise RequestError(f"the reconciler {name_of(reconcile)} {wrong}")
    if error_policy is not None:
        check_callback("the error policy", error_policy, "obj", "error", "ctx")
    if (on_success := success_function(reconcile)) is not None:
        check_callback("on_success", on_success, "obj", "action", "ctx")
    wanted = _data_type(reconcile) if data is None else None
    if wanted is not None:
        raise RequestError(f"the reconciler {name_of(reconcile)} takes a Context[{getattr(wanted, '__name__', wanted)}]"
                           ", but no context= was given")


def check_gone(on_gone: Any) -> None:
    """Raise RequestError for anything but a function `(ref, ctx)`."""
    if on_gone is not None:
        check_callback("on_gone", on_gone, "ref", "ctx")


def check_children(api: Any, owners: Any) -> None:
    """Raise RequestError where the children that `api` gives are in none of the namespaces of `owners`."""
    children, own = namespaces_of(api), namespaces_of(owners)
    if children and own and not children & own:
        raise RequestError(f"owns: {api.resource.full_name} of {', '.join(sorted(children))} can have no owner in "
                           f"{', '.join(sorted(own))}, where this controller reconciles {owners.resource.full_name}: "
                           "an owner is in the namespace of what it owns")


def check_predicate(predicate: Any) -> None:
    """Raise RequestError for anything but a Predicate: a plain function has to say what it decides, by
    `predicates.when`."""
    if predicate is not None:
        check_type("predicate", predicate, Predicate, "predicates.generation or predicates.when(function)")


def functions_of(reconciler: Any,
                 error_policy: ErrorPolicy[Any] | None) -> tuple[ReconcileFunction[Any], ErrorPolicy[Any] | None]:
    """The function to call and the error policy, of either style. Raises RequestError for what is neither."""
    if isinstance(reconciler, type):
        raise RequestError(f"{reconciler.__name__} is a class: pass an instance of it, {reconciler.__name__}()")
    if not isinstance(reconciler, Reconciler) and not callable(reconciler) and hasattr(reconciler, "reconcile"):
        return functions_of(reconciler.reconcile, error_policy)  # a class of its own making
    function = reconciler.reconcile if isinstance(reconciler, Reconciler) else reconciler
    called = function if inspect.isroutine(function) else type(function).__call__
    if is_async(function):
        raise RequestError(f"{name_of(function)} is async: reconcilers run in threads; write a plain "
                           "function, which may block")
    if inspect.isgeneratorfunction(called):
        raise RequestError(f"{name_of(function)} is a generator, which nobody would iterate: return an Action")
    if isinstance(reconciler, Reconciler):
        if error_policy is None and type(reconciler).error_policy is not Reconciler.error_policy:
            error_policy = reconciler.error_policy
        return reconciler.reconcile, error_policy
    if not callable(reconciler):
        raise RequestError(f"{reconciler!r} is neither a Reconciler nor a function (obj, ctx)")
    return reconciler, error_policy


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


def path_of(what: str, value: Any) -> Path:
    """The path of a file. Raises RequestError for anything but a text or a path."""
    if not isinstance(value, str | Path) or not str(value).strip() or Path(value).is_dir():
        raise RequestError(f"{what} is the path of a file, such as Path('flight.jsonl'), not {value!r}")
    return Path(value)
