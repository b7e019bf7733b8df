"""`retry_on_conflict`: read, change and write again when another client was faster.

    def scale() -> Deployment:
        deployment = deployments.get("web")          # read inside, so that each attempt starts from the current state
        deployment.spec.replicas = 3
        return deployments.replace(deployment)

    retry_on_conflict(scale)

It works like client-go's `retry.RetryOnConflict` with `DefaultRetry`: 5 attempts, with 10 ms plus up to 10 % between
them.

`create_or_update` works like controller-runtime's `CreateOrUpdate`: it reads, changes and replaces one object. For your
own objects prefer `Api.apply`, which reads nothing and leaves the fields of other managers alone. `create_or_update` is
for changes that depend on the current state, and for servers without server-side apply.
"""
from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import msgspec

from kubectl_runtime.client.api.api import Api
from kubectl_runtime.core.base.backoff import Backoff
from kubectl_runtime.core.base.errors import ApiError, RequestError, is_lost_race
from kubectl_runtime.core.base.guard import check_api, check_callback, not_awaitable
from kubectl_runtime.core.base.threads import SYSTEM_CLOCK, Clock, Duration
from kubectl_runtime.core.codec.jsonbytes import equal_json
from kubectl_runtime.core.meta.quantities import Quantity
from kubectl_runtime.core.objects.resource import Resource
from kubectl_runtime.core.requests.params import PostParams
from kubectl_runtime.core.requests.rights import foresee
from kubectl_runtime.core.scope import StopToken, with_scope

T = TypeVar("T")

@dataclass(frozen=True, slots=True)
class ConflictBackoff:
    """The number of attempts of `retry_on_conflict`, and the waits between them: `initial` seconds, multiplied by
    `factor` after each attempt, plus a random share of up to `jitter` of the wait.

    `ConflictBackoff(4, 0.01, 5.0)` is client-go's `DefaultBackoff`, for objects with many writers; the default is
    client-go's `DefaultRetry`. Raises RequestError for a number that is out of range.

    >>> retry_on_conflict(lambda: "done", backoff=ConflictBackoff(steps=4, initial=0.01, factor=5.0))
    'done'
    """

    steps: int = 5
    initial: Duration = 0.01
    factor: float = 1.0
    jitter: float = 0.1

    def __post_init__(self) -> None:
        try:
            _ = self.rule
        except RequestError:
            raise RequestError("ConflictBackoff needs steps >= 1, initial >= 0, factor >= 1 and jitter >= 0, not steps "
                               f"{self.steps!r}, initial {self.initial!r}, factor {self.factor!r}, jitter "
                               f"{self.jitter!r}") from None

    def delay(self, attempt: int, rng: random.Random) -> float:
        """Seconds to wait after failed attempt number `attempt` (the first is 0)."""
        return self.rule.delay(attempt + 1, rng)

    @property
    def rule(self) -> Backoff:
        """This configuration as a `Backoff`."""
        return Backoff(self.initial, self.factor, spread=self.jitter, attempts=self.steps)


DEFAULT_RETRY = ConflictBackoff()


def retry_on_conflict(attempt: Callable[[], T], *, backoff: ConflictBackoff = DEFAULT_RETRY,
                      retry: Callable[[ApiError], bool] = is_lost_race, stop: StopToken | None = None,
                      clock: Clock = SYSTEM_CLOCK, rng: random.Random | None = None) -> T:
    """Call `attempt` and return its result; call it again, after a wait, when it raises a conflict.

    Blocks for the attempts and the waits between them. Raises the last conflict when all attempts have failed or `stop`
    is set. Raises any other exception at once, including conflicts between field managers, and OutcomeUnknownError for
    a write that may have been carried out, because a second attempt could change the object twice. `retry` decides
    which ApiErrors lead to another attempt. Raises RequestError for an `attempt` that is async or a generator. Waits
    use `clock`, or the clock of `stop` if a `stop` is given. In a controller's run, a wait ends when the run must end.

    >>> maps = Api.namespaced(client, ConfigMap, "default")
    >>> def paint():
    ...     obj = maps.get("settings")
    ...     obj.data["color"] = "red"
    ...     return maps.replace(obj)
    >>> retry_on_conflict(paint).data["color"]
    'red'
    """
    check_callback("attempt", attempt)
    waiting, rule, dice = with_scope(stop or StopToken(clock=clock), clock), backoff.rule, rng or random.Random()
    for failures in itertools.count(1):
        try:
            return not_awaitable(attempt(), attempt, may_yield=True)
        except ApiError as error:
            delay = rule.next(failures, dice) if retry(error) else None
            if delay is None or waiting.wait(delay):
                raise
    raise AssertionError("unreachable: the last attempt returns or raises")


R = TypeVar("R", bound=Resource)

