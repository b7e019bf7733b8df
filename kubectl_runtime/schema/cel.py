"""The engine that evaluates CEL rules (`pip install kubectl_runtime[cel]`); only this module knows which engine it is.

The engine is cel-expr-python 0.1.3, Google's wrapper of cel-cpp, with protobuf for the types. It checks types when a
rule is compiled, so that a wrong rule is refused when its CustomResourceDefinition is created, as on an API
server. common-expression-language 0.10 (Rust) and cel-python 0.5 (pure Python), which were tried on the recorded
rules of the test suite, do not check types. The engine has cel-go's errors, RE2 patterns, optional types and typed
functions. A rule takes 12 µs. Wheels exist for Python 3.11 to 3.14 on Linux, macOS and Windows, but not for
free-threaded Python.

The engine's limits apply to rules. A rule of more than 32 nesting levels does not compile. A rule whose macros need
more than 10,000 iterations fails, and the object is refused. `celcost.py` estimates the cost of rules. Optional
values cannot be passed in, so `optionalOldSelf` is bound inside the expression. Functions cannot return opaque types,
so quantities and similar values are protobuf messages that hold their canonical text. Safe for concurrent use; the
wrapper holds the GIL while it evaluates.

A `Condition` is a match condition of a webhook: an expression over `object`, `oldObject` and `request`. The fields of
`request` are typed, so that a wrong name does not compile; the objects are not typed.
"""
from __future__ import annotations

import functools
import itertools
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from kubectl_runtime.core.base.errors import MissingExtra
from kubectl_runtime.schema import celcost, celmacros
from kubectl_runtime.schema.cellibrary import (
    AUTHORIZER,
    OPAQUE,
    RESOURCE_CHECK,
    Decide,
    Function,
    authorizer_functions,
    deciding,
    functions,
)
from kubectl_runtime.schema.celtypes import (
    Converter,
    ListOf,
    MapOf,
    Message,
    Node,
    Type,
    converter,
    declared_type,
    duration,
    fields_named,
    opaque_classes,
    pool_of,
    timestamp,
)
from kubectl_runtime.schema.validation import NOTHING

_missing_extra = functools.partial(MissingExtra, "rules in CEL need", "cel", "cel_expr_python")
MISSING_EXTRA = str(_missing_extra())
_OPTIONAL_OLD = "cel.bind(oldSelf, oldSelf__given ? optional.of(oldSelf__value) : optional.none(),\n%s\n)"
_SCALARS = {"string": "STRING", "int": "INT", "double": "DOUBLE", "bool": "BOOL", "bytes": "BYTES", "dyn": "DYN",
            "timestamp": "TIMESTAMP", "duration": "DURATION"}
_COMPARISONS = {"<": "less", "<=": "less_equals", ">": "greater", ">=": "greater_equals"}  # of integers with doubles
_TEXTS = ((re.compile(r"^[A-Z_]+: | \[[A-Z_]+\]$"), ""), (re.compile(r" not found in struct '[^']*'"), ""),
          (re.compile(r"expression of type ('.*') cannot be the operand of a select operation"),
           r"type \1 does not support field selection"),
          (re.compile(r"Key not found in map : \"(.*)\""), r"no such key: \1"))


class CelError(Exception):
    """An expression does not compile, or its evaluation fails. The text is the engine's error in cel-go's wording."""


@functools.cache
def engine() -> Any:
    """The engine and its extensions, imported when the first rule needs them (0.1 s). Raises MissingExtra."""
    try:
        pool_of(())  # imports protobuf, which is part of the extra, too
        from cel_expr_python import cel
        from cel_expr_python.ext import ext_bindings, ext_optional, ext_strings
    except ImportError as error:
        raise _missing_extra(error) from error
    return cel, [ext_strings.ExtStrings(), ext_optional.ExtOptional()], [ext_bindings.ExtBindings()]


def bare(expression: str) -> str:
    """The expression without its string literals and comments."""
    return re.sub(r"""r?(\"\"\"|'''|"|')(?:\\.|(?!\1).)*\1|//[^\n]*""", '""', expression, flags=re.DOTALL)


