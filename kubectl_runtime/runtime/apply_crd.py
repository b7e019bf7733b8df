"""`apply_crd`: install the definition of one's own kind, and be sure that the kind can be used.

    apply the definition        one that is being deleted is waited for, and applied again once it is gone
    until it is Established     the server has accepted its names
    until it is served          the server's discovery names the kind: a CRD is established a moment before

What the server warns of is logged, as for every call (`kubectl_runtime.client.api.client`). In a cluster of several API
servers each learns of a kind by itself; this one speaks for the one that answered.
"""
from __future__ import annotations

from http import HTTPStatus

import msgspec

from kubectl_runtime.client.api.api import Api
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.core.base.clock import Clock, Duration
from kubectl_runtime.core.base.errors import ApiError, KubeError, RequestError, TransportError
from kubectl_runtime.core.base.stop import StopToken
from kubectl_runtime.core.meta.gvk import ApiResource
from kubectl_runtime.core.objects.resource import Resource
from kubectl_runtime.core.requests.request import Request
from kubectl_runtime.crd.customresource import CustomResource
from kubectl_runtime.resources import CustomResourceDefinition
from kubectl_runtime.runtime.conditions import is_crd_established, is_deleted
from kubectl_runtime.runtime.wait import WaitStopped, WaitTimeout, await_condition, positive_seconds

_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 1.0
"""Seconds between two looks at discovery, doubling: it follows within milliseconds, or seconds on a busy cluster."""


def apply_crd(client: Client, kind: type[CustomResource], *, timeout: Duration = 30,
              field_manager: str = "kubectl_runtime", force: bool = False,
              stop: StopToken | None = None) -> CustomResourceDefinition:
    """Apply the CustomResourceDefinition of `kind` and block until objects of it can be made; the definition.

    `timeout`: seconds or `timedelta`, for all of it. Raises WaitTimeout and WaitStopped, whose text has the conditions
    that the definition has come to (`NamesAccepted=False (KindConflict)`, say), ApiError when it is refused or another
    manager owns a field of it and `force` does not take it, TypeError for a type without a schema. Needs the verbs
    create, patch, list and watch on customresourcedefinitions.
    """
    if not (isinstance(kind, type) and issubclass(kind, CustomResource)):
        raise RequestError(f"{kind!r} is no CustomResource class, so it has no definition to apply")
    left = TimeLeft(client.clock, positive_seconds(timeout, f"apply the definition of {kind.__name__}"))
    crds = Api.all(client, CustomResourceDefinition)
    definition = kind.crd()
    crd = crds.apply(definition, field_manager=field_manager, force=force)
    while crd.deletion_timestamp is not None:
        await_condition(crds, crd.name, is_deleted(crd.uid), timeout=left.seconds(), stop=stop)
        crd = crds.apply(definition, field_manager=field_manager, force=force)
    established = await_condition(crds, crd.name, is_crd_established, timeout=left.seconds(), stop=stop)
    assert established is not None  # what does not exist is not established
    await_served(client, kind.api_resource, established, left, stop)
    return established


class TimeLeft:
    """What is left of `span` seconds, never quite nothing: a wait then still looks once."""

    def __init__(self, clock: Clock, span: float) -> None:
        self.span = span
        self._clock = clock
        self.end = clock.monotonic() + self.span

    def seconds(self) -> float:
        return max(0.001, self.end - self._clock.monotonic())

    def is_over(self) -> bool:
        return self._clock.monotonic() >= self.end


def await_served(client: Client, resource: ApiResource, crd: Resource, left: TimeLeft, stop: StopToken | None) -> None:
    """Block until the server's discovery names `resource`, which the established `crd` defines. Raises WaitTimeout when
    nothing is left of the time, WaitStopped."""
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
        more = f"; it failed last: {trouble}" if trouble else ""
        if waiting.is_set():
            raise WaitStopped(f"{what} when the wait was stopped ({waiting.reason}){more}", "served", crd, trouble)
        if left.is_over():
            raise WaitTimeout(f"{what} within {left.span:g} s{more}", "served", crd, trouble)
        waiting.wait(min(pause, left.seconds()))
        pause = min(2 * pause, _LONGEST_PAUSE)


class _Named(msgspec.Struct):
    name: str = ""


class _Resources(msgspec.Struct):
    """An `APIResourceList`, as far as it is read here."""

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
        found = msgspec.json.decode(answer, type=_Resources)
    except msgspec.MsgspecError as error:
        raise KubeError(f"discover {path}: the answer is no list of resources: {error}") from None
    return any(one.name == resource.plural for one in found.resources or ())
