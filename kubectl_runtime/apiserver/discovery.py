"""Discovery: the served API, as one document for each group and version and as the aggregated document.

`respond(registry, request)` answers ``/``, ``/api``, ``/apis`` and the paths below them, ``/version`` and the health
paths. It returns None for any other path. Surprising details: an unknown group gets a plain-text 404, an unknown
version of a built-in group gets a 404 with a Status; the APIResourceList of core/v1 has no apiVersion; custom resources
list their verbs in another order.

``/healthz``, ``/livez`` and ``/readyz`` list the real server's checks; all pass once the server is ready.
"""
from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.encoding import JSON, MEDIA_TYPES, YAML
from kubectl_runtime.apiserver.output import negotiation
from kubectl_runtime.apiserver.output.negotiation import Media, clauses, encode, negotiated, render
from kubectl_runtime.apiserver.storage import Registry, ServedResource, Subresource
from kubectl_runtime.apiserver.wire import HttpRequest, HttpResponse, Object

_START = (
    "start-apiserver-admission-initializer", "generic-apiserver-start-informers",
    "priority-and-fairness-config-consumer", "priority-and-fairness-filter", "storage-object-count-tracker-hook",
    "start-apiextensions-informers", "start-apiextensions-controllers", "crd-informer-synced",
    "start-system-namespaces-controller", "peer-endpoint-reconciler-controller",
    "start-cluster-authentication-info-controller", "start-kube-apiserver-identity-lease-controller",
    "start-kube-apiserver-identity-lease-garbage-collector", "storage-readiness",
    "start-legacy-token-tracking-controller", "start-service-ip-repair-controllers", "rbac/bootstrap-roles",
    "scheduling/bootstrap-system-priority-classes", "priority-and-fairness-config-producer", "bootstrap-controller",
    "start-kubernetes-service-cidr-controller", "start-kube-aggregator-informers",
    "apiservice-status-local-available-controller", "apiservice-status-remote-available-controller",
    "apiservice-registration-controller", "apiservice-wait-for-first-sync", "apiservice-discovery-controller",
    "kube-apiserver-autoregistration")
_LAST = ("apiservice-openapi-controller", "apiservice-openapiv3-controller")
_HOOKS = (*(f"poststarthook/{name}" for name in _START), "autoregister-completion",
          *(f"poststarthook/{name}" for name in _LAST))
_ALIVE = ("ping", "log", "loopback-serving-certificate", "etcd", *_HOOKS)
_READ_LAST = "poststarthook/start-apiextensions-controllers"
CHECKS = {"healthz": _ALIVE, "livez": _ALIVE,
          "readyz": ("ping", "log", "etcd", "etcd-readiness", "informer-sync", *_HOOKS, "shutdown")}


def health(request: HttpRequest, parts: list[str]) -> HttpResponse | None:
    """The answer to a request for a health path; None for a check that does not exist."""
    name, check = parts[0], "/".join(parts[1:])
    if request.path.endswith("/"):
        return None
    if check:
        return _text("ok") if check in CHECKS[name] else None
    if not request.has_param("verbose"):
        return _text("ok")
    excluded = set(request.params("exclude"))
    lines = [f"[+]{one} excluded: ok" if one in excluded else f"[+]{one} ok" for one in CHECKS[name]]
    unknown = sorted(excluded - set(CHECKS[name]))
    if unknown:
        lines.append("warn: some health checks cannot be excluded: no matches for "
                     + ",".join(f'"{one}"' for one in unknown))
    return _text("\n".join([*lines, f"{name} check passed", ""]))


def unready(name: str) -> HttpResponse:
    """The answer to the health path `name` while the server is not ready."""
    lines = [f"[-]{one} failed: reason withheld" if one == _READ_LAST else f"[+]{one} ok" for one in CHECKS[name]]
    return _text("\n".join([*lines, f"{name} check failed", ""]), 500)


def _text(text: str, code: int = 200) -> HttpResponse:
    return HttpResponse(code, [("Content-Type", "text/plain; charset=utf-8"), ("X-Content-Type-Options", "nosniff")],
                        text.encode())


VERSION = {
    "major": "1", "minor": "36", "emulationMajor": "1", "emulationMinor": "36", "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "35", "gitVersion": "v1.36.2", "gitCommit": "0000000000000000000000000000000000000000",
    "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z", "goVersion": "go1.26", "compiler": "gc",
    "platform": "linux/amd64",
}
_OTHER_PATHS = ("/api", "/api/v1", "/apis", "/apis/", "/healthz", "/livez", "/openapi/v2", "/openapi/v3",
                "/openapi/v3/", "/readyz", "/version")
_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores"
_BUILD_LABELS = (("git_version", "gitVersion"), ("major", "major"), ("minor", "minor"))
_AGGREGATED = ("apidiscovery.k8s.io", "v2", "APIGroupDiscoveryList")
_CUSTOM_VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")

