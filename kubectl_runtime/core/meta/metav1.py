"""The parts that all Kubernetes objects share: object and list metadata, owner references, conditions, label selectors.

Times are aware `datetime` values. Every field may be absent; where the wire has `null`, the field's default stands.
`OwnerReference` and `Condition` are immutable values: replace them, do not change them. `ObjectMeta` is a mutable view.
"""
from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.nearest import did_you_mean
from kubectl_runtime.core.base.wire import MapKeys, camel

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
                        raise TypeError(_unknown(cls, name)) from None
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
            raise AttributeError(_unknown(type(self), name))


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
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: Annotated[list[OwnerReference] | None, MapKeys("uid")] = None
    finalizers: list[str] | None = None
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
