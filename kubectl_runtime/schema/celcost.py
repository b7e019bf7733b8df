"""The greatest cost of a rule, as an API server estimates the cost before it accepts a definition.

The estimate adds up the prices of the steps in the type-checked expression. A step that walks through a text, a list
or a map costs as much as the largest value that the schema allows, and a loop multiplies the cost of its body. Sizes
come from the schema's `maxItems`, `maxProperties` and `maxLength`; without a limit a value may fill a request of 3 MiB.
The cost of a rule below a list or map is multiplied by the greatest number of elements.

The prices, and the places where a size is looked up, are those of cel-go's `checker.Cost` and of Kubernetes'
`CostEstimator`, so that an API server accepts the same definitions. This includes oddities: a number read from the
object has size 0, and a field whose name is a reserved word has no known size when it is written unescaped. The
expression comes from the engine as a protobuf message; macros of two variables (`celmacros.py`) have the prices of
cel-go's own macros.
"""
from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kubectl_runtime.schema.celtypes import Node, escape, properties_of

LIMIT, TOTAL_LIMIT = 10_000_000, 100_000_000
_MOST = (1 << 64) - 1
_REQUEST = 3 << 20
_TRAVERSAL, _REGEX, _NAMED_FORMAT = 0.1, 0.25, 128
_FORMATS = {"duration": (32, 3), "date": (12, 12), "date-time": (32, 21)}
_SCALARS = {"boolean": 4, "integer": 1, "number": 1}

Range = tuple[int, int]
"""The least and the greatest size or cost."""

_UNKNOWN: Range = (0, _MOST)


# --- sizes of a schema ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sized:
    """How large the values of a schema can be: `most` is their greatest size (elements, entries, characters), `least`
    the smallest number of bytes of one value in JSON."""

    kind: str
    most: int = 0
    least: int = 2
    fields: Mapping[str, Sized] | None = None
    element: Sized | None = None


_KEY = Sized("string")


def sized(node: Node, *, root: bool = False) -> Sized | None:
    """The sizes of a schema's values; None if rules cannot see the values."""
    limit, kind = node.get("maxLength"), node.get("type")
    if node.get("x-kubernetes-int-or-string"):
        return Sized("dyn", _REQUEST - 2 if limit is None else max(limit, 0) * 4, 1)
    if root or node.get("x-kubernetes-embedded-resource"):
        kind = "object"
    if kind == "array":
        element = sized(node.get("items") or {})
        return element and _many("array", element, node.get("maxItems"), element.least + 1)
    if kind == "object" and isinstance(extra := node.get("additionalProperties"), Mapping):
        element = sized(extra)
        return element and _many("map", element, node.get("maxProperties"), element.least + 6)
    if kind == "object":
        required, least, fields = set(node.get("required") or ()), 2, {}
        for name, child in properties_of(node, root=root).items():
            if (found := sized(child)) is not None:
                fields[escape(name) or ""] = found
                if name in required and child.get("default") is None:
                    least += len(name.encode()) + found.least + 4
        fields.pop("", None)
        return Sized("object", 0, least, fields)
    if kind == "string":
        return _text(node, limit)
    return Sized(kind, 0, _SCALARS[kind]) if kind in _SCALARS else None


