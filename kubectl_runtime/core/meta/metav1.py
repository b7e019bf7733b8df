"""The parts that all Kubernetes objects share: object and list metadata, owner references, conditions, label selectors.

- Times are aware `datetime` values. Every field may be absent; where the wire has `null`, the field has its default.
- `OwnerReference` and `Condition` are immutable: to change one, replace it. `ObjectMeta` is a mutable view.
- `EditableMap`: labels or annotations of an object; the first change copies them into the object's own metadata.
  `ReadOnlyMap`: labels or annotations of a partial object. `ReadOnlyDict`, `ReadOnlyList`: values that several readers
  or objects share. Their errors name the value to change instead, unlike the errors of a `MappingProxyType`.
- `set_condition`: returns the conditions with one condition set; setting the same condition again changes nothing.
- `GoDuration`: durations in Go's notation (`metav1.Duration`, flags, leases), such as `1h30m`, `-1.5s`, `250ms`. The
  grammar is that of Go's `time.ParseDuration`: a sign, then numbers with a fraction and a unit (`ns`, `us`, `µs`, `ms`,
  `s`, `m`, `h`), or a bare `0`. Values are exact to the nanosecond; smaller fractions are cut off, and values beyond 64
  bits are refused.
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

from kubectl_runtime.core.base.errors import RequestError, UnknownFieldError, class_named, did_you_mean
from kubectl_runtime.core.base.guard import failed_attribute
from kubectl_runtime.core.base.plain import Omit, to_plain
from kubectl_runtime.core.base.threads import SYSTEM_CLOCK
from kubectl_runtime.core.base.wire import MapKeys, TextValue, camel, converted, pydantic_schema

_made: Any = msgspec.StructMeta.__call__
_set: Any = msgspec.Struct.__setattr__
"""Bound once, because `super()` would look up the method for each part that is made and each field that is set."""


class _PartType(msgspec.StructMeta):
    """Suggests a field name when a part is made with an unknown field."""

    if not TYPE_CHECKING:  # type checkers know the fields

        def __new__(mcs, name, bases, namespace, **options):
            if "__slots__" in namespace:  # made by msgspec.defstruct, without the defaults of its fields
                raise TypeError(f"{name}: a part must be made by a class statement (or types.new_class), not "
                                "by defstruct")
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


WIRE_KEYS = ": attributes are snake_case; only the keys of plain values are camelCase"


class _Hinting:
    """Suggests a field name when an unknown field of a part is read or set."""

    __slots__ = ()

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            if name.startswith("__"):  # looked up by Python itself
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
    """The base class of typed parts of objects, such as a PodSpec. Fields that a part does not declare stay in the
    object.

    Fields are snake_case here and camelCase on the wire. All fields have defaults; fields that equal their default are
    not sent.

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
    """The base class of small immutable parts of objects, such as owner references.

    >>> class Toleration(FrozenPart, frozen=True):
    ...     key: str = ""
    >>> Toleration(key="gpu").key
    'gpu'
    """


class OwnerReference(FrozenPart, frozen=True, gc=False):
    """The owner of an object; `uid` distinguishes the owner from a later object of the same name.

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
        """The owner's API group. Group and kind identify the owner's type; the version is ignored."""
        return self.api_version.rpartition("/")[0]


STATUSES = ("True", "False", "Unknown")
"""The values of a condition's status."""
CONDITION_LIMITS = {"type": 316, "reason": 1024, "message": 32768}
"""The most characters that the API allows in each text of a condition."""
CONDITION_TYPE = (r"([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
                  r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])")
CONDITION_REASON = r"([A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?)?"
"""The texts that the API allows as a condition's type and reason. The reason may be empty here; the schemas of some
kinds refuse an empty reason."""


def check_status(kind: object, status: object) -> None:
    """Raise RequestError if `status` is not a condition's status, for example a bool. `kind`: the condition's type."""
    if not isinstance(status, str) or status not in STATUSES:
        raise RequestError(f'Condition {kind}: status must be the text "True", "False" or "Unknown", not {status!r}')


