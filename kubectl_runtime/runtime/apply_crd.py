"""`apply_crd`: install the definition of your own kind, and wait until the kind can be used.

The call first compares the definition with the server's definition. It logs what the new definition removes, and
refuses a downgrade unless the caller allows it. If the server's definition is being deleted, the call waits until it is
gone. It then applies the new definition, and waits until the definition is Established and discovery lists the kind,
which may take a moment longer. If a cluster has several API servers, each begins to serve the kind at its own time; the
wait covers only the API server that answers. The server's warnings are logged, as for every call.
"""
from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any

import msgspec

from kubectl_runtime.client.api.api import Api
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.core.base.errors import ApiError, KubeError, RequestError, TransportError
from kubectl_runtime.core.base.guard import condition_of
from kubectl_runtime.core.base.threads import Clock, Duration, period_of
from kubectl_runtime.core.base.wire import decoded
from kubectl_runtime.core.meta.gvk import ApiResource, Scope
from kubectl_runtime.core.meta.problems import DECODE_FAILURES, problem_of
from kubectl_runtime.core.objects.resource import Resource
from kubectl_runtime.core.requests.request import Request
from kubectl_runtime.core.scope import StopToken
from kubectl_runtime.crd.compare import Loss, losses
from kubectl_runtime.crd.customresource import CustomResource
from kubectl_runtime.resources import CustomResourceDefinition
from kubectl_runtime.runtime.conditions import Described, is_crd_established, is_deleted, names_refused
from kubectl_runtime.runtime.wait import WaitStopped, WaitTimeout, await_condition

log = logging.getLogger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 1.0
"""Seconds between two reads of discovery, doubling: the kind appears within milliseconds, or seconds on a busy cluster.
"""


_TIME_TO_JUDGE = 5.0
"""Seconds that the server gets to check refused names again; the check takes milliseconds."""

_MOST_LOSSES = 20
"""How many losses the log lists one by one."""


class DowngradeError(KubeError):
    """The server's definition is newer than the one to apply; `losses` lists what the older definition would remove.

    >>> issubclass(DowngradeError, KubeError)
    True
    """

    def __init__(self, message: str, losses: list[Loss]) -> None:
        super().__init__(message)
        self.losses = losses


def apply_crd(client: Client, kind: type[CustomResource] | Mapping[str, Any], *, timeout: Duration = 30,
              field_manager: str = "kubectl_runtime", force: bool = False, allow_downgrade: bool = False,
              stop: StopToken | None = None) -> CustomResourceDefinition:
    """Apply the CustomResourceDefinition of `kind` and block until its objects can be created. Returns the definition.

    `kind`: a class, or a definition as a dict, for example from `merge_crds`. One warning lists the versions,
    subresources, fields and values that the definition removes from the server's definition. A definition whose newest
    or stored version is older than the server's most likely belongs to an older program: it is refused with
    DowngradeError before anything is sent, unless `allow_downgrade` is set.

    `timeout`: seconds or `timedelta`, for the whole call. Raises WaitFailed, with the reason, when another kind has the
    same names; WaitTimeout when the time is up, or WaitStopped when `stop` is set, both with the definition's
    conditions; ApiError when the server refuses the definition, or when another manager owns one of its fields and
    `force` is not set; TypeError for a type without a schema. Needs the verbs create, get, patch, list and watch on
    customresourcedefinitions.

    >>> class Size(Struct):
    ...     size: int
    >>> class Widget(CustomResource, group="example.com", version="v1", kind="Widget"):
    ...     spec: Size
    >>> apply_crd(client, Widget).name
    'widgets.example.com'
    >>> Api.default_namespaced(client, Widget).create(Widget(name="a", spec=Size(3))).spec.size
    3
    """
    definition, resources = _definition(kind)
    name = definition["metadata"]["name"]
    left = TimeLeft(client.clock, period_of(f"apply the definition {name}: timeout", timeout))
    crds = Api.all(client, CustomResourceDefinition)
    there = crds.get_opt(name)
    _look_before(there, definition, allow_downgrade=allow_downgrade)
    crd = crds.apply(definition, field_manager=field_manager, force=force)
    while crd.deletion_timestamp is not None:
        await_condition(crds, crd.name, is_deleted(crd.uid), timeout=left.seconds(), stop=stop)
        crd = crds.apply(definition, field_manager=field_manager, force=force)
    if names_refused(there):  # perhaps the server refused only the old names: let it check again
        refused = condition_of(there, "NamesAccepted")
        with suppress(WaitTimeout):
            await_condition(crds, crd.name, Described("its names are checked again", lambda crd: crd is None or
                            condition_of(crd, "NamesAccepted") != refused), stop=stop,
                            timeout=min(_TIME_TO_JUDGE, left.seconds()))
    established = await_condition(crds, crd.name, is_crd_established, timeout=left.seconds(), stop=stop)
    assert established is not None  # a missing object is not established
    for resource in resources:
        await_served(client, resource, established, left, stop)
    return established


