"""Decodes request bodies (media types, JSON, YAML, repeated keys, the kind) and compresses answers.

Repeated and unknown fields become texts for warnings and refusals (``fieldValidation`` Warn and Strict). The texts come
in the order in which the real server's decoder reports them. That decoder reads the JSON of a built-in kind once, so
repeated and unknown fields appear in body order; for a custom resource the repeated fields come first. YAML and the
result of a patch are first converted to JSON with sorted keys. All repeated keys of a YAML body share one refusal text.

msgspec decodes valid bodies. For an invalid body a scanner finds the message of the real server's decoder. The scanner
has an explicit stack, so that a deeply nested body gets an answer instead of a recursion error.

Answers are compressed as in kube-apiserver (`responsewriters.SerializeObject`): above 128 KiB, for clients that accept
gzip. Watches and plain text such as logs are never compressed.
"""
from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import msgspec

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import go_quoted
from kubectl_runtime.apiserver.kinds import typed
from kubectl_runtime.apiserver.kinds.typed.protobuf import UnknownTypeError, decode_protobuf
from kubectl_runtime.apiserver.storage import ServedResource
from kubectl_runtime.apiserver.wire import HttpRequest, HttpResponse, Object
from kubectl_runtime.manifests.documents import decode_json
from kubectl_runtime.manifests.scalars import go_text

MAX_DEPTH = 10_000