def _many(kind: str, element: Sized, limit: int | None, each: int) -> Sized:
    return Sized(kind, (_REQUEST - 2) // each if limit is None else max(limit, 0), element=element)


def _text(node: Node, limit: int | None) -> Sized:
    form = node.get("format") or ""
    if form in _FORMATS:
        return Sized("timestamp", *_FORMATS[form])
    if limit is not None:
        return Sized("string", max(limit, 0) * (1 if form == "byte" else 4))
    if (choices := node.get("enum")) and form != "byte":
        return Sized("string", max(len(choice.encode()) if isinstance(choice, str) else 0 for choice in choices))
    return Sized("string", _REQUEST - 2)


def most_times(found: Sized) -> int:
    """The maximum number of values of these sizes in one request."""
    return _REQUEST // (found.least + 1)


def elements_below(node: Node) -> int | None:
    """The maximum number of items or map entries in a value; 1 for other types, None without a limit."""
    key = {"array": "maxItems", "object": "maxProperties" if node.get("additionalProperties") else ""}.get(
        node.get("type") or "")
    if not key:
        return 1
    return None if node.get(key) is None else max(node[key], 0)


def excess(what: str, cost: int, limit: int) -> str:
    """The API server's message for a cost above its limit."""
    factor = cost / limit
    shown = "more than 100x" if factor > 100 else f"{factor:f}x" if factor < 1.5 else f"{factor:.1f}x"
    return (f"{what} exceeds budget by factor of {shown} (try simplifying the rule, or adding maxItems, maxProperties, "
            "and maxLength where arrays, maps, and strings are declared)")


def times(left: int, right: int) -> int:
    """The product, capped at the largest unsigned 64-bit integer."""
    return min(left * right, _MOST)


# --- ranges -----------------------------------------------------------------------------------------------------------


def _plus(*parts: Range) -> Range:
    return min(sum(part[0] for part in parts), _MOST), min(sum(part[1] for part in parts), _MOST)


def _by(left: Range, right: Range) -> Range:
    return times(left[0], right[0]), times(left[1], right[1])


def _scaled(size: Range, factor: float) -> Range:
    low, high = (min(math.ceil(float(part) * factor), _MOST) for part in size)
    return low, high


def _union(left: Range, right: Range) -> Range:
    return min(left[0], right[0]), max(left[1], right[1])


# --- the checked expression -------------------------------------------------------------------------------------------


def _message(data: bytes) -> dict[int, list[Any]]:
    """A decoded protobuf message: the values by field number; texts and messages are bytes."""
    found: dict[int, list[Any]] = {}
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        if key & 7 == 0:
            number, at = _varint(data, at)
            found.setdefault(key >> 3, []).append(number)
        else:
            size, at = _varint(data, at) if key & 7 == 2 else (8 if key & 7 == 1 else 4, at)
            found.setdefault(key >> 3, []).append(data[at:at + size])
            at += size
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


_TYPES = {1: "dyn", 6: "list", 7: "map", 9: "struct", 10: "param", 14: "optional"}
_PRIMITIVES = {1: "bool", 2: "int", 3: "int", 4: "double", 5: "string", 6: "bytes"}
_KNOWN = {1: "dyn", 2: "timestamp", 3: "duration"}
_OF_FIXED_SIZE = ("bool", "double", "duration", "int", "timestamp")
_OPAQUE_BY_NAME = {b"kubernetes.Quantity": 1, b"kubernetes.IP": 1, b"kubernetes.CIDR": 1, b"kubernetes.Semver": 1,
                   b"kubernetes.Format": 7}  # the price of comparing two such values


@dataclass(frozen=True, slots=True)
class _Type:
    kind: str
    name: bytes = b""
    element: _Type | None = None


def _type_of(data: bytes) -> _Type:
    message = _message(data)
    [(number, [value, *_])] = list(message.items())[:1] or [(1, [b""])]
    if number == 3:
        return _Type(_PRIMITIVES.get(value, "dyn"))
    if number == 5:
        return _Type(_KNOWN.get(value, "dyn"))
    if number == 9:
        return _Type("struct", value)
    inner = _message(value) if number in (6, 7, 14) else {}
    part = inner.get(2 if number == 14 else 1)
    return _Type(_TYPES.get(number, "other"), element=_type_of(part[0]) if part else None)


class _Expr:
    """A node of an expression. `kind` is the number of the field that is set in the message `Expr`."""

    __slots__ = ("args", "body", "id", "kind", "name", "target")

    def __init__(self, data: bytes) -> None:
        message = _message(data)
        self.id: int = message.get(2, [0])[0]
        self.kind: int = next((number for number in message if 3 <= number <= 9), 0)
        body = self.body = _message(message[self.kind][0]) if self.kind else {}
        self.name, self.target, self.args = "", None, list[_Expr]()
        if self.kind == _CALL:
            self.name = body[2][0].decode()
            self.target = _Expr(body[1][0]) if 1 in body else None
            self.args = [_Expr(part) for part in body.get(3, ())]
        elif self.kind == _IDENT:
            self.name = body.get(1, [b""])[0].decode()
        elif self.kind == _SELECT:
            self.name, self.target = body[2][0].decode(), _Expr(body[1][0])
        elif self.kind == _LIST:
            self.args = [_Expr(part) for part in body.get(1, ())]
        elif self.kind == _LOOP:
            self.args = [_Expr(body[number][0]) for number in (2, 4, 5, 6, 7)]  # range, start, condition, step, result


_CONSTANT, _IDENT, _SELECT, _CALL, _LIST, _STRUCT, _LOOP = range(3, 10)


@dataclass(frozen=True, slots=True)
class _Path:
    """A place below a variable. Paths share their memory as slices do in Go: extending one path can change another path
    of the same origin, and cel-go's estimate depends on this."""

    memory: list[str]
    length: int
    room: int

    def longer(self, name: str) -> _Path:
        if self.length < self.room:
            self.memory[self.length:self.length + 1] = [name]
            return _Path(self.memory, self.length + 1, self.room)
        return _Path([*self.memory[:self.length], name], self.length + 1, max(self.room * 2, 1))

    def parts(self) -> list[str]:
        return self.memory[:self.length]


def _extended(path: _Path | None, name: str) -> _Path:
    return _Path([name], 1, 1) if path is None else path.longer(name)


@dataclass(frozen=True, slots=True)
class _Entry:
    """The sizes of keys and values in a list or map that the expression constructs."""

    kind: str
    key: Range
    value: Range


@dataclass(frozen=True, slots=True)
class _Local:
    path: _Path | None
    size: Range | None
    entry: _Entry | None


@dataclass(frozen=True, slots=True)
class _Argument:
    """An argument of a function."""

    expr: _Expr | None
    path: list[str]
    type: _Type
    size: Range | None


# --- the estimate -----------------------------------------------------------------------------------------------------


def most_cost(serialized: bytes, root: Sized) -> int:
    """The greatest cost of a checked expression (`serialized`, a `CheckedExpr`) for values of the sizes in `root`."""
    return _Estimate(_message(_message(serialized)[2][0]), root).cost_of_all()[1]


class _Estimate:
    """Estimates one expression. Costs are computed in cel-go's order, because steps store sizes for later steps."""

    def __init__(self, checked: dict[int, list[Any]], root: Sized) -> None:
        self._root, self._expr = root, _Expr(checked[4][0])
        entries = [_message(entry) for entry in checked.get(3, ())]
        self._types = {entry[1][0]: _type_of(entry[2][0]) for entry in entries if 2 in entry}
        self._overloads = {entry[1][0]: [name.decode() for name in _message(entry[2][0]).get(3, ())]
                           for entry in map(_message, checked.get(2, ())) if 2 in entry}
        self._paths: dict[int, _Path] = {}
        self._sizes: dict[int, Range] = {}
        self._entries: dict[int, _Entry] = {}
        self._locals: dict[str, list[_Local]] = {}
        self._walked: dict[str, _Expr] = {}  # name from celmacros -> the list or map that its macro walks

    def cost_of_all(self) -> Range:
        return self._cost(self._expr)

    def _cost(self, expr: _Expr) -> Range:
        if expr.kind == _IDENT:
            local = self._local(expr.name)
            path = local.path if local else _Path([expr.name], 1, 1)
            if path is not None:
                self._paths[expr.id] = path
            return 1, 1
        if expr.kind == _SELECT:
            return self._select(expr)
        if expr.kind == _CALL:
            return self._call(expr)
        if expr.kind == _LIST:
            cost = _plus((10, 10), *map(self._cost, expr.args))
            self._entries[expr.id] = _Entry("list", (1, 1), self._joint(expr.args))
            return cost
        if expr.kind == _STRUCT:
            return self._map(expr)
        if expr.kind == _LOOP:
            return self._bound(expr) if self._binds(expr) else self._loop(expr, expr.args[0])
        return 0, 0

    def _select(self, expr: _Expr) -> Range:
        assert expr.target is not None
        cost = self._cost(expr.target)
        if expr.body.get(3, [0])[0]:  # has(…)
            return cost
        if self._type(expr.target).kind in ("map", "struct", "param"):
            cost = _plus(cost, (1, 1))
        self._paths[expr.id] = _extended(self._path(expr.target), expr.name)
        return cost

    def _map(self, expr: _Expr) -> Range:
        entries = [_message(entry) for entry in expr.body.get(2, ())]
        keys, values = ([_Expr(entry[number][0]) for entry in entries if number in entry] for number in (3, 4))
        cost = _plus((30, 30) if 1 not in expr.body else (40, 40), *map(self._cost, (*keys, *values)))
        self._entries[expr.id] = _Entry("map", self._joint(keys), self._joint(values))
        return cost

    def _joint(self, exprs: list[_Expr]) -> Range:
        sizes = [self._size_or_unknown(expr) for expr in exprs] or [(0, 0)]
        return min(size[0] for size in sizes), max(size[1] for size in sizes)

    # loops and bound names

    def _binds(self, expr: _Expr) -> bool:
        condition = expr.args[2]
        return expr.args[0].kind == _LIST and not expr.args[0].args and condition.kind == _CONSTANT and (
            condition.body.get(2) == [0]) and not self._accumulates(expr)

    @staticmethod
    def _accumulates(expr: _Expr) -> bool:
        return bool(expr.body[3][0] == b"__result__")

    def _loop(self, expr: _Expr, walked: _Expr, *, by_key: bool = False) -> Range:
        _, start, condition, step, result = expr.args
        if walked.name == "kubernetes__keys" and walked.args[0].name in self._walked:
            return self._loop(expr, self._walked[walked.args[0].name], by_key=True)
        variable, accumulator = (expr.body[number][0].decode() for number in (1, 3))
        cost = _plus(self._cost(walked), self._cost(start))
        self._push(accumulator, start)
        self._push_each(variable, walked, "key" if by_key else "")
        each = _plus(self._cost(condition), self._cost(step))
        self._locals[variable].pop()
        cost = _plus(cost, self._cost(result))
        self._locals[accumulator].pop()
        count = self._size_or_unknown(walked)
        if start.kind == _CONSTANT:
            self._keep(expr, self._size(start))
        elif start.kind in (_LIST, _STRUCT):
            self._keep(expr, count, self._entry(step))
        return _plus(cost, _by(count, each))

    def _bound(self, expr: _Expr) -> Range:
        name, (_, value, _, _, result) = expr.body[3][0].decode(), expr.args
        if name == "oldSelf" and value.name == "_?_:_" and value.args[0].name == "oldSelf__given":
            return self._cost(result)
        if name.startswith("kubernetes__"):
            return self._expanded(expr, name, value, result)
        if value.name == "_[_]" and value.args[0].name in self._walked:
            self._push_each(name, self._walked[value.args[0].name], "value")
            cost = self._cost(result)
        else:
            cost = _plus((10, 10), self._cost(value))
            self._push(name, value)
            cost = _plus(cost, self._cost(result))
        self._locals[name].pop()
        self._keep(expr, self._size(result), self._entry(result))
        return cost

    def _expanded(self, expr: _Expr, name: str, value: _Expr, result: _Expr) -> Range:
        """The cost of a macro that `celmacros` rewrote."""
        if value.name == "kubernetes__validate":
            text = value.args[1]
            cost = _plus(self._cost(value.args[0]), self._cost(text))
            return _plus(cost, _scaled(_scaled(self._size_or_unknown(text), _TRAVERSAL), _NAMED_FORMAT * _REGEX))
        if result.name == "_?_:_" and result.args[0].name == "kubernetes__isFormat":
            return _plus((1, 1), self._cost(value))
        keys = value.args[0] if value.kind == _LOOP else value
        if keys.name == "kubernetes__keys":
            return self._transformed(expr, value, result, self._walked[keys.args[0].name])
        self._walked[name] = value
        cost = self._cost(result)
        self._keep(expr, self._size(result), self._entry(result))
        return cost

    def _transformed(self, expr: _Expr, kept: _Expr, result: _Expr, walked: _Expr) -> Range:
        made = next(part for part in (result, *result.args) if part.kind == _LOOP)
        key, piece = made.body[1][0].decode(), made.args[3].args[1].args[0]
        start, insert = {"kubernetes__zip": (30, 3), "kubernetes__merge": (30, 2)}.get(result.name, (10, 12))
        cost = _plus(self._cost(walked), (start, start))
        self._push_each(key, walked, "key")
        test = self._cost(kept.args[3].args[0]) if kept.kind == _LOOP else None
        each = _plus(self._cost(piece), (insert, insert))
        entry = _Entry("list", (1, 1), _union((0, 0), self._size_or_unknown(piece)))
        self._locals[key].pop()
        if test is not None:
            each = _plus(test, _union(each, (1, 1)))
        count = self._size_or_unknown(walked)
        self._keep(expr, count, entry if start == 10 else None)
        return _plus(cost, (1, 1), _by(count, each))

    def _local(self, name: str) -> _Local | None:
        known = self._locals.get(name)
        return known[-1] if known else None

    def _push(self, name: str, value: _Expr) -> None:
        self._locals.setdefault(name, []).append(_Local(self._path(value), self._size(value), self._entry(value)))

    def _push_each(self, name: str, walked: _Expr, part: str) -> None:
        """Bind a variable for each element; `part` is "key" or "value" in a two-variable macro, else empty."""
        entry = self._entry(walked)
        is_list = (entry.kind if entry else self._type(walked).kind) == "list"
        is_value = part == "value" or (is_list and not part)
        below = ("@items" if is_list else "@values") if is_value else "@indices" if is_list else "@keys"
        size = None if entry is None else entry.value if is_value else entry.key
        self._locals.setdefault(name, []).append(_Local(_extended(self._path(walked), below), size, None))

    # types, paths and sizes

    def _type(self, expr: _Expr) -> _Type:
        found = self._types.get(expr.id, _Type("dyn"))
        if found.kind == "dyn" and (path := self._path(expr)) and path.parts()[0] in ("self", "oldSelf"):
            node = self._node(path.parts())  # the engine has no type for lists of lists inside an object
            kind = {"array": "list", "map": "map", "object": "struct"}.get(node.kind if node else "", "dyn")
            return _Type(kind, element=_Type("dyn") if kind != "dyn" else None)
        return found

    def _path(self, expr: _Expr) -> _Path | None:
        if expr.kind == _IDENT and (local := self._local(expr.name)):
            return local.path
        return self._paths.get(expr.id)

    def _node(self, parts: list[str]) -> Sized | None:
        node: Sized | None = self._root
        for name in parts[1:]:
            if node is None:
                return None
            if name in ("@items", "@values"):
                node = node.element
            elif name == "@keys":
                node = _KEY if node.kind == "map" else None
            else:
                node = (node.fields or {}).get(name)
        return node

    def _size_at(self, parts: list[str]) -> Range | None:
        node = self._node(parts) if parts else None
        return None if node is None else (0, node.most)

    def _size(self, expr: _Expr) -> Range | None:
        if (known := self._sizes.get(expr.id)) is not None:
            return known
        if expr.kind == _CONSTANT:
            [(number, [value, *_])] = list(expr.body.items())[:1] or [(1, [0])]
            count = len(value.decode()) if number == 6 else len(value) if number == 7 else 1
            return count, count
        if expr.kind == _LIST or (expr.kind == _STRUCT and 1 not in expr.body):
            count = len(expr.args) if expr.kind == _LIST else len(expr.body.get(2, ()))
            return count, count
        path = self._path(expr)
        if path and (found := self._size_at(path.parts())) is not None:
            self._sizes[expr.id] = found
            return found
        kind = self._types.get(expr.id, _Type("dyn"))
        if kind.kind == "optional" and kind.element is not None:
            kind = kind.element
        if kind.kind in _OF_FIXED_SIZE:
            return 1, 1
        local = self._local(expr.name) if expr.kind == _IDENT else None
        return local.size if local else None

    def _size_or_unknown(self, expr: _Expr) -> Range:
        found = self._size(expr)
        return _UNKNOWN if found is None else found

    def _entry(self, expr: _Expr) -> _Entry | None:
        if expr.id in self._entries:
            return self._entries[expr.id]
        local = self._local(expr.name) if expr.kind == _IDENT else None
        return local.entry if local else None

    def _joint_entry(self, left: _Expr, right: _Expr) -> _Entry | None:
        one, other = self._entry(left), self._entry(right)
        return one and other and _Entry(one.kind, _union(one.key, other.key), _union(one.value, other.value))

    def _keep(self, expr: _Expr, size: Range | None, entry: _Entry | None = None) -> None:
        if size is not None:
            self._sizes[expr.id] = size
        if entry is not None:
            self._entries[expr.id] = entry

    # calls

    def _call(self, expr: _Expr) -> Range:
        if expr.name == "dyn":
            cost = self._cost(expr.args[0])
            self._keep(expr, self._size(expr.args[0]), self._entry(expr.args[0]))
            return _plus((1, 1), cost)
        costs, arguments = [], []
        for part in expr.args:
            costs.append(self._cost(part))
            arguments.append(self._argument(part))
        if not (overloads := self._overloads.get(expr.id)):
            return 0, 0
        of_target, target = (0, 0), None
        if expr.target is not None:
            of_target, target = self._cost(expr.target), self._argument(expr.target)
        total: Range = (_MOST, 0)
        size: Range | None = None
        for overload in overloads:
            cost, result = self._function(expr, overload, target, arguments, costs)
            total = _union(total, cost)
            if result is not None:
                size = result if size is None else _union(size, result)
            if overload in ("index_list", "index_map") and expr.args:
                entry = self._entry(expr.args[0])
                size = entry.value if entry else None
                self._paths[expr.id] = _extended(self._path(expr.args[0]),
                                                 "@items" if overload == "index_list" else "@values")
            if size is None:
                size = self._size(expr)
        self._keep(expr, size)
        return _plus(of_target, total)

    def _argument(self, expr: _Expr) -> _Argument:
        path = self._path(expr)
        parts = path.parts() if path else []
        return _Argument(expr, [] if parts[:1] in (["__result__"], ["@result"]) else parts, self._type(expr),
                         self._size(expr))

    def _function(self, expr: _Expr, overload: str, target: _Argument | None, arguments: list[_Argument],
                  costs: list[Range]) -> tuple[Range, Range | None]:
        """The cost of a call with its arguments, and the size of its result, if the function determines that size."""
        given = [self._given(argument) for argument in arguments]
        of_library = self._library_call(expr, target, arguments)
        if of_library is not None:
            return _plus(of_library[0], *costs), of_library[1]
        if overload in ("logical_or", "logical_and"):
            return (costs[0][0], _plus(*costs)[1]), None
        if overload == "conditional":
            if entry := self._joint_entry(*expr.args[1:3]):
                self._entries[expr.id] = entry
            return _plus(costs[0], _union(costs[1], costs[2])), _union(given[1], given[2])
        if overload in ("add_string", "add_bytes", "add_list"):
            size = _plus(*given)
            if entry := self._joint_entry(*expr.args):
                self._entries[expr.id] = entry
            return _plus((1, 1) if overload == "add_list" else _scaled(size, _TRAVERSAL), *costs), size
        return _plus(self._standard_call(overload, target, given), *costs), self._converted(overload, given)

    def _standard_call(self, overload: str, target: _Argument | None, given: list[Range]) -> Range:
        if overload in ("string_to_bytes", "bytes_to_string", "strings_quote", "starts_with_string",
                        "ends_with_string"):
            return _scaled(given[0], _TRAVERSAL)
        if overload == "in_list":
            return _scaled(given[1], 1)
        if target is not None and overload == "string_format":
            return _scaled(self._given(target), _TRAVERSAL)
        if overload == "matches_string" and target is not None:
            return _matching(self._given(target), given[0])
        if overload == "contains_string" and target is not None:
            return _by(_scaled(self._given(target), _TRAVERSAL), _scaled(given[0], _TRAVERSAL))
        if overload in _COMPARISONS:
            most = min(given[0][1], given[1][1])
            return _scaled((min(most, 1), most), _TRAVERSAL)
        return 1, 1

    @staticmethod
    def _converted(overload: str, given: list[Range]) -> Range | None:
        """The size of the result of converting text to bytes or bytes to text, or of quoting text; else None."""
        if overload == "string_to_bytes":
            return given[0][0], given[0][1] * 4 & _MOST
        if overload == "bytes_to_string":
            return given[0][0] // 4, given[0][1]
        return (given[0][0] + 2, given[0][1] * 2 + 2 & _MOST) if overload == "strings_quote" else None

    def _given(self, argument: _Argument) -> Range:
        return _UNKNOWN if argument.size is None else argument.size

    def _looked_up(self, argument: _Argument) -> Range:
        """The size of an argument of a Kubernetes function: its own size, or the size of the field that it reads."""
        return argument.size or self._size_at(argument.path) or _UNKNOWN

    def _element(self, argument: _Argument) -> _Argument | None:
        if argument.type.element is None:
            return None
        path = [*argument.path, "@items"] if argument.path else []
        kind = argument.type.element
        if kind.kind == "dyn" and path and (node := self._node(path)) is not None:
            kind = _Type(node.kind)
        return _Argument(None, path, kind, None)

    def _library_call(self, expr: _Expr, target: _Argument | None,
                      arguments: list[_Argument]) -> tuple[Range, Range | None] | None:
        """The cost of a function of Kubernetes or of cel-go's extensions; None for other functions."""
        name, sizes = expr.name, [self._looked_up(argument) for argument in arguments]
        if name == "_==_":
            return self._equality(arguments)
        if name in _OF_SETS:
            return _plus(_scaled(_by(*sizes), 2 if name == "sets.equivalent" else 1), (1, 1)), None
        if name in ("url", "cidr", "isIP", "isCIDR", "ip", "ip.isCanonical", "quantity", "isQuantity", "semver",
                    "isSemver") and sizes:
            if name == "ip" and arguments[0].type.name == b"kubernetes.CIDR":
                return (1, 1), None
            return _scaled(sizes[0], _TRAVERSAL * (2 if name == "ip.isCanonical" else 1)), (
                sizes[0] if name == "url" else None)
        if target is None:
            return None
        if name in ("ip", *_CHEAP):
            return (1, 1), None
        return self._text_call(name, target, arguments, sizes)

    def _text_call(self, name: str, target: _Argument, arguments: list[_Argument],
                   sizes: list[Range]) -> tuple[Range, Range | None] | None:
        own = self._looked_up(target)
        if name in _WALKS:
            return self._walk(target, own), None
        if name in ("lowerAscii", "upperAscii", "substring", "trim"):
            return _scaled(own, _TRAVERSAL), own
        if name == "replace" and len(sizes) >= 2:
            return _scaled(own, 2 * _TRAVERSAL), _replaced(own, sizes[0], sizes[1])
        if name == "split":
            limit = arguments[1].expr if len(arguments) > 1 else None
            most = limit.body.get(3, [own[1]])[0] if limit is not None and limit.kind == _CONSTANT else own[1]
            return _scaled(own, 2 * _TRAVERSAL), (0, most)
        if name == "join":
            size = self._joined(target, own, sizes)
            return _scaled(size, _TRAVERSAL), size
        if name in ("find", "findAll") and sizes:
            return _matching(own, sizes[0]), (0, own[1])
        return self._containment(name, arguments, sizes)

    def _walk(self, target: _Argument, own: Range) -> Range:
        element = self._element(target)
        if element is None:
            return _scaled(own, _TRAVERSAL)
        each: Range = (1, 1)
        if element.type.kind in ("string", "bytes"):
            each = _plus(each, _scaled(self._looked_up(element), _TRAVERSAL))
        return _by(own, each)

    def _joined(self, target: _Argument, own: Range, sizes: list[Range]) -> Range:
        element = self._element(target)
        size = _by(own, self._looked_up(element)) if element is not None else (0, 0)
        return _plus(size, _by(sizes[0], (max(own[0] - 1, 0), max(own[1] - 1, 0)))) if sizes else size

    @staticmethod
    def _containment(name: str, arguments: list[_Argument], sizes: list[Range]) -> tuple[Range, None] | None:
        if name not in ("containsIP", "containsCIDR") or not sizes:
            return None
        cost = _scaled((8, 32), _TRAVERSAL)
        if name == "containsCIDR":
            cost = _plus(cost, _scaled((4, 16), _TRAVERSAL), (1, 1))
        return _plus(cost, _scaled(sizes[0], _TRAVERSAL)) if arguments[0].type.kind == "string" else cost, None

    @staticmethod
    def _equality(arguments: list[_Argument]) -> tuple[Range, None] | None:
        left, right = (argument.type.name for argument in arguments)
        if left != right:
            return None
        if left == b"kubernetes.URL":
            size = arguments[1].size or (1, 1)
            return _scaled((1, size[1]), _TRAVERSAL), None
        return ((1, _OPAQUE_BY_NAME[left]), None) if left in _OPAQUE_BY_NAME else None


_COMPARISONS = {f"{name}_{kind}" for name in ("less", "greater", "less_equals", "greater_equals")
                for kind in ("string", "bytes")} | {"equals", "not_equals"}
_OF_SETS = ("sets.contains", "sets.intersects", "sets.equivalent")
_WALKS = ("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf")
_CHEAP = frozenset({
    "masked", "prefixLength", "family", "isUnspecified", "isLoopback", "isLinkLocalMulticast", "isLinkLocalUnicast",
    "isGlobalUnicast", "sign", "asInteger", "isInteger", "asApproximateFloat", "isGreaterThan", "isLessThan",
    "compareTo", "add", "sub", "major", "minor", "patch", "getScheme", "getHostname", "getHost", "getPort",
    "getEscapedPath", "getQuery"})


def _matching(text: Range, pattern: Range) -> Range:
    return _by(_scaled(_plus(text, (1, 1)), _TRAVERSAL), _scaled(pattern, _REGEX))


def _replaced(text: Range, old: Range, new: Range) -> Range:
    """The size of a text with all `old` replaced by `new`."""
    def bound(size: int, parts: int, kept: bool) -> tuple[int, int]:
        """(the number of replacements, the size of the text that remains)."""
        if parts == 0:
            return min(size + 1, _MOST), size
        return (0, size) if kept else (math.ceil(float(size) / float(parts)), 0)

    most, stays = bound(text[1], old[0], new[1] <= old[0])
    least, remains = bound(text[0], old[1], old[1] <= new[0])
    return _plus(_by((least, most), new), (remains, stays))
