"""OpenAPI documents: ``/openapi/v3`` with one for each group and version, and ``/openapi/v2`` with everything.

`respond(registry, request)` answers these paths; None means that the path is none of them. Documents are built at the
first request and kept until the registry changes. Protobuf is not spoken: a client that accepts nothing else gets 406
(kubectl asks for v2 in protobuf only where v3 did not do).
"""

from __future__ import annotations

from kubectl_runtime.apiserver.openapi.serve import respond

__all__ = ["respond"]