def check_condition(condition: Condition, before: Mapping[str, Any]) -> None:
    """Raise RequestError for a wrong status, and for a text that metav1.Condition does not allow. A text of the stored
    entry `before` may stay."""
    check_status(condition.type, condition.status)
    for name, text in (("type", condition.type), ("reason", condition.reason), ("message", condition.message)):
        if not isinstance(text, str):
            raise RequestError(f"Condition {condition.type}: {name} must be a text, not {class_named(text)}")
        if len(text) > CONDITION_LIMITS[name] and text != before.get(name):
            raise RequestError(f"Condition {condition.type[:64]}: {name} has {len(text)} characters; servers accept "
                               f"{CONDITION_LIMITS[name]}")
    if re.fullmatch(CONDITION_TYPE, condition.type) is None and condition.type != before.get("type"):
        raise RequestError(f"Condition {condition.type!r}: type must be a word such as Ready, or a name in a domain "
                           "such as example.com/Synced")
    if re.fullmatch(CONDITION_REASON, condition.reason) is None and condition.reason != before.get("reason"):
        raise RequestError(f"Condition {condition.type}: reason must be one word such as BackupFailed, not "
                           f"{condition.reason!r}; sentences belong into message")


class _ConditionType(_PartType):
    """Refuses a bool as a status, which is a common mistake. Any text is accepted here, because it may come from a
    server or from a copy of an object; `set_condition` checks the texts. Decoding does not call this check."""

    if not TYPE_CHECKING:

        def __call__(cls, *args, **fields):
            if not isinstance(fields.get("status", ""), str):
                check_status(fields.get("type", ""), fields["status"])
            return super().__call__(*args, **fields)


class Condition(FrozenPart, frozen=True, metaclass=_ConditionType):
    """One entry of `status.conditions`; `status` is `True`, `False` or `Unknown`, as text. The constructor raises
    RequestError for a bool. `ctx.report` and `set_condition` also raise it for any other status, and for a type, reason
    or message that servers refuse: a reason is one word such as `BackupFailed`.

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
    """A label selector as in objects; `Selector.from_label_selector` makes a selector that can match and render.

    >>> LabelSelector(match_labels={"app": "web"}).match_labels
    {'app': 'web'}
    """

    match_labels: dict[str, str] | None = None
    match_expressions: list[LabelSelectorRequirement] | None = None


class ObjectMeta(Part):
    """The `metadata` of an object. Changes affect only this copy of the object, never a store: `replace` sends them to
    the server.

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
    """The `metadata` of a template in an object: a Deployment's Pod template, a CronJob's Job template.

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
    """The `metadata` of a list: its resourceVersion, and the continue token of its next page (empty on the last page).

    >>> Api.all(client, ConfigMap).list(ListParams(limit=1)).metadata.resource_version != ""
    True
    """

    resource_version: str | None = None
    continue_token: str | None = msgspec.field(name="continue", default=None)
    remaining_item_count: int | None = None


def parse_time(text: str) -> datetime:
    """The time in an RFC 3339 text, with or without a fraction. Raises ValueError for any other text, including a time
    without a time zone."""
    try:
        moment = msgspec.convert(text, datetime)
        if moment.tzinfo is not None:
            return moment.astimezone(UTC)
    except (msgspec.ValidationError, OverflowError):  # in old versions of msgspec, ValidationError is no ValueError
        pass
    raise ValueError(f"not an RFC3339 time with a zone: {str(text)[:64]!r}")


def format_time(moment: datetime) -> str:
    """`moment` in the form of the API's `Time`: UTC, whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro_time(moment: datetime) -> str:
    """`moment` in the form that the API requires for `MicroTime` (leases, events): UTC, six digits of fraction."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class MapView(Mapping[str, str]):
    """A view of `content`, equal to a dict with the same items. `dict(view)` is a copy."""

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
        """A new dict."""
        return dict(self._content)

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, str]:
        return self.copy()

    def __reduce__(self) -> tuple[type[dict[str, str]], tuple[dict[str, str]]]:
        return dict, (self.copy(),)


class ReadOnlyMap(MapView):
    """A view that raises TypeError for every change and says what to do instead. As thread-safe as the underlying dict.
    """

    __slots__ = ()

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        """Raise TypeError, which says what to change instead."""
        raise TypeError("the labels and annotations of an object are read-only here: change obj.metadata.labels or "
                        "obj.metadata.annotations and write the object, or change a copy, such as dict(obj.labels)")

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse


class HasMetadata(Protocol):
    """An object with changeable metadata."""

    @property
    def metadata(self) -> ObjectMeta:
        """The mutable view of the metadata."""


class EditableMap(MapView, MutableMapping[str, str]):
    """The labels or annotations of an object. Reading uses the received values without a copy. The first change copies
    them into the object's own `metadata`; the object in a store never changes. For one thread at a time, like the
    object."""

    __slots__ = ("_key", "_owner")

    def __init__(self, content: Mapping[str, str], owner: HasMetadata, key: str) -> None:
        """`content` is copied at the first change; `key`: `labels` or `annotations`."""
        self._content = content
        self._owner = owner
        self._key = key

    def _own(self) -> dict[str, str]:
        """The map in the object's own metadata, which this view reads from then on."""
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

    def __ior__(self, other: Any) -> Self:  # type: ignore[override, misc]  # `|` returns a dict, but `|=` this view
        self._own().update(other)
        return self


