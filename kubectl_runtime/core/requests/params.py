"""Options of the verbs, patches and request bodies: immutable values that are checked when they are made.

`None` always means "not sent": the server decides. Durations are seconds or `timedelta`. Verbs take the options as
keywords, or as one of these values, not both (`chosen`). A body may be a dict, a resource object or an official model.
Its apiVersion and kind must agree with the request; if they are absent, they are filled in.
"""
from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Literal, Protocol, Self, TypeAlias, TypeVar

import msgspec
from msgspec.structs import force_setattr, replace

from kubectl_runtime.core.base.errors import PartialObjectError, RequestError
from kubectl_runtime.core.base.threads import Duration, seconds
from kubectl_runtime.core.codec.jsonbytes import identified
from kubectl_runtime.core.meta.gvk import ApiResource
from kubectl_runtime.core.meta.models import from_model, is_model
from kubectl_runtime.core.meta.selectors import (
    FieldSelection,
    LabelSelection,
    ShardSelector,
    field_selection,
    label_selection,
)
from kubectl_runtime.core.objects.partial import DynamicObject, is_partial
from kubectl_runtime.core.objects.resource import Resource

Query = Iterator[tuple[str, str]]


class Selecting(Protocol):
    """Parameters with a label selector, a field selector and ranges of shards."""

    @property
    def label_selector(self) -> LabelSelection | None:
        """A selection by labels; None selects all."""

    @property
    def field_selector(self) -> FieldSelection | None:
        """A selection by fields; None selects all."""

    @property
    def shard(self) -> ShardSelector | None:
        """The hash ranges that the objects must be in; None selects all."""


def keep_selections(params: Selecting) -> None:
    """For `__post_init__` of a frozen Struct or dataclass: replace the selectors in `params` with forms that are
    immutable, hashable and comparable by content. Raises RequestError for anything that is not a selector."""
    keep: Any = force_setattr if isinstance(params, msgspec.Struct) else object.__setattr__
    keep(params, "label_selector", label_selection(params.label_selector))
    keep(params, "field_selector", field_selection(params.field_selector))
    if params.shard is not None and not isinstance(params.shard, ShardSelector):
        raise RequestError(f"shard={params.shard!r}: a ShardSelector is expected, such as "
                           'ShardSelector.part("uid", 0, 16)')


def selection_query(params: Selecting) -> Query:
    """The query parameters for the selectors."""
    if text := str(params.label_selector or ""):
        yield "labelSelector", text
    if text := str(params.field_selector or ""):
        yield "fieldSelector", text
    if params.shard is not None:
        yield "shardSelector", str(params.shard)


def timeout_query(timeout: Duration | None) -> Query:
    """The query parameter for the server's timeout, in whole seconds."""
    if timeout is not None:
        yield "timeoutSeconds", str(max(1, round(seconds(timeout))))


def writing_query(dry_run: bool, field_manager: str | None, field_validation: str | None) -> Query:
    """The query parameters that all writing verbs share."""
    if dry_run:
        yield "dryRun", "All"
    if field_manager:
        yield "fieldManager", field_manager
    if field_validation:
        yield "fieldValidation", field_validation


def check_timeout(timeout: Duration | None) -> None:
    """Raise RequestError for a timeout that is not positive; None leaves the timeout to the server."""
    if timeout is not None and seconds(timeout) <= 0:
        raise RequestError(f"timeout={timeout} must be positive; None leaves the timeout to the server")


def check_version(version: str | None, match: str | None) -> None:
    """Raise RequestError for a resource_version and a resource_version_match that cannot be combined."""
    check_choice("resource_version_match", match, ("NotOlderThan", "Exact"))
    if match is not None and not version:
        raise RequestError(f"resource_version_match={match!r} needs a resource_version")
    if match == "Exact" and version == "0":
        raise RequestError('resource_version "0" means any version, which cannot be matched exactly')


LONGEST_MANAGER = 128
"""The maximum length of a field manager's name."""


def check_manager(field_manager: str | None) -> None:
    """Raise RequestError for a name that the server would refuse as a field manager."""
    if field_manager is None:
        return
    if not isinstance(field_manager, str):
        raise RequestError(f"field_manager={field_manager!r}: a name is expected, as text")
    if len(field_manager) > LONGEST_MANAGER:
        raise RequestError(f"field_manager has {len(field_manager)} characters: at most {LONGEST_MANAGER} are allowed")
    if not field_manager.isprintable():
        raise RequestError("field_manager has characters that cannot be printed")


