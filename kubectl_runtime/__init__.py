"""Kubernetes controllers for Python code that blocks: the names that a controller's author imports.

Each name is imported on first use, so that `import kubectl_runtime` costs nothing.
"""
from __future__ import annotations

import importlib
from typing import Any

_HOME = {
    "ApiError": "core.errors",
    "ApiResource": "core.gvk",
    "ConfigError": "core.errors",
    "DecodeError": "core.errors",
    "GroupVersionKind": "core.gvk",
    "KubeError": "core.errors",
    "ObjectRef": "core.refs",
    "RequestError": "core.errors",
    "Scope": "core.gvk",
    "StopToken": "core.stop",
    "TransportError": "core.errors",
}
"""Where each public name lives, below this package."""

__all__ = sorted(_HOME)  # noqa: PLE0605 - computed from the one table above


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
