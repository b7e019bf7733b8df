"""Kubernetes' own CEL functions for rules: lists, regex, url, ip, cidr, quantity, and cel-go's sets.

Each `Function` has a signature in a small language that `cel.py` translates: names for scalars, ``[T]`` for lists,
``{T}`` for maps, and ``Quantity``, ``URL``, ``IP``, ``CIDR``, ``Semver``, ``Format`` for the opaque values. Functions
receive and return opaque values as canonical texts, so that equal values have equal texts. A ValueError in a function
becomes an error of the rule. `authorizer_functions` are the methods of `authorizer`, which admission policies and
match conditions of webhooks have, but rules of a CRD do not. `celmacros.py` implements named formats and macros of
two variables.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from fractions import Fraction
from operator import le
from typing import Any
from urllib.parse import parse_qs, urlsplit

from kubectl_runtime.core.meta.quantities import value_of
from kubectl_runtime.schema.patterns import compiled

AUTHORIZER, PATH_CHECK, GROUP_CHECK, RESOURCE_CHECK, DECISION = (
    f"authorization.{name}" for name in ("Authorizer", "PathCheck", "GroupCheck", "ResourceCheck", "Decision"))
OPAQUE = ("Quantity", "URL", "IP", "CIDR", "Semver", "Format", AUTHORIZER, PATH_CHECK, GROUP_CHECK, RESOURCE_CHECK,
          DECISION)

Decide = Callable[[Mapping[str, str]], tuple[bool, str, str]]
"""Takes the attributes of an authorization check. Returns whether the check is allowed, why, and an error. The keys are
those of ResourceAttributes, or path and verb; `account` (NAMESPACE:NAME) is a ServiceAccount to check instead of the
user."""

deciding: ContextVar[Decide] = ContextVar("deciding")
"""The function that answers the authorization checks in the expression that this thread evaluates."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function or method in rules: the types of its parameters (a method's receiver is the first) and its result."""

    name: str
    parameters: tuple[str, ...]
    result: str
    call: Callable[..., Any]
    member: bool = True


def functions() -> Iterator[Function]:
    """All functions. A name occurs once for each of its signatures."""
    yield from _lists()
    yield from _sets()
    yield from _texts()
    yield from _quantities()
    yield from _urls()
    yield from _addresses()
    yield from _versions()


def _lists() -> Iterator[Function]:
    for kind in ("int", "double", "string", "bool", "timestamp", "duration", "bytes", "dyn"):
        yield Function("isSorted", (f"[{kind}]",), "bool", lambda items: all(map(le, items, items[1:])))
        for name, call in (("indexOf", _index), ("lastIndexOf", _last_index)):
            yield Function(name, (f"[{kind}]", kind), "int", call)
        for name, pick in (("min", min), ("max", max)):
            yield Function(name, (f"[{kind}]",), kind, _picker(name, pick))
    for kind, zero in (("int", 0), ("double", 0.0), ("dyn", 0)):
        yield Function("sum", (f"[{kind}]",), kind, lambda items, zero=zero: sum(items, zero))


def _index(items: list[Any], wanted: Any) -> int:
    return items.index(wanted) if wanted in items else -1


def _last_index(items: list[Any], wanted: Any) -> int:
    return len(items) - 1 - items[::-1].index(wanted) if wanted in items else -1


