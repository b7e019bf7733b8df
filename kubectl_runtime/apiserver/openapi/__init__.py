"""OpenAPI documents: ``/openapi/v3`` with one for each group and version, and ``/openapi/v2`` with everything.

`respond(registry, request)` answers these paths; None means that the path is none of them. Documents are built at the
first request and kept until the registry changes. v2 comes in protobuf too, which kubectl asks for where v3 did not do;
for the documents of v3 a client that accepts nothing but protobuf gets 406.
"""

from __future__ import annotations

from kubectl_runtime.apiserver.openapi.serve import respond

__all__ = ["respond"]
