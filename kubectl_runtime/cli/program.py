"""The program that MODULE:NAME names: a function that takes a client and returns the controller or Manager to run.

    def main(client: Client) -> BoundController[Widget]:
        return Controller(Api.all(client, Widget)).bind(reconcile)

The function may also return a Manager. Calling the function opens no connection, unless the function's own code
opens one.
"""
from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

from kubectl_runtime.cli.places import CommandError, Place, UsageError, hint, users_traceback
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.core.base.guard import described, misfit
from kubectl_runtime.core.objects.resource import Resource
from kubectl_runtime.manager.manager import Manager
from kubectl_runtime.runtime.controller.controller import BoundController, Controller

_RULE = "a function that is called with a client, and returns a Manager or Controller(...).bind(reconciler)"


def program_in(module: ModuleType, place: Place) -> Callable[[Client], Any]:
    """Return the function that `place` names. Raises UsageError if the function does not exist or does not take a
    client."""
    missing = object()
    function = getattr(module, place.name, missing)
    if function is missing:
        functions = [name for name, value in vars(module).items()
                     if inspect.isfunction(value) and value.__module__ == module.__name__]
        raise UsageError(f"{place.module} has no {place.name}{hint(place.name, functions, 'functions')}")
    if not callable(function):
        raise UsageError(f"{place} is {_a(function)}; it has to be {_RULE}")
    if isinstance(function, type) and issubclass(function, Resource):  # `misfit` would accept this class
        raise UsageError(f"{place} is the class of a kind; it has to be {_RULE}")
    if inspect.iscoroutinefunction(function):
        raise UsageError(f"{place} is an async function; it has to be {_RULE}: write def, not async def")
    if problem := misfit(function, ("client",)):
        raise UsageError(f"{place} {problem.replace('1 arguments, client', 'one argument, the client')}; it has to "
                         f"be {_RULE}")
    return function


def made_by(function: Callable[[Client], Any], client: Client, place: Place) -> BoundController[Any] | Manager:
    """Call the function with the client and return its result. Raises CommandError if the result is neither a Manager
    nor a bound controller. If the function raises, the CommandError contains the traceback."""
    try:
        made = function(client)
    except (Exception, SystemExit) as error:
        raise CommandError(f"{place} raised {described(error)}\n{users_traceback(error)}") from error
    if isinstance(made, BoundController | Manager):
        return made
    if made is None:
        raise CommandError(f"{place} returned nothing: is its `return` missing? It has to be {_RULE}")
    if isinstance(made, Controller):
        raise CommandError(f"{place} returned a Controller without its reconciler: return controller.bind(reconciler)")
    raise CommandError(f"{place} returned {_a(made)}; it has to be {_RULE}")


def _a(value: object) -> str:
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"
