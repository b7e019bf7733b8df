"""`LeaseStore`: performs what the lease machine asks of the server. `Trouble`: why Leases cannot be read or written.
"""
from __future__ import annotations

import threading
from collections.abc import Mapping
from http import HTTPStatus

from msgspec.structs import replace

from kubectl_runtime.client.api.client import Client
from kubectl_runtime.client.http.retry import KindNotServedError
from kubectl_runtime.core.base.clock import Clock
from kubectl_runtime.core.base.errors import ApiError, KubeError, error_behind
from kubectl_runtime.core.base.guard import guarded_logger
from kubectl_runtime.core.meta.gvk import api_resource_of
from kubectl_runtime.core.requests import request as build
from kubectl_runtime.core.requests.request import Place, Retry
from kubectl_runtime.manager.leases import (
    Answer,
    Conflict,
    Create,
    Failed,
    Get,
    LeaseRecord,
    Read,
    Request,
    Update,
    Written,
)
from kubectl_runtime.resources.coordination_v1 import Lease
from kubectl_runtime.runtime.usercode import described

log = guarded_logger(__name__)

class LeaseStore:
    """Reads and writes one Lease. For one thread at a time."""

    def __init__(self, client: Client, name: str, namespace: str, trouble: Trouble, *,
                 labels: Mapping[str, str] | None = None) -> None:
        """`client` makes the requests; nothing is sent yet. `labels` that the Lease is to have. `trouble` keeps what
        fails."""
        self._client = client
        self._name = name
        self._place = Place(api_resource_of(Lease), namespace)
        self._labels = dict(labels or {})
        self._received: bytes | None = None
        self.trouble = trouble

    def perform(self, request: Request, timeout: float) -> Answer:
        """Carry out `request`, in `timeout` seconds at most. Blocks; raises nothing."""
        try:
            answer: Answer = self._perform(request, timeout)
        except ApiError as error:
            found = None if isinstance(error, KindNotServedError) else _meaning(request, error)
            if found is None:
                self.trouble.failed(self._name, request, error)
                return Failed()
            answer = found
        except BaseException as error:  # noqa: BLE001 - layers, credentials and observers are other people's code
            self.trouble.failed(self._name, request, error)
            return Failed()
        self.trouble.worked(self._name, request)
        return answer

    def _perform(self, request: Request, timeout: float) -> Read | Written:
        match request:
            case Get():
                return Read(self._send(build.get(self._place, self._name), timeout))
            case Create(record):
                fresh = Lease(name=self._name, namespace=self._place.namespace, labels=self._labels or None)
                record.write_to(fresh)
                return Written(self._send(build.create(self._place, fresh), timeout))
            case Update(record):
                assert self._received is not None, "a Lease is read before it is written"
                lease = Lease.from_bytes(self._received)
                record.write_to(lease)
                if not self._labels.items() <= lease.labels.items():
                    lease.metadata.labels = {**lease.labels, **self._labels}
                return Written(self._send(build.replace(self._place, lease), timeout))

    def _send(self, request: build.Request, timeout: float) -> LeaseRecord:
        once = replace(request, retry=Retry.NEVER)
        answer = self._client.request(once, deadline=self._client.clock.monotonic() + timeout)
        record = LeaseRecord.of(Lease.from_bytes(answer))
        self._received = answer
        return record


FIRST_REPEAT, LONGEST_REPEAT = 10.0, 60.0
"""Seconds until a failure that lasts is logged again, doubling."""


REFUSED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY)
"""What does not pass by itself: no rights, or no such namespace."""


PATIENCE = 5.0
"""Seconds for which requests may fail before that counts; what the server refuses counts at once."""


class Trouble:
    """The failing requests for Leases. The log gets the first of each kind, repeats while it lasts, and the end of all.
    That a Lease can be read does not end the trouble of writing it. Safe to use from any thread."""

    def __init__(self, whose: str, clock: Clock, repeated_within: float) -> None:
        """Nothing has failed yet. `whose`: what log lines begin with. `repeated_within`: seconds in which a
        request that failed is made again; if it is not, nobody needs it any more."""
        self._whose, self._clock, self._repeated_within = whose, clock, repeated_within
        self._lock = threading.Lock()
        self._kinds: dict[tuple[str, bool], tuple[type[BaseException], int]] = {}
        self._last_at: dict[tuple[str, bool], float] = {}
        self._since = self._again_at = 0.0
        self._repeat = FIRST_REPEAT
        self._text, self._refused = "", False

    @property
    def reason(self) -> str:
        """Why this process cannot take part: what fails. Empty when nothing does, and in the first `PATIENCE` seconds
        of what may pass by itself. Does not block."""
        with self._lock:
            now = self._clock.monotonic()
            lasts = any(now - at < self._repeated_within for at in self._last_at.values())
            return self._text if lasts and (self._refused or now - self._since >= PATIENCE) else ""

    def failed(self, name: str, request: object, error: BaseException) -> None:
        """`request` for the Lease `name` failed."""
        reason = error_behind(error) or error
        kind = type(reason), reason.code if isinstance(reason, ApiError) else 0
        what = "" if isinstance(error, KubeError) else f"{type(request).__name__.lower()} failed: "
        text = f"{self._whose}: {error if isinstance(error, KubeError) else what + described(error)}"
        now = self._clock.monotonic()
        with self._lock:
            known = kind in self._kinds.values()
            if all(now - at >= self._repeated_within for at in self._last_at.values()):
                self._since, self._again_at, self._repeat = now, now + FIRST_REPEAT, FIRST_REPEAT
            which = name, isinstance(request, Get)
            self._kinds[which], self._last_at[which] = kind, now
            self._text, self._refused = text, isinstance(reason, ApiError) and reason.code in REFUSED
            repeated = known and now >= self._again_at
            if repeated:
                self._repeat = min(2 * self._repeat, LONGEST_REPEAT)
                self._again_at = now + self._repeat
            lasts = now - self._since
        if not known:
            log.warning("%s", text, exc_info=None if isinstance(error, KubeError) else error)
        elif repeated:
            log.warning("%s; still so after %.0f s", text, lasts)

    def worked(self, name: str, request: object) -> None:
        """`request` for the Lease `name` was answered."""
        if not self._kinds:
            return
        with self._lock:
            self._last_at.pop((name, isinstance(request, Get)), None)
            over = self._kinds.pop((name, isinstance(request, Get)), None) is not None and not self._kinds
        if over:
            log.info("%s: the server answers again", self._whose)


def _meaning(request: Request, error: ApiError) -> Answer | None:
    """What an error says of the Lease; None: nothing."""
    if isinstance(request, Get):
        return Read(None) if error.is_not_found else None
    if error.code == HTTPStatus.CONFLICT or (isinstance(request, Update) and error.is_not_found):
        return Conflict()
    return None