def check_flag(name: str, value: object) -> None:
    """Raise RequestError for a value other than True and False: text such as "false" would count as true."""
    if not isinstance(value, bool):
        raise RequestError(f"{name} must be True or False, not {value!r}")


def check_flags(options: object, *names: str) -> None:
    """Like `check_flag`, for these attributes of `options`."""
    for name in names:
        check_flag(name, getattr(options, name))


def check_choice(name: str, value: str | None, choices: tuple[str, ...]) -> None:
    """Raise RequestError, naming the choices, for a value that is not one of them."""
    if value is not None and value not in choices:
        raise RequestError(f"{name}={value!r}: choose one of {', '.join(choices)}")


IDLE_MARGIN = 5.0
"""If a watch is silent for this many seconds beyond its timeout, the connection is dead (5 s as in kube-rs)."""

VersionMatch = Literal["NotOlderThan", "Exact"]
Propagation = Literal["Background", "Foreground", "Orphan"]
FieldValidation = Literal["Strict", "Warn", "Ignore"]


class GetParams(msgspec.Struct, frozen=True):
    """Options of `Api.get`: the freshness of the answer.

    `resource_version` "0" accepts any version, from the server's cache. By default the most recent version is read.

    >>> Api.namespaced(client, ConfigMap, "default").get("settings", GetParams(resource_version="0")).name
    'settings'
    """

    resource_version: str | None = None

    def query(self) -> Query:
        """The parameters of the request, as the API server names them."""
        if self.resource_version is not None:
            yield "resourceVersion", self.resource_version


class ListParams(msgspec.Struct, frozen=True, kw_only=True):
    """Options of `Api.list`: which objects to list, how many at once, and how fresh the list must be.

    `label_selector` and `field_selector`: text, a mapping, or a `Selector`. `limit`: objects per page;
    `continue_token`: where the page begins. `shard`: only objects in these hash ranges; a server without the feature
    gate ShardedListAndWatch sends the other objects too, and `Api.list` leaves them out. The defaults list everything,
    at the most recent version.

    >>> maps = Api.namespaced(client, ConfigMap, "default")
    >>> [each.name for each in maps.list(ListParams(label_selector={"app": "web"}, limit=100))]
    ['settings']
    """

    label_selector: LabelSelection | None = None
    field_selector: FieldSelection | None = None
    limit: int | None = None
    """Objects per page. Not sent with resourceVersion "0": the server's cache cannot page, and a server that pages does
    not use its cache."""
    continue_token: str | None = None
    timeout: Duration | None = None
    resource_version: str | None = None
    resource_version_match: VersionMatch | None = None
    shard: ShardSelector | None = None

    def __post_init__(self) -> None:
        keep_selections(self)
        check_timeout(self.timeout)
        if self.limit is not None and (type(self.limit) is not int or self.limit <= 0):
            raise RequestError(f"limit={self.limit!r}: a page holds at least one object; None lists all at once")
        check_version(self.resource_version, self.resource_version_match)

    def at(self, resource_version: str) -> Self:
        """The same list at exactly this version, as long as the server has it."""
        return replace(self, resource_version=resource_version, resource_version_match="Exact")

    def match_any(self) -> Self:
        """The same list at any version, from the server's cache: cheap, but possibly old."""
        return replace(self, resource_version="0", resource_version_match="NotOlderThan")

    def page(self, continue_token: str) -> Self:
        """The next page: the page that follows the answer with this `continue_token`."""
        return replace(self, continue_token=continue_token)

    def query(self) -> Query:
        """The parameters of the request, as the API server names them."""
        yield from selection_query(self)
        yield from timeout_query(self.timeout)
        if self.limit is not None and (self.continue_token or self.resource_version != "0"):
            yield "limit", str(self.limit)
        if self.continue_token:  # the token contains a version; sending another version is an error
            yield "continue", self.continue_token
            return
        if self.resource_version is not None:
            yield "resourceVersion", self.resource_version
        if self.resource_version_match is not None:
            yield "resourceVersionMatch", self.resource_version_match