class ReadOnlyDict(dict[Any, Any]):
    """A dict that raises TypeError for every change and says what to do instead. Its copies and pickles are plain
    dicts. Thread-safe."""

    __slots__ = ()

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[Any, Any]:
        return copy.deepcopy(dict(self), memo)

    __copy__ = dict.copy

    def __reduce__(self) -> tuple[type[dict[Any, Any]], tuple[dict[Any, Any]]]:
        return dict, (self.copy(),)

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        """Raise TypeError, which says what to change instead."""
        raise TypeError("stored objects are shared and read-only: change a copy, such as dict(obj.labels), "
                        "and patch the object")

    if not TYPE_CHECKING:
        __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse


class ReadOnlyList(list[Any]):
    """A list that raises TypeError for every change and says what to do instead. Its copies and pickles are plain
    lists. Thread-safe."""

    __slots__ = ()

    def __deepcopy__(self, memo: dict[int, Any]) -> list[Any]:
        return copy.deepcopy(list(self), memo)

    __copy__ = list.copy

    def __reduce__(self) -> tuple[type[list[Any]], tuple[list[Any]]]:
        return list, (self.copy(),)

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        """Raise TypeError, which says what to change instead."""
        raise TypeError("stored objects are shared and read-only: change a copy, such as list(view.items), "
                        "and patch the object")

    if not TYPE_CHECKING:
        __setitem__ = __delitem__ = __iadd__ = __imul__ = append = clear = extend = insert = pop = remove = _refuse
        reverse = sort = _refuse


def set_condition(
    conditions: Iterable[Condition | Mapping[str, Any]] | None, condition: Condition, *, now: datetime | None = None
) -> list[dict[str, Any]]:
    """Return the conditions as JSON values to write: `condition` replaces the condition of its type, or is appended if
    there is none. The given list does not change: a call whose result is dropped has no effect, which type checkers can
    report (pyright's `reportUnusedCallResult`).

    `conditions` may also be JSON values: the conditions of a DynamicObject, or the result of an earlier call.
    `last_transition_time` becomes `now` (by default the system's time; in whole seconds) only when `status` changes, as
    Kubernetes' API conventions require. A reconcile that finds the same state therefore produces the same list, and
    writing that list by server-side apply changes nothing. Raises RequestError for a status other than True, False and
    Unknown, and for a new type, reason or message that metav1.Condition does not allow.

    >>> [ready] = set_condition([], Condition(type="Ready", status="True", reason="Served"))
    >>> ready["type"], ready["status"]
    ('Ready', 'True')
    """
    values = [_plain(entry) for entry in conditions or ()]
    at = next((index for index, entry in enumerate(values) if entry.get("type") == condition.type), len(values))
    before = values[at] if at < len(values) else {}
    check_condition(condition, before)
    moment = (before.get("status") == condition.status and _changed(before)) or now or SYSTEM_CLOCK.now()
    placed = _plain(msgspec.structs.replace(condition, last_transition_time=moment.replace(microsecond=0)))
    placed = {"reason": "", "message": "", **placed}  # custom kinds may require them, even if empty
    return [*values[:at], placed, *values[at + 1:]]


