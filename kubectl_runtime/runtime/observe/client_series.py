"""The series of clients and elections. Their labels are known only when something happens: a host, a status, a Lease.

    rest_client_*                       as client-go has them; `verb` of these is the HTTP method, `code` is the status,
                                        or `<error>` where no answer came
    leader_election_master_status       as client-go's: 1 for who leads, 0 for who does not
    kubectl_runtime_*                   the library's own; `verb` of these is Kubernetes's
"""
from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from functools import partial

from kubectl_runtime.runtime.observe.families import Family, Row, counter, gauge, histogram
from kubectl_runtime.runtime.observe.histogram import REQUEST, Histogram

REQUESTS = counter("rest_client_requests_total", "code method host", "Attempts at requests, by their answer.")
DURATION = histogram("rest_client_request_duration_seconds", "verb host", REQUEST,
                     "How long attempts took; for a watch, until its head came.")
RETRIES = counter("rest_client_request_retries_total", "code verb host", "Attempts that were followed by another one.")
LEADING = gauge("leader_election_master_status", "name", "1 if this process leads, else 0.")
WRITES = counter("kubectl_runtime_objects_written_total", "resource verb", "Writes that the server answered.")
CREDENTIALS = counter("kubectl_runtime_credential_refreshes_total", "host result",
                      "Calls that had to get new credentials: success or error.")

FAMILIES = (REQUESTS, DURATION, RETRIES, LEADING, WRITES, CREDENTIALS)

METHODS = {"get": "GET", "list": "GET", "watch": "GET", "create": "POST", "replace": "PUT", "patch": "PATCH",
           "apply": "PATCH", "delete": "DELETE", "deletecollection": "DELETE"}


class ClientSeries:
    """What is counted of all clients together. Safe to use from any thread."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._counts: dict[Family, dict[tuple[str, ...], float]] = defaultdict(lambda: defaultdict(float))
        self._durations: dict[tuple[str, ...], Histogram] = defaultdict(partial(Histogram, REQUEST))

    def count(self, family: Family, *labels: str) -> None:
        """Count one more in the series of `family` with these labels."""
        with self.lock:
            self._counts[family][labels] += 1

    def set(self, family: Family, *labels: str, to: float) -> None:
        """Set the series of `family` with these labels `to` a number."""
        with self.lock:
            self._counts[family][labels] = to

    def forget(self, family: Family, *labels: str) -> None:
        """Show the series of `family` with these labels no more."""
        with self.lock:
            self._counts[family].pop(labels, None)

    def attempted(self, host: str, method: str, code: int, seconds: float, trace_id: str = "") -> None:
        """Count an attempt at a request, which took so many `seconds` and was answered with `code` (0: not
        answered)."""
        with self.lock:
            self._counts[REQUESTS][code_of(code), method, host] += 1
            self._durations[method, host].add(seconds, trace_id)

    def values(self) -> Iterator[tuple[Family, Row]]:
        """All series, as they are at this moment."""
        with self.lock:
            counts = {family: dict(rows) for family, rows in self._counts.items()}
            durations = {labels: spread.copy() for labels, spread in self._durations.items()}
        for family, rows in counts.items():
            for labels, value in rows.items():
                yield family, (labels, value)
        for labels, spread in durations.items():
            yield DURATION, (labels, spread)


def code_of(code: int) -> str:
    """The code of an answer as client-go's metrics write it: `<error>` when there was no answer."""
    return str(code) if code else "<error>"
