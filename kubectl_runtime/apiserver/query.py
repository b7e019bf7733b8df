"""Request options with the real server's checks: query, DeleteOptions, continue tokens, selectors.

DeleteOptions come from the request body if there is one; the query is then ignored. Continue tokens are opaque to
clients. They are JSON in URL-safe base64 as in the real server, so that errors are the same. A token holds the
resourceVersion of the first page and the first key of the next page. A 410 contains a token with a resourceVersion
below 0, which continues the list with the current objects.

`parse_labels(text)` and `parse_fields(text)` return a selector with `.matches(…)`, or raise a 400. An empty text
selects everything. `parse_shards(text)` reads a shardSelector, or raises a 500 without a reason. Numbers have 64 bits
and are decimal without spaces. Durations are in Go's notation (``1h30m``, ``1.5s``).
"""
from __future__ import annotations

import base64
import json
import posixpath
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from kubectl_runtime.apiserver import encoding, errors
from kubectl_runtime.apiserver.encoding import syntax_error
from kubectl_runtime.apiserver.errors import Cause, StatusError, bad_request, bare_500, expired, go_quoted, go_value
from kubectl_runtime.apiserver.kinds import typed
from kubectl_runtime.apiserver.names import label_value_errors, qualified_name_errors
from kubectl_runtime.apiserver.objectmeta import MAX_MANAGER, manager_causes
from kubectl_runtime.apiserver.storage import Version
from kubectl_runtime.apiserver.wire import HttpRequest, Object, is_true
from kubectl_runtime.core.meta.metav1 import nanoseconds_of
from kubectl_runtime.core.meta.selectors import HASHES, shard_hash

_LONGEST = 20  # digits of a 64-bit number; longer texts are not converted


def parse_int(text: str) -> int:
    """A signed number. Raises ValueError with the real server's message."""
    return _parse("ParseInt", r"[+-]?[0-9]+", text, -(1 << 63), (1 << 63) - 1)


def parse_uint(text: str) -> int:
    """An unsigned number, such as a resourceVersion. Raises ValueError with the real server's message."""
    return _parse("ParseUint", r"[0-9]+", text, 0, (1 << 64) - 1)


def _parse(function: str, pattern: str, text: str, lowest: int, highest: int) -> int:
    why = "invalid syntax"
    if re.fullmatch(pattern, text):
        sign, digits = ("-" if text.startswith("-") else ""), text.lstrip("+-").lstrip("0") or "0"
        if len(digits) <= _LONGEST and lowest <= (number := int(sign + digits)) <= highest:
            return number
        why = "value out of range"
    raise ValueError(f"strconv.{function}: parsing {go_value(text)}: {why}")


_TOKEN = re.compile(r"\s*(?:(==|!=|=|!|<|>|\(|\)|,)|([^\s=!<>(),]+))")
_OR_END, _OR_IDENTIFIER = "',', ')' or identifier", "',', or identifier"
_OPERATORS = ("in", "notin", "=", "==", "!=", ">", "<")


@dataclass(frozen=True, slots=True)
class Requirement:
    """One term of a label selector; the operator is exists, !exists, in, notin, gt or lt."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()
    number: int = 0

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        if self.operator == "exists":
            return value is not None
        if self.operator == "!exists":
            return value is None
        if self.operator == "in":
            return value is not None and value in self.values
        if self.operator == "notin":  # also if the label is missing
            return value is None or value not in self.values
        if value is None or not _is_number(value):
            return False
        return int(value) > self.number if self.operator == "gt" else int(value) < self.number


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """A label selector: all requirements must hold."""

    requirements: tuple[Requirement, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.requirements)

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether labels satisfy the selector."""
        return all(requirement.matches(labels) for requirement in self.requirements)


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """A field selector: (field, equal?, value) triples that must all hold."""

    terms: tuple[tuple[str, bool, str], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.terms)

    def exact(self, field: str) -> str | None:
        """The value that the selector requires of a field, None if it requires none."""
        return next((value for key, equal, value in self.terms if equal and key == field), None)

    def matches(self, fields: Mapping[str, str]) -> bool:
        """Whether field values satisfy the selector; a missing field counts as empty."""
        return all((fields.get(key, "") == value) is equal for key, equal, value in self.terms)


