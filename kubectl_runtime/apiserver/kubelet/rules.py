"""`PodRules`: rules by which a test controls how a server's Pods run (`server.kubelet.rules`).

    rules.on("app=web").fail_image_pull()
    rules.on(name="job-*").first(1).crash(code=3, after=2)
    rules.on(image="postgres:*").start(after=5).be_ready(after=20)

Without rules each Pod gets a node, starts and becomes ready at once, and runs until it is deleted. The deletion takes
the Pod's whole grace period. Only init containers and the Pods of Jobs end by themselves, successfully and at once.

A `PodRule` selects Pods and holds actions for them. ``rules.on(…)`` selects the Pods, and each method called on the
result adds an action. The rule applies from its first action until `remove()`. A later rule overrides an earlier one,
action by action. `Behaviour` is the result for one container, `Plan` for all containers of a Pod. Times are seconds on
the server's clock.
"""
from __future__ import annotations

import fnmatch
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Protocol

from kubectl_runtime.apiserver.wire import Object
from kubectl_runtime.core.base.guard import guarded_logger, pass_interrupt
from kubectl_runtime.core.base.threads import Duration, seconds
from kubectl_runtime.core.codec.jsonbytes import json_copy
from kubectl_runtime.core.meta.selectors import LabelSelection, Selector


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How one container runs. The defaults apply to a container without rules."""

    unschedulable: str = ""
    """Why the Pod gets no node; empty if the Pod gets one."""
    start: float = 0.0
    """Seconds that the container takes to start, once its turn has come."""
    pull_error: str = ""
    """The error of the image pull; empty if the pull succeeds."""
    ready: float | None = 0.0
    """Seconds that the container runs until it is ready; None if it is never ready."""
    run: float | None = None
    """Seconds that the container runs until it ends; None if it does not end by itself."""
    exit_code: int = 0
    """The exit code when the container ends by itself."""
    endings: int | None = None
    """How many runs end by themselves, before a run that does not end; None if all runs end."""
    stop: float | None = None
    """Seconds from the Pod's deletion until the container ends; None if it runs until the grace period has ended."""
    log: bytes = b""
    """The text that the container writes to its log when it starts."""

    def run_time(self, restarts: int) -> float | None:
        """How many seconds a run lasts after the given number of restarts; None if it does not end by itself."""
        return None if self.endings is not None and restarts >= self.endings else self.run


@dataclass(frozen=True, slots=True)
class Plan:
    """How a Pod runs."""

    containers: Mapping[str, Behaviour]
    """Behaviours by container name, including init containers."""
    unschedulable: str = ""
    """Why the Pod gets no node; empty if it gets one."""

    def of(self, container: str) -> Behaviour:
        """A container's behaviour; the default behaviour for a container added later (an ephemeral container)."""
        return self.containers.get(container) or Behaviour()


log = guarded_logger(__name__)


class Rules(Protocol):
    """The part of `PodRules` that a `PodRule` calls."""

    def enforce(self, rule: PodRule) -> None: ...

    def remove(self, rule: PodRule) -> None: ...


@dataclass(frozen=True, slots=True)
class PodMatch:
    """Which Pods and containers a rule selects. A field that is None matches everything."""

    selector: Selector
    name: re.Pattern[str] | None = None
    namespace: re.Pattern[str] | None = None
    container: re.Pattern[str] | None = None
    image: re.Pattern[str] | None = None
    where: Callable[[Object], object] | None = None

    def takes_pod(self, pod: Object) -> bool:
        """Whether the Pod matches. Calls `where`, and passes on its exceptions."""
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
        """Whether a container of a matching Pod matches. Init containers match only by container name or image."""
        if initial and self.container is None and self.image is None:
            return False
        return _fits(self.container, container["name"]) and _fits(self.image, container.get("image", ""))


def _fits(pattern: re.Pattern[str] | None, text: str) -> bool:
    return pattern is None or pattern.fullmatch(text) is not None


