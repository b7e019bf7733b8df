"""`Admission[Kind]`: a class that accepts, refuses or changes the objects of a kind in requests to the API server.

    class Quota(Admission[Pod], failure_policy="Fail"):
        def validate(self, request: AdmissionRequest[Pod]) -> None:          # raises Denied to refuse
            if len(request.object.spec.containers) > 5:
                raise Denied("at most 5 containers")

        def mutate(self, request: AdmissionRequest[Pod]) -> Pod | None:      # the changed object, or None
            request.object.labels["checked"] = "yes"
            return request.object

The server calls the methods that the class defines. One instance answers all requests, several at the same time, each
in a thread of the server. The class keywords are the fields of `WebhookOptions`. The webhook's configuration consists
of these keywords and of the rules derived from the kind. `AdmissionRequest[Kind]` is a request whose objects are
decoded as `Kind`.
"""
from __future__ import annotations

import re
import sys
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Protocol, TypeVar, cast

import msgspec

from kubectl_runtime.core.base.errors import KubeError, RequestError, StatusCause, did_you_mean
from kubectl_runtime.core.base.threads import Duration, seconds
from kubectl_runtime.core.base.wire import decoder_of
from kubectl_runtime.core.meta.gvk import ApiResource, GroupVersionKind, Scope
from kubectl_runtime.core.meta.problems import DECODE_FAILURES
from kubectl_runtime.core.meta.selectors import LabelSelection, Selector
from kubectl_runtime.core.objects import admission
from kubectl_runtime.core.objects.admission import UserInfo
from kubectl_runtime.core.objects.partial import dynamic
from kubectl_runtime.core.objects.resource import Resource

OPERATIONS = ("CREATE", "UPDATE", "DELETE", "CONNECT")
WITH_CONTENT = ("CREATE", "UPDATE")
"""Operations whose object a webhook can change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule of a webhook's configuration, which selects the requests that reach the webhook.

    `*` stands for all. `resources` may name subresources (`pods/status`, `pods/*`). `operations` defaults to the
    class's operations.

    >>> from kubectl_runtime import webhooks
    >>> class Audit(Admission[Pod], rules=(webhooks.Rule(groups=("",), resources=("pods", "pods/status")),)):
    ...     def validate(self, request: AdmissionRequest[Pod]) -> None:
    ...         print(request.operation, request.object.name)
    """

    groups: tuple[str, ...] = ("*",)
    versions: tuple[str, ...] = ("*",)
    resources: tuple[str, ...] = ("*",)
    operations: tuple[str, ...] | None = None
    scope: Literal["*", "Cluster", "Namespaced"] = "*"

    def __post_init__(self) -> None:
        for name in ("groups", "versions", "resources", "operations"):
            if isinstance(value := getattr(self, name), str):
                raise TypeError(f"Rule: {name}= must be a tuple, not a str; write {name}=({value!r},)")