class WatchParams(msgspec.Struct, frozen=True, kw_only=True):
    """Options of `Api.watch`: which objects, and for how many seconds the server keeps the watch open.

    `timeout` may have any length; a watcher uses random timeouts of 232 to 290 s. `bookmarks` requests events without
    an object, about once a minute, with a version from which a later watch can continue. By default bookmarks are
    requested only with `send_initial_events`, where a bookmark marks the end of the initial events. `shard`: as in
    `ListParams`.

    >>> events = Api.namespaced(client, ConfigMap, "default").watch(WatchParams(timeout=1))
    >>> [event.obj.name for event in events if event.obj is not None]
    ['settings']
    """

    label_selector: LabelSelection | None = None
    field_selector: FieldSelection | None = None
    timeout: Duration | None = None
    bookmarks: bool | None = None
    send_initial_events: bool = False
    shard: ShardSelector | None = None

    def __post_init__(self) -> None:
        keep_selections(self)
        check_timeout(self.timeout)
        check_flags(self, "send_initial_events", *(("bookmarks",) if self.bookmarks is not None else ()))
        if self.send_initial_events and self.bookmarks is False:
            raise RequestError("send_initial_events needs bookmarks: a bookmark marks the end of the initial events")

    @property
    def with_bookmarks(self) -> bool:
        """Whether bookmarks are requested."""
        return bool(self.bookmarks) or self.send_initial_events

    def query(self) -> Query:
        """The parameters of the request, as the API server names them."""
        yield from selection_query(self)
        yield from timeout_query(self.timeout)
        if self.with_bookmarks:
            yield "allowWatchBookmarks", "true"
        if self.send_initial_events:
            yield "sendInitialEvents", "true"
            yield "resourceVersionMatch", "NotOlderThan"


class PostParams(msgspec.Struct, frozen=True, kw_only=True):
    """Options of `Api.create` and `Api.replace`. `dry_run`: the server checks and answers, but stores nothing.

    `field_manager`: the owner of the written fields; `field_validation`: the treatment of unknown fields. The same
    options may be given to the verb as keywords.

    >>> maps = Api.namespaced(client, ConfigMap, "default")
    >>> maps.create(ConfigMap(name="tried"), PostParams(dry_run=True)).name
    'tried'
    >>> maps.get_opt("tried") is None
    True
    """

    dry_run: bool = False
    field_manager: str | None = None
    field_validation: FieldValidation | None = None

    def __post_init__(self) -> None:
        check_flag("dry_run", self.dry_run)
        check_manager(self.field_manager)
        check_choice("field_validation", self.field_validation, ("Strict", "Warn", "Ignore"))

    def query(self) -> Query:
        """The parameters of the request, as the API server names them."""
        yield from writing_query(self.dry_run, self.field_manager, self.field_validation)


class PatchParams(msgspec.Struct, frozen=True, kw_only=True):
    """Options of `Api.patch`. `force` takes fields from other managers; it is only for server-side apply.

    `dry_run`: the server checks and answers, but stores nothing. `field_manager`: the owner of the written fields;
    `field_validation`: the treatment of unknown fields. The same options may be given to the verb as keywords.

    >>> params = PatchParams(dry_run=True, field_manager="me")
    >>> maps = Api.namespaced(client, ConfigMap, "default")
    >>> maps.patch("settings", Patch.merge({"data": {"color": "red"}}), params).data["color"]
    'red'
    >>> maps.get("settings").data["color"]
    'blue'
    """

    dry_run: bool = False
    force: bool = False
    field_manager: str | None = None
    field_validation: FieldValidation | None = None

    def __post_init__(self) -> None:
        check_flag("dry_run", self.dry_run)
        check_flag("force", self.force)
        check_manager(self.field_manager)
        check_choice("field_validation", self.field_validation, ("Strict", "Warn", "Ignore"))

    @classmethod
    def apply(cls, field_manager: str) -> PatchParams:
        """Parameters for server-side apply, under this field manager's name."""
        if not field_manager:
            raise RequestError("server-side apply needs a field manager: the name of the owner of the applied fields")
        return cls(field_manager=field_manager)

    def forced(self) -> Self:
        """The same parameters with `force`: fields of other managers are taken over."""
        return replace(self, force=True)

    def query(self) -> Query:
        """The parameters of the request, as the API server names them."""
        yield from writing_query(self.dry_run, self.field_manager, self.field_validation)
        if self.force:
            yield "force", "true"


class Preconditions(msgspec.Struct, frozen=True):
    """Conditions of a deletion: the object must still have the uid and the resourceVersion that are set here. Otherwise
    the server answers with a conflict.

    >>> maps = Api.namespaced(client, ConfigMap, "default")
    >>> seen = maps.get("settings")
    >>> _ = maps.delete("settings", preconditions=Preconditions(uid=seen.uid))
    """

    uid: str | None = None
    resource_version: str | None = None


