"""Match conditions of webhooks: expressions over `object`, `oldObject` and `request`, as kube-apiserver evaluates them.

The fields of `request` are typed, so that a wrong name does not compile; the objects are not. `authorizer` is left out:
a condition that names it does not compile either, and says so. Evaluated by the engine of `cel.py`, whose bounds hold.
Safe for concurrent use.
"""

from __future__ import annotations

import functools
import itertools
import re
from typing import Any

from kubectl_runtime.schema.cel import CelError, bare, cel_type, cleaned, compiled, engine, library, messages_in
from kubectl_runtime.schema.celmessages import opaque_classes, pool_of
from kubectl_runtime.schema.celtypes import ListOf, MapOf, Message

_KIND = Message({"group": "string", "version": "string", "kind": "string"})
_RESOURCE = Message({"group": "string", "version": "string", "resource": "string"})
_USER = Message({"username": "string", "uid": "string", "groups": ListOf("string"),
                 "extra": MapOf(ListOf("string"))})
_REQUEST = Message({
    "kind": _KIND, "resource": _RESOURCE, "subResource": "string", "requestKind": _KIND, "requestResource": _RESOURCE,
    "requestSubResource": "string", "name": "string", "namespace": "string", "operation": "string", "userInfo": _USER,
    "dryRun": "bool", "options": "dyn"})
_OBJECTS = ("object", "oldObject")
NO_AUTHORIZER = "`authorizer` is not evaluated here: no decision of it could be the real one's"


@functools.cache
def _environments() -> tuple[Any, Any]:
    """Where conditions are checked, and where they run."""
    cel, extensions, _ = engine()
    known = list(messages_in(_REQUEST, itertools.count()))
    objects = dict.fromkeys(_OBJECTS, cel.Type.DYN)
    pool = pool_of(known)
    checking = cel.NewEnv(pool, variables={**objects, "request": cel_type(_REQUEST, known)},
                          extensions=[*extensions, library(typed=True, classes={})])
    pool = pool_of(())
    running = cel.NewEnv(pool, variables={**objects, "request": cel.Type.DYN},
                         extensions=[*extensions, library(typed=False, classes=opaque_classes(pool))])
    return checking, running


class Condition:
    """An expression that is true or false of a request."""

    def __init__(self, expression: str) -> None:
        """Raises CelError if it does not compile or is no truth, MissingExtra without the extra `cel`."""
        if re.search(r"(?<![\w.])authorizer\b", bare(expression)):
            raise CelError(NO_AUTHORIZER)
        checking, running = _environments()
        try:
            found = compiled(checking, expression).return_type().name()
        except CelError as error:
            raise CelError(f"compilation failed: {error}") from None
        if found != "BOOL":
            raise CelError(f"must evaluate to bool but got {found.lower()}")
        self._program, self._running = compiled(running, expression), running

    def holds(self, shown: Any, old: Any, request: Any) -> bool:
        """Whether it is true of the objects (None: there is none) and the request, plain values. Raises CelError."""
        try:
            found = self._program.eval(self._running.Activation(
                {"object": shown, "oldObject": old, "request": request}))
        except RuntimeError as error:
            raise CelError(cleaned(str(error))) from None
        if found.type() == engine()[0].Type.ERROR:
            raise CelError(cleaned(str(found.value())))
        return found.value() is True


@functools.lru_cache(maxsize=1024)
def condition(expression: str) -> Condition:
    """The compiled condition. Raises as `Condition`."""
    return Condition(expression)
