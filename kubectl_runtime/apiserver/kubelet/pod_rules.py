"""`PodRules`: what becomes of the Pods of a server, by rules that a test adds and removes (`server.kubelet.rules`).

Without rules each Pod gets a node, starts at once, is ready at once and runs until it is deleted, which takes its grace
period; only the Pods of Jobs, and init containers, end by themselves, well and at once.
"""

from __future__ import annotations

import fnmatch
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from kubectl_runtime.apiserver.kubelet.behaviour import Behaviour, Plan
from kubectl_runtime.apiserver.kubelet.pod_rule import PodMatch, PodRule
from kubectl_runtime.core.meta.selectors import LabelSelection, Selector

Object = dict[str, Any]


class PodRules:
    """See the module. Safe to use from any thread; rules hold at once, also for Pods that are there already."""

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
        """Begin a rule for Pods that match all that is given, or for all Pods.

        `selector` is of labels, in any form; `name`, `namespace`, `container` and `image` are patterns with ``*``, the
        image as the Pod's spec has it. With `container` or `image` the rule is about those containers of the Pods, else
        about all but the init containers. `where` gets the Pod as a dict and is asked last, in a thread of the server
        that holds no lock; what it raises is logged, and the Pod is not meant.

        Raises RequestError for what is no selector, ValueError for what is no pattern or function, and where no Pod
        runs at all.
        """
        if where is not None and not callable(where):
            raise ValueError(f"where={where!r}: a function is expected, from a Pod to whether it is meant")
        if not self._in_use:
            raise ValueError('no Pod runs on this server, so that a rule would do nothing: the controller "kubelet" is '
                             'needed, as in ApiServer(controllers=[*DEFAULT_CONTROLLERS, "kubelet"])')
        return PodRule(self, PodMatch(Selector.of(selector), _pattern(name), _pattern(namespace), _pattern(container),
                                      _pattern(image), where))

    def clear(self) -> None:
        """Take all rules out of force."""
        with self._lock:
            self._rules = ()
        self._tell()

    def enforce(self, rule: PodRule) -> None:
        """Put a rule in force; its first action does this."""
        with self._lock:
            if rule not in self._rules:
                self._rules += (rule,)
        self._tell()

    def remove(self, rule: PodRule) -> None:
        """Take a rule out of force."""
        with self._lock:
            self._rules = tuple(other for other in self._rules if other is not rule)
        self._tell()

    def _tell(self) -> None:
        with self._lock:
            self._version += 1
        self._changed()

    # -- for those who run Pods

    def use(self) -> None:
        """Somebody acts by the rules."""
        self._in_use = True

    @property
    def in_use(self) -> bool:
        """Whether somebody acts by the rules: then Pods run."""
        return self._in_use

    def on_change(self, callback: Callable[[], None]) -> None:
        """Have `callback` called, in the thread of who changed a rule, after each change. One callback at a time."""
        self._changed = callback

    @property
    def version(self) -> int:
        """Another number after each change."""
        return self._version

    def plan(self, pod: Object) -> Plan:
        """What becomes of a Pod. Calls functions of the test: hold no lock."""
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
        raise ValueError(f"{text!r} is no pattern: a text such as 'web-*' is expected")
    return None if text is None else re.compile(fnmatch.translate(text))
