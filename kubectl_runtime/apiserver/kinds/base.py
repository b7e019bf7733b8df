"""`BuiltinStrategy`, which evaluates the rows of a built-in kind, and functions that several kinds share.

Causes have the real server's paths (``spec.containers[0].name``). Addresses and CIDR blocks are parsed as leniently as
in the real server. An accepted text that is not canonical gets a warning.
"""

from __future__ import annotations

import difflib
import ipaddress
import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, ClassVar

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds import rules as r
from kubectl_runtime.apiserver.kinds import typed
from kubectl_runtime.apiserver.managedfields.entries import ResetFields
from kubectl_runtime.apiserver.names import (
    NameErrors,
    dns_subdomain_errors,
    label_value_errors,
    path_segment_errors,
    qualified_name_errors,
)
from kubectl_runtime.apiserver.query import LabelSelector, Requirement
from kubectl_runtime.apiserver.strategy import Strategy, StrategyContext
from kubectl_runtime.apiserver.wire import Object

NOT_NEGATIVE = "must be greater than or equal to 0"
_GENERIC_FIELDS = '"{}" is not a known field selector: only "metadata.name", "metadata.namespace"'
CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
PORT_RANGE = "must be between 1 and 65535, inclusive"
_PERCENT = re.compile("[0-9]+%")
_PERCENT_MESSAGE = ("a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', "
                    "regex used for validation is '[0-9]+%')")
_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_KEY_MESSAGE = ("a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or "
                "'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')")


class BuiltinStrategy(Strategy):
    """The strategy of a built-in kind. `type_name` is the kind's typed object (``apps.v1.Deployment``).

    Most kinds need only rows: defaults, rules, selectable fields. If rows are not enough, a kind overrides methods.
    """

    #: Defaults that are filled in on every write.
    defaults: ClassVar[r.Defaults] = r.Defaults()

    #: `rules` checks creates and updates; `update_rules` replaces `rules` for updates; `status_rules` checks /status.
    rules: ClassVar[r.Rules] = r.Rules()
    update_rules: ClassVar[r.Rules | None] = None
    status_rules: ClassVar[r.Rules] = r.Rules()

    #: Returns the problems of a name of this kind.
    name_errors: ClassVar[NameErrors] = staticmethod(dns_subdomain_errors)

    #: The dotted path of the part whose changes increase metadata.generation.
    generation_path = "spec"

    #: Dotted paths of fields that creates and updates drop, because their feature gates are off.
    dropped: ClassVar[tuple[str, ...]] = ()

    #: Selectable fields besides metadata's: name -> dotted path, or a function that takes the object.
    fields: ClassVar[dict[str, str | Callable[[Object], str]]] = {}

    #: The metadata keys that a write to /status does not change.
    status_keeps: ClassVar[tuple[str, ...]] = ()
    keeps_metadata = False  # whether a write to /status changes no metadata at all

    def __init__(self, type_name: str) -> None:
        self.type_name = type_name

    def default(self, obj: Object) -> None:
        """Fill in `defaults`."""
        self.defaults(obj)

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """Evaluate `rules`."""
        return list(self.rules(obj))

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """Evaluate `update_rules` or `rules`; for /status evaluate `status_rules`."""
        if subresource:
            return list(self.status_rules(new, old=old)) if subresource == "status" else []
        return list((self.update_rules or self.rules)(new, old=old))

    def validate_name(self, name: str, *, prefix: bool = False) -> list[str]:
        """The problems that `name_errors` finds."""
        return self.name_errors(name, prefix=prefix)

    def generation_part(self, obj: Object) -> Any:
        """The part at `generation_path`."""
        return dig(obj, self.generation_path)

    def decode(self, obj: Object) -> list[str]:
        """Decode with `typed.decode`. An empty managedFields list is kept, because it resets the managers."""
        metadata = obj.get("metadata")
        forget = isinstance(metadata, dict) and metadata.get("managedFields") == []
        unknown = typed.decode(self.type_name, obj)
        if forget:
            obj["metadata"]["managedFields"] = []
        return unknown

    def blank(self) -> Object:
        """The empty object that `typed.blank` returns."""
        return typed.blank(self.type_name)

    def prepare_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> None:
        """Restore the fields that the request may not change. Unlike for custom resources, a write to /status may also
        change most of the metadata."""
        self._drop(new)
        if subresource != "status" or self.keeps_metadata:
            super().prepare_update(new, old, subresource, ctx)
            return
        for key in {**old, **new}:
            if key not in ("metadata", "status"):
                self.keep(key, new, old)
        for key in self.status_keeps:
            self.keep(key, new["metadata"], old["metadata"])

    def reset(self, subresource: str) -> ResetFields:
        """The fields that `prepare_update` restores."""
        if subresource != "status":
            return super().reset(subresource)
        if self.keeps_metadata:
            return ResetFields(drop=(("metadata",), ("spec",)))
        return ResetFields(drop=(("spec",), *(("metadata", key) for key in self.status_keeps)))

    def to_storage(self, obj: Object, version: str) -> Object:
        """The stored form. Empty lists become null: the real server stores built-in kinds as protobuf, which has no
        empty lists."""
        for *parents, last in typed.written_lists(self.type_name):
            part: Any = obj
            for key in parents:
                part = part.get(key) if part else None
            if part and part.get(last) in ([], {}):
                part[last] = None
        return obj

    def prepare_create(self, obj: Object, ctx: StrategyContext) -> None:
        """Replace the client's status by an empty status."""
        self._drop(obj)
        super().prepare_create(obj, ctx)
        if self.has_status and (empty := self.blank().get("status")) is not None:
            obj["status"] = empty

    def _drop(self, obj: Object) -> None:
        for path in self.dropped:
            parent, _, key = path.rpartition(".")
            (dig(obj, parent) or {} if parent else obj).pop(key, None)

    def selectable_fields(self, obj: Object) -> dict[str, str]:
        """Values of the fields declared in `fields`."""
        return {name: source(obj) if callable(source) else text_at(obj, source) for name, source in self.fields.items()}

    def selectable_field_names(self) -> frozenset[str]:
        """The names of the fields declared in `fields`."""
        return frozenset(self.fields)

    @property
    def unsupported_field(self) -> str:
        """The message for an unknown field selector. Kinds that declare no `fields` have a different message."""
        return super().unsupported_field if self.fields else _GENERIC_FIELDS


