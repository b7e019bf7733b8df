"""OpenAPI documents: ``/openapi/v3`` with one for each group and version, and ``/openapi/v2`` with everything.

`respond(registry, request)` answers these paths and returns None for any other path. Documents are built at the first
request and kept until the registry changes. v2 also exists in protobuf, which kubectl requests if v3 was not enough; a
client that accepts only protobuf gets a 406 for v3.
"""

from __future__ import annotations

from kubectl_runtime.apiserver.openapi.serve import respond

__all__ = ["respond"]
