"""The patch formats JSON patch, merge patch and strategic merge patch. Server-side apply is in ``managedfields``."""

from __future__ import annotations

from kubectl_runtime.apiserver.patching.json_patch import apply_json_patch, apply_merge_patch
from kubectl_runtime.apiserver.patching.strategic import apply_strategic_merge_patch

__all__ = ["apply_json_patch", "apply_merge_patch", "apply_strategic_merge_patch"]
