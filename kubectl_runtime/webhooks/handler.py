"""`Admission[Kind]`: a class that says of requests for objects of a kind whether they pass, and how they change.

    class Quota(Admission[Pod], failure_policy="Fail"):
        def validate(self, request: AdmissionRequest[Pod]) -> None:          # raises Denied, or lets it pass
            if len(request.object.spec.containers) > 5:
                raise Denied("at most 5 containers")

        def mutate(self, request: AdmissionRequest[Pod]) -> Pod | None:      # the changed object; None: as it is
            request.object.metadata.labels = {**request.object.labels, "checked": "yes"}
            return request.object

What a class defines of the two is served. One instance answers all requests, several at once, each in a thread of its
server. Class keywords are those of `WebhookOptions`.
"""
from __future__ import annotations

import re
import sys
import typing
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

from kubectl_runtime.core.base.clock import Duration
from kubectl_runtime.core.base.errors import KubeError, RequestError
from kubectl_runtime.core.meta.gvk import ApiResource
from kubectl_runtime.core.meta.selectors import LabelSelection
from kubectl_runtime.core.objects.resource import Resource
from kubectl_runtime.webhooks.options import Rule, WebhookOptions, options_of
from kubectl_runtime.webhooks.request import AdmissionRequest

K = TypeVar("K", bound=Resource)

Verb = Literal["validate", "mutate"]
VERBS: tuple[Verb, ...] = ("validate", "mutate")


class Denied(KubeError):
    """Raised by an admission webhook: the request is refused with `code` (403), and the person sees `reason`.

    >>> raise Denied("at most five containers", code=422)
    Traceback (most recent call last):
        ...
    Denied: at most five containers
    """

    def __init__(self, reason: str, code: int = 403) -> None:
        """`code`: the HTTP status of the answer, from 400 to 599. Raises RequestError for another one, and for a
        reason that is no text."""
        super().__init__(reason)
        given: Any = reason
        if not isinstance(given, str):
            raise RequestError(f"the reason of a refusal is a text, not {type(given).__name__}")
        if not isinstance(code, int) or not 400 <= code <= 599:
            raise RequestError(f"a refusal has a status from 400 to 599, not {code!r}")
        self.reason = reason
        self.code = code


class Admission(Generic[K]):
    """An admission webhook for one kind: `validate` refuses by raising Denied, `mutate` returns the changed object.

    Define one of them or both. Class keywords such as `operations` and `failure_policy` say for which operations it is
    called and what happens when it does not answer. Subclasses keep those of their base. One instance serves all
    requests at once, from any thread. Other exceptions are logged and answered as an error of the webhook.

    >>> from kubectl_runtime import webhooks
    >>> class Quota(Admission[Pod]):
    ...     def validate(self, request: AdmissionRequest[Pod]) -> None:
    ...         if len(request.object.spec.containers) > 5:
    ...             raise Denied("at most five containers")
    >>> app = webhooks.application({"/quota": Quota()})             # WSGI: serves /quota/validate
    """

    options: ClassVar[WebhookOptions] = WebhookOptions()

    if TYPE_CHECKING:  # each keyword by its name

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
        """Return, and the request passes; raise `Denied`, and it does not. Called after every mutation.

        May block, but not longer than the webhook's timeout (10 s by default). Whatever else it raises is logged, and
        refuses the request with status 500; so does what it returns, but for None and True.
        """

    def mutate(self, request: AdmissionRequest[K]) -> K | None:
        """The object of the request, changed; or None, and it stays. Called for a CREATE or UPDATE, and maybe again:
        what it did already it must leave alone. Raises as `validate`."""

    @classmethod
    def verbs(cls) -> tuple[Verb, ...]:
        """Which of `validate` and `mutate` the class defines."""
        return tuple(verb for verb in VERBS if getattr(cls, verb) is not getattr(Admission, verb))

    @classmethod
    def kind(cls) -> type[Resource]:
        """The class between the brackets of `Admission[Pod]`. Raises TypeError when the class has none."""
        for base in cls.__mro__:
            for generic in getattr(base, "__orig_bases__", ()):
                found = _argument(generic, base)
                if found is not None:
                    return found
        raise TypeError(f"class {cls.__name__} does not say which objects it reads: class {cls.__name__}("
                        "Admission[Pod]), or Admission[DynamicObject] for several kinds")

    @classmethod
    def webhook_name(cls, mount: str) -> str:
        """What it is called in its configuration. Raises RequestError where nothing says it.

        `mount`: where the application serves it, for messages.
        """
        if cls.options.name is not None:
            return cls.options.name
        resource = resource_of(cls.kind())
        if resource is None:
            raise RequestError(f"{mount}: {cls.__name__} is for several kinds, so its name cannot be made of one: say "
                               f"class {cls.__name__}(..., name='labels.shop.example.com')")
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", cls.__name__).replace("_", "-").strip("-").lower()
        return f"{words}.{resource.plural}.{resource.group or 'core'}"


def resource_of(kind: type[Resource]) -> ApiResource | None:
    """What a class is bound to, if it is."""
    return getattr(kind, "api_resource", None)


def _argument(generic: Any, base: type) -> type[Resource] | None:
    origin = typing.get_origin(generic)
    if not (isinstance(origin, type) and issubclass(origin, Admission)):
        return None
    argument = next(iter(typing.get_args(generic)), None)
    if isinstance(argument, typing.ForwardRef):
        argument = vars(sys.modules.get(base.__module__)).get(argument.__forward_arg__)
    return argument if isinstance(argument, type) and issubclass(argument, Resource) else None
