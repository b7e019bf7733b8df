"""Records the permissions that reconcilers use in tests, for `kubectl-runtime rbac --recorded`.

    pytest --kube-record-rights rights.json          # with the pytest plugin
    with RightsRecorder() as recorder: ...           # in a program

The recorder notes the requests that a reconciler's run makes in the run's own thread, and the Events that the run
records. It ignores requests of the tests' own clients. It also ignores the controllers' watches, since `rbac` knows
them from the controllers. A permission is therefore recorded only if a test makes the reconciler use it. If a run
writes a RoleBinding or ClusterRoleBinding, the recorder also notes the verb `bind` on the role that the binding names.

The library's own follow-up requests are added even if no test causes them. For example, an Event may be patched after
its creation, and `ctx.read` watches the objects that it has read. The following functions therefore report to the
recorder all requests that they may make: `ctx.ensure(prune=True)`, `finalizer`, `create_or_update`, `Entry.commit`,
`ctx.report`, the waits (such as `await_condition`) and `drain`.
"""
from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import msgspec

from kubectl_runtime.certificates.bundles import write_private
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.core.requests.request import Request
from kubectl_runtime.core.requests.rights import Right, listeners, rights_of
from kubectl_runtime.core.scope import current_run

_EVENTS = ("events.k8s.io", "events")


class Recorded(msgspec.Struct):
    """The content of a file with recorded permissions."""

    rights: list[Right]


class RightsRecorder:
    """Records permissions in all threads inside the `with` block. Only one recorder may be active in a process, since
    it observes the requests of all clients."""

    def __init__(self) -> None:
        self._requests: dict[Right, None] = {}
        self._bodies: list[Request] = []
        self._plurals: dict[tuple[str, str], str] = {}
        self._lock = threading.Lock()
        self._original: Any = None

    def __enter__(self) -> RightsRecorder:
        original = self._original = Client._call

        def noting(client: Client, request: Request, *arguments: Any) -> Any:
            self._note(request)
            return original(client, request, *arguments)

        patched: Any = Client
        patched._call = noting  # every call and stream of a client uses this method
        listeners.append(self._foreseen)
        return self

    def __exit__(self, *_: object) -> None:
        patched: Any = Client
        patched._call = self._original
        listeners.remove(self._foreseen)

    def _foreseen(self, right: Right) -> None:
        if current_run() is not None:
            with self._lock:
                self._requests[right] = None

    def _note(self, request: Request) -> None:
        resource = request.resource
        if resource is None:
            return
        is_event = (resource.group, resource.plural) == _EVENTS and request.method != "GET"
        with self._lock:
            self._plurals[resource.group, resource.kind] = resource.plural
            if not (current_run() is not None or is_event):
                return
            if is_event:  # always record both verbs: a short test may not run into the patch of a repeated Event
                self._requests.update(dict.fromkeys(Right(*_EVENTS, verb, request.namespace)
                                                    for verb in ("create", "patch")))
            if request.body is not None and b"blockOwnerDeletion" in request.body:
                self._bodies.append(request)
            else:
                self._requests.update(dict.fromkeys(rights_of(request)))

    def rights(self) -> list[Right]:
        """The permissions used so far, sorted."""
        with self._lock:
            owned = [right for request in self._bodies for right in rights_of(request, self._plurals)]
            return sorted({*self._requests, *owned}, key=lambda right: (right.group, right.resource, right.verb,
                                                                        right.namespace or "", right.name))

    def write(self, file: Path) -> None:
        """Write the permissions used so far in the format that `rbac --recorded` reads. Raises OSError, also if the
        file is a link, a device or a pipe."""
        text = msgspec.json.format(msgspec.json.encode(Recorded(self.rights())), indent=1)
        write_private(file, text + b"\n")