class _Lexer:
    def __init__(self, text: str) -> None:
        self.tokens: list[str] = []
        position = 0
        while match := _TOKEN.match(text, position):
            self.tokens.append(match[1] or match[2])
            position = match.end()
        self.position = 0

    def peek(self) -> str:
        return self.tokens[self.position] if self.position < len(self.tokens) else ""

    def next(self) -> str:
        token = self.peek()
        self.position += 1
        return token


def _is_identifier(token: str) -> bool:
    return bool(token) and token not in ("=", "==", "!=", "!", "<", ">", "(", ")", ",")


def parse_labels(text: str) -> LabelSelector:
    lexer = _Lexer(text)
    requirements: list[Requirement] = []
    while True:
        token = lexer.peek()
        if token == "":
            return LabelSelector(tuple(requirements))
        if token != "!" and not _is_identifier(token):
            raise bad_request(f"found '{token}', expected: !, identifier, or 'end of string'")
        requirements.append(_requirement(lexer))
        token = lexer.next()
        if token == "":
            return LabelSelector(tuple(requirements))
        if token != ",":
            raise bad_request(f"found '{token}', expected: ',' or 'end of string'")
        if lexer.peek() != "!" and not _is_identifier(lexer.peek()):
            raise bad_request(f"found '{lexer.peek()}', expected: identifier after ','")


def _bad(why: str) -> StatusError:
    return bad_request(f"unable to parse requirement: {why}")


def _requirement(lexer: _Lexer) -> Requirement:
    negated = lexer.peek() == "!"
    if negated:
        lexer.next()
    key = lexer.next()
    if not _is_identifier(key):
        raise _bad(f"found '{key}', expected: identifier")
    if wrong := qualified_name_errors(key):
        raise _bad(f"<nil>: Invalid value: {go_value(key)}: {'; '.join(wrong)}")
    if negated:
        return Requirement(key, "!exists")
    operator = lexer.peek()
    if operator in ("", ","):
        return Requirement(key, "exists")
    lexer.next()
    if operator not in _OPERATORS:
        raise _bad(f"found '{operator}', expected: in, notin, =, ==, !=, gt, lt")
    values = _set(lexer) if operator in ("in", "notin") else [_exact(lexer)]
    compares = operator in ("<", ">")
    wrong = []
    for index, value in enumerate(sorted(set(values))):
        if compares and not _is_number(value):
            wrong.append(f"values[{index}]: Invalid value: {go_value(value)}: for 'Gt', 'Lt' operators, the value "
                         "must be an integer")
        if why := label_value_errors(value):
            wrong.append(f"values[{index}][{key}]: Invalid value: {go_value(value)}: {'; '.join(why)}")
    if wrong:
        raise _bad(wrong[0] if len(wrong) == 1 else f"[{', '.join(wrong)}]")
    if compares:
        return Requirement(key, "gt" if operator == ">" else "lt", number=int(values[0]))
    return Requirement(key, "notin" if operator in ("notin", "!=") else "in", frozenset(values))


def _is_number(text: str) -> bool:
    try:
        parse_int(text)
    except ValueError:
        return False
    return True


def _exact(lexer: _Lexer) -> str:
    token = lexer.peek()
    if token in ("", ","):
        return ""
    if not _is_identifier(token):
        raise _bad(f"found '{token}', expected: identifier")
    return lexer.next()


def _set(lexer: _Lexer) -> list[str]:
    if (opening := lexer.next()) != "(":
        raise _bad(f"found '{opening}' expected: '('")
    values: list[str] = []
    while True:
        token = lexer.next()
        if _is_identifier(token):
            values.append(token)
            token = lexer.next()
            if token not in (",", ")"):
                raise _bad(f"found '{token}', expected: ',' or ')'")
        elif token in (",", ")"):
            values.append("")
        else:
            raise _bad(f"found '{token}', expected: {_OR_IDENTIFIER if values else _OR_END}")
        if token == ")":
            return values


