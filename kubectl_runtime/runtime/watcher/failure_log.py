"""How the failures of a watch are told: one line for each attempt, and one when it is over.

    first failure, or another than before   warning: verb, kind, namespace, what the server said, what to do, next try;
                                            of a version that has expired info, since a new list is all it takes
    the same again                          warning, short: how many times, for how long, next attempt; while nobody
                                            answers, at each doubling of how many times
    something arrived after failures        info: how many there were

The rate is that of the backoff, so a watch that fails for ever ends at one or two short lines a minute. Lists and
watches are reads: what a server says of those of Secrets quotes no content of theirs.
"""
from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from kubectl_runtime.client.http.reachability import PROBE_SECONDS
from kubectl_runtime.core.base.errors import ApiError, KubeError, message_of
from kubectl_runtime.core.base.guarded_log import guarded_logger
from kubectl_runtime.core.meta.gvk import ApiResource
from kubectl_runtime.runtime.usercode import described
from kubectl_runtime.runtime.watcher.event import MAX_RETRY_AFTER, Event, Failed, Init, InitApply

log = guarded_logger(__name__)


@dataclass(frozen=True, slots=True)
class WatchTarget:
    """What is watched, as log lines name it."""

    resource: ApiResource
    namespace: str | None = None
    label_selector: str | None = None
    field_selector: str | None = None

    def __str__(self) -> str:
        """`deployments.apps in namespace prod (labels app=web)`."""
        parts = [self.resource.full_name]
        if self.namespace:
            parts.append(f"in namespace {self.namespace}")
        selectors = {"labels": self.label_selector, "fields": self.field_selector}
        if any(selectors.values()):
            parts.append(f"({', '.join(f'{what} {text}' for what, text in selectors.items() if text)})")
        return " ".join(parts)


class FailureLog:
    """The log of one watch. Not thread-safe."""

    def __init__(self, target: WatchTarget) -> None:
        self._target = target
        self._last = ""
        self._count = 0
        self._since = 0.0

    def failed(self, failure: Failed, now: float, delay: float) -> str:
        """Log `failure`, which happened at `now` and is followed by `delay` seconds of waiting; returns it as text."""
        text = self.describe(failure)
        if not self._count:
            self._since = now
        self._count += 1
        if text != self._last:
            error = failure.error
            unexpected = None if isinstance(error, KubeError) else error
            level = logging.INFO if isinstance(error, ApiError) and error.is_expired else logging.WARNING
            log.log(level, "%s; %s", text, _next(failure, delay), exc_info=unexpected)
        elif not failure.away or self._count & (self._count - 1) == 0:
            log.warning("cannot %s %s: still so after %d failures in %.0f s; %s",
                        failure.verb, self._target, self._count, now - self._since, _next(failure, delay))
        self._last = text
        return text

    def succeeded(self, event: Event[Any], now: float) -> None:
        """An event arrived. Only whole lists and changes count: a list that begins has proved nothing."""
        if self._count and not isinstance(event, Init | InitApply):
            log.info("%s: works again after %d failure%s in %.0f s", self._target, self._count,
                     "" if self._count == 1 else "s", now - self._since)
            self._count, self._last = 0, ""

    def describe(self, failure: Failed) -> str:
        """`cannot list pods in namespace x: ... (403 Forbidden): grant ...`."""
        error = failure.error
        text = f"cannot {failure.verb} {self._target}: {self._said(error)}"
        remedy = self._remedy(failure)
        return f"{text}: {remedy}" if remedy else text

    def _said(self, error: Exception) -> str:
        if not isinstance(error, ApiError):
            return described(error)
        code = " ".join(part for part in (str(error.code or ""), error.reason) if part) or "no reason given"
        message = message_of(error.status).strip() if error.status.message else ""
        return f"{message} ({code})" if message else code

    def _remedy(self, failure: Failed) -> str:
        error, resource = failure.error, self._target.resource
        if not isinstance(error, ApiError):
            return ""
        if error.is_forbidden:
            return (f"grant the verb {failure.verb!r} on resource {resource.plural!r} of API group {resource.group!r} "
                    "to the user of this program (it needs list and watch)")
        if error.is_unauthorized:
            return "the credentials are not valid or have expired"
        if error.is_expired:
            return "its history no longer reaches back that far, so everything is listed again"
        return "this kind cannot be watched; changes are missed" if error.code == 405 else ""


def absent(target: WatchTarget, trouble: Exception) -> str:
    """What a watch says that waits for the server, together with the others of its client."""
    return f"cannot watch {target}: the server does not answer: {described(trouble)}"


def _next(failure: Failed, delay: float) -> str:
    if failure.away:
        return f"one watch of this client tries every {PROBE_SECONDS:.0f} s until the server answers"
    if not delay:
        return "next attempt at once"
    asked = f" (the server asks for {failure.retry_after:.0f} s)" if failure.retry_after > MAX_RETRY_AFTER else ""
    return f"next attempt in {delay:.1f} s{asked}"