def _definition(kind: type[CustomResource] | Mapping[str, Any]) -> tuple[dict[str, Any], list[ApiResource]]:
    """Returns the definition as a dict, and the kinds that it serves. Raises RequestError for any other value."""
    if isinstance(kind, Mapping):
        definition = dict(kind)
    elif isinstance(kind, type) and issubclass(kind, CustomResource):
        definition = kind.crd()
    else:
        raise RequestError(f"{kind!r} is not a CustomResource class, so it has no definition to apply")
    try:
        definition["metadata"]["name"]
        spec = definition["spec"]
        return definition, [ApiResource(spec["group"], version["name"], spec["names"]["kind"], spec["names"]["plural"],
                                        Scope(spec["scope"])) for version in spec["versions"] if version["served"]]
    except (KeyError, TypeError, ValueError) as error:
        raise RequestError(f"this is not a CustomResourceDefinition: {error!r}") from None


def _look_before(there: CustomResourceDefinition | None, definition: dict[str, Any], *, allow_downgrade: bool) -> None:
    """Warn about the parts that the server's definition loses. Raises DowngradeError for a downgrade."""
    if there is None or there.deletion_timestamp is not None:
        return
    found = losses(there.to_dict(), definition)
    if not found:
        return
    told = "".join(f"\n    {loss}" for loss in found[:_MOST_LOSSES])
    more = f"\n    and {len(found) - _MOST_LOSSES} more" if len(found) > _MOST_LOSSES else ""
    if any(loss.kind == "downgrade" for loss in found) and not allow_downgrade:
        raise DowngradeError(f"apply {there.ref}: the definition on the server is newer; allow_downgrade=True applies "
                             f"the older one anyway, which removes:{told}{more}", found)
    log.warning("apply %s removes parts of the definition on the server:%s%s", there.ref, told, more)


class TimeLeft:
    """Counts down `span` seconds. `seconds` never returns 0: a wait that begins after the end still reads the object
    once."""

    def __init__(self, clock: Clock, span: float) -> None:
        self.span = span
        self._clock = clock
        self.end = clock.monotonic() + self.span

    def seconds(self) -> float:
        """The seconds that are left; 0.001 after the end."""
        return max(0.001, self.end - self._clock.monotonic())

    def is_over(self) -> bool:
        """Whether the time is over."""
        return self._clock.monotonic() >= self.end


def await_served(client: Client, resource: ApiResource, crd: Resource, left: TimeLeft, stop: StopToken | None) -> None:
    """Block until the server's discovery lists `resource`, which the established `crd` defines. Raises WaitTimeout when
    the time is over, and WaitStopped when `stop` is set."""
    waiting = stop or StopToken(clock=client.clock)
    pause = _FIRST_PAUSE
    while True:
        trouble = ""
        try:
            if _is_served(client, resource, left.end, stop):
                return
        except (TransportError, ApiError) as error:
            trouble = str(error)
        what = f"apply {crd.ref}: it is established, but discovery of {resource.api_version} does not name " \
               f"{resource.plural}"
        more = f"; the last error: {trouble}" if trouble else ""
        if waiting.is_set():
            raise WaitStopped(f"{what} when the wait was stopped ({waiting.reason}){more}", "served", crd, trouble)
        if left.is_over():
            raise WaitTimeout(f"{what} within {left.span:g} s{more}", "served", crd, trouble)
        waiting.wait(min(pause, left.seconds()))
        pause = min(2 * pause, _LONGEST_PAUSE)


class _Named(msgspec.Struct):
    name: str = ""


class _Resources(msgspec.Struct):
    """The part of an `APIResourceList` that is read here."""

    resources: list[_Named] | None = None


def _is_served(client: Client, resource: ApiResource, deadline: float, stop: StopToken | None) -> bool:
    path = f"/apis/{resource.api_version}"
    request = Request("GET", path, "get", None, f"discover {path}", headers=(("Accept", "application/json"),))
    try:
        answer = client.request(request, deadline=deadline, stop=stop)
    except ApiError as error:
        if error.code == HTTPStatus.NOT_FOUND:
            return False
        raise
    try:
        found = decoded(answer, _Resources)
    except DECODE_FAILURES as error:
        raise KubeError(f"discover {path}: the answer is not a list of resources: {problem_of(error)[1]}") from None
    return any(one.name == resource.plural for one in found.resources or ())