_HIDDEN_AT_END = ("patch", "create", "update")  # verbs that discovery hides while the type's CRD is being deleted


def respond(registry: Registry, request: HttpRequest) -> HttpResponse | None:
    """The answer to a discovery request; None for other requests.

    Raises StatusError for a 405, for a 406, and for a 404 that has a Status.
    """
    path = request.path[1:].removesuffix("/")
    parts = path.split("/") if path else []
    if not parts:
        return _json(request, {"paths": _root_paths(registry)})
    if parts == ["version"]:
        _check_routed(request, (JSON,))
        return _json(request, VERSION)
    if parts == ["metrics"]:
        return HttpResponse(200, [("Content-Type", _METRICS_TYPE)], _metrics())
    if parts[0] in ("healthz", "livez", "readyz"):
        return health(request, parts)
    if parts == ["apis"]:
        return _top(registry, request, core=False)
    if parts == ["api"]:
        if not _wants_aggregated(request):
            _check_routed(request)
        return _top(registry, request, core=True)
    found = _below(registry, parts)
    if found is None:
        return None
    if found["kind"] == "APIGroup" or _is_custom(registry, parts):
        return _document(request, found)
    _check_routed(request)
    return _document(request, found)


def _check_routed(request: HttpRequest, media_types: Sequence[str] = MEDIA_TYPES) -> None:
    """Check a request for a document that the real server serves through its router.

    The router allows only GET, not even HEAD, and parses Accept differently. Other documents answer every method.
    """
    if request.method != "GET":
        raise errors.method_not_allowed()
    if header := request.header("accept"):
        negotiation.check_routed(header, media_types)


def _is_custom(registry: Registry, parts: list[str]) -> bool:
    return parts[0] == "apis" and all(found.is_custom for found in registry.of(parts[1], parts[2]))


def _metrics() -> bytes:
    """The only metric of this server: kubernetes_build_info."""
    labels = ",".join(f'{name}="{VERSION[key]}"' for name, key in _BUILD_LABELS)
    return ("# HELP kubernetes_build_info Major, minor and git version of the API that is served.\n"
            f"# TYPE kubernetes_build_info gauge\nkubernetes_build_info{{{labels}}} 1\n").encode()


def _below(registry: Registry, parts: list[str]) -> Object | None:
    """The discovery document of one group, or of one version of a group."""
    if parts[0] == "apis" and len(parts) == 2:
        return _group(registry, parts[1], alone=True) if parts[1] in registry.groups() else None
    if parts[0] == "apis" and len(parts) == 3:
        group, version = parts[1:]
    elif parts[0] == "api" and len(parts) == 2:
        group, version = "", parts[1]
    else:
        return None
    if group not in registry.groups() or (parts[0] == "apis" and not group):
        return None
    types = registry.of(group, version)
    if types:
        return _resource_list(group, version, types)
    if any(not other.is_custom for known in registry.versions(group) for other in registry.of(group, known)):
        raise errors.no_such_resource()
    return None


def _top(registry: Registry, request: HttpRequest, *, core: bool) -> HttpResponse:
    if media_type := _wants_aggregated(request):
        items = [_aggregated_group(registry, group) for group in ([""] if core else _groups(registry))]
        group, version, kind = _AGGREGATED
        body = encode({"kind": kind, "apiVersion": f"{group}/{version}", "metadata": {}, "items": items})
        body = render(body, Media(yaml=media_type == YAML))
        return cached(request, body, f"{media_type};g={group};v={version};as={kind}", ("Cache-Control", "public"))
    if core:
        addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": request.header("host", "127.0.0.1")}]
        return _document(request, {"kind": "APIVersions", "versions": registry.versions(""),
                                   "serverAddressByClientCIDRs": addresses})
    return _document(request, {"kind": "APIGroupList", "apiVersion": "v1",
                               "groups": [_group(registry, group) for group in _groups(registry)]})


def _wants_aggregated(request: HttpRequest) -> str:
    """The media type of aggregated discovery if the Accept header contains it, else ""."""
    for clause in clauses(request.header("accept")):
        for media_type in (JSON, YAML):
            if clause.takes(media_type) and tuple(map(clause.params.get, ("g", "v", "as"))) == _AGGREGATED:
                return media_type
    return ""


def _json(request: HttpRequest, document: Object) -> HttpResponse:
    """Answer with a document in JSON, whatever the client accepts."""
    return HttpResponse(200, [("Content-Type", JSON)],
                        render(encode(document), Media(pretty=negotiation.is_pretty(request))))


def _document(request: HttpRequest, document: Object) -> HttpResponse:
    """Answer with a plain document in JSON or YAML; protobuf is not supported."""
    media = _plain_media(request)
    return HttpResponse(200, [("Content-Type", media.content_type)], render(encode(document), media))