def uses_old_self(expression: str) -> bool:
    """Whether an expression names oldSelf outside of string literals and comments."""
    return re.search(r"(?<![\w.])oldSelf\b", bare(expression)) is not None


# --- types ------------------------------------------------------------------------------------------------------------


def cel_type(declared: Type, messages: list[tuple[str, Message]]) -> Any:
    """The engine's type for the type `declared`. If `declared` is an object type, or a list or map of objects,
    `messages` must contain the object type, with its name."""
    cel = engine()[0]
    if isinstance(declared, ListOf):
        return cel.Type.List(cel_type(declared.element, messages))
    if isinstance(declared, MapOf):
        return cel.Type.Map(cel.Type.STRING, cel_type(declared.element, messages))
    if isinstance(declared, Message):
        return cel.Type("kubernetes." + next(name for name, known in messages if known is declared))
    return getattr(cel.Type, _SCALARS[declared])


def messages_in(declared: Type, counter: itertools.count[int]) -> Iterable[tuple[str, Message]]:
    """Yield (new name, object type) if `declared` is an object type, or a list or map of one."""
    while isinstance(declared, ListOf | MapOf):
        declared = declared.element
    if isinstance(declared, Message):
        yield f"object{next(counter)}", declared


# --- functions --------------------------------------------------------------------------------------------------------


def _signature_type(text: str) -> Any:
    cel = engine()[0]
    if text.startswith("{"):
        return cel.Type.Map(cel.Type.STRING, _signature_type(text[1:-1]))
    if text.startswith("["):
        return cel.Type.List(_signature_type(text[1:-1]))
    return cel.Type(f"kubernetes.{text}") if text in OPAQUE else getattr(cel.Type, _SCALARS[text])


def library(*, typed: bool, classes: Mapping[str, Any], authorizer: bool = False) -> Any:
    """Kubernetes' functions as an extension of the engine. Several functions may have the same name (overloads).

    When a rule is checked (`typed`), the engine selects an overload by the declared types. When a rule runs, lists and
    opaque values are untyped, and the engine would not distinguish a version from a quantity. Therefore functions that
    differ only in opaque types become one overload, which selects the function by its arguments.
    """
    cel = engine()[0]
    alike: dict[Any, list[Function]] = {}
    known_functions = (functions(), celmacros.functions(), authorizer_functions() if authorizer else ())
    for number, function in enumerate(itertools.chain.from_iterable(known_functions)):
        has_list = function.member and function.parameters[0].startswith("[")
        if has_list and ("dyn" in function.parameters[0]) == typed:
            continue
        shape = tuple("opaque" if part in OPAQUE else part for part in function.parameters)
        alike.setdefault(number if typed else (function.name, shape, function.member), []).append(function)
    overloads: dict[str, list[Any]] = {}
    for same in alike.values():
        function, known = same[0], overloads.setdefault(same[0].name, [])
        known.append(cel.Overload(
            f"kubernetes_{function.name.replace('.', '_')}_{len(known)}", is_member=function.member,
            return_type=_signature_type(function.result) if len(same) == 1 else cel.Type.DYN,
            parameters=[_signature_type(part) for part in function.parameters] if len(same) == 1 else [
                cel.Type.DYN if part in OPAQUE else _signature_type(part) for part in function.parameters],
            impl=_implementation(same, classes)))
    if typed:
        overloads |= {f"_{sign}_": [cel.Overload(f"kubernetes_{name}_{a}_{b}", return_type=cel.Type.BOOL,
                                                 parameters=[_signature_type(a), _signature_type(b)])
                                    for a, b in (("int", "double"), ("double", "int"))]
                      for sign, name in _COMPARISONS.items()}
    return cel.CelExtension("kubernetes", [cel.FunctionDecl(name, known) for name, known in overloads.items()])


