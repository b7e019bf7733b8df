"""The typed shapes of built-in objects (see decode.py)."""

from __future__ import annotations

from kubectl_runtime.apiserver.kinds.typed.decode import blank, decode, known, written_lists

__all__ = ["blank", "decode", "known", "written_lists"]