def _changed(entry: dict[str, Any]) -> datetime | None:
    """When the status of an entry changed; None when the entry has no readable time."""
    known = {key: entry[key] for key in ("type", "status", "lastTransitionTime") if key in entry}
    try:
        return converted(known, Condition).last_transition_time
    except msgspec.ValidationError:  # another program wrote the entry; the kind's schema does not require a time
        return None


def _plain(entry: Condition | Mapping[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = dict(entry) if isinstance(entry, Mapping) else msgspec.to_builtins(entry)
    return plain


UNITS = {"ns": 1, "us": 10**3, "\u00b5s": 10**3, "\u03bcs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9,
         "h": 3600 * 10**9}
"""Nanoseconds of each unit. Both the micro sign and the Greek letter mu are accepted."""
LONGEST = 2**63
"""Nanoseconds: a duration must be shorter. The negative duration of this length is still valid."""

_MOST_DIGITS = 19
"""The maximum number of digits of a whole number that fits into 63 bits."""
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
        """From text in Go's notation, or nanoseconds. Raises RequestError for anything else."""
        if type(span) is not int:
            span = GoDuration.parse(span).nanoseconds  # type: ignore[arg-type] # parse refuses other types
        self._nanoseconds = span

    @property
    def nanoseconds(self) -> int:
        """The length in nanoseconds, exactly."""
        return self._nanoseconds

    @classmethod
    def parse(cls, text: str) -> GoDuration:
        """The duration in a text in Go's notation, such as `1h30m`. Raises RequestError with the message of Go's
        parser."""
        if not isinstance(text, str):
            raise RequestError(f"{text!r} is not a duration: give text such as '1h30m', '1.5s' or '250ms'")
        try:
            return cls(nanoseconds_of(text))
        except ValueError as error:
            raise RequestError(f"{error}: a duration has a form such as '1h30m', '1.5s' or '250ms'") from None

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
        """The length as a timedelta; fractions of a microsecond are cut off."""
        micro = abs(self.nanoseconds) // 1000
        return timedelta(microseconds=-micro if self.nanoseconds < 0 else micro)

    def __eq__(self, other: object) -> bool:
        return self._nanoseconds == other.nanoseconds if isinstance(other, GoDuration) else NotImplemented

    def __lt__(self, other: GoDuration) -> bool:
        return self._nanoseconds < other.nanoseconds if isinstance(other, GoDuration) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._nanoseconds)

    def __str__(self) -> str:
        """In Go's form: hours, minutes and seconds; below a second, one number in the largest unit that fits."""
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
    """The length of the duration in a text. Raises ValueError with the message of Go's parser."""
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
    """The nanoseconds of a fraction, computed as in Go: as many digits as fit into 63 bits, then with floats."""
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
    """Text quoted as by Go's package `time`: non-ASCII bytes by number."""
    return '"' + "".join(_escaped(letter) for letter in text) + '"'


def _escaped(letter: str) -> str:
    if letter in '"\\':
        return f"\\{letter}"
    if " " <= letter < "\x80":
        return letter
    return "".join(f"\\x{byte:02x}" for byte in letter.encode(errors="surrogatepass"))
