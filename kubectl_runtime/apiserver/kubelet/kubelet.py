"""`Kubelet`: what the server's Pods answer when they are asked for logs, exec or attach.

    log = server.kubelet.logs("web", "starting\\n")            the log of every container of the Pod default/web
    log.write("ready\\n")                                      followers see it at once
    log.end()                                                  the container has ended, and so does following

    def shell(call: ExecCall) -> int:                          runs in the thread of the connection
        call.stdout.write(b"you said " + b"".join(call.stdin))
        return 0
    server.kubelet.exec("web", shell)

What is given for one container is preferred to what is given for all (`container=None`). The Pod itself has to be
there, as for a real server; it need not have a node. Safe to use from any thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from kubectl_runtime.apiserver.kubelet.container_log import ContainerLog
from kubectl_runtime.apiserver.kubelet.sessions import ExecHandler
from kubectl_runtime.core.base.clock import Clock

T = TypeVar("T")
_Key = tuple[str, str, str, str | None]


class Kubelet:
    """See the module."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._logs: dict[_Key, ContainerLog] = {}
        self._handlers: dict[_Key, ExecHandler] = {}

    def logs(self, pod: str, content: bytes | str = b"", *, namespace: str = "default", container: str | None = None,
             previous: bool = False) -> ContainerLog:
        """The log of a container, to write to: a new one for the first call, then always the same.

        `content` is written to it. `previous`: of the container's last instance.
        """
        key = ("previous" if previous else "log", namespace, pod, container)
        with self._lock:
            log = self._logs.setdefault(key, ContainerLog(self._clock))
        if content:
            log.write(content)
        return log

    def exec(self, pod: str, handler: ExecHandler, *, namespace: str = "default",
             container: str | None = None) -> None:
        """Have `handler` answer every exec in the container, in place of one given before.

        It is called in the thread of the connection and returns the exit code. What it raises is logged and answered as
        a command that could not be run.
        """
        self._set(("exec", namespace, pod, container), handler)

    def attach(self, pod: str, handler: ExecHandler, *, namespace: str = "default",
               container: str | None = None) -> None:
        """As `exec`, for attach: the call's command is empty."""
        self._set(("attach", namespace, pod, container), handler)

    def _set(self, key: _Key, handler: Callable[..., int | None]) -> None:
        with self._lock:
            self._handlers[key] = handler

    # What the server asks

    def find_log(self, namespace: str, pod: str, container: str, *, previous: bool) -> ContainerLog | None:
        """What was given for the container; None for nothing."""
        return self._find(self._logs, "previous" if previous else "log", namespace, pod, container)

    def find_handler(self, what: str, namespace: str, pod: str, container: str) -> ExecHandler | None:
        """What answers `exec` or `attach`; None for nothing."""
        return self._find(self._handlers, what, namespace, pod, container)

    def _find(self, given: dict[_Key, T], what: str, namespace: str, pod: str, container: str) -> T | None:
        with self._lock:
            found = given.get((what, namespace, pod, container))
            return given.get((what, namespace, pod, None)) if found is None else found
