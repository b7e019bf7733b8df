"""A preflight check (`ensure_queryable`): is the kind served, does it have the verbs, is the user allowed to use them?

A program that checks at startup fails early, with an error that names the missing permission, instead of receiving 403
again and again:

    ensure_queryable(client, ConfigMap, ("list", "watch"), namespace="team")

`fetch` reads the object that a reference in another object names: an ObjectReference or an OwnerReference.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from kubectl_runtime.client.api.api import Api
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.core.base.errors import ApiError, DiscoveryError, KubeError, RequestError, Status
from kubectl_runtime.core.base.threads import Duration, period_of
from kubectl_runtime.core.base.wire import decoded
from kubectl_runtime.core.codec.jsonbytes import encode_plain
from kubectl_runtime.core.meta.gvk import ApiResource, GroupVersionKind, HasApiResource, api_resource_of
from kubectl_runtime.core.meta.metav1 import OwnerReference
from kubectl_runtime.core.meta.problems import DECODE_FAILURES, DecodeError, problem_of
from kubectl_runtime.core.objects.partial import DynamicObject
from kubectl_runtime.core.requests.request import Request

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class MissingRights(KubeError):
    """The user lacks permissions. `verbs` are the missing verbs (`status/patch` for a subresource).

    >>> issubclass(MissingRights, KubeError)
    True
    """

    def __init__(self, resource: ApiResource, namespace: str | None, verbs: tuple[str, ...]) -> None:
        where = f" in namespace {namespace}" if namespace else ""
        rules = [f'{{"apiGroups": ["{resource.group}"], "resources": ["{plural}"], "verbs": [{words}]}}'
                 for plural, words in _by_resource(resource, verbs)]
        super().__init__(f"the user may not {', '.join(verbs)} {resource.full_name}{where}: a "
                         f"{'Role' if namespace else 'ClusterRole'} grants it with {', '.join(rules)}")
        self.resource = resource
        self.namespace = namespace
        self.verbs = verbs


def ensure_queryable(client: Client, kind: HasApiResource | ApiResource | str,
                     verbs: Iterable[str] = ("list", "watch"), *, namespace: str | None = None) -> ApiResource:
    """Check that the server serves the kind with these verbs and that the user may use each; returns its ApiResource.

    `kind` may also be any name that `Discovery.resolve` knows. A verb of a subresource is written `status/patch`.
    `namespace`: where the verbs are needed; None means all namespaces. The served kinds are requested once and kept;
    permissions are checked each time, with one request per verb. Blocks until all requests are answered. Raises
    DiscoveryError, MissingRights, RequestError for a string instead of a list of verbs, and whatever a request raises.

    >>> ensure_queryable(client, "deploy", ["list", "watch"]).full_name
    'deployments.apps'
    """
    if isinstance(verbs, str):
        raise RequestError(f"ensure_queryable takes a list of verbs: ({verbs!r},), not {verbs!r}")
    if isinstance(kind, str):
        served = client.discovery.resolve(kind)
    else:
        served = client.discovery.resolve_gvk(api_resource_of(kind).gvk)
    resource, wanted = served.resource, tuple(verbs)
    for verb in wanted:
        subresource, slash, _ = verb.rpartition("/")
        if slash and subresource not in served.subresources:
            has = ", ".join(served.subresources) or "none"
            raise DiscoveryError(f"{resource.full_name} has no subresource {subresource!r}: it has {has}")
        if not slash and not served.supports(verb):
            has = ", ".join(served.verbs) or "none"
            raise DiscoveryError(f"the server cannot {verb} {resource.full_name}: its verbs are {has}")
    place = namespace if resource.namespaced else None
    missing = tuple(verb for verb in wanted if not _allowed(client, resource, place, verb))
    if missing:
        raise MissingRights(resource, place, missing)
    return resource


class _ReviewStatus(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _ReviewStatus = msgspec.field(default_factory=_ReviewStatus)


def _allowed(client: Client, resource: ApiResource, namespace: str | None, verb: str) -> bool:
    subresource, _, plain = verb.rpartition("/")
    asked = {"group": resource.group, "version": resource.version, "resource": resource.plural, "verb": plain,
             "subresource": subresource, "namespace": namespace or ""}
    body = encode_plain({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {key: value for key, value in asked.items() if value}}})
    said = f"check the permission to {verb} {resource.full_name}"
    answer = client.request(Request("POST", REVIEWS, "create", None, said, body=body,
                                    headers=(("Content-Type", "application/json"),)))
    try:
        return decoded(answer, _Review).status.allowed
    except DECODE_FAILURES as error:
        raise DecodeError(None, *problem_of(error)) from None


def _by_resource(resource: ApiResource, verbs: tuple[str, ...]) -> list[tuple[str, str]]:
    found: dict[str, list[str]] = {}
    for verb in verbs:
        subresource, slash, plain = verb.rpartition("/")
        found.setdefault(f"{resource.plural}/{subresource}" if slash else resource.plural, []).append(f'"{plain}"')
    return [(plural, ", ".join(words)) for plural, words in found.items()]


LEAST = 0.001
"""The minimum number of seconds for reading the object, even if discovery has used up the time."""


def fetch(client: Client, reference: OwnerReference | Mapping[str, Any], *, namespace: str | None = None,
          timeout: Duration | None = None) -> DynamicObject:
    """The object that `reference` names: an OwnerReference, or a mapping with `apiVersion`, `kind` and `name`.

    `namespace`: the namespace to look in when the reference has none; pass the namespace of the object that holds the
    reference. The served kinds are requested once and kept, and requested again for an unknown kind. Blocks like
    `Api.get`, at most `timeout` for both requests together. Raises DiscoveryError for a kind that is not served,
    RequestError for a reference without apiVersion, kind or name, and ApiError. The ApiError is a not-found
    (`is_not_found`) if the object does not exist, and also if it has another uid than the reference.

    >>> reference = OwnerReference(api_version="apps/v1", kind="Deployment", name="web")
    >>> fetch(client, reference, namespace="default").spec["replicas"]
    1
    """
    if isinstance(reference, OwnerReference):
        api_version, kind, name, uid = reference.api_version, reference.kind, reference.name, reference.uid
    elif not isinstance(reference, Mapping):
        raise RequestError("fetch takes an OwnerReference, or a mapping with apiVersion, kind and name, not "
                           f"{type(reference).__name__}")
    else:
        api_version, kind, name, uid = (str(reference.get(key) or "") for key in ("apiVersion", "kind", "name", "uid"))
        namespace = reference.get("namespace") or namespace
    if not (api_version and kind and name):
        raise RequestError("a reference needs apiVersion, kind and name; this one has "
                           f"apiVersion={api_version!r}, kind={kind!r}, name={name!r}")
    deadline = None if timeout is None else client.clock.monotonic() + period_of("timeout", timeout)
    try:
        discovery = client.discovery.within(deadline)
        resource = discovery.resolve_gvk(GroupVersionKind.parse(api_version, kind)).resource
    except DiscoveryError as error:
        raise DiscoveryError(f"get {kind} {name}: {error}") from None
    api = Api.namespaced(client, resource, namespace) if resource.namespaced else Api.all(client, resource)
    left = None if deadline is None else max(deadline - client.clock.monotonic(), LEAST)
    found = api.get(name, timeout=left)
    if uid and found.uid != uid:
        raise ApiError(Status(status="Failure", code=404, reason="NotFound", message="the object of the reference is "
                              "gone; another object has its name now"), f"get {kind} {name}")
    return found
