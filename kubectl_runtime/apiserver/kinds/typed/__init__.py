"""Gives built-in objects the shape of the real server's typed objects (see decode.py)."""

from __future__ import annotations

from kubectl_runtime.apiserver.kinds.typed.decode import blank, decode, known, written_lists

__all__ = ["blank", "decode", "known", "written_lists"]