def _implementation(same: list[Function], classes: Mapping[str, Any]) -> Any:
    if len(same) > 1:
        calls = {tuple(part for part in function.parameters if part in OPAQUE): _implementation([function], classes)
                 for function in same}
        return lambda *arguments: _of_types(calls, arguments)(*arguments)
    [function] = same
    opaque = [kind in OPAQUE for kind in function.parameters]
    make = classes.get(function.result)

    def call(*arguments: Any) -> Any:
        found = function.call(*(argument.value if wrapped else argument
                                for argument, wrapped in zip(arguments, opaque, strict=True)))
        return found if make is None else make(value=found)
    return call


def _of_types(calls: Mapping[tuple[str, ...], Any], arguments: tuple[Any, ...]) -> Any:
    found = tuple(argument.DESCRIPTOR.full_name.removeprefix("kubernetes.")
                  for argument in arguments if hasattr(argument, "DESCRIPTOR"))
    if found not in calls:
        raise ValueError(f"no such overload for {', '.join(found) or 'these values'}")
    return calls[found]


# --- checking and running ---------------------------------------------------------------------------------------------


class Scope:
    """The schema that rules belong to; its type is the type of `self` and `oldSelf`. Raises CelError for a schema
    without a type, because rules cannot see its values."""

    def __init__(self, node: Node, *, root: bool = False) -> None:
        declared = declared_type(node, root=root)
        if declared is None:
            raise CelError("the schema has no type, so no rule can see the value")
        self._sizes = celcost.sized(node, root=root) or celcost.Sized("dyn")
        messages = list(messages_in(declared, itertools.count()))
        cel, extensions, bindings = engine()
        own = cel_type(declared, messages)
        pool, shared = pool_of(messages), {"self": own}
        self._plain, self._optional = (
            cel.NewEnv(pool, variables={**shared, **more}, extensions=[*used, library(typed=True, classes={})])
            for more, used in (({"oldSelf": own}, [*extensions, *bindings]),
                               ({"oldSelf__value": own, "oldSelf__given": cel.Type.BOOL}, [*extensions, *bindings])))

    def most_cost(self, expression: str, wanted: Literal["bool", "string"], *,
                  optional_old: bool = False) -> int | None:
        """The greatest estimated cost of an expression; None if the expression's type is not `wanted`. Raises
        CelError, with the compiler's text, if the expression does not compile."""
        refuse_own_names(expression)
        if not optional_old:
            found = compiled(self._plain, expression)
        else:
            found = compiled(self._optional, _OPTIONAL_OLD % expression)
        if found.return_type().name() != _SCALARS[wanted]:
            return None
        return celcost.most_cost(found.serialize(), self._sizes)

    @property
    def most_times(self) -> int:
        """The maximum number of values of this schema in one request."""
        return celcost.most_times(self._sizes)


def refuse_own_names(expression: str) -> None:
    """Raise CelError if `expression` calls a function that only `celmacros` may insert; API servers lack these."""
    if found := re.search(r"(?<![\w.])(?:(cel)\s*\.\s*bind|(kubernetes__\w+))\s*\(", bare(expression)):
        raise CelError(f"ERROR: <input>: undeclared reference to '{found[1] or found[2]}' (in container '')")


def type_name(found: str) -> str:
    """The name of a type as cel-go writes it; `found` is the engine's name."""
    return found if found.startswith("kubernetes.") else found.lower()


def compiled(environment: Any, expression: str) -> Any:
    """The compiled expression. Raises CelError with the compiler's text."""
    whole = celmacros.expanded(expression)
    try:
        return environment.compile(whole)
    except RuntimeError as error:
        text = cleaned(str(error) if whole == expression else "\n".join(  # omit columns of the expanded text
            re.sub(r"<input>:\d+:\d+: ", "<input>: ", line) for line in str(error).split("\n") if line[:3] != " | "))
        raise CelError(text.replace("<input>:2:", "<input>:1:") if "oldSelf__given" in expression else text) from None


def cleaned(text: str) -> str:
    """The engine's error text as cel-go would write it."""
    for pattern, better in _TEXTS:
        text = pattern.sub(better, text)
    return _NO_OVERLOAD.sub(_of_receiver, _UNDECLARED.sub(_at_its_beginning, text))


