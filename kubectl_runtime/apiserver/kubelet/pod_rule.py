"""`PodRule`: one sentence about Pods: which ones, and what becomes of them. Made by `PodRules.on`.

    rules.on("app=web").fail_image_pull()
    rules.on(name="job-*").first(1).crash(code=3, after=2)
    rules.on(image="postgres:*").start(after=5).be_ready(after=20)

Which Pods are meant comes first. A rule is in force from its first action on, until `remove()`. A later rule wins over
an earlier one, action by action.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

from kubectl_runtime.core.base.clock import Duration, seconds
from kubectl_runtime.core.base.guarded_log import guarded_logger, pass_interrupt
from kubectl_runtime.core.codec.jsonvalues import json_copy
from kubectl_runtime.core.meta.selectors import Selector

Object = dict[str, Any]

log = guarded_logger(__name__)


class Rules(Protocol):
    """What a rule asks of those that it belongs to; see `pod_rules.PodRules`."""

    def enforce(self, rule: PodRule) -> None: ...

    def remove(self, rule: PodRule) -> None: ...


@dataclass(frozen=True, slots=True)
class PodMatch:
    """What a Pod, or a container of it, must look like; None is anything."""

    selector: Selector
    name: re.Pattern[str] | None = None
    namespace: re.Pattern[str] | None = None
    container: re.Pattern[str] | None = None
    image: re.Pattern[str] | None = None
    where: Callable[[Object], object] | None = None

    def takes_pod(self, pod: Object) -> bool:
        """Whether the Pod is meant. Calls `where`, and raises what it raises."""
        meta = pod["metadata"]
        if not (self.selector.matches(meta.get("labels")) and _fits(self.name, meta["name"])
                and _fits(self.namespace, meta["namespace"])):
            return False
        spec = pod["spec"]
        groups = ((spec["containers"], False), (spec.get("initContainers") or (), True))
        if not any(self.takes_container(each, initial=initial) for group, initial in groups for each in group):
            return False
        return self.where is None or bool(self.where(json_copy(pod)))

    def takes_container(self, container: Object, *, initial: bool) -> bool:
        """Whether this container of such a Pod is meant: init containers only by their name or image."""
        if initial and self.container is None and self.image is None:
            return False
        return _fits(self.container, container["name"]) and _fits(self.image, container.get("image", ""))


def _fits(pattern: re.Pattern[str] | None, text: str) -> bool:
    return pattern is None or pattern.fullmatch(text) is not None


class PodRule:
    """See the module. Every method returns the rule, and may be called from any thread."""

    def __init__(self, rules: Rules, match: PodMatch) -> None:
        self.match = match
        self._rules = rules
        self._lock = threading.Lock()
        self._changes: dict[str, Any] = {}
        self._count: int | None = None
        self._pods: dict[str, str] = {}  # uid -> namespace/name of those that were taken, in order
        self._failed: set[str] = set()  # the uids of those on which `where` failed

    def __repr__(self) -> str:
        said = ", ".join(f"{name}={value!r}" for name, value in self.changes.items())
        return f"<PodRule: {said or 'nothing said yet'}; {len(self.pods)} Pods taken>"

    @property
    def changes(self) -> Mapping[str, Any]:
        """What it says, by the names of `Behaviour`."""
        with self._lock:
            return dict(self._changes)

    @property
    def pods(self) -> list[str]:
        """The Pods that it was applied to, as ``namespace/name``: a test can assert that what it means took place."""
        with self._lock:
            return list(self._pods.values())

    def takes(self, pod: Object) -> bool:
        """Whether the rule holds for a Pod; those that it holds for are counted."""
        meta = pod["metadata"]
        try:
            if not self.match.takes_pod(pod):
                return False
        except BaseException as error:  # noqa: BLE001 - a test's mistake must not end the server's housekeeping
            pass_interrupt(error)
            self._tell_failure(meta)
            return False
        with self._lock:
            if self._count is not None and meta["uid"] not in self._pods and len(self._pods) >= self._count:
                return False
            self._pods.setdefault(meta["uid"], f"{meta['namespace']}/{meta['name']}")
        return True

    def _tell_failure(self, meta: Object) -> None:
        """Log that `where` raised: once for each Pod."""
        with self._lock:
            known = meta["uid"] in self._failed
            self._failed.add(meta["uid"])
        if not known:
            log.exception("the function `where` of a rule for Pods failed on %s/%s: the rule is passed over",
                          meta["namespace"], meta["name"])

    def remove(self) -> None:
        """Take the rule out of force: what it held back goes on at once."""
        self._rules.remove(self)

    def first(self, count: int) -> PodRule:
        """Only for the first `count` Pods that match; the others are those of the other rules. It comes before what
        becomes of them, since the rule is in force from then on: raises ValueError afterwards."""
        if self.changes:
            raise ValueError("the rule is in force already, for all Pods that match: say first(…) before what becomes "
                             "of them")
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ValueError(f"first({count!r}): a number of Pods is expected, at least 1")
        with self._lock:
            self._count = count
        return self

    # -- what becomes of them

    def unschedulable(self, why: str = "the Pod fits no node, by a rule of the test") -> PodRule:
        """They get no node, and their condition PodScheduled says why."""
        return self._says(unschedulable=_text("why", why))

    def start(self, *, after: Duration) -> PodRule:
        """Each container takes so long to start, pulling its image included."""
        return self._says(start=_seconds("after", after))

    def fail_image_pull(self, why: str = "not found") -> PodRule:
        """Their images cannot be pulled: ErrImagePull, then ImagePullBackOff, until the rule is removed."""
        return self._says(pull_error=_text("why", why))

    def be_ready(self, *, after: Duration) -> PodRule:
        """Their containers are ready so long after they started."""
        return self._says(ready=_seconds("after", after))

    def never_be_ready(self) -> PodRule:
        """Their containers run and are never ready, until the rule is removed."""
        return self._says(ready=None)

    def crash(self, code: int = 1, *, after: Duration = 0, times: int | None = None) -> PodRule:
        """Their containers end with this exit code so long after they started. As the Pod's restartPolicy says, they
        start again, with a backoff (CrashLoopBackOff), or the Pod has failed. `times`: only so many runs of each end.
        """
        if isinstance(code, bool) or not isinstance(code, int) or not 1 <= code <= 255:
            raise ValueError(f"crash({code!r}): an exit code lies between 1 and 255; to end well is `succeed`")
        if times is not None and (isinstance(times, bool) or not isinstance(times, int) or times < 1):
            raise ValueError(f"times={times!r}: a number of runs is expected, at least 1")
        return self._says(run=_seconds("after", after), exit_code=code, endings=times)

    def succeed(self, *, after: Duration = 0) -> PodRule:
        """Their containers end well so long after they started, as those of Jobs do at once without any rule."""
        return self._says(run=_seconds("after", after), exit_code=0, endings=None)

    def keep_running(self) -> PodRule:
        """Their containers do not end by themselves, those of a Job's Pods neither."""
        return self._says(run=None, exit_code=0, endings=None)

    def stop(self, *, after: Duration) -> PodRule:
        """When their Pod is deleted, their containers end by themselves after so long (0: at once), if the grace period
        is not over before. Without such a rule a deleted Pod takes all of its grace period."""
        return self._says(stop=_seconds("after", after))

    def log(self, text: bytes | str) -> PodRule:
        """Each container writes this to its log when it starts."""
        if not isinstance(text, str | bytes):
            raise ValueError(f"log({text!r}): a text, or bytes, are expected")
        return self._says(log=text.encode() if isinstance(text, str) else text)

    def _says(self, **changes: Any) -> PodRule:
        with self._lock:
            self._changes.update(changes)
        self._rules.enforce(self)
        return self


def _seconds(name: str, value: Duration) -> float:
    if isinstance(value, int | float | timedelta) and not isinstance(value, bool) and (
            0 <= (span := seconds(value)) < float("inf")):
        return span
    raise ValueError(f"{name}={value!r}: seconds from 0 on, or a timedelta, are expected")


def _text(name: str, value: str) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name}={value!r}: a text is expected, which users are to read")
    return value
