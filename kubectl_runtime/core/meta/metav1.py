"""The parts that all Kubernetes objects share: object and list metadata, owner references, conditions, label selectors.

Times are aware `datetime` values. Every field may be absent; where the wire has `null`, the field's default stands.
`OwnerReference` and `Condition` are immutable values: replace them, do not change them. `ObjectMeta` is a mutable view.

Labels and annotations of objects.

    EditableMap      those of a reader: a change copies them into its metadata, for it alone
    ReadOnlyMap      those of an object of which only a part is held
    ReadOnlyDict     what is held where all readers of an object, or several objects, share them
    ReadOnlyList     likewise

A `MappingProxyType` would do the same and say of a change only that "'mappingproxy' object does not support item
assignment", which tells nobody what to do instead.

Status conditions: how a controller says what it knows, without writing when nothing has changed.

Durations in Go's notation, which the API has as text (`metav1.Duration`, flags, leases): `1h30m`, `-1.5s`, `250ms`.

    GoDuration("1h30m").seconds                 5400.0
    str(GoDuration("90m"))                      "1h30m0s", Go's canonical form

The grammar is that of Go's `time.ParseDuration`: a sign, then numbers with a fraction and a unit (`ns`, `us`, `µs`,
`ms`, `s`, `m`, `h`), or a bare `0`. Exact to the nanosecond; what is finer is cut off, what is beyond 64 bits refused.
"""
from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from datetime import UTC, datetime, timedelta
from functools import total_ordering
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, Protocol, Self

import msgspec
import msgspec.structs

from kubectl_runtime.core.base.clock import SYSTEM_CLOCK
from kubectl_runtime.core.base.errors import RequestError, UnknownFieldError, did_you_mean
from kubectl_runtime.core.base.interpreter import failed_attribute
from kubectl_runtime.core.base.plain import Omit, to_plain
from kubectl_runtime.core.base.wire import MapKeys, TextValue, camel, converted, pydantic_schema

_made: Any = msgspec.StructMeta.__call__
_set: Any = msgspec.Struct.__setattr__
"""What `super()` would look up again for each part that is made and each field that is set, in as much time."""


class _PartType(msgspec.StructMeta):
    """Names the field that was probably meant, where a part is made with one that it does not have."""

    if not TYPE_CHECKING:  # type checkers know the fields

        def __new__(mcs, name, bases, namespace, **options):
            if "__slots__" in namespace:  # so it comes from msgspec.defstruct, without the defaults of its fields
                raise TypeError(f"{name}: a part is made by a class statement (or types.new_class), not by defstruct")
            return super().__new__(mcs, name, bases, namespace, **options)

        def __call__(cls, *args, **fields):
            try:
                return _made(cls, *args, **fields)
            except TypeError as error:
                for name in fields:
                    if name not in cls.__struct_fields__:
                        raise UnknownFieldError(_unknown(cls, name)) from None
                raise TypeError(f"{cls.__name__}: {error}") from None


def _unknown(cls: Any, name: str) -> str:
    return (f"{cls.__name__} has no field {name!r}{did_you_mean(name, cls.__struct_fields__)}"
            f"{WIRE_KEYS if camel(name) == name and any(map(str.isupper, name)) else ''}")


WIRE_KEYS = ": attributes are snake_case, only keys are written as on the wire"


class _Hinting:
    """Names the field that was probably meant, where one is read or set that a part does not have."""

    __slots__ = ()

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            if name.startswith("__"):  # what Python itself looks for
                raise AttributeError(name)
            failed_attribute(self, name)
            raise AttributeError(_unknown(type(self), name))

        @classmethod
        def __get_pydantic_core_schema__(cls, source, handler):
            return pydantic_schema(cls, lambda value: to_plain(value, omit=Omit.DECLARED))

        @classmethod
        def __get_pydantic_json_schema__(cls, core, handler):
            return {"x-kubernetes-python-type": cls}


class Part(msgspec.Struct, _Hinting, metaclass=_PartType, kw_only=True, rename="camel", omit_defaults=True):
    """The base of typed parts of objects, such as a PodSpec: what a part does not name stays in the object.

    Fields are snake_case and camelCase on the wire; all have defaults, and what equals them is not sent.

    >>> class Limits(Part):
    ...     max_size: int = 0
    >>> Limits(max_size=3)
    Limits(max_size=3)
    """

    if not TYPE_CHECKING:

        def __setattr__(self, name, value):
            try:
                _set(self, name, value)
            except AttributeError:
                raise AttributeError(_unknown(type(self), name)) from None


