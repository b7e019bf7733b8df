"""The series of a watch and its store. `watch` is what it is called in logs, `pods in namespace a`.

They exist, at 0, from the watch's first request on. Two controllers that watch the same share the series: counters add
up, gauges are those of the watch that spoke last.
"""
from __future__ import annotations

import threading
from collections.abc import Iterator

from kubectl_runtime.runtime.observe.families import Family, Row, counter, gauge

PHASES = ("listing", "watching", "waiting", "stopped")

STATE = gauge("kubectl_runtime_watch_state", "watch state",
              "1 for what the watch does: it is listing, watching, waiting (after a failure) or stopped.")
RELISTS = counter("kubectl_runtime_watch_relists_total", "watch", "Complete lists after the first one.")
FAILURES = counter("kubectl_runtime_watch_failures_total", "watch", "Attempts to list or watch that failed; while the "
                   "server is away, those of the one watch that tries for all.")
IN_A_ROW = gauge("kubectl_runtime_watch_consecutive_failures", "watch", "Failures since the watch last worked.")
DELAY = gauge("kubectl_runtime_watch_backoff_seconds", "watch", "How long it waits after a failure; 0 if it does not.")
EVENTS = counter("kubectl_runtime_watch_events_total", "watch", "Events and bookmarks that came on the open watch.")
AGE = gauge("kubectl_runtime_watch_last_frame_age_seconds", "watch",
            "Seconds since anything came; 0 once it has stopped. It is silent for long: it does not work any more.")
LIST_TIME = gauge("kubectl_runtime_watch_last_list_seconds", "watch", "How long the last complete list took.")
OBJECTS = gauge("kubectl_runtime_store_objects", "watch", "Objects in the store.")

FAMILIES = (STATE, RELISTS, FAILURES, IN_A_ROW, DELAY, EVENTS, AGE, LIST_TIME, OBJECTS)


class WatchSeries:
    """What is counted of one watch. Safe to use from any thread."""

    def __init__(self, now: float) -> None:
        self.lock = threading.Lock()
        self.phase, self.heard = "listing", now
        self.relists = self.failures = self.in_a_row = self.events = self.objects = 0
        self.delay = self.list_time = 0.0

    def phase_changed(self, phase: str, now: float) -> None:
        """The watch has begun to be in this phase."""
        with self.lock:
            if self.phase == "stopped":  # its second life
                self.heard = now
            self.phase = phase
            if phase != "waiting":
                self.delay = 0.0
            if phase == "watching":  # its answer came
                self.heard, self.in_a_row = now, 0

    def failed(self, in_a_row: int, delay: float) -> None:
        """The watch failed, for the `in_a_row`-th time in a row, and waits `delay` seconds."""
        with self.lock:
            self.failures += 1
            self.in_a_row, self.delay = in_a_row, delay

    def listed(self, objects: int, relists: int, seconds: float, now: float) -> None:
        """A list of so many objects is complete, after so many seconds; `relists` were complete before it."""
        with self.lock:
            self.objects, self.list_time, self.heard, self.in_a_row = objects, seconds, now, 0
            self.relists += relists > 0

    def frame(self, events: int, now: float) -> None:
        """So many events came at `now`."""
        with self.lock:
            self.events += events
            self.heard = now

    def values(self, name: str, now: float) -> Iterator[tuple[Family, Row]]:
        """All series of the watch `name`, as they are at this moment."""
        with self.lock:
            phase = self.phase
            numbers = {RELISTS: self.relists, FAILURES: self.failures, IN_A_ROW: self.in_a_row, DELAY: self.delay,
                       EVENTS: self.events, LIST_TIME: self.list_time, OBJECTS: self.objects,
                       AGE: 0.0 if phase == "stopped" else max(0.0, now - self.heard)}
        for known in PHASES:
            yield STATE, ((name, known), float(known == phase))
        for family, number in numbers.items():
            yield family, ((name,), number)
