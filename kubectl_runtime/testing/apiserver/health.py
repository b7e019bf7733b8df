"""``/healthz``, ``/livez`` and ``/readyz`` with the checks of the real server; every check passes here."""

from __future__ import annotations

from kubectl_runtime.testing.apiserver.wire import HttpRequest, HttpResponse

_START = (
    "start-apiserver-admission-initializer", "generic-apiserver-start-informers",
    "priority-and-fairness-config-consumer", "priority-and-fairness-filter",
    "storage-object-count-tracker-hook", "start-apiextensions-informers",
    "start-apiextensions-controllers", "crd-informer-synced", "start-system-namespaces-controller",
    "rbac/bootstrap-roles", "scheduling/bootstrap-system-priority-classes", "bootstrap-controller",
    "aggregator-reload-proxy-client-cert", "start-kube-aggregator-informers", "apiservice-registration-controller",
    "apiservice-discovery-controller", "kube-apiserver-autoregistration", "autoregister-completion",
    "apiservice-openapi-controller", "apiservice-openapiv3-controller")
_HOOKS = tuple(f"poststarthook/{name}" for name in _START)
CHECKS = {
    "healthz": ("ping", "log", "etcd", *_HOOKS),
    "livez": ("ping", "log", "etcd", *_HOOKS),
    "readyz": ("ping", "log", "etcd", "etcd-readiness", "informer-sync", *_HOOKS, "shutdown"),
}


def health(request: HttpRequest, parts: list[str]) -> HttpResponse | None:
    """The answer for a health path; None for a check that does not exist."""
    name, check = parts[0], "/".join(parts[1:])
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


def _text(text: str) -> HttpResponse:
    return HttpResponse(200, [("Content-Type", "text/plain; charset=utf-8"), ("X-Content-Type-Options", "nosniff")],
                        text.encode())