def _plain_media(request: HttpRequest) -> Media:
    try:
        return negotiated(request, transforms=False)
    except errors.StatusError:
        if negotiation.wants_protobuf_only(request):
            return Media()  # answer in JSON: clients that ask for protobuf can read it too
        raise


def cached(request: HttpRequest, body: bytes, media_type: str, *extra: tuple[str, str]) -> HttpResponse:
    """An answer with an ETag; a 304 without a body if the client already has that version."""
    etag = f'"{hashlib.sha512(body).hexdigest().upper()}"'
    headers = [("Content-Type", media_type), ("ETag", etag), ("Vary", "Accept"), *extra]
    if request.header("if-none-match") == etag:
        return HttpResponse(304, headers[1:])
    return HttpResponse(200, headers, body)


def _groups(registry: Registry) -> list[str]:
    """The groups other than the core group: built-in groups first, then the groups of CRDs by name."""
    names = [group for group in registry.groups() if group]
    custom = {group for group in names if all(found.is_custom for version in registry.versions(group)
                                              for found in registry.of(group, version))}
    return [group for group in names if group not in custom] + sorted(custom)


def _group(registry: Registry, group: str, *, alone: bool = False) -> Object:
    versions = [{"groupVersion": f"{group}/{version}", "version": version} for version in registry.versions(group)]
    head: Object = {"kind": "APIGroup", "apiVersion": "v1"} if alone else {}
    return {**head, "name": group, "versions": versions, "preferredVersion": versions[0]}


def _resource_list(group: str, version: str, types: Iterable[ServedResource]) -> Object:
    resources: list[Object] = []
    for resource_type in sorted(types, key=lambda found: found.plural):
        resources.append(_resource(resource_type))
        resources += [_subresource(resource_type, sub) for sub in resource_type.subresources]
    head: Object = {"kind": "APIResourceList"} if not group else {"kind": "APIResourceList", "apiVersion": "v1"}
    return {**head, "groupVersion": f"{group}/{version}" if group else version, "resources": resources}


def _verbs(resource_type: ServedResource) -> list[str]:
    if not resource_type.is_custom:
        return list(resource_type.verbs)
    hidden = _HIDDEN_AT_END if resource_type.terminating else ()
    return [verb for verb in _CUSTOM_VERBS if verb in resource_type.verbs and verb not in hidden]


def _resource(found: ServedResource) -> Object:
    entry: Object = {"name": found.plural, "singularName": found.singular, "namespaced": found.namespaced,
                     "kind": found.kind, "verbs": _verbs(found)}
    if found.short_names:
        entry["shortNames"] = list(found.short_names)
    if found.categories:
        entry["categories"] = list(found.categories)
    if found.storage_version_hash:
        entry["storageVersionHash"] = found.storage_version_hash
    return entry


def _subresource(found: ServedResource, sub: Subresource) -> Object:
    entry: Object = {"name": f"{found.plural}/{sub.name}", "singularName": "", "namespaced": found.namespaced}
    if sub.group:
        entry.update(group=sub.group, version=sub.version)
    return {**entry, "kind": sub.kind, "verbs": list(sub.verbs)}


def _aggregated_group(registry: Registry, group: str) -> Object:
    versions = [{"version": version, "resources": [_aggregated(found) for found in sorted(
        registry.of(group, version), key=lambda found: found.plural)], "freshness": "Current"}
        for version in registry.versions(group)]
    return {"metadata": {"name": group} if group else {}, "versions": versions}


def _aggregated(found: ServedResource) -> Object:
    entry: Object = {"resource": found.plural, "responseKind": _kind(found, "", "", found.kind),
                     "scope": "Namespaced" if found.namespaced else "Cluster", "singularResource": found.singular,
                     "verbs": _verbs(found)}
    if found.short_names:
        entry["shortNames"] = list(found.short_names)
    if found.categories:
        entry["categories"] = list(found.categories)
    if found.subresources:
        entry["subresources"] = [
            {"subresource": sub.name, "responseKind": _kind(found, sub.group, sub.version, sub.kind),
             "verbs": list(sub.verbs)} for sub in found.subresources]
    return entry


def _kind(found: ServedResource, group: str, version: str, kind: str) -> Object:
    """The responseKind of a resource. Built-in types omit group and version if the path has the same values."""
    if found.is_custom and not group:
        group, version = found.group, found.version
    return {"group": group, "version": version, "kind": kind}


def _root_paths(registry: Registry) -> list[str]:
    paths = [*_OTHER_PATHS]
    paths += [f"/{name}/{check}" for name, checks in CHECKS.items() for check in checks]
    for group in _groups(registry):
        paths.append(f"/apis/{group}")
        paths += [f"/apis/{group}/{version}" for version in registry.versions(group)]
    return sorted(paths)