def default_class(classes: Iterable[Object], annotation: str) -> str:
    """The name of the newest of `classes` that `annotation` marks as the default; "" if there is none."""
    defaults = [entry["metadata"] for entry in classes
                if (entry["metadata"].get("annotations") or {}).get(annotation) == "true"]
    newest = max(defaults, key=lambda metadata: (metadata.get("creationTimestamp", ""), metadata["name"]), default=None)
    return str(newest["name"]) if newest else ""


def class_of(obj: Object) -> str | None:
    """The StorageClass of a claim or volume: its deprecated annotation, or else its spec.storageClassName."""
    annotated: str | None = (obj["metadata"].get("annotations") or {}).get(CLASS_ANNOTATION)
    return annotated if annotated is not None else dig(obj, "spec.storageClassName")


def true_conditions(status: Object) -> set[str]:
    """The types of those conditions in `status` whose status is True."""
    return {entry.get("type", "") for entry in status.get("conditions") or () if entry.get("status") == "True"}


def difference(before: Any, after: Any, *, as_given: bool = False) -> str:
    """A readable difference between two values.

    The real server prints its internal Go structs; this function prints the values as JSON, with sorted keys. With
    `as_given` the keys stay in the values' own order.
    """
    old, new = (json.dumps(value, indent=1, sort_keys=not as_given, ensure_ascii=False).splitlines(keepends=True)
                for value in (before, after))
    return "".join(list(difflib.unified_diff(old, new))[2:])


def dig(obj: Any, path: str) -> Any:
    """The value at a dotted path through objects; None if the value is missing."""
    for part in path.split("."):
        if not isinstance(obj, dict):
            return None
        obj = obj.get(part)
    return obj


def text_at(obj: Object, path: str) -> str:
    """The value at a path, as a field selector sees it. A missing value is "", a boolean is ``true`` or ``false``."""
    value = dig(obj, path)
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def put_default(obj: Object, key: str, value: Any) -> None:
    """Set a field that is missing or null."""
    if obj.get(key) is None:
        obj[key] = value


def fill(obj: Object, **defaults: Any) -> None:
    """Set each field that is missing, null or zero, as Go does for fields that are not pointers."""
    for key, value in defaults.items():
        if not obj.get(key):
            obj[key] = value