class FrozenPart(msgspec.Struct, _Hinting, metaclass=_PartType, frozen=True, kw_only=True, rename="camel",
                 omit_defaults=True):
    """The base of small typed parts of objects, such as owner references: they are replaced, never changed.

    >>> class Toleration(FrozenPart, frozen=True):
    ...     key: str = ""
    >>> Toleration(key="gpu").key
    'gpu'
    """


class OwnerReference(FrozenPart, frozen=True, gc=False):
    """Which object owns this one; `uid` tells a namesake that was created later from the owner itself.

    >>> child = ConfigMap(name="child", namespace="default")
    >>> child.set_owner(Api.namespaced(client, Deployment, "default").get("web"))
    >>> child.owner_references[0].kind
    'Deployment'
    """

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None

    @property
    def group(self) -> str:
        """The owner's API group. Group and kind say which object is meant; the version does not count."""
        return self.api_version.rpartition("/")[0]


STATUSES = ("True", "False", "Unknown")
"""Of a condition."""


def check_status(kind: object, status: object) -> None:
    """Raise RequestError for what is not a status of a condition of type `kind`, such as a bool."""
    if not isinstance(status, str) or status not in STATUSES:
        raise RequestError(f'Condition {kind}: status={status!r}: it is a text: "True", "False" or "Unknown"')


class _ConditionType(_PartType):
    """Refuses a bool, which is what a program says by mistake. Another text may come from a server, and so from a copy
    of what it sent: that is for `set_condition` to refuse. Decoding does not come here."""

    if not TYPE_CHECKING:

        def __call__(cls, *args, **fields):
            if not isinstance(fields.get("status", ""), str):
                check_status(fields.get("type", ""), fields["status"])
            return super().__call__(*args, **fields)


class Condition(FrozenPart, frozen=True, metaclass=_ConditionType):
    """One entry of `status.conditions`; `status` is `True`, `False` or `Unknown`, as text. Raises RequestError for
    a bool, when it is made; `set_condition` does for another text as well.

    >>> Condition(type="Ready", status="False", reason="Starting", message="2 of 3 replicas").status
    'False'
    """

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None
    observed_generation: int | None = None


class LabelSelectorRequirement(FrozenPart, frozen=True):
    """One expression of a LabelSelector; `operator` is `In`, `NotIn`, `Exists` or `DoesNotExist`."""

    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class LabelSelector(FrozenPart, frozen=True):
    """A label selector as objects carry it; `Selector.from_label_selector` makes one that can match and render.

    >>> LabelSelector(match_labels={"app": "web"}).match_labels
    {'app': 'web'}
    """

    match_labels: dict[str, str] | None = None
    match_expressions: list[LabelSelectorRequirement] | None = None


class ObjectMeta(Part):
    """`metadata` of an object, for one reader: changes reach the server with `replace`, never the store.

    >>> obj = Api.namespaced(client, ConfigMap, "default").get("settings")
    >>> obj.metadata.labels["tier"] = "front"
    >>> Api.namespaced(client, ConfigMap, "default").replace(obj).labels["tier"]
    'front'
    """

    name: str | None = None
    generate_name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    generation: int | None = None
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: Annotated[list[OwnerReference], MapKeys("uid")] = []
    finalizers: list[str] = []
    managed_fields: list[dict[str, Any]] | None = None
    self_link: str | None = None


class TemplateMeta(Part):
    """`metadata` of what an object holds a template of: of the Pods of a Deployment, the Jobs of a CronJob.

    >>> web = Api.namespaced(client, Deployment, "default").get("web")
    >>> web.spec.template.metadata.labels
    {'app': 'web'}
    """

    name: str | None = None
    generate_name: str | None = None
    namespace: str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: Annotated[list[OwnerReference], MapKeys("uid")] = []
    finalizers: list[str] = []


class ListMeta(FrozenPart, frozen=True, gc=False):
    """`metadata` of a list: the version it shows, and where its next page continues (empty on the last).

    >>> Api.all(client, ConfigMap).list(ListParams(limit=1)).metadata.resource_version != ""
    True
    """

    resource_version: str | None = None
    continue_token: str | None = msgspec.field(name="continue", default=None)
    remaining_item_count: int | None = None