_UNDECLARED = re.compile(r"(<input>:\d+:)(\d+)(: undeclared reference to ')([^'.]+)\.([^']*)('[^\n]*)"
                         r"((?:\n \| [^\n]*\n \| \.*\^)?)")


_NO_OVERLOAD = re.compile(r"(<input>:\d+:)(\d+)(: found no matching overload for '(\w+)' applied to ')\(([^,()]+)"
                          r"(?:, )?(.*)\)'\n \| ([^\n]*)")


def _of_receiver(found: re.Match[str]) -> str:
    """An error about a method's overload as cel-go writes it: with the receiver before the arguments."""
    place, column, what, name, receiver, arguments, line = found.groups()
    if not re.search(rf"\.\s*{name}\s*$", line[:int(column) - 1]):
        return found[0]
    return f"{place}{column}{what}{receiver}.({arguments})'\n | {line}"


def _at_its_beginning(found: re.Match[str]) -> str:
    """An error about an unknown name as cel-go writes it: without the fields that follow the
    name, and with the column where the name begins."""
    place, column, what, name, fields, rest, lines = found.groups()
    begin = max(int(column) - len(f"{name}.{fields}".rpartition(".")[0]), 1)
    return f"{place}{begin}{what}{name}{rest}" + re.sub(r"\.*\^$", "." * (begin - 1) + "^", lines)


@functools.cache
def _runtime() -> tuple[Any, Any]:
    """The environments in which rules run, without and with optional old values. Their variables are
    untyped, because `Scope` has already checked the types."""
    cel, extensions, bindings = engine()
    pool = pool_of(())
    made, own, value = library(typed=False, classes=opaque_classes(pool)), {"self": cel.Type.DYN}, cel.Type.DYN
    return (cel.NewEnv(pool, variables={**own, "oldSelf": value}, extensions=[*extensions, *bindings, made]),
            cel.NewEnv(pool, variables={**own, "oldSelf__value": value, "oldSelf__given": cel.Type.BOOL},
                       extensions=[*extensions, *bindings, made]))


class Values:
    """A value and the old value, both already converted, passed to the engine once for all rules of a schema."""

    def __init__(self, value: Any, old: Any = NOTHING) -> None:
        self._value, self._old = value, old
        self._bound: dict[bool, Any] = {}

    def bound(self, *, optional_old: bool) -> Any:
        """The variables `self` and `oldSelf`, in the engine's form."""
        if optional_old not in self._bound:
            given = self._old is not NOTHING
            data = {"self": self._value}
            if optional_old:
                data |= {"oldSelf__given": given, "oldSelf__value": self._old if given else None}
            elif given:
                data["oldSelf"] = self._old
            self._bound[optional_old] = _runtime()[optional_old].Activation(data)
        return self._bound[optional_old]


@dataclass(frozen=True, slots=True)
class Program:
    """An expression that is ready to run."""

    expression: Any
    optional_old: bool

    def holds(self, value: Any) -> bool:
        """Whether this rule, which must not use oldSelf, is true for `value`; False if evaluation fails."""
        try:
            return self.expression.eval(_runtime()[0].Activation({"self": value})).value() is True
        except RuntimeError:
            return False

    def run(self, values: Values) -> Any:
        """The result of the expression. Raises CelError if there is no result."""
        try:
            found = self.expression.eval(values.bound(optional_old=self.optional_old))
        except RuntimeError as error:
            raise CelError(cleaned(str(error))) from None
        if found.type() == engine()[0].Type.ERROR:
            raise CelError(cleaned(str(found.value())))
        return found.value()


@functools.lru_cache(maxsize=4096)
def program(expression: str, *, optional_old: bool = False) -> Program:
    """Compile an expression so that it can run. `Scope.most_cost` must have accepted the expression before."""
    plain, optional = _runtime()
    return Program(compiled(optional if optional_old else plain,
                             _OPTIONAL_OLD % expression if optional_old else expression), optional_old)


def convert(node: Node, expressions: Iterable[str], *, root: bool = False) -> Converter | None:
    """Return a function that converts a JSON value of the schema for `Program.run`, or None if no conversion is needed.
    Only the properties that these expressions name are converted."""
    return converter(node, timestamp, duration, root=root, only=fields_named(expressions, node, root=root))