def config_key_errors(key: str) -> list[str]:
    """The problems of a ConfigMap's or Secret's key."""
    found = [] if len(key) <= 253 else ["must be no more than 253 characters"]
    if not _KEY.fullmatch(key):
        found.append(_KEY_MESSAGE)
    elif key == ".":
        found.append("must not be '.'")
    elif key.startswith(".."):
        found.append("must not be '..'" if key == ".." else "must not start with '..'")
    return found


CONFIG_KEY = r.name(config_key_errors)


def domain_path_causes(text: str, path: str) -> list[Cause]:
    """Return a cause for each error of a text that must have the form ``example.com/path``."""
    domain, slash, rest = text.partition("/")
    if not slash or not domain or not rest:
        return [errors.invalid_value(path, text, 'must be a domain-prefixed path (such as "acme.io/foo")')]
    return ([errors.invalid_value(path, domain, why) for why in dns_subdomain_errors(domain)]
            + [errors.invalid_value(path, rest, why) for why in path_segment_errors(rest)])


def labels_causes(labels: Object | None, path: str) -> list[Cause]:
    """Return a cause for each error of a label's key or value. Every cause has the path of the map."""
    causes = []
    for key, value in sorted((labels or {}).items()):
        causes += [errors.invalid_value(path, key, why) for why in qualified_name_errors(key)]
        causes += [errors.invalid_value(path, value, why) for why in label_value_errors(value)]
    return causes


def label_selector(selector: Object | None) -> LabelSelector | None:
    """Parse a LabelSelector object, such as a Deployment's ``spec.selector``. None selects nothing."""
    if selector is None:
        return None
    operators = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!exists"}
    requirements = [Requirement(key, "in", frozenset([value]))
                    for key, value in (selector.get("matchLabels") or {}).items()]
    requirements += [Requirement(entry.get("key", ""), operators.get(entry.get("operator", ""), "in"),
                                 frozenset(entry.get("values") or ()))
                     for entry in selector.get("matchExpressions") or ()]
    return LabelSelector(tuple(requirements))


def selector_text(selector: Object | None) -> str:
    """A selector as kubectl and /scale print it: ``app=a,tier in (x,y),!old``."""
    if selector is None:
        return "<none>"
    parts = [f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items()]
    for entry in selector.get("matchExpressions") or ():
        key, values = entry.get("key", ""), ",".join(sorted(entry.get("values") or ()))
        parts.append({"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "Exists": key,
                      "DoesNotExist": f"!{key}"}.get(entry.get("operator", ""), key))
    return ",".join(sorted(parts)) or "<none>"


def labels_text(labels: Object | None) -> str:
    """Labels or a map selector as tables print them."""
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or "<none>"


def _match_labels(labels: Object | None, path: str) -> Iterator[Cause]:
    for key, value in (labels or {}).items():
        yield from (*r.ANY_QUALIFIED(key, path), *r.LABEL_VALUE(value, path))


#: The rules that requirements of label selectors and node selectors have in common.
EXPRESSION = (
    r.when(r.equals("operator", "In", "NotIn"),
           ("values", r.required("must be specified when `operator` is 'In' or 'NotIn'"))),
    r.when(r.equals("operator", "Exists", "DoesNotExist"),
           ("values", r.forbidden("may not be specified when `operator` is 'Exists' or 'DoesNotExist'"))),
)
_SELECTOR = r.Rules(
    ("matchLabels", _match_labels),
    ("matchExpressions[*]", r.Rules(
        *EXPRESSION,
        ("operator", r.must(("In", "NotIn", "Exists", "DoesNotExist").__contains__, "not a valid selector operator",
                          zero="")),
        ("key", r.ANY_QUALIFIED),
        ("values[*]", r.LABEL_VALUE))),
)


def selector_causes(selector: Object | None, path: str) -> list[Cause]:
    """Return a cause for each error of a label selector. A missing selector has no errors."""
    return list(_SELECTOR(selector, path))


def amount_or_percent_causes(value: Any, path: str, *, most_all: bool = False) -> list[Cause]:
    """Return a cause if a number is negative or a percentage is invalid. With `most_all`, 100 % is the maximum."""
    if isinstance(value, int):
        return [errors.invalid_value(path, value, NOT_NEGATIVE)] if value < 0 else []
    if value is None:
        return []
    if not _PERCENT.fullmatch(value):
        return [errors.invalid_value(path, value, _PERCENT_MESSAGE)]
    return [errors.invalid_value(path, value, "must not be greater than 100%")
            ] if most_all and int(value[:-1]) > 100 else []