def parse_time(text: str) -> datetime:
    """The moment that an RFC 3339 text of the API names, with or without a fraction. Raises ValueError for any other
    text, also for one without a time zone."""
    try:
        moment = msgspec.convert(text, datetime)
        if moment.tzinfo is not None:
            return moment.astimezone(UTC)
    except (msgspec.ValidationError, OverflowError):  # in old versions of msgspec the first is no ValueError
        pass
    raise ValueError(f"not an RFC3339 time with a zone: {str(text)[:64]!r}")


def format_time(moment: datetime) -> str:
    """`moment` as the API writes `Time`: UTC, whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro_time(moment: datetime) -> str:
    """`moment` as the API writes and requires `MicroTime` (leases, events): UTC, always six digits of fraction."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class MapView(Mapping[str, str]):
    """A view of `content`, equal to a dict of the same items. `dict(view)` is a copy."""

    __slots__ = ("_content",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, content: Mapping[str, str]) -> None:
        """`content` is not copied."""
        self._content = content

    def __getitem__(self, key: str) -> str:
        return self._content[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._content)

    def __len__(self) -> int:
        return len(self._content)

    def __contains__(self, key: object) -> bool:
        return key in self._content

    def __eq__(self, other: object) -> bool:
        return self._content == (other._content if isinstance(other, MapView) else other)

    def __or__(self, other: Mapping[str, str]) -> dict[str, str]:
        return {**self._content, **other} if isinstance(other, Mapping) else NotImplemented

    def __ror__(self, other: Mapping[str, str]) -> dict[str, str]:
        return {**other, **self._content} if isinstance(other, Mapping) else NotImplemented

    def __repr__(self) -> str:
        return repr(self._content)

    def copy(self) -> dict[str, str]:
        """A dict of one's own."""
        return dict(self._content)

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, str]:
        return self.copy()

    def __reduce__(self) -> tuple[type[dict[str, str]], tuple[dict[str, str]]]:
        return dict, (self.copy(),)


class ReadOnlyMap(MapView):
    """A view that raises TypeError for every change, with what to do instead. As safe between threads as the dict below
    it."""

    __slots__ = ()

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        """Raise TypeError, which says what to change instead."""
        raise TypeError("the labels and annotations of an object are read-only here: change obj.metadata.labels or "
                        "obj.metadata.annotations and write the object, or change a copy, such as dict(obj.labels)")

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse


class HasMetadata(Protocol):
    """An object whose metadata may be changed."""

    @property
    def metadata(self) -> ObjectMeta:
        """The mutable view of the metadata."""


class EditableMap(MapView, MutableMapping[str, str]):
    """The labels or annotations of a reader. Reading costs no more than looking at what was received; the first change
    is made in the reader's own `metadata`, never in what a store holds. For one thread, as the reader is."""

    __slots__ = ("_key", "_owner")

    def __init__(self, content: Mapping[str, str], owner: HasMetadata, key: str) -> None:
        """`content` is not copied until it is changed; `key`: `labels` or `annotations`."""
        self._content = content
        self._owner = owner
        self._key = key

    def _own(self) -> dict[str, str]:
        """The map in the metadata of the reader, which is what this one shows from then on."""
        metadata = self._owner.metadata
        found = getattr(metadata, self._key)
        if type(found) is not dict:  # None, or the map of another object
            found = dict(found or {})
            setattr(metadata, self._key, found)
        self._content = found
        return found

    def __setitem__(self, key: str, value: str) -> None:
        self._own()[key] = value

    def __delitem__(self, key: str) -> None:
        del self._own()[key]

    def __ior__(self, other: Any) -> Self:  # type: ignore[override, misc]  # `|` gives a dict, and `|=` is of this one
        self._own().update(other)
        return self


class ReadOnlyDict(dict[Any, Any]):
    """A dict that raises TypeError for every change, with what to do instead. Its copies and pickles are plain dicts.
    Safe between threads."""

    __slots__ = ()

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[Any, Any]:
        return copy.deepcopy(dict(self), memo)

    __copy__ = dict.copy

    def __reduce__(self) -> tuple[type[dict[Any, Any]], tuple[dict[Any, Any]]]:
        return dict, (self.copy(),)

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        """Raise TypeError, which says what to change instead."""
        raise TypeError("what is held of an object is shared and read-only: change a copy, such as dict(obj.labels), "
                        "and patch the object")

    if not TYPE_CHECKING:
        __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse


