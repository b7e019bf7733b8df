"""Which answers are compressed: as kube-apiserver does it (`responsewriters.SerializeObject`), for clients that accept
gzip, above 128 KiB. Watches never are, nor plain text such as logs."""

from __future__ import annotations

import gzip
from dataclasses import replace

from kubectl_runtime.apiserver.wire import HttpRequest, HttpResponse

COMPRESS_ABOVE = 128 << 10
"""Bytes of a body. Read for each answer, so that a run of tests can have all of them compressed."""
_LEVEL = 1  # kube-apiserver's, which saves time rather than bytes


def compressed(request: HttpRequest, response: HttpResponse) -> HttpResponse:
    """The answer as it is sent: with its body compressed where a real server compresses it."""
    if response.stream is not None or len(response.body) <= COMPRESS_ABOVE or not _accepts_gzip(request):
        return response
    if response.header("content-encoding") or _is_text(response):
        return response
    headers = [*response.headers, ("Content-Encoding", "gzip"), ("Vary", "Accept-Encoding")]
    return replace(response, headers=headers, body=gzip.compress(response.body, _LEVEL, mtime=0))


def _accepts_gzip(request: HttpRequest) -> bool:
    """Whether the client names gzip; one with a weight (`gzip;q=1`) does not count there."""
    return any(token.strip() == "gzip" for token in request.header("accept-encoding").split(","))


def _is_text(response: HttpResponse) -> bool:
    return (response.header("content-type") or "").startswith("text/")
