"""`PodTroubles`: why the Pods of a workload that is not ready do not run, in the words of scheduler and kubelet.

    deployments web: 0 of 1 updated replicas are available; Pod web-7d9f: main: ImagePullBackOff: manifest unknown

What one would look up next with `kubectl describe pod`. It is best effort, at the end of a wait that failed already:
who may not list Pods, or gets no answer, is told no more than before.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kubectl_runtime.client.api.api import Api
from kubectl_runtime.core.base.errors import KubeError
from kubectl_runtime.core.meta.gvk import ApiResource
from kubectl_runtime.runtime.parts import condition_of, items_of, mapping, number_of, part_of

PODS = ApiResource("", "v1", "Pod", "pods")
MOST_PODS = 50
"""Pods that are looked at: those of one workload mostly have one trouble."""
MOST_TOLD = 3
"""Troubles that are told."""
PATIENCE = 5.0
"""Seconds for the one call."""

_USUAL = frozenset(("", "ContainerCreating", "PodInitializing"))


class PodTroubles:
    """Looks up the Pods of one workload after the other, until the server does not answer. For one thread."""

    def __init__(self) -> None:
        self._usable = True

    def of(self, api: Api[Any], obj: Any) -> str:
        """What is to be said behind the reason; empty when nothing is known. Blocks for one call, `PATIENCE` at
        most."""
        labels = mapping(part_of(obj, "spec").get("selector")).get("matchLabels")
        if not self._usable or not api.namespace or not isinstance(labels, Mapping) or not labels:
            return ""
        try:
            pods = Api.namespaced(api.client, PODS, api.namespace).list(label_selector=labels, limit=MOST_PODS,
                                                                        timeout=PATIENCE)
            told: dict[str, str] = {}  # one Pod for each trouble
            for pod in pods:
                for trouble in _troubles(pod):
                    told.setdefault(trouble, pod.name)
        except KubeError:
            self._usable = False
            return ""
        return "".join(f"; Pod {name}: {trouble}" for trouble, name in [*told.items()][:MOST_TOLD])


    def ending(self, api: Api[Any], namespace: str) -> str:
        """The same of the Pods that a Namespace waits for: they are given time to end, which it says nothing of."""
        if not self._usable:
            return ""
        try:
            pods = Api.namespaced(api.client, PODS, namespace).list(limit=MOST_PODS, timeout=PATIENCE)
            ending = [pod for pod in pods if pod.deletion_timestamp is not None]
        except KubeError:
            self._usable = False
            return ""
        told = [f"{pod.name} ({_grace(pod):g} s of grace)" for pod in ending[:MOST_TOLD]]
        more = f" and {len(ending) - MOST_TOLD} more" if len(ending) > MOST_TOLD else ""
        return f"; it waits for its Pods to end: {', '.join(told)}{more}" if told else ""


def _grace(pod: Any) -> int:
    return number_of(part_of(pod, "metadata"), "deletionGracePeriodSeconds")


def _troubles(pod: Any) -> Iterator[str]:
    scheduled = condition_of(pod, "PodScheduled")
    if scheduled.get("status") == "False":
        yield _said(scheduled.get("reason"), scheduled.get("message"))
    status = part_of(pod, "status")
    for container in (*items_of(status, "initContainerStatuses"), *items_of(status, "containerStatuses")):
        waiting = mapping(mapping(container.get("state")).get("waiting"))
        if (reason := str(waiting.get("reason") or "")) in _USUAL:
            continue
        ended = mapping(mapping(container.get("lastState")).get("terminated"))
        code = f" (exit code {ended['exitCode']})" if "exitCode" in ended else ""
        yield f"{container.get('name')}: {_said(reason, waiting.get('message'))}{code}"


def _said(reason: Any, message: Any) -> str:
    return f"{reason}: {message}" if message else str(reason)