class PodRule:
    """One rule: which Pods it selects, and how they run. Made by `PodRules.on`.

    Action methods and `first` return the rule. All methods may be called from any thread.
    """

    def __init__(self, rules: Rules, match: PodMatch) -> None:
        self.match = match
        self._rules = rules
        self._lock = threading.Lock()
        self._changes: dict[str, Any] = {}
        self._count: int | None = None
        self._pods: dict[str, str] = {}  # uid -> namespace/name of each Pod that the rule applied to, in order
        self._failed: set[str] = set()  # the uids of Pods on which `where` failed

    def __repr__(self) -> str:
        said = ", ".join(f"{name}={value!r}" for name, value in self.changes.items())
        return f"<PodRule: {said or 'no action yet'}; applied to {len(self.pods)} Pods>"

    @property
    def changes(self) -> Mapping[str, Any]:
        """The fields of `Behaviour` that the rule sets."""
        with self._lock:
            return dict(self._changes)

    @property
    def pods(self) -> list[str]:
        """The Pods that the rule was applied to, as ``namespace/name``. Lets a test assert that its fault occurred."""
        with self._lock:
            return list(self._pods.values())

    def takes(self, pod: Object) -> bool:
        """Whether the rule applies to a Pod. Records each Pod that the rule applies to (`pods`)."""
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
        """Log that `where` raised, once for each Pod."""
        with self._lock:
            known = meta["uid"] in self._failed
            self._failed.add(meta["uid"])
        if not known:
            log.exception("the function `where` of a Pod rule raised for %s/%s, so the rule was skipped",
                          meta["namespace"], meta["name"])

    def remove(self) -> None:
        """Remove the rule. Containers that the rule held back continue at once."""
        self._rules.remove(self)

    def first(self, count: int) -> PodRule:
        """Apply the rule only to the first `count` Pods that match. Other rules still apply to later Pods.

        Must be called before any action, because the rule applies from its first action on. Otherwise raises
        ValueError.
        """
        if self.changes:
            raise ValueError("the rule already applies to all matching Pods: call first(…) before any action, as in "
                             "on(…).first(1).crash()")
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ValueError(f"first({count!r}): must be a number of Pods, at least 1")
        with self._lock:
            self._count = count
        return self

    # -- actions

    def unschedulable(self, why: str = "no node fits the Pod, by a rule of the test") -> PodRule:
        """Keep the Pods unscheduled. `why` becomes the message of their condition PodScheduled."""
        return self._says(unschedulable=_text("why", why))

    def start(self, *, after: Duration) -> PodRule:
        """Set how long each container takes to start, including its image pull."""
        return self._says(start=_seconds("after", after))

    def fail_image_pull(self, why: str = "not found") -> PodRule:
        """Let image pulls fail (ErrImagePull, then ImagePullBackOff) until the rule is removed."""
        return self._says(pull_error=_text("why", why))

    def be_ready(self, *, after: Duration) -> PodRule:
        """Let the containers become ready once they have run for `after`."""
        return self._says(ready=_seconds("after", after))

    def never_be_ready(self) -> PodRule:
        """Let the containers run without becoming ready, until the rule is removed."""
        return self._says(ready=None)

    def crash(self, code: int = 1, *, after: Duration = 0, times: int | None = None) -> PodRule:
        """Let the containers end with exit code `code` once they have run for `after`.

        Depending on the Pod's restartPolicy, the containers restart with a backoff (CrashLoopBackOff), or the Pod
        fails. With `times`, only that many runs of each container crash, and the next run does not end.
        """
        if isinstance(code, bool) or not isinstance(code, int) or not 1 <= code <= 255:
            raise ValueError(f"crash({code!r}): the exit code must be from 1 to 255; succeed() exits with 0")
        if times is not None and (isinstance(times, bool) or not isinstance(times, int) or times < 1):
            raise ValueError(f"times={times!r}: must be a number of runs, at least 1")
        return self._says(run=_seconds("after", after), exit_code=code, endings=times)

    def succeed(self, *, after: Duration = 0) -> PodRule:
        """Let the containers end successfully once they have run for `after`.

        (Without a rule, containers of Jobs end successfully at once.)
        """
        return self._says(run=_seconds("after", after), exit_code=0, endings=None)

    def keep_running(self) -> PodRule:
        """Let the containers run until they are stopped, even in a Job's Pods."""
        return self._says(run=None, exit_code=0, endings=None)

    def stop(self, *, after: Duration) -> PodRule:
        """Let the containers end by themselves when `after` has passed since their Pod's deletion (0: immediately).

        At the end of the grace period they are killed in any case. Without such a rule a deleted Pod takes its whole
        grace period.
        """
        return self._says(stop=_seconds("after", after))

    def log(self, text: bytes | str) -> PodRule:
        """Let each container write `text` to its log when it starts."""
        if not isinstance(text, str | bytes):
            raise ValueError(f"log({text!r}): must be str or bytes")
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
    raise ValueError(f"{name}={value!r}: must be a number of seconds, 0 or more, or a timedelta")