class ReadOnlyList(list[Any]):
    """A list that raises TypeError for every change, with what to do instead. Its copies and pickles are plain lists.
    Safe between threads."""

    __slots__ = ()

    def __deepcopy__(self, memo: dict[int, Any]) -> list[Any]:
        return copy.deepcopy(list(self), memo)

    __copy__ = list.copy

    def __reduce__(self) -> tuple[type[list[Any]], tuple[list[Any]]]:
        return list, (self.copy(),)

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        """Raise TypeError, which says what to change instead."""
        raise TypeError("what is held of an object is shared and read-only: change a copy, such as list(view.items), "
                        "and patch the object")

    if not TYPE_CHECKING:
        __setitem__ = __delitem__ = __iadd__ = __imul__ = append = clear = extend = insert = pop = remove = _refuse
        reverse = sort = _refuse


def set_condition(
    conditions: Iterable[Condition | Mapping[str, Any]] | None, condition: Condition, *, now: datetime | None = None
) -> list[dict[str, Any]]:
    """Returns the conditions with `condition` in place of the one of its type, or added at the end, as JSON values to
    write. The list that is given stays as it is: a call whose result is dropped does nothing, which type checkers
    report where they are told to (pyright's `reportUnusedCallResult`).

    `conditions` may also be JSON values: those of a DynamicObject, or what an earlier call returned.
    `last_transition_time` moves to `now` (the system's time by default; written in whole seconds) only when `status`
    changes, as Kubernetes' API conventions demand: so a reconcile that finds what it found before produces the very
    same list, and writing it by server-side apply changes nothing. Raises RequestError for a `condition` whose status
    is not one of Kubernetes' three.

    >>> [ready] = set_condition([], Condition(type="Ready", status="True", reason="Served"))
    >>> ready["type"], ready["status"]
    ('Ready', 'True')
    """
    check_status(condition.type, condition.status)
    values = [_plain(entry) for entry in conditions or ()]
    at = next((index for index, entry in enumerate(values) if entry.get("type") == condition.type), len(values))
    before = values[at] if at < len(values) else {}
    moment = (before.get("status") == condition.status and _changed(before)) or now or SYSTEM_CLOCK.now()
    placed = _plain(msgspec.structs.replace(condition, last_transition_time=moment.replace(microsecond=0)))
    placed = {"reason": "", "message": "", **placed}  # custom kinds may require them, even if empty
    return [*values[:at], placed, *values[at + 1:]]


def _changed(entry: dict[str, Any]) -> datetime | None:
    """When the status of an entry changed; None when it does not say so in a way that can be read."""
    known = {key: entry[key] for key in ("type", "status", "lastTransitionTime") if key in entry}
    try:
        return converted(known, Condition).last_transition_time
    except msgspec.ValidationError:  # written by somebody whose schema let it pass
        return None