def parse_fields(text: str, supported: Collection[str], unsupported: str = "") -> FieldSelector:
    """Parse a field selector. A field that is not in `supported` raises a 400.

    `unsupported` is the message of that 400, with ``{}`` for the field's name.
    """
    terms = parse_terms(text)
    for key, _, _ in terms:
        if key not in supported:
            raise bad_request((unsupported or "field label not supported: {}").format(key))
    return FieldSelector(terms)


def parse_terms(text: str) -> tuple[tuple[str, bool, str], ...]:
    """The (field, equal?, value) triples of a field selector, for any field names. Raises a 400 if it is malformed."""
    terms = []
    for term in sorted(_split_terms(text)):
        match = re.match(r"(.*?)(!=|==|=)(.*)", term, re.DOTALL)
        if match is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
        terms.append((match[1], match[2] != "!=", _unescaped(match[3])))
    return tuple(terms)


def _split_terms(text: str) -> list[str]:
    """Split a field selector at the commas that no backslash precedes."""
    return [term for term in re.findall(r"(?:[^,\\]|\\.|\\$)+", text, re.DOTALL) if term]


def _unescaped(value: str) -> str:
    """The value without the backslashes that escape a backslash, a comma or an equals sign."""
    plain = []
    for found in re.finditer(r"(\\.?)|(=)|[^\\=]+", value, re.DOTALL):
        escape, equals = found.groups()
        if equals:
            raise bad_request(f"invalid field selector: unescaped character in value: {ord('=')}")
        if escape and escape[1:] not in ("\\", ",", "="):
            raise bad_request(f"invalid field selector: invalid escape sequence: {escape}")
        plain.append(escape[1:] if escape else found[0])
    return "".join(plain)


def duration_error(text: str) -> str:
    """The error in a duration; "" if it is valid."""
    try:
        nanoseconds_of(text)
    except ValueError as error:
        return str(error)
    return ""


_VALIDATIONS = ("", "Ignore", "Strict", "Warn")


@dataclass(slots=True)
class WriteOptions:
    """Options of a create, update or patch."""

    dry_run: bool
    manager: str
    field_validation: str  # Ignore, Strict or Warn
    force: bool


def refused(kind: str, causes: Sequence[Cause]) -> errors.StatusError:
    """A 422 for invalid options; `kind` is the options' kind, such as DeleteOptions."""
    return errors.invalid("meta.k8s.io", kind, "", causes)


def dry_run_causes(values: list[str]) -> list[Cause]:
    return [errors.not_supported("dryRun", values, ["All"])] if set(values) - {"All"} else []


def write_options(request: HttpRequest, kind: str, *, apply: bool = False) -> WriteOptions:
    """Read the options of a write. `kind` is CreateOptions, UpdateOptions or PatchOptions. Raises a 422 if invalid."""
    dry_run, manager = request.params("dryRun"), request.param("fieldManager")
    validation = request.param("fieldValidation")
    causes = []
    if kind == "PatchOptions":
        if apply and not manager:
            causes.append(errors.required("fieldManager", "is required for apply patch"))
        if not apply and request.has_param("force"):
            causes.append(errors.forbidden_field("force", "may not be specified for non-apply patch"))
    causes += manager_causes(manager, "fieldManager")
    causes += dry_run_causes(dry_run)
    if validation not in _VALIDATIONS:
        causes.append(errors.not_supported("fieldValidation", validation, _VALIDATIONS))
    if causes:
        raise refused(kind, causes)
    return WriteOptions(bool(dry_run), manager or default_manager(request), validation or "Warn",
                        is_true(request, "force"))


def default_manager(request: HttpRequest) -> str:
    """The manager of a request without fieldManager: its User-Agent up to the first slash."""
    agent = request.header("user-agent").partition("/")[0][:MAX_MANAGER]
    return "".join(character for character in agent if character.isprintable()) or "unknown"


def integer_param(request: HttpRequest, name: str) -> int | None:
    """An integer in the query, None if it is missing. Raises a 400 if it is empty, not a number, or above 64 bits."""
    if not request.has_param(name):
        return None
    try:
        return parse_int(request.param(name))
    except ValueError as error:
        raise errors.bad_request(str(error)) from None


