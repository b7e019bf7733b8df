"""`Kubelet`: how the server's Pods run, and how they answer requests for logs, exec, attach and port-forward.

    server.kubelet.rules.on("app=web").crash()               # what Pods do (needs the controller "kubelet")

    log = server.kubelet.logs("web", "starting\\n")            # the log of every container of the Pod default/web
    log.write("ready\\n")                                      # followers see it at once
    log.end()                                                  # the container has ended: followers of the log end

    def shell(call: ExecCall) -> int:                          # runs in the connection's thread
        call.stdout.write(b"you said " + b"".join(call.stdin))
        return 0
    server.kubelet.exec("web", shell)

    server.kubelet.portforward("db-*", 5432, to=local_port)    # connections to the Pod's port go to 127.0.0.1

The most specific setting wins: a container before all containers (`container=None`), a Pod before a pattern
(`"web-*"`), a namespace before all namespaces. The Pod must exist, as on a real server, but need not have a node.

If the controller "kubelet" runs Pods, each Pod also has a log, which is empty or contains a rule's text
(`PodRule.log`). This log ends when its container ends. A log that a test made with `logs` is not changed.
"""

from __future__ import annotations

import fnmatch
import threading
from collections.abc import Callable
from typing import TypeVar

from kubectl_runtime.apiserver.kubelet.rules import PodRules
from kubectl_runtime.apiserver.kubelet.sessions import ContainerLog, ExecHandler, ForwardHandler, to_local_port
from kubectl_runtime.core.base.threads import Clock

T = TypeVar("T")
_Key = tuple[str, str, str, str | None]
_MOST_GIVEN = 10  # maximum number of settings that an error message names


class Kubelet:
    """Decides how a server's Pods run (`rules`), and what they answer to requests for logs, exec, attach and
    port-forward. Safe to use from any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._logs: dict[_Key, ContainerLog] = {}
        self._handlers: dict[_Key, ExecHandler] = {}
        self._forwards: dict[_Key, ForwardHandler] = {}
        self._own: set[_Key] = set()  # keys of logs that the server (not a test) made for running containers
        self.rules = PodRules()
        """The rules by which Pods run (see `PodRules`)."""
        self.left_alone: frozenset[str] = frozenset()
        """UIDs of Pods that the controller does not change until they are deleted. Must be set before the Pods exist.
        """

    def logs(self, pod: str, content: bytes | str = b"", *, namespace: str = "*", container: str | None = None,
             previous: bool = False) -> ContainerLog:
        """A container's log, which a test can write to. The first call makes the log; later calls return the same log.

        `content` is appended to the log. With `previous`, the log is that of the container's previous instance.
        """
        key = ("previous" if previous else "log", namespace, pod, container)
        with self._lock:
            log = self._logs.setdefault(key, ContainerLog(self._clock))
        if content:
            log.write(content)
        return log

    def exec(self, pod: str, handler: ExecHandler, *, namespace: str = "*",
             container: str | None = None) -> None:
        """Let `handler` answer every exec in the container, in place of an earlier handler.

        `handler` is called in the connection's thread and returns the exit code. If it raises, the exception is logged,
        and the client gets the error of a command that could not be run.
        """
        self._set(("exec", namespace, pod, container), handler)

    def attach(self, pod: str, handler: ExecHandler, *, namespace: str = "*",
               container: str | None = None) -> None:
        """Let `handler` answer every attach in the container, like `exec`. The call's command is empty."""
        self._set(("attach", namespace, pod, container), handler)

    def portforward(self, pod: str, port: int, handler: ForwardHandler | None = None, *, to: int | None = None,
                    namespace: str = "*") -> None:
        """Let `handler` answer every connection to a Pod's port, or forward every connection to port `to` of 127.0.0.1.

        `handler` gets a `ForwardedConnection` and is called in a thread of its own. When the handler returns, the
        connection ends. If it raises, the exception is logged and sent to the client as the port's error. Raises
        ValueError unless exactly one of `handler` and `to` is given, and for an invalid port number.
        """
        if (handler is None) == (to is None):
            raise ValueError("portforward() needs either handler= or to= (the local port to forward to)")
        for number in (port, *((to,) if to is not None else ())):
            if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= 65535:
                raise ValueError(f"a port must be a number from 1 to 65535, not {number!r}")
        found = handler if handler is not None else to_local_port(to or 0)
        with self._lock:
            self._forwards["portforward", namespace, pod, str(port)] = found

    def _set(self, key: _Key, handler: Callable[..., int | None]) -> None:
        with self._lock:
            self._handlers[key] = handler

    # Called by the server.

    def find_log(self, namespace: str, pod: str, container: str, *, previous: bool) -> ContainerLog | None:
        """The container's log, or None if the container has no log."""
        return self._find(self._logs, "previous" if previous else "log", namespace, pod, container)

    def open_log(self, namespace: str, pod: str) -> ContainerLog:
        """The Pod's own log, for containers that have no log. It is created, empty, if it does not exist."""
        return self._own_log(("log", namespace, pod, None))

    def begin_log(self, namespace: str, pod: str, container: str, content: bytes) -> None:
        """Begin a log with `content`, because a container has started. The last run's log becomes the previous log."""
        key, before = ("log", namespace, pod, container), ("previous", namespace, pod, container)
        with self._lock:
            if key in self._own:
                self._logs[before] = self._logs.pop(key)
                self._own = self._own - {key} | {before}
        if content:
            self._own_log(key).write(content)

    def end_log(self, namespace: str, pod: str, container: str) -> None:
        """End the log of a container that has ended."""
        self._end(("log", namespace, pod, container))

    def end_pod(self, namespace: str, pod: str) -> None:
        """End the Pod's own log, because all its containers have ended for good."""
        self._end(("log", namespace, pod, None))

    def forget_pod(self, namespace: str, pod: str) -> None:
        """Drop the logs of a Pod that is gone, so that another Pod with its name gets new logs."""
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
        """The handler of `exec` or `attach`; None if there is none."""
        return self._find(self._handlers, what, namespace, pod, container)

    def find_forward(self, namespace: str, pod: str, port: int) -> ForwardHandler | None:
        """The handler of connections to a port; None if there is none."""
        return self._find(self._forwards, "portforward", namespace, pod, str(port))

    def given(self, what: str) -> str:
        """The Pods for which a test set `what` (log, exec, attach, portforward), as text for an error; "" if none."""
        with self._lock:
            keys = [key for known in (self._logs, self._handlers, self._forwards) for key in known
                    if key[0] == what and key not in self._own]
        part = "port" if what == "portforward" else "container"
        return ", ".join(f"{namespace}/{pod}" + (f" ({part} {detail})" if detail is not None else "")
                         for _, namespace, pod, detail in keys[:_MOST_GIVEN])

    def _find(self, given: dict[_Key, T], what: str, namespace: str, pod: str, detail: str) -> T | None:
        """The most specific setting for a container or port."""
        with self._lock:
            found = [key for key in given if key[0] == what and key[3] in (detail, None)
                     and fnmatch.fnmatchcase(namespace, key[1]) and fnmatch.fnmatchcase(pod, key[2])]
            best = max(found, default=None, key=lambda key: (
                key not in self._own, key[2] == pod, key[3] is not None, key[1] == namespace, key[1] != "*"))
            return None if best is None else given[best]
