"""``/healthz``, ``/livez`` and ``/readyz`` with the checks of the real server; every check passes here, once the server
is ready."""

from __future__ import annotations

from kubectl_runtime.apiserver.wire import HttpRequest, HttpResponse

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
    """The answer for a health path; None for a check that does not exist."""
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
    """The answer for the path `name` of a server that has not read everything yet."""
    lines = [f"[-]{one} failed: reason withheld" if one == _READ_LAST else f"[+]{one} ok" for one in CHECKS[name]]
    return _text("\n".join([*lines, f"{name} check failed", ""]), 500)


def _text(text: str, code: int = 200) -> HttpResponse:
    return HttpResponse(code, [("Content-Type", "text/plain; charset=utf-8"), ("X-Content-Type-Options", "nosniff")],
                        text.encode())