_POLICIES = ("Foreground", "Background", "Orphan")
_SCHEME = "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27"


@dataclass(slots=True)
class DeleteOptions:
    """Options of a delete; None where the client set nothing."""

    dry_run: bool = False
    grace: int | None = None
    propagation: str = ""
    uid: str | None = None
    resource_version: str | None = None
    # whether the client set the old option orphanDependents to false; the answer to an unfinished deletion is then a
    # 202, and a Namespace or CRD is deleted as with the policy Foreground
    cascades: bool = False


def delete_options(request: HttpRequest, *, custom: bool = False) -> DeleteOptions:
    """Read DeleteOptions for a built-in or a custom kind. Raises a 400 or 422 for invalid options."""
    return checked(raw_delete_options(request, custom=custom))


def raw_delete_options(request: HttpRequest, *, custom: bool = False) -> Object:
    """The fields of DeleteOptions, not yet checked, as a new dict."""
    default_version = "meta.k8s.io/v1" if custom else "v1"
    return _from_body(request, default_version) if request.body else _from_query(request)


def checked(raw: Object) -> DeleteOptions:
    """DeleteOptions from fields of the right types. Raises a 422 for invalid or contradictory options."""
    causes = []
    policy, orphan, dry_run = raw.get("propagationPolicy"), raw.get("orphanDependents"), raw.get("dryRun") or []
    if policy is not None and orphan is not None:
        causes.append(errors.invalid_value("propagationPolicy", policy,
                                           "orphanDependents and deletionPropagation cannot be both set"))
    if policy is not None and policy not in _POLICIES:
        causes.append(errors.not_supported("propagationPolicy", policy, (*_POLICIES, "nil")))
    causes += dry_run_causes(dry_run)
    if causes:
        raise refused("DeleteOptions", causes)
    if orphan is not None:
        policy = "Orphan" if orphan else "Background"
    grace, preconditions = raw.get("gracePeriodSeconds"), raw.get("preconditions") or {}
    return DeleteOptions(
        dry_run=bool(dry_run), grace=1 if grace is not None and grace < 0 else grace, propagation=policy or "",
        uid=preconditions.get("uid"), resource_version=preconditions.get("resourceVersion"), cascades=orphan is False)


def _from_query(request: HttpRequest) -> Object:
    def text(name: str) -> str | None:
        return request.param(name) if request.has_param(name) else None

    return {"gracePeriodSeconds": integer_param(request, "gracePeriodSeconds"),
            "propagationPolicy": text("propagationPolicy"),
            "orphanDependents": is_true(request, "orphanDependents") if request.has_param("orphanDependents") else None,
            "preconditions": {"uid": text("uid"), "resourceVersion": text("resourceVersion")},
            "dryRun": request.params("dryRun")}


def _from_body(request: HttpRequest, default_version: str) -> Object:
    try:
        value, _ = encoding.parse(request)
    except ValueError as error:
        raise errors.bad_request(str(error)) from None
    value = {} if value is None else value  # the real decoder reads null as an empty object
    if problem := encoding.type_meta_problem(value):
        raise errors.bad_request(f"couldn't get version/kind; json parse error: {problem}")
    kind, api_version = value.get("kind") or "DeleteOptions", value.get("apiVersion") or default_version
    if api_version.count("/") > 1:
        raise errors.bad_request(f"unexpected GroupVersion string: {api_version}")
    if kind != "DeleteOptions":
        raise errors.bad_request(f'no kind "{kind}" is registered for version "{api_version}" in scheme "{_SCHEME}"')
    try:
        typed.decode("meta.v1.DeleteOptions", value)
    except errors.BodyDecodeError as error:
        raise errors.bad_request(str(error)) from None
    options: Object = value
    return options


_VERSION = "meta.k8s.io/v1"
_FIELDS: dict[str, Any] = {"v": "", "rv": 0, "start": ""}
_GO_TYPES = {list: "array", dict: "object", str: "string", bool: "bool", int: "number", float: "number"}

TOO_OLD = ("The provided continue parameter is too old to display a consistent list result. You can start a new list "
           "without the continue parameter, or use the continue token in this response to retrieve the remainder of "
           "the results. Continuing with the provided token results in an inconsistent list - objects that were "
           "created, modified, or deleted between the time the first chunk was returned and now may "
           "show up in the list.")


