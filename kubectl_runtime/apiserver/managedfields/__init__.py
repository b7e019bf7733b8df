"""Field ownership: ``metadata.managedFields`` and server-side apply."""

from __future__ import annotations

from kubectl_runtime.apiserver.managedfields.entries import NO_RESET, ResetFields, reset_for
from kubectl_runtime.apiserver.managedfields.manager import apply, title, to_object, to_scale, update

__all__ = ["NO_RESET", "ResetFields", "apply", "reset_for", "title", "to_object", "to_scale", "update"]