_NUMBER = re.compile(rb"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_STRING = re.compile(rb'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"')
_SPACE = b" \t\r\n"
END = "unexpected end of JSON input"


def shown(byte: int) -> str:
    """A byte as the real decoder's messages quote it."""
    if byte == 0x27:
        return "'\\''"
    if byte == 0x22:
        return "'\"'"
    if 0x20 <= byte < 0x7F:
        return f"'{chr(byte)}'"
    return "'" + {9: "\\t", 10: "\\n", 13: "\\r"}.get(byte, f"\\x{byte:02x}" if byte < 0x80 else chr(byte)) + "'"


class _Problem(Exception):
    """The text stops being valid JSON at this point; the argument is the reason."""


def syntax_error(data: bytes) -> str:
    """The error in a JSON text; "" if the text is well-formed."""
    try:
        _Scanner(data).run()
    except _Problem as problem:
        return str(problem)
    return ""


class _Scanner:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.stack: list[int] = []  # the closing brackets that must follow

    def run(self) -> None:
        self._value("looking for beginning of value")
        while self.stack:
            self._after_value()
        self._space()
        if self.at < len(self.data):
            raise self._unexpected("after top-level value")

    def _space(self) -> int:
        """Skip white space. Returns the next byte, -1 at the end."""
        while self.at < len(self.data) and self.data[self.at] in _SPACE:
            self.at += 1
        return self.data[self.at] if self.at < len(self.data) else -1

    def _unexpected(self, where: str) -> _Problem:
        if self.at >= len(self.data):
            return _Problem(END)
        return _Problem(f"invalid character {shown(self.data[self.at])} {where}")

    def _value(self, where: str) -> None:
        """Read the start of a value: the brackets and keys before its first scalar, and this scalar.

        If an empty array or object comes before any scalar, read up to its closing bracket.
        """
        byte = self._space()
        while byte in (0x7B, 0x5B):
            closing = byte + 2
            self._open(closing)
            if self._space() == closing:
                self._close()
                return
            if closing == 0x7D:
                self._key("looking for beginning of object key string")
            where = "looking for beginning of value"
            byte = self._space()
        if byte == 0x22:
            self._string()
        elif byte == 0x2D or 0x30 <= byte <= 0x39:
            self._number()
        else:
            self._literal(where)

    def _open(self, closing: int) -> None:
        self.stack.append(closing)
        if len(self.stack) > MAX_DEPTH:
            raise self._unexpected("exceeded max depth")
        self.at += 1

    def _close(self) -> None:
        self.stack.pop()
        self.at += 1

    def _after_value(self) -> None:
        """Read what follows a value: a comma and the next value, or the innermost closing bracket."""
        closing = self.stack[-1]
        byte = self._space()
        if byte == closing:
            self._close()
        elif byte != 0x2C:
            raise self._unexpected("after object key:value pair" if closing == 0x7D else "after array element")
        else:
            self.at += 1
            if closing == 0x7D:
                self._space()
                self._key("looking for beginning of object key string")
            self._value("looking for beginning of value")

    def _key(self, where: str) -> None:
        if self._space() != 0x22:
            raise self._unexpected(where)
        self._string()
        if self._space() != 0x3A:
            raise self._unexpected("after object key")
        self.at += 1

    def _string(self) -> None:
        match = _STRING.match(self.data, self.at)
        if match:
            self.at = match.end()
            return
        self.at += 1
        while self.at < len(self.data):
            byte = self.data[self.at]
            if byte < 0x20:
                raise self._unexpected("in string literal")
            if byte == 0x5C:
                self.at += 1
                if self.at < len(self.data) and self.data[self.at] not in b'"\\/bfnrtu':
                    raise self._unexpected("in string escape code")
            self.at += 1
        raise _Problem(END)

    def _number(self) -> None:
        match = _NUMBER.match(self.data, self.at)
        if match is None:
            self.at += 1
            raise self._unexpected("in numeric literal")
        self.at = match.end()

    def _literal(self, where: str) -> None:
        for word in (b"true", b"false", b"null"):
            if self.data[self.at:self.at + 1] != word[:1]:
                continue
            for offset, expected in enumerate(word):
                if self.data[self.at:self.at + 1] != bytes([expected]):
                    raise self._unexpected(f"in literal {word.decode()} (expecting {shown(expected)})" if offset
                                           else where)
                self.at += 1
            return
        raise self._unexpected(where)


_YAML = "yaml: unmarshal errors:\n  "
_PART = re.compile(r"\[(\d+)\]|([^.\[\]]+)")

Trace = tuple[tuple[str, bool], ...]


@dataclass(frozen=True, slots=True)
class Keys:
    """The information about a body's keys that field validation needs; empty if no key is repeated.

    `repeated` are the texts about repeated keys. `trace` lists the paths of all keys in body order, each with a flag:
    whether the key is a repetition. `ordered` is true if unknown fields are found in body order.
    """

    repeated: tuple[str, ...] = ()
    trace: Trace = ()
    ordered: bool = True

    def problems(self, unknown: list[str], *, mixed: bool = False) -> list[str]:
        """The texts about repeated keys and unknown fields. With `mixed` both kinds of text come in body order."""
        if mixed and self.trace:
            return list(_mixed(self.trace, frozenset(unknown)))
        if not self.ordered:
            unknown = sorted(unknown, key=_by_parts)
        return [*self.repeated, *map(_unknown, unknown)]


NO_KEYS = Keys()
SORTED_KEYS = Keys(ordered=False)


def json_keys(body: bytes) -> Keys:
    """The keys of a JSON text that has repeated keys."""
    trace = tuple(_trace(body))
    return Keys(tuple(dict.fromkeys(_duplicate(path) for path, again in trace if again)), trace)


def yaml_keys(lines: list[str]) -> Keys:
    """The keys of a YAML text; `lines` are the messages about its repeated keys."""
    return Keys((_YAML + "\n  ".join(lines),), ordered=False) if lines else SORTED_KEYS


def operation_keys(operations: list[Any], known: Iterable[str], keys: Keys) -> Keys:
    """The keys of a JSON patch. Keys of an operation that are not `known` are reported as unknown fields."""
    unknown = [f"[{index}].{key}" for index, operation in enumerate(operations) for key in operation or ()
               if key not in known]
    return Keys(tuple(f"json patch {text}" for text in keys.problems(unknown, mixed=True)), ordered=False)


def warning_texts(problems: list[str]) -> list[str]:
    """The warnings for problems; a text about YAML becomes one warning per line."""
    return [line.strip() for text in problems for line in text.removeprefix(_YAML).split("\n")]


def _unknown(path: str) -> str:
    return f"unknown field {go_quoted(path)}"


def _duplicate(path: str) -> str:
    return f"duplicate field {go_quoted(path)}"


def _mixed(trace: Trace, unknown: frozenset[str]) -> Iterator[str]:
    skipped = ""  # the unknown field that is being read: its value is skipped
    for path, again in trace:
        if skipped and path.startswith((f"{skipped}.", f"{skipped}[")):
            continue
        skipped = path if path in unknown else ""
        if not skipped and again:
            yield _duplicate(path)
        elif skipped and not again:
            yield _unknown(path)


def _by_parts(path: str) -> list[tuple[bool, int, str]]:
    """A sort key that orders paths like the decoder: list items by index, fields by name."""
    return [(not name, int(index or 0), name) for index, name in _PART.findall(path)]


class _Pairs(list[tuple[str, Any]]):
    """An object's members in order, as a type distinct from an array."""


def _trace(body: bytes) -> Iterator[tuple[str, bool]]:
    def walk(node: Any, path: str) -> Iterator[tuple[str, bool]]:
        if isinstance(node, _Pairs):
            seen = set()
            for key, value in node:
                at = f"{path}.{key}" if path else key
                yield at, key in seen
                seen.add(key)
                yield from walk(value, at)
        elif isinstance(node, list):
            for index, value in enumerate(node):
                yield from walk(value, f"{path}[{index}]")

    try:
        yield from walk(json.loads(body, object_pairs_hook=_Pairs), "")
    except (ValueError, RecursionError):
        return


MAX_BODY = 3 << 20
JSON, YAML, PROTOBUF = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"
MEDIA_TYPES = (JSON, YAML, PROTOBUF)

_decode = msgspec.json.decode
_encode = msgspec.json.encode

_GO_TYPES = {list: "array", str: "string", bool: "bool", int: "number", float: "number"}
_GO_TYPE_META = r'struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }'


def content_type(request: HttpRequest) -> str:
    """The media type of the body without parameters; "" if the client sent none."""
    return request.header("content-type").partition(";")[0].strip().lower()


def check_readable(request: HttpRequest) -> None:
    """Raise a 413 for a body that is too large, or a 500 for a body that could not be read completely.

    The 500 has no reason, since the real server has no specific Status for a read error.
    """
    if request.broken_body:
        raise errors.bare_500(request.broken_body)
    if len(request.body) > MAX_BODY:
        raise errors.too_large(MAX_BODY)


def parse(request: HttpRequest) -> tuple[Any, Keys]:
    """Decode the body according to its Content-Type. Returns the value and its keys.

    Raises ValueError with the decoder's error, and the 415 for an unsupported media type. Protobuf is read for built-in
    kinds; custom resources have no protobuf form.
    """
    media = _media_type(request)
    if media == PROTOBUF:
        try:
            return decode_protobuf(request.body), NO_KEYS
        except UnknownTypeError:
            raise errors.unsupported_media_type((JSON, YAML)) from None
    if media == YAML:
        return parse_yaml(request.body)
    if media != JSON:
        raise errors.unsupported_media_type(MEDIA_TYPES)
    try:
        return parse_json(request.body)
    except ValueError as error:
        raise ValueError(f"couldn't get version/kind; json parse error: {error}") from None


def _media_type(request: HttpRequest) -> str:
    """The media type of an object, JSON if the client sent none; "" if the header is malformed."""
    header = request.header("content-type")
    if not header:
        return JSON
    parameters = header.split(";")[1:]
    if parameters and not parameters[-1].strip():
        del parameters[-1]  # the real server accepts one trailing semicolon
    malformed = any("=" not in text for text in parameters)
    return "" if malformed else content_type(request)


def parse_yaml(body: bytes) -> tuple[Any, Keys]:
    """Decode the first document of a YAML text. Raises ValueError with the real decoder's message."""
    from kubectl_runtime.manifests.yaml_text import decode_yaml

    duplicates: list[str] = []
    value = decode_yaml(body, duplicates=duplicates)
    if isinstance(value, dict | list):
        write_numbers(value)  # the real server turns YAML into JSON first
    return value, yaml_keys(duplicates)


def write_numbers(value: Any) -> None:
    """Convert the numbers in a dict or list to the values that Go's JSON encoder writes.

    1.0 becomes 1, and an integer of more than 64 bits becomes a float (2**70 becomes 1.1805916207174113e+21).
    """
    pending = [value]
    while pending:
        part = pending.pop()
        for key, item in part.items() if isinstance(part, dict) else enumerate(part):
            if isinstance(item, dict | list):
                pending.append(item)
            elif isinstance(item, float) or (type(item) is int and not -(1 << 63) <= item < 1 << 63):
                part[key] = _written(item)


def _written(number: float) -> float:
    try:
        shown = float(number)
    except OverflowError:
        return number
    return int(Decimal(repr(shown))) if shown.is_integer() and abs(shown) < 1e21 else shown


def parse_json(body: bytes) -> tuple[Any, Keys]:
    """Decode JSON. Raises ValueError with the real decoder's message."""
    try:
        value = _decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        try:
            value = _decode_leniently(body)
        except (ValueError, RecursionError):
            too_deep = "exceeded max depth" if isinstance(error, RecursionError) else str(error)
            raise ValueError(syntax_error(body) or too_deep) from None
    return value, json_keys(body) if may_repeat_keys(body, value) else NO_KEYS


def may_repeat_keys(body: bytes, value: Any) -> bool:
    """Whether a JSON text may have repeated keys; `value` is the decoded text.

    Decoding keeps each key once, so the encoded `value` has fewer quotation marks than a text with repeated keys.
    """
    return body.count(b'"') != _encode(value).count(b'"')


def _decode_leniently(body: bytes) -> Any:
    """Decode JSON that the real decoder accepts, unlike msgspec: invalid UTF-8 and lone surrogates become U+FFFD."""
    text = go_text(body).strip(" \t\r\n")
    value, end = decode_json(text)
    if end < len(text):
        raise ValueError("text after the value")
    return value


def summary(data: bytes) -> str:
    """The start of a body for an error message."""
    if not data:
        return "<empty>"
    text = data[:30]
    more = " ..." if len(data) > 30 else ""
    return (text.decode("utf-8", "replace") if data[:1] == b"{" else text.hex()) + more


def _unrecognized(resource_type: ServedResource, why: str, body: bytes) -> errors.StatusError:
    return errors.bad_request(f"the object provided is unrecognized (must be of type {resource_type.kind}): {why} "
                              f"({summary(body)})")


def read_object(request: HttpRequest, resource_type: ServedResource) -> tuple[Object, Keys]:
    """The object in the body and its keys. Raises the real server's refusals, also for a wrong kind or version."""
    try:
        value, keys = parse(request)
    except ValueError as error:
        raise _unrecognized(resource_type, str(error), request.body) from None
    if value is None:
        value = {}  # the real decoder reads null as an empty object
    if problem := type_meta_problem(value):
        raise _unrecognized(resource_type, f"couldn't get version/kind; json parse error: {problem}", request.body)
    check_kind(value, resource_type, request.body)
    return value, keys


def type_meta_problem(value: Any) -> str:
    """Why the real decoder cannot read apiVersion and kind of a decoded body; "" if it can."""
    if not isinstance(value, dict):
        go_type = _GO_TYPES.get(type(value), "object")
        return f"json: cannot unmarshal {go_type} into Go value of type {_GO_TYPE_META}"
    for key in ("apiVersion", "kind"):
        if not isinstance(value.get(key), str | None):
            go_type = _GO_TYPES.get(type(value[key]), "object")
            return f"json: cannot unmarshal {go_type} into Go struct field .{key} of type string"
    return ""


def check_kind(value: Object, resource_type: ServedResource, body: bytes) -> None:
    """Check that apiVersion and kind match the path. Built-in kinds may omit them, custom resources may not."""
    api_version, kind = value.get("apiVersion") or "", value.get("kind") or ""
    if resource_type.is_custom:
        if not kind:
            text = body.decode("utf-8", "replace")
            raise _unrecognized(resource_type, f"Object 'Kind' is missing in '{text}'", body)
        if api_version != resource_type.api_version:
            raise errors.bad_request(f"the API version in the data ({api_version}) does not match the expected API "
                                     f"version ({resource_type.api_version})")
        if kind != resource_type.kind:
            name = (value.get("metadata") or {}).get("name", "") if isinstance(value.get("metadata"), dict) else ""
            raise errors.invalid(resource_type.group, kind, name, [
                errors.invalid_value("kind", kind, f"must be {resource_type.kind}")])
        return
    api_version, kind = api_version or resource_type.api_version, kind or resource_type.kind
    if kind == resource_type.kind and api_version == resource_type.api_version:
        value["apiVersion"], value["kind"] = api_version, kind
        return
    version = api_version.rpartition("/")[2]
    if kind == resource_type.kind:
        why = (f'no kind "{kind}" is registered for version "{api_version}" in scheme '
               '"k8s.io/kubernetes/pkg/api/legacyscheme/scheme.go:30"')
    else:
        why = (f"converting ({version}.{kind}) to "
               f"({resource_type.group.partition('.')[0] or 'core'}.{resource_type.kind}): unknown conversion")
    raise errors.bad_request(f'{kind} in version "{version}" cannot be handled as a {resource_type.kind}: {why}')


def shape(value: Any, type_name: str) -> tuple[Object, list[str]]:
    """Convert a decoded body to the shape of a typed object. Returns the object and the paths of its unknown fields.

    `type_name` is a type of `kinds.typed` (``autoscaling.v1.Scale``). A null body becomes an empty object. Raises a 400
    if the body does not fit the type.
    """
    version, kind = type_name.split(".")[-2:]
    if value is not None and not isinstance(value, dict):
        raise errors.bad_request(f"the object provided is unrecognized (must be of type {kind}): json: cannot "
                                 f"unmarshal {_GO_TYPES[type(value)]} into Go value of type {version}.{kind}")
    obj: Object = value or {}
    try:
        unknown = typed.decode(type_name, obj)
    except errors.BodyDecodeError as error:
        raise errors.bad_request(f'{kind} in version "{version}" cannot be handled as a {kind}: {error}') from None
    return obj, unknown


def read_shape(request: HttpRequest, type_name: str) -> tuple[Object, list[str], Keys]:
    """`shape` applied to a request's body; the third result is the body's keys."""
    kind = type_name.rpartition(".")[2]
    try:
        value, keys = parse(request)
    except ValueError as error:
        raise errors.bad_request(f"the object provided is unrecognized (must be of type {kind}): {error} "
                                 f"({summary(request.body)})") from None
    return *shape(value, type_name), keys


COMPRESS_ABOVE = 128 << 10
"""Size in bytes above which a body is compressed. The value is read for each answer, so that tests can set it to 0."""
_LEVEL = 1  # kube-apiserver's level: fast rather than small


def compressed(request: HttpRequest, response: HttpResponse) -> HttpResponse:
    """The answer to send: `response`, compressed if the real server would compress it."""
    if response.stream is not None or len(response.body) <= COMPRESS_ABOVE or not _accepts_gzip(request):
        return response
    if response.header("content-encoding") or (response.header("content-type") or "").startswith("text/"):
        return response
    headers = [*response.headers, ("Content-Encoding", "gzip"), ("Vary", "Accept-Encoding")]
    return replace(response, headers=headers, body=gzip.compress(response.body, _LEVEL, mtime=0))


def _accepts_gzip(request: HttpRequest) -> bool:
    """Whether the client accepts gzip; like the real server, this ignores gzip with a weight (`gzip;q=1`)."""
    return any(token.strip() == "gzip" for token in request.header("accept-encoding").split(","))