@dataclass(frozen=True, slots=True)
class WebhookOptions:
    """The class keywords of an `Admission`. The API server sets its own default for a keyword that is None.

    `name`: the webhook's name, with at least two dots; by default `class.plural.group`. Without `rules`, one rule is
    derived from the kind and `subresources`. `operations` applies to each rule that sets no operations.
    `match_conditions`: CEL expressions by name; the webhook is called only if all are true. `timeout`: 1 to 30 whole
    seconds. `reinvocation` affects only `mutate`: with `IfNeeded` the server calls `mutate` again when a later webhook
    has changed the object.
    """

    name: str | None = None
    operations: tuple[str, ...] = WITH_CONTENT
    subresources: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()
    match_conditions: Mapping[str, str] = field(default_factory=dict)
    match_policy: Literal["Equivalent", "Exact"] | None = None
    failure_policy: Literal["Fail", "Ignore"] | None = None
    side_effects: Literal["None", "NoneOnDryRun"] = "None"
    timeout: Duration | None = None
    namespace_selector: LabelSelection | None = None
    object_selector: LabelSelection | None = None
    reinvocation: Literal["Never", "IfNeeded"] | None = None

    def rules_for(self, resource: ApiResource | None, operations: Iterable[str]) -> list[dict[str, Any]]:
        """The rules in the form of the configuration, limited to `operations`; empty if no operations remain."""
        allowed = tuple(operations)
        rules = self.rules
        if not rules and resource is not None:
            plurals = (resource.plural, *(f"{resource.plural}/{name}" for name in self.subresources))
            rules = (Rule(groups=(resource.group,), versions=(resource.version,), resources=plurals),)
        found = []
        for rule in rules:
            mine = self.operations if rule.operations is None else rule.operations
            kept = [one for one in mine if one in allowed] if "*" not in mine else list(allowed)
            if kept:
                # Write `scope` even if it is the server's default. Server-side apply compares the list of rules as one
                # value, so a field manager that omits the default conflicts with a field manager that owns the list.
                found.append({"apiGroups": list(rule.groups), "apiVersions": list(rule.versions), "operations": kept,
                              "resources": list(rule.resources), "scope": rule.scope})
        return found

    def to_dict(self, *, mutating: bool) -> dict[str, Any]:
        """The webhook's fields in the configuration, except name, clientConfig and rules."""
        said: dict[str, Any] = {
            "failurePolicy": self.failure_policy, "matchPolicy": self.match_policy,
            "namespaceSelector": _selector(self.namespace_selector), "objectSelector": _selector(self.object_selector),
            "sideEffects": self.side_effects,
            "timeoutSeconds": None if self.timeout is None else int(seconds(self.timeout)),
            "matchConditions": [{"name": name, "expression": text} for name, text in self.match_conditions.items()],
            "reinvocationPolicy": self.reinvocation if mutating else None}
        return {key: value for key, value in said.items() if value not in (None, [])}


OPTIONS = tuple(option.name for option in fields(WebhookOptions))
_CHOICES = {"match_policy": ("Equivalent", "Exact"), "failure_policy": ("Fail", "Ignore"),
            "side_effects": ("None", "NoneOnDryRun"), "reinvocation": ("Never", "IfNeeded")}