class DeleteParams(msgspec.Struct, frozen=True, kw_only=True):
    """Options of `Api.delete`: how dependents are treated, how long a Pod may take to terminate, and preconditions.

    `grace_period_seconds` 0 deletes at once; None uses the kind's default. `propagation_policy`: `Background`,
    `Foreground` or `Orphan`. The same options may be given to the verb as keywords.

    >>> params = DeleteParams(propagation_policy="Foreground")
    >>> _ = Api.namespaced(client, Deployment, "default").delete("web", params)
    """

    dry_run: bool = False
    grace_period_seconds: int | None = None
    propagation_policy: Propagation | None = None
    preconditions: Preconditions | None = None

    def __post_init__(self) -> None:
        check_choice("propagation_policy", self.propagation_policy, ("Background", "Foreground", "Orphan"))
        check_flag("dry_run", self.dry_run)
        grace: Any = self.grace_period_seconds
        if grace is not None and (type(grace) is not int or grace < 0):
            raise RequestError(f"grace_period_seconds={grace!r}: whole seconds are expected, 0 or more")
        if self.preconditions is not None and not isinstance(self.preconditions, Preconditions):
            raise RequestError("preconditions= takes Preconditions(uid=…, resource_version=…), "
                               f"not {type(self.preconditions).__name__}")

    @classmethod
    def background(cls) -> DeleteParams:
        """Delete the object first, its dependents afterwards, in the background."""
        return cls(propagation_policy="Background")

    @classmethod
    def foreground(cls) -> DeleteParams:
        """Delete the object only after the dependents that block their owner's deletion."""
        return cls(propagation_policy="Foreground")

    @classmethod
    def orphan(cls) -> DeleteParams:
        """Delete only the object: its dependents remain, without this owner."""
        return cls(propagation_policy="Orphan")

    def body(self) -> dict[str, object]:
        """The fields of the request's `DeleteOptions`; empty when all options have their defaults."""
        options: dict[str, object] = {}
        if self.dry_run:
            options["dryRun"] = ["All"]
        if self.grace_period_seconds is not None:
            options["gracePeriodSeconds"] = self.grace_period_seconds
        if self.propagation_policy is not None:
            options["propagationPolicy"] = self.propagation_policy
        if self.preconditions is not None:
            wanted = {"uid": self.preconditions.uid, "resourceVersion": self.preconditions.resource_version}
            options["preconditions"] = {key: value for key, value in wanted.items() if value is not None}
        return options


class WriteDefaults(msgspec.Struct, frozen=True, kw_only=True):
    """A client's defaults for writes that do not set these options: `Client(field_manager=…, field_validation=…,
    dry_run=…)`.

    With `dry_run` every write is a dry run: no verb can undo that. Raises RequestError for values that a server would
    refuse.
    """

    field_manager: str | None = None
    field_validation: FieldValidation | None = None
    dry_run: bool = False

    def __post_init__(self) -> None:
        check_flag("dry_run", self.dry_run)
        check_manager(self.field_manager)
        check_choice("field_validation", self.field_validation, ("Strict", "Warn", "Ignore"))

    def completed(self, params: P, manager: str | None) -> P:
        """`params` of a write, completed by these defaults. `manager`, the field manager of the controller's run, takes
        precedence over the client's."""
        given: Any = params
        changes: dict[str, Any] = {}
        if self.dry_run and not given.dry_run:
            changes["dry_run"] = True
        if not isinstance(given, DeleteParams):
            if (manager := manager or self.field_manager) is not None and given.field_manager is None:
                changes["field_manager"] = manager
            if self.field_validation is not None and given.field_validation is None:
                changes["field_validation"] = self.field_validation
        return replace(given, **changes) if changes else params


P = TypeVar("P")


def chosen(given: P | None, kind: type[P], called: str = "params", /, **keywords: Any) -> P:
    """The options of a verb: `given`, or a `kind` made of the keywords (None and False mean not set), or the defaults.
    `called`: the name of the argument `given`, for messages.

    Raises RequestError when `given` and keywords are both set, when `given` is not a `kind`, and when `kind` refuses
    the keywords.
    """
    said = {name: value for name, value in keywords.items() if value is not None and value is not False}
    return chosen_of_said(given, kind, said, called) if said else params_or_default(given, kind)