@dataclass(frozen=True, slots=True)
class ContinueToken:
    """The start of a list's next page, and the resourceVersion of the list."""

    rv: int
    start: str  # the lowest key of the next page, without the namespace in a list of one namespace

    def encode(self) -> str:
        body = json.dumps({"v": _VERSION, "rv": self.rv, "start": self.start}, separators=(",", ":"))
        return base64.urlsafe_b64encode(body.encode()).decode().rstrip("=")


def after(rv: int, version: Version, namespace: str) -> ContinueToken:
    """The token for the page that starts after the object `version`. `namespace` is "" for a list of all namespaces."""
    key = version.name if namespace else version.key
    return ContinueToken(rv, key + "\0")


def _malformed(why: str) -> StatusError:
    return bad_request(f"invalid continue token: continue key is not valid: {why}")


def decode(text: str) -> ContinueToken:
    """Read a token. Raises a 400 if it is invalid."""
    data = _json(text)
    if data is None:
        data = {}
    if not isinstance(data, dict):
        raise _malformed(f"json: cannot unmarshal {_GO_TYPES[type(data)]} into Go value of type storage.continueToken")
    values = {key: data.get(key) or empty for key, empty in _FIELDS.items()}
    for key, value in values.items():
        if type(value) is not type(_FIELDS[key]):
            raise _malformed(f"json: cannot unmarshal {_shown(value)} into Go struct field continueToken.{key} of type "
                             f"{'int64' if key == 'rv' else 'string'}")
    if values["v"] != _VERSION:
        raise _malformed(f"server does not recognize this encoded version {values['v']}")
    if not values["rv"]:
        raise _malformed(f"incorrect encoded start resourceVersion (version {_VERSION})")
    if not values["start"]:
        raise _malformed(f"encoded start key empty (version {_VERSION})")
    key = "/" + values["start"].removeprefix("/")
    if posixpath.normpath(key) != key:
        raise _malformed(values["start"])  # the key must not lead out of the collection
    return ContinueToken(values["rv"], key[1:])


def _json(text: str) -> Any:
    """The decoded JSON of a token, of any type. Raises a 400 if it is not JSON in base64."""
    for position, character in enumerate(text):
        if not (character.isascii() and (character.isalnum() or character in "-_")):
            raise _malformed(f"illegal base64 data at input byte {position}")
    if len(text) % 4 == 1:
        raise _malformed(f"illegal base64 data at input byte {len(text) - 1}")
    data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _malformed(syntax_error(data) or str(error)) from None


def _shown(value: Any) -> str:
    """A value of the wrong type, as the real decoder's message names it."""
    return f"number {value}" if isinstance(value, float) else _GO_TYPES[type(value)]


def too_old(token: ContinueToken) -> StatusError:
    """A 410 for a token whose resourceVersion was compacted. The 410's token continues with the current objects."""
    return expired(TOO_OLD, ContinueToken(-1, token.start).encode())


@dataclass(frozen=True, slots=True)
class Shards:
    """The field and ranges of a shardSelector, and its normalized text."""

    field: str
    ranges: tuple[tuple[int, int], ...]
    text: str

    def matches(self, version: Version) -> bool:
        found = version.uid_hash if self.field == "uid" else _hash_of_namespace(version.namespace)
        return any(first <= found < end for first, end in self.ranges)


_hash_of_namespace = lru_cache(maxsize=4096)(shard_hash)


_SHARD_TOKEN = re.compile(r"""\s*(?:(\|\||&&|[().,])|('[^'\\\n]*'|"[^"\\\n]*"|[0-9]+)|([A-Za-z_]\w*))""")
_SHARD_FIELDS = {"object.metadata.uid": "uid", "object.metadata.namespace": "namespace"}
_IDENT, _LITERAL, _SELECT = 3, 5, 7  # cel-go's numbers of expression kinds