def _plain(entry: Condition | Mapping[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = dict(entry) if isinstance(entry, Mapping) else msgspec.to_builtins(entry)
    return plain


UNITS = {"ns": 1, "us": 10**3, "\u00b5s": 10**3, "\u03bcs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9,
         "h": 3600 * 10**9}
"""Nanoseconds of each unit. Both the sign for micro and the Greek letter are taken."""
LONGEST = 2**63
"""Nanoseconds of the shortest duration that is too long; the same below zero is still one."""

_MOST_DIGITS = 19
"""Of a whole number that fits into 63 bits."""
_PART = re.compile(r"([0-9]*)(?:\.([0-9]*))?([^0-9.]*)")


@total_ordering
class GoDuration(TextValue):
    """A span of time. Immutable; equal and ordered by its length.

    >>> GoDuration("1h30m").seconds
    5400.0
    >>> str(GoDuration("90m"))
    '1h30m0s'
    """

    __slots__ = ("_nanoseconds",)

    def __init__(self, span: int | str) -> None:
        """A text in Go's notation, or nanoseconds. Raises RequestError for anything else."""
        if type(span) is not int:
            span = GoDuration.parse(span).nanoseconds  # type: ignore[arg-type] # it refuses what is no text
        self._nanoseconds = span

    @property
    def nanoseconds(self) -> int:
        """The length in nanoseconds, exactly."""
        return self._nanoseconds

    @classmethod
    def parse(cls, text: str) -> GoDuration:
        """The span that a text in Go's notation names, such as `1h30m`. Raises RequestError, with what is wrong in the
        words of Go's parser."""
        if not isinstance(text, str):
            raise RequestError(f"{text!r} is not a duration: give text such as '1h30m', '1.5s' or '250ms'")
        try:
            return cls(nanoseconds_of(text))
        except ValueError as error:
            raise RequestError(f"{error}: a duration is such as '1h30m', '1.5s' or '250ms'") from None

    @classmethod
    def of(cls, span: timedelta) -> GoDuration:
        """The span of a timedelta."""
        return cls((span // timedelta(microseconds=1)) * 1000)

    @property
    def seconds(self) -> float:
        """The length in seconds, to the precision of a float."""
        return self.nanoseconds / 10**9

    @property
    def timedelta(self) -> timedelta:
        """The length as a timedelta, to the microsecond; what is finer is cut off."""
        micro = abs(self.nanoseconds) // 1000
        return timedelta(microseconds=-micro if self.nanoseconds < 0 else micro)

    def __eq__(self, other: object) -> bool:
        return self._nanoseconds == other.nanoseconds if isinstance(other, GoDuration) else NotImplemented

    def __lt__(self, other: GoDuration) -> bool:
        return self._nanoseconds < other.nanoseconds if isinstance(other, GoDuration) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._nanoseconds)

    def __str__(self) -> str:
        """As Go writes it: hours, minutes and seconds; below a second one number in the largest unit that fits."""
        nanos = abs(self.nanoseconds)
        sign = "-" if self.nanoseconds < 0 else ""
        if nanos == 0:
            return "0s"
        if nanos < UNITS["s"]:
            unit = "ms" if nanos >= UNITS["ms"] else "\u00b5s" if nanos >= UNITS["us"] else "ns"
            return f"{sign}{_decimal(nanos, UNITS[unit])}{unit}"
        minutes, rest = divmod(nanos, UNITS["m"])
        hours, minutes = divmod(minutes, 60)
        head = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
        return f"{sign}{head}{_decimal(rest, UNITS['s'])}s"


def nanoseconds_of(text: str) -> int:
    """The length of the duration that a text names. Raises ValueError in the words of Go's parser."""
    sign, rest = (-1, text[1:]) if text[:1] == "-" else (1, text.removeprefix("+"))
    if rest == "0":
        return 0
    if not rest:
        raise ValueError(f"time: invalid duration {_quoted(text)}")
    total, at = 0, 0
    while at < len(rest):
        part = _PART.match(rest, at)
        whole, fraction, unit = part.groups() if part else ("", "", "")
        if part is None or not (whole or fraction):
            raise ValueError(f"time: invalid duration {_quoted(text)}")
        if not unit:
            raise ValueError(f"time: missing unit in duration {_quoted(text)}")
        if unit not in UNITS:
            raise ValueError(f"time: unknown unit {_quoted(unit)} in duration {_quoted(text)}")
        if len(whole.lstrip("0")) > _MOST_DIGITS:
            raise ValueError(f"time: invalid duration {_quoted(text)}")
        total += int(whole[-_MOST_DIGITS:] or "0") * UNITS[unit]
        total += _fraction(fraction or "", UNITS[unit])
        at = part.end()
    if total >= LONGEST + (sign < 0):
        raise ValueError(f"time: invalid duration {_quoted(text)}")
    return sign * total


def _fraction(digits: str, unit: int) -> int:
    """The nanoseconds of a fraction, as Go reckons: as many digits as fit into 63 bits, then with floats."""
    value, scale = 0, 1.0
    for digit in digits:
        if value > (LONGEST - 1) // 10 or value * 10 + int(digit) > LONGEST:
            break
        value, scale = value * 10 + int(digit), scale * 10
    return int(float(value) * (float(unit) / scale))


def _decimal(nanos: int, unit: int) -> str:
    whole, rest = divmod(nanos, unit)
    if not rest:
        return str(whole)
    digits = str(rest).rjust(len(str(unit)) - 1, "0").rstrip("0")
    return f"{whole}.{digits}"


def _quoted(text: str) -> str:
    """As Go's package `time` quotes: bytes beyond ASCII by their number."""
    return '"' + "".join(_escaped(letter) for letter in text) + '"'


def _escaped(letter: str) -> str:
    if letter in '"\\':
        return f"\\{letter}"
    if " " <= letter < "\x80":
        return letter
    return "".join(f"\\x{byte:02x}" for byte in letter.encode(errors="surrogatepass"))