Outcome = Literal["created", "updated", "unchanged"]


def create_or_update(api: Api[R], name: str, change: Callable[[R], object], *, params: PostParams | None = None,
                     stop: StopToken | None = None) -> tuple[R, Outcome]:
    """Read the object `name`, let `change(obj)` change it, and write it; create it if it does not exist.

    Returns the object as it is afterwards and `created`, `updated` or `unchanged`. If `change` changed nothing, nothing
    is sent; in a built-in kind, another form of a quantity (`1000m` for `1`) is no change. If the write changes nothing
    on the server (for example, because the written object only lacks defaults that the server adds), the result is
    `unchanged`, too. If the object does not exist, `change` receives a new object that has only a name. If another
    client wrote or created the object in between, it is read and changed again, with at most 5 attempts in all. So
    `change` may be called more than once and must depend only on its argument. Blocks for these calls. If the kind has
    a status subresource, the status is not written. Raises RequestError when `change` is not a function of an object,
    changes name or namespace, or returns another object. Raises whatever `Api` and `change` raise, including
    OutcomeUnknownError for a write that may have been carried out: such a write is not repeated.

    >>> def change(obj: ConfigMap) -> None:
    ...     obj.data["color"] = "red"
    >>> maps = Api.namespaced(client, ConfigMap, "default")
    >>> obj, outcome = create_or_update(maps, "settings", change)
    >>> obj.data["color"], outcome
    ('red', 'updated')
    """
    check_api(api, "create_or_update")
    check_callback("change", change, "obj")

    def attempt() -> tuple[R, Outcome]:
        found = api.get_opt(name)
        obj = api.kind(name=name, namespace=api.namespace) if found is None else found
        before, place, version = obj.to_dict(), obj.namespace, obj.resource_version
        changed = not_awaitable(change(obj), change)
        if isinstance(changed, Resource) and changed is not obj:
            raise RequestError(f"{api.place.words('replace', name)}: change() returned another object, which is "
                               "ignored: change the object that is passed to it")
        if (obj.name, obj.namespace) != (name, place):
            raise RequestError(f"{api.place.words('replace', name)}: change() made it {obj.ref}; "
                               "an object must keep its name and namespace")
        if found is None:
            return api.create(obj, params), "created"
        wanted = msgspec.json.decode(obj.to_bytes())
        if equal_json(wanted, before) or (api.resource.group in _WITH_AMOUNTS and
                                              _equal_amounts(wanted, before)):
            return obj, "unchanged"
        written = api.replace(obj, params)
        if params is not None and params.dry_run:  # a dry run creates no new version
            same = equal_json(_content(written.to_dict()), _content(before))
        else:
            same = bool(version) and written.resource_version == version
        return written, "unchanged" if same else "updated"

    foresee(api.place, "get", "create", "update")
    return retry_on_conflict(attempt, retry=_may_go_on, stop=stop, clock=api.client.clock)


_WITH_AMOUNTS = frozenset(("", "apps", "autoscaling", "batch", "node.k8s.io", "resource.k8s.io"))
"""Groups of built-in kinds that have quantities, which the server converts to their canonical form. Custom resources
keep the form in which they were written."""

_AMOUNTS = frozenset((
    "allocatable", "allocatedResources", "capacity", "default", "defaultRequest", "hard", "limits", "max",
    "maxLimitRequestRatio", "min", "podFixed", "requests", "used"))
"""Keys of built-in kinds whose values are maps of quantities."""

_AMOUNT = frozenset((("emptyDir", "sizeLimit"), ("resourceFieldRef", "divisor"), ("target", "averageValue"),
                     ("target", "value"), ("current", "averageValue"), ("current", "value")))
"""Keys of built-in kinds whose value is one quantity, each with its parent key."""


def _equal_amounts(first: Any, second: Any, above: str = "", key: str = "") -> bool:
    """Whether two JSON values are equal, with quantities compared by amount. `key` is the JSON key of both values,
    `above` that key's parent key."""
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(
            _equal_amounts(value, second[name], key, name) for name, value in first.items())
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(_equal_amounts(*pair, above, key)
                                                 for pair in zip(first, second, strict=True))
    if equal_json(first, second):
        return True
    if above not in _AMOUNTS and (above, key) not in _AMOUNT:
        return False
    try:
        return Quantity.parse(first) == Quantity.parse(second)
    except RequestError:
        return False


def _content(plain: dict[str, Any]) -> dict[str, Any]:
    """An object without the fields that only the server sets."""
    metadata = {key: value for key, value in plain.get("metadata", {}).items()
                if key not in ("generation", "managedFields", "resourceVersion")}
    return {**plain, "metadata": metadata}


def _may_go_on(error: ApiError) -> bool:
    return error.is_already_exists or is_lost_race(error)
