"""`Kubelet`: what becomes of the server's Pods, and what they answer when they are asked for logs, exec or attach.

    server.kubelet.rules.on("app=web").crash()               what Pods do, where the controller "kubelet" runs them

    log = server.kubelet.logs("web", "starting\\n")            the log of every container of the Pod default/web
    log.write("ready\\n")                                      followers see it at once
    log.end()                                                  the container has ended, and so does following

    def shell(call: ExecCall) -> int:                          runs in the thread of the connection
        call.stdout.write(b"you said " + b"".join(call.stdin))
        return 0
    server.kubelet.exec("web", shell)

    server.kubelet.portforward("db-*", 5432, to=local_port)    connections to the Pod's port go to 127.0.0.1

What is given for one container is preferred to what is given for all (`container=None`), and what is given for one Pod
to what is given for a pattern (`"web-*"`). It holds in any namespace unless one is named, which may be a pattern, too;
what names the namespace is preferred. The Pod itself has to be there, as for a real
server; it need not have a node. Safe to use from any thread.

Where Pods run, each has a log, too: empty, or what a rule says (`PodRule.log`). Such a log ends with its container;
what a test gave stays as the test left it.
"""

from __future__ import annotations

import fnmatch
import threading
from collections.abc import Callable
from typing import TypeVar

from kubectl_runtime.apiserver.kubelet.rules import PodRules
from kubectl_runtime.apiserver.kubelet.sessions import ContainerLog, ExecHandler, ForwardHandler, to_local_port
from kubectl_runtime.core.base.clock import Clock

T = TypeVar("T")
_Key = tuple[str, str, str, str | None]
_MOST_GIVEN = 10  # of which an error tells


class Kubelet:
    """See the module."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._logs: dict[_Key, ContainerLog] = {}
        self._handlers: dict[_Key, ExecHandler] = {}
        self._forwards: dict[_Key, ForwardHandler] = {}
        self._own: set[_Key] = set()  # logs that running containers brought along
        self.rules = PodRules()
        """What becomes of Pods; see `PodRules`."""

    def logs(self, pod: str, content: bytes | str = b"", *, namespace: str = "*", container: str | None = None,
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

    def exec(self, pod: str, handler: ExecHandler, *, namespace: str = "*",
             container: str | None = None) -> None:
        """Have `handler` answer every exec in the container, in place of one given before.

        It is called in the thread of the connection and returns the exit code. What it raises is logged and answered as
        a command that could not be run.
        """
        self._set(("exec", namespace, pod, container), handler)

    def attach(self, pod: str, handler: ExecHandler, *, namespace: str = "*",
               container: str | None = None) -> None:
        """As `exec`, for attach: the call's command is empty."""
        self._set(("attach", namespace, pod, container), handler)

    def portforward(self, pod: str, port: int, handler: ForwardHandler | None = None, *, to: int | None = None,
                    namespace: str = "*") -> None:
        """Have `handler` answer every connection to a port of the Pod, or lead the connections to the port `to` of
        127.0.0.1.

        The function gets one `ForwardedConnection` and is called in a thread of its own; when it returns, the
        connection ends. What it raises is logged, and the client reads it as the failure of the port. Raises
        ValueError unless exactly one of both is given, and for a number that is no port.
        """
        if (handler is None) == (to is None):
            raise ValueError("portforward wants either a function or the local port to which connections go")
        for number in (port, *((to,) if to is not None else ())):
            if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= 65535:
                raise ValueError(f"a port is a number from 1 to 65535, not {number!r}")
        found = handler if handler is not None else to_local_port(to or 0)
        with self._lock:
            self._forwards["portforward", namespace, pod, str(port)] = found

    def _set(self, key: _Key, handler: Callable[..., int | None]) -> None:
        with self._lock:
            self._handlers[key] = handler

    # What the server asks

    def find_log(self, namespace: str, pod: str, container: str, *, previous: bool) -> ContainerLog | None:
        """What was given for the container; None for nothing."""
        return self._find(self._logs, "previous" if previous else "log", namespace, pod, container)

    def open_log(self, namespace: str, pod: str) -> ContainerLog:
        """The log of a Pod that runs and for which nothing was given: an empty one."""
        return self._own_log(("log", namespace, pod, None))

    def begin_log(self, namespace: str, pod: str, container: str, content: bytes) -> None:
        """A container starts, and writes this; the log of its last run is the previous one from now on."""
        key, before = ("log", namespace, pod, container), ("previous", namespace, pod, container)
        with self._lock:
            if key in self._own:
                self._logs[before] = self._logs.pop(key)
                self._own = self._own - {key} | {before}
        if content:
            self._own_log(key).write(content)

    def end_log(self, namespace: str, pod: str, container: str) -> None:
        """A container has ended."""
        self._end(("log", namespace, pod, container))

    def end_pod(self, namespace: str, pod: str) -> None:
        """All containers have ended for good."""
        self._end(("log", namespace, pod, None))

    def forget_pod(self, namespace: str, pod: str) -> None:
        """The Pod is gone: a namesake has logs of its own."""
        with self._lock:
            gone = {key for key in self._own if key[1:3] == (namespace, pod)}
            self._own -= gone
            logs = [self._logs.pop(key) for key in gone]
        for log in logs:
            log.end()

    def _own_log(self, key: _Key) -> ContainerLog:
        with self._lock:
            if key not in self._logs:
                self._logs[key] = ContainerLog(self._clock)
                self._own.add(key)
            return self._logs[key]

    def _end(self, key: _Key) -> None:
        with self._lock:
            log = self._logs.get(key) if key in self._own else None
        if log is not None:
            log.end()

    def find_handler(self, what: str, namespace: str, pod: str, container: str) -> ExecHandler | None:
        """What answers `exec` or `attach`; None for nothing."""
        return self._find(self._handlers, what, namespace, pod, container)

    def find_forward(self, namespace: str, pod: str, port: int) -> ForwardHandler | None:
        """What answers connections to a port; None for nothing."""
        return self._find(self._forwards, "portforward", namespace, pod, str(port))

    def given(self, what: str) -> str:
        """What was given for `log`, `exec`, `attach` or `portforward`, in words for an error; "" for nothing."""
        with self._lock:
            keys = [key for known in (self._logs, self._handlers, self._forwards) for key in known
                    if key[0] == what and key not in self._own]
        part = "port" if what == "portforward" else "container"
        return ", ".join(f"{namespace}/{pod}" + (f" ({part} {detail})" if detail is not None else "")
                         for _, namespace, pod, detail in keys[:_MOST_GIVEN])

    def _find(self, given: dict[_Key, T], what: str, namespace: str, pod: str, detail: str) -> T | None:
        """What was given for a container or port; what says more exactly what it is for is preferred."""
        with self._lock:
            found = [key for key in given if key[0] == what and key[3] in (detail, None)
                     and fnmatch.fnmatchcase(namespace, key[1]) and fnmatch.fnmatchcase(pod, key[2])]
            best = max(found, default=None, key=lambda key: (
                key not in self._own, key[2] == pod, key[3] is not None, key[1] == namespace, key[1] != "*"))
            return None if best is None else given[best]