def chosen_of_said(given: P | None, kind: type[P], keywords: Mapping[str, Any], called: str = "params") -> P:
    """Like `chosen`, but a keyword may be set to False: only None means not set."""
    said = {name: value for name, value in keywords.items() if value is not None}
    if not said:
        return params_or_default(given, kind)
    if given is not None:
        raise RequestError(f"{called}= and {', '.join(f'{name}=' for name in said)} are both given: put the options "
                           f"all into {kind.__name__}(…), or all into keywords")
    return kind(**said)


def params_or_default(given: P | None, kind: type[P]) -> P:
    """The given parameters, or the defaults for None. Raises RequestError for anything else, such as a namespace or a
    selector."""
    if given is None:
        default: P = _default(kind)  # type: ignore[arg-type] # classes are hashable
        return default
    if not isinstance(given, kind):
        raise RequestError(f"{kind.__name__}(…) is expected, not {given!r}")
    return given


@cache
def _default(kind: Any) -> Any:
    return kind()


APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
JSON = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


class Patch(msgspec.Struct, frozen=True):
    """A patch and its type, made by `Patch.apply`, `Patch.merge`, `Patch.json` or `Patch.strategic`.

    >>> maps = Api.namespaced(client, ConfigMap, "default")
    >>> maps.patch("settings", Patch.merge({"data": {"color": "red"}})).data["color"]
    'red'
    >>> maps.patch("settings", Patch.json([{"op": "remove", "path": pointer("data", "color")}])).data
    {}
    """

    content_type: str
    body: Any

    @classmethod
    def apply(cls, body: Any) -> Patch:
        """A server-side apply: the fields that the manager wants, as a dict, a resource object or an official model."""
        return cls(APPLY, body)

    @classmethod
    def merge(cls, body: Any) -> Patch:
        """A JSON merge patch (RFC 7386): maps merge, null removes, lists are replaced as a whole. Raises RequestError
        for a body that is text or a list, which would replace the whole object."""
        return cls(MERGE, _map_like(body, "merge"))

    @classmethod
    def json(cls, operations: Sequence[Mapping[str, Any]]) -> Patch:
        """A JSON patch (RFC 6902): a list of operations; the server carries out all of them or none. `test` checks a
        value. Raises RequestError for anything but a list of operations."""
        if isinstance(operations, str | bytes | Mapping) or not isinstance(operations, Sequence):
            raise RequestError("a JSON patch must be a list of operations such as "
                               "{'op': 'add', 'path': '/a', 'value': 1}")
        return cls(JSON, list(operations))

    @classmethod
    def strategic(cls, body: Any) -> Patch:
        """A strategic merge patch: lists merge by the keys of the built-in schemas; not for custom resources. Raises
        RequestError like `merge`."""
        return cls(STRATEGIC, _map_like(body, "strategic merge"))

    @property
    def is_apply(self) -> bool:
        """Whether the patch is a server-side apply."""
        return self.content_type == APPLY

    def __repr__(self) -> str:
        return f"<Patch {self.content_type}>"


def _map_like(body: Any, kind: str) -> Any:
    if body is None or isinstance(body, str | bytes | int | float | list | tuple):
        raise RequestError(f"a {kind} patch must be a map such as {{'metadata': {{'labels': {{...}}}}}}, or an object, "
                           f"not {type(body).__name__}")
    return body


def pointer(*segments: str | int) -> str:
    """A JSON pointer (RFC 6901), escaped: `pointer("metadata", "labels", "a/b")` is `/metadata/labels/a~1b`.

    >>> pointer("metadata", "labels", "a/b")
    '/metadata/labels/a~1b'
    """
    return "".join("/" + str(segment).replace("~", "~0").replace("/", "~1") for segment in segments)


K = TypeVar("K")


class Model(Protocol):
    """A model of the official client, recognized by its attributes."""

    openapi_types: Any
    attribute_map: Any

    def to_dict(self) -> Any:
        """The model as a dict whose keys are the names of its Python attributes, such as `api_version`."""


Body: TypeAlias = K | DynamicObject | Mapping[str, Any] | Model
"""The body of a write for the kind `K`: a typed or dynamic object of this kind, a dict, or an official model."""

_MODEL = r"V\d+(?:(?:alpha|beta)\d+)?([A-Z]\w*)"