def parse_shards(text: str) -> Shards | None:
    """Parse a shardSelector; None for an empty text. Raises the real server's 500 if it is malformed."""
    if not text:
        return None
    if not text.strip():
        raise _no_shards("empty shard selector is not allowed; omit the parameter for unfiltered lists")
    parser = _ShardParser(text)
    calls = [parser.call()]
    while (operator := parser.next()) == "||":
        calls.append(parser.call())
    if operator == "&&":
        raise _no_shards('unsupported function "_&&_"; only shardRange() and || are allowed')
    if operator:
        raise _no_shards(f"syntax error at {go_quoted(operator)}")
    field, other = calls[0][0], next((call[0] for call in calls if call[0] != calls[0][0]), "")
    if other:
        raise _no_shards(f'all shard ranges must use the same field, got "{field}" and "{other}"')
    normal = " || ".join(f"shardRange({field}, '{first}', '{end}')" for _, first, end in calls)
    return Shards(_SHARD_FIELDS[field], tuple((int(first, 16), int(end, 16)) for _, first, end in calls), normal)


class _ShardParser:
    """Parses the shardRange calls of a shardSelector."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text.rstrip(), 0

    def next(self) -> str:
        """The next token; "" at the end."""
        if self._at >= len(self._text):
            return ""
        found = _SHARD_TOKEN.match(self._text, self._at)
        if found is None:
            raise _no_shards(f"syntax error at {go_quoted(self._text[self._at:])}")
        self._at = found.end()
        return found[0].strip()

    def _peek(self) -> str:
        at, token = self._at, self.next()
        self._at = at
        return token

    def call(self) -> tuple[str, str, str]:
        """Parse and check one shardRange call. Returns its field and both ends."""
        name = self._path()
        if self._peek() != "(":
            kind = _LITERAL if not (name[0].isalpha() or name[0] == "_") else _SELECT if "." in name else _IDENT
            raise _no_shards(f"unexpected expression kind {kind}; expected shardRange() call or || operator")
        arguments = self._arguments()
        if name != "shardRange":
            raise _no_shards(f'unsupported function "{name.rpartition(".")[2]}"; only shardRange() and || are allowed')
        if len(arguments) != 3:
            raise _no_shards(f"shardRange() requires exactly 3 arguments, got {len(arguments)}")
        field = arguments[0]
        if field not in _SHARD_FIELDS:
            raise _no_shards(f"unsupported field path {go_quoted(field)}; supported: {', '.join(_SHARD_FIELDS)}")
        first, end = _hexadecimal("hexStart", arguments[1]), _hexadecimal("hexEnd", arguments[2])
        if int(first, 16) >= int(end, 16):
            raise _no_shards(f"shard range start {first} must be less than end {end}")
        return field, first, end

    def _path(self) -> str:
        parts = [token := self.next()]
        if not token or token in ("||", "&&", "(", ")", ".", ","):
            raise _no_shards(f"syntax error at {go_quoted(token)}")
        while self._peek() == ".":
            self.next()
            parts.append(self.next())
        return ".".join(parts)

    def _arguments(self) -> list[str]:
        self.next()
        found: list[str] = []
        while self._peek() != ")":
            found.append(self._path())
            if self._peek() == ",":
                self.next()
            elif self._peek() != ")":
                raise _no_shards(f"syntax error at {go_quoted(self._peek())}")
        self.next()
        return found


def _hexadecimal(called: str, argument: str) -> str:
    if argument[0] not in "'\"":
        raise _no_shards(f"{called} must be a string literal")
    text = argument[1:-1]
    digits = text.removeprefix("0x")
    if text == f"0x{HASHES:x}":
        return text
    if not text.startswith("0x") or len(digits) != 16:
        meant = f"0x{digits:0>16}" if text.startswith("0x") and 0 < len(digits) < 16 else ""
        hint = f" (did you mean {go_quoted(meant)}?)" if meant else ""
        raise _no_shards(f"{called} must be a 0x-prefixed 16-digit hex value, got {go_quoted(text)}{hint}")
    for digit in digits:
        if digit not in "0123456789abcdef":
            raise _no_shards(f"{called}: invalid hex character {go_quoted(digit)} in {go_quoted(text)}")
    return text


def _no_shards(why: str) -> StatusError:
    return bare_500(f"invalid shard selector: {why}")