_KIND = Message({"group": "string", "version": "string", "kind": "string"})
_RESOURCE = Message({"group": "string", "version": "string", "resource": "string"})
_USER = Message({"username": "string", "uid": "string", "groups": ListOf("string"), "extra": MapOf(ListOf("string"))})
REQUEST = Message({
    "kind": _KIND, "resource": _RESOURCE, "subResource": "string", "requestKind": _KIND, "requestResource": _RESOURCE,
    "requestSubResource": "string", "name": "string", "namespace": "string", "operation": "string", "userInfo": _USER,
    "dryRun": "bool", "options": "dyn"})
_OBJECTS = ("object", "oldObject")
AUTHORIZER_VARIABLES = {"authorizer": AUTHORIZER, "authorizer.requestResource": RESOURCE_CHECK}


def authorizer_types() -> dict[str, Any]:
    """The engine's types of the authorizer's variables."""
    return {name: engine()[0].Type(f"kubernetes.{kind}") for name, kind in AUTHORIZER_VARIABLES.items()}


def authorizer_values(classes: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
    """The values of the authorizer's variables for a request. Each check of the authorizer
    calls the function in the context variable `deciding`."""
    resource = request.get("requestResource") or request.get("resource") or {}
    asked = {"group": resource.get("group", ""), "resource": resource.get("resource", ""),
             "subresource": request.get("requestSubResource") or request.get("subResource") or "",
             "namespace": request.get("namespace") or "", "name": request.get("name") or ""}
    return {"authorizer": classes[AUTHORIZER](value="{}"),
            "authorizer.requestResource": classes[RESOURCE_CHECK](value=json.dumps(asked))}


@functools.cache
def _environments() -> tuple[Any, Any, Mapping[str, Any]]:
    """The environment that checks conditions, the environment that runs them, and the classes of opaque values."""
    cel, extensions, bindings = engine()
    known = list(messages_in(REQUEST, itertools.count()))
    objects = dict.fromkeys(_OBJECTS, cel.Type.DYN)
    pool = pool_of(known)
    checking = cel.NewEnv(pool, variables={**objects, **authorizer_types(), "request": cel_type(REQUEST, known)},
                          extensions=[*extensions, *bindings, library(typed=True, classes={}, authorizer=True)])
    pool = pool_of(())
    classes = opaque_classes(pool)
    running = cel.NewEnv(pool, variables=dict.fromkeys((*objects, "request", *AUTHORIZER_VARIABLES), cel.Type.DYN),
                         extensions=[*extensions, *bindings, library(typed=False, classes=classes, authorizer=True)])
    return checking, running, classes


class Condition:
    """An expression that is true or false for a request."""

    def __init__(self, expression: str) -> None:
        """Raises CelError if `expression` does not compile or is not boolean, MissingExtra without the extra `cel`."""
        checking, running, self._classes = _environments()
        try:
            refuse_own_names(expression)
            found = compiled(checking, expression).return_type().name()
        except CelError as error:
            raise CelError(f"compilation failed: {error}") from None
        if found != "BOOL":
            raise CelError(f"must evaluate to bool but got {type_name(found)}")
        self._program, self._running = compiled(running, expression), running

    def holds(self, shown: Any, old: Any, request: Any, decide: Decide | None = None) -> bool:
        """Whether the condition is true for the object, the old object (None for none) and the request, all as plain
        values. `decide` answers the checks of `authorizer`. Raises CelError."""
        data = {"object": shown, "oldObject": old, "request": request, **authorizer_values(self._classes, request)}
        if decide is not None:
            deciding.set(decide)
        try:
            found = self._program.eval(self._running.Activation(data))
        except RuntimeError as error:
            raise CelError(cleaned(str(error))) from None
        if found.type() == engine()[0].Type.ERROR:
            raise CelError(cleaned(str(found.value())))
        return found.value() is True


@functools.lru_cache(maxsize=1024)
def condition(expression: str) -> Condition:
    """The compiled condition. Raises like `Condition`."""
    return Condition(expression)