def _picker(name: str, pick: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    def call(items: list[Any]) -> Any:
        if not items:
            raise ValueError(f"{name} called on empty list")
        return pick(items)
    return call


def _sets() -> Iterator[Function]:
    pair = ("[dyn]", "[dyn]")
    yield Function("sets.contains", pair, "bool", _contains, member=False)
    yield Function("sets.equivalent", pair, "bool", lambda a, b: _contains(a, b) and _contains(b, a), member=False)
    yield Function("sets.intersects", pair, "bool", lambda a, b: any(item in b for item in a), member=False)


def _contains(items: list[Any], wanted: list[Any]) -> bool:
    return all(item in items for item in wanted)


def _texts() -> Iterator[Function]:
    yield Function("find", ("string", "string"), "string", lambda text, pattern: next(_found(text, pattern), ""))
    yield Function("findAll", ("string", "string"), "[string]", lambda text, pattern: list(_found(text, pattern)))
    yield Function("findAll", ("string", "string", "int"), "[string]",
                   lambda text, pattern, most: list(_found(text, pattern))[:most if most >= 0 else None])


def _found(text: str, pattern: str) -> Iterator[str]:
    return (match[0] for match in compiled(pattern).finditer(text))


def _quantities() -> Iterator[Function]:
    yield Function("quantity", ("string",), "Quantity", lambda text: str(value_of(text)), member=False)
    yield Function("isQuantity", ("string",), "bool", _is(value_of), member=False)
    yield Function("sign", ("Quantity",), "int", lambda q: (Fraction(q) > 0) - (Fraction(q) < 0))
    yield Function("isInteger", ("Quantity",), "bool", lambda q: Fraction(q) % 1 == 0 and abs(Fraction(q)) < 1 << 63)
    yield Function("asInteger", ("Quantity",), "int", _as_integer)
    yield Function("asApproximateFloat", ("Quantity",), "double", lambda q: float(Fraction(q)))
    yield Function("isGreaterThan", ("Quantity", "Quantity"), "bool", lambda a, b: Fraction(a) > Fraction(b))
    yield Function("isLessThan", ("Quantity", "Quantity"), "bool", lambda a, b: Fraction(a) < Fraction(b))
    yield Function("compareTo", ("Quantity", "Quantity"), "int",
                   lambda a, b: (Fraction(a) > Fraction(b)) - (Fraction(a) < Fraction(b)))
    for other in ("Quantity", "int"):
        yield Function("add", ("Quantity", other), "Quantity", lambda a, b: str(Fraction(a) + Fraction(b)))
        yield Function("sub", ("Quantity", other), "Quantity", lambda a, b: str(Fraction(a) - Fraction(b)))


def _as_integer(quantity: str) -> int:
    number = Fraction(quantity)
    if number % 1 or abs(number) >= 1 << 63:
        raise ValueError("cannot convert value to integer")
    return int(number)


def _is(parse: Callable[[str], object]) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            parse(text)
        except ValueError:
            return False
        return True
    return check


def _url(text: str) -> str:
    parts = urlsplit(text)
    if not (parts.scheme or text.startswith("/")) or re.search(r"[\x00-\x20\x7f]", text):
        raise ValueError(f"URL parse error: {text!r}: invalid URI for request")
    parts.port  # noqa: B018 - raises ValueError for a wrong port
    return text


def _urls() -> Iterator[Function]:
    yield Function("url", ("string",), "URL", _url, member=False)
    yield Function("isURL", ("string",), "bool", _is(_url), member=False)
    yield Function("getScheme", ("URL",), "string", lambda url: urlsplit(url).scheme)
    yield Function("getHost", ("URL",), "string", lambda url: urlsplit(url).netloc.rpartition("@")[2])
    yield Function("getHostname", ("URL",), "string",
                   lambda url: re.sub(r":\d*$", "", urlsplit(url).netloc.rpartition("@")[2]).strip("[]"))
    yield Function("getPort", ("URL",), "string", lambda url: str(urlsplit(url).port or ""))
    yield Function("getEscapedPath", ("URL",), "string", lambda url: urlsplit(url).path)
    yield Function("getQuery", ("URL",), "{[string]}",
                   lambda url: parse_qs(urlsplit(url).query, keep_blank_values=True))


def _address(text: str) -> str:
    found = ipaddress.ip_address(text)
    if isinstance(found, ipaddress.IPv6Address) and (found.ipv4_mapped or found.scope_id):
        raise ValueError(f"IP Address {text!r} parse error during conversion from string")
    return str(found)


def _network(text: str) -> str:
    if "/" not in text:
        raise ValueError(f"network address parse error during conversion from string: {text!r}")
    return str(ipaddress.ip_interface(text))


def _addresses() -> Iterator[Function]:
    yield Function("ip", ("string",), "IP", _address, member=False)
    yield Function("isIP", ("string",), "bool", _is(_address), member=False)
    yield Function("ip.isCanonical", ("string",), "bool", lambda text: _address(text) == text, member=False)
    yield Function("family", ("IP",), "int", lambda ip: ipaddress.ip_address(ip).version)
    for name, attribute in (("isUnspecified", "is_unspecified"), ("isLoopback", "is_loopback"),
                            ("isLinkLocalMulticast", ""), ("isLinkLocalUnicast", "is_link_local"),
                            ("isGlobalUnicast", "")):
        yield Function(name, ("IP",), "bool", _address_check(name, attribute))
    yield Function("cidr", ("string",), "CIDR", _network, member=False)
    yield Function("isCIDR", ("string",), "bool", _is(_network), member=False)
    yield Function("prefixLength", ("CIDR",), "int", lambda cidr: int(cidr.partition("/")[2]))
    yield Function("ip", ("CIDR",), "IP", lambda cidr: cidr.partition("/")[0])
    yield Function("masked", ("CIDR",), "CIDR", lambda cidr: str(ipaddress.ip_interface(cidr).network))
    for kind, read in (("string", _address), ("IP", str)):
        yield Function("containsIP", ("CIDR", kind), "bool", lambda cidr, ip, read=read: (
            ipaddress.ip_address(read(ip)) in ipaddress.ip_interface(cidr).network))
    for kind, read in (("string", _network), ("CIDR", str)):
        yield Function("containsCIDR", ("CIDR", kind), "bool",
                       lambda cidr, other, read=read: _within(cidr, read(other)))


def _address_check(name: str, attribute: str) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        ip = ipaddress.ip_address(text)
        if name == "isLinkLocalMulticast":
            return ip in ipaddress.ip_network("224.0.0.0/24" if ip.version == 4 else "ff02::/16")
        if name == "isGlobalUnicast":
            return not (ip.is_unspecified or ip.is_loopback or ip.is_multicast or ip.is_link_local
                        or str(ip) == "255.255.255.255")
        return bool(getattr(ip, attribute))
    return check


def _within(cidr: str, other: str) -> bool:
    outer, inner = ipaddress.ip_interface(cidr).network, ipaddress.ip_interface(other).network
    return (outer.version == inner.version and outer.prefixlen <= inner.prefixlen and inner.network_address in outer)


_NUMBER = r"(?:0|[1-9]\d*)"
_SEMVER = re.compile(rf"({_NUMBER})\.({_NUMBER})\.({_NUMBER})(?:-((?:{_NUMBER}|\d*[A-Za-z-][0-9A-Za-z-]*)"
                     rf"(?:\.(?:{_NUMBER}|\d*[A-Za-z-][0-9A-Za-z-]*))*))?(?:\+([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?",
                     re.ASCII)


def _semver(text: str) -> str:
    if not _SEMVER.fullmatch(text):
        raise ValueError(f"{text!r} is not a semantic version")
    return text


def _normalized(text: str, normalize: bool) -> str:
    """The version in `text`; `normalize` drops a leading v and leading zeros, and adds missing numbers."""
    if not normalize:
        return _semver(text)
    numbers, mark, rest = re.fullmatch(r"v?([^-+]*)([-+]?)(.*)", text, re.DOTALL).groups()  # type: ignore[union-attr]
    parts = [part.lstrip("0") or "0" if part else "" for part in numbers.split(".")]
    return _semver(".".join([*parts, *["0"] * (3 - len(parts))]) + mark + rest)


def _order(text: str) -> tuple[Any, ...]:
    major, minor, patch, before, _ = _semver_parts(text)
    marks = [(0, int(mark), "") if mark.isdigit() else (1, 0, mark) for mark in before.split(".")] if before else []
    return int(major), int(minor), int(patch), not before, marks


def _semver_parts(text: str) -> tuple[str, ...]:
    found = _SEMVER.fullmatch(text)
    return tuple(part or "" for part in found.groups()) if found else ("0", "0", "0", "", "")


def _versions() -> Iterator[Function]:
    yield Function("semver", ("string",), "Semver", _semver, member=False)
    yield Function("semver", ("string", "bool"), "Semver", _normalized, member=False)
    yield Function("isSemver", ("string",), "bool", _is(_semver), member=False)
    yield Function("isSemver", ("string", "bool"), "bool",
                   lambda text, normalize: _is(lambda given: _normalized(given, normalize))(text), member=False)
    for place, name in enumerate(("major", "minor", "patch")):
        yield Function(name, ("Semver",), "int", lambda text, place=place: int(_semver_parts(text)[place]))
    yield Function("isGreaterThan", ("Semver", "Semver"), "bool", lambda a, b: _order(a) > _order(b))
    yield Function("isLessThan", ("Semver", "Semver"), "bool", lambda a, b: _order(a) < _order(b))
    yield Function("compareTo", ("Semver", "Semver"), "int",
                   lambda a, b: (_order(a) > _order(b)) - (_order(a) < _order(b)))


def authorizer_functions() -> Iterator[Function]:
    """The functions of `authorizer`. A check holds attributes, a decision holds the answer to a check;
    checks and decisions are JSON texts."""
    yield _asking("path", AUTHORIZER, PATH_CHECK)
    yield _asking("group", AUTHORIZER, GROUP_CHECK)
    yield _asking("resource", GROUP_CHECK, RESOURCE_CHECK)
    for name in ("subresource", "namespace", "name", "fieldSelector", "labelSelector"):
        yield _asking(name, RESOURCE_CHECK, RESOURCE_CHECK)
    yield Function("serviceAccount", (AUTHORIZER, "string", "string"), AUTHORIZER,
                   lambda _asked, namespace, name: json.dumps({"account": f"{namespace}:{name}"}))
    for kind in (PATH_CHECK, RESOURCE_CHECK):
        yield Function("check", (kind, "string"), DECISION,
                       lambda asked, verb: json.dumps(deciding.get()({**json.loads(asked), "verb": verb})))
    yield Function("allowed", (DECISION,), "bool", lambda decision: bool(json.loads(decision)[0]))
    yield Function("reason", (DECISION,), "string", lambda decision: str(json.loads(decision)[1]))
    yield Function("error", (DECISION,), "string", lambda decision: str(json.loads(decision)[2]))
    yield Function("errored", (DECISION,), "bool", lambda decision: bool(json.loads(decision)[2]))


def _asking(name: str, receiver: str, result: str) -> Function:
    return Function(name, (receiver, "string"), result,
                    lambda asked, value: json.dumps({**json.loads(asked), name: value}))