AMOUNT_OR_PERCENT: r.Check = partial(amount_or_percent_causes, most_all=True)


def amount_of(value: Any) -> int:
    """The value if it is a number, or the number before a percent sign; 0 for any other value."""
    if isinstance(value, int):
        return value
    return int(value[:-1]) if value is not None and _PERCENT.fullmatch(value) else 0


IP_MESSAGE = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
CIDR_MESSAGE = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"

_LINK_LOCAL_GROUPS: dict[int, ipaddress.IPv4Network | ipaddress.IPv6Network] = {
    4: ipaddress.IPv4Network("224.0.0.0/24"), 6: ipaddress.IPv6Network("ff02::/16")}

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def parse_ip(text: str) -> Address | None:
    """Parse an address. Numbers with leading zeros are read as decimal, as in old versions of Go."""
    try:
        return ipaddress.ip_address(_without_zeros(text))
    except ValueError:
        return None


def parse_cidr(text: str) -> Network | None:
    """Parse a CIDR block. Bits after the prefix are allowed."""
    address, slash, prefix = text.partition("/")
    if not slash or not prefix.isdecimal() or "%" in address:
        return None
    try:
        return ipaddress.ip_network(f"{_without_zeros(address)}/{int(prefix)}", strict=False)
    except ValueError:
        return None


def is_ip(text: str) -> bool:
    return parse_ip(text) is not None


def canonical_ip_errors(name: str, *, prefix: bool = False) -> list[str]:  # noqa: ARG001 - has the form of `NameErrors`
    """The problems of a name that is not an address in canonical form."""
    parsed = parse_ip(name)
    return [] if parsed is not None and str(parsed) == name else [IP_MESSAGE]


def block_causes(text: str, path: str) -> list[Cause]:
    network = parse_cidr(text)
    if network is None:
        return [errors.invalid_value(path, text, CIDR_MESSAGE)]
    at_start = parse_ip(text.partition("/")[0]) == network.network_address
    return [] if at_start else [errors.invalid_value(path, text, "must not have bits set beyond the prefix length")]


def special_address(text: str) -> str:
    """Why an endpoint must not have an address; "" if the address is allowed."""
    address = parse_ip(text)
    if address is None:
        return ""
    if address.is_unspecified:
        return f"may not be unspecified ({address})"
    if address.is_loopback:
        return "may not be in the loopback range (127.0.0.0/8, ::1/128)"
    if address.is_link_local:
        return "may not be in the link-local range (169.254.0.0/16, fe80::/10)"
    if address in _LINK_LOCAL_GROUPS[address.version]:
        return "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"
    return ""


def ip_warnings(path: str, text: str) -> Iterator[str]:
    """Warnings about an address that is not in canonical form."""
    address = parse_ip(text)
    if address is None:
        return
    mapped = getattr(address, "ipv4_mapped", None)
    if mapped is not None or (address.version == 4 and text != str(address)):
        yield f'{path}: non-standard IP address "{text}" is invalid: use "{mapped or address}"'
    elif str(address) != text:
        yield f'{path}: IPv6 address "{text}" should be in RFC 5952 canonical format ("{address}")'


def cidr_warnings(path: str, text: str) -> Iterator[str]:
    """Warnings about a block that has bits after the prefix or is not in canonical form."""
    network = parse_cidr(text)
    if network is None:
        return
    head = text.partition("/")[0]
    address = parse_ip(head)
    found = False
    if address != network.network_address:
        yield (f'{path}: CIDR value "{text}" is ambiguous in this context (should be "{network}" or '
               f'"{address}/{network.max_prefixlen}"?)')
        found = True
    if network.version == 4 and head != str(address):
        yield f'{path}: non-standard CIDR value "{text}" is invalid: use "{network}"'
        found = True
    if not found and network.version == 6 and str(network) != text:
        yield f'{path}: IPv6 CIDR value "{text}" should be in RFC 5952 canonical format ("{network}")'


def _without_zeros(text: str) -> str:
    parts = text.split(".")
    return ".".join(str(int(part)) if part.isdecimal() and ":" not in text else part for part in parts)