_LISTS = ("operations", "subresources", "rules")
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_CONDITION = re.compile(r"(?:[-A-Za-z0-9.]+/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


def options_of(cls: type, given: Mapping[str, Any], base: WebhookOptions) -> WebhookOptions:
    """Return the base class's options, overridden by the class keywords. Raises TypeError for values that the server
    would refuse, and for unknown keywords (the error names the nearest valid keyword)."""
    said = f"class {cls.__name__}"
    for name in given:
        if name not in OPTIONS:
            raise TypeError(f"{said}: a webhook has no keyword {name}={did_you_mean(name, OPTIONS)}; the keywords are "
                            f"{', '.join(OPTIONS)}")
    values = {name: getattr(base, name) for name in OPTIONS} | dict(given)
    for name in _LISTS:
        if isinstance(values[name], str):
            raise TypeError(f"{said}: {name}= must be a tuple, not a str; write {name}=({values[name]!r},)")
        values[name] = tuple(values[name])
    for name, known in _CHOICES.items():
        if values[name] is not None and values[name] not in known:
            raise TypeError(f"{said}: {name}={values[name]!r} is not one of {', '.join(known)}"
                            f"{did_you_mean(str(values[name]), known)}")
    found = WebhookOptions(**values)
    _check(said, found)
    return found


def _check(said: str, options: WebhookOptions) -> None:
    rules = [rule for rule in options.rules if isinstance(rule, Rule)]
    if len(rules) != len(options.rules):
        raise TypeError(f"{said}: rules= must contain Rule(groups=..., versions=..., resources=...)")
    for operation in (*options.operations, *(one for rule in rules for one in rule.operations or ())):
        if operation not in (*OPERATIONS, "*"):
            raise TypeError(f"{said}: {operation!r} is not an operation{did_you_mean(str(operation), OPERATIONS)}; "
                            f"the operations are {', '.join(OPERATIONS)}")
    if options.name is not None and not re.fullmatch(rf"{_LABEL}(\.{_LABEL}){{2,}}", options.name):
        raise TypeError(f"{said}: name={options.name!r} is not a webhook's name, which must be a domain name of at "
                        "least three parts, such as 'quota.shop.example.com'")
    if options.timeout is not None and not (1 <= seconds(options.timeout) <= 30
                                            and seconds(options.timeout).is_integer()):
        raise TypeError(f"{said}: timeout={options.timeout!r}: must be a whole number of seconds from 1 to 30")
    conditions: Any = options.match_conditions
    if not isinstance(conditions, Mapping):
        raise TypeError(f"{said}: match_conditions= must map names to CEL expressions: {{'no-system-users': "
                        "\"!request.userInfo.username.startsWith('system:')\"}")
    for name, text in conditions.items():
        if not isinstance(text, str) or not text.strip() or not isinstance(name, str) or not _CONDITION.fullmatch(name):
            raise TypeError(f"{said}: match_conditions= has {name!r}: {text!r}, which must be a valid condition "
                            "name and a CEL expression")
    for selection in (options.namespace_selector, options.object_selector):
        try:
            _selector(selection)
        except ValueError as error:
            raise TypeError(f"{said}: {error}") from None


def _selector(selection: LabelSelection | None) -> dict[str, Any] | None:
    if selection is None:
        return None
    plain: dict[str, Any] = msgspec.to_builtins(Selector.of(selection).to_label_selector())
    return plain


K = TypeVar("K", bound=Resource)
R = TypeVar("R", bound=Resource)

TOTAL, EACH = 4096, 256
"""The maximum number of characters in all warnings together, and in each warning if the first maximum is exceeded:
kube-apiserver's `truncateAtTotalRunes` and `truncateItemRunes`. The documentation of Kubernetes recommends at most 120
characters for a warning."""
_BREAKS = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


class AdmissionRequest(Generic[K]):
    """A request to an admission webhook: the typed `object` and `old`, and `operation`, `user` and `dry_run`.

    `warn(text)` adds a warning that kubectl shows. Only the thread that answers the request may use this object.
    `object` and `old` are copies and may be changed.

    >>> class Labels(Admission[ConfigMap]):
    ...     def mutate(self, request: AdmissionRequest[ConfigMap]) -> ConfigMap | None:
    ...         if request.operation != "CREATE":
    ...             return None
    ...         request.object.labels["made-by"] = request.user.username
    ...         return request.object
    """

    __slots__ = ("_audit", "_kind", "_object", "_old", "_review", "_warnings")

    def __init__(self, review: admission.AdmissionRequest, kind: type[K]) -> None:
        """`kind` decodes the objects; a class for all kinds (such as DynamicObject) decodes them as the review's
        kind."""
        self._review = review
        self._kind = kind
        self._object: K | None = None
        self._old: K | None = None
        self._warnings: list[str] = []
        self._audit: dict[str, str] = {}

    @property
    def review(self) -> admission.AdmissionRequest:
        """The request as received, with the fields that this class lacks: options, the kind and resource before a
        conversion."""
        return self._review

    @classmethod
    def of(cls, obj: K | None = None, *, old: K | None = None, user: str | UserInfo = "kubernetes-admin",
           dry_run: bool = False, sub_resource: str = "") -> AdmissionRequest[K]:
        """Make a request as the API server would send it, for tests. With only `obj` the request is a CREATE, with only
        `old` a DELETE, with both an UPDATE. Raises RequestError if both are missing."""
        shown = obj if obj is not None else old
        if shown is None:
            raise RequestError("a request needs an object: AdmissionRequest.of(obj), of(obj, old=...) or of(old=...)")
        resource = shown.api_resource
        operation = "CREATE" if old is None else "DELETE" if obj is None else "UPDATE"
        review = admission.AdmissionRequest(
            uid="705ab4f5-6393-11e8-b7cc-42010a800002", kind=resource.gvk, resource=resource.gvr, operation=operation,
            sub_resource=sub_resource, request_kind=resource.gvk, request_resource=resource.gvr, name=shown.name,
            request_sub_resource=sub_resource, namespace=shown.namespace or "",
            user_info=UserInfo(username=user) if isinstance(user, str) else user, dry_run=dry_run,
            raw_object=_raw(obj), raw_old_object=_raw(old))
        return cls(review, type(shown))

    @property
    def object(self) -> K:
        """The new object; for a DELETE, the object to be deleted. Changes take effect only if `mutate` returns this
        object. For a subresource with a kind of its own, such as `scale` or `exec`, the object is a DynamicObject of
        that kind (Scale, PodExecOptions). Raises DecodeError for content that is not an object, and RequestError for an
        object of another kind."""
        if self._object is None:
            deleted = self.review.operation == "DELETE"
            found = self._read(self.review.raw_old_object if deleted else self.review.raw_object, "object")
            if found is None:
                raise RequestError(f"the {self.review.operation} request has no object")
            self._object = found
        return self._object

    @property
    def old(self) -> K | None:
        """The stored object; None for a CREATE. Raises the same errors as `object`."""
        if self._old is None:
            self._old = self._read(self.review.raw_old_object, "old object")
        return self._old

    @property
    def operation(self) -> str:
        """`CREATE`, `UPDATE`, `DELETE` or `CONNECT`."""
        return self.review.operation

    @property
    def user(self) -> UserInfo:
        """The user who sent the request: user name, uid, groups and extra data."""
        return self.review.user_info

    @property
    def dry_run(self) -> bool:
        """Whether the request is a dry run, which stores nothing. The webhook must then have no side effects."""
        return bool(self.review.dry_run)

    @property
    def name(self) -> str:
        """The object's name; empty for a CREATE with a generateName."""
        return self.review.name

    @property
    def namespace(self) -> str | None:
        """The object's namespace; None for a cluster-scoped object."""
        return self.review.namespace or None

    @property
    def sub_resource(self) -> str:
        """The written subresource, such as `status` or `scale`; empty for the object itself."""
        return self.review.sub_resource

    def warn(self, text: str) -> None:
        """Add a warning to the response, for the user who sent the request. Keep `text` below 120 characters. The
        server sends at most 4096 characters of all warnings together. Line breaks become spaces, because the server
        would drop a text with line breaks. Raises RequestError for anything but a text."""
        said = _BREAKS.sub(" ", _text("a warning", text)).strip()
        if said and said not in self._warnings:
            self._warnings.append(said)

    def audit(self, key: str, value: str) -> None:
        """Write `key` and `value` into the audit log. The server prefixes the key with the webhook's name."""
        self._audit[_text("the key of an audit annotation", key)] = _text("an audit annotation", value)

    def warnings(self) -> tuple[str, ...]:
        """The texts passed to `warn`, cut as the server would cut them."""
        if sum(map(len, self._warnings)) <= TOTAL:
            return tuple(self._warnings)
        kept, left = [], TOTAL
        for text in self._warnings:
            shown = text[:min(EACH, left)]
            if shown:
                kept.append(shown)
                left -= len(shown)
        return tuple(kept)

    @property
    def audit_annotations(self) -> dict[str, str]:
        """The annotations passed to `audit`."""
        return self._audit

    @property
    def read_object(self) -> K | None:
        """The object that `object` has returned; None if `object` was never read."""
        return self._object

    def __repr__(self) -> str:
        review = self.review
        below = f"/{review.sub_resource}" if review.sub_resource else ""
        place = "/".join(part for part in (review.namespace, review.name) if part)
        return f"<{review.operation} {review.resource.resource}{below} {place or '(generated name)'}>"

    def _read(self, raw: msgspec.Raw, what: str) -> K | None:
        content = bytes(raw)
        if content in (b"", b"null"):
            return None
        return reader_of(self._kind, self.review, _kind_in(content), what).from_bytes(content)


class _Identity(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""


_identity = decoder_of(_Identity)


def _kind_in(content: bytes) -> GroupVersionKind | None:
    """The kind in the content; None if it has no kind or is undecodable, which the decoding class reports later."""
    try:
        found = _identity(content)
    except DECODE_FAILURES:
        return None
    return GroupVersionKind.parse(found.api_version, found.kind) if found.api_version and found.kind else None


def reader_of(kind: type[R], review: admission.AdmissionRequest, said: GroupVersionKind | None, what: str) -> type[R]:
    """The class that decodes an object of the kind `said`. Raises RequestError if `kind` cannot decode that kind."""
    found = said or review.kind
    own: ApiResource | None = getattr(kind, "api_resource", None)
    if own is None:
        scope = Scope.NAMESPACED if review.namespace else Scope.CLUSTER
        plural = review.resource.resource if found == review.kind and not review.sub_resource else ""
        resource = ApiResource.from_gvk(found, plural=plural or None, scope=scope)
        return cast("type[R]", cast("Any", kind).of(resource))
    if own.gvk != found and review.sub_resource:  # the subresource has its own kind, such as Scale or PodExecOptions
        return cast("type[R]", dynamic(ApiResource.from_gvk(found)))
    if own.gvk != found:
        raise RequestError(f"the {what} is a {found.kind} of {found.api_version}, not a {own.kind} of "
                           f"{own.api_version} (class {kind.__name__}): request.review.object(AnotherClass) decodes it")
    return kind


def _text(what: str, given: Any) -> str:
    if not isinstance(given, str):
        raise RequestError(f"{what} must be a text, not {type(given).__name__}")
    return given


def _raw(obj: Resource | None) -> msgspec.Raw:
    return msgspec.Raw() if obj is None else msgspec.Raw(obj.to_bytes())


Verb = Literal["validate", "mutate"]
VERBS: tuple[Verb, ...] = ("validate", "mutate")


class HasCause(Protocol):
    """An error in one field."""

    @property
    def reason(self) -> str | None:
        """A word, such as `FieldValueInvalid`."""

    @property
    def message(self) -> str | None:
        """The error."""

    @property
    def field(self) -> str | None:
        """The path of the field."""


def _cause(given: Any) -> StatusCause:
    field, message, reason = (*given, "FieldValueInvalid") if isinstance(given, tuple) else (
        getattr(given, "field", None), getattr(given, "message", None), getattr(given, "reason", None) or "")
    if not isinstance(field, str) or not isinstance(message, str):
        raise RequestError(f"causes= of a refusal must map fields to texts, as in {{'spec.replicas': 'at most 5'}}, "
                           f"not {given!r}")
    return StatusCause(reason=reason, message=message, field=field)


class Denied(KubeError):
    """Raised by an admission webhook to refuse the request, with `code` (default 403) and a `reason` for the user.

    >>> raise Denied("at most five containers", code=422)
    Traceback (most recent call last):
        ...
    Denied: at most five containers
    """

    def __init__(self, reason: str, code: int = 403, *,
                 causes: Mapping[str, str] | Iterable[HasCause] = ()) -> None:
        """`code`: the HTTP status of the response, from 400 to 599. `causes`: error messages by field path
        (`spec.replicas`), or the result of `CustomResource.violations`; clients receive them in `details.causes`.
        Raises RequestError for a code outside this range, and for a reason or causes that are not texts."""
        super().__init__(reason)
        given: Any = reason
        if not isinstance(given, str):
            raise RequestError(f"the reason of a refusal must be a text, not {type(given).__name__}")
        if not isinstance(code, int) or not 400 <= code <= 599:
            raise RequestError(f"the status of a refusal must be from 400 to 599, not {code!r}")
        self.reason = reason
        self.code = code
        self.causes = tuple(_cause(cause) for cause in (causes.items() if isinstance(causes, Mapping) else causes))


class Admission(Generic[K]):
    """An admission webhook for one kind: `validate` refuses by raising Denied, `mutate` returns the changed object.

    Define one of the two methods or both. Class keywords such as `operations` and `failure_policy` set which operations
    reach the webhook and what happens when it does not respond. Subclasses inherit the keywords of their base class.
    One instance serves all requests, several at the same time, in any thread. Exceptions other than Denied are logged
    and answered with status 500.

    >>> from kubectl_runtime import webhooks
    >>> class Quota(Admission[Pod]):
    ...     def validate(self, request: AdmissionRequest[Pod]) -> None:
    ...         if len(request.object.spec.containers) > 5:
    ...             raise Denied("at most five containers")
    >>> app = webhooks.application({"/quota": Quota()})             # WSGI: serves /quota/validate
    """

    options: ClassVar[WebhookOptions] = WebhookOptions()

    if TYPE_CHECKING:  # so that type checkers know the keywords

        def __init_subclass__(
                cls, *, name: str | None = None, operations: tuple[str, ...] | list[str] = (),
                subresources: tuple[str, ...] | list[str] = (), rules: tuple[Rule, ...] | list[Rule] = (),
                match_conditions: typing.Mapping[str, str] = {},
                match_policy: Literal["Equivalent", "Exact"] | None = None,
                failure_policy: Literal["Fail", "Ignore"] | None = None,
                side_effects: Literal["None", "NoneOnDryRun"] = "None", timeout: Duration | None = None,
                namespace_selector: LabelSelection | None = None, object_selector: LabelSelection | None = None,
                reinvocation: Literal["Never", "IfNeeded"] | None = None) -> None: ...
    else:

        def __init_subclass__(cls, **given):
            super().__init_subclass__()
            cls.options = options_of(cls, given, cls.options)

    def validate(self, request: AdmissionRequest[K]) -> None:
        """Return to let the request pass; raise `Denied` to refuse it. Called after all mutations.

        May block, but not longer than the webhook's timeout (10 s by default). Any other exception is logged, and
        refuses the request with status 500. A returned value other than None has the same effect, because a returned
        False would otherwise let the request pass.
        """

    def mutate(self, request: AdmissionRequest[K]) -> K | None:
        """Return the changed object of the request, or None to leave the object as it is. Called for a CREATE or
        UPDATE, possibly repeatedly, so the method must be idempotent. Exceptions have the same effects as in
        `validate`."""

    @classmethod
    def verbs(cls) -> tuple[Verb, ...]:
        """Which of the methods `validate` and `mutate` the class defines."""
        return tuple(verb for verb in VERBS if getattr(cls, verb) is not getattr(Admission, verb))

    @classmethod
    def kind(cls) -> type[Resource]:
        """The class in the brackets, such as `Pod` in `Admission[Pod]`. Raises TypeError if there are no brackets."""
        for base in cls.__mro__:
            for generic in getattr(base, "__orig_bases__", ()):
                found = _argument(generic, base)
                if found is not None:
                    return found
        raise TypeError(f"class {cls.__name__} does not say which objects it reads: write class {cls.__name__}("
                        "Admission[Pod]), or Admission[DynamicObject] for several kinds")

    @classmethod
    def webhook_name(cls, mount: str) -> str:
        """The name of the webhook in its configuration. Raises RequestError if the name cannot be derived.

        `mount` is the webhook's path in the application, for messages.
        """
        if cls.options.name is not None:
            return cls.options.name
        resource = resource_of(cls.kind())
        if resource is None:
            raise RequestError(f"{mount}: {cls.__name__} is for several kinds, so its name cannot be derived: write "
                               f"class {cls.__name__}(..., name='labels.shop.example.com')")
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", cls.__name__).replace("_", "-").strip("-").lower()
        return f"{words}.{resource.plural}.{resource.group or 'core'}"


def resource_of(kind: type[Resource]) -> ApiResource | None:
    """The ApiResource of a class, or None for a class of several kinds."""
    return getattr(kind, "api_resource", None)


def _argument(generic: Any, base: type) -> type[Resource] | None:
    origin = typing.get_origin(generic)
    if not (isinstance(origin, type) and issubclass(origin, Admission)):
        return None
    argument = next(iter(typing.get_args(generic)), None)
    if isinstance(argument, typing.ForwardRef):
        argument = vars(sys.modules.get(base.__module__)).get(argument.__forward_arg__)
    return argument if isinstance(argument, type) and issubclass(argument, Resource) else None
