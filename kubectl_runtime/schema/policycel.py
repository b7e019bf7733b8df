"""Expressions of admission policies: validations, messages, variables and mutations. `cel.py` wraps the engine.

An expression sees `object`, `oldObject`, `request`, `namespaceObject`, `authorizer` (not in messages) and, if the
policy has them, `variables` and `params`. Fields of `request` and `variables` are typed, so a wrong name is refused.

Mutations build their result with types that the engine does not have: ``Object{metadata: Object.metadata{…}}`` and
``JSONPatch{op: "add", …}``. Such literals are rewritten to map literals with the same fields before compiling.

Safe for concurrent use.
"""
from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kubectl_runtime.schema import cel
from kubectl_runtime.schema.cel import CelError
from kubectl_runtime.schema.cellibrary import Decide, Function, deciding
from kubectl_runtime.schema.celtypes import Message, Scalar, Type, opaque_classes, pool_of

_VARIABLE = re.compile(r"(?<![\w.])variables\s*\.\s*\??\s*(\w+)")
_TOKEN = re.compile(r"""(?P<text>[rRbB]{0,2}(?:\"\"\"|'''|"|')) | (?P<comment>//[^\n]*)
    | (?P<type>(?<![\w.])(?:Object(?:\s*\.\s*\w+)*|JSONPatch)\s*\{)
    | (?P<word>(?:\.\s*)?[A-Za-z_]\w*) | (?P<sign>[{}\[\](),:])
    | (?P<other>.)""", re.VERBOSE | re.DOTALL)
_BY_RESULT: dict[str, Scalar] = {"STRING": "string", "INT": "int", "DOUBLE": "double", "BOOL": "bool",
                                 "TIMESTAMP": "timestamp", "DURATION": "duration", "BYTES": "bytes"}
_VALUES = ("object", "oldObject", "namespaceObject", "params")
_ESCAPE_KEY = Function("jsonpatch.escapeKey", ("string",), "string",
                       lambda text: text.replace("~", "~0").replace("/", "~1"), member=False)


def expanded(expression: str) -> str:
    """An expression in which `Object{…}` and `JSONPatch{…}` are map literals."""
    return "".join(_expanded(expression))


def _expanded(expression: str) -> Iterator[str]:
    opened: list[bool] = []  # for each open bracket: whether its keys are field names to quote
    position, is_key = 0, False
    while position < len(expression):
        found = _TOKEN.match(expression, position)
        assert found is not None
        kind, text = str(found.lastgroup), found[0]
        if kind == "text":
            text = expression[position:_end_of_text(expression, position, text)]
        position += len(text)
        if kind == "type":
            opened.append(True)
            is_key = True
            yield "{"
            continue
        if kind == "sign":
            if text in "{[(":
                opened.append(False)
            elif text in "}])" and opened:
                opened.pop()
            is_key = text == "," and bool(opened) and opened[-1]
        elif kind == "word" and is_key and not text.startswith("."):
            text, is_key = f'"{text}"', False
        elif kind in ("word", "text"):
            is_key = False
        yield text


def _end_of_text(expression: str, start: int, opening: str) -> int:
    mark = opening.lstrip("rRbB")
    inside = r"(?:(?!%s).)*" if "r" in opening.lower() else r"(?:\\.|(?!%s).)*"
    found = re.compile(inside % mark + mark, re.DOTALL).match(expression, start + len(opening))
    return found.end() if found else len(expression)


@dataclass(frozen=True, slots=True)
class Kind:
    """The type that a policy's expression must have: the engine's names for the type, and the type's name in errors."""

    results: tuple[str, ...]
    wanted: str


BOOL = Kind(("BOOL",), "bool")
STRING = Kind(("STRING",), "string")
ANNOTATION = Kind(("STRING", "NULL"), "one of [string null_type]")
APPLY = Kind(("MAP",), "Object")
JSON_PATCH = Kind(("LIST",), "list(JSONPatch)")
ANY = Kind((), "")