def plain_body(body: Any, *, defaults: bool = True) -> dict[str, Any]:
    """`body` as plain JSON values under the wire's keys; the top-level dict is new. Raises RequestError for anything
    but a dict, a resource object or a model. Without `defaults` a resource object that this program created leaves out
    fields that equal their class's default."""
    if isinstance(body, Resource):
        return body.to_dict(defaults=defaults)
    if isinstance(body, Mapping):
        return dict(body)
    if is_model(body):
        found: dict[str, Any] = from_model(body)
        return found
    converted = body.to_dict() if hasattr(body, "to_dict") and not isinstance(body, type) else None
    if isinstance(converted, Mapping):
        return dict(converted)
    raise RequestError(f"{type(body).__name__} is not an object: "
                       "pass a resource object, a dict, or a model of the official client")


def is_checked(body: Any) -> bool:
    """Whether `plain_body` already refuses values that JSON cannot carry: true for an object that this program made."""
    return isinstance(body, Resource) and body.is_checked


def object_body(body: Any, resource: ApiResource, *, defaults: bool = True) -> dict[str, Any]:
    """`body` as an object of `resource`. Raises RequestError when `body` has another kind."""
    _check_model(body, resource)
    content = identified_as(plain_body(body, defaults=defaults), resource)
    metadata = content.get("metadata")
    if metadata is not None and not isinstance(metadata, Mapping):
        raise RequestError(f"the metadata of the body (a {resource.kind}) must be a map such as {{'name': 'a'}}")
    return content


def whole_body(body: Any, resource: ApiResource) -> dict[str, Any]:
    """Like `object_body`, for `replace`: raises PartialObjectError for a partial object."""
    if is_partial(body):
        raise PartialObjectError(f"replace {resource.kind} {body.name}: only a part of the object was read, which "
                                 "cannot replace the whole object: use patch or apply, or get the whole object first")
    return object_body(body, resource)


def identified_as(content: dict[str, Any], resource: ApiResource) -> dict[str, Any]:
    """`content` with apiVersion and kind: they are filled in if absent, else they must agree with the request."""
    kind, api_version = content.get("kind"), content.get("apiVersion")
    if kind == "PartialObjectMetadata":
        return identified(content, resource)
    if kind and kind != resource.kind:
        raise RequestError(f"the body is a {kind}, but the request is for a {resource.kind}")
    if api_version and api_version != resource.api_version:
        raise RequestError(f"the body's apiVersion is {api_version}, but the request is for {resource.kind} "
                           f"in {resource.api_version}")
    return identified(content, resource)


def patch_body(patch: Patch, resource: ApiResource) -> Any:
    """The content of a merge, strategic or JSON patch, as plain JSON values."""
    if patch.content_type == JSON:
        return patch.body
    content = plain_body(patch.body)
    if isinstance(patch.body, Resource):
        identified_as(content, resource)
    return content


def apply_body(body: Any, resource: ApiResource, name: str | None, namespace: str | None, *,
               defaults: bool = False) -> dict[str, Any]:
    """An object for server-side apply: with apiVersion and kind, and without the fields that the server sets. By
    default `name` is the name in the body.

    managedFields must not be sent. The uid and resourceVersion of a received object are removed too, because an apply
    should set its fields in any version of the object. If the body contained the resourceVersion, the server would
    refuse the apply after a change of the object.
    """
    content = object_body(body, resource, defaults=defaults)
    held = content.get("metadata") or {}
    metadata = {key: value for key, value in held.items() if key not in _SERVERS_OWN}
    if name is None:
        name = held.get("name") or ""
    for key, wanted in (("name", name), ("namespace", namespace)):
        said = metadata.get(key)
        if said and said != wanted:
            raise RequestError(f"apply {resource.full_name} {name}: the body's {key} is {said!r}, not {wanted!r}")
        if wanted is not None:
            metadata[key] = wanted
    content["metadata"] = metadata
    return content


def _check_model(body: Any, resource: ApiResource) -> None:
    """Raise RequestError for an official model of another kind, judged by the model's class, since its `kind` is rarely
    set."""
    cls = type(body)
    found = re.fullmatch(_MODEL, cls.__name__) if cls.__module__.startswith("kubernetes.") else None
    if found is not None and found[1] != resource.kind:
        raise RequestError(f"the body is a {cls.__name__}, but the request is for a {resource.kind}")


_SERVERS_OWN = frozenset((
    "managedFields", "resourceVersion", "uid", "generation", "creationTimestamp", "deletionTimestamp",
    "deletionGracePeriodSeconds", "selfLink", "generateName"))