def _text(name: str, value: str) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name}={value!r}: must be a str that is not empty")
    return value


class PodRules:
    """The rules for a server's Pods. Rules apply at once, also to existing Pods. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rules: tuple[PodRule, ...] = ()
        self._version = 0
        self._changed: Callable[[], None] = lambda: None
        self._in_use = False

    def __iter__(self) -> Iterator[PodRule]:
        return iter(self._rules)

    def __len__(self) -> int:
        return len(self._rules)

    def on(self, selector: LabelSelection | None = None, *, name: str | None = None, namespace: str | None = None,
           container: str | None = None, image: str | None = None,
           where: Callable[[Object], object] | None = None) -> PodRule:
        """Begin a rule for Pods that match all the arguments, or for all Pods if there are no arguments.

        `selector` is a label selector in any form. `name`, `namespace`, `container` and `image` are patterns with
        ``*``; `image` is compared with the image in the Pod's spec. With `container` or `image` the rule applies to the
        matching containers, otherwise to all containers except init containers. `where` is called last, with the Pod as
        a dict, in a server thread that holds no lock. If it raises, the exception is logged and the Pod does not match.

        Raises RequestError for an invalid selector. Raises ValueError for an invalid pattern or function, and if the
        server runs no Pods.
        """
        if where is not None and not callable(where):
            raise ValueError(f"where={where!r}: must be a function that takes a Pod and returns a bool")
        if not self._in_use:
            raise ValueError('this server runs no Pods, so a rule would have no effect: add the controller "kubelet", '
                             'as in ApiServer(controllers=[*DEFAULT_CONTROLLERS, "kubelet"])')
        return PodRule(self, PodMatch(Selector.of(selector), _pattern(name), _pattern(namespace), _pattern(container),
                                      _pattern(image), where))

    def clear(self) -> None:
        """Remove all rules."""
        with self._lock:
            self._rules = ()
        self._tell()

    def enforce(self, rule: PodRule) -> None:
        """Put a rule into effect. The rule's first action calls this method."""
        with self._lock:
            if rule not in self._rules:
                self._rules += (rule,)
        self._tell()

    def remove(self, rule: PodRule) -> None:
        """Remove a rule, so that the rule no longer applies."""
        with self._lock:
            self._rules = tuple(other for other in self._rules if other is not rule)
        self._tell()

    def _tell(self) -> None:
        with self._lock:
            self._version += 1
        self._changed()

    # -- for the loop that runs Pods

    def use(self) -> None:
        """Record that a `KubeletLoop` runs Pods by these rules."""
        self._in_use = True

    @property
    def in_use(self) -> bool:
        """Whether a `KubeletLoop` runs Pods by these rules."""
        return self._in_use

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call `callback` after each change, in the thread that changed a rule. Replaces an earlier callback."""
        self._changed = callback

    @property
    def version(self) -> int:
        """A number that changes with each change of the rules."""
        return self._version

    def plan(self, pod: Object) -> Plan:
        """The plan for a Pod. Calls the test's functions, so callers must hold no lock."""
        said = [(rule.match, rule.changes) for rule in self._rules if rule.takes(pod)]
        spec, containers = pod["spec"], {}
        usual = Behaviour(run=0.0) if _is_of_job(pod) else Behaviour()
        for container in spec.get("initContainers") or ():
            sidecar = container.get("restartPolicy") == "Always"
            containers[container["name"]] = _applied(said, container, Behaviour() if sidecar else Behaviour(run=0.0),
                                                     initial=True)
        for container in spec["containers"]:
            containers[container["name"]] = _applied(said, container, usual, initial=False)
        whys = [containers[container["name"]].unschedulable for container in spec["containers"]]
        return Plan(containers, next(filter(None, whys), ""))


def _applied(said: list[tuple[PodMatch, Any]], container: Object, usual: Behaviour, *, initial: bool) -> Behaviour:
    for match, changes in said:
        if match.takes_container(container, initial=initial):
            usual = replace(usual, **changes)
    return usual


def _is_of_job(pod: Object) -> bool:
    return any(owner.get("controller") and owner.get("kind") == "Job"
               for owner in pod["metadata"].get("ownerReferences") or ())


def _pattern(text: str | None) -> re.Pattern[str] | None:
    if text is not None and not isinstance(text, str):
        raise ValueError(f"{text!r} is not a pattern: must be a str such as 'web-*'")
    return None if text is None else re.compile(fnmatch.translate(text))