class Expressions:
    """The expressions of one policy. Raises CelError for a variable that does not compile, MissingExtra without the
    extra `cel`."""

    def __init__(self, variables: tuple[tuple[str, str], ...], *, has_params: bool) -> None:
        self._has_params = has_params
        self._types: dict[str, Type] = {}
        self._variables: dict[str, str] = {}
        self._programs: dict[str, Any] = {}
        self._running, self._classes = _running()
        for name, expression in variables:
            self.add_variable(name, expression)

    def add_variable(self, name: str, expression: str) -> None:
        """Define a variable that later expressions may use. Raises CelError if `expression` does not compile."""
        self._types[name] = "dyn"  # kept if `expression` does not compile: later expressions still know the name
        result = self._check(expression, ANY, without=name)
        self._types[name] = _BY_RESULT.get(result, "dyn")
        self._variables[name] = expression

    def check(self, expression: str, kind: Kind) -> None:
        """Raise CelError for an expression that does not compile or is not of type `kind`."""
        self._check(expression, kind)

    def _check(self, expression: str, kind: Kind, without: str = "") -> str:
        text = expanded(expression)
        types = tuple((name, known) for name, known in self._types.items() if name != without)
        checking = _checking(types, has_variables=bool(self._types), has_params=self._has_params,
                             has_authorizer=kind is not STRING)
        try:
            found = cel.compiled(checking, text).return_type().name()
        except CelError as error:
            raise CelError(f"compilation failed: {error}".replace(text, expression)) from None
        plain = re.sub(r"<.*", "", found)
        built = "Object" if kind is APPLY else "JSONPatch" if kind is JSON_PATCH else ""
        if kind.results and (plain not in kind.results or (built and text == expression and plain == "MAP")):
            raise CelError(f"must evaluate to {kind.wanted} but got {cel.type_name(found)}")
        return str(found)

    def evaluate(self, expression: str, values: Values) -> Any:
        """The result of an expression, as a JSON value. Raises CelError with the real server's message."""
        data = {**values.data, **cel.authorizer_values(self._classes, values.data["request"] or {})}
        if values.decide is not None:
            deciding.set(values.decide)
        named = dict.fromkeys(_VARIABLE.findall(expression)) if self._variables else {}
        known, failures = self._values_of(named, values)
        data["variables"] = known
        try:
            return self._run(expression, data)
        except CelError as error:
            missing = re.fullmatch(r"no such key: (\w+)", str(error))
            why = failures.get(missing[1], error) if missing else error
            raise CelError(f"expression '{expression}' resulted in error: {why}") from None

    def _values_of(self, named: Mapping[str, None], values: Values) -> tuple[dict[str, Any], dict[str, str]]:
        """The values of these variables, and the errors of those that fail. Each is evaluated once per request."""
        for name in named:
            if name in self._variables and name not in values.variables and name not in values.failures:
                try:
                    values.variables[name] = self.evaluate(self._variables[name], values)
                except CelError as error:
                    values.failures[name] = f'composited variable "{name}" fails to evaluate: {error}'
        return ({name: values.variables[name] for name in named if name in values.variables},
                {name: values.failures[name] for name in named if name in values.failures})

    def _run(self, expression: str, data: Mapping[str, Any]) -> Any:
        program = self._programs.get(expression)
        if program is None:
            program = self._programs[expression] = cel.compiled(self._running, expanded(expression))
        try:
            found = program.eval(self._running.Activation(data))
        except RuntimeError as error:
            raise CelError(cel.cleaned(str(error))) from None
        if found.type() == cel.engine()[0].Type.ERROR:
            raise CelError(cel.cleaned(str(found.value())))
        return plain_value(found)


class Values:
    """The values of one request that a policy's expressions see; variables are evaluated when they are needed."""

    def __init__(self, shown: Any, old: Any, request: Any, namespace: Any, params: Any = None,
                 decide: Decide | None = None) -> None:
        """`decide` answers the checks of `authorizer`."""
        self.decide = decide
        self.data = {"object": shown, "oldObject": old, "request": request, "namespaceObject": namespace,
                     "params": params}
        self.variables: dict[str, Any] = {}
        self.failures: dict[str, str] = {}


def plain_value(value: Any) -> Any:
    """Convert a value of the engine to a JSON value."""
    if callable(getattr(value, "value", None)):
        value = value.value()
    if isinstance(value, dict):
        return {str(key): plain_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_value(item) for item in value]
    return value


@functools.lru_cache(maxsize=256)
def _checking(variables: tuple[tuple[str, Type], ...], *, has_variables: bool, has_params: bool,
              has_authorizer: bool) -> Any:
    engine, extensions, bindings = cel.engine()
    typed = Message(dict(variables))
    known = [*cel.messages_in(cel.REQUEST, itertools.count()), ("variables", typed)]
    values = {name: engine.Type.DYN for name in _VALUES if name != "params" or has_params}
    own = {"request": cel.cel_type(cel.REQUEST, known)}
    if has_variables:
        own["variables"] = cel.cel_type(typed, known)
    if has_authorizer:
        own |= cel.authorizer_types()
    return engine.NewEnv(pool_of(known), variables={**values, **own}, extensions=[
        *extensions, *bindings, cel.library(typed=True, classes={}, authorizer=has_authorizer), _patches()])


@functools.cache
def _running() -> tuple[Any, Mapping[str, Any]]:
    engine, extensions, bindings = cel.engine()
    pool = pool_of(())
    classes = opaque_classes(pool)
    values = dict.fromkeys((*_VALUES, "request", "variables", *cel.AUTHORIZER_VARIABLES), engine.Type.DYN)
    return engine.NewEnv(pool, variables=values, extensions=[
        *extensions, *bindings, cel.library(typed=False, classes=classes, authorizer=True), _patches()]), classes


@functools.cache
def _patches() -> Any:
    engine = cel.engine()[0]
    call: Callable[[str], str] = _ESCAPE_KEY.call
    overload = engine.Overload("kubernetes_jsonpatch_escape_key", return_type=engine.Type.STRING,
                               parameters=[engine.Type.STRING], impl=call)
    return engine.CelExtension("jsonpatch", [engine.FunctionDecl(_ESCAPE_KEY.name, [overload])])
