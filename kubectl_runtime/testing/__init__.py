"""Test tools: the embedded API server and what simulates, disturbs and verifies around it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kubectl_runtime.testing.server import ApiServer

__all__ = ["ApiServer"]


def __getattr__(name: str) -> Any:
    if name == "ApiServer":
        from kubectl_runtime.testing.server import ApiServer

        return ApiServer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
