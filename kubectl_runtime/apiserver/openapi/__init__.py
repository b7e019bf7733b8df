"""OpenAPI documents: ``/openapi/v3`` serves one for each group and version, ``/openapi/v2`` one for all types.

`respond(registry, request)` answers these paths and returns None for any other path. Documents are built on the first
request and kept until the registry changes. v2 also exists in protobuf; kubectl requests it for a kind that no v3
document describes. For v3 a client that accepts only protobuf gets a 406.
"""

from __future__ import annotations

from kubectl_runtime.apiserver.openapi.serve import respond

__all__ = ["respond"]
