"""Kubernetes controllers for Python code that blocks: the names that a controller's author imports.

Each name is imported on first use, so that `import kubectl_runtime` costs nothing.
"""
from __future__ import annotations

import importlib
from typing import Any

_HOME = {
    "Action": "runtime.action",
    "Api": "client.api",
    "ApiError": "core.errors",
    "ApiResource": "core.gvk",
    "Apply": "runtime.events",
    "AuthError": "core.errors",
    "Client": "client.client",
    "Config": "client.config",
    "ConfigError": "core.errors",
    "Context": "runtime.context",
    "Controller": "runtime.controller",
    "ControllerError": "runtime.running",
    "DecodeError": "core.errors",
    "Delete": "runtime.events",
    "DeleteParams": "core.params",
    "DiscoveryError": "core.errors",
    "Event": "runtime.events",
    "Failed": "runtime.events",
    "GetParams": "core.params",
    "GroupVersionKind": "core.gvk",
    "Init": "runtime.events",
    "InitApply": "runtime.events",
    "InitDone": "runtime.events",
    "KeyBackoff": "runtime.failures",
    "KindNotServedError": "client.failures",
    "KubeError": "core.errors",
    "ListParams": "core.params",
    "ListSemantic": "runtime.watcher_config",
    "NotConfiguredError": "client.config",
    "ObjectList": "client.listing",
    "ObjectRef": "core.refs",
    "Patch": "core.patch",
    "PatchParams": "core.params",
    "PostParams": "core.params",
    "ReconcileRequest": "runtime.triggers",
    "Reconciler": "runtime.reconciler",
    "RequestError": "core.errors",
    "RequestTimeout": "core.errors",
    "RetryPolicy": "client.retry",
    "Running": "runtime.running",
    "Scope": "core.gvk",
    "StopToken": "core.stop",
    "Store": "runtime.store",
    "StoreNotReady": "runtime.store",
    "SyncTimeoutError": "runtime.gate",
    "TransportError": "core.errors",
    "WatchBackoff": "runtime.backoff",
    "WatchParams": "core.params",
    "WatcherConfig": "runtime.watcher_config",
    "applied_objects": "runtime.adapters",
    "metadata_watcher": "runtime.watcher",
    "predicate_filter": "runtime.adapters",
    "predicates": "runtime.predicates",
    "reflector": "runtime.reflector",
    "store": "runtime.store_writer",
    "touched_objects": "runtime.adapters",
    "watch_object": "runtime.watcher",
    "watcher": "runtime.watcher",
}
"""Where each public name lives, below this package."""

_MODULES = frozenset({"predicates"})
"""Those that are modules themselves."""

__all__ = sorted(_HOME)  # noqa: PLE0605 - computed from the one table above


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{home}")
    value = module if name in _MODULES else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
