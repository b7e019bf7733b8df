"""`Starting`: how a kube-apiserver answers while it is not ready yet, for a while after its start.

    part of the time   request                    answer
    first half         any but a health check     503: not all paths are known yet; `Retry-After: 5`
    second half        a list or a watch          429: the storage is (re)initializing; `Retry-After: 1`
    second half        any other                  as ever
    all                /readyz, /healthz          500, with the check that fails
"""

from __future__ import annotations

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.health import unready
from kubectl_runtime.apiserver.route import RequestInfo
from kubectl_runtime.apiserver.wire import HttpRequest, HttpResponse
from kubectl_runtime.core.base.clock import Clock

_HEALTH = ("/healthz", "/livez", "/readyz")


class Starting:
    """Not ready until `seconds` have passed on the clock."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        now = clock.monotonic()
        self._knows_paths, self._ready = now + seconds / 2, now + seconds

    def answer(self, request: HttpRequest, info: RequestInfo) -> HttpResponse | None:
        """The answer to a request; None when it is answered as ever. Raises StatusError."""
        now = self._clock.monotonic()
        if now >= self._ready:
            return None
        if request.path.startswith(_HEALTH):
            return None if request.path.startswith("/livez") else unready(request.path.strip("/").partition("/")[0])
        if now < self._knows_paths:
            raise _later(503, "ServiceUnavailable", "the request has been made before all known HTTP paths have been "
                         "installed, please try again", 5)
        if info.is_resource and info.verb in ("list", "watch"):
            raise _later(429, "TooManyRequests", "storage is (re)initializing", 1)
        return None


def _later(code: int, reason: str, message: str, seconds: int) -> errors.StatusError:
    return errors.StatusError(code, reason, message, details={"retryAfterSeconds": seconds},
                              headers=[("Retry-After", str(seconds))])
